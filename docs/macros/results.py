"""Figures and tables from `benchmarks/results/*.json`."""

from __future__ import annotations

import re
from pathlib import Path

from tiltmeter.safety.safe_text import log_line, markdown

from .registry import ResultFiles, log, macro
from .tables import (
    UNREADABLE,
    Record,
    cell,
    columns,
    is_records,
    literal,
    number,
    origin,
    records,
    table,
    walked,
    whole,
)  # fmt: skip

#: Results that have pages of their own.
ELSEWHERE = {
    *("phrases", "real_logs", "required_nulls", "bound", "variants", "warnings", "entropy_fall", "tails", "controls"),
    *("tiny_watched", "real_model", "dashboard", "hardening", "audit", "probe", "probe_samples"),
    *("sandbox", "audit_scale", "real_audits", "before", "defences", "constitution", "soft"),
    *("witness", "failures", "soak_parts", "server_load", "plural", "repay", "oversight", "step_credit"),
    *("answer_coverage", "rounds"),
    *("trail", "trail_real", "journal_scale", "sampling_sweep", "rounds_real", "oversight_real"),
    *("compare", "pipeline", "tiny_suite", "tiny_suite_2", "diagnosis", "power", "power_uneven", "first_minutes"),
}


@macro
def figure(read: ResultFiles, name: str, key: str) -> str:
    """One figure by its name, those inside others after a dot; or the table of records that it is."""
    value = dict(walked(read(name)))[key]
    return records(value) if is_records(value) else cell(value)


@macro
def rows(read: ResultFiles, name: str, key: str, heads: str, cells: str) -> str:
    """A table of the page's own columns, see `tables.columns`."""
    return columns(heads, cells, read(name)[key])


@macro
def results(read: ResultFiles, name: str) -> str:
    """All that a file holds."""
    try:
        return whole(read(name))
    except (ValueError, AttributeError):
        log.warning("%s.json could not be read", name)
        return UNREADABLE


@macro
def other_results(read: ResultFiles) -> str:
    """All files that neither the page of figures nor a page of its own shows."""
    page = (Path(__file__).parents[1] / "figures.md").read_text()
    shown = {*re.findall(r'<!-- results\("(\w+)"\) -->', page), *ELSEWHERE}
    return "\n\n".join(f"### {name}\n\n{results(read, name)}" for name in read.names() if name not in shown) or "None."


# -- a real model ------------------------------------------------------------------------------------------------------


@macro
def real_model_summary(read: ResultFiles) -> str:
    run = read("real_model")
    alarm = "no alarm" if run["alarm_step"] is None else f"an alarm at step {run['alarm_step']}"
    counts = f"{run['steps']} steps, {run['rollouts']:,} rollouts, {run['labels']:,} gold labels: {alarm}."
    made = f"Made by `{run['command']}` on {literal(run['cpu'])}, revision `{run['revision']}`."
    return f"{counts} The verdict at the end is {run['state']}:\n\n{markdown(run['sentence'])}\n\n{made}"


@macro
def real_model_completions(read: ResultFiles) -> str:
    return "\n\n".join(
        f"**{literal(row['prompt'])}**\n\nBefore:\n\n{markdown(row['before'])}\n\nAfter:\n\n{markdown(row['after'])}"
        for row in read("real_model")["completions"]
    )


@macro
def real_model_readings(read: ResultFiles) -> str:
    readings = read("real_model")["readings"]
    return table(
        "reading | first five steps | last five steps",
        ((f"`{name}`", ends["first"], ends["last"]) for name, ends in readings.items()),
    )


@macro
def real_model_findings(read: ResultFiles) -> str:
    cells = "{step} | {failure:code} | {confidence} | {summary:literal}"
    findings = read("real_model")["findings"]
    return columns("step | finding | confidence | summary", cells, findings) if findings else "Nothing was found."


@macro
def real_model_screen(read: ResultFiles) -> str:
    """What `tiltmeter show --plain` printed, without the lines that the table of readings repeats."""
    lines = read("real_model")["screen"]
    return markdown("\n".join(line for line in lines if not re.fullmatch(r"\S+ +\S+ -> +\S+", line)))


