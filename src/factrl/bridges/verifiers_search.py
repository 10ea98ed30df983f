"""`SearchEnvironment` (`factrl.train.search`) in verifiers 1: the tool of a taskset, one server for them all:

    class Questions(vf.Taskset[Question, QuestionsConfig]):
        @classmethod
        def toolsets(cls, config):
            return [SearchToolset(SearchConfig(index="wiki"))]

whose tasks have `SearchState` for their state, `vf.Task[Data, SearchState, Config]`.  The server keeps
nothing of a rollout: what was shown, the budget, and a search that failed travel in that state, from which
the rewards of `factrl.bridges.verifiers` take them.  A policy cannot write there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]  (brought by its user)
from pydantic import PositiveInt

from factrl.errors import Unscored
from factrl.train.search import DOWN, SearchEnvironment
from factrl.types import Passage
from factrl.verifier import open_search


class SearchState(vf.State):
    """An episode so far: the arguments of its passages, its searches, and why it cannot be graded."""

    shown: tuple[Mapping[str, Any], ...] = ()
    searches: int = 0
    failed: tuple[str, str] | None = None  # the cause and its detail


class SearchConfig(vf.SharedToolsetConfig):
    """What may be searched: an index (`factrl index`), as `[search]` of a recipe says it."""

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
        episode.shown, episode.searches = [Passage(**one) for one in state.shown], state.searches
        if state.failed is not None:
            episode.failed = Unscored(*state.failed)
        call = asyncio.create_task(asyncio.to_thread(episode.search, query))
        await asyncio.wait([call])
        state.shown, state.searches = tuple(map(_as_state, episode.shown)), episode.searches
        if isinstance(episode.failed, Unscored):
            state.failed = episode.failed.cause, episode.failed.detail
        elif (bug := call.exception()) is not None:  # which the policy would read; the reward raises it
            state.failed = "bug", f"search: {type(bug).__name__}: {bug}"
        return DOWN if state.failed is not None else call.result()

    search.__doc__ = SearchEnvironment.search.__doc__  # which the policy reads
    search = vf.tool(search)


def _as_state(passage: Passage) -> Mapping[str, Any]:
    return {"text": passage.text, "title": passage.title, "source": passage.source, "id": passage.id}


if __name__ == "__main__":  # as verifiers starts it, in a process of its own
    SearchToolset.run()
