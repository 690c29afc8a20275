/** The JSON of every route and of the report, generated from `src/tiltmeter/view/payloads/`: edit it there, then run
 * `make types`.
 *
 * A number that does not exist is null. Text that a model, a dataset or a person wrote (names of runs and readings
 * included) arrives as it is and is shown through `Shown`, never as markup.
 */

/** What a colour stands for; the page's style sheet has the same names. */
export type PictureColour = "text" | "faint" | "line" | "ground" | "proxy" | "gold" | "act" | "watch" | "blind" | "stale" | "ok" | "grey";
export type TextAnchor = "start" | "middle" | "end";

/** A line, or with `fill` an area. `d` has only absolute moves, lines and ends: M, L and Z. */
export interface PicturePath {
  d: string;
  colour: PictureColour;
  fill?: boolean;
  width?: number; // of the line
  opacity?: number;
  dash?: string;
}

/** Words; x and y are the anchor on their base line. */
export interface PictureText {
  x: number;
  y: number;
  text: string;
  colour: PictureColour;
  size: number;
  bold?: boolean;
  anchor?: TextAnchor;
}

/** Proxy and gold of a run at one size. Paths lie below words. */
export interface RunPicture {
  width: number;
  height: number;
  left: number; // of the first step
  right: number; // of the last step
  first: number; // step
  last: number;
  sentence: string; // what it shows, for people who cannot see it
  paths: PicturePath[];
  words: PictureText[];
}
export type ClaimSource = "act" | "behaviour" | "witness";

/** One thing that was done. A policy or the witness wrote `quote` and `own_words`. */
export interface Claim {
  source: ClaimSource;
  says: string; // what was done
  own_words: string; // what the witness calls it, or what tells a behaviour from others; may be empty
  many: string; // how many rollouts, and since when
  paid: string; // what they were paid; empty: not known
  id: string; // of an example: attempt-step-row; empty: none is stored
  step: Number; // of the example
  turn: Number; // of the quote, from 1 on; null: it is in no turn
  place: string; // of the quote, in words
  quote: string;
  accuracy: string; // recall and false positives with their intervals; empty: not calibrated
}

/** What was done, with what the witness's answers rest on. */
export interface Claims {
  claims: Claim[]; // acts of the newest step, then behaviours, then the witness's
  witness: string; // who was asked; empty: nobody
  remarks: string[]; // on the witness: how often it is right, what it was asked about, and why nothing is shown
}

/** How often the reward prefers the better of two answers, in a window of the latest steps, and its interval. */
export interface Agreement {
  share: number;
  low: number;
  high: number;
  n: number; // prompt groups or audited pairs whose gold differs
  of: string; // which of the two
  first: number; // steps of the window
  last: number;
}

/** Gold around one step: the mean over `n` labels and its confidence interval. */
export interface Estimate {
  step: number;
  gold: number;
  low: number;
  high: number;
  n: number;
}

/** Gold now beside the run's best stretch; `change` is at most 0, with its 95 % interval. */
export interface GoldLevel {
  now: number;
  best: number;
  change: number;
  low: number;
  high: number;
  source: string; // the reading
  first: number; // steps that `now` is of
  last: number;
  best_first: number;
  best_last: number;
}
export type State = "ACT" | "HOLLOW" | "STALE" | "BLIND" | "WATCH" | "OK";
export type Number = number | null;
export type Tier = "alarm" | "warning";
export type AlarmStatus = "open" | "resolved" | "acknowledged" | "muted" | "false";
export type ActionState = "proposed" | "approved" | "rejected" | "expired" | "applied" | "refused" | "reverted";
export type ActionRequest = "approve" | "reject" | "undo";
export type EntryKind = "alarm" | "warning" | "resolved" | "finding" | "proposed" | "did" | "outcome" | "fault" | "segment" | "attempt" | "end" | "note";
export type MarkKind = "alarm" | "warning" | "did" | "stop" | "segment" | "checkpoint";

