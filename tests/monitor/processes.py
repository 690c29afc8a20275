"""Several trainers at once, as a program: `processes.py ranks|races DIRECTORY...` forks them from one warm interpreter.

A program and not a function of the tests, because a fork is only safe in a process without threads, which a test
runner is not. Prints one JSON list: what each process has to say for itself.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tiltmeter.adapters.arguments import Launch, Options
from tiltmeter.adapters.custom_loop import open_run

RANKS, STEPS = 8, 25
RACERS, RACE_STEPS = 4, 4


def one_rank(directory: str, rank: int) -> dict[str, Any]:
    run = open_run(
        directory,
        launch=Launch(rank=rank, ranks=RANKS, name="together"),
        monitor=False,
        options=Options(on_full="wait"),
    )
    for step in range(STEPS):
        run.observe(step=step, group=[0, 0, 1], reward=[step, rank, 0.5], completion=[f"{rank}/{step}"] * 3)
    run.close()
    return {"rank": rank, "attempt": run.attempt, "counters": run.counters}


def one_racer(directory: str, racer: int) -> dict[str, Any]:
    """A trainer that was started twice by mistake, on the same directory at the same moment."""
    run = open_run(directory, monitor=False, options=Options(on_full="wait"))
    for step in range(RACE_STEPS):
        run.observe(step=step, group=[0, 1], reward=[racer, step], completion=[f"{racer}/{step}"] * 2)
        time.sleep(0.001)  # some start while others are in the middle of a file
    run.close()
    return {"racer": racer, "directory": str(run.directory), "attempt": run.attempt, "counters": run.counters}


def together(work: Callable[[str, int], dict[str, Any]], directory: str, count: int) -> list[dict[str, Any]]:
    """All at the same moment: each child waits at a pipe that is closed once every child is there."""
    gate, opener = os.pipe()
    answers = []
    for index in range(count):
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                os.close(opener)
                os.read(gate, 1)
                answer = work(directory, index)
            except BaseException:  # noqa: BLE001  # whatever it was, the test shows it
                answer = {"error": traceback.format_exc()}
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        answers.append(reading)
    os.close(opener)
    os.close(gate)
    said = [json.loads(os.fdopen(reading, "rb").read() or b'{"error": "died without a word"}') for reading in answers]
    for _ in range(count):
        os.wait()
    return said


if __name__ == "__main__":
    mode, *directories = sys.argv[1:]
    if mode == "ranks":
        print(json.dumps([together(one_rank, directory, RANKS) for directory in directories]))
    else:
        print(json.dumps([together(one_racer, directory, RACERS) for directory in directories]))
