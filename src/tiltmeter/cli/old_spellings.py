"""Spellings of earlier versions: each works as before, with one line on standard error that gives the new one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tiltmeter.cli.verb_table import VERBS

#: Verbs that stood on top and are now under a noun.
OLD_VERBS = {
    spelling.partition(" ")[2]: spelling
    for spelling in VERBS
    if spelling.partition(" ")[0] in ("run", "reward", "data", "model")
}

#: Options that one verb spelled unlike the others, by that verb.
OLD_OPTIONS = {
    "probe": {"--limit": "--most"},
    "data preferences": {"--limit": "--most"},
    "data constitution": {"--limit": "--tokens", "--samples": "--answers"},
    "model compare": {"--limit": "--tokens", "--samples": "--answers", "--tasks": "--task"},
    "model plan": {
        "--pairs": "--pair-count",
        "--judge": "--has-judge",
        "--base": "--untuned",
        "--reference": "--reference-model",
        "--no-reference": "--no-reference-model",
        "--write": "--out",
    },
    "reward tilt": {"--reference": "--references", "--reward": "--rewards", "--gold": "--golds"},
    "model train": {"--output": "--out"},
    "lab run": {"--workers": "--jobs"},
}

#: Verbs whose `--html` and `--md` were flags beside `--out FILE`.
FLAG_VERBS = ("audit", "run report", "run diff")

Notices = dict[str, str]  # the new spelling, by the old


def modernise(words: Sequence[str]) -> list[str]:
    """The words of a command line in today's spelling; says on standard error what is spelled otherwise now.

    >>> modernise(["show", "runs/tonight"])
    ['show', 'runs/tonight']
    """
    notices: Notices = {}
    new = _new_verb(list(words), notices)
    verb = next((" ".join(new[:n]) for n in (2, 1) if " ".join(new[:n]) in VERBS), "")
    head = len(verb.split())
    arguments = [_new_option(word, OLD_OPTIONS.get(verb, {}), notices) for word in new[head:]]
    if verb in FLAG_VERBS:
        arguments = _with_files(arguments, notices)
    for old, now in notices.items():
        sys.stderr.write(f"tiltmeter: `{old}` is spelled `{now}` now; the old spelling still works\n")
    return [*new[:head], *arguments]


def _new_verb(words: list[str], notices: Notices) -> list[str]:
    if not words or words[0] not in OLD_VERBS:
        return words
    if words[:2] == ["sandbox", "check"]:
        notices["tiltmeter sandbox check"] = "tiltmeter reward sandbox"
        return ["reward", "sandbox", *words[2:]]
    if words[0] == "plan":
        for at, word in enumerate(words):
            name, _, value = word.partition("=")
            if name == "--lint":
                notices["tiltmeter plan --lint"] = "tiltmeter lint"
                config = [value] if value else words[at + 1 : at + 2]
                return ["lint", *config, *words[1:at], *words[at + 1 + (not value) :]]
    notices[f"tiltmeter {words[0]}"] = f"tiltmeter {OLD_VERBS[words[0]]}"
    return [*OLD_VERBS[words[0]].split(), *words[1:]]


def _new_option(word: str, spellings: dict[str, str], notices: Notices) -> str:
    name, equals, value = word.partition("=")
    if name not in spellings:
        return word
    notices[name] = spellings[name]
    return f"{spellings[name]}{equals}{value}"


def _with_files(arguments: list[str], notices: Notices) -> list[str]:
    """`--html` and `--md` with the file that follows them; where none does, the one of `--out`, or the usual place."""
    flags = [at for at, word in enumerate(arguments) if word in ("--html", "--md") and _is_flag(arguments, at)]
    if not flags:
        return arguments
    out = arguments.index("--out") if "--out" in arguments[:-1] else None
    target = None if out is None else arguments[out + 1]
    result: list[str] = []
    for at, word in enumerate(arguments):
        if at in flags:
            place = target or ("-" if word == "--md" else ".")
            notices[f"{word} --out {target}" if target else word] = f"{word} {place}"
            result += [word, place]
        elif out is None or at not in (out, out + 1):
            result.append(word)
    return result


def _is_flag(arguments: list[str], at: int) -> bool:
    """Whether nothing that could be a file follows; a folder does, where it is the only path that is given."""
    value = arguments[at + 1] if at + 1 < len(arguments) else "--"
    if value.startswith("-") and value != "-":
        return True
    others = [*arguments[: max(0, at)], *arguments[at + 2 :]]
    return Path(value).is_dir() and not any(
        not word.startswith("-") and (":" in word or Path(word).exists()) for word in others
    )
