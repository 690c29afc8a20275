// The bench of "Try it". It looks figures up that tiltmeter_workbench.stats.tilting computed when the page was built, and draws.
"use strict";
(() => {
  const root = document.getElementById("try");
  const data = JSON.parse(document.getElementById("try-data").textContent);
  const QUANTITIES = ["score", "gold", "kl", "entropy", "odds"];
  const CONTROLS = ["time", "beta", "size", "group"];
  const VALUES = { time: data.times, beta: data.betas, size: data.sizes, group: data.groups };
  const last = data.times.length - 1;
  const state = { ...data.presets.Hacked };
  const one = (id) => document.getElementById(id);

  // ---- figures ----

  function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const codes = new DataView(bytes.buffer);
    const most = Math.asinh(data.largest / data.quantum);
    return Float64Array.from({ length: bytes.length / 2 }, (_, i) =>
      data.quantum * Math.sinh(((codes.getUint16(2 * i, true) - 32767) / 32767) * most));
  }

  const grid = unpacked(data.grid);
  const selection = unpacked(data.selection);

  /** What was computed over time under a leash: 0 is none, 1 the loosest. */
  function run(leash) {
    const start = ((state.tail * data.sizes.length + state.size) * (data.betas.length + 1) + leash) * QUANTITIES.length;
    const part = (q) => grid.subarray((start + q) * data.times.length, (start + q + 1) * data.times.length);
    return Object.fromEntries(QUANTITIES.map((name, q) => [name, part(q)]));
  }

  /** The best of 2, 4, 8, ... answers by score. */
  function picked() {
    const start = (state.tail * data.sizes.length + state.size) * QUANTITIES.length;
    const part = (q) => selection.subarray((start + q) * data.groups.length, (start + q + 1) * data.groups.length);
    return Object.fromEntries(QUANTITIES.map((name, q) => [name, part(q)]));
  }

  /** Every computed point of this world, with and without a leash, in the order of KL: they lie on one path. */
  function whole() {
    const points = [];
    for (let leash = 0; leash <= data.betas.length; leash++) {
      const { score, gold, kl } = run(leash);
      for (let t = 0; t <= last; t++) points.push({ score: score[t], gold: gold[t], kl: kl[t] });
    }
    return points.sort((a, b) => a.kl - b.kl);
  }

  const peakOf = (points) => points.reduce((best, point) => (point.gold > best.gold ? point : best));

  /** The reference tilted: π_ref exp(η r) / Z, in logs. */
  function policy(beta) {
    const time = data.times[state.time];
    const eta = beta ? -Math.expm1(-beta * time) / beta : time;
    const logs = data.reference.map((share, k) => Math.log(share) + eta * (data.gold[k] + paid(k)));
    const top = Math.max(...logs);
    const sum = logs.reduce((total, value) => total + Math.exp(value - top), 0);
    return logs.map((value) => Math.exp(value - top) / sum);
  }

  const paid = (kind) => data.sizes[state.size] * data.errors[state.tail][kind];
  /** p^G + (1 - p)^G, from the log-odds of p. */
  const dead = (odds) => [odds, -odds].reduce((sum, x) => sum + (1 / (1 + Math.exp(-x))) ** data.groups[state.group], 0);
  const highest = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);

  // ---- words ----

  const minus = (text) => text.replace("-", "\u2212");
  const digits = (value) => (Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2);
  const plain = (value) => minus(value.toFixed(digits(value)).replace(/^-(0\.00)$/, "$1"));
  const gain = (value) => (value >= 0.005 ? "+" : "") + plain(value);
  const nats = (value) => (value > 0 && value < 0.005 ? "< 0.01" : plain(value));
  const percent = (value) => {
    if (value > 0 && value < 0.005) return "< 1 %";
    return value > 0.995 && value < 1 ? "> 99 %" : `${Math.round(100 * value)} %`;
  };

  /** [mood, the first words, the rest] of the verdict on the policy with the leash. */
  function verdict() {
    const leashed = run(state.beta + 1);
    const now = state.time;
    const [score, gold, most] = [leashed.score[now], leashed.gold[now], Math.max(...leashed.gold.subarray(0, now + 1))];
    const peak = peakOf(whole());
    const top = peak.gold;
    if (now === 0) return ["", "Nothing is trained yet.", "The policy is the reference. Press play."];
    if (most - gold > Math.max(0.01, 0.1 * most)) {
      const climbs = score - leashed.score[now - 1] > 0.002 * score;
      const where = gold < 0.1 * most ? ", and is back where it started" : ` from ${gain(top)} to ${gain(gold)}`;
      const head = climbs ? "The score still climbs" : `The score stands at ${gain(score)}`;
      return ["bad", `${head}; gold has been falling since KL ${nats(peak.kl)}${where}.`, remedy(top)];
    }
    const held = data.betas[state.beta] * data.times[now] > 3;
    if (held && gold < 0.4 * top) {
      const gained = `gold gained ${plain(gold)} of the ${plain(top)} that this score could give`;
      return ["", "The leash is too tight.", `The policy stays at KL ${nats(leashed.kl[now])}; ${gained}.`];
    }
    const real = gold > 0.6 * score;
    const rising = real ? "Score and gold rise together." : "Gold rises, but the score runs ahead of it.";
    const stopped = real ? "Score and gold rose together, and the leash holds." : "The leash holds, with the score ahead of gold.";
    const rest = `Of ${gain(score)} of score ${gain(gold)} is gold. ${otherwise(top)}`;
    return [real ? "good" : "", held ? stopped : rising, rest];
  }

  /** What another leash would have come to at the end of training, and choosing by rank if none does. */
  function remedy(top) {
    const ends = data.betas.map((_, i) => run(i + 1).gold[last]);
    const best = highest(ends);
    if (ends[best] > 0.4) return `A leash of β = ${data.betas[best]} would hold gold at ${gain(ends[best])}.`;
    const ranked = picked().gold[state.group];
    const other = ranked > 2 * top ? ` Best of ${data.groups[state.group]}, which only ranks, reaches ${gain(ranked)}.` : "";
    if (ends[best] < 0.01) return `No leash here helps: gold never passes ${gain(top)}.${other}`;
    return `No leash saves it: the best, β = ${data.betas[best]}, holds gold at ${gain(ends[best])}.${other}`;
  }

  /** What the same training without a leash has come to. */
  function otherwise(top) {
    if (top < 0.5) return `More than ${gain(top)} is not on this path, with any leash.`;
    const free = run(0);
    const [gold, most] = [free.gold[state.time], Math.max(...free.gold.subarray(0, state.time + 1))];
    if (most - gold > Math.max(0.01, 0.1 * most)) {
      return `Without the leash gold has peaked, and is now ${gain(gold)}.`;
    }
    return "";
  }

  // ---- drawing ----

  function made(name, attributes = {}, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  }

  /** An empty plot with its axes, and how its values map to pixels. Lines go into `inside`, which is cut at the frame. */
  function frame(id, [x0, x1], [y0, y1], xTicks, yTicks) {
    const svg = one(id);
    const [width, height] = [svg.clientWidth, svg.clientHeight];
    const [left, right, upper, lower] = [34, width - 10, 8, height - 20];
    const x = (value) => left + ((value - x0) / (x1 - x0)) * (right - left);
    const y = (value) => lower - ((value - y0) / (y1 - y0)) * (lower - upper);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const clip = made("clipPath", { id: `${id}-clip` });
    clip.append(made("rect", { x: left, y: upper - 1, width: Math.max(0, right - left + 6), height: lower - upper + 2 }));
    for (const [value, label] of yTicks) {
      svg.append(made("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: value === 0 ? "zero" : "rule" }));
      svg.append(made("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, label));
    }
    for (const [value, label, anchor = "middle"] of xTicks) {
      svg.append(made("text", { x: x(value), y: height - 4, "text-anchor": anchor }, label));
    }
    const inside = made("g", { "clip-path": `url(#${id}-clip)` });
    svg.append(clip, inside);
    return { svg, inside, x, y, left, right, upper, lower };
  }

  const line = (xs, ys, kind) => {
    const d = xs.map((x, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${ys[i].toFixed(1)}`).join("");
    return made("path", { d, class: `line ${kind}` });
  };
  const dot = (x, y, kind) => made("circle", { cx: x, cy: y, r: 4.5, class: kind });

  /** Gold always fits; a score that runs away leaves the frame, and its number is written where it left. */
  function range(points) {
    const [gold, score] = [points.map((point) => point.gold), points.map((point) => point.score)];
    const worth = Math.max(...gold, ...picked().gold);
    const high = Math.max(1.25 * worth, Math.min(1.06 * Math.max(...score), 2.5 * worth));
    const low = Math.min(-0.08 * high, 1.3 * Math.min(...gold));
    const step = [0.1, 0.2, 0.5, 1].find((size) => high / size <= 5.5) ?? 2;
    const ticks = Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => [i * step, String(+(i * step).toFixed(1))]);
    return [[low, high], ticks];
  }

  function gone(plot, x, value, limit, words) {
    if (value <= limit) return false;
    const anchor = x > (plot.left + plot.right) / 2 ? "end" : "start";
    const place = { x: x + (anchor === "end" ? -7 : 7), y: plot.upper + 11, "text-anchor": anchor };
    plot.svg.append(made("text", { ...place, class: "score" }, `${words} ${gain(value)} \u2191`));
    return true;
  }

  function drawTime(points) {
    const ratio = Math.log(data.times[last] / data.times[1]) / (last - 1);
    const place = (time) => (time ? 1 + Math.log(time / data.times[1]) / ratio : 0);
    const [limits, ticks] = range(points);
    const marks = [0, 0.1, 1, 10].map((time) => [place(time), String(time)]);
    const plot = frame("try-over-time", [0, last], limits, marks, ticks);
    const xs = data.times.map((time) => plot.x(place(time)));
    const here = xs[state.time];
    plot.svg.append(made("line", { x1: here, x2: here, y1: plot.upper, y2: plot.lower, class: "cursor" }));
    for (const [kind, leash] of [["free", 0], ["leash", state.beta + 1]]) {
      const series = run(leash);
      for (const name of ["score", "gold"]) {
        const ys = Array.from(series[name], (value) => plot.y(value));
        plot.inside.append(line(xs, ys, `${name} ${kind} ahead`));
        plot.inside.append(line(xs.slice(0, state.time + 1), ys.slice(0, state.time + 1), `${name} ${kind}`));
        if (series[name][state.time] <= limits[1]) plot.svg.append(dot(here, ys[state.time], `${name} ${kind}`));
      }
    }
    const [leashed, free] = [run(state.beta + 1).score[state.time], run(0).score[state.time]];
    gone(plot, here, leashed, limits[1], "score") || gone(plot, here, free, limits[1], "score without");
    plot.svg.setAttribute("aria-label", `Score and gold over training time. ${one("try-verdict").textContent}`);
  }

  function drawPath(points) {
    const pick = picked();
    const far = Math.sqrt(Math.max(points[points.length - 1].kl, ...pick.kl)) * 1.02;
    const [limits, ticks] = range(points);
    const nice = [0, 0.5, 1, 2, 4, 8].filter((kl) => Math.sqrt(kl) < far);
    const marks = nice.map((kl) => [Math.sqrt(kl), kl ? String(kl) : "KL 0"]);
    const plot = frame("try-over-kl", [0, far], limits, marks, ticks);
    const xs = points.map((point) => plot.x(Math.sqrt(point.kl)));
    for (const name of ["score", "gold"]) {
      plot.inside.append(line(xs, points.map((point) => plot.y(point[name])), `${name} path`));
    }
    const at = Array.from(pick.kl, (kl) => plot.x(Math.sqrt(kl)));
    const worth = Array.from(pick.gold, (gold) => plot.y(gold));
    plot.inside.append(line([plot.x(0), ...at], [plot.y(0), ...worth], "pick"));
    const top = peakOf(points);
    const [px, py] = [plot.x(Math.sqrt(top.kl)), plot.y(top.gold)];
    const peaks = top.kl < 0.95 * points[points.length - 1].kl;
    const words = peaks ? `gold peaks at KL ${nats(top.kl)}` : "";
    const side = px > (plot.left + plot.right) / 2 ? "end" : "middle";
    plot.svg.append(made("text", { x: px, y: py - 10, "text-anchor": side, class: "gold" }, words));
    for (const [kind, leash] of [["free", 0], ["leash", state.beta + 1]]) {
      const series = run(leash);
      const x = plot.x(Math.sqrt(series.kl[state.time]));
      for (const name of ["score", "gold"]) {
        const value = series[name][state.time];
        if (value <= limits[1]) plot.svg.append(dot(x, plot.y(value), `${name} ${kind}`));
      }
    }
    const [x, y] = [at[state.group], worth[state.group]];
    plot.svg.append(made("path", { d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z`, class: "gold diamond" }));
    const told = `Score and gold over KL. Gold is highest, ${gain(top.gold)}, at KL ${nats(top.kl)}.`;
    plot.svg.setAttribute("aria-label", `${told} Best of ${data.groups[state.group]}: gold ${gain(pick.gold[state.group])}.`);
  }

  function drawBars(id, chances, most, words) {
    const ticks = [0, most / 2, most].map((value) => [value, `${Math.round(100 * value)}%`]);
    const kinds = data.gold.map((_, k) => k).sort((a, b) => data.gold[a] - data.gold[b]);
    const ends = [[0, "worst", "start"], [kinds.length, "best answer", "end"]];
    const plot = frame(id, [0, kinds.length], [0, most], ends, ticks);
    const height = (value) => plot.lower - plot.y(value);
    const width = (plot.right - plot.left) / kinds.length;
    const rect = (place, share, rest) =>
      made("rect", { x: plot.x(place) + 0.12 * width, y: plot.y(share), width: 0.76 * width, height: height(share), ...rest });
    kinds.forEach((kind, place) => {
      const bar = rect(place, chances[kind], { class: "bar", "data-kind": kind, "data-share": chances[kind] });
      bar.style.setProperty("--paid", `${Math.round(100 * Math.min(1, Math.max(0, paid(kind) / 4)))}%`);
      plot.svg.append(bar, rect(place, data.reference[kind], { class: "outline" }));
    });
    const top = highest(chances);
    const about = [`gold ${gain(data.gold[top])}`, `error ${gain(paid(top))}`];
    if (chances[top] > 0.2) {
      const place = kinds.indexOf(top);
      const right = place < kinds.length / 2;
      const spot = { x: right ? plot.x(place + 1) + 5 : plot.x(place) - 5, "text-anchor": right ? "start" : "end" };
      const y = plot.y(chances[top]) + (chances[top] < 0.8 * most ? -12 : 11); // above its neighbours where there is room
      plot.svg.append(made("text", { ...spot, y }, about[0]));
      plot.svg.append(made("text", { ...spot, y: y + 14, class: paid(top) > 1 ? "error" : "" }, about[1]));
    }
    plot.svg.setAttribute("aria-label", `${words}. The likeliest answer: ${percent(chances[top])}, ${about.join(", ")}.`);
  }

  function drawNumbers() {
    const [leashed, free, pick] = [run(state.beta + 1), run(0), picked()];
    const [t, g] = [state.time, state.group];
    const row = (name, q, words) => [name, words(free[q][0]), words(leashed[q][t]), words(free[q][t]), words(pick[q][g])];
    const rows = [
      row("score", "score", gain), row("gold", "gold", gain), row("KL, nats", "kl", nats), row("entropy", "entropy", plain),
      [...row("dead groups", "odds", (odds) => percent(dead(odds))).slice(0, -1), "\u2013"], // nothing is trained
    ];
    one("try-best").textContent = `best of ${data.groups[g]}`;
    root.querySelector(".try-numbers tbody").replaceChildren(...rows.map(([name, ...cells]) => {
      const line = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = name;
      line.append(head, ...cells.map((text, i) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        if (i === 1) cell.className = "main";
        return cell;
      }));
      return line;
    }));
  }

  function draw() {
    const [mood, head, rest] = verdict();
    const told = one("try-verdict");
    const strong = document.createElement("b");
    strong.textContent = head;
    told.className = `try-verdict ${mood}`;
    if (told.textContent !== `${head} ${rest}`) told.replaceChildren(strong, ` ${rest}`);
    for (const name of CONTROLS) {
      const [input, value] = [one(`try-${name}`), String(VALUES[name][state[name]])];
      input.value = state[name];
      input.setAttribute("aria-valuetext", value);
      input.parentElement.querySelector(".try-value").textContent = value;
    }
    for (const radio of root.querySelectorAll("input[name=tail]")) radio.checked = Number(radio.value) === state.tail;
    for (const button of root.querySelectorAll(".try-presets button")) {
      const preset = data.presets[button.textContent];
      const same = Object.keys(preset).every((key) => key === "time" || preset[key] === state[key]);
      button.setAttribute("aria-pressed", String(same));
    }
    drawNumbers();
    if (one("try-over-time").clientWidth < 60) return; // not laid out yet; told when it is
    const points = whole();
    drawTime(points);
    drawPath(points);
    const [held, free] = [policy(data.betas[state.beta]), policy(0)];
    const most = [0.1, 0.2, 0.4, 0.6, 1].find((limit) => Math.max(...held, ...free) <= limit) ?? 1;
    drawBars("try-bars-leash", held, most, "The policy with the leash");
    drawBars("try-bars-free", free, most, "The policy without the leash");
  }

  // ---- what people do ----

  let playing = 0;

  function pause() {
    clearInterval(playing);
    playing = 0;
    one("try-play").textContent = "Play";
    one("try-verdict").setAttribute("aria-live", "polite");
    draw();
  }

  function play() {
    if (playing) return pause();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      state.time = last;
      return draw();
    }
    if (state.time === last) state.time = 0;
    one("try-play").textContent = "Pause";
    one("try-verdict").setAttribute("aria-live", "off"); // read out once, at the end
    playing = setInterval(() => {
      state.time = Math.min(last, state.time + 1);
      if (state.time === last) pause();
      else draw();
    }, 160);
    return draw();
  }

  function prepared() {
    for (const name of CONTROLS) {
      const input = one(`try-${name}`);
      input.max = VALUES[name].length - 1;
      input.addEventListener("input", () => {
        state[name] = Number(input.value);
        if (name === "time" && playing) pause();
        else draw();
      });
    }
    data.tails.forEach((name, i) => {
      const [label, radio] = [document.createElement("label"), document.createElement("input")];
      Object.assign(radio, { type: "radio", name: "tail", value: String(i) });
      radio.addEventListener("change", () => { state.tail = i; draw(); });
      label.append(radio, name);
      root.querySelector(".try-tails").append(label);
    });
    for (const [name, preset] of Object.entries(data.presets)) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: name });
      button.addEventListener("click", () => { Object.assign(state, preset); if (playing) pause(); else draw(); });
      root.querySelector(".try-presets").append(button);
    }
    one("try-play").addEventListener("click", play);
    root.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    root.hidden = false;
    draw();
    new ResizeObserver(draw).observe(one("try-over-time"));
  }

  prepared();
})();
