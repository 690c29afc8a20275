"""Ways to give gold or rewards wrongly under TRL, as people write them: is the cause named, and the fix?

    python benchmarks/first_mistakes.py [--json]

Every case is a script's text. It is run as it stands, with a real trainer on a tiny model, and what a person would see
first is kept: the error of `attach`, what attach says, the error that ends training with the note below it, or the
first screen. `docs/first-mistakes.md` shows the texts and what was said.
"""

from __future__ import annotations

import argparse
import importlib
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tiltmeter
from tiltmeter.adapters import custom_loop
from tiltmeter.adapters.monitor_process import MonitorProcess
from tiltmeter.rundir.journal import read_events

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
AT_ATTACH, SAID = "error at attach", "said at attach"
FIRST_STEP, FIRST_SCREEN = "error at the first step", "tiltmeter show"


@dataclass(frozen=True)
class Mistake:
    """One mistake: the script, where it is answered, and words of the cause and of the fix that must be there."""

    about: str  # gold or reward
    what: str
    script: str
    where: str
    cause: str
    fix: str


GOLD = (
    Mistake("gold", "a column that the dataset does not have", """
def score(completion, solution):
    return float(solution in completion)

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "needs 'solution', which the dataset does not have", "name the parameter as the column"),
    Mistake("gold", "a scale from 0 to 10", """
def score(completion, answer):
    return 10 if answer in completion else 2

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "10 is not a number from 0 to 1", "divide by the most that it can give"),
    Mistake("gold", "a word instead of a number", """
def score(completion, answer):
    return "right" if answer in completion else "wrong"

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "str is not a number from 0 to 1", "return a number from 0 to 1"),
    Mistake("gold", "a helper that is defined nowhere", """
def score(completion, answer):
    return float(extract(completion) == answer)

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "uses 'extract', which is not defined", "define it before this call"),
    Mistake("gold", "a model that is loaded already", """
tokenizer = trainer.processing_class

def score(completion):
    return float(len(tokenizer(completion)["input_ids"]) < 9)

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "uses 'tokenizer', a", "load it in a function with @functools.cache"),
    Mistake("gold", "an open file", """
log = open("labels.log", "a")

def score(completion, answer):
    log.write(completion)
    return float(answer in completion)

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "uses 'log', an open TextIOWrapper", "open it in a function with @functools.cache"),
    Mistake("gold", "a method of an object", """
class Checker:
    def score(self, completion):
        return 1.0

tiltmeter.attach(trainer, gold=Checker().score)
""", AT_ATTACH, "is a method of an object of class Checker", "write a function that makes the object"),
    Mistake("gold", "the reward itself", """
tiltmeter.attach(trainer, gold=right)
""", AT_ATTACH, "gold is the reward function 'right' itself", "Name something the policy is not trained on"),
    Mistake("gold", "chat messages, where completions are text", """
def score(completion, answer):
    return float(answer in completion[0]["content"])

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "completions are plain text here", "use the text as it is"),
    Mistake("gold", "what only the trainer has", """
def score(completion, trainer_state):
    return min(1.0, trainer_state.global_step / 100)

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "needs trainer_state, which only the trainer has", "Give the parameter a default, or drop it"),
    Mistake("gold", "called instead of passed", """
def score(completion):
    return 1.0

tiltmeter.attach(trainer, gold=score("an answer"))
""", AT_ATTACH, "gold=1.0 names no source", "pass a function"),
    Mistake("gold", "a parameter of another name", """
def score(text):
    return 1.0

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "cannot be asked for gold", "def score(prompt, completion)"),
    Mistake("gold", "a check that does not look", """
def score(completion):
    return 1.0

tiltmeter.attach(trainer, gold=score)
""", SAID, "Every text scores 1, right or wrong", "does it look at the completion?"),
    Mistake("gold", "an error where the completion is empty", """
def score(completion, answer):
    return float(completion.split()[-1] == answer)

tiltmeter.attach(trainer, gold=score)
""", SAID, "an empty one among them: IndexError", "return a number wherever it can be told"),
    Mistake("gold", "a package that is not installed", """
def score(completion, answer):
    import maths_checker

    return maths_checker.same(completion, answer)

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "No module named 'maths_checker'", "install it where the run is started"),
    Mistake("gold", "one number for all completions", """
def score(completions, **kwargs):
    return 0.5

tiltmeter.attach(trainer, gold=score)
""", AT_ATTACH, "'float' object is not iterable", "return a list with one number for each completion"),
    Mistake("gold", "a file that is not there", """
tiltmeter.attach(trainer, gold="cheks.py:score")
""", AT_ATTACH, "there is no file", "check its name, or give the whole path"),
    Mistake("gold", "a reward function that is trained on", """
tiltmeter.attach(trainer, gold="reward:right")
""", AT_ATTACH, "the policy is trained on it", "its reward_weights must be 0"),
    Mistake("gold", "a share in percent", """
def score(completion, answer):
    return float(answer in completion)

tiltmeter.attach(trainer, gold=tiltmeter.Gold(score, share=2))
""", AT_ATTACH, "the share of rollouts to label is 2", "as 0.02"),
    Mistake("gold", "a judge whose key is not set", """
with open("judge.toml", "w") as file:
    file.write('url = "https://judge.example/v1"\\nmodel = "judge"\\nguide = "It is right."\\nkey_env = "NO_SUCH_KEY"')
tiltmeter.attach(trainer, gold="judge.toml")
""", AT_ATTACH, "the environment variable 'NO_SUCH_KEY' is not set", "export it before the run"),
)  # fmt: skip

