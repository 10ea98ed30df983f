"""`SearchEnvironment` (`factrl.train.search`) as an environment of OpenEnv, behind its server:

    reward = supply(load_reward("truthrl"), judge)
    uvicorn.run(app(load_examples("questions.jsonl"), source, reward), port=8100)

A session is one connection of OpenEnv's client: `reset` asks a question, a step searches or answers, and the
answer ends the episode with what a reward of factrl pays for it.  The accepted answers stay on the server.

Written for openenv 0.10.0, formerly `openenv-core`.  Its rubrics return a float, and 0 where there is none,
so there is no rubric here.  An answer that could not be graded has the reward None, and its `cause` is a
field of the observation, as OpenEnv before 0.10 sends no metadata to the client.  Step-wise credit is
dropped: a reward there is one number.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

from fastapi import FastAPI
from openenv.core.env_server import (  # pyright: ignore[reportMissingImports]  (brought by its user)
    Action,
    Environment,
    Observation,
    State,
    create_fastapi_app,
)
from pydantic import Field

from factrl.errors import ConfigError
from factrl.rewards import Reward
from factrl.train.search import SearchEnvironment, attach_search
from factrl.types import Completion, Example
from factrl.verifier.search import Search


class SearchAction(Action):
    """The policy's action: it searches for `text`, or answers with it."""

    kind: Literal["search", "answer"]
    text: str


class SearchObservation(Observation):
    """The observation after an action; `done` without a reward means that the answer could not be graded.

    Attributes:
        text: the question, the passages of a search, or nothing after an answer.
        state: `scored`, `floored` or `masked`; None before the answer.
        cause: why an answer is masked or floored, such as `search_failed`.
        detail: the same in words.
        terms: what the reward is the sum of.
    """

    text: str
    state: Literal["scored", "floored", "masked"] | None = None
    cause: str | None = None
    detail: str = ""
    terms: dict[str, float] = Field(default_factory=dict)


class EpisodeState(State):
    """The progress of an episode, without the accepted answers.

    Attributes:
        question: its id.
        searches: calls so far.
        turns: searches that find something.
    """

    question: str = ""
    searches: int = 0
    turns: int = 0


class SearchEpisodes(Environment[SearchAction, SearchObservation, EpisodeState]):
    """Questions that a policy answers after it has searched.

    Args:
        examples: the questions.
        source: what is searched.
        reward: what pays for an answer, its resources supplied.
        k: passages that a search shows.
        turns: searches of an episode; those beyond find nothing and say so.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, examples: Sequence[Example], source: Search, reward: Reward, *, k: int = 3, turns: int = 4
    ) -> None:
        super().__init__()
        self._examples, self._reward = examples, reward
        self._search = SearchEnvironment(source, k=k, turns=turns)
        self._example: Example | None = None
        self._at = EpisodeState(turns=turns)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> SearchObservation:
        """Ask a question: number `seed`, which starts anew behind the last, or any without one."""
        number = random.randrange(len(self._examples)) if seed is None else seed % len(self._examples)
        self._example = self._examples[number]
        self._search.reset()
        self._at = EpisodeState(episode_id=episode_id, question=self._example.id, turns=self._search.turns)
        return SearchObservation(text=self._example.question)

    def step(self, action: SearchAction, timeout_s: float | None = None, **_: Any) -> SearchObservation:
        """Search, or answer, which ends the episode.

        Raises:
            ConfigError: no episode is under way.
        """
        if self._example is None:
            raise ConfigError(
                "no episode is under way: call reset first, on the same connection; OpenEnv's client keeps "
                "one, and each POST to /step has an environment of its own"
            )
        self._at.step_count += 1
        if action.kind == "search":
            passages = self._search.search(action.text)
            self._at.searches = self._search.searches
            return SearchObservation(text=passages)
        example, self._example = self._example, None
        result = self._reward(example, attach_search(self._search, Completion(action.text)))
        return SearchObservation(
            text="",
            done=True,
            reward=result.value,
            state=result.state,
            cause=result.cause,
            detail=result.detail or "",
            terms=dict(result.terms),
        )

    @property
    def state(self) -> EpisodeState:
        """The progress of the episode."""
        return self._at


def app(
    examples: Sequence[Example],
    source: Search,
    reward: Reward,
    *,
    k: int = 3,
    turns: int = 4,
    sessions: int = 64,
) -> FastAPI:
    """The server of `SearchEpisodes`, whose arguments it takes.

    >>> import factrl as fx
    >>> reward = fx.load_reward("truthrl").with_(grade=fx.Grader())
    >>> server = app([fx.Example("Where is Ada from?", ("Rome",))], fx.Given(["Ada is from Rome."]), reward)

    Args:
        sessions: episodes at a time; OpenEnv refuses the connections beyond.

    Raises:
        ConfigError: there are no questions, or a resource of the reward is missing.
    """
    if not examples:
        raise ConfigError("there are no questions to ask: examples is empty")
    if reward.missing:
        needs = ", ".join(reward.missing)
        raise ConfigError(f"reward {reward.name!r} needs {needs}; factrl.supply(reward, judge) makes them")
    reward.check_examples(examples)
    return create_fastapi_app(
        lambda: SearchEpisodes(examples, source, reward, k=k, turns=turns),
        SearchAction,
        SearchObservation,
        sessions,
    )
