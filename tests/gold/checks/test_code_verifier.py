"""The code verifier in a real sandbox: forgeries are not paid, honest code is, and a broken task is nobody's fault."""

from __future__ import annotations

import gzip
import importlib.util
import json
import multiprocessing
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pages import DOCS, render, render_page

from macros.registry import RESULTS
from macros.results import HARNESSES
from tiltmeter.gold.checks.code_reward import CodeReward
from tiltmeter.rewards import code, maths
from tiltmeter.sandbox import Limits, Sandbox, open_sandbox
from tiltmeter.sandbox.harness import Case, grade, grade_many
from tiltmeter.sandbox.hidden_inputs import hidden_cases, vary_examples
from tiltmeter.sandbox.recorded_tests import BrokenTask, grade_recorded, record
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.forgeries import CODE

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
has_data = pytest.mark.skipif(not DATA.exists(), reason="HumanEval and MBPP are not on this machine")

CASES = [Case(([3, 1, 2],), [1, 2, 3]), Case(([50, 40],), [40, 50])]
HONEST = "def order(items):\n    return sorted(items)\n"


@pytest.fixture(scope="module")
def pooled() -> Iterator[Sandbox]:
    with open_sandbox("pooled", limits=Limits(cpu_seconds=2.0, wall_seconds=6.0)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def toys() -> Any:
    """The harnesses that the benchmark compares."""
    spec = importlib.util.spec_from_file_location("toy_harnesses", BENCHMARKS / "toy_harnesses.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_forgery_is_paid_but_the_one_that_knows_the_answers(pooled: Sandbox, toys: Any) -> None:
    paid = toys.forgeries_paid_values_out(pooled)
    assert paid == {"known_inputs": ["hard-coded answers"], "hidden_inputs": []}


def test_common_harnesses_fall_to_most_forgeries_so_the_forgeries_work(pooled: Sandbox, toys: Any) -> None:
    rows = toys.table(pooled)
    counts = {name: sum(row[name] == "paid" for row in rows[2:]) for name in toys.HARNESSES}
    assert counts["exit_code"] >= 6 and counts["assert_loop"] >= 7 and counts["json_values"] >= 2
    assert all(rows[0][name] == "paid" and rows[1][name] == "not paid" for name in toys.HARNESSES)


def test_answers_known_by_heart_are_flagged_and_honest_ones_are_not(pooled: Sandbox) -> None:
    columns = {"cases": [{"args": list(case.args), "expected": case.expected} for case in CASES]}
    task = AuditTask("?", HONEST, "", columns, "code", "order", tuple(case.expected for case in CASES))
    forged = next(one for one in CODE if one.hard_coded).make(task)
    outcome = grade(pooled, forged, "order", CASES)
    assert outcome.kind == "passed" and outcome.hard_coded and outcome.literals == 2
    assert not grade(pooled, HONEST, "order", CASES).hard_coded


#: Attacks on this harness by somebody who has read it.
KNOWING = {
    "says values with the grader's own mark": """
import sys
main = sys.modules["__main__"]
for number in range(5):
    main.say("value", [number, ["l", 1, 2, 3]])
def order(items): return items
""",
    "says a verdict with the grader's own mark": """
import sys
sys.modules["__main__"].say("passed", True)
sys.modules["__main__"].say("held", None)
def order(items): return None
""",
    "replaces the encoder and the writer": """
import sys, json, os, builtins
main = sys.modules["__main__"]
main.encode = main.decode = lambda value: ["l", 1, 2, 3]
json.dumps = lambda *a, **k: "[]"
builtins.print = lambda *a, **k: None
os.write = lambda fd, data: len(data)
def order(items): return items
""",
    "rewrites the defaults of the grader's functions": """
import sys
main = sys.modules["__main__"]
main.say.__defaults__ = (main.JOB["mark"], lambda fd, data: len(data), lambda told: "[]")
def order(items): return items
""",
    "looks for what is expected in the job": """
import sys
def order(items):
    job = sys.modules["__main__"].JOB
    return job.get("expected") or job.get("cases") or list(job)
""",
    "a list that equals everything": """
class Any(list):
    def __eq__(self, other): return True
    def __iter__(self): return iter([1, 2, 3])
    __class__ = list
def order(items): return Any()
""",
    "a type with a hostile name": """
class Meta(type):
    @property
    def __name__(cls): raise SystemExit(0)
class Any(metaclass=Meta): pass
def order(items): return Any()
""",
    "closes the way out": "import os\nos.close(1)\ndef order(items): return items\n",
    "floods the way out": "import os\nfor _ in range(9999): os.write(1, b'x' * 4096)\ndef order(items): return items\n",
    "raises what is not an exception": "def order(items): raise KeyboardInterrupt\n",
    "recurses without end": "def order(items): return order(items)\n",
    "returns itself": "def order(items):\n    out = []\n    out.append(out)\n    return out\n",
    "returns a generator": "def order(items): yield from sorted(items)\n",
    "has no such function": "def sort(items): return sorted(items)\n",
    "is not Python": "Sure! Here is the code you asked for.",
    "is not even text": "def order(items): return '\\ud800\x00'\n\ud800",
    "is empty": "",
    "a tuple for a list": "def order(items): return tuple(sorted(items))\n",
}


@pytest.mark.parametrize("name", KNOWING)
def test_who_knows_the_harness_gains_nothing(pooled: Sandbox, name: str) -> None:
    outcome = grade(pooled, KNOWING[name], "order", CASES)
    assert outcome.kind in ("failed", "limit"), outcome


def test_honest_code_passes_whatever_it_prints_patches_or_reads(pooled: Sandbox) -> None:
    loud = "import sys\nprint('x' * 90000)\nsys.stdout.flush()\n" + HONEST + "print(input if 0 else sys.stdin.read())\n"
    own = HONEST.replace("return", "print('{\"passed\": false}')\n    return")
    patched = "import json\njson.dumps = None\n" + HONEST
    data = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\n" + HONEST
    outcomes = grade_many(pooled, [(text, "order", CASES) for text in (HONEST, loud, own, patched, data)])
    assert [outcome.kind for outcome in outcomes] == ["passed"] * 5, outcomes


def test_limits_are_told_apart_from_wrong_answers(pooled: Sandbox) -> None:
    loop, memory = "def order(items):\n    while True: pass\n", "def order(items): return [0] * 10**11\n"
    late, sleepy = HONEST + "import time\n", "import time\ndef order(items): time.sleep(60)\n"
    kinds = [grade(pooled, text, "order", CASES).kind for text in (loop, memory, sleepy, late)]
    assert kinds == ["limit", "limit", "timeout", "passed"]


def test_arguments_are_fresh_for_each_case(pooled: Sandbox) -> None:
    greedy = "def take(items):\n    out = list(items)\n    items.clear()\n    return out\n"
    same = [1, 2]
    assert grade(pooled, greedy, "take", [Case((same,), [1, 2]), Case((same,), [1, 2])]).kind == "passed"
    assert same == [1, 2]


CHECK = """
def check(candidate):
    import random
    for _ in range(5):
        items = [random.randrange(100) for _ in range(6)]
        out = candidate(items)
        assert len(out) == 6 and all(a <= b for a, b in zip(out, out[1:])), out
    try:
        candidate(None)
    except TypeError:
        return
    assert False, "nothing was raised"
"""


def test_tests_that_are_programs_are_run_where_the_code_never_was(pooled: Sandbox) -> None:
    task = record(pooled, CHECK, HONEST, "order")
    assert len(task.inputs) == 6
    as_tuple = "def order(items): return tuple(sorted(items))\n"  # other values, and the tests take them
    wrong = "def order(items): return items\n"
    lax = "def order(items): return sorted(items or [])\n"  # it ought to raise
    forged = [one.make(AuditTask("?", HONEST, "", {}, "code", "order")) for one in CODE if not one.hard_coded]
    outcomes = grade_recorded(pooled, [(text, task) for text in (HONEST, as_tuple, wrong, lax, *forged)])
    assert [outcome.kind for outcome in outcomes[:4]] == ["passed", "passed", "failed", "failed"]
    assert {outcome.kind for outcome in outcomes[4:]} == {"failed"}


def test_an_exception_cannot_end_the_tests_with_success(pooled: Sandbox) -> None:
    task = record(pooled, "for out in map(order, [[2, 1]]):\n    assert out == [1, 2]", HONEST, "order")
    raised = (
        "StopIteration",
        "StopAsyncIteration",
        "SystemExit(0)",
        "GeneratorExit",
        "KeyboardInterrupt",
        "ValueError",
    )
    jobs = [(f"def order(items): raise {one}\n", task) for one in raised]
    assert {outcome.kind for outcome in grade_recorded(pooled, jobs)} == {"failed"}


def test_a_task_that_cannot_be_graded_says_why(pooled: Sandbox) -> None:
    for tests, reference, why in (
        ("assert order([1]) == [2]", HONEST, "its reference fails its tests"),
        ("assert order(open) == 1", "def order(f): return 1", "asks with or is told"),
        ("assert order(1) is not None", "def order(f): return object()", "asks with or is told"),
        ("x = 1", HONEST, "0 times"),
        ("assert order([1]) == [1]", "def (", "fails its tests"),
    ):
        with pytest.raises(BrokenTask, match=why):
            record(pooled, tests, reference, "order")


def test_a_next_question_that_depends_on_the_last_answer_is_asked_and_no_way_to_be_ungraded(pooled: Sandbox) -> None:
    chained = "first = order([3, 1])\nassert order([first[0], 5])[0] <= 5"
    task = record(pooled, chained, HONEST, "order")
    other = "def order(items): return sorted(items, reverse=True)\n"  # what the tests ask of it they take as well
    wrong = "def order(items): return [9, 9]\n"
    nested = (
        "def order(items):\n    for _ in range(55): items = [items]\n    return items\n"  # too deep to be asked with
    )
    outcomes = grade_recorded(pooled, [(HONEST, task), (other, task), (wrong, task), (nested, task)])
    assert [one.kind for one in outcomes] == ["passed", "passed", "failed", "failed"], outcomes
    swallowed = (
        "try:\n    assert order([order([3, 1])[0], 5])[0] == 1\nexcept BaseException as error:\n    assert 0, error"
    )
    swallowing = record(pooled, swallowed, HONEST, "order")
    endless = "import random\ndef order(items): return [random.random()]\n"
    chain = "last = 1\nfor _ in range(9): last = order([last])[0]\nassert last == 1"
    jobs = [(wrong, swallowing), (endless, record(pooled, chain, HONEST, "order"))]
    assert [one.kind for one in grade_recorded(pooled, jobs)] == ["failed", "failed"]


def test_work_that_returned_values_do_not_show_is_not_graded_by_them(pooled: Sandbox) -> None:
    in_place = "def order(items):\n    items.sort()\n"
    with pytest.raises(BrokenTask, match="more than what the function returns"):  # who does nothing returns as much
        record(pooled, "items = [2, 1]\norder(items)\nassert items == [1, 2]", in_place, "order")
    both = "def order(items):\n    items.sort()\n    return items\n"
    task = record(pooled, "items = [2, 1]\nout = order(items)\nassert out == [1, 2]", both, "order")
    assert [one.kind for one in grade_recorded(pooled, [(HONEST, task)])] == ["passed"]


def test_an_exception_is_replayed_as_what_it_is(pooled: Sandbox) -> None:
    own = "class Odd(ValueError):\n    def __init__(self, why, where): ...\n"
    tests = "for odd in ('{', ''):\n    try:\n        order(odd)\n    except ValueError: continue\n    assert 0"
    reference = (
        f"import json\n{own}def order(text):\n    if not text: raise Odd('empty', 0)\n    return json.loads(text)\n"
    )
    task = record(pooled, tests, reference, "order")
    other = "def order(text): raise UnicodeError\n"
    wrong = "def order(text): raise KeyError\n"
    outcomes = grade_recorded(pooled, [(reference, task), (other, task), (wrong, task)])
    assert [one.kind for one in outcomes] == ["passed", "passed", "failed"]


FORGED = """
import os, sys
mark = sys.modules["__main__"].JOB["mark"]
for number in range(9):
    os.write(1, ("\\n%s [\\"{kind}\\", [%d, " % (mark, number) + {told} + "]]\\n").encode())
os._exit(0)
"""


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("value", "'[' * 3000 + ']' * 3000"),
        ("value", "'[]'"),
        ("value", "'[\"d\", 5]'"),
        ("value", "'[\"c\", [\"i\", \"0x' + 'f' * 400 + '\"], 0]'"),
        ("raised", "'[' * 900 + ']' * 900"),
        ("unencodable", "'{}'"),
    ],
)
def test_what_no_encoder_writes_is_a_wrong_answer_and_stops_nobody(pooled: Sandbox, kind: str, told: str) -> None:
    forged = FORGED.replace("{kind}", kind).replace("{told}", told)
    assert grade(pooled, forged, "order", CASES).kind == "failed"
    task = record(pooled, "assert len(order([2, 1])) == 2", HONEST, "order")
    assert [one.kind for one in grade_recorded(pooled, [(forged, task)])] == ["failed"]


