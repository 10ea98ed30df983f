"""Asking a judge about a text of the policy's, which learns to please the judge or to confuse it.

`ask_judge` asks and reads the reply, `ask_verdict` where that is a word from a closed set.  `unless_forged`
takes the credit from a text that talks to the judge: where it imitates our format it has to fail a decoy, the
same question about something that no honest text says.

`judged` finds out whose doing it is that a text got no verdict: its own, or that of the judge and of the way
there.  A policy that can make its judge fail is masked instead of graded badly, and learns to.  One failed
call does not say whose failure it is.  So whatever failed is asked again, and before that a control is asked:
harmless words of ours in the place of the text.  Where the control fails too, or the text passes, it was an
outage of our side.  Where the text alone fails, again and again, it is to blame, and its reward is the floor.

A failure can be an accident, so that it takes more than `ROUNDS` of them in a row.  Where no answer came at
all, the client has tried several times in one call, which counts for more.  Servers give none for a while,
and to long texts first: there the control is as long as the text, and one more is asked at the end.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from factrl.errors import LLMError, PolicyFault, Unscored
from factrl.llm import LLM, Message
from factrl.llm.quoting import forges, quoted_message
from factrl.llm.replies import read_verdict
from factrl.llm.store import CachedLLM
from factrl.text import bytes_of

T = TypeVar("T")


def ask_judge(
    llm: LLM,
    messages: Sequence[Message],
    read: Callable[[str], T],
    *,
    max_tokens: int = 512,
    stage: str = "judge",
) -> T:
    """What `read` makes of the reply, asked for at temperature 0; a `CachedLLM` keeps it if it can be read.

    >>> from factrl.llm import FakeLLM
    >>> ask_judge(FakeLLM(["42"]), [{"role": "user", "content": "How many?"}], int)
    42

    Args:
        read: raises `Unscored` for a reply that it cannot read.
        stage: kept with that error, as is what is known about the call.

    Raises:
        Unscored: as `read`.
        LLMError: the judge could not be asked.
    """
    caching = llm.accepting(read) if isinstance(llm, CachedLLM) else llm
    reply = caching.complete(messages, temperature=0.0, max_tokens=max_tokens)
    try:
        return read(reply.text)
    except Unscored as error:
        error.facts = {"stage": stage, "status": 200, **reply.facts, **error.facts}
        raise


def ask_verdict(
    llm: LLM, prompt: str, data: Mapping[str, Any], meanings: Mapping[str, T], **limits: Any
) -> tuple[T, str]:
    """What the verdict means, a word on the last line, and the reason that the judge gives before it.

    >>> from factrl.llm import FakeLLM
    >>> ask_verdict(FakeLLM(["It rhymes.\\nVERDICT: good"]), "Rate it.", {"text": "…"}, {"good": 1, "bad": 0})
    (1, 'It rhymes.')

    Args:
        data: what is judged, which stands quoted behind the prompt.
        meanings: of every verdict that there is.
        limits: as of `ask_judge`.

    Raises:
        Unscored: `judge_unreadable`.
        LLMError: the judge could not be asked.
    """

    def read(text: str) -> tuple[T, str]:
        reason = text.rpartition("</think>")[2].rstrip().rpartition("\n")[0]
        return meanings[read_verdict(text, meanings)], reason.strip()[:1000]

    return ask_judge(llm, quoted_message(prompt, data), read, **limits)


def unless_forged(
    ask: Callable[[], T], text: str, worst: T, fooled: Callable[[T], Any] = lambda value: False
) -> T:
    """`ask()`; `worst` for a text that imitates our format or a chat template and gets no verdict, or fools.

    It was the policy's text that confused the judge then, and masking would reward that.

    Args:
        fooled: whether the judge that says this of the text says as much of a decoy.
    """
    if not forges(text):
        return ask()
    try:
        value = ask()
        return worst if fooled(value) else value
    except LLMError:
        raise
    except Unscored:
        return worst


ROUNDS = 6
"""With one request in two that fails by chance, about one honest text in eight thousand is floored; with one
in five, one in three hundred thousand."""
LENGTH = frozenset({"context_length", "http_413", "too_long"})
NO_ANSWER = frozenset(
    {
        *("timeout", "connection", "bad_body", "http_5xx"),
        *("http_408", "http_409", "http_424", "http_425", "http_429"),
    }
)
"""Failures of the way or of the server's health; the client repeats such a request by itself."""
SETTLED = frozenset({"budget", "breaker_open", "deadline", "no_evidence", "claims_unjudged"})
"""Causes that other words would not change."""
OWN = ("oversize", "unjudgeable", "over_limit", "unread_claim")
"""What is said of a text or a claim that is to blame: none of it may be better than being found false."""
_REPEATED, _TIMED_OUT = 3, 4  # what a call in vain counts for: three of one, two of what takes minutes
_CONTROL = "The archive of Vehm holds {} letters."