/** What every list of runs shows first. */
export interface Headline {
  run: string; // opaque id, for every other route
  name: string;
  state: State;
  sentence: string;
  live: boolean;
  attempt: number;
  step: number;
  age_s: Number; // of the newest rollouts; null: there are none
  agreement: Agreement | null; // how often the reward prefers the better answer; null: not known
  level: GoldLevel | null; // gold now against its best; null: no gold
}

/** One run of the fleet. */
export interface FleetRow extends Headline {
  last_good: Number; // step of the checkpoint to go back to
  what: string; // the surest finding, or the sentence, short
  picture: RunPicture | null; // proxy and gold; null: drawn for the rows that are sent
  settings: Record<string, string>; // of the trainer, those on a short list, and where the code and the data came from
  kl: Number;
  reward: Number; // now: the mean at the end of its curve
  did: string; // the newest change made or proposed
  labels: number;
  unread: boolean; // by its monitor's list entry, which does not settle it: the run itself is read next
  tags: string[]; // that people put on the run
  archived: boolean; // by a person, and it has ended and was read: no other is ever hidden
}
export type FleetSort = "state" | "name" | "step" | "age" | "gold" | "lost" | "kl" | "labels";

/** A number over the runs of a group: each counts once, and those that lack it do not count. */
export interface GroupSpread {
  values: number[]; // one for each run that has it, at most 200, lowest first
  n: number;
  mean: Number;
  sd: Number; // between runs; null: fewer than two
}

/** Runs that share the value of a setting. */
export interface FleetGroup {
  value: string;
  runs: number;
  states: Record<string, number>;
  reward: GroupSpread;
  gold: GroupSpread;
  lost: GroupSpread; // gold now against its best
  first: number; // newest step of the run that is least far, and
  last: number; // of the one that is furthest
}

/** GET /api/fleet?find&sort&order&group&limit&pictures */
export interface Fleet {
  version: string;
  runs: FleetRow[]; // worst first, then by age of the problem
  total: number; // runs there are, read or not, but those that are hidden
  live: number;
  states: Record<string, number>; // how many runs are in each
  age_s: Number; // of the newest rollouts of any live run
  unread: number; // runs that are still to be read, those in `runs` with `unread` included
  unreadable: number;
  left_out: number; // rows beyond the limit
  matches: number; // runs that the query finds
  groups: FleetGroup[]; // by the setting that was asked for
  setting_names: string[]; // that differ between the runs
  hidden: Record<string, number>; // runs that are archived and not shown, by state; they are in none of the counts above
  tags: string[]; // on any of the runs
}

/** One of the checks behind a verdict. */
export interface VerdictCheck {
  name: string;
  ok: boolean;
  why: string;
}

/** An alarm or a warning; those of one fingerprint share a row. */
export interface AlarmRow {
  id: string; // opaque
  tier: Tier;
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
  status: AlarmStatus;
  said: string; // by whoever acknowledged, muted or dismissed it
}

/** A completion that shows what a finding or an alarm is about. */
export interface Exemplar {
  id: string; // of the rollout: attempt-step-row
  reward: Number;
  gold: Number;
  text: string; // of a long one the part that is new or repeated; a repeated passage once, with how often: ×14
}

/** A named failure. */
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

/** A change to the run, proposed or made. */
export interface ActionRow {
  id: string;
  attempt: number;
  step: number;
  told: number; // step at which it reached its state
  finding: string;
  knob: string;
  state: ActionState;
  time: Number; // seconds since 1970
  before: Number;
  after: Number;
  change: string; // in words, with what goes with it
  floor: Number;
  ceiling: Number;
  reason: string;
  pending: string; // "approve", "reject" or "undo" was asked and nobody has answered yet
  outcome: string; // measured effect of the change
  can: ActionRequest[];
}

/** One line of what happened. */
export interface HistoryEntry {
  time: number; // seconds since 1970
  attempt: number;
  step: number;
  kind: EntryKind;
  text: string;
  id: string; // of the alarm or action, else empty
}

