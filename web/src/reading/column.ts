/** One long text whose tokens are coloured where somebody looks. The text is all there, in blocks of some lines. A block near the window
 * has its colours in a drawing below the letters, one path for each level: painting a node for each token, or a canvas for each block,
 * takes longer than a frame. */
import { shownSlice } from "../text";
import type { ColourScale, TokenRow } from "../types";
import { level, levelClass } from "./levels";

/** Characters of a block at which it ends with its line, and at which it ends anyway. */
const BLOCK = 700;
const LONG = 3_000;
/** Milliseconds of a frame that blocks may be painted in. */
const FRAME = 3;

export interface Mark {
  start: number;
  stop: number;
  kind: "hit" | "ins" | "del";
}

/** A text node, and which part of the text it shows. Hidden characters are written out, so it may be longer than that part. */
interface Piece {
  node: Text;
  from: number;
  to: number;
}

interface Place {
  element: HTMLElement;
  pieces: Piece[];
  from: number;
  to: number;
  near: boolean;
  drawing: SVGSVGElement | null;
}

export interface ColumnHost extends HTMLElement {
  column?: Column;
}

export class Column {
  private places: Place[] = [];
  private ends: Int32Array | null = null;
  private levels: Int8Array | null = null;
  private sized: ResizeObserver;
  private width = 0;
  tokens: TokenRow | null = null;
  scale: ColourScale | null = null;

  constructor(
    readonly host: HTMLElement,
    readonly text: string,
    private readonly marks: Mark[],
    private readonly watch: Watch,
  ) {
    const all = document.createDocumentFragment();
    for (const [from, to] of cut(text)) {
      const element = document.createElement("div");
      element.className = "lines";
      const place: Place = { element, from, to, near: false, drawing: null, pieces: this.fill(element, from, to) };
      this.places.push(place);
      all.append(element);
      watch.add(element, (near) => {
        place.near = near;
        watch.later(() => this.paint(place, false), element.offsetTop);
      });
    }
    host.append(all);
    this.sized = new ResizeObserver(() => {
      if (host.clientWidth === this.width) return;
      this.width = host.clientWidth;
      this.repaint();
    });
    this.sized.observe(host);
    watch.alsoStop(() => this.sized.disconnect());
    (host as ColumnHost).column = this;
  }

  /** Colour the tokens, or show the text plain again. */
  colour(tokens: TokenRow | null, scale: ColourScale | null): void {
    this.tokens = tokens;
    this.scale = scale;
    this.ends = null;
    this.levels = null;
    if (tokens && scale && !tokens.why) {
      this.ends = new Int32Array(tokens.widths.length);
      this.levels = new Int8Array(tokens.widths.length);
      let at = 0;
      tokens.widths.forEach((width, k) => {
        at += width;
        (this.ends as Int32Array)[k] = at;
        (this.levels as Int8Array)[k] = level(tokens.values[k] ?? null, scale);
      });
    }
    this.repaint();
  }

  /** Paint everything anew that is near the window. */
  repaint(): void {
    for (const place of this.places) if (place.near || place.drawing) this.watch.later(() => this.paint(place, true), place.element.offsetTop);
  }

