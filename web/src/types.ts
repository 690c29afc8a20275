/** The JSON of every route. `src/tiltmeter/page` builds each of these, one function per route, and the report contains
 * the same objects. The browser only draws; the server decides.
 *
 * A number that does not exist is null. Text that a model, a dataset or a person wrote (names of runs and readings
 * included) arrives as it is and is shown through `Shown`, never as markup.
 */

export type State = "ACT" | "STALE" | "BLIND" | "WATCH" | "OK";
export type Number = number | null;

/** GET /api/fleet */
export interface Fleet {
  version: string;
  runs: FleetRow[]; // worst first, then by age of the problem
  left_out: number; // runs beyond the limit
}
export interface FleetRow {
  run: string; // opaque id, for every other route
  name: string;
  state: State;
  sentence: string;
  live: boolean;
  attempt: number;
  step: number;
  age_s: Number; // of the newest rollouts; null: there are none
  last_good: Number; // step of the checkpoint to go back to
  what: string; // the surest finding, or the sentence, short
  proxy: Number[]; // at most 24 points, start to now
  gold: Number[]; // empty: no gold
  kl: Number;
  did: string; // the newest change made or proposed
  labels: number;
}

export interface Check {
  name: string;
  ok: boolean;
  why: string;
}
export interface AlarmRow {
  id: string; // opaque
  tier: "alarm" | "warning";
  name: string; // of the reading
  detector: string;
  attempt: number;
  step: number; // raised
  onset: number;
  onset_low: number;
  onset_high: number;
  evidence: Number; // log odds
  threshold: Number;
  summary: string;
  resolved: Number; // step
  count: number; // times it was raised
  status: "open" | "resolved" | "acknowledged" | "muted" | "false";
  said: string; // by whoever acknowledged, muted or dismissed it
}
export interface Exemplar {
  id: string; // of the rollout: attempt-step-row
  reward: Number;
  gold: Number;
  text: string; // the beginning
}
export interface FindingRow {
  failure: string;
  confidence: number;
  attempt: number;
  step: number;
  summary: string;
  cause: string;
  fix: string;
  tried: string; // what an experiment said
  readings: string[];
  exemplars: string[]; // rollout ids
}
export interface ActionRow {
  id: string;
  attempt: number;
  step: number;
  told: number; // step at which it reached its state
  time: Number; // seconds since 1970
  finding: string;
  knob: string;
  before: Number;
  after: Number;
  change: string; // in words, with what goes with it
  floor: Number;
  ceiling: Number;
  reason: string;
  state: "proposed" | "approved" | "rejected" | "expired" | "applied" | "refused" | "reverted";
  pending: string; // "approve", "reject" or "undo" was asked and nobody has answered yet
  outcome: string; // measured effect of the change
  can: ("approve" | "reject" | "undo")[];
}
export interface Entry {
  time: number; // seconds since 1970
  attempt: number;
  step: number;
  kind: "alarm" | "warning" | "resolved" | "finding" | "proposed" | "did" | "outcome" | "fault" | "segment" | "attempt" | "end" | "note";
  text: string;
  id: string; // of the alarm or action, else empty
}
/** A mark that every plot over steps draws. */
export interface Mark {
  attempt: number;
  step: number;
  kind: "alarm" | "warning" | "did" | "stop" | "segment" | "checkpoint";
  text: string;
  id: string;
}
/** One attempt of the run. Steps from `left` on were abandoned by a later one and are drawn grey. */
export interface Lane {
  attempt: number;
  parent: Number;
  first: number;
  last: number;
  left: Number; // null: on the current branch to its end
}
export interface Estimate {
  step: number;
  gold: number;
  low: number;
  high: number;
  n: number;
}

