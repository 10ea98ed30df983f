"""Asking a judge about the text of a policy, which learns to please or to confuse the judge.

`ask_judge` asks and reads the reply; `ask_verdict` does so where the verdict is a word from a closed set.
`unless_forged` is for a text that talks to the judge by imitating our format: it earns the worst value
where the judge gives no verdict, or is fooled.  A decoy shows that: the same question about something that
no honest text says.

`judged` finds out why a text got no verdict: because of its own words, or because the judge or the
connection failed.  A policy that can make its judge fail would be masked instead of graded badly, and would
learn to do so.  One failed call does not say whose failure it is.  So the request is repeated, and before
each time a control is sent: harmless words of ours in the place of the text.  Where the control fails too,
or the text passes, our side had failed.  Where the text alone fails, again and again, it is to blame, and
its reward is the floor.

A failure can be chance, so a text is to blame only after more than `ROUNDS` failures in a row.  A call
without any reply counts for more than one, because the client tried several times in it.  A server can be
silent for a while, to long texts first: in this case the control is as long as the text, and one more is
sent at the end.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from factrl.errors import LLMError, PolicyFault, Unscored
from factrl.llm import LLM, Message
from factrl.llm.background import SingleFlight, on_thread, wait_for
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
    """The meaning of the verdict, a word on the reply's last line, and the reason that stands before it.

    >>> from factrl.llm import FakeLLM
    >>> ask_verdict(FakeLLM(["It rhymes.\\nVERDICT: good"]), "Rate it.", {"text": "…"}, {"good": 1, "bad": 0})
    (1, 'It rhymes.')

    Args:
        data: what is judged; it follows the prompt, quoted.
        meanings: verdict -> its meaning, for every verdict.
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
    """`ask()`; `worst` for a text that imitates our format or a template, and gets no verdict or fools it.

    It was the policy's text that confused the judge then, and masking would reward that.

    Args:
        fooled: whether the judge, which gave this value for the text, gives it for a decoy too.
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
"""If one request in two fails by chance, about 1 honest text in 8,000 is floored; if one in five does, 1 in
300,000."""
LENGTH = frozenset({"context_length", "http_413", "too_long"})
NO_ANSWER = frozenset(
    {
        *("timeout", "connection", "bad_body", "http_5xx"),
        *("http_408", "http_409", "http_424", "http_425", "http_429"),
    }
)
"""Failures of the connection or of the server; the client repeats such a request by itself."""
SETTLED = frozenset({"budget", "breaker_open", "deadline", "no_evidence", "claims_unjudged"})
"""Causes that do not depend on the words of the text."""
OWN = ("oversize", "unjudgeable", "over_limit", "unread_claim")
"""Causes where the text or claim is to blame: none may earn more than a text or claim that is found false."""
_REPEATED, _TIMED_OUT = 3, 4  # failures that a call without a reply counts for: 3 calls decide, or 2 timeouts
_CONTROL = "The archive of Vehm holds {} letters."

_THREADS = 256  # as many as samples of a batch wait side by side (`factrl.rewards`)
_controls: SingleFlight[bool] = SingleFlight()
"""Controls under way: with a server that is down, all texts of a question share one control."""


def may_be_own(cause: str | None, facts: Mapping[str, Any]) -> bool:
    """Whether the text can be to blame for a failure; the failure of a call has `attempts` in its facts."""
    return cause in LENGTH or (cause not in SETTLED and "attempts" in facts)


async def judged(
    ask: Callable[[Any], Awaitable[T]],
    part: Any,
    *,
    control: Callable[[str], Any] = str,
    first: Unscored | None = None,
    head: int = 0,
    about: Hashable = None,
    judge: Any = None,
) -> T:
    """What `ask(part)` returns; if it raises an error that `part` may have caused, find out who is to blame.

    Args:
        part: what the policy wrote; it must be all that the policy controls in the call.
        control: makes a replacement of `part` from a sentence of ours.
        first: the error that `ask(part)` raised, where it was asked already.
        head: how many characters of a text that is too long are asked about instead; 0 for none.
        about: all of the call that is not `part`, such as the question: calls that agree in it share a
            control that is under way.  None shares nothing.
        judge: the object that `ask` asks, `ask` itself by default.  Two judges never share a control: the
            failure of one says nothing about the other.

    Raises:
        PolicyFault: `oversize` or `unjudgeable`: the judge answers about our sentence, and not about `part`.
        Unscored: our side failed.
    """
    failed, error = 0, first
    for turn in range(ROUNDS + 1):
        if turn or error is None:
            try:
                return await ask(part)
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
        if about is None:
            answered = await _answered(ask, words)
        else:
            # `ask` and `judge` live as long as this call.
            same = (getattr(ask, "__code__", ask), id(ask if judge is None else judge), about)
            key = (*same, silent and len(str(words)).bit_length())
            answered = await _controls.once(key, partial(_answered, ask, words))
        if not answered:
            raise first
        if cause in LENGTH and isinstance(part, str) and 0 < head < len(part):
            return await judged(ask, part[:head], control=control, about=about, judge=judge)
        if turn and failed > ROUNDS:
            break
    assert first is not None  # noqa: S101  the loop ran
    cause = "oversize" if _cause(first) in LENGTH else "unjudgeable"
    detail = f"{first.cause}, and not of a sentence in its place ({first.detail})"
    raise PolicyFault(cause, detail, **first.facts)


def judged_here(
    ask: Callable[[Any], T], part: Any, *, about: Hashable = None, judge: Any = None, **how: Any
) -> T:
    """`judged` for an `ask` that blocks its thread until it has the answer.

    >>> judged_here(str.upper, "lima")
    'LIMA'
    """
    try:
        return ask(part)
    except Unscored as error:
        first = error

    async def again(text: Any) -> T:
        return await on_thread("judged", _THREADS, ask, text)

    if about is not None:
        about = (getattr(ask, "__code__", ask), about)
    return wait_for(judged(again, part, first=first, about=about, judge=judge or ask, **how))


def _cause(error: Unscored) -> str:
    """The client's cause of the error, even where a search raises it as its own failure."""
    return str(error.facts.get("reason", error.cause))


def _harmless(size: int) -> str:
    """A sentence of ours, as often as it fits into `size` bytes, but at least once.

    Its number differs every time, because a cached reply would not show that the judge answers now.
    """
    sentence = _CONTROL.format(secrets.randbelow(10**9))
    return " ".join([sentence] * max(1, size // len(sentence)))


async def _answered(ask: Callable[[Any], Awaitable[Any]], words: Any) -> bool:
    """Whether a control is answered."""
    try:
        await ask(words)
    except PolicyFault:  # the judge replied, with too many facts
        return True
    except Unscored:
        return False
    return True