# -- audits of real logs ----------------------------------------------------------------------------------------------


def audit_set(read: ResultFiles, name: str) -> Record:
    (one,) = (one for one in read("real_audits")["sets"] if one["name"] == name)
    return one  # type: ignore[no-any-return]


@macro
def audit_figure(read: ResultFiles, name: str, key: str) -> str:
    return number(audit_set(read, name)[key])


@macro
def audit_command(read: ResultFiles, name: str) -> str:
    return f"```sh\n{log_line(audit_set(read, name)['command'])}\n```"


@macro
def audit_table(read: ResultFiles, name: str) -> str:
    """Every run of a set, in the order of its file. Names of runs were written by others."""
    runs = audit_set(read, name)["table"]
    series = ["proxy", "truth", *(["entropy"] if any(run["entropy"] for run in runs) else [])]
    filled = []
    for run in runs:
        ends = ["–" if run[key] is None else " → ".join(map(number, run[key])) for key in series]
        since = "–" if run["alarm"] is None else str(run["alarm"]["onset"])
        filled.append((literal(run["run"]), str(run["steps"]), *ends, run["state"], since, literal(run["why"], 200)))
    return table(f"run | steps | {' | '.join(series)} | verdict | since | why", filled)


# -- large audits -----------------------------------------------------------------------------------------------------

ROLLOUTS, STEPS, PACKED = 10**9, 10**5, 10**9  # of the plan; bytes in a packed file
LENGTHS = (20, 400, 4_000)  # tokens a rollout
DAY_HOURS = 24.0
RANKS = 1_024  # that write a file each at every step, if each writes its own
ALLOCATED = 16  # bytes a token in memory: ids, two log-probabilities, text


@macro
def audit_sizes(read: ResultFiles) -> str:
    """What audits of several sizes cost, by engine."""
    sizes = [
        {"engine": engine, "rollouts": int(rollouts), "each": 1e6 * cost["cpu_s"] / int(rollouts), **cost}
        for engine, by_rollouts in read("audit_scale")["sizes"].items()
        for rollouts, cost in by_rollouts.items()
    ]
    cells = "{engine} | {rollouts} | {cpu_s:.1f} s | {each:.1f} µs | {worker_mb:.0f} MB | {driver_mb:.0f} MB"
    return columns("engine | rollouts | CPU, whole tree | CPU a rollout | largest worker | driver", cells, sizes)


@macro
def audit_plan(read: ResultFiles) -> str:
    """For 10^9 rollouts. Linear in tokens between the two lengths that were measured; beyond them that is a guess."""
    result = read("audit_scale")
    short, long = result["tokens_a_row"], result["long_tokens"]
    largest = str(max(map(int, result["sizes"]["processes"])))

    def at_lengths(at_short: float, at_long: float) -> list[float]:
        return [at_short + (at_long - at_short) / (long - short) * (length - short) for length in LENGTHS]

    cpu = at_lengths(1e6 * result["sizes"]["processes"][largest]["cpu_s"] / int(largest), result["long_us_a_row"])
    size = at_lengths(result["bytes"][largest] / int(largest), result["long_bytes_a_row"])
    hours, stored = [ROLLOUTS * one / 1e6 / 3600 for one in cpu], [ROLLOUTS * one for one in size]
    plan = table(
        f"10^9 rollouts in 10^5 steps | {' | '.join(f'{length:,} tokens' for length in LENGTHS)}",
        [
            ("CPU a rollout", *(f"{one:,.0f} µs" for one in cpu)),
            ("core-hours", *(f"{one:,.0f}" for one in hours)),
            ("workers for one day", *(max(1, round(one / DAY_HOURS)) for one in hours)),
            ("bytes", *(f"{one / 1e12:,.2f} TB" for one in stored)),
            ("files of 1 GB", *(max(1, round(one / PACKED)) for one in stored)),
            ("read, all workers", *(f"{one / DAY_HOURS / 3600 / 1e6:,.0f} MB/s" for one in stored)),
            ("a step in one worker", *(f"{ROLLOUTS / STEPS * one * ALLOCATED / 1e9:,.2f} GB" for one in LENGTHS)),
        ],
    )
    driver = STEPS * result["driver_ms_a_step"] / 1e3 / 3600
    journal = STEPS * result["journal_bytes_a_step"] / 1e6
    return (
        f"{plan}\n\n"
        f"The driver folds steps one by one: at most {driver:.2f} hours for all. The journal has {journal:,.0f} MB. "
        f"Unpacked there would be {STEPS:,} files with one writer, and {STEPS * RANKS:,} with {RANKS:,} ranks."
    )


