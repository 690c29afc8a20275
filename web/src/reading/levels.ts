/** From a token's number to its colour: how far it is from the centre of its scale, in seven levels. */
import type { ColourScale, Number } from "../types";

/** 0: no colour; 1 to 6 above the centre, -1 to -6 below it. */
export function level(value: Number, scale: ColourScale): number {
  if (value === null) return 0;
  const off = value - scale.centre;
  let found = 0;
  for (const edge of scale.levels) if (Math.abs(off) >= edge) found += 1;
  if (scale.signed) return off > 0 ? found : -found;
  return (scale.side === "above") === off > 0 ? found : 0;
}

/** The class of a level; what process rewards pay little for is what somebody looks for, so it is red. */
export function levelClass(found: number, scale: ColourScale): string {
  if (found === 0) return "";
  return `${found > 0 !== (scale.name === "process" && scale.centre > 0) ? "up" : "down"}-${Math.abs(found)}`;
}