def test_hidden_inputs_are_drawn_afresh_and_answered_by_the_reference(pooled: Sandbox) -> None:
    draw = vary_examples([case.args for case in CASES])
    drawn = [repr(hidden_cases(pooled, HONEST, "order", draw, 4)) for _ in range(3)]
    assert len(set(drawn)) == 3
    (first, *_) = hidden_cases(pooled, HONEST, "order", draw, 4, random.Random(1))
    assert first.expected == sorted(first.args[0])
    assert hidden_cases(pooled, "def order(items): raise ValueError", "order", draw, 4) == []


FENCE = "Here it is:\n```python\n{}\n```\nIt sorts."


def reward_of(sandbox: Sandbox, texts: list[str], **how: Any) -> tuple[list[float | None], CodeReward]:
    reward = code(sandbox=sandbox, **how)
    count = len(texts)
    scores = reward(
        prompts=["?"] * count,
        completions=texts,
        tests=["assert order([3, 1, 2]) == [1, 2, 3]\nassert order([50, 40]) == [40, 50]"] * count,
        reference=[HONEST] * count,
        entry_point=["order"] * count,
        trainer_state=None,
        completion_ids=[[1, 2]] * count,
    )
    return scores, reward


def test_the_reward_reads_completions_as_a_trainer_hands_them_over(pooled: Sandbox) -> None:
    chat: Any = [{"role": "assistant", "content": FENCE.format(HONEST)}]
    draft = FENCE.format("def order(items): return items") + FENCE.format(HONEST)
    shell = FENCE.format(HONEST) + "\n```bash\npip install x\n```"
    unclosed = f"```python\n{HONEST}"
    texts = [
        FENCE.format(HONEST),
        HONEST,
        chat,
        draft,
        shell,
        unclosed,
        FENCE.format("def order(items): return items"),
        "",
    ]
    scores, reward = reward_of(pooled, texts)
    assert scores == [1.0] * 6 + [0.0, 0.0]
    assert reward.infra == [False] * 8 and reward.__name__ == "code" and reward.sandbox.tier