# -- which forgeries harnesses pay for --------------------------------------------------------------------------------

#: The harnesses as a reader would name them.
HARNESSES = {
    "exit_code": "exit code",
    "assert_loop": "asserts in a loop",
    "json_values": "values by `json.dumps`",
    "values_out": "values out",
    "values_out_hidden": "values out, hidden inputs",
}


@macro
def forgeries_paid(read: ResultFiles) -> str:
    filled = [
        (row["forgery"].replace("|", "/"), *("**paid**" if row[name] == "paid" else row[name] for name in HARNESSES))
        for row in read("verifiers")["forgeries"]
    ]
    return table(f"forgery | {' | '.join(HARNESSES.values())}", filled)


# -- what defences are worth ------------------------------------------------------------------------------------------


@macro
def defended(read: ResultFiles, hack: str) -> str:
    """Each defence on the hack that it is made for (`own`), or on the `other`."""
    without = {row["hack"]: row["gold_end"] for row in read("hardening")["undefended"]}
    chosen = [row for row in read("hardening")["defended"] if row["made_for"] is (hack == "own")]
    heads = "defence | hack | gold without | gold with | seeds | gain, with 95 % interval | "
    cells = (
        "{defence:code} | {hack:code} | {without} | {gold_end} | {gold_ends:.2f} | "
        "{gain:+.2f} ({gain_low:+.2f} to {gain_high:+.2f}) | {verdict}"
    )
    return columns(heads, cells, (row | {"without": without[row["hack"]]} for row in chosen))


VERDICTS = {
    "helps": "gold at the end is shown to be higher",
    "harms": "gold at the end is shown to be lower",
    "not shown": "three seeds show neither",
}


@macro
def defences_in_words(read: ResultFiles) -> str:
    """Which helped where."""
    lines = []
    for own, where in ((True, "the hack it is made for"), (False, "the other hack")):
        chosen = [row for row in read("hardening")["defended"] if row["made_for"] is own]
        for verdict, words in VERDICTS.items():
            names = [f"`{row['defence']}`" for row in chosen if row["verdict"] == verdict]
            lines += [f"- On {where}, {words}: {', '.join(names)}."] if names else []
    return "\n".join(lines)


@macro
def weight_averages(read: ResultFiles) -> str:
    averages = read("hardening")["averaged"]
    heads = "raters | pairs | each member | their mean | mean of scores | mean of weights | standard error"
    cells = "{raters} | {pairs} | {members} | {members_mean} | {ensemble} | {warm} | {standard_error}"

    def than(row: Record, other: str) -> str:
        gain = 100 * (row["warm"] - row[other])
        return f"{abs(gain):.1f} points {'less' if gain < 0 else 'more'} often than"

    sentences = [
        f"For `{row['raters']}`, the mean of weights is right {than(row, 'ensemble')} the mean of scores, and "
        f"{than(row, 'members_mean')} a member."
        for row in averages
    ]
    return "\n\n".join([columns(heads, cells, averages), *sentences])


