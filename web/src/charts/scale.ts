/** From numbers to places: linear and logarithmic scales with ticks that people count in. */
import { number } from "../format";
import type { Number } from "../types";

/** Round numbers between two ends, about `wanted` of them. */
export function ticks(min: number, max: number, wanted: number, whole = false): number[] {
  if (!(max > min)) return [min];
  const rough = (max - min) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  let gap = ([1, 2, 5, 10].find((m) => m * power >= rough * 0.999) ?? 10) * power;
  if (whole) gap = Math.max(1, Math.round(gap));
  const found: number[] = [];
  for (let k = Math.ceil(min / gap - 1e-9); k * gap <= max + gap * 1e-9; k++) found.push(Number((k * gap).toPrecision(12)));
  // One tick alone says nothing of the scale.
  return found.length < 2 && wanted < 8 && !(whole && gap === 1) ? ticks(min, max, wanted * 2, whole) : found;
}

/** Powers of ten, or 1, 2 and 5 of each where few of those fit. */
export function logTicks(min: number, max: number): number[] {
  const decades = Math.log10(max / min);
  const steps = decades > 3.2 ? [1] : decades > 1.6 ? [1, 3] : [1, 2, 5];
  const every = decades > 9 ? Math.ceil(decades / 6) : 1;
  const found: number[] = [];
  for (let k = Math.floor(Math.log10(min)); k <= Math.ceil(Math.log10(max)); k++) {
    if (k % every) continue;
    for (const m of steps) {
      const value = Number((m * 10 ** k).toPrecision(6));
      if (value >= min * 0.999 && value <= max * 1.001) found.push(value);
    }
  }
  return found;
}

/** As few digits as tell these ticks apart. */
export function tickText(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(0).replace("e+", "e");
  if (size < 1e-3) return String(Number(value.toPrecision(2)));
  return size >= 1000 ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : number(value);
}

/** The ends of some numbers with a little room; a constant gets room for itself. */
export function ends(values: Iterable<Number | undefined>, room = 0.06): [number, number] | null {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return null;
  if (low === high) {
    if (low === 0) return [0, 1];
    const half = Math.abs(low) * 0.2;
    return [low - half, high + half];
  }
  const extra = room * (high - low);
  // A scale that would only just miss zero begins at it, and one that never leaves one side of zero stays there.
  return [low >= 0 && low - extra < 0 ? 0 : low - extra, high <= 0 && high + extra > 0 ? 0 : high + extra];
}