def test_hidden_inputs_stop_answers_known_by_heart(pooled: Sandbox) -> None:
    known = "def order(items): return {3: [1, 2, 3], 50: [40, 50]}[items[0]]"
    texts = [FENCE.format(known), FENCE.format(HONEST)]
    assert reward_of(pooled, texts)[0] == [1.0, 1.0]
    for _ in range(3):
        assert reward_of(pooled, texts, hidden=6)[0] == [0.0, 1.0]

    def draw(rng: random.Random, row: Any) -> tuple[list[int]]:
        assert row["entry_point"] == "order"
        return ([rng.randrange(1000) for _ in range(5)],)

    scores, reward = reward_of(pooled, texts, hidden=3, draw=draw)
    assert scores == [0.0, 1.0] and reward.unhidden == 0
    scores, reward = reward_of(pooled, texts, hidden=3, draw=lambda rng, row: (None,))  # the reference takes none
    assert scores == [1.0, 1.0] and reward.unhidden == 2


def test_cases_may_be_text_and_are_strict(pooled: Sandbox) -> None:
    reward = code(sandbox=pooled)
    pair = "def swap(pair): return pair[1], pair[0]"
    given = ["[{'args': ((1, 2),), 'expected': (2, 1)}]", '[{"args": [[1, 2]], "expected": [2, 1]}]']
    assert reward(completions=[pair, pair], cases=given, entry_point=["swap", "swap"]) == [1.0, 0.0]
    assert code(sandbox=pooled, tolerance=1e-6)(
        completions=["def third(): return 1 / 3"], cases=[[{"args": [], "expected": 0.3333333}]], entry_point=["third"]
    ) == [1.0]


