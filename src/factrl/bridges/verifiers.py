"""factrl's rewards and its search in verifiers 1 (`verifiers.v1`).

A reward is named by its import path:

    [env.taskset.task.rewards]
    truthrl = { fn = "factrl.bridges.verifiers:truthrl" }

Every paper and variant is an attribute of this module, with the judge and the settings that
`factrl.bridges.trl` reads from the environment; `to_verifiers(reward)` is for a reward of your own.  The
fields of a task's data become the example: `question`, or else its prompt, `answers`, `evidence` and so on.

A search is the tool of a taskset, one server for all its rollouts:

    class Questions(vf.Taskset[Question, QuestionsConfig]):
        @classmethod
        def toolsets(cls, config):
            return [SearchToolset(SearchConfig(index="wiki"))]

whose tasks have `SearchState` for their state, `vf.Task[Data, SearchState, Config]`.  The server keeps
nothing of a rollout: what was shown, the budget, and a search that failed travel in that state, which a
policy cannot write, and from which the rewards take them.

A completion that could not be graded, or before which a search failed, raises, which verifiers records as an
error of the task: the trace has no number.  Step-wise credit is dropped, as a reward there is one number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]  (brought by its user)
from pydantic import PositiveInt

from factrl.bridges.trl import supplied_by_environment
from factrl.errors import Unscored
from factrl.rewards import Reward
from factrl.runs.data import ColumnName, to_example
from factrl.text import messages
from factrl.train.search import DOWN, SearchEnvironment
from factrl.types import Completion, Passage
from factrl.verifier import open_search

EPISODE = "search"  # what is known of an episode, in a trace's `info`: its state is not saved with it


class SearchState(vf.State):
    """An episode so far: the passages that were shown, its searches, and why it cannot be graded."""

    shown: tuple[Passage, ...] = ()
    searches: int = 0
    failed: tuple[str, str] | None = None  # the cause and its detail


class SearchConfig(vf.SharedToolsetConfig):
    """What may be searched: an index (`factrl index`), as `[search]` of a recipe has it."""

    index: str = ""
    embedder: str = ""
    k: PositiveInt = 3
    turns: PositiveInt = 4


class SearchToolset(vf.Toolset[SearchConfig, SearchState]):
    """One tool, `search(query)`; the calls of a rollout come one after the other, as verifiers' harnesses do.

    Raises:
        SetupError: the index cannot be opened.
    """

    TOOL_PREFIX = None  # its name is `search`, as in training

    async def setup(self) -> None:
        """Open the index, once."""
        self._source: Any = open_search(index=self.config.index, embedder=self.config.embedder)

    async def search(self, query: str) -> str:
        """The next search of the rollout that calls."""
        config, state = self.config, self.state
        episode = SearchEnvironment(self._source, k=config.k, turns=config.turns)
        episode.shown, episode.searches = [*state.shown], state.searches
        if state.failed is not None:
            episode.failed = Unscored(*state.failed)
        call = asyncio.create_task(asyncio.to_thread(episode.search, query))
        await asyncio.wait([call])
        state.shown, state.searches = tuple(episode.shown), episode.searches
        if isinstance(episode.failed, Unscored):
            state.failed = episode.failed.cause, episode.failed.detail
        elif (bug := call.exception()) is not None:  # which the policy would read; the reward raises it
            state.failed = "bug", f"search: {type(bug).__name__}: {bug}"
        return DOWN if state.failed is not None else call.result()

    search.__doc__ = SearchEnvironment.search.__doc__  # which the policy reads
    search = vf.tool(search)


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
    completion = Completion(text, truncated=trace.is_truncated)
    if isinstance(trace.state, SearchState):
        trace.info[EPISODE] = trace.state.model_dump(mode="json", include={"shown", "searches", "failed"})
    if EPISODE in trace.info:
        episode = SearchState.model_validate(trace.info[EPISODE])
        completion.shown = episode.shown
        completion.failed = Unscored(*episode.failed) if episode.failed is not None else None
    return completion


def __getattr__(name: str) -> Callable[[vf.TaskData, vf.Trace], Awaitable[float]]:
    if name.startswith("_"):  # what the import system and inspection look for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    reward, settings = supplied_by_environment(name)
    return to_verifiers(reward, columns=settings.data.columns)


if __name__ == "__main__":  # as verifiers starts the tool's server, in a process of its own
    SearchToolset.run()
