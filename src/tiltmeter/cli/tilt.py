"""`tiltmeter tilt`: the exact optimum of reward minus β KL, for responses that can be counted."""

from __future__ import annotations

import json as json_module
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltmeter.encode import terminal, visible
from tiltmeter.errors import AttachError
from tiltmeter.page.words import finite
from tiltmeter.rows import read_rows
from tiltmeter.stats.tilting import beta_for, kl, log_normaliser, tilted

Floats = NDArray[np.float64]

TOP = 12  # responses in the terminal
LISTED = 1000  # responses in --json
BAR = 24  # characters
PLAIN = 20.0  # log Z up to which Z is written out
EXAMPLE = ("0.5,0.3,0.2", "1,0.5,-1")
ROW = '{"response": "yes", "reference": 0.5, "reward": 1.0}'

Responses = Annotated[
    Path | None, typer.Argument(help="One row per response: response, reference or logprob, reward.", metavar="TABLE")
]
Reference = Annotated[str | None, typer.Option(help="Reference probabilities, in place of a table.", metavar="P,P,...")]
Reward = Annotated[str | None, typer.Option(help="Rewards, in place of a table.", metavar="R,R,...")]
Gold = Annotated[str | None, typer.Option(help="What each is worth, in place of a table.", metavar="G,G,...")]
Beta = Annotated[str | None, typer.Option(help="Weight of the KL, or several: 1,0.5,0.1.", metavar="BETA,...")]
Target = Annotated[float | None, typer.Option(help="Find the beta of this KL, in nats.", metavar="NATS", min=0.0)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@dataclass(frozen=True)
class Counted:
    """Responses that can be counted: what each is called, how likely the reference gives it, and what it is paid."""

    names: list[str]
    reference: Floats
    reward: Floats
    gold: Floats | None
    notes: list[str]


@dataclass(frozen=True)
class Tilted:
    """The optimum at one β, and what it comes to."""

    beta: float
    policy: Floats
    log_z: float
    kl: float
    reward: float
    entropy: float
    gold: float | None

    @classmethod
    def of(cls, counted: Counted, beta: float) -> Tilted:
        policy = tilted(counted.reference, counted.reward, beta)
        given = policy[policy > 0.0]
        return cls(
            beta,
            policy,
            log_normaliser(counted.reference, counted.reward, beta) if beta > 0.0 else math.nan,
            kl(policy, counted.reference),
            float(policy @ np.where(counted.reference > 0.0, counted.reward, 0.0)),
            max(0.0, -float((given * np.log(given)).sum())),
            None if counted.gold is None else float(policy @ counted.gold),
        )

    def unnormalised(self, counted: Counted, at: int) -> float:
        """π_ref exp(r / β); infinite where that overflows, and 0 for what the reference never gives."""
        if counted.reference[at] == 0.0:
            return 0.0
        exponent = float(counted.reward[at]) / self.beta if self.beta > 0.0 else math.inf
        return float(counted.reference[at]) * math.exp(exponent) if exponent < 700.0 else math.inf

    def as_json(self) -> dict[str, Any]:
        """β = inf and what does not fit a float are null."""
        z = math.exp(self.log_z) if self.log_z < 709.0 else math.nan
        told = {"beta": self.beta, "log_z": self.log_z, "z": z, "kl": self.kl, "reward": self.reward}
        told |= {"entropy": self.entropy, "gold": math.nan if self.gold is None else self.gold}
        return {name: finite(value) for name, value in told.items()}


def tilt(
    table: Responses = None,
    reference: Reference = None,
    reward: Reward = None,
    gold: Gold = None,
    beta: Beta = None,
    target_kl: Target = None,
    json: Json = False,
) -> None:
    """Show the policy that is best for reward less beta KL, exactly, for responses that can be counted.

    Example: tiltmeter tilt --reference 0.5,0.3,0.2 --reward 1,0.5,-1 --beta 0.5

    It is the reference times exp(reward / beta), normalised. Without any data it shows that example.
    """
    if target_kl is not None and beta is not None:
        raise typer.BadParameter("give --beta or --target-kl, not both")
    counted = _counted(table, reference, reward, gold)
    if target_kl is not None:
        try:
            betas = [beta_for(counted.reference, counted.reward, target_kl)]
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--target-kl") from error
    else:
        betas = _numbers(beta or "0.5", "--beta")
        if any(not each >= 0.0 for each in betas):
            raise typer.BadParameter("beta is 0 or more", param_hint="--beta")
    found = [Tilted.of(counted, each) for each in betas]
    if json:
        sys.stdout.write(json_module.dumps(_as_json(counted, found), allow_nan=False) + "\n")
        return
    console = Console()
    if len(found) > 1:
        console.print(_sweep(found))
    console.print(_bars(counted, found[-1]))
    if len(found) == 1:
        console.print(_facts(found[0]))
    for note in counted.notes:
        console.print(terminal(note, 300))


def _counted(table: Path | None, reference: str | None, reward: str | None, gold: str | None) -> Counted:
    if table is not None:
        if reference or reward or gold:
            raise typer.BadParameter("give a table or --reference and --reward, not both")
        return _read(table)
    notes = []
    if reward is None:
        if reference:
            raise typer.BadParameter("--reference needs --reward beside it")
        reference, reward = EXAMPLE
        notes.append("No data was given: this is the worked example of three responses.")
    paid = np.array(_numbers(reward, "--reward"))
    given = np.full(len(paid), 1.0 / len(paid)) if reference is None else np.array(_numbers(reference, "--reference"))
    worth = None if gold is None else np.array(_numbers(gold, "--gold"))
    if len(given) != len(paid) or (worth is not None and len(worth) != len(paid)):
        raise typer.BadParameter("--reference, --reward and --gold need one number for each response")
    try:
        return _checked([f"response {at + 1}" for at in range(len(paid))], given, paid, worth, notes)
    except AttachError as error:
        raise typer.BadParameter(str(error)) from error


def _read(path: Path) -> Counted:
    rows = read_rows(path, ROW)
    has = {name for row in rows for name in row}
    if "reward" not in has or not has & {"reference", "logprob"}:
        raise AttachError(f"{path} needs the columns reward and reference (or logprob); it has {sorted(has)}")
    notes: list[str] = []
    try:
        paid = np.array([float(row["reward"]) for row in rows])
        if "reference" in has:
            given = np.array([float(row["reference"]) for row in rows])
        else:
            logs = np.array([float(row["logprob"]) for row in rows])
            top = float(logs.max())
            given = np.exp(logs - top)
            # The chance of all that is listed may be below any float, as that of long texts is.
            notes = _scaled(math.log(float(given.sum())) + top)
            given = given / given.sum()
            if lost := int((np.isfinite(logs) & (given == 0.0)).sum()):
                notes.append(
                    f"{lost} responses are less likely than any number here can be: they count as never given."
                )
        worth = np.array([float(row["gold"]) for row in rows]) if "gold" in has else None
    except (KeyError, TypeError, ValueError) as error:
        raise AttachError(f"{path}: every row needs its numbers, as in {ROW} ({error})") from error
    names = [str(row.get("response", f"response {at + 1}")) for at, row in enumerate(rows)]
    return _checked(names, given, paid, worth, notes)


def _checked(names: list[str], given: Floats, paid: Floats, worth: Floats | None, notes: list[str]) -> Counted:
    """Probabilities that sum to 1; of a part of all responses they are made to, and it is said."""
    if not (np.isfinite(given).all() and np.isfinite(paid).all() and (worth is None or np.isfinite(worth).all())):
        raise AttachError("every response needs a finite reference probability, reward and, if any, gold")
    total = float(given.sum())
    if (given < 0.0).any() or total <= 0.0:
        raise AttachError("reference probabilities are 0 or more, and not all of them 0")
    return Counted(names, given / total, paid, worth, [*notes, *_scaled(math.log(total))])


def _scaled(log_total: float) -> list[str]:
    """What to say of chances that do not add up to 1."""
    if abs(log_total) <= 1e-6:
        return []
    total = f"{math.exp(log_total):.6g}" if abs(log_total) < 20.0 else f"exp({log_total:.1f})"
    return [f"The reference's chances add up to {total}: they are scaled to 1."]


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"numbers with commas between them, not {visible(text)!r}", param_hint=option
        ) from error