def _in_child(reward: CodeReward, out: Any) -> None:
    scores = reward(completions=[HONEST], tests=["assert order([2, 1]) == [1, 2]"], entry_point=["order"])
    out.put((scores, reward.sandbox.tier))


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_the_reward_works_in_another_process(how: str) -> None:
    reward = code(isolation="pooled")
    assert reward(completions=[HONEST], tests=["assert order([2, 1]) == [1, 2]"], entry_point=["order"]) == [1.0]
    if how == "spawn":
        copy = pickle.loads(pickle.dumps(reward))  # noqa: S301  # our own
        assert copy(completions=[HONEST], tests=["assert order([2, 1]) == [1, 2]"], entry_point=["order"]) == [1.0]
        copy.sandbox.close()
    else:
        context = multiprocessing.get_context("fork")
        out = context.Queue()
        child = context.Process(target=_in_child, args=(reward, out))
        child.start()
        assert out.get(timeout=60) == ([1.0], reward.sandbox.tier)
        child.join(30)
    assert reward(completions=[HONEST], tests=["assert order([2, 1]) == [1, 2]"], entry_point=["order"]) == [1.0]
    reward.sandbox.close()


def test_a_trainer_takes_the_verifiers(make_trainer: Any, pooled: Sandbox) -> None:
    answers, programs = maths(forms=("boxed", "number")), code(sandbox=pooled, tests="answer")
    trainer = make_trainer("GRPO", rewards=[answers, programs], max_steps=1)
    trainer.train()
    assert len(answers.infra) == len(programs.infra) == 8
    assert not any(answers.infra) and all(programs.infra)  # the answers are numbers, and no tests


