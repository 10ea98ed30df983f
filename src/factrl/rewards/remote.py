"""A reward that another machine computes: the client of `factrl serve`.

    reward = fx.remote("http://rewards:8100", "knowrl")

It is a reward like any other.  What the server could not grade is masked, and so is everything that it
answers wrongly: nothing that comes over the wire is believed because of its shape alone.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from factrl.errors import LLMError, Unscored
from factrl.llm.background import Call, wait_for
from factrl.llm.bodies import Unreadable
from factrl.llm.client import JSONClient
from factrl.rewards import SUM, Reward, reward
from factrl.types import Completion, Example, Score, Span

AT_ONCE = 32  # samples of one request: small enough that its answer fits the limit on what is read
REQUEST_LIMIT = 8 << 20  # bytes; the server refuses more
ATTEMPTS = 40  # a busy server sends requests away for two seconds, again and again
TOKEN = "FACTRL_SERVER_TOKEN"  # noqa: S105  the variable's name
_STATES = ("scored", "masked", "floored")
_BLAMED = (413, 422)  # statuses that one sample can have brought upon all


def remote(
    url: str,
    name: str,
    *,
    token: str | None = None,
    bounds: tuple[float, float] = (-100.0, 100.0),
    **limits: Any,
) -> Reward:
    """The reward `name` of the server at `url`.

    Args:
        token: the server's; FACTRL_SERVER_TOKEN by default.
        bounds: lowest and highest reward that is believed; anything else masks the sample.
        limits: `timeout_attempt`, `max_attempts`, … of `factrl.llm.limits.Limits`.

    Raises:
        ConfigError: an address or a limit that cannot work.
    """
    server = RemoteScores(url, name, token=token, bounds=bounds, **limits)

    @reward
    def scored(example: Example, completion: Completion, *, server: RemoteScores) -> Score:
        return server(example, completion)

    bound = scored.with_(server=server)
    return Reward(bound.fn, name, bound.knobs, bound.resources)


class RemoteScores:
    """Scores of one reward of a server; see `remote`."""

    def __init__(
        self, url: str, name: str, *, token: str | None, bounds: tuple[float, float], **limits: Any
    ) -> None:
        self.name, self._bounds = name, bounds
        patient: dict[str, Any] = {
            "timeout_attempt": 240.0,
            "timeout_call": 600.0,
            "max_attempts": ATTEMPTS,
        } | limits
        key = token or os.environ.get(TOKEN)
        self._client = JSONClient(url.rstrip("/"), key, key_variable=TOKEN, stage="reward", **patient)

    def __repr__(self) -> str:
        return f"RemoteScores({self._client.base_url!r}, {self.name!r})"

    def __call__(self, example: Example, completion: Completion) -> Score:
        """The score of one completion.

        Raises:
            Unscored: there is none.
        """
        [answer] = self.answer_together([((example, completion), {})])
        if isinstance(answer, Unscored):
            raise answer
        return answer

    def answer_together(self, calls: Sequence[Call]) -> list[Score | Unscored]:
        """Many completions in few requests; what is not scored is the error to be raised."""
        pairs = [(args[0], args[1]) for args, _ in calls]
        chunks = [pairs[start : start + AT_ONCE] for start in range(0, len(pairs), AT_ONCE)]

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*map(self._ask, chunks), return_exceptions=True)

        answers: list[Score | Unscored] = []
        for answer in wait_for(ask_all()):
            if isinstance(answer, BaseException):
                raise answer
            answers += answer
        return answers

    async def _ask(self, pairs: Sequence[tuple[Example, Completion]]) -> list[Score | Unscored]:
        """A refusal for what was sent is that of as few samples as possible; any other one is that of all."""
        try:
            return await self._request(pairs)
        except LLMError as error:
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
                raise Unreadable(f"answered something other than {len(pairs)} results")
            return [self._believed(result, text) for result, (_, text) in zip(results, pairs, strict=True)]

        if len(json.dumps(body)) > REQUEST_LIMIT:  # sent, it would often end in a reset and not in an answer
            detail = f"a request to {self._client.base_url} is larger than {REQUEST_LIMIT} bytes"
            raise LLMError("http_413", detail, stage="reward", status=413)
        return await self._client.ask("POST", "/v1/score", body, read)

    def _believed(self, result: Any, text: str) -> Score | Unscored:
        """A result as a score, or why it is not one."""
        try:
            state, value, terms = result["state"], result["value"], dict(result["terms"])
            cause, detail, facts = result["cause"], result["detail"], dict(result["facts"])
            spans = tuple(Span(span["start"], span["end"], span["sign"]) for span in result["spans"])
            if state not in _STATES or not all(map(_is_number, terms.values())):
                raise ValueError("its terms are not numbers")
            if not all(isinstance(name, str) for name in (*terms, facts.get("label", ""))):
                raise ValueError("the name of a term, or its label, is not text")
            if state == "floored" and not (cause and isinstance(cause, str)):
                raise ValueError("it is floored without a cause")
            if state == "masked":
                return Unscored(str(cause or "masked"), str(detail), **{str(k): v for k, v in facts.items()})
            if not terms or SUM in terms:
                raise ValueError(f"it has no terms, or one that is called {SUM!r}")
            if any(type(part) is not int for span in spans for part in (span.start, span.end, span.sign)):
                raise ValueError("its spans are not whole numbers")
            low, high = self._bounds
            if not _is_number(value) or not math.isclose(value, math.fsum(terms.values()), abs_tol=1e-9):
                raise ValueError("its value is not the sum of its terms")
            if not low <= value <= high or any(span.end > len(text) for span in spans):
                raise ValueError(f"its value {value} or a span is out of bounds")
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            return Unscored("bad_body", f"{self._client.base_url} sent a result that is none: {error}")
        return Score(terms, spans, floored=cause if state == "floored" else None, facts=facts)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _sample(example: Example, text: Completion) -> dict[str, Any]:
    return {
        "example": {
            "question": example.question,
            "answers": list(example.answers),
            "id": example.id,
            "topic": example.topic,
            "ook": example.ook,
            "false_premise": example.false_premise,
            "evidence": [{"text": p.text, "title": p.title, "source": p.source} for p in example.evidence],
            "checklist": list(example.checklist),
        },
        "completion": str(text),
        "prefill": text.prefill,
        "truncated": text.truncated,
        "tokens": text.tokens,
    }
