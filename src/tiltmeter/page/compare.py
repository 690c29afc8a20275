"""Two to six runs side by side: what each measured, from where on they differ, and what was set differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from tiltmeter.control import read_knobs
from tiltmeter.errors import StoreError
from tiltmeter.page.book import Book, Readings
from tiltmeter.page.gold import gold_name
from tiltmeter.page.samples import At, gold_of, measured, rollouts
from tiltmeter.page.series import POINTS, REACH, at, errors, number, plain, sampled
from tiltmeter.page.truth import root_kl
from tiltmeter.pinned import cut
from tiltmeter.records import Floats, Ints

X = Literal["step", "root_kl", "tokens"]
MEASURES = (
    ("reward.mean", "reward (proxy)"),
    ("gold", "gold"),
    ("policy.kl.k3", "KL to the reference (nats a completion)"),
    ("policy.entropy", "entropy (nats a token)"),
    ("length.mean", "length (tokens)"),
)
UNITS = {"step": "step", "root_kl": "root KL", "tokens": "tokens"}
STRETCHES = 60  # of a difference, at most
IN_STRETCH = 4  # steps of each run in one, at least
LABELS = 30  # of gold in a stretch, about
LASTING = 5  # stretches without 0 in the interval, from which on two runs differ
PROMPTS = 8
BACK_STEPS = 16  # looked through for prompts that all runs have
READ_COLUMNS = ("group", "prompt", "completion", "reward", "gold")
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Path:
    """One reading of one run over the chosen axis, in step order."""

    steps: Ints
    x: Floats
    y: Floats
    error: Floats
    labels: Floats | None  # behind each value, of gold
    whole: bool  # places on the axis are whole numbers


def compare(books: Sequence[Book], x: X = "step", name: str | None = None) -> dict[str, Any]:
    """The runs over one axis; `name` is a further reading to compare. Raises `KeyError` if no run has it."""
    if x not in UNITS:
        raise ValueError(f"x is {', '.join(UNITS)}; not {x!r}")
    if name is not None and not any(name in book.columns.names() for book in books):
        raise KeyError(name)
    wanted = [*([(name, name)] if name is not None and name not in dict(MEASURES) else []), *MEASURES]
    measures = [_measure(books, one, label, x) for one, label in wanted]
    measures = [measure for measure in measures if any(run["x"] for run in measure["runs"])]
    config, same = _config(books)
    return {
        "runs": [
            {
                "run": book.id,
                "name": book.name,
                "state": book.verdict.state,
                "sentence": book.verdict.sentence,
                "step": book.story.last_step,
            }
            for book in books
        ],
        "x": x,
        "measures": measures,
        "diverged": _diverged(measures, x, [book.name for book in books]),
        "config": config,
        "same": same,
        "prompts": _prompts(books),
    }


def _measure(books: Sequence[Book], name: str, label: str, x: X) -> dict[str, Any]:
    paths = [_path(book, name, x) for book in books]
    ways = [(run, difference(paths[0], other)) for run, other in enumerate(paths[1:], 1)]
    known = [{**way, "run": run} for run, way in ways if way is not None]
    # The page draws one difference: the run that parts from the first one first, else the second run.
    parted = [way for way in known if way["first"] is not None]
    shown = min(parted, key=lambda way: way["first"]) if parted else next(iter(known), None)
    return {"name": name, "label": label, "runs": [_told(path) for path in paths], "difference": shown}


def _path(book: Book, name: str, x: X) -> Path:
    """A reading of a run where it has a value and a place on the axis."""
    with book.lock:
        source = gold_name(book) if name == "gold" else name
        line = book.columns.line(source)
        place = _axis(book, line.steps, x)
    error = errors(line) if name == "gold" else line.stderr
    known = np.isfinite(place) & np.isfinite(line.values)
    labels = line.n[known].astype(np.float64) if name == "gold" else None
    return Path(line.steps[known], place[known], line.values[known], error[known], labels, x != "root_kl")


def _axis(book: Book, steps: Ints, x: X) -> Floats:
    """Where each step lies on the axis; NaN where that is not known."""
    if x == "step":
        return steps.astype(np.float64)
    if x == "root_kl":
        root = root_kl(book)
        return at(root.steps, root.values, steps)
    spent = tokens(book)
    return at(spent.steps, spent.values, steps)


def tokens(book: Book) -> Readings:
    """Tokens that were generated up to each step: mean length times completions, summed."""
    length = book.columns.line("length.mean")
    rows = {done.step: done.rows for done in measured(book)}
    many = np.array([rows.get(step, 0) for step in length.steps.tolist()], np.float64)
    return Readings(length.steps, np.cumsum(np.nan_to_num(length.values) * many), length.n, length.stderr)


def _told(path: Path) -> dict[str, Any]:
    """As many points as a plot can show, in step order."""
    shown = sampled([(path.steps, path.y)], np.empty(0, np.int64), POINTS).steps
    kept = np.isin(path.steps, shown)
    y, error = path.y[kept], path.error[kept]
    low, high = plain(y - REACH * error, 4), plain(y + REACH * error, 4)
    return {"x": plain(path.x[kept]), "y": plain(y), "low": low, "high": high}


def difference(first: Path, other: Path) -> dict[str, Any] | None:
    """How far another run is above the first one, over stretches of the axis that both have been through, with a 95 %
    interval; and the place from which on five stretches in a row exclude 0."""
    if not len(first.x) or not len(other.x):
        return None
    low, high = max(first.x.min(), other.x.min()), min(first.x.max(), other.x.max())
    inside = [(path.x >= low) & (path.x <= high) for path in (first, other)]
    fewest = min(int(part.sum()) for part in inside)
    count = min(STRETCHES, fewest // IN_STRETCH)
    for path, part in zip((first, other), inside, strict=True):
        if path.labels is not None:  # few labels a step need longer stretches to say anything
            count = min(count, max(LASTING, int(path.labels[part].sum()) // LABELS))
    if count < 1 or not high > low:
        return None
    edges = np.linspace(low, high, count + 1)
    one, two = (_pooled(path, part, edges) for path, part in zip((first, other), inside, strict=True))
    known = np.isfinite(one[1]) & np.isfinite(two[1])
    if not known.any():
        return None
    x = (0.5 * (edges[:-1] + edges[1:]))[known]
    y = (two[0] - one[0])[known]
    reach = REACH * np.sqrt(one[1] ** 2 + two[1] ** 2)[known]
    return {
        "x": plain(x, 5),
        "y": plain(y, 4),
        "low": plain(y - reach, 4),
        "high": plain(y + reach, 4),
        "first": lasting(np.ceil(edges[:-1][known]) if first.whole else edges[:-1][known], np.abs(y) > reach),
    }


def _pooled(path: Path, part: Any, edges: Floats) -> tuple[Floats, Floats]:
    """Mean and standard error in each stretch: the larger of what readings say of themselves and of their scatter."""
    count = len(edges) - 1
    place = np.clip(np.searchsorted(edges, path.x[part], "right") - 1, 0, count - 1)
    y, error = path.y[part], np.nan_to_num(path.error[part])
    n = np.bincount(place, minlength=count).astype(np.float64)
    enough = n > 1
    mean = np.divide(np.bincount(place, y, count), n, out=np.full(count, np.nan), where=enough)
    squares = np.bincount(place, (y - mean[place]) ** 2, count)
    scatter = np.divide(squares, n * (n - 1), out=np.full(count, np.nan), where=enough)
    own = np.divide(np.bincount(place, error**2, count), n**2, out=np.full(count, np.nan), where=enough)
    return mean, np.sqrt(np.maximum(scatter, own))


def lasting(x: Floats, differs: Any) -> float | None:
    """The first place from which on so many in a row differ.

    >>> lasting(np.arange(8.0), np.array([1, 1, 0, 1, 1, 1, 1, 1], bool))
    3.0
    """
    row = 0
    for place, one in enumerate(differs):
        row = row + 1 if one else 0
        if row == LASTING:
            return number(float(x[place - LASTING + 1]), 5)
    return None


def _diverged(measures: Sequence[dict[str, Any]], x: X, names: Sequence[str]) -> str:
    """The measure in which a run parts from the first one first, and where; empty if none does."""
    parted = [measure for measure in measures if measure["difference"] and measure["difference"]["first"] is not None]
    if not parted:
        return ""
    first = min(parted, key=lambda measure: measure["difference"]["first"])
    place = first["difference"]["first"]
    where = f"{place:.3g}" if x == "root_kl" else f"{place:.0f}" if x == "step" else f"{place:,.0f}"
    whose = f" of {names[first['difference']['run']]}" if len(names) > 2 else ""
    return f"{first['label']}{whose}, {UNITS[x]} {where}"


def _config(books: Sequence[Book]) -> tuple[list[dict[str, Any]], int]:
    """Settings that are not the same in all runs, and how many are."""
    settings = [_settings(book) for book in books]
    names = list(dict.fromkeys(name for one in settings for name in one))
    rows = [{"name": name, "values": [one.get(name, UNKNOWN) for one in settings]} for name in names]
    differ = [row for row in rows if len(set(row["values"])) > 1]
    return differ, len(rows) - len(differ)


def _settings(book: Book) -> dict[str, str]:
    """What is known of how a run was set up. A closed list: nothing of the environment, no paths, no argv."""
    with book.lock:
        story, columns = book.story, book.columns
        found: dict[str, str] = {}
        facts = story.attempts.get(story.attempt, {}) if story.attempt is not None else {}
        found["ranks"] = str(facts.get("ranks", UNKNOWN))
        for name, label in (("group.size", "completions a prompt"), ("training.learning_rate", "learning rate, first")):
            line = columns.line(name)
            if len(line.steps):
                found[label] = f"{line.values[0]:.6g}"
        steps = measured(book)
        if steps:
            found["completions a step, first"] = str(steps[0].rows)
        done = next((event for event in reversed(book.events) if event.kind == "step_done"), None)
        if done is not None:
            found["reward functions"] = str(done.data.get("fingerprint") or UNKNOWN)
        if story.gold is not None:
            found |= {f"gold {key}": str(story.gold[key]) for key in ("name", "share") if key in story.gold}
        for part in story.detectors:
            found[f"detector {part.get('name', '')}"] = f"{part.get('tier', '')}, {part.get('alpha', '')}"
        found["compared with"] = story.baseline or UNKNOWN
        attempt = story.attempt
    if attempt is not None:
        found |= _offered(book, min(story.attempts, default=attempt))
    return found


def _offered(book: Book, attempt: int) -> dict[str, str]:
    """Knobs as the first attempt had them: what was changed later is the doing of the run, not its setting."""
    try:
        offer = read_knobs(book.run, attempt)
    except StoreError:
        return {}
    found = {"mode": offer.mode, "target KL": "none" if offer.target_kl is None else f"{offer.target_kl:g}"}
    for knob in offer.knobs.values():
        found[knob.name] = f"{knob.value:.6g}"
        found[f"{knob.name}, bounds"] = f"{knob.floor:.6g} to {knob.ceiling:.6g}"
    return found


def _prompts(books: Sequence[Book]) -> list[dict[str, Any]]:
    """Prompts that all runs answered of late, each with an answer of every run."""
    answers = [_newest(book) for book in books]
    common = [prompt for prompt in answers[0] if all(prompt in other for other in answers[1:])][:PROMPTS]
    return [
        {"prompt": cut(prompt), "said": [{"run": run, **said[prompt]} for run, said in enumerate(answers)]}
        for prompt in common
    ]


def _newest(book: Book) -> dict[str, dict[str, Any]]:
    """Prompts of the newest steps, each with the newest answer: the first of its group."""
    with book.lock:
        steps = measured(book)[-BACK_STEPS:]
    found: dict[str, dict[str, Any]] = {}
    for done in reversed(steps):
        make = partial(_answers, book, done)
        for prompt, answer in book.once("answers", done[:2], make, 2 * BACK_STEPS):
            found.setdefault(prompt, answer)
    return found


def _answers(book: Book, done: At) -> list[tuple[str, dict[str, Any]]]:
    batch = rollouts(book, done, READ_COLUMNS)
    if batch is None or batch.prompt is None or batch.completion is None:
        return []
    gold = gold_of(book, done, batch)
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    found = []
    for row in batch.starts[:-1].tolist():
        prompt, text = batch.prompt[row], batch.completion[row]
        if prompt is not None and text is not None:
            answer = {
                "step": done.step, "text": cut(text), "reward": number(float(reward[row])),
                "gold": number(float(gold[row])), "id": done.id(row),
            }  # fmt: skip
            found.append((prompt, answer))
    return found