def test_the_code_of_the_page_runs_and_its_tables_are_those_of_the_results(tmp_path: Path) -> None:
    page = DOCS / "verifiers.md"
    blocks = [
        text for text in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S) if ">>>" not in text
    ]
    assert len(blocks) >= 3
    for text in blocks:
        (tmp_path / "block.py").write_text(text)
        done = subprocess.run([sys.executable, "-W", "error", "block.py"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, text + done.stderr
    assert "not measured yet" in render("<!-- forgeries_paid() -->", tmp_path)
    row = dict.fromkeys(HARNESSES, "not paid") | {"forgery": "a | b", "exit_code": "paid"}
    (tmp_path / "verifiers.json").write_text(
        json.dumps(json.loads((RESULTS / "verifiers.json").read_text()) | {"forgeries": [row]})
    )
    shown = render_page("verifiers.md", tmp_path)
    assert "| a / b | **paid** | not paid |" in shown
    assert all(f"| {forgery.name} |" in shown for forgery in CODE)


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@has_data
def test_reference_solutions_pass_and_their_mutants_are_judged_as_by_the_asserts(pooled: Sandbox) -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from mutants import mutants
    finally:
        sys.path.remove(str(BENCHMARKS))
    rng = random.Random(3)
    human = [
        (row["prompt"] + row["canonical_solution"], row["test"], row["entry_point"], f"\ncheck({row['entry_point']})")
        for row in rng.sample(rows("humaneval/humaneval.jsonl.gz"), 30)
    ]
    slow = {123, 367, 601, 927}  # one is slow, three ask with objects of their own classes: see the benchmark
    basic = [
        (row["code"].replace("\r", ""), "\n".join([row["test_setup_code"], *row["test_list"]]), "", "")
        for row in rng.sample([row for row in rows("mbpp/mbpp.jsonl.gz") if row["task_id"] not in slow], 30)
    ]
    reward = code(sandbox=pooled)
    tasks = human + basic
    made = [(task, text) for task in tasks for text, _ in mutants(task[0], 1, rng)]

    def graded(pairs: list[tuple[Any, str]]) -> list[float | None]:
        columns = {
            name: [task[number] for task, _ in pairs]
            for number, name in ((0, "reference"), (1, "tests"), (2, "entry_point"))
        }
        return reward(completions=[f"```python\n{text}\n```" for _, text in pairs], **columns)

    assert graded([(task, task[0]) for task in tasks]) == [1.0] * 60, [
        one for one in reward.outcomes if one.kind != "passed"
    ]
    said = graded(made)
    ends = pooled.run_many([(f"{text}\n{task[1]}{task[3]}\n", "") for task, text in made])
    truth = [float(end.kind == "ended" and end.exit_code == 0) for end in ends]
    assert said == truth
    assert 0.0 in truth
