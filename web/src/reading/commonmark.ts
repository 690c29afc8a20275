/** CommonMark as a tree: headings, lists, quotes, code, tables, emphasis, mathematics. Time is linear in the text, whatever it
 * says, and depth is bounded. Links and pictures are names and addresses to read, HTML is text: a tree has nothing that loads. */

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "break" }
  | { kind: "code" | "math"; text: string }
  | { kind: "em" | "strong"; parts: Inline[]; depth: number }
  | { kind: "link" | "image"; parts: Inline[]; to: string; depth: number };

export type Block =
  | { kind: "paragraph"; parts: Inline[] }
  | { kind: "heading"; level: number; parts: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "math"; text: string }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; start: number | null; tight: boolean; items: Block[][] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][]; align: ("left" | "right" | "center" | "")[] }
  | { kind: "rule" };

const DEEPEST = 16; // quotes, lists and emphasis within each other; what is deeper stays as it was written

const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|(?:\*[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-+*]|\d{1,9}[.)])([ \t]+|$)/;
const MATHS = /^ {0,3}(\$\$|\\\[)/;

export function parse(text: string): Block[] {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocks(lines: string[], depth: number): Block[] {
  const found: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const item = depth < DEEPEST ? ITEM.exec(line) : null;
    if (!line.trim()) at += 1;
    else if (fence && !(fence[1]?.startsWith("`") && fence[2]?.includes("`"))) {
      const [block, next] = fenced(lines, at, fence);
      found.push(block);
      at = next;
    } else if (/^(?: {4}|\t)/.test(line)) {
      let end = at;
      while (end < lines.length && (/^(?: {4}|\t)/.test(lines[end] ?? "") || !lines[end]?.trim())) end += 1;
      const kept = lines.slice(at, end).map((one) => one.replace(/^(?: {1,4}|\t)/, ""));
      found.push({ kind: "code", language: "", text: kept.join("\n").trimEnd() });
      at = end;
    } else if (heading) {
      found.push({ kind: "heading", level: heading[1]?.length ?? 1, parts: inline(line.slice(heading[0].length).trim().replace(/(^|[ \t])#+$/, "").trim()) });
      at += 1;
    } else if (RULE.test(line)) {
      found.push({ kind: "rule" });
      at += 1;
    } else if (depth < DEEPEST && QUOTE.test(line)) {
      const inner: string[] = [];
      while (at < lines.length && (QUOTE.test(lines[at] ?? "") || (lines[at]?.trim() && inner.at(-1)?.trim() && !opens(lines[at] ?? "")))) {
        inner.push((lines[at] ?? "").replace(QUOTE, ""));
        at += 1;
      }
      found.push({ kind: "quote", blocks: blocks(inner, depth + 1) });
    } else if (item) {
      const [block, next] = list(lines, at, depth);
      found.push(block);
      at = next;
    } else if (MATHS.test(line)) {
      const [block, next] = maths(lines, at);
      if (block) found.push(block);
      if (block) at = next;
      else at = paragraph(lines, at, found);
    } else if (line.includes("|") && divides(lines[at + 1]) && cells(line).length === cells(lines[at + 1] ?? "").length) {
      const [block, next] = table(lines, at);
      found.push(block);
      at = next;
    } else at = paragraph(lines, at, found);
  }
  return found;
}

/** Whether a line begins something that ends a paragraph. */
function opens(line: string): boolean {
  const item = ITEM.exec(line);
  const listed = item !== null && item[3] !== "" && (!/\d/.test(item[2] ?? "") || /^1[.)]$/.test(item[2] ?? ""));
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || MATHS.test(line) || listed;
}

function paragraph(lines: string[], from: number, found: Block[]): number {
  let at = from + 1;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const under = /^ {0,3}(=+|-+)[ \t]*$/.exec(line);
    if (under) {
      found.push({ kind: "heading", level: under[1]?.startsWith("=") ? 1 : 2, parts: inline(lines.slice(from, at).map((one) => one.trim()).join("\n")) });
      return at + 1;
    }
    if (!line.trim() || opens(line)) break;
    if (line.includes("|") && divides(lines[at + 1])) break;
    at += 1;
  }
  found.push({ kind: "paragraph", parts: inline(lines.slice(from, at).map((one) => one.replace(/^[ \t]+/, "")).join("\n")) });
  return at;
}

function fenced(lines: string[], from: number, fence: RegExpExecArray): [Block, number] {
  const mark = fence[1] ?? "```";
  const indent = (lines[from] ?? "").search(/\S/);
  const close = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
  let end = from + 1;
  while (end < lines.length && !close.test(lines[end] ?? "")) end += 1;
  const kept = lines.slice(from + 1, end).map((line) => line.slice(Math.min(indent, Math.max(0, line.search(/\S|$/)))));
  return [{ kind: "code", language: (fence[2] ?? "").trim().split(/\s/, 1)[0] ?? "", text: kept.join("\n") }, end + 1];
}

function maths(lines: string[], from: number): [Block | null, number] {
  const first = (lines[from] ?? "").trim();
  const close = first.startsWith("$$") ? "$$" : "\\]";
  let text = first.slice(2);
  let end = from;
  while (!text.includes(close) && end + 1 < lines.length && end - from < 40 && lines[end + 1]?.trim()) text += `\n${lines[++end] ?? ""}`;
  const stop = text.indexOf(close);
  if (stop < 0 || text.slice(stop + 2).trim()) return [null, from];
  return [{ kind: "math", text: text.slice(0, stop).trim() }, end + 1];
}

function list(lines: string[], from: number, depth: number): [Block, number] {
  const kind = (mark: string) => (/\d/.test(mark) ? mark.slice(-1) : mark);
  const first = ITEM.exec(lines[from] ?? "");
  const wanted = kind(first?.[2] ?? "-");
  const items: Block[][] = [];
  let [at, tight] = [from, true];
  while (at < lines.length) {
    const match = ITEM.exec(lines[at] ?? "");
    if (!match || kind(match[2] ?? "") !== wanted || RULE.test(lines[at] ?? "")) break;
    const gap = match[3] ?? "";
    const width = (match[1] ?? "").length + (match[2] ?? "").length + (gap.length >= 5 || !gap ? 1 : gap.length);
    const inner = [(lines[at] ?? "").slice(Math.min(width, (lines[at] ?? "").length))];
    at += 1;
    let blank = false;
    while (at < lines.length) {
      const line = lines[at] ?? "";
      const indented = line.search(/\S/) >= width;
      if (!line.trim()) blank = true;
      else if (!indented && (blank || ITEM.test(line) || opens(line))) break;
      else if (blank && indented) tight = false;
      if (line.trim()) blank = false;
      inner.push(indented ? line.slice(width) : line.trimStart());
      at += 1;
    }
    if (blank && at < lines.length && ITEM.test(lines[at] ?? "")) tight = false;
    items.push(blocks(inner, depth + 1));
  }
  return [{ kind: "list", start: /\d/.test(first?.[2] ?? "") ? Number.parseInt(first?.[2] ?? "1", 10) : null, tight, items }, at];
}

/** Whether a line is the one below the head of a table. No expression does it: some would take the square of its length. */
function divides(line = ""): boolean {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.includes("-") && inner.split("|").every((cell) => /^:?-+:?$/.test(cell.trim()));
}

/** The cells of a line of a table; a bar after a backslash or in code is none of its borders. */
function cells(line: string): string[] {
  const found: string[] = [];
  let [cell, code] = ["", false];
  const inner = line.trim().replace(/^\|/, "");
  for (let at = 0; at < inner.length; at++) {
    const char = inner[at] ?? "";
    if (char === "\\" && inner[at + 1] === "|") cell += inner[++at] ?? "";
    else if (char === "|" && !code) {
      found.push(cell.trim());
      cell = "";
    } else {
      if (char === "`") code = !code;
      cell += char;
    }
  }
  if (cell.trim()) found.push(cell.trim());
  return found;
}

function table(lines: string[], from: number): [Block, number] {
  const align = cells(lines[from + 1] ?? "").map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "right") : mark.startsWith(":") ? "left" : "")) as ("left" | "right" | "center" | "")[];
  const rows: Inline[][][] = [];
  let at = from + 2;
  while (at < lines.length && lines[at]?.trim() && !opens(lines[at] ?? "")) {
    const row = cells(lines[at] ?? "").slice(0, align.length);
    rows.push([...row, ...Array<string>(align.length - row.length).fill("")].map(inline));
    at += 1;
  }
  return [{ kind: "table", head: cells(lines[from] ?? "").map(inline), rows, align }, at];
}

