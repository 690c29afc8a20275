/** Mathematics as MathML, from the part of TeX that answers use; anything else stays in it as it was written. */
import { h, type ComponentChildren, type JSX } from "preact";
import { useMemo } from "preact/hooks";
import { visible } from "../text";

const LONGEST = 2_000;
const DEEPEST = 24;

const LETTERS: Record<string, string> = {
  alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ϵ", varepsilon: "ε", zeta: "ζ", eta: "η", theta: "θ", iota: "ι", kappa: "κ",
  lambda: "λ", mu: "μ", nu: "ν", xi: "ξ", pi: "π", rho: "ρ", sigma: "σ", tau: "τ", phi: "ϕ", varphi: "φ", chi: "χ", psi: "ψ", omega: "ω",
  Gamma: "Γ", Delta: "Δ", Theta: "Θ", Lambda: "Λ", Xi: "Ξ", Pi: "Π", Sigma: "Σ", Phi: "Φ", Psi: "Ψ", Omega: "Ω",
  infty: "∞", ell: "ℓ", emptyset: "∅", hbar: "ℏ", partial: "∂", nabla: "∇",
};
const OPERATORS: Record<string, string> = {
  cdot: "⋅", times: "×", div: "÷", pm: "±", mp: "∓", le: "≤", leq: "≤", ge: "≥", geq: "≥", ne: "≠", neq: "≠", equiv: "≡", approx: "≈", sim: "∼",
  to: "→", rightarrow: "→", Rightarrow: "⇒", implies: "⟹", iff: "⟺", leftarrow: "←", mapsto: "↦", in: "∈", notin: "∉", subset: "⊂", subseteq: "⊆",
  cup: "∪", cap: "∩", land: "∧", lor: "∨", neg: "¬", forall: "∀", exists: "∃", mid: "∣", nmid: "∤", parallel: "∥", perp: "⊥", angle: "∠", triangle: "△",
  sum: "∑", prod: "∏", int: "∫", oint: "∮", ldots: "…", cdots: "⋯", dots: "…", vdots: "⋮", circ: "∘", star: "⋆", langle: "⟨", rangle: "⟩",
  lfloor: "⌊", rfloor: "⌋", lceil: "⌈", rceil: "⌉", prime: "′", propto: "∝", cong: "≅", backslash: "\\", "{": "{", "}": "}", "|": "‖", "%": "%", "$": "$", "#": "#", "&": "&", _: "_",
};
const NAMES = new Set(["sin", "cos", "tan", "log", "ln", "exp", "lim", "max", "min", "gcd", "lcm", "mod", "det", "arg", "deg", "sup", "inf", "Pr", "cot", "sec", "csc", "arcsin", "arccos", "arctan"]);
const SPACES: Record<string, string> = { ",": "0.17em", ";": "0.28em", ":": "0.22em", "!": "0em", " ": "0.3em", quad: "1em", qquad: "2em" };
const TEXTS = new Set(["text", "textbf", "textit", "mathrm", "mathbf", "operatorname", "mathbb", "mathcal", "mathit", "textrm"]);
const SIZES = new Set(["left", "right", "big", "Big", "bigg", "Bigg", "displaystyle", "textstyle", "limits", "nolimits", "bigl", "bigr", "middle"]);

type Node = JSX.Element;
const tag = (name: string, children: ComponentChildren, more: object = {}): Node => h(name, more, children) as Node;

export function Tex({ text, display = false }: { text: string; display?: boolean }) {
  const nodes = useMemo(() => (text.length > LONGEST ? null : new Reader(text).all()), [text]);
  if (nodes === null) return <code class="tex">{visible(text)}</code>;
  return tag("math", tag("mrow", nodes), { display: display ? "block" : "inline", "aria-label": visible(text) });
}

class Reader {
  private at = 0;
  constructor(private readonly text: string) {}

  all(): Node[] {
    const nodes: Node[] = [];
    while (this.at < this.text.length) {
      nodes.push(...this.row(0, ""));
      if (this.at < this.text.length) nodes.push(tag("mo", visible(this.text[this.at++] ?? ""))); // a bracket that nothing opened
    }
    return nodes;
  }

  /** Everything up to a closing brace or bracket, which is left. */
  private row(depth: number, end: string): Node[] {
    const nodes: Node[] = [];
    while (this.at < this.text.length) {
      const char = this.text[this.at] ?? "";
      if (char === "}" || (end && char === end)) break;
      if (char === "^" || char === "_") {
        this.scripts(nodes, depth);
        continue;
      }
      const node = this.one(depth);
      if (node) nodes.push(node);
    }
    return nodes;
  }

