"""Whose doing it is that a text got no verdict: its own, or that of the judge and of the way there.

A policy that can make its judge fail is masked instead of graded badly, and learns to.  One failed call does
not say whose failure it is, so a text of ours is put into the same call, as a control.  Where that fails too,
our side is at fault.  Where it does not, and the policy's text fails again and again, the text is.

A request that is too long is one by its own words, so one control settles it.  A reply that cannot be read
can also be an accident, so it takes `ROUNDS` controls, with the text asked about between them.  No reply at
all (a timeout, a server error, a cut connection) is never blamed on a text: a slow or overloaded server shows
the same on honest long texts.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable
from typing import Any

from factrl.errors import OwnDoing, Unscored

ROUNDS = 4
"""One reply in five that is unreadable by chance floors about one honest text in eight thousand."""
LENGTH = frozenset({"context_length", "http_413", "too_long"})
REPLY = frozenset(
    {
        *("judge_unreadable", "judge_refusal", "judge_ignores_text", "judge_fails_control"),
        *("extract_unreadable", "truncated", "http_400", "http_422", "http_451"),
    }
)
OWN = ("oversize", "unjudgeable", "over_limit", "unread_claim")
"""What is said of a text or a claim that is to blame: none of it may be better than being found false."""
_CONTROL = "The archive of Vehm holds {} letters."


async def judged(
    ask: Callable[[Any], Any],
    part: Any,
    *,
    control: Callable[[str], Any] = str,
    first: Unscored | None = None,
    head: int = 0,
) -> Any:
    """What `ask(part)` returns; who is to blame is found out where that is an error that `part` may cause.

    Args:
        part: what the policy wrote, and all of the call that is its own.
        control: makes of a sentence of ours what can stand in the place of `part`.
        first: the error that `ask(part)` raised, where it was asked already.
        head: how many characters of a text that is too long are asked about instead; 0 for none.

    Raises:
        OwnDoing: `oversize` or `unjudgeable`: the judge answers about our sentence, and not about `part`.
        Unscored: our side failed.
    """
    if first is None:
        try:
            return await _answer(ask(part))
        except Unscored as error:
            first = error
    cause = "oversize" if first.cause in LENGTH else "unjudgeable"
    unread = first.cause in REPLY and "attempts" in first.facts  # an error that came of a call tells of it
    if cause != "oversize" and not unread:
        raise first
    for _ in range(ROUNDS):
        # Another number every time: a stored reply would not show that the judge answers today.
        sentence = _CONTROL.format(secrets.randbelow(10**9))
        try:
            await _answer(ask(control(sentence)))
        except Unscored:
            raise first from None
        if cause == "oversize":
            if isinstance(part, str) and 0 < head < len(part):
                return await judged(ask, part[:head], control=control)
            break
        try:
            return await _answer(ask(part))
        except Unscored as error:
            if error.cause not in REPLY:
                raise
    detail = f"{first.cause}, and not of a sentence in its place ({first.detail})"
    raise OwnDoing(cause, detail, **first.facts)


def judged_here(ask: Callable[[Any], Any], part: Any, **how: Any) -> Any:
    """`judged` for an `ask` that blocks this thread until it has the answer."""
    try:
        judged(ask, part, **how).send(None)
    except StopIteration as done:  # nothing in it waits, so it is done in one go
        return done.value
    raise TypeError("judged_here was given a coroutine function")


async def _answer(said: Any) -> Any:
    return await said if inspect.isawaitable(said) else said