/** A mark that every plot over steps draws. */
export interface Mark {
  attempt: number;
  step: number;
  kind: MarkKind;
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

/** What to do with the run now. */
export interface StopAdvice {
  word: string;
  why: string;
  now: Estimate | null;
}

/** Labels: whose, and how many. */
export interface GoldCounts {
  source: string;
  labels: number;
  asked: number;
  waiting: number;
  rollouts: number;
  people: boolean;
}

/** The state of the monitor itself in one line. */
export interface HealthLine {
  text: string;
  ok: boolean;
}

/** One environment, task source or value of a column beside the others. */
export interface SliceRow {
  name: string;
  rollouts: number;
  last: number; // step at which it was seen last
  reward: Number; // of its last steps
  gold: Number;
  evidence: Number; // log odds; null: nothing was bet on it
  since: Number; // step since which gold is lost in it, if an alarm on it is open
}

/** A task that became solvable overnight. */
export interface SolvedRow {
  task: string;
  step: number; // since then it is paid for
  before: number; // share of its rollouts that was paid
  share: number; // since
  rollouts: number; // since
}

/** Slices side by side, the most suspicious first, and tasks that became solvable overnight, the newest first. */
export interface SliceTables {
  slices: SliceRow[]; // at most 12; empty: there are no two
  slices_left_out: number;
  solved: SolvedRow[]; // at most 12
  solved_left_out: number;
}

/** GET /api/summary?run&since (since: seconds since 1970, entries from then on): all of S1 above the plots. */
export interface Summary extends Headline {
  behind: number; // steps stored and not measured
  now: number; // the server's clock, seconds since 1970
  onset: Number;
  onset_low: Number;
  onset_high: Number;
  last_good: Estimate | null; // the checkpoint to keep
  advice: StopAdvice | null;
  symptom: string; // what proxy and gold did, in numbers
  agreement_and_level: string[]; // agreement and level, in words
  checks: VerdictCheck[];
  findings: FindingRow[]; // surest first
  alarms: AlarmRow[]; // open
  warnings: AlarmRow[]; // open
  proposals: ActionRow[]; // waiting for an answer
  entries: HistoryEntry[]; // oldest first, at most 40
  entries_left_out: number;
  asides: string[];
  gold: GoldCounts;
  pictures: RunPicture[]; // proxy and gold, for narrow, middle and wide windows
  rows: number;
  steps: number;
  mode: string; // observe, advise, act; empty: no trainer can be changed
  lanes: Lane[];
  marks: Mark[];
  proves: Exemplar[]; // ten completions that show it
  claims: Claims; // what was done, as acts, behaviours and the witness tell it
  slices: SliceTables;
  health: HealthLine;
}
export type PlotAxis = "left" | "right";
export type LineRole = "proxy" | "gold" | "plain" | "beta";
export type NonFinite = "nan" | "+inf" | "-inf";

/** A line over steps; `values` aligns with the panel's `steps`, null where there is nothing. */
export interface Line {
  name: string; // reading
  label: string;
  values: Number[];
  axis: PlotAxis;
  role: LineRole;
  low?: Number[]; // 95 % interval
  high?: Number[];
  digits?: number;
}

/** A value that is not finite, drawn as a mark at its step. */
export type Flagged = [line: number, step: number, flag: NonFinite];

/** Steps of an attempt that a later one abandoned. */
export interface Branch {
  attempt: number;
  steps: number[];
  values: Number[][]; // by line
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

/** A plot over steps. */
export interface Panel {
  title: string;
  sentence: string; // what it shows, for people who cannot see it
  steps: number[];
  lines: Line[];
  branches: Branch[]; // abandoned steps
  flagged: Flagged[];
  shown: number; // points shown, of how many
  of: number;
  left: string; // axis titles
  right: string;
  log: boolean; // left axis
  empty: string; // why there is nothing to draw; else ""
}

/** Where gold was highest. */
export interface GoldPeak {
  step: number;
  root_kl: Number;
  gold: Number;
}

/** A saved model with the gold around it. */
export interface CheckpointGold {
  step: number;
  root_kl: Number;
  gold: Number;
  best: boolean;
}

/** Gold over stretches of enough labels, from every step of the range. */
export interface PooledGold {
  steps: number[];
  root_kl: Number[];
  gold: Number[];
  low: Number[];
  high: Number[];
  labels: number[];
}

/** The distance at which gold will peak, with the curve up to it where one was fitted. */
export interface ForecastCurve {
  root_kl: Number[];
  gold: Number[];
  low: Number[];
  high: Number[];
  peak: Number;
  sentence: string;
}

/** P1. `root_kl` aligns with `steps`; the path over it is drawn in step order, since KL is not monotone. */
export interface ProxyGoldPanel extends Panel {
  root_kl: Number[];
  peak: GoldPeak | null;
  checkpoints: CheckpointGold[];
  labels: number[]; // labels behind each step
  forecast: ForecastCurve | null;
  pooled?: PooledGold; // absent where steps have enough labels themselves
}

/** GET /api/plots?run&from&to&points */
export interface Plots {
  from: number;
  to: number;
  truth: ProxyGoldPanel;
  paid: Panel; // P2: change from base by component, lines[0] is the total
  diversity: Panel; // P4: each line is a strip of its own
  kl: Panel; // P5
  length: Panel; // length over steps
}

/** The dots of one range of steps. */
export interface ScatterEra {
  label: string;
  x: number[];
  y: number[];
  ids: string[];
}

/** Medians of an era's dots over stretches of x. */
export interface EraMedians {
  era: number;
  x: Number[];
  y: Number[];
}

/** P3 */
export interface Scatter {
  title: string;
  x: string;
  y: string;
  eras: ScatterEra[];
  medians: EraMedians[];
  sentence: string;
  empty: string;
}

/** P6: `cells[row][column]` is the standard deviation of reward in groups, -1: all equal, null: no data. */
export interface Heat {
  title: string;
  width: number; // steps a column
  sentence: string;
  steps: number[]; // first step of each column
  rows: string[]; // labels, hardest prompts last
  cells: Number[][];
  most: number;
  empty: string;
}

/** GET /api/geometry?run&from&to: what needs the rollouts themselves, so it comes after the rest. */
export interface Geometry {
  scatter: Scatter;
  gold_scatter: Scatter;
  heat: Heat;
}

/** A reading and its change. */
export interface ReadingRow {
  name: string;
  first: Number;
  last: Number;
  moved: Number; // in units of its noise
  spark: Number[];
}

/** A reading that is absent, the columns it lacks, and how to provide them. */
export interface AbsentReading {
  name: string;
  lacks: string;
  fix: string;
}

/** GET /api/readings?run */
export interface Readings {
  readings: ReadingRow[];
  absent: AbsentReading[];
}
export type YesNo = 0 | 1;
export type RolloutSort = "step" | "reward" | "gold" | "length" | "gap";
export type SortOrder = "up" | "down";

/** GET /api/rollouts?run&FILTERS&after&limit */
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
  labelled?: YesNo;
  truncated?: YesNo;
  flagged?: YesNo; // a reward that is no plain number
  disagree?: YesNo; // reward functions disagree: the widest quarter of steps' rows
  phrase?: string; // completions that contain this text
  find?: string; // a query line: conditions and texts to find
  sort?: RolloutSort;
  order?: SortOrder;
}

/** Where something that was searched for stands in a text. */
export interface TextHit {
  start: number;
  stop: number;
  where: "prompt" | "completion";
}

/** A rollout in a list. */
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
  text: string; // first 200 characters, or what stands around the first hit
  hit: TextHit | null; // in `text`; null: nothing was searched for
  tags: string[]; // that people put on it
  notes: number; // that people wrote on it
}