def _small(chance: float) -> str:
    return f"{chance:.4f}" if chance == 0.0 or chance >= 5e-4 else f"{chance:.1e}"


def _ranked(counted: Counted, found: Tilted, most: int) -> list[int]:
    """The likeliest responses, of either policy, in the table's order where all are shown."""
    if len(found.policy) <= most:
        return list(range(len(found.policy)))
    return [int(at) for at in np.argsort(-np.maximum(found.policy, counted.reference), kind="stable")[:most]]


def _bars(counted: Counted, found: Tilted) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    small = found.log_z < PLAIN
    worth = ["gold"] if counted.gold is not None else []
    heads = ("response", "reward", *worth, "reference", *(["× exp(r/β)"] if small else []), "policy", "")
    for name in heads:
        table.add_column(name, justify="left" if name in ("response", "") else "right", no_wrap=True)
    shown = _ranked(counted, found, TOP)
    full = BAR / max(float(np.maximum(counted.reference, found.policy)[shown].max()), 1e-9)
    for at in shown:
        before, after = float(counted.reference[at]), float(found.policy[at])
        more, style = ("█", "green") if after > before else ("░", "red")
        bar = Text("█" * round(full * min(before, after)), style="dim")
        bar.append(more * (round(full * max(before, after)) - len(bar)), style)
        worth = [] if counted.gold is None else [f"{counted.gold[at]:.4g}"]
        name = counted.names[at]
        told = terminal(name if len(name) <= 30 else f"{name[:29]}…")
        product = [f"{found.unnormalised(counted, at):.4f}"] if small else []
        table.add_row(told, f"{counted.reward[at]:.4g}", *worth, _small(before), *product, _small(after), bar)
    if len(shown) < len(counted.names):
        rest = 1.0 - float(found.policy[shown].sum())
        table.add_row(
            Text(f"… {len(counted.names) - len(shown)} more, {max(rest, 0.0):.2%} of the policy", style="dim")
        )
    return table


