"""`tiltmeter reward tilt`: the exact optimum of reward minus β KL, for a finite set of responses."""

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

from tiltmeter.cli.options import Json
from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import terminal, visible
from tiltmeter.view.screens.wording import finite_or_none
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.stats.tilting import beta_for, kl, log_normaliser, tilted

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
Reference = Annotated[
    str | None, typer.Option("--references", help="Reference probabilities, in place of a table.", metavar="P,P,...")
]
Reward = Annotated[str | None, typer.Option("--rewards", help="Rewards, in place of a table.", metavar="R,R,...")]
Gold = Annotated[
    str | None, typer.Option("--golds", help="Gold of each response, in place of a table.", metavar="G,G,...")
]
Beta = Annotated[str | None, typer.Option(help="Weight of the KL, or several: 1,0.5,0.1.", metavar="BETA,...")]
Target = Annotated[float | None, typer.Option(help="Find the beta of this KL, in nats.", metavar="NATS", min=0.0)]


@dataclass(frozen=True)
class ResponseTable:
    """A finite set of responses: name, reference probability, reward and, if known, gold of each."""

    names: list[str]
    reference: Floats
    reward: Floats
    gold: Floats | None
    notes: list[str]


@dataclass(frozen=True)
class TiltedPolicy:
    """The optimum at one β, and what it comes to."""

    beta: float
    policy: Floats
    log_z: float
    kl: float
    reward: float
    entropy: float
    gold: float | None

    @classmethod
    def of(cls, responses: ResponseTable, beta: float) -> TiltedPolicy:
        policy = tilted(responses.reference, responses.reward, beta)
        support = policy[policy > 0.0]
        return cls(
            beta,
            policy,
            log_normaliser(responses.reference, responses.reward, beta) if beta > 0.0 else math.nan,
            kl(policy, responses.reference),
            float(policy @ np.where(responses.reference > 0.0, responses.reward, 0.0)),
            max(0.0, -float((support * np.log(support)).sum())),
            None if responses.gold is None else float(policy @ responses.gold),
        )

    def unnormalised(self, responses: ResponseTable, at: int) -> float:
        """π_ref exp(r / β); infinite where that overflows, and 0 for what the reference never gives."""
        if responses.reference[at] == 0.0:
            return 0.0
        exponent = float(responses.reward[at]) / self.beta if self.beta > 0.0 else math.inf
        return float(responses.reference[at]) * math.exp(exponent) if exponent < 700.0 else math.inf

    def as_json(self) -> dict[str, Any]:
        """β = inf and what does not fit a float are null."""
        z = math.exp(self.log_z) if self.log_z < 709.0 else math.nan
        fields = {"beta": self.beta, "log_z": self.log_z, "z": z, "kl": self.kl, "reward": self.reward}
        fields |= {"entropy": self.entropy, "gold": math.nan if self.gold is None else self.gold}
        return {name: finite_or_none(value) for name, value in fields.items()}


def tilt(
    table: Responses = None,
    reference: Reference = None,
    reward: Reward = None,
    gold: Gold = None,
    beta: Beta = None,
    target_kl: Target = None,
    json: Json = False,
) -> None:
    """Show the exact optimal policy for reward minus beta KL, over a finite set of responses.

    Example: tiltmeter reward tilt --references 0.5,0.3,0.2 --rewards 1,0.5,-1 --beta 0.5

    It is the reference times exp(reward / beta), normalised. Without any data it shows that example.
    """
    if target_kl is not None and beta is not None:
        raise typer.BadParameter("give --beta or --target-kl, not both")
    responses = _read_responses(table, reference, reward, gold)
    if target_kl is not None:
        try:
            betas = [beta_for(responses.reference, responses.reward, target_kl)]
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--target-kl") from error
    else:
        betas = _numbers(beta or "0.5", "--beta")
        if any(not each >= 0.0 for each in betas):
            raise typer.BadParameter("beta is 0 or more", param_hint="--beta")
    policies = [TiltedPolicy.of(responses, each) for each in betas]
    if json:
        sys.stdout.write(json_module.dumps(_as_json(responses, policies), allow_nan=False) + "\n")
        return
    console = Console()
    if len(policies) > 1:
        console.print(_sweep(policies))
    console.print(_bars(responses, policies[-1]))
    if len(policies) == 1:
        console.print(_summary_line(policies[0]))
    for note in responses.notes:
        console.print(terminal(note, 300))


def _read_responses(table: Path | None, reference: str | None, reward: str | None, gold: str | None) -> ResponseTable:
    if table is not None:
        if reference or reward or gold:
            raise typer.BadParameter("give a table or --references and --rewards, not both")
        return _read_table(table)
    notes = []
    if reward is None:
        if reference:
            raise typer.BadParameter("--references needs --rewards beside it")
        reference, reward = EXAMPLE
        notes.append("No data was given: this is the worked example of three responses.")
    rewards = np.array(_numbers(reward, "--rewards"))
    probabilities = (
        np.full(len(rewards), 1.0 / len(rewards))
        if reference is None
        else np.array(_numbers(reference, "--references"))
    )
    golds = None if gold is None else np.array(_numbers(gold, "--golds"))
    if len(probabilities) != len(rewards) or (golds is not None and len(golds) != len(rewards)):
        raise typer.BadParameter("--references, --rewards and --golds need one number for each response")
    try:
        return _check_responses(
            [f"response {at + 1}" for at in range(len(rewards))], probabilities, rewards, golds, notes
        )
    except AttachError as error:
        raise typer.BadParameter(str(error)) from error