/** A page of rollouts. */
export interface RolloutPage {
  rows: RolloutRow[];
  total: number; // rows that match
  rollouts: number; // in the index
  after: string; // cursor of the next page; empty: this was the last
  ready: number; // share of the run that is indexed, 1: all
  ms: number; // server time
  searched?: number; // rows whose texts were searched so far,
  to_search?: number; // of so many; it goes on
  unsearchable?: number; // rows whose texts are not stored, or cannot be read
}

/** What one reward function gave. */
export interface RewardPart {
  name: string;
  value: Number;
  flag: string;
}

/** A process reward: of one step of the answer. */
export interface StepScore {
  reward: Number;
  text: string | null; // null: nobody knows how it was split
  bad: boolean;
}

/** One turn of a conversation: a message, or one of its calls. */
export interface RolloutTurn {
  role: string;
  own: boolean; // the policy that is trained wrote it
  excerpt: string | null; // its words
  reasoning: string | null;
  call: string | null; // name of the tool
  arguments: string | null;
  tool_error: string | null;
  again: boolean; // a call that repeats an earlier one word for word
}

/** Something that the trajectory did and no task asks for: evidence, no verdict. */
export interface RolloutAct {
  says: string; // what was done
  turn: number; // in `turns`; -1: known from the record of files
  line: number;
  quote: string;
}

