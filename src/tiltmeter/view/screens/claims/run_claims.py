"""Everything that was done in a run: acts, behaviours and what the witness says, in one form."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from tiltmeter.rundir.run_path import exists
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.behaviours import BehaviourState, shown_behaviours
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.view.payloads.claims import Claim, Claims
from tiltmeter.view.screens.claims.act_claims import act_claims
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.screens.wording import format_number, truncate

NOT_CALIBRATED = "not calibrated"
FEATURES, QUOTE = 120, 120  # characters


def run_claims(run: RunDirectory, run_facts: RunFacts) -> Claims:
    """What was done, read from the run."""
    return _join(_own_claims(run, run_facts), witness_claims(run, run_facts.attempt))


def reader_claims(reader: RunReader) -> Claims:
    """The same for the page: acts are found once for each step that was measured."""
    own = reader.cache_until_event("claims", lambda: _own_claims(reader.run, reader.run_facts))
    return _join(own, witness_claims(reader.run, reader.run_facts.attempt))


def witness_claims(run: RunDirectory, attempt: int | None) -> Claims:
    """What a witness said of an attempt, where the package that asks one is installed (group `tiltmeter.claims`)."""
    if exists(run.path / "witness"):
        for entry in entry_points(group="tiltmeter.claims"):
            claims: Claims = entry.load()(run, attempt)
            return claims
    return Claims(claims=[], witness="", remarks=[])


def _own_claims(run: RunDirectory, state: RunFacts) -> list[Claim]:
    return [*act_claims(run, state), *behaviour_claims(state.behaviours, state.attempt or 0, state.last_step)]


def _join(own: list[Claim], of_witness: Claims) -> Claims:
    return Claims(claims=[*own, *of_witness.claims], witness=of_witness.witness, remarks=of_witness.remarks)


def behaviour_claims(behaviours: Mapping[int, BehaviourState], attempt: int, last_step: int) -> list[Claim]:
    """The behaviours of the newest steps; those that are paid more and worth less before all."""
    claims = []
    for number, state in shown_behaviours(behaviours, last_step):
        one = state.newest
        assert one is not None
        paid = "" if one.paid_with is None or one.paid_without is None else (
            f"paid {format_number(one.paid_with)} against {format_number(one.paid_without)} of others"
        )  # fmt: skip
        golds = state.gold_means
        if golds is not None:
            paid += f"{', ' if paid else ''}gold {golds[0]:.2g} against {golds[1]:.2g}"
        claims.append(
            Claim(
                source="behaviour",
                says=f"{'bad behaviour' if state.is_worse else 'behaviour'} {number}",
                own_words=truncate(", ".join(one.features[:3]), FEATURES),
                many=f"{100 * one.share:.0f} % of completions at step {state.last}, {100 * one.before:.0f} % at the "
                f"start, since step {one.first}",
                paid=paid,
                id=rollout_id(attempt, state.last, one.rows[0]) if one.rows else "",
                step=state.last,
                turn=None,
                place=f"step {state.last}, row {one.rows[0]}" if one.rows else f"step {state.last}",
                quote=truncate(" ".join(one.excerpt.split()), QUOTE),
                accuracy="",
            )
        )
    return claims


def claim_lines(claims: Claims) -> list[str]:
    """The same as lines. Models wrote the quotes: escape them."""
    of_witness = [one for one in claims.claims if one.source == "witness"]
    lines = [claim_line(one) for one in claims.claims if one.source != "witness"]
    if claims.witness:
        lines += [claims.witness, *claims.remarks[:1], *(f"  {claim_line(one)}" for one in of_witness)]
        lines += claims.remarks[1:]
    return lines


def claim_line(claim: Claim) -> str:
    """A claim in one line, with how far it can be believed at its end."""
    name = f" ({claim.own_words})" if claim.own_words else ""
    paid = f", {claim.paid}" if claim.paid else ""
    quote = f'; for example {claim.place}: "{claim.quote}"' if claim.quote else ""
    says = f"{claim.says[:1].upper()}{claim.says[1:]}" if claim.source != "witness" else claim.says
    return f"{says}{name}: {claim.many}{paid}{quote}. {claim.accuracy or NOT_CALIBRATED}."