REWARDS = (
    Mistake("reward", "no **kwargs", """
def reward(completions, answer):
    return [float(right in text) for text, right in zip(completions, answer)]

tiltmeter.attach(make_trainer(reward))
""", AT_ATTACH, "does not take 'completion_ids', which TRL hands to each", "add **kwargs"),
    Mistake("reward", "a column that the dataset does not have", """
def reward(completions, solution, **kwargs):
    return [float(right in text) for text, right in zip(completions, solution)]

tiltmeter.attach(make_trainer(reward))
""", AT_ATTACH, "needs 'solution', which is no column of the dataset", "name the parameter as the column"),
    Mistake("reward", "one completion at a time", """
def reward(prompt, completion, **kwargs):
    return len(completion) / 50

tiltmeter.attach(make_trainer(reward))
""", AT_ATTACH, "TRL calls it once for all, with lists", "def reward(completions, **kwargs)"),
    Mistake("reward", "weights that are all 0", """
tiltmeter.attach(make_trainer(right, reward_weights=[0.0]))
""", SAID, "every reward function has the weight 0", "give one of them another weight"),
    Mistake("reward", "two functions of one name", """
def length(limit):
    def reward(completions, **kwargs):
        return [min(1.0, len(text) / limit) for text in completions]

    return reward

tiltmeter.attach(make_trainer(length(10), length(20)))
""", SAID, "several reward functions are named reward", "give each a __name__ of its own"),
    Mistake("reward", "the name of a column of TRL's", """
def completion(completions, **kwargs):
    return [len(text) / 50 for text in completions]

tiltmeter.attach(make_trainer(completion))
""", SAID, "overwrites TRL's own column of that name", "rename it"),
    Mistake("reward", "None for what could not run, beside another function", """
def graded(completions, **kwargs):
    return [None for text in completions]  # the grader is down

tiltmeter.attach(make_trainer(graded, right))
""", SAID, "where one answers None, TRL counts it as 0", "tiltmeter.rewards.combine"),
    Mistake("reward", "one number for all completions", """
def reward(completions, **kwargs):
    return 1.0

tiltmeter.attach(make_trainer(reward)).train()
""", FIRST_STEP, "it returned one value", "return a list with one number for each completion"),
    Mistake("reward", "words instead of numbers", """
def reward(completions, **kwargs):
    return ["1.0" for text in completions]

tiltmeter.attach(make_trainer(reward)).train()
""", FIRST_STEP, "it returned something else than numbers", "return a list with one number, or None, for each"),
    Mistake("reward", "too few of them", """
def reward(completions, **kwargs):
    return [1.0]

tiltmeter.attach(make_trainer(reward)).train()
""", FIRST_STEP, "returned 1 rewards, but 8 were expected", "return one number for each completion"),
    Mistake("reward", "chat messages, where completions are text", """
def reward(completions, **kwargs):
    return [len(completion[0]["content"]) / 50 for completion in completions]

tiltmeter.attach(make_trainer(reward)).train()
""", FIRST_STEP, "completions are plain text here", "use the text itself"),
    Mistake("reward", "text, where completions are chat messages", """
def reward(completions, **kwargs):
    return [float(completion.startswith("4")) for completion in completions]

tiltmeter.attach(make_trainer(reward, chat=True)).train()
""", FIRST_STEP, "completions are lists of messages here", "use completion[-1]['content']"),
    Mistake("reward", "the same for every completion", """
def reward(completions, **kwargs):
    return [0.5 for text in completions]

tiltmeter.attach(make_trainer(reward)).train()
""", FIRST_SCREEN, "no prompt has completions that differ both in reward and in gold", "print the reward and the gold"),
    Mistake("reward", "None for every completion", """
def reward(completions, **kwargs):
    return [None for text in completions]

tiltmeter.attach(make_trainer(reward)).train()
""", FIRST_SCREEN, "completions have no reward (None, NaN)", "mend the reward function"),
)  # fmt: skip


def right(completions: list[str], answer: list[str], **kwargs: Any) -> list[float]:
    """The reward of the cases about gold."""
    return [float(number in text) for text, number in zip(completions, answer, strict=True)]


class NoMonitor:
    """Stands in for the monitor of runs that end at attach or in their first step."""

    def __init__(self, command: object, log_path: object) -> None: ...

    def keep_alive(self) -> None: ...

    def release(self) -> None: ...