/** GET /api/rollout?run&id */
export interface Rollout extends RolloutRow {
  prompt: string | null;
  completion: string | null;
  rewards: RewardPart[];
  steps: StepScore[];
  turns: RolloutTurn[]; // empty: the completion is one message
  acts: RolloutAct[];
  env: string;
  stop: string; // why it ended; empty: not known
  facts: string; // JSON of the dataset's columns
  capped: boolean;
}

/** The answer to the same prompt at the start. */
export interface StartAnswer {
  step: Number;
  text: string;
  source: string;
}

/** GET /api/group?run&id: the rollout, the others of its prompt group, and the same prompt at the start. */
export interface RolloutGroup {
  rollout: Rollout;
  rows: RolloutRow[]; // the group, highest reward first
  mean: Number;
  spread: Number;
  base: StartAnswer | null;
  base_why: string; // why there is none
  hits: TextHit[]; // of the query, in the open rollout's prompt and completion
}

/** A phrase that is over-used. */
export interface PhraseRow {
  text: string;
  share: Number; // of completions now
  share_before: Number;
  z: Number;
  reward_with: Number;
  reward_without: Number;
  gold_with: Number;
  gold_without: Number;
  first: Number; // step at which it first passed twice its share at the start
  trend: Number[]; // share over the run, at most 24 points
  excerpt: string;
  id: string; // of a rollout that contains it
}

/** GET /api/phrases?run&step */
export interface PhraseList {
  step: number;
  against: string;
  rows: PhraseRow[];
  empty: string;
}

/** What the policy answered to a prompt at one step. */
export interface PromptAnswer {
  step: number;
  text: string;
  reward: Number;
  gold: Number;
  id: string; // of the rollout, else empty
  folded?: string; // repeated passages once, with how often (×14); absent: there are none
}

/** A prompt and its answers over training. */
export interface PinnedPrompt {
  prompt: string;
  said: PromptAnswer[];
}

/** GET /api/pinned?run */
export interface Pinned {
  source: string; // where the answers come from, in words
  prompts: PinnedPrompt[];
  empty: string;
}
export type TokenColour = "logprob" | "reference" | "entropy" | "engine" | "advantage" | "process";

/** A number that tokens can be coloured by. Level k: the value is at least `levels[k - 1]` away from `centre`. */
export interface ColourScale {
  name: TokenColour;
  title: string;
  unit: string;
  centre: number;
  levels: number[]; // six, rising
  signed: boolean; // values above and below the centre have colours of their own; else only those on `side` have one
  side: "above" | "below";
  says: string; // what a strong colour means
  why: string; // why tokens cannot be coloured by it; empty: they can
}

/** One of the completions that stand side by side. */
export interface GroupMember extends Rollout {
  repeats: number; // how often its most repeated passage stands there in a row; 1: nothing is repeated
  hits: TextHit[]; // of the query
}

