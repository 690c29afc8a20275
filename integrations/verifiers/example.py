"""A loop over a verifiers environment, watched by Tiltmeter. The model: any server of OpenAI's chat completions.

    pip install tiltmeter 'verifiers>=0.4'
    python example.py http://localhost:8000/v1 MODEL
    tiltmeter show runs/verifiers

Training takes place between two steps; here nothing is trained, and the server's model may change as it likes.
"""

import asyncio
import sys

import verifiers.v1 as vf

import tiltmeter
from tiltmeter.adapters.verifiers import VerifiersEpisodes


def right(completion, answer):
    """Gold: the last word is the answer. Training never sees it."""
    return float(completion.split()[-1] == answer)


async def main(url, model, steps, samples):
    ctx = vf.ModelContext(model, vf.EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY"))
    agent = vf.AgentConfig(runtime=vf.SubprocessConfig())  # on this machine: the harness runs no code of a model
    env = vf.load_environment(vf.SingleAgentEnvConfig(taskset=vf.TasksetConfig(id="sums"), agent=agent))
    run = tiltmeter.open_run("runs/verifiers", gold=right)
    episodes = VerifiersEpisodes(run)
    episodes.watch(env)
    async with env.serving():
        for step in range(steps):
            slots = [slot for task in env.taskset for slot in env.slots(task, samples)]
            await asyncio.gather(*(env.run_slot(slot, ctx) for slot in slots))
            episodes.end_step(step)
    run.close()


if __name__ == "__main__":
    sys.path.insert(0, ".")  # verifiers imports the taskset by its name
    asyncio.run(main(sys.argv[1], sys.argv[2], steps=int((sys.argv[3:] or [4])[0]), samples=8))