class Trial:
    """Runs cases with trainers on one tiny model, in a folder that they may write to."""

    def __init__(self, folder: Path) -> None:
        quickstart = importlib.import_module("trl_quickstart")
        self.folder, self.rows, self.runs = folder, quickstart.QUESTIONS, 0
        self.model = quickstart.small_model(str(folder / "model"))

    def make_trainer(self, *rewards: Any, chat: bool = False, **settings: Any) -> Any:
        from datasets import Dataset
        from transformers import AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer

        self.runs += 1
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
        rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} if chat else row for row in self.rows]
        config = GRPOConfig(
            output_dir=str(self.folder / f"run-{self.runs}"), max_steps=2, per_device_train_batch_size=8,
            num_generations=4, max_completion_length=8, logging_steps=1, report_to="none", use_cpu=True, bf16=False,
            disable_tqdm=True, save_strategy="no", **settings,
        )  # fmt: skip
        return GRPOTrainer(
            model=self.model, processing_class=tokenizer, reward_funcs=list(rewards), args=config,
            train_dataset=Dataset.from_list(rows),
        )  # fmt: skip

    def answer(self, mistake: Mistake) -> dict[str, Any]:
        """What is said of a mistake, where, and whether its cause and its fix are named there."""
        script = mistake.script.strip() + "\n"
        linecache.cache["train.py"] = (len(script), None, script.splitlines(keepends=True), "train.py")
        space: dict[str, Any] = {
            "__name__": "__main__", "tiltmeter": tiltmeter, "right": right, "make_trainer": self.make_trainer,
        }  # fmt: skip
        if mistake.about == "gold":
            space["trainer"] = self.make_trainer(right)
        if mistake.where != FIRST_SCREEN:
            vars(custom_loop)["MonitorProcess"] = NoMonitor  # nobody looks at what it would measure
        where, text = "nowhere", ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                exec(compile(script, "train.py", "exec"), space)  # noqa: S102
            except tiltmeter.AttachError as error:
                where, text = AT_ATTACH, str(error)
            except Exception as error:  # noqa: BLE001
                where, text = FIRST_STEP, "".join(traceback.format_exception_only(error))
        vars(custom_loop)["MonitorProcess"] = MonitorProcess
        said = [str(one.message) for one in caught if str(one.message).startswith("tiltmeter: ")]
        if where == "nowhere" and mistake.where == FIRST_SCREEN:
            where, text = FIRST_SCREEN, self.first_screen()
        elif where == "nowhere":
            where = SAID
            text = next((one for one in said if mistake.cause in one), "\n".join(said)).removeprefix("tiltmeter: ")
        close_runs(space)
        named = where == mistake.where and mistake.cause in text and mistake.fix in text
        return {**asdict(mistake), "script": script, "where": where, "said": shorten(text, mistake), "named": named}

    def first_screen(self) -> str:
        run = self.folder / f"run-{self.runs}" / "tiltmeter"
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline and measured_steps(run) < 2:
            time.sleep(0.2)
        screen = [sys.executable, "-m", "tiltmeter", "show", str(run), "--plain"]
        return subprocess.run(screen, capture_output=True, text=True, check=False).stdout


def measured_steps(run: Path) -> int:
    return sum(event.kind == "step_done" for event in read_events(run / "events"))


def close_runs(space: dict[str, Any]) -> None:
    """End what a script attached: its monitor finishes by itself."""
    trainers = [space.get("trainer")]
    for callback in (one for trainer in trainers if trainer is not None for one in trainer.callback_handler.callbacks):
        if isinstance(callback, tiltmeter.Callback):
            callback.finish()


def shorten(text: str, mistake: Mistake) -> str:
    """What is said, without times that differ and without the folders of this machine."""
    if mistake.where == FIRST_SCREEN:
        text = "\n".join(line for line in text.splitlines() if mistake.cause in line or mistake.fix in line)
    text = re.sub(r"[\d.]+(e-?\d+)? ms a label", "N ms a label", text)
    return re.sub(r"/[\w./-]*/(?=[\w-]+\.py)", "", text).strip()


def run_mistakes() -> list[dict[str, Any]]:
    """Every case, in order."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="tiltmeter-mistakes-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        trial = Trial(Path(folder))
        os.chdir(folder)
        try:
            return [trial.answer(mistake) for mistake in (*GOLD, *REWARDS)]
        finally:
            os.chdir(here)


def summarise(cases: list[dict[str, Any]]) -> dict[str, Any]:
    count = {about: [one for one in cases if one["about"] == about] for about in ("gold", "reward")}
    return {
        "gold_mistakes": len(count["gold"]),
        "gold_mistakes_named": sum(one["named"] for one in count["gold"]),
        "reward_mistakes": len(count["reward"]),
        "reward_mistakes_named": sum(one["named"] for one in count["reward"]),
        "mistakes": cases,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = summarise(run_mistakes())
    if options.json:
        print(json.dumps(result))
        return
    for case in result["mistakes"]:
        named = "named" if case["named"] else "NOT"
        print(f"{named:6} {case['about']:6} {case['what']} [{case['where']}]\n    {case['said']}")


if __name__ == "__main__":
    main()