/** A component of the reward, and by how much it is multiplied. */
export interface ComponentWeight {
  name: string;
  weight: Number; // null: not known
}

/** GET /api/members?run&id&find: the completions of the rollout's prompt group in full, highest reward first. */
export interface ReadGroup {
  attempt: number;
  step: number;
  group: number;
  prompt: string | null;
  size: number; // of the group; of more than 16 the best and the worst paid are members
  members: GroupMember[];
  weights: ComponentWeight[];
  weights_why: string; // where the weights come from, or why they are not known
  scales: ColourScale[];
}

/** The tokens of the words of one turn. */
export interface TurnTokens {
  turn: number;
  widths: number[]; // characters of each token, as JavaScript counts
  values: Number[];
}

/** The tokens of one completion. */
export interface TokenRow {
  id: string;
  widths: number[]; // characters of each token, as JavaScript counts
  values: Number[];
  why: string; // why its tokens cannot be coloured, or those of some turns; empty: they can
  turns: TurnTokens[]; // of a conversation, instead of widths and values
}

/** GET /api/tokens?run&id&by: the numbers of the tokens of the same members. */
export interface GroupTokens {
  by: TokenColour;
  rows: TokenRow[];
}

/** GET /api/alarms?run */
export interface Alarms {
  rows: AlarmRow[];
  promise: string; // the run-level bound, in words
}

/** The log odds of an alarm's test up to where it was raised. */
export interface EvidenceCurve {
  labels: number[];
  steps: number[];
  odds: number[];
  threshold: number;
  raised: number; // index
}

/** GET /api/alarm?run&id */
export interface AlarmDetail {
  alarm: AlarmRow;
  promise: string;
  evidence: EvidenceCurve;
  readings: Panel; // what it watches
  exemplars: Exemplar[];
}

/** A setting of the trainer that may be changed, with its value now. */
export interface KnobRow {
  name: string;
  value: Number;
  floor: Number;
  ceiling: Number;
  why: string;
}

/** GET /api/actions?run */
export interface Actions {
  rows: ActionRow[]; // newest first
  mode: string;
  knobs: KnobRow[];
  dry_run: string[]; // what mode act would ask for now
}
export type CompareAxis = "step" | "root_kl" | "tokens";

/** A run and its verdict. */
export interface ComparedRun {
  run: string;
  name: string;
  state: State;
  sentence: string;
  step: number;
}

/** A measure of one run. */
export interface ComparedCurve {
  x: Number[];
  y: Number[];
  low: Number[];
  high: Number[];
}

/** How far another run lies from the first, over stretches that both cover, with a 95 % interval. */
export interface CurveDifference {
  x: Number[];
  y: Number[];
  low: Number[];
  high: Number[];
  first: Number; // x from which on they differ lastingly
  run: number; // the other run
}

/** One measure of all runs, and the difference that shows first. */
export interface ComparedMeasure {
  name: string;
  label: string;
  runs: ComparedCurve[];
  difference: CurveDifference | null;
}

/** A setting that differs. */
export interface ComparedSetting {
  name: string;
  values: string[];
}

/** The answer of one run. */
export interface ComparedAnswer {
  run: number;
  step: number;
  text: string;
  reward: Number;
  gold: Number;
  id: string;
}

/** A prompt that all runs answered. */
export interface ComparedPrompt {
  prompt: string;
  said: ComparedAnswer[];
}

/** GET /api/compare?run=..&run=..&x=step|root_kl|tokens&name */
export interface Compare {
  runs: ComparedRun[];
  x: CompareAxis;
  measures: ComparedMeasure[];
  diverged: string; // "gold, step 596"
  config: ComparedSetting[]; // that differ
  same: number; // settings that do not
  prompts: ComparedPrompt[];
}
export type ScorerKind = "rule" | "judge";
export type AuditVerdict = "none paid" | "some paid" | "could not judge";
export type ForgeryStatus = "paid" | "not paid" | "could not judge";

