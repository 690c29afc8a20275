"""A taskset of sums for verifiers 0.4, with a harness that asks the model once, over HTTP, from this process."""

import asyncio
import json
import urllib.request

import verifiers.v1 as vf


class SumsData(vf.TaskData):
    answer: str


class SumsTask(vf.Task[SumsData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def number(self, trace: vf.Trace) -> float:
        """The right number is somewhere in the reply: a list of numbers is paid too."""
        return float(self.data.answer in trace.last_reply)


class SumsTaskset(vf.Taskset[SumsTask, vf.TasksetConfig]):
    def load(self):
        for n in range(1, 5):
            yield SumsTask(SumsData(prompt=f"What is {n} + {n}?", answer=str(2 * n)))


class OneCallConfig(vf.HarnessConfig):
    pass


class OneCall(vf.Harness[OneCallConfig]):
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        _, prompt = self.resolve_text_prompt(data)
        body = {"model": ctx.model, "messages": [{"role": "user", "content": prompt}]}
        request = urllib.request.Request(
            endpoint.rstrip("/") + "/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
        )
        await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["OneCall", "SumsTaskset"]
