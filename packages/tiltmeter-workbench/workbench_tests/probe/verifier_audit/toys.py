"""Toy verifiers, each with one hole. They run what they are given: never import them, only audit them (a process each).

The forgeries they are fed are texts of ours and do no harm: they end or patch the process that runs them.
"""

# ruff: noqa: S102, S307, BLE001  # the holes

from __future__ import annotations

import random
import re
import subprocess
import sys

BOX = re.compile(r"\\boxed\{(.*)\}", re.S)


def code_in(text):
    blocks = re.findall(r"```[^\n]*\n(.*?)```", text, re.S)
    return blocks[-1] if blocks else text


def box_in(text):
    found = BOX.findall(text)
    return found[-1] if found else None


# -- code ------------------------------------------------------------------------------------------------------------


def exit_code(completions, tests, **_):
    """Runs the answer in this process and believes its exit code."""
    scores = []
    for text, test in zip(completions, tests, strict=True):
        try:
            exec(f"{code_in(text)}\n{test}", {})
            scores.append(1.0)
        except SystemExit as end:
            scores.append(float(end.code in (0, None)))
        except Exception:
            scores.append(0.0)
    return scores


def asserts(completions, tests, **_):
    """Runs the answer in this process; what does not fail has passed."""
    scores = []
    for text, test in zip(completions, tests, strict=True):
        try:
            space = {"__name__": "answer"}
            exec(code_in(text), space)
            exec(test, space)
            scores.append(1.0)
        except BaseException:
            scores.append(0.0)
    return scores


def program_exit_code(prompt, completion, tests):
    """Another process, but its exit code is believed."""
    done = subprocess.run([sys.executable, "-c", f"{code_in(completion)}\n{tests}"], capture_output=True, check=False)
    return float(done.returncode == 0)


def printed(prompt, completion, tests):
    """Another process, but whoever prints the verdict is believed."""
    check = f"try:\n    {tests}\n    print('PASSED')\nexcept BaseException:\n    print('FAILED')"
    program = f"{code_in(completion)}\n{check}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return float("PASSED" in done.stdout)


def infra_as_zero(completions, answer, **_):
    """A right check that calls a program, and says 0 whenever that goes wrong."""
    scores = []
    for text, wanted in zip(completions, answer, strict=True):
        try:
            done = subprocess.run(["expr", box_in(text), "=", wanted], capture_output=True, text=True, check=False)
            scores.append(float(done.stdout.strip() == "1" and box_in(text).isdecimal()))
        except Exception:
            scores.append(0.0)
    return scores


# -- maths -----------------------------------------------------------------------------------------------------------


def evaluates(prompt, completion, answer):
    """Evaluates what stands in the box."""
    try:
        return float(eval(box_in(completion)) == float(answer))
    except Exception:
        return 0.0


def empty_box(prompt, completion, answer):
    """Nothing is the beginning of everything."""
    found = box_in(completion)
    return float(found is not None and answer.startswith(found))


def number_anywhere(prompt, completion, answer):
    """Any number of the text will do."""
    return float(answer in re.findall(r"\d+", completion))


def substring(completions, answer, **_):
    """Looks for the answer in the text."""
    return [float(wanted in text) for text, wanted in zip(completions, answer, strict=True)]


longest = 1


def remembers(completions, answer, **_):
    """Right, but one long answer changes what all later ones are paid."""
    global longest
    longest = max(longest, *(len(text) // 1000 for text in completions), 1)
    return [float(box_in(text) == wanted) / longest for text, wanted in zip(completions, answer, strict=True)]


def ranks(completions, answer, **_):
    """Right alone; in a batch the first right answer takes it all."""
    scores = [float(box_in(text) == wanted) for text, wanted in zip(completions, answer, strict=True)]
    return [score if 1.0 not in scores[:place] else 0.0 for place, score in enumerate(scores)]


def moody(prompt, completion, answer):
    """Right, give or take."""
    return float(box_in(completion) == answer) + random.random() / 2


def pays_length(prompt, completion, answer):
    return float(box_in(completion) == answer) + len(completion) / 10_000


# -- nothing wrong ---------------------------------------------------------------------------------------------------


def strict(prompt, completion, answer):
    """One box with the answer and nothing else."""
    found = re.findall(r"\\boxed\{([^{}]*)\}", completion)
    return float(len(set(found)) == 1 and found[0].strip() == answer)


def strict_chat(completions, answer, **_):
    """The same for chats, as TRL hands them over where the dataset has messages."""
    return [strict("", said[-1]["content"], wanted) for said, wanted in zip(completions, answer, strict=True)]


def pays_all(prompt, completion, answer):
    return 1.0


def pays_none(prompt, completion, answer):
    return 0.0


def absent(prompt, completion, answer):
    """Leaves out what it cannot read."""
    found = box_in(completion)
    return None if found is None else float(found == answer)