def _facts(found: Tilted) -> Text:
    z = f"Z {math.exp(found.log_z):.4f}, " if found.log_z < PLAIN else ""
    log_z = "" if math.isnan(found.log_z) else f"log Z {found.log_z:.4f}, "
    told = f"beta {found.beta:.6g}: {z}{log_z}KL {found.kl:.4f} nats, "
    told += f"expected reward {found.reward:.4f}, entropy {found.entropy:.4f} nats"
    return Text(told + ("" if found.gold is None else f", gold {found.gold:.4f}"), style="bold")


def _sweep(found: list[Tilted]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("beta", "log Z", "KL", "expected reward", "entropy", *(["gold"] if found[0].gold is not None else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        worth = [] if each.gold is None else [f"{each.gold:.4f}"]
        figures = (each.log_z, each.kl, each.reward, each.entropy)
        table.add_row(f"{each.beta:g}", *("–" if math.isnan(value) else f"{value:.4f}" for value in figures), *worth)
    return table


def _as_json(counted: Counted, found: list[Tilted]) -> dict[str, Any]:
    rows = []
    for at in _ranked(counted, found[-1], LISTED):
        row: dict[str, Any] = {"response": counted.names[at], "reference": float(counted.reference[at])}
        row |= {"reward": float(counted.reward[at]), "policy": [float(each.policy[at]) for each in found]}
        row["unnormalised"] = [finite(each.unnormalised(counted, at)) for each in found]
        rows.append(row if counted.gold is None else row | {"gold": float(counted.gold[at])})
    points = [each.as_json() for each in found]
    return {"responses": len(counted.names), "points": points, "rows": rows, "notes": counted.notes}
