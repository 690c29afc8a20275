/** Which words of two texts differ: the shortest edit script in linear space (Myers 1986), within a bound on work. */

/** Characters of a side that are compared; what follows is shown and not compared. */
export const COMPARED = 20_000;
/** Steps of the search. Texts that need more have so little in common that the rest counts as replaced. */
const WORK = 6_000_000;

export interface Piece {
  text: string;
  changed: boolean;
}
export interface Difference {
  before: Piece[];
  after: Piece[];
  shared: number; // share of the shorter side's compared characters that both have
  capped: boolean;
}

export function difference(before: string, after: string): Difference {
  const [left, right] = [words(before.slice(0, COMPARED)), words(after.slice(0, COMPARED))];
  const numbers = new Map<string, number>();
  const numbered = (all: string[]) =>
    Int32Array.from(all, (word) => {
      const known = numbers.get(word) ?? numbers.size;
      numbers.set(word, known);
      return known;
    });
  const search = new Search(numbered(left), numbered(right));
  const runs = calmed(left, right, search.removed, search.added);
  const sides: [Piece[], Piece[]] = [[], []];
  let same = 0;
  for (const run of runs) {
    if (run.same) {
      same += run.same.length;
      sides.forEach((side) => side.push({ text: run.same, changed: false }));
    } else {
      if (run.removed) sides[0].push({ text: run.removed, changed: true });
      if (run.added) sides[1].push({ text: run.added, changed: true });
    }
  }
  [before, after].forEach((text, side) => {
    if (text.length > COMPARED) sides[side as 0 | 1].push({ text: text.slice(COMPARED), changed: false });
  });
  const shorter = Math.min(COMPARED, before.length, after.length);
  return { before: sides[0], after: sides[1], shared: shorter ? same / shorter : 1, capped: Math.max(before.length, after.length) > COMPARED };
}

/** Words and signs, each with the space before it, so that a difference in space alone is one too. */
export function words(text: string): string[] {
  return text.match(/\s*[\p{L}\p{N}_]+|\s*[^\s\p{L}\p{N}_]|\s+/gu) ?? [];
}

class Search {
  readonly removed: Uint8Array;
  readonly added: Uint8Array;
  private readonly forward: Int32Array;
  private readonly backward: Int32Array;
  private readonly zero: number; // where diagonal 0 is in the two arrays above
  private work = WORK;

  constructor(private readonly a: Int32Array, private readonly b: Int32Array) {
    this.removed = new Uint8Array(a.length);
    this.added = new Uint8Array(b.length);
    this.forward = new Int32Array(a.length + b.length + 3);
    this.backward = new Int32Array(a.length + b.length + 3);
    this.zero = b.length + 1;
    this.between(0, a.length, 0, b.length);
  }

  private between(aLow: number, aHigh: number, bLow: number, bHigh: number): void {
    const { a, b } = this;
    while (aLow < aHigh && bLow < bHigh && a[aLow] === b[bLow]) aLow++, bLow++;
    while (aLow < aHigh && bLow < bHigh && a[aHigh - 1] === b[bHigh - 1]) aHigh--, bHigh--;
    const middle = aLow < aHigh && bLow < bHigh ? this.middle(aLow, aHigh, bLow, bHigh) : null;
    if (!middle) {
      this.removed.fill(1, aLow, aHigh);
      this.added.fill(1, bLow, bHigh);
      return;
    }
    this.between(aLow, middle[0], bLow, middle[1]);
    this.between(middle[0], aHigh, middle[1], bHigh);
  }

  /** A point on a shortest path, found from both ends; null: the work is used up. */
  private middle(aLow: number, aHigh: number, bLow: number, bHigh: number): [number, number] | null {
    const { a, b, forward, backward, zero } = this;
    const [least, most] = [aLow - bHigh, aHigh - bLow];
    const [start, end] = [aLow - bLow, aHigh - bHigh];
    const odd = ((start - end) & 1) !== 0;
    let [fLeast, fMost, bLeast, bMost] = [start, start, end, end];
    forward[zero + start] = aLow;
    backward[zero + end] = aHigh;
    for (;;) {
      if (fLeast > least) forward[zero + --fLeast - 1] = -1;
      else fLeast++;
      if (fMost < most) forward[zero + ++fMost + 1] = -1;
      else fMost--;
      for (let d = fMost; d >= fLeast; d -= 2) {
        const [below, above] = [forward[zero + d - 1] as number, forward[zero + d + 1] as number];
        let x = below < above ? above : below + 1;
        while (x < aHigh && x - d < bHigh && a[x] === b[x - d]) x++;
        forward[zero + d] = x;
        if (odd && bLeast <= d && d <= bMost && (backward[zero + d] as number) <= x) return [x, x - d];
      }
      if (bLeast > least) backward[zero + --bLeast - 1] = 1 << 30;
      else bLeast++;
      if (bMost < most) backward[zero + ++bMost + 1] = 1 << 30;
      else bMost--;
      for (let d = bMost; d >= bLeast; d -= 2) {
        const [below, above] = [backward[zero + d - 1] as number, backward[zero + d + 1] as number];
        let x = below < above ? below : above - 1;
        while (aLow < x && bLow < x - d && a[x - 1] === b[x - d - 1]) x--;
        backward[zero + d] = x;
        if (!odd && fLeast <= d && d <= fMost && x <= (forward[zero + d] as number)) return [x, x - d];
      }
      this.work -= fMost - fLeast + bMost - bLeast + 2;
      if (this.work < 0) return null;
    }
  }
}

interface Run {
  same: string;
  removed: string;
  added: string;
}

/** Runs of equal and changed words. A few equal words between two larger changes are chance and join them: a reader
 * wants to see one replaced sentence, not confetti. */
function calmed(left: string[], right: string[], removed: Uint8Array, added: Uint8Array): Run[] {
  const runs: Run[] = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    const run: Run = { same: "", removed: "", added: "" };
    while (i < left.length && removed[i]) run.removed += left[i++];
    while (j < right.length && added[j]) run.added += right[j++];
    if (run.removed || run.added) runs.push(run);
    let same = "";
    while (i < left.length && j < right.length && !removed[i] && !added[j]) {
      same += left[i++];
      j++;
    }
    if (same) runs.push({ same, removed: "", added: "" });
  }
  const size = (run: Run | undefined) => Math.max(run?.removed.length ?? 0, run?.added.length ?? 0);
  const calm: Run[] = [];
  for (const run of runs) {
    calm.push(run);
    for (;;) {
      const [before, middle, after] = calm.slice(-3) as [Run, Run, Run];
      if (calm.length < 3 || !middle.same || middle.same.length > 40 || middle.same.length > Math.min(size(before), size(after))) break;
      const joined = { same: "", removed: before.removed + middle.same + after.removed, added: before.added + middle.same + after.added };
      calm.splice(-3, 3, joined);
    }
  }
  return calm;
}