/** Where a reward function runs code. */
export interface SandboxRow {
  reward: string;
  tier: string;
  isolation: string;
}

/** Completions, and those without a reward by reason. */
export interface UnscoredCounts {
  rows: number;
  infra: number;
  unscored: number;
}

/** A wrong answer made to look right, and whether it was paid. */
export interface ForgeryRow {
  forgery: string;
  status: ForgeryStatus;
  paid: number;
  tasks: number;
  unjudged: number;
  score: Number;
  text: string;
  cause: string;
  fix: string;
}

/** Something about the verifier itself; null: it could not be seen. */
export interface AuditCheckRow {
  ok: boolean | null;
  name: string;
  says: string;
  fix: string;
}

/** An audit of a verifier. */
export interface AuditRow {
  reward: string;
  time: number;
  seconds: number;
  tasks: number;
  judged: number; // tasks that tell right from wrong
  network: string;
  verdict: AuditVerdict;
  summary: string; // why tasks could not be used
  tried: ForgeryRow[]; // paid ones first
  checks: AuditCheckRow[];
}

/** A reward worker over the run: the mis-scored canaries in equal spans of steps. */
export interface WorkerRow {
  worker: number;
  kind: ScorerKind;
  asked: number;
  failed: number;
  first: Number;
  width: number;
  cells: Number[];
}

/** A canary, and how often it was mis-scored. */
export interface CanaryRow {
  number: number;
  kind: ScorerKind;
  expect: string;
  text: string;
  named: boolean;
  asked: number;
  failed: number;
}

/** GET /api/verifier?run */
export interface Verifier {
  sandboxes: SandboxRow[];
  attached: Number; // seconds since 1970: when the sandboxes tested themselves
  errors: UnscoredCounts;
  audits: AuditRow[]; // newest first
  damaged: number; // audits that cannot be read
  workers: WorkerRow[];
  workers_left_out: number;
  unanswered: number; // canaries without a score
  canaries: CanaryRow[];
}

/** A rank of the newest attempt. */
export interface RankRow {
  rank: number;
  step: number;
  age_s: Number;
  late: boolean;
  lost: number;
}

/** The monitor's process. */
export interface MonitorHealth {
  step: number;
  behind: number;
  age_s: Number;
  running: boolean | null;
}

/** A part of ours that was switched off. */
export interface PartOff {
  part: string;
  error: string;
}

/** A failure of a part of ours. */
export interface FaultRow {
  attempt: number;
  step: number;
  part: string;
  error: string;
}

/** A fact in words. */
export interface NameValue {
  name: string;
  value: string;
}

/** How much of the run the server has indexed. */
export interface IndexState {
  rollouts: number;
  ready: number;
}

/** GET /api/health?run */
export interface Health {
  ranks: RankRow[];
  monitor: MonitorHealth;
  checks: VerdictCheck[];
  off: PartOff[];
  faults: FaultRow[];
  absent: AbsentReading[];
  disk_bytes: number;
  skipped: number; // damaged lines
  seen: number;
  lost: number;
  cost: NameValue[]; // overhead in the trainer, where known
  versions: NameValue[];
  index: IndexState;
}

/** One entry. */
export interface NoteRow {
  id: string;
  kind: "tag" | "note" | "view" | "archive";
  target: string; // empty: the run; attempt-step: a step; attempt-step-row: a rollout
  text: string; // the tag, the note, the reason for archiving, or of a view its address within the run
  name: string; // of a view
  author: string;
  time: number; // seconds since 1970
}

/** On how many things of the run a tag stands. */
export interface TagCount {
  tag: string;
  count: number;
}