  /** The token at a character; -1: none. */
  tokenAt(character: number): number {
    const { ends } = this;
    if (!ends) return -1;
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ends[middle] ?? 0) > character) high = middle;
      else low = middle + 1;
    }
    return low < ends.length ? low : -1;
  }

  /** The token under a point of the window; -1: none. */
  tokenUnder(x: number, y: number): number {
    const caret = document.caretPositionFromPoint?.(x, y);
    const block = caret?.offsetNode.parentElement?.closest(".lines");
    const place = block && this.places.find((one) => one.element === block);
    const piece = place && place.pieces.find((one) => one.node === caret?.offsetNode);
    if (!piece || !caret) return -1;
    // A caret stands between two letters: the one that is pointed at is on either side.
    for (const offset of [caret.offset, caret.offset - 1]) {
      const token = offset < 0 ? -1 : this.tokenAt(this.characterAt(piece, offset));
      if (token >= 0 && this.boxes(token).some((box) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom)) return token;
    }
    return -1;
  }

  /** Where a token stands in the window. */
  boxes(token: number): DOMRect[] {
    const [start, stop] = this.span(token);
    return this.places.filter((one) => one.from < stop && one.to > start).flatMap((place) => this.rects(place, Math.max(start, place.from), Math.min(stop, place.to)));
  }

  /** Where a token begins and ends in the text. */
  span(token: number): [number, number] {
    return [token > 0 ? (this.ends?.[token - 1] ?? 0) : 0, this.ends?.[token] ?? 0];
  }

  /** The strongest level of each part of the text, from top to bottom by how high its blocks are. */
  strip(rows: number, top: number, height: number): Int8Array {
    const found = new Int8Array(rows);
    const { ends, levels } = this;
    if (!ends || !levels || !height) return found;
    let token = 0;
    for (const { element, from, to } of this.places) {
      const [y, tall] = [element.offsetTop - top, element.offsetHeight];
      while (token < ends.length && (ends[token] ?? 0) <= from) token += 1;
      for (; token < ends.length && (ends[token] ?? 0) <= to; token++) {
        const share = ((ends[token] ?? 0) - from) / Math.max(1, to - from);
        const row = Math.min(rows - 1, Math.floor((rows * (y + share * tall)) / height));
        if (row >= 0 && Math.abs(levels[token] ?? 0) > Math.abs(found[row] ?? 0)) found[row] = levels[token] ?? 0;
      }
    }
    return found;
  }

  /** Text nodes for a part of the text, with what is marked in it. */
  private fill(element: HTMLElement, from: number, to: number): Piece[] {
    const pieces: Piece[] = [];
    let at = from;
    const put = (stop: number, mark: Mark | null) => {
      if (stop <= at) return;
      const node = document.createTextNode(shownSlice(this.text, at, stop));
      pieces.push({ node, from: at, to: stop });
      at = stop;
      const around = mark && document.createElement(mark.kind === "hit" ? "mark" : mark.kind);
      if (around && mark?.kind === "hit") around.className = "hit";
      around?.append(node);
      element.append(around ?? node);
    };
    for (const mark of this.marks) {
      if (mark.stop <= from || mark.start >= to) continue;
      put(Math.max(mark.start, from), null);
      put(Math.min(mark.stop, to), mark);
    }
    put(to, null);
    return pieces;
  }

  /** Where a character of the text stands in a node that shows it. */
  private offsetOf({ node, from, to }: Piece, character: number): number {
    return node.length === to - from ? character - from : shownSlice(this.text, from, character).length;
  }

  private characterAt(piece: Piece, offset: number): number {
    if (piece.node.length === piece.to - piece.from) return piece.from + offset;
    let at = piece.from;
    while (at < piece.to && this.offsetOf(piece, at + 1) <= offset) at += 1;
    return at;
  }

  private rects(place: Place, start: number, stop: number): DOMRect[] {
    const first = place.pieces.find((one) => one.to > start);
    const last = place.pieces.find((one) => one.to >= stop);
    if (!first || !last) return [];
    const range = document.createRange();
    range.setStart(first.node, this.offsetOf(first, start));
    range.setEnd(last.node, this.offsetOf(last, stop));
    return [...range.getClientRects()];
  }

  private paint(place: Place, anew: boolean): (() => void) | null {
    const { ends, levels, scale } = this;
    const before = place.drawing;
    if (before && !anew) return null;
    const edge = ends && levels && scale && place.near ? place.element.getBoundingClientRect() : null;
    if (!edge?.width || !ends || !levels || !scale) {
      place.drawing = null;
      return () => before?.remove();
    }
    const paths = new Map<string, string>();
    for (let token = this.tokenAt(place.from); token >= 0 && token < ends.length && this.span(token)[0] < place.to; token++) {
      const name = levelClass(levels[token] ?? 0, scale);
      if (!name) continue;
      const [start, stop] = this.span(token);
      let path = paths.get(name) ?? "";
      for (const box of this.rects(place, Math.max(start, place.from), Math.min(stop, place.to))) {
        const [left, right] = [tenth(box.left - edge.left), tenth(box.right - edge.left)];
        if (right > left) path += `M${left} ${tenth(box.top - edge.top)}H${right}v${tenth(box.height)}H${left}z`;
      }
      paths.set(name, path);
    }
    place.drawing = document.createElementNS(SVG, "svg");
    place.drawing.setAttribute("aria-hidden", "true");
    for (const [name, shape] of paths) {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      path.setAttribute("d", shape);
      place.drawing.append(path);
    }
    const { drawing } = place;
    return () => {
      before?.remove();
      place.element.prepend(drawing);
    };
  }
}

const SVG = "http://www.w3.org/2000/svg";

function tenth(value: number): number {
  return Math.round(10 * value) / 10;
}

/** Blocks of whole lines; a line without end is cut. */
function cut(text: string): [number, number][] {
  const found: [number, number][] = [];
  let from = 0;
  while (from < text.length) {
    const line = text.indexOf("\n", from + BLOCK);
    let to = line < 0 ? text.length : line + 1;
    if (to - from > LONG) {
      const space = text.lastIndexOf(" ", from + LONG);
      to = space > from + BLOCK ? space + 1 : from + LONG;
      if (/[\ud800-\udbff]/.test(text[to - 1] ?? "")) to += 1; // not between the halves of a character
    }
    found.push([from, to]);
    from = to;
  }
  return found;
}

/** Measures, and returns what it changes: all are measured before one changes, so that the page is laid out once. */
type Job = () => (() => void) | null;

/** Tells blocks when they come near the window, and does work in what a frame has left. */
export class Watch {
  private heard = new WeakMap<Element, (near: boolean) => void>();
  private observer: IntersectionObserver;
  private jobs: { job: Job; far: number }[] = [];
  private ending: (() => void)[] = [];
  private asked = 0;
  private sorted = true;

  constructor(private readonly root: HTMLElement) {
    this.observer = new IntersectionObserver(
      (changes) => {
        for (const change of changes) this.heard.get(change.target)?.(change.isIntersecting);
      },
      { root, rootMargin: "15000px 400px" },
    );
  }

  add(element: Element, heard: (near: boolean) => void): void {
    this.heard.set(element, heard);
    this.observer.observe(element);
  }

  /** What is nearest to the window is done first; `top`: where it is. */
  later(job: Job, top: number): void {
    this.jobs.push({ job, far: Math.abs(top - this.root.scrollTop) });
    this.sorted = false;
    this.asked ||= requestAnimationFrame(() => this.work());
  }

  alsoStop(job: () => void): void {
    this.ending.push(job);
  }

  stop(): void {
    this.observer.disconnect();
    for (const job of this.ending) job();
    cancelAnimationFrame(this.asked);
    this.jobs = [];
  }

  private work(): void {
    const began = performance.now();
    if (!this.sorted) this.jobs.sort((a, b) => a.far - b.far);
    this.sorted = true;
    let done = 0;
    const changes: (() => void)[] = [];
    while (done < this.jobs.length && performance.now() - began < FRAME) {
      const change = this.jobs[done++]?.job();
      if (change) changes.push(change);
    }
    this.jobs.splice(0, done);
    for (const change of changes) change();
    this.asked = this.jobs.length ? requestAnimationFrame(() => this.work()) : 0;
  }
}
