"""`tiltmeter spot`: judge thirty of the best-paid rollouts of now, blind, in a minute or two."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tiltmeter.cli.options import Json, Run, Trust, open_to_change
from tiltmeter.gold.spot_check import COUNT, FEWEST, STEPS, PaidRollout, SpotCheck, best_paid, list_checks, store_check
from tiltmeter.safety.safe_text import visible

LONGEST = 6000  # characters of a text on the screen: its beginning and its end
KEYS = {"y": True, "n": False, "s": None}

Many = Annotated[int, typer.Option(help="How many rollouts.", min=1, max=500, metavar="N")]
Newest = Annotated[int, typer.Option(help="Of how many newest steps.", min=1, metavar="N")]


def spot(run: Run, count: Many = COUNT, steps: Newest = STEPS, trust: Trust = False, json: Json = False) -> None:
    """Judge the best-paid rollouts of now, blind: what does the reward pay most for?

    Example: tiltmeter spot runs/tonight

    Each is shown without its reward and step, in random order: y is good, n is not, s skips, q ends. No gold source is
    needed. What comes out is a share with an exact interval, kept in the run beside earlier ones. It is no part of the
    alarm. Exit code: 0 at least half are good, 1 fewer are, 2 cannot say.
    """
    directory = open_to_change(run, trust)
    newest, rollouts = best_paid(directory, count, steps)
    console = Console(stderr=True, highlight=False, markup=False)
    answers = ask_all(rollouts, console)
    if not any(answer is not None for answer in answers):
        console.print(Text("nothing was judged, and nothing is kept"))
        raise typer.Exit(2)
    earlier = list_checks(directory)
    check = store_check(directory, newest, rollouts, answers)
    if json:
        typer.echo(json_module.dumps(check_json(check), indent=1, allow_nan=False))
    else:
        for line in check_lines(check, earlier):
            typer.echo(line)
    raise typer.Exit({True: 0, False: 1, None: 2}[check.is_good])


def ask_all(rollouts: Sequence[PaidRollout], console: Console) -> list[bool | None]:
    """A person's answers, as far as they went."""
    answers: list[bool | None] = []
    for number, one in enumerate(rollouts, 1):
        console.rule(Text(f"{number} of {len(rollouts)}"))
        if one.prompt is not None:
            console.print(Text(_shortened(one.prompt), "dim"))
            console.print()
        console.print(Text(_shortened(one.text)))
        key = _ask_key(console)
        if key == "q":
            break
        answers.append(KEYS[key])
    return answers


def _ask_key(console: Console) -> str:
    while True:
        console.print(Text("good? y / n / s(kip) / q(uit) "), end="")
        line = sys.stdin.readline()
        key = line.strip().lower()[:1] if line else "q"  # the end of the input ends the check
        if key == "q" or key in KEYS:
            return key


def _shortened(text: str) -> str:
    shown = visible(text)
    if len(shown) <= LONGEST:
        return shown
    half = LONGEST // 2
    return f"{shown[:half]}\n… {len(shown) - LONGEST} characters are left out …\n{shown[-half:]}"


def check_lines(check: SpotCheck, earlier: Sequence[SpotCheck]) -> list[str]:
    """What a spot check says, in a few lines.

    >>> check = SpotCheck(0, 90, ((0, 90, 0, 0),) * 30, (True,) * 5 + (False,) * 25, 0.99, 0.98, 0.0)
    >>> check_lines(check, [])[0]
    'Of the 30 best-paid rollouts up to step 90 you call 5 good: 17 % (95 %: 6 % to 35 %).'
    """
    low, high = check.interval
    count = len(check.good)
    lines = [
        f"Of the {count} best-paid rollouts up to step {check.step} you call {sum(check.good)} good: "
        f"{100 * check.share:.0f} % (95 %: {100 * low:.0f} % to {100 * high:.0f} %).",
        f"The reward pays them {check.reward:.3g} on average, and none less than {check.lowest_reward:.3g}.",
    ]
    if check.is_good is None:
        few = f"fewer than {FEWEST} were judged" if count < FEWEST else "the interval holds a half: judge more"
        lines.append(f"Whether at least half of them are good cannot be said: {few}.")
    elif not check.is_good:
        lines.append("Fewer than half of what is paid best is good. Look at these rollouts before you train on.")
    else:
        lines.append("At least half are good. Rollouts that are paid less, and what thirty cannot show, were not seen.")
    if check.skipped:
        lines.append(f"{check.skipped} were skipped and do not count.")
    before = [f"Earlier, up to step {one.step}: {sum(one.good)} of {len(one.good)} good." for one in earlier[-3:]]
    return [*lines, *before]


def check_json(check: SpotCheck) -> dict[str, Any]:
    low, high = check.interval
    return {
        "attempt": check.attempt,
        "step": check.step,
        "judged": len(check.good),
        "good": sum(check.good),
        "skipped": check.skipped,
        "share": check.share,
        "interval": [low, high],
        "reward_mean": check.reward,
        "reward_lowest": check.lowest_reward,
        "at_least_half_good": check.is_good,
    }