/** GET /api/notes?run&target: the entries of a rollout; without target those of the run and its steps. */
export interface RunNoteList {
  rows: NoteRow[]; // oldest first
  views: NoteRow[]; // of the run, by name
  tags: TagCount[]; // anywhere in the run, the most frequent first
  archived: boolean;
  unreadable: string[]; // files that are not understood, at most 5, and how many more there are
}
export type TaskKind = "pair" | "single" | "";
export type AnswerValue = "a" | "b" | "tie" | "both_bad" | "skip" | "0" | "0.25" | "0.5" | "0.75" | "1";
export type ControlKind = "acknowledge" | "mute" | "false_alarm" | "ask_label" | "approve" | "reject" | "undo" | "tag" | "note" | "view" | "archive" | "remove";
export type PageRole = "view" | "label" | "control";
export type ControlBy = "none" | "token" | "account";

/** Items that two raters judged, and those with the same answer. */
export interface RaterAgreement {
  with: string;
  same: number;
  of: number;
}

/** Pairs that a rater saw twice, and those with the same answer. */
export interface RaterConsistency {
  same: number;
  of: number;
}

/** GET /api/label/next (label token): nothing here says what was paid, when, or which side is which.
 * POST /api/label and POST /api/label/undo give the next task, or the one that was taken back.
 */
export interface LabelTask {
  task: string; // random id; "" when there is nothing to do
  kind: TaskKind;
  prompt: string | null;
  texts: string[]; // two, or one
  done: number; // by this rater today
  left: number; // open for this rater
  guide: string; // how to judge, as plain text
  why: string; // why there is nothing to do
  rater: string;
  agreement: RaterAgreement[]; // only when nothing is left to do
  consistency: RaterConsistency | null; // likewise
}

/** POST /api/label */
export interface Answer {
  task: string;
  answer: AnswerValue;
  milliseconds: number;
}

/** POST /api/control (control token) */
export interface Control {
  run: string;
  kind: ControlKind;
  target: string; // id of an alarm, action or rollout; of a tag or note also a step, or nothing: the run; a view's name
  step: number; // the step it was decided on
  reason: string; // or the tag, the note, the address of a view, the id of what is removed
  nonce: string;
}

/** The answer to a control request. */
export interface Controlled {
  request: string;
  text: string; // what happens next
}

/** The verdict of the run, or the worst of the fleet. */
export interface StateMessage {
  kind: "state";
  state: State;
  sentence: string;
  step: number;
  age_s: Number;
  live: boolean;
}

/** A step was measured. */
export interface StepMessage {
  kind: "step";
  attempt: number;
  step: number;
}

/** Something happened. */
export interface EntryMessage {
  kind: "event";
  entry: HistoryEntry;
}

/** Too far behind: ask for everything again. */
export interface ResetMessage {
  kind: "reset";
}

/** GET /api/stream?run: server-sent events. `run` absent: the fleet's. */
export type Pushed = StateMessage | StepMessage | EntryMessage | ResetMessage;

/** POST /api/login {code} */
export interface Login {
  token: string;
  roles: PageRole[];
}

/** GET /api/me: who the server takes this page for, by its token or by a proxy's header. */
export interface Me {
  name: string; // "" for whoever has the token of a server without accounts, and for nobody
  roles: PageRole[]; // empty: nobody
  control: ControlBy; // how this person acts on runs
}

/** Every answer with a status of 400 and above. */
export interface Failure {
  error: string; // what is wrong and how to fix it
}

/** The data of a report. */
export interface ReportAnswers {
  made: string; // by which version, when, up to which step
  answers: Record<string, unknown>; // by the address that the page would request
}

/** What each state means, the worst first. */
export const MEANINGS: Record<State, string> = {
  "ACT": "An alarm is open: by gold, answers are getting worse while the reward is followed; or different prompts get the same answers. Stop, and go back.",
  "HOLLOW": "The reward has gained, and the answers are not better for it.",
  "STALE": "Nothing new is measured: the monitor is behind, or the trainer has fallen silent.",
  "BLIND": "Nobody can tell: there is no gold, too little, or too old; or a part of the run is missing.",
  "WATCH": "No alarm, but a warning, a strong finding, or the advice to stop.",
  "OK": "Healthy so far, with evidence on all nine checks."
};