interface Delimiter {
  char: string;
  place: number; // of its text in what is put out
  count: number;
  opens: boolean;
  closes: boolean;
}
interface Bracket {
  place: number;
  image: boolean;
  active: boolean;
  below: number; // delimiters that were open before it
}

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;
const NAMED: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

export function inline(text: string): Inline[] {
  const out: Inline[] = [];
  const open: Delimiter[] = [];
  const brackets: Bracket[] = [];
  const ticks = runs(text);
  const bottom = new Map<string, number>(); // below which no opener of this kind is
  let at = 0;
  let plain = "";
  const flush = () => {
    if (plain) out.push({ kind: "text", text: plain });
    plain = "";
  };
  while (at < text.length) {
    const char = text[at] ?? "";
    if (char === "\\" && (text[at + 1] === "(" || text[at + 1] === "[")) {
      const close = text.slice(at + 2, at + 600).indexOf(text[at + 1] === "(" ? "\\)" : "\\]");
      if (close > 0) {
        flush();
        out.push({ kind: "math", text: text.slice(at + 2, at + 2 + close).trim() });
        at += close + 4;
      } else {
        plain += text[at + 1];
        at += 2;
      }
    } else if (char === "\\" && text[at + 1] === "\n") {
      flush();
      out.push({ kind: "break" });
      at += 2;
    } else if (char === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (char === "`") {
      const length = run(text, at);
      const places = ticks.get(length) ?? [];
      while (places.length && (places[0] ?? 0) <= at) places.shift();
      const close = places[0];
      if (close === undefined) plain += text.slice(at, at + length);
      else {
        flush();
        const inner = text.slice(at + length, close).replaceAll("\n", " ");
        out.push({ kind: "code", text: inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() ? inner.slice(1, -1) : inner });
      }
      at = close === undefined ? at + length : close + length;
    } else if (char === "$") {
      const math = /^\$\$?(?=[^\s$])([^$\n]{0,600}?[^\s$\\])\$\$?(?!\d)/.exec(text.slice(at, at + 610));
      if (math) {
        flush();
        out.push({ kind: "math", text: math[1] ?? "" });
        at += math[0].length;
      } else {
        plain += char;
        at += 1;
      }
    } else if (char === "&") {
      const entity = /^&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]{2,4}));/.exec(text.slice(at, at + 12));
      const code = entity?.[1] ? Number(entity[1]) : entity?.[2] ? Number.parseInt(entity[2], 16) : NaN;
      const meant = entity?.[3] ? NAMED[entity[3]] : code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : undefined;
      plain += meant ?? char;
      at += meant && entity ? entity[0].length : 1;
    } else if (char === "\n") {
      const hard = plain.endsWith("  ");
      while (plain.endsWith(" ")) plain = plain.slice(0, -1);
      if (hard) {
        flush();
        out.push({ kind: "break" });
      } else plain += " ";
      at += 1;
    } else if (char === "*" || char === "_") {
      flush();
      at = delimit(text, at, out, open, bottom);
    } else if (char === "[" || (char === "!" && text[at + 1] === "[")) {
      flush();
      brackets.push({ place: out.length, image: char === "!", active: true, below: open.length });
      out.push({ kind: "text", text: char === "!" ? "![" : "[" });
      at += char === "!" ? 2 : 1;
    } else if (char === "]") {
      flush();
      at = linked(text, at, out, open, brackets);
    } else {
      plain += char;
      at += 1;
    }
  }
  flush();
  return out;
}