@macro
def students(read: ResultFiles) -> str:
    """Distilled rewards, checked against their teachers."""
    own = read("hardening")["students"]
    heads = "teacher's raters | answers | agreement | 95 % interval | Spearman | R² | liked beyond the teacher"
    cells = "{raters} | {name} | {agreement} | {low} to {high} | {spearman} | {r2} | {gap}"
    checks = [check | {"raters": student["raters"]} for student in own for check in student["checks"]]
    sentences = [
        f"The student of `{student['raters']}` has {student['size_ratio']:.0%} of its teacher's parameters and is "
        f"{number(student['speed_ratio'])} times as fast. It is "
        f"{'accepted' if student['usable'] else 'refused: ' + '; '.join(student['why'])}."
        for student in own
    ]
    return "\n\n".join([columns(heads, cells, checks), *sentences])


@macro
def linear_members(read: ResultFiles) -> str:
    return number([row["weight_of_a_reason"] for row in read("hardening")["linear_members"]])


@macro
def defences_origin(read: ResultFiles) -> str:
    return f"{origin(read('hardening'))}."


@macro
def guarded_gold(read: ResultFiles) -> str:
    """Gold of guarded and unguarded training, beside that of the model they began with."""
    base = {row["scenario"]: row["gold"] for row in read("defences")["start"]}
    cells = (
        "{scenario:code} | {kind} | {base} | {unguarded_gold:interval} | {guarded_gold:interval} | {gold_gain:interval}"
    )
    scenarios = [row | {"base": base[row["scenario"]]} for row in read("defences")["scenarios"]]
    return columns("scenario | kind | base | unguarded | guarded | gain", cells, scenarios)


# -- a real model from SFT to the comparison --------------------------------------------------------------------------


@macro
def pipeline_recipe(read: ResultFiles) -> str:
    return f"```yaml\n{read('pipeline')['recipe']}```"


@macro
def pipeline_stages(read: ResultFiles) -> str:
    """One column for each fact that any stage has."""
    stages = read("pipeline")["stages"]
    names = [name for name in stages[0] if any(row[name] is not None for row in stages)]
    return table(" | ".join(names), ([row[name] for name in names] for row in stages))


@macro
def pipeline_watched(read: ResultFiles) -> str:
    run = read("pipeline")["watched"]
    cells = "{reading:code} | {first step} | {last step}"
    readings = columns("reading | first step | last step", cells, run["readings"])
    verdict = f"The verdict on the watched run is {run['state']}: {literal(run['sentence'])}"
    return f"{readings}\n\n{run['rollouts']:,} rollouts. {verdict}"


@macro
def pipeline_verdict(read: ResultFiles) -> str:
    return f"**{read('pipeline')['verdict'].upper()}**\n\n{markdown(read('pipeline')['sentence'])}"


@macro
def pipeline_priced(read: ResultFiles) -> str:
    measures = [row for row in read("pipeline")["measures"] if row["state"] != "not asked"]
    filled = [
        (literal(row["title"]), row["base"], row["checkpoint"], difference(row), row["n"], emphasised(row["state"]))
        for row in measures
    ]
    return table("measure | base | checkpoint | difference | n | state", filled)


def emphasised(state: str) -> str:
    return f"**{state}**" if state in ("worse", "better") else state


def difference(row: Record) -> str:
    if row["difference"] is None:
        return "–"
    ends = "" if row["low"] is None else f" ({row['low']:+.3g} to {row['high']:+.3g})"
    return f"{row['difference']:+.3g}{ends}"


@macro
def pipeline_not_asked(read: ResultFiles) -> str:
    return "\n".join(f"- {literal(line)}" for line in read("pipeline")["not_asked"]) or "Everything was asked."


@macro
def pipeline_examples(read: ResultFiles) -> str:
    examples = [
        f"**{literal(row['measure'])}**: {literal(row['prompt'])}\n\nBase:\n\n{markdown(row['base'])}\n\n"
        f"Checkpoint:\n\n{markdown(row['checkpoint'])}"
        for row in read("pipeline")["examples"]
    ]
    return "\n\n".join(examples) or "None."


@macro
def pipeline_origin(read: ResultFiles) -> str:
    result = read("pipeline")
    seconds = sum(row["seconds"] for row in result["stages"]) + result["compare_seconds"]
    comparison = f"{number(result['compare_seconds'])} of them for the comparison"
    return f"{origin(result)}: {number(seconds)} seconds in all, {comparison}."