  private scripts(nodes: Node[], depth: number): void {
    const base = nodes.pop() ?? tag("mrow", []);
    const found: { "^"?: Node; _?: Node } = {};
    while (this.text[this.at] === "^" || this.text[this.at] === "_") {
      const kind = this.text[this.at++] as "^" | "_";
      if (found[kind]) break;
      found[kind] = this.group(depth);
    }
    if (found["^"] && found._) nodes.push(tag("msubsup", [base, found._, found["^"]]));
    else if (found["^"]) nodes.push(tag("msup", [base, found["^"]]));
    else nodes.push(tag("msub", [base, found._ ?? tag("mrow", [])]));
  }

  /** A brace's content, or the one thing that comes next. */
  private group(depth: number): Node {
    this.blanks();
    if (this.text[this.at] !== "{") return this.one(depth) ?? tag("mrow", []);
    if (depth > DEEPEST) return tag("mtext", visible(this.text.slice(this.at, (this.at = this.text.length))));
    this.at += 1;
    const nodes = this.row(depth + 1, "");
    this.at += 1;
    return tag("mrow", nodes);
  }

  private one(depth: number): Node | null {
    const char = this.text[this.at] ?? "";
    if (/\s/.test(char) || char === "~") {
      this.at += 1;
      return null;
    }
    if (char === "{") return this.group(depth);
    if (char === "\\") return this.command(depth);
    const number = /^\d+(?:[.,]\d+)*/.exec(this.text.slice(this.at, this.at + 60));
    if (number) {
      this.at += number[0].length;
      return tag("mn", number[0]);
    }
    const whole = String.fromCodePoint(this.text.codePointAt(this.at) ?? 32);
    this.at += whole.length;
    if (char === "&") return null;
    return /\p{L}/u.test(whole) ? tag("mi", whole) : tag("mo", visible(whole));
  }

  private command(depth: number): Node | null {
    const name = /^\\([A-Za-z]+|[^A-Za-z])?/.exec(this.text.slice(this.at, this.at + 40))?.[1] ?? "";
    this.at += 1 + name.length;
    if (name in LETTERS) return tag("mi", LETTERS[name]);
    if (name in OPERATORS) return tag("mo", OPERATORS[name]);
    if (NAMES.has(name)) return tag("mi", name);
    if (name in SPACES) return tag("mspace", null, { width: SPACES[name] });
    if (name === "\\") return tag("mspace", null, { width: "1em" });
    if (SIZES.has(name)) {
      if (this.text[this.at] === ".") this.at += 1;
      return null;
    }
    if (TEXTS.has(name)) return tag(name.startsWith("text") ? "mtext" : "mi", this.verbatim());
    if (name === "frac" || name === "dfrac" || name === "tfrac") return tag("mfrac", [this.group(depth), this.group(depth)]);
    if (name === "binom") return tag("mrow", [tag("mo", "("), tag("mfrac", [this.group(depth), this.group(depth)], { linethickness: "0" }), tag("mo", ")")]);
    if (name === "sqrt") return this.root(depth);
    if (name === "boxed") return tag("mrow", this.group(depth), { class: "boxed" });
    if (name === "overline" || name === "bar" || name === "hat" || name === "vec") return tag("mover", [this.group(depth), tag("mo", name === "hat" ? "^" : name === "vec" ? "→" : "¯")]);
    if (name === "pmod") return tag("mrow", [tag("mo", "("), tag("mi", "mod"), tag("mspace", null, { width: "0.3em" }), this.group(depth), tag("mo", ")")]);
    return tag("mtext", visible(`\\${name}`), { class: "unknown" });
  }

  private root(depth: number): Node {
    this.blanks();
    if (this.text[this.at] !== "[") return tag("msqrt", this.group(depth));
    this.at += 1;
    const index = tag("mrow", this.row(depth + 1, "]"));
    this.at += 1;
    return tag("mroot", [this.group(depth), index]);
  }

  /** What stands in braces, as words. */
  private verbatim(): string {
    this.blanks();
    if (this.text[this.at] !== "{") return visible(this.text[this.at++] ?? "");
    const end = this.text.indexOf("}", this.at);
    const words = this.text.slice(this.at + 1, end < 0 ? undefined : end);
    this.at = end < 0 ? this.text.length : end + 1;
    return visible(words);
  }

  private blanks(): void {
    while (/\s/.test(this.text[this.at] ?? "")) this.at += 1;
  }
}