/** GET /api/summary?run&since (since: seconds since 1970, entries from then on): all of S1 above the plots. */
export interface Summary {
  run: string;
  name: string;
  state: State;
  sentence: string;
  live: boolean;
  attempt: number;
  step: number;
  age_s: Number;
  behind: number; // steps stored and not measured
  now: number; // the server's clock, seconds since 1970
  onset: Number;
  onset_low: Number;
  onset_high: Number;
  last_good: Estimate | null; // the checkpoint to keep
  advice: { word: string; why: string; now: Estimate | null } | null;
  symptom: string; // what proxy and gold did, in numbers
  checks: Check[];
  findings: FindingRow[]; // surest first
  alarms: AlarmRow[]; // open
  warnings: AlarmRow[]; // open
  proposals: ActionRow[]; // waiting for an answer
  entries: Entry[]; // oldest first, at most 40
  entries_left_out: number;
  asides: string[];
  gold: { source: string; labels: number; asked: number; waiting: number; rollouts: number; people: boolean };
  rows: number;
  steps: number;
  mode: string; // observe, advise, act; empty: no trainer can be changed
  lanes: Lane[];
  marks: Mark[];
  proves: Exemplar[]; // ten completions that show it
  health: { text: string; ok: boolean };
}

/** A line over steps; `values` aligns with the panel's `steps`, null where there is nothing. */
export interface Line {
  name: string; // reading
  label: string;
  values: Number[];
  low?: Number[]; // 95 % interval
  high?: Number[];
  axis: "left" | "right";
  role: "proxy" | "gold" | "plain" | "beta";
  digits?: number;
}
/** Values that are not finite, drawn as a mark at their step. */
export type Flagged = [line: number, step: number, flag: "nan" | "+inf" | "-inf"];
export interface Branch {
  attempt: number;
  steps: number[];
  values: Number[][]; // by line
}
export interface Panel {
  title: string;
  sentence: string; // what it shows, for people who cannot see it
  steps: number[];
  lines: Line[];
  branches: Branch[]; // abandoned steps
  flagged: Flagged[];
  left: string; // axis titles
  right: string;
  log: boolean; // left axis
  shown: number; // points shown, of how many
  of: number;
  empty: string; // why there is nothing to draw; else ""
}
/** P1. `root_kl` aligns with `steps`; the path over it is drawn in step order, since KL is not monotone. */
export interface Truth extends Panel {
  root_kl: Number[];
  peak: { step: number; root_kl: Number; gold: number } | null;
  checkpoints: { step: number; root_kl: Number; gold: Number; best: boolean }[];
  labels: number[]; // labels behind each step
  /** Gold over stretches of enough labels, from every step of the range; absent where steps have enough themselves. */
  pooled?: { steps: number[]; root_kl: Number[]; gold: number[]; low: number[]; high: number[]; labels: number[] };
  forecast: { root_kl: number[]; gold: number[]; low: number[]; high: number[]; peak: Number; sentence: string } | null;
}
/** P3 */
export interface Scatter {
  title: string;
  sentence: string;
  x: string;
  y: string;
  eras: { label: string; x: number[]; y: number[]; ids: string[] }[];
  medians: { era: number; x: number[]; y: number[] }[];
  empty: string;
}
/** P6: `cells[row][column]` is the standard deviation of reward in groups, -1: all equal, null: no data. */
export interface Heat {
  title: string;
  sentence: string;
  steps: number[]; // first step of each column
  width: number; // steps a column
  rows: string[]; // labels, hardest prompts last
  cells: Number[][];
  most: number;
  empty: string;
}
/** GET /api/plots?run&from&to&points */
export interface Plots {
  from: number;
  to: number;
  truth: Truth;
  paid: Panel; // P2: change from base by component, lines[0] is the total
  diversity: Panel; // P4: each line is a strip of its own
  kl: Panel; // P5
  length: Panel; // length over steps
}
/** GET /api/geometry?run&from&to: what needs the rollouts themselves, so it comes after the rest. */
export interface Geometry {
  scatter: Scatter;
  gold_scatter: Scatter;
  heat: Heat;
}