/** Where runs of backticks of each length begin. */
function runs(text: string): Map<number, number[]> {
  const found = new Map<number, number[]>();
  for (const match of text.matchAll(/`+/g)) {
    const places = found.get(match[0].length) ?? [];
    places.push(match.index);
    found.set(match[0].length, places);
  }
  return found;
}

function run(text: string, at: number): number {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

/** A run of stars or underlines: closes what is open as far as it can, and may open something itself. */
function delimit(text: string, at: number, out: Inline[], open: Delimiter[], bottom: Map<string, number>): number {
  const char = text[at] ?? "";
  const length = run(text, at);
  const [before, after] = [text[at - 1] ?? " ", text[at + length] ?? " "];
  const [space, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [mark, markAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!markAfter || space || mark);
  const right = !space && (!mark || spaceAfter || markAfter);
  const closes = char === "*" ? right : right && (!left || markAfter);
  const opens = char === "*" ? left : left && (!right || mark);
  let count = length;
  const key = `${char}${opens}${length % 3}`;
  while (count > 0 && closes) {
    let place = open.length - 1;
    const least = bottom.get(key) ?? 0;
    while (place >= least && !matches(open[place], char, opens, length)) place -= 1;
    const opener = open[place];
    if (place < least || !opener) {
      bottom.set(key, open.length);
      break;
    }
    const used = count >= 2 && opener.count >= 2 ? 2 : 1;
    const parts = out.slice(opener.place + 1);
    const depth = 1 + deepest(parts);
    if (depth > DEEPEST) {
      bottom.set(key, open.length);
      break;
    }
    out.length = opener.place + 1;
    opener.count -= used;
    count -= used;
    open.length = opener.count > 0 ? place + 1 : place;
    for (const [kind, low] of bottom) if (low > open.length) bottom.set(kind, open.length);
    if (opener.count > 0) out[opener.place] = { kind: "text", text: char.repeat(opener.count) };
    else out.length = opener.place;
    out.push({ kind: used === 2 ? "strong" : "em", parts, depth });
  }
  if (count > 0) {
    if (opens) open.push({ char, place: out.length, count, opens, closes });
    out.push({ kind: "text", text: char.repeat(count) });
  }
  return at + length;
}

function matches(opener: Delimiter | undefined, char: string, opens: boolean, length: number): boolean {
  if (!opener || opener.char !== char) return false;
  const odd = (opener.closes || opens) && (opener.count + length) % 3 === 0;
  return !(odd && (opener.count % 3 !== 0 || length % 3 !== 0));
}

function deepest(parts: Inline[]): number {
  return parts.reduce((most, part) => Math.max(most, "depth" in part ? part.depth : 0), 0);
}

/** The end of a link's words: with an address behind it a link, else a bracket. */
function linked(text: string, at: number, out: Inline[], open: Delimiter[], brackets: Bracket[]): number {
  const bracket = brackets.pop();
  const target = bracket?.active ? /^\(\s*(?:<([^<>\n]{0,500})>|([^\s()]{0,500}(?:\([^\s()]{0,200}\)[^\s()]{0,200})?))(?:\s+(?:"[^"]{0,200}"|'[^']{0,200}'))?\s*\)/.exec(text.slice(at + 1, at + 1500)) : null;
  const parts = bracket && target ? out.slice(bracket.place + 1) : [];
  const depth = 1 + deepest(parts);
  if (!bracket || !target || depth > DEEPEST) {
    out.push({ kind: "text", text: "]" });
    return at + 1;
  }
  out.length = bracket.place;
  open.length = Math.min(open.length, bracket.below);
  out.push({ kind: bracket.image ? "image" : "link", parts, to: target[1] ?? target[2] ?? "", depth });
  if (!bracket.image) for (const other of brackets) if (!other.image) other.active = false;
  return at + 1 + target[0].length;
}
