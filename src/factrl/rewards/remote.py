"""A reward that another machine computes: the client of `factrl serve`.

    reward = fx.remote("http://rewards:8100", "knowrl")

It is a reward like any other.  What the server could not grade is masked, and so is everything that it
answers wrongly: nothing that comes over the wire is believed because of its shape alone.  What will not heal
is an error at once: a bug in the reward, a name that the server has not, examples of which none is of use.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from factrl.errors import ConfigError, DataError, LLMError, RewardBug, Unscored
from factrl.llm.background import Call, wait_for
from factrl.llm.bodies import BROKEN, Unreadable
from factrl.llm.client import JSONClient
from factrl.rewards import Reward, result_of, reward
from factrl.runs.data import columns_of
from factrl.text.escape import one_line
from factrl.types import Completion, Example, Score, Span

AT_ONCE = 32  # samples of one request: small enough that its answer fits the limit on what is read
REQUEST_LIMIT = 8 << 20  # bytes; the server refuses more
ATTEMPTS = 40  # a busy server sends requests away for two seconds, again and again
TOKEN = "FACTRL_SERVER_TOKEN"  # noqa: S105  the variable's name
_UNKNOWN, _UNUSABLE = 404, 422
_BLAMED = (413, _UNUSABLE)  # statuses that one sample can have brought upon all


def remote(
    url: str,
    name: str,
    *,
    token: str | None = None,
    bounds: tuple[float, float] = (-100.0, 100.0),
    **limits: Any,
) -> Reward:
    """The reward `name` of the server at `url`, which is asked when something is scored.

    >>> remote("http://rewards:8100", "knowrl").name
    'knowrl'

    Args:
        token: the server's; FACTRL_SERVER_TOKEN by default.
        bounds: lowest and highest reward that is believed; anything else masks the sample.
        limits: `timeout_attempt`, `max_attempts`, … of `factrl.llm.limits.Limits`.

    Raises:
        ConfigError: an address or a limit that cannot work.
    """
    patient = {"timeout_attempt": 240.0, "timeout_call": 600.0, "max_attempts": ATTEMPTS} | limits
    key = token or os.environ.get(TOKEN)
    client = JSONClient(url.rstrip("/"), key, key_variable=TOKEN, stage="reward", **patient)
    return replace(_scored.with_(server=RemoteScores(client, name, bounds)), name=name)


class RemoteScores:
    """Scores of one reward of a server; see `remote`."""

    def __init__(self, client: JSONClient, name: str, bounds: tuple[float, float]) -> None:
        self._client, self.name, self._bounds = client, name, bounds
        self._fits = False  # whether the server took a request

    def __repr__(self) -> str:
        return f"RemoteScores({self._client.base_url!r}, {self.name!r})"

    def __call__(self, example: Example, completion: Completion) -> Score:
        [answer] = self.answer_together([((example, completion), {})])
        if isinstance(answer, Unscored):
            raise answer
        return answer

    def answer_together(self, calls: Sequence[Call]) -> list[Score | Unscored]:
        """Many completions in few requests; what is not scored is the error to be raised.

        Raises:
            RewardBug: the server's reward is broken.
            ConfigError: there is no such reward.
            DataError: the server has taken none of the examples so far.
        """
        pairs = [(args[0], args[1]) for args, _ in calls]
        chunks = [pairs[start : start + AT_ONCE] for start in range(0, len(pairs), AT_ONCE)]

        async def ask_all() -> list[list[Score | Unscored]]:
            return await asyncio.gather(*map(self._ask, chunks))

        answers = [answer for chunk in wait_for(ask_all()) for answer in chunk]
        refused = [
            one for one in answers if isinstance(one, LLMError) and one.facts.get("status") == _UNUSABLE
        ]
        self._fits = self._fits or len(refused) < len(answers)
        if not self._fits:
            raise DataError(refused[0].detail)
        return answers

    async def _ask(self, pairs: Sequence[tuple[Example, Completion]]) -> list[Score | Unscored]:
        """A refusal for what was sent is that of as few samples as possible; any other one is that of all."""
        try:
            return await self._request(pairs)
        except LLMError as error:
            if error.cause == BROKEN:
                raise RewardBug(f"reward {self.name!r} behind {error.detail}") from error
            if error.facts.get("status") == _UNKNOWN:
                raise ConfigError(f"reward {self.name!r} behind {error.detail}") from error
            if len(pairs) == 1 or error.facts.get("status") not in _BLAMED:
                return [error] * len(pairs)
        half = len(pairs) // 2
        first, second = await asyncio.gather(self._ask(pairs[:half]), self._ask(pairs[half:]))
        return [*first, *second]

    async def _request(self, pairs: Sequence[tuple[Example, Completion]]) -> list[Score | Unscored]:
        body = {"reward": self.name, "samples": [_sample(*pair) for pair in pairs]}

        def read(document: Any) -> list[Score | Unscored]:
            results = document.get("results") if isinstance(document, Mapping) else None
            if not isinstance(results, list) or len(results) != len(pairs):
                detail = f"answered something other than {len(pairs)} results; is it `factrl serve`?"
                raise Unreadable(detail, retry=False)
            return [self._believed(result, text) for result, (_, text) in zip(results, pairs, strict=True)]

        if len(json.dumps(body)) > REQUEST_LIMIT:  # sent, it would often end in a reset and not in an answer
            detail = f"a request to {self._client.base_url} is larger than {REQUEST_LIMIT} bytes"
            raise LLMError("http_413", detail, stage="reward", status=413)
        return await self._client.ask("POST", "/v1/score", body, read)

    def _believed(self, result: Any, text: Completion) -> Score | Unscored:
        """A result as a score, or why it is not one."""
        try:
            cause, facts = result["cause"], dict(result["facts"])
            if result["state"] == "masked":
                named = {one_line(str(name)): fact for name, fact in facts.items()}
                return Unscored(one_line(str(cause or "masked"), 99), str(result["detail"]), **named)
            spans = tuple(Span(span["start"], span["end"], span["sign"]) for span in result["spans"])
            if not isinstance(cause, (str, type(None))) or not isinstance(facts.get("label", ""), str):
                raise ValueError("its cause, or its label, is not text")
            terms = {one_line(str(name)): value for name, value in result["terms"].items()}
            score = Score(terms, spans, floored=cause and one_line(cause, 99), facts=facts)
            (low, high), meant = self._bounds, result_of(score, text)
            value = meant.value or 0.0
            if result["state"] != meant.state or not math.isclose(result["value"], value, abs_tol=1e-9):
                raise ValueError("its state or its value is not that of its cause and terms")
            if not low <= value <= high:
                raise ValueError(f"its value {value} is out of bounds")
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            return Unscored("bad_body", f"{self._client.base_url} sent a result that is none: {error}")
        return score


@reward
def _scored(example: Example, completion: Completion, *, server: RemoteScores) -> Score:
    return server(example, completion)


def _sample(example: Example, text: Completion) -> dict[str, Any]:
    return {
        "example": columns_of(example),
        "completion": str(text),
        "prefill": text.prefill,
        "truncated": text.truncated,
        "tokens": text.tokens,
    }
