"""factrl's rewards in verifiers 1 (`verifiers.v1`).

A reward is named by its import path:

    [env.taskset.task.rewards]
    truthrl = { fn = "factrl.bridges.verifiers:truthrl" }

Every paper and variant is an attribute of this module, with the judge and the settings that
`factrl.bridges.trl` reads from the environment; `to_verifiers(reward)` is for a reward of your own.  The
fields of a task's data become the example: `question`, or else its prompt, `answers`, `evidence` and so on.

A completion that could not be graded raises, which verifiers records as an
error of the task: the trace has no number.  Step-wise credit is dropped, as a reward there is one number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]  (brought by its user)

from factrl.bridges.trl import supplied_by_environment
from factrl.errors import Unscored
from factrl.rewards import Reward
from factrl.runs.data import ColumnName, to_example
from factrl.text import messages
from factrl.types import Completion


def to_verifiers(
    reward: Reward, *, columns: Mapping[ColumnName, str] | None = None
) -> Callable[[vf.TaskData, vf.Trace], Awaitable[float]]:
    """A reward function of a verifiers task; its terms become metrics of the trace.

    Args:
        reward: its resources supplied.
        columns: our name -> the field of the task's data.
    """

    async def score(task: vf.TaskData, trace: vf.Trace) -> float:
        fields = {name: value for name, value in dict(task).items() if name not in vf.TaskData.model_fields}
        fields |= {"id": task.id or task.name or str(task.idx)}
        example = to_example({"question": task.prompt_text, **fields}, columns)
        reward.check_examples([example])
        result = await asyncio.to_thread(reward, example, _completion(trace))
        if result.value is None:
            raise Unscored(result.cause or "masked", result.detail)
        for term, value in result.terms.items():
            trace.record_metric(f"{reward.name}/{term}", value)
        trace.info[reward.name] = {"state": result.state, "cause": result.cause}
        return result.value

    score.__name__ = reward.name
    return score


def _completion(trace: vf.Trace) -> Completion:
    """The last reply; reasoning that the server has taken out of it stands in `<think>` before it."""
    turns = trace.assistant_messages
    text = messages.completion_of(turns[-1]) if turns else trace.last_reply
    return Completion(text, truncated=trace.is_truncated)


def __getattr__(name: str) -> Callable[[vf.TaskData, vf.Trace], Awaitable[float]]:
    if name.startswith("_"):  # what the import system and inspection look for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    reward, settings = supplied_by_environment(name)
    return to_verifiers(reward, columns=settings.data.columns)