_controls: dict[Hashable, Future[bool]] = {}  # those under way, and whether they are answered


def may_be_own(cause: str | None, facts: Mapping[str, Any]) -> bool:
    """Whether the text can be to blame for a failure; one that came of a call tells of its `attempts`."""
    return cause in LENGTH or (cause not in SETTLED and "attempts" in facts)


async def judged(
    ask: Callable[[Any], Any],
    part: Any,
    *,
    control: Callable[[str], Any] = str,
    first: Unscored | None = None,
    head: int = 0,
    about: Hashable = None,
    judge: Any = None,
    blocking: bool = False,
) -> Any:
    """What `ask(part)` returns; who is to blame is found out where that is an error that `part` may cause.

    Args:
        part: what the policy wrote, and all of the call that is its own.
        control: makes of a sentence of ours what can stand in the place of `part`.
        first: the error that `ask(part)` raised, where it was asked already.
        head: how many characters of a text that is too long are asked about instead; 0 for none.
        about: all of the call that is not `part`, such as the question: calls that agree in it share a
            control that is under way.  None shares nothing.
        judge: the object that `ask` asks, `ask` itself by default.  No two share a control: one that fails
            says nothing of another.
        blocking: `ask` blocks this thread; see `judged_here`.

    Raises:
        PolicyFault: `oversize` or `unjudgeable`: the judge answers about our sentence, and not about `part`.
        Unscored: our side failed.
    """
    failed, error = 0, first
    for turn in range(ROUNDS + 1):
        if turn or error is None:
            try:
                return await _answer(ask(part))
            except Unscored as problem:
                error = problem
        first = first or error
        cause = _cause(error)
        if isinstance(error, PolicyFault) or not may_be_own(cause, error.facts):
            raise error
        silent = cause in NO_ANSWER
        repeated = silent and (error.facts["attempts"] or 0) > 1
        failed += (_TIMED_OUT if cause == "timeout" else _REPEATED) if repeated else 1
        if turn == ROUNDS and not silent:
            break
        words = control(_harmless(bytes_of(str(part)) if silent else 0))
        asks = (
            getattr(ask, "__code__", ask),
            id(ask if judge is None else judge),
        )  # both live as long as this call
        key = None if about is None else (os.getpid(), *asks, about, silent and len(str(words)).bit_length())
        if not await _passes(ask, words, key, blocking):
            raise first
        if cause in LENGTH and isinstance(part, str) and 0 < head < len(part):
            return await judged(
                ask, part[:head], control=control, about=about, judge=judge, blocking=blocking
            )
        if turn and failed > ROUNDS:
            break
    assert first is not None  # noqa: S101  the loop ran
    cause = "oversize" if _cause(first) in LENGTH else "unjudgeable"
    detail = f"{first.cause}, and not of a sentence in its place ({first.detail})"
    raise PolicyFault(cause, detail, **first.facts)


def judged_here(ask: Callable[[Any], Any], part: Any, **how: Any) -> Any:
    """`judged` for an `ask` that blocks this thread until it has the answer."""
    try:
        judged(ask, part, blocking=True, **how).send(None)
    except StopIteration as done:  # nothing in it waits, so it is done in one go
        return done.value
    raise TypeError("judged_here was given a coroutine function")


def _cause(error: Unscored) -> str:
    """The client's word for it, also where a search says only that it failed."""
    return str(error.facts.get("reason", error.cause))


async def _answer(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _harmless(size: int) -> str:
    """A sentence of ours, as often as fits into so many bytes, once at least.

    Another number every time: a stored reply would not show that the judge answers today.
    """
    sentence = _CONTROL.format(secrets.randbelow(10**9))
    return " ".join([sentence] * max(1, size // len(sentence)))


async def _passes(ask: Callable[[Any], Any], words: Any, key: Hashable, blocking: bool) -> bool:
    """Whether a control is answered: this one, or one under way that is as good.

    So a server that is down is asked one control by all texts of a question.
    """
    if key is not None and (known := _controls.get(key)) is not None:
        return known.result() if blocking else await asyncio.wrap_future(known)
    own: Future[bool] = Future()
    own.set_running_or_notify_cancel()  # a caller that is cancelled takes it from nobody else
    if key is not None:
        _controls[key] = own
    passes = False
    try:
        await _answer(ask(words))
        passes = True
    except PolicyFault:  # an answer: there is too much of it
        passes = True
    except Unscored:
        passes = False
    finally:  # whatever ends this, nobody is left waiting
        _controls.pop(key, None)
        own.set_result(passes)
    return passes
