/** Numbers and times as people read them. */
import type { Number } from "./types";

/** Three significant digits, or what is said instead of a number that does not exist. */
export function number(value: Number | undefined, missing = "–", digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return missing;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(digits)));
}

/** Log odds as odds, which is the one unit in which evidence is told. */
export function odds(log: number): string {
  return log > 50 ? "more than 1e21 to 1" : `${number(Math.exp(log))} to 1`;
}

/** Every digit that matters. A number of 32 bits is shown by the shortest digits that mean it, not by its 64-bit tail. */
export function exact(value: number): string {
  if (Math.fround(value) !== value) return String(value);
  for (let digits = 1; digits <= 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return String(short);
  }
  return String(value);
}

export function percent(share: Number | undefined, missing = "–"): string {
  return share === null || share === undefined ? missing : `${number(100 * share)} %`;
}

/** "4 s", "12 min", "3 h", "2 d" */
export function span(seconds: Number): string {
  if (seconds === null) return "–";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** The hour of a moment, with its day if that is not today. */
export function clock(time: number, now: number): string {
  const then = new Date(1000 * time);
  const hour = then.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return now - time < 20 * 3600 ? hour : `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${hour}`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${number(size)} ${units[unit]}`;
}

/** How sure a finding is, in a word: its number orders findings and is no probability. */
export function likelihood(confidence: number): string {
  return confidence >= 0.5 ? "likely" : "perhaps";
}