def _read_table(path: Path) -> ResponseTable:
    rows = read_rows(path, ROW)
    has = {name for row in rows for name in row}
    if "reward" not in has or not has & {"reference", "logprob"}:
        raise AttachError(f"{path} needs the columns reward and reference (or logprob); it has {sorted(has)}")
    notes: list[str] = []
    try:
        rewards = np.array([float(row["reward"]) for row in rows])
        if "reference" in has:
            probabilities = np.array([float(row["reference"]) for row in rows])
        else:
            logs = np.array([float(row["logprob"]) for row in rows])
            top = float(logs.max())
            probabilities = np.exp(logs - top)
            # The chance of all that is listed may be below any float, as that of long texts is.
            notes = _scaling_notes(math.log(float(probabilities.sum())) + top)
            probabilities = probabilities / probabilities.sum()
            if lost := int((np.isfinite(logs) & (probabilities == 0.0)).sum()):
                notes.append(
                    f"{lost} responses are less likely than any number here can be: they count as never given."
                )
        golds = np.array([float(row["gold"]) for row in rows]) if "gold" in has else None
    except (KeyError, TypeError, ValueError) as error:
        raise AttachError(f"{path}: every row needs its numbers, as in {ROW} ({error})") from error
    names = [str(row.get("response", f"response {at + 1}")) for at, row in enumerate(rows)]
    return _check_responses(names, probabilities, rewards, golds, notes)


def _check_responses(
    names: list[str], probabilities: Floats, rewards: Floats, golds: Floats | None, notes: list[str]
) -> ResponseTable:
    """Responses whose probabilities sum to 1; those that do not are scaled, with a note."""
    if not (
        np.isfinite(probabilities).all() and np.isfinite(rewards).all() and (golds is None or np.isfinite(golds).all())
    ):
        raise AttachError("every response needs a finite reference probability, reward and, if any, gold")
    total = float(probabilities.sum())
    if (probabilities < 0.0).any() or total <= 0.0:
        raise AttachError("reference probabilities are 0 or more, and not all of them 0")
    return ResponseTable(names, probabilities / total, rewards, golds, [*notes, *_scaling_notes(math.log(total))])


def _scaling_notes(log_total: float) -> list[str]:
    """A note where probabilities do not add up to 1."""
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


def _rank_responses(responses: ResponseTable, policy: TiltedPolicy, most: int) -> list[int]:
    """The likeliest responses, of either policy, in the table's order where all are shown."""
    if len(policy.policy) <= most:
        return list(range(len(policy.policy)))
    return [int(at) for at in np.argsort(-np.maximum(policy.policy, responses.reference), kind="stable")[:most]]


def _bars(responses: ResponseTable, policy: TiltedPolicy) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    small = policy.log_z < PLAIN
    worth = ["gold"] if responses.gold is not None else []
    heads = ("response", "reward", *worth, "reference", *(["× exp(r/β)"] if small else []), "policy", "")
    for name in heads:
        table.add_column(name, justify="left" if name in ("response", "") else "right", no_wrap=True)
    top = _rank_responses(responses, policy, TOP)
    full = BAR / max(float(np.maximum(responses.reference, policy.policy)[top].max()), 1e-9)
    for at in top:
        before, after = float(responses.reference[at]), float(policy.policy[at])
        more, style = ("█", "green") if after > before else ("░", "red")
        bar = Text("█" * round(full * min(before, after)), style="dim")
        bar.append(more * (round(full * max(before, after)) - len(bar)), style)
        worth = [] if responses.gold is None else [f"{responses.gold[at]:.4g}"]
        name = responses.names[at]
        label = terminal(name if len(name) <= 30 else f"{name[:29]}…")
        product = [f"{policy.unnormalised(responses, at):.4f}"] if small else []
        table.add_row(label, f"{responses.reward[at]:.4g}", *worth, _small(before), *product, _small(after), bar)
    if len(top) < len(responses.names):
        rest = 1.0 - float(policy.policy[top].sum())
        table.add_row(
            Text(f"… {len(responses.names) - len(top)} more, {max(rest, 0.0):.2%} of the policy", style="dim")
        )
    return table


def _summary_line(policy: TiltedPolicy) -> Text:
    z = f"Z {math.exp(policy.log_z):.4f}, " if policy.log_z < PLAIN else ""
    log_z = "" if math.isnan(policy.log_z) else f"log Z {policy.log_z:.4f}, "
    text = f"beta {policy.beta:.6g}: {z}{log_z}KL {policy.kl:.4f} nats, "
    text += f"expected reward {policy.reward:.4f}, entropy {policy.entropy:.4f} nats"
    return Text(text + ("" if policy.gold is None else f", gold {policy.gold:.4f}"), style="bold")


def _sweep(policies: list[TiltedPolicy]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (
        "beta",
        "log Z",
        "KL",
        "expected reward",
        "entropy",
        *(["gold"] if policies[0].gold is not None else []),
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for each in policies:
        worth = [] if each.gold is None else [f"{each.gold:.4f}"]
        figures = (each.log_z, each.kl, each.reward, each.entropy)
        table.add_row(f"{each.beta:g}", *("–" if math.isnan(value) else f"{value:.4f}" for value in figures), *worth)
    return table


def _as_json(responses: ResponseTable, policies: list[TiltedPolicy]) -> dict[str, Any]:
    rows = []
    for at in _rank_responses(responses, policies[-1], LISTED):
        row: dict[str, Any] = {"response": responses.names[at], "reference": float(responses.reference[at])}
        row |= {"reward": float(responses.reward[at]), "policy": [float(each.policy[at]) for each in policies]}
        row["unnormalised"] = [finite_or_none(each.unnormalised(responses, at)) for each in policies]
        rows.append(row if responses.gold is None else row | {"gold": float(responses.gold[at])})
    points = [each.as_json() for each in policies]
    return {"responses": len(responses.names), "points": points, "rows": rows, "notes": responses.notes}