/** GET /api/series?run&name=..&name=..&from&to&points */
export interface Series {
  steps: number[];
  lines: Line[];
  branches: Branch[];
  flagged: Flagged[];
  shown: number;
  of: number;
}
/** GET /api/readings?run */
export interface Readings {
  readings: { name: string; first: number; last: number; moved: number; spark: Number[] }[];
  absent: { name: string; lacks: string; fix: string }[];
}

/** GET /api/rollouts?run&FILTERS&sort&after&limit */
export interface Filters {
  from?: number; // steps
  to?: number;
  attempt?: number;
  reward_min?: number;
  reward_max?: number;
  gold_min?: number;
  gold_max?: number;
  length_min?: number;
  length_max?: number;
  labelled?: 0 | 1;
  truncated?: 0 | 1;
  flagged?: 0 | 1; // a reward that is no plain number
  disagree?: 0 | 1; // reward functions disagree: the widest quarter of steps' rows
  phrase?: string; // completions of the shown steps that contain this text
  sort?: "step" | "reward" | "gold" | "length" | "gap";
  order?: "up" | "down";
}
export interface Rollouts {
  rows: RolloutRow[];
  total: number; // rows that match
  rollouts: number; // in the index
  after: string; // cursor of the next page; empty: this was the last
  ready: number; // share of the run that is indexed, 1: all
  ms: number; // server time
}
export interface RolloutRow {
  id: string;
  attempt: number;
  step: number;
  group: number;
  reward: Number;
  flag: string; // of the reward, if it is no plain number
  gold: Number; // null: not labelled
  length: Number;
  truncated: boolean | null;
  advantage: Number;
  text: string; // first 200 characters
}
/** GET /api/rollout?run&id */
export interface Rollout extends RolloutRow {
  prompt: string | null;
  completion: string | null;
  rewards: { name: string; value: Number; flag: string }[];
  steps: { reward: Number; text: string | null; bad: boolean }[]; // process rewards; text null: nobody knows how it was split
  facts: string; // JSON of the dataset's columns
  capped: boolean;
}
/** GET /api/group?run&id: the rollout, the others of its prompt group, and the same prompt at the start. */
export interface Group {
  rollout: Rollout;
  rows: RolloutRow[]; // the group, highest reward first
  mean: Number;
  spread: Number;
  base: { step: Number; text: string; source: string } | null;
  base_why: string; // why there is none
}

/** GET /api/phrases?run&step */
export interface Phrases {
  step: number;
  against: string;
  rows: PhraseRow[];
  empty: string;
}
export interface PhraseRow {
  text: string;
  share: number; // of completions now
  share_before: number;
  z: number;
  reward_with: Number;
  reward_without: Number;
  gold_with: Number;
  gold_without: Number;
  first: Number; // step at which it first passed twice its share at the start
  trend: Number[]; // share over the run, at most 24 points
  excerpt: string;
  id: string; // of a rollout that contains it
}

/** GET /api/pinned?run */
export interface Pinned {
  source: string; // where the answers come from, in words
  prompts: { prompt: string; said: { step: number; text: string; reward: Number; gold: Number; id: string }[] }[];
  empty: string;
}

