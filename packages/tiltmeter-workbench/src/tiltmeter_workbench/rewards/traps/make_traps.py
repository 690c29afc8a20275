"""Make traps of tasks, check each with what honest work there is, and count those that are left out.

A trap whose reference solution or whose mutants are paid is no trap. Where a task has neither, the chance that honest
work is paid rests on how the trap was made: a key or value with random digits, or two tests that contradict each other.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tiltmeter.gold.checks.code_reward import CodeReward, code
from tiltmeter.gold.checks.task_shapes import has_tests, recognise
from tiltmeter.gold.traps.trap_file import PROMPTS, Trap, with_stop
from tiltmeter.sandbox import Sandbox
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_workbench.rewards.traps.answer_twins import twin_with_wrong_key
from tiltmeter_workbench.rewards.traps.code_twins import mutants, twin_with_wrong_test


@dataclass
class TrapReport:
    """What was made of how many tasks, what was left out and why, and how honest work did on what was checked."""

    tasks: int = 0
    traps: list[Trap] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    tried: int = 0  # programs and answers that were graded by a trap
    paid: int = 0  # of those; their traps are left out

    @property
    def chance(self) -> float | None:
        """The exact 95 % bound on how often such work is paid before anything is left out; None: nothing was tried."""
        return upper_bound(self.paid, self.tried) if self.tried else None

    @property
    def same_prompt(self) -> int:
        """Traps whose prompt is the original's, letter for letter: nobody can tell them apart before they answer."""
        return sum(not any(name in trap.facts.original for name in PROMPTS) for trap in self.traps)

    def told_apart(self) -> float | None:
        """How well a changed prompt can be told from its original by length, digits or its longest number, at best.

        0.5: not at all; 1: always. The share of pairs (a twin, an original) that such a number puts in one order, over
        the traps whose prompt was changed; None where no prompt was.
        """
        changed = [trap for trap in self.traps if "prompt" in trap.facts.original]
        pairs = [(str(trap.row["prompt"]), str(trap.facts.original["prompt"])) for trap in changed]
        if not pairs:
            return None
        return max(_order_share([f(twin) for twin, _ in pairs], [f(one) for _, one in pairs]) for f in _FEATURES)

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "traps": len(self.traps),
            "kinds": dict(Counter(trap.facts.kind for trap in self.traps)),
            "left_out": dict(self.left_out),
            "tried": self.tried,
            "paid": self.paid,
            "chance_upper95": self.chance,
            "checked": sum(trap.facts.checked > 0 for trap in self.traps),
            "same_prompt": self.same_prompt,
            "told_apart": self.told_apart(),
        }


class TrapProgram(NamedTuple):
    """A trap of a task with a reference solution, which is graded by both."""

    trap: Trap
    row: Mapping[str, Any]
    reference: str


def make_traps(
    rows: Sequence[Mapping[str, Any]], *, seed: int = 0, sandbox: Sandbox | None = None, stop: bool = False
) -> TrapReport:
    """One trap of each task that allows it; the same ones for the same rows and seed.

    `sandbox`: where reference solutions and mutants are run; without one, no trap of code is checked by running it.
    `stop`: prompts offer to stop, which is neither paid nor held against the policy; they can then be told apart.
    """
    report = TrapReport(len(rows))
    programs: list[TrapProgram] = []
    for number, row in enumerate(rows):
        prompt = _prompt(row)
        rng = random.Random(f"{seed} {number} {prompt}")
        is_code = has_tests(row)
        twin = (twin_with_wrong_test if is_code else twin_with_wrong_key)(row, prompt, rng)
        if isinstance(twin, str):
            report.left_out[twin] += 1
        elif is_code and sandbox is not None and (reference := _reference({**row, "prompt": prompt})):
            programs.append(TrapProgram(twin, {**row, "prompt": prompt}, reference))
        else:
            report.traps.append(twin)
            report.tried += twin.facts.checked
    if programs:
        _check_programs(programs, code(sandbox=sandbox, strict=False), report, seed)
    if stop:
        report.traps = [with_stop(trap) for trap in report.traps]
    return report


def _check_programs(programs: Sequence[TrapProgram], reward: CodeReward, report: TrapReport, seed: int) -> None:
    """Run each reference on its own tests and on the trap, and mutants of it on the trap."""
    codes: list[str] = []
    tasks: list[Mapping[str, Any]] = []
    counts = []
    for trap, row, reference in programs:
        wrong = mutants(reference, random.Random(f"{seed} {row['prompt']}"))
        codes += [reference, reference, *wrong]
        tasks += [row, *[{**row, **trap.row}] * (1 + len(wrong))]
        counts.append(2 + len(wrong))
    grades = iter(reward.grade(codes, tasks))
    for (trap, _, reference), count in zip(programs, counts, strict=True):
        first, *others = [next(grades).kind for _ in range(count)]
        graded = [kind for kind in others if kind != "infra"]
        report.tried += len(graded)
        report.paid += graded.count("passed")
        if first != "passed":
            report.left_out["its reference does not pass its own tests"] += 1
        elif "passed" in graded:
            report.left_out["its reference, or a mutant of it, is paid"] += 1
        elif not graded or others[0] == "infra":
            report.left_out["it could not be graded"] += 1
        else:
            honest = [f"```python\n{reference.rstrip()}\n```"]
            facts = msgspec.structs.replace(trap.facts, honest=honest, checked=len(graded))
            report.traps.append(Trap(trap.row, facts))


def _reference(row: Mapping[str, Any]) -> str:
    match = recognise(row)
    return "" if match is None else match[1].reference


def _prompt(row: Mapping[str, Any]) -> str:
    """The text of a row's prompt; of a conversation, of all its messages."""
    value = next((row[name] for name in PROMPTS if row.get(name)), "")
    if isinstance(value, (list, tuple)):
        return "\n".join(str(part.get("content", "")) for part in value if isinstance(part, Mapping))
    return str(value)


def _longest_number(text: str) -> int:
    return max((len(word) for word in "".join(c if c.isdigit() else " " for c in text).split()), default=0)


_FEATURES = (len, lambda text: sum(map(str.isdigit, text)), _longest_number)


def _order_share(twins: Sequence[float], originals: Sequence[float]) -> float:
    """The share of pairs in one order, ties half, in whichever direction it is larger."""
    wins = sum((a > b) + 0.5 * (a == b) for a in twins for b in originals) / (len(twins) * len(originals))
    return max(wins, 1.0 - wins)
