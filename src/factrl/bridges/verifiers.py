"""factrl's rewards in verifiers 1 (`verifiers.v1`), by import path:

    [env.taskset.task.rewards]
    truthrl = { fn = "factrl.bridges.verifiers:truthrl" }

Every paper and variant is an attribute of this module, with the judge and the settings that
`factrl.bridges.trl` reads from the environment; `to_verifiers(reward)` is for a reward of your own.  The
fields of a task's data become the example: `question`, or else its prompt, `answers`, `evidence` and so on.

A completion that could not be graded raises, which verifiers records as an error of the task: the trace has
no number.  Step-wise credit is dropped, as a reward there is one number.  Where the policy searches
(`factrl.bridges.verifiers_search`), so does an episode in which a search failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from verifiers.v1.task import TaskData  # pyright: ignore[reportMissingImports]  (brought by its user)
from verifiers.v1.trace import Trace  # pyright: ignore[reportMissingImports]

from factrl.bridges.trl import named
from factrl.errors import Unscored
from factrl.rewards import Reward
from factrl.runs.data import ColumnName, to_example
from factrl.text import messages
from factrl.types import Completion, Passage

from .verifiers_search import SearchState

EPISODE = "search"  # what is known of an episode, in a trace's `info`: its state is not saved with it


def to_verifiers(
    reward: Reward, *, columns: Mapping[ColumnName, str] | None = None
) -> Callable[[TaskData, Trace], Awaitable[float]]:
    """A reward function of a verifiers task; its terms become metrics of the trace.

    Args:
        reward: its resources supplied.
        columns: our name -> the field of the task's data.
    """

    async def pays(task: TaskData, trace: Trace) -> float:
        own = {name: value for name, value in dict(task).items() if name not in TaskData.model_fields}
        own |= {"id": task.id or task.name or str(task.idx)}
        example = to_example({"question": task.prompt_text, **own}, columns)
        reward.check_examples([example])
        result = await asyncio.to_thread(reward, example, _completion(trace))
        if result.value is None:
            raise Unscored(result.cause or "masked", result.detail)
        for term, value in result.terms.items():
            trace.record_metric(f"{reward.name}/{term}", value)
        trace.info[reward.name] = {"state": result.state, "cause": result.cause}
        return result.value

    pays.__name__ = reward.name
    return pays


def _completion(trace: Trace) -> Completion:
    """The last reply; reasoning that the server has taken out of it stands in `<think>` before it."""
    turns = trace.assistant_messages
    text = messages.said(turns[-1]) if turns else trace.last_reply
    completion = Completion(text, truncated=trace.is_truncated)
    if isinstance(trace.state, SearchState):
        trace.info[EPISODE] = trace.state.model_dump(mode="json", include={"shown", "searches", "failed"})
    if EPISODE in trace.info:
        episode = SearchState.model_validate(trace.info[EPISODE])
        completion.shown = tuple(Passage(**one) for one in episode.shown)
        completion.failed = Unscored(*episode.failed) if episode.failed is not None else None
    return completion


def __getattr__(name: str) -> Callable[[TaskData, Trace], Awaitable[float]]:
    if name.startswith("_"):  # what the import system and inspection look for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    reward, settings = named(name)
    return to_verifiers(reward, columns=settings.data.columns)