/** GET /api/alarms?run, GET /api/alarm?run&id */
export interface Alarms {
  rows: AlarmRow[];
  promise: string; // the run-level bound, in words
}
export interface AlarmDetail {
  alarm: AlarmRow;
  promise: string;
  evidence: { labels: number[]; steps: number[]; odds: number[]; threshold: number; raised: number }; // log odds; raised: index
  readings: Panel; // what it watches
  exemplars: Exemplar[];
}
/** GET /api/actions?run */
export interface Actions {
  rows: ActionRow[]; // newest first
  mode: string;
  knobs: { name: string; value: Number; floor: Number; ceiling: Number; why: string }[];
  dry_run: string[]; // what mode act would ask for now
}
/** GET /api/compare?run=..&run=..&x=step|root_kl|tokens&name */
export interface Compare {
  runs: { run: string; name: string; state: State; sentence: string; step: number }[];
  x: "step" | "root_kl" | "tokens";
  measures: { name: string; label: string; runs: { x: number[]; y: Number[]; low: Number[]; high: Number[] }[]; difference: { x: number[]; y: number[]; low: number[]; high: number[]; first: Number } | null }[];
  diverged: string; // "gold, step 596"
  config: { name: string; values: string[] }[]; // that differ
  same: number; // settings that do not
  prompts: { prompt: string; said: { run: number; step: number; text: string; reward: Number; gold: Number; id: string }[] }[];
}
/** GET /api/verifier?run */
export interface Verifier {
  sandboxes: { reward: string; tier: string; isolation: string }[];
  attached: Number; // seconds since 1970: when the sandboxes tested themselves
  errors: { rows: number; infra: number; unscored: number };
  audits: AuditRow[]; // newest first
  damaged: number; // audits that cannot be read
  workers: { worker: number; kind: "rule" | "judge"; asked: number; failed: number; first: Number; width: number; cells: Number[] }[];
  workers_left_out: number;
  unanswered: number; // canaries without a score
  canaries: { number: number; kind: "rule" | "judge"; expect: string; text: string; named: boolean; asked: number; failed: number }[];
}
export interface AuditRow {
  reward: string;
  time: number;
  seconds: number;
  tasks: number;
  judged: number; // tasks that tell right from wrong
  network: string;
  verdict: "none paid" | "some paid" | "could not judge";
  summary: string; // why tasks could not be used
  tried: { forgery: string; status: "paid" | "not paid" | "could not judge"; paid: number; tasks: number; unjudged: number; score: Number; text: string; cause: string; fix: string }[]; // paid ones first
  checks: { name: string; ok: boolean | null; says: string; fix: string }[];
}
/** GET /api/health?run */
export interface Health {
  ranks: { rank: number; step: number; age_s: Number; late: boolean; lost: number }[];
  monitor: { step: number; behind: number; age_s: Number; running: boolean | null };
  checks: Check[];
  off: { part: string; error: string }[];
  faults: { attempt: number; step: number; part: string; error: string }[];
  absent: { name: string; lacks: string; fix: string }[];
  disk_bytes: number;
  skipped: number; // damaged lines
  seen: number;
  lost: number;
  cost: { name: string; value: string }[]; // overhead in the trainer, where known
  versions: { name: string; value: string }[];
  index: { rollouts: number; ready: number };
}

/** GET /api/label/next (label token): nothing here says what was paid, when, or which side is which. */
export interface Task {
  task: string; // random id; "" when there is nothing to do
  kind: "pair" | "single" | "";
  prompt: string | null;
  texts: string[]; // two, or one
  done: number; // by this rater today
  left: number; // open for this rater
  guide: string; // how to judge, as plain text
  why: string; // why there is nothing to do
  rater: string;
  agreement: { with: string; same: number; of: number }[]; // only when nothing is left to do
  consistency: { same: number; of: number } | null; // likewise
}
/** POST /api/label */
export interface Answer {
  task: string;
  answer: "a" | "b" | "tie" | "both_bad" | "skip" | "0" | "0.25" | "0.5" | "0.75" | "1";
  milliseconds: number;
}
/** POST /api/label/undo: takes the last answer back; gives the task again. */

/** POST /api/control (control token) */
export interface Control {
  run: string;
  kind: "acknowledge" | "mute" | "false_alarm" | "ask_label" | "approve" | "reject" | "undo";
  target: string; // alarm, action or rollout id
  step: number; // the step it was decided on
  reason: string;
  nonce: string;
}
export interface Controlled {
  request: string;
  text: string; // what happens next
}

/** GET /api/stream?run: server-sent events. `run` absent: the fleet's. */
export type Pushed =
  | { kind: "state"; state: State; sentence: string; step: number; age_s: Number; live: boolean }
  | { kind: "step"; attempt: number; step: number }
  | { kind: "event"; entry: Entry }
  | { kind: "reset" }; // too far behind: ask for everything again

/** POST /api/login {code} */
export interface Login {
  token: string;
  role: "view" | "label";
}
export interface Failure {
  error: string; // what is wrong and how to fix it
}
