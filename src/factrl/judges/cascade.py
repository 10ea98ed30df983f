"""Two judges in a row: a cheap one decides what it is sure of, a better one the rest.

It saves calls, not errors: what the first is wrongly sure of stays wrong.  How often that is depends on
`sure` and on how well the first judge's `p` is calibrated, which `benchmarks/verifier.py` measures.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from factrl.errors import ConfigError
from factrl.types import Claim, Passage, Verdict

if TYPE_CHECKING:
    from factrl.judges import Judge


class Cascade:
    """Asks `first`, then asks `second` about what `first` is not sure of; `judge` is a coroutine.

    The first judge is sure when its probability that the claim is supported is at least `sure`, or at most
    `1 - sure`; without a probability it is never sure.  A claim without evidence goes no further.

    Args:
        first: the cheap judge; its verdicts need a `p`.
        second: the judge for the rest; its verdict stands, also when it is `unjudged`.
        sure: the probability from which on the first verdict stands.

    Attributes:
        identity: both judges and `sure`.
        per_call: pairs that one call of the second judge takes.
        weak: one of the two is weak, so a verdict of this cascade may be a weak one.

    Raises:
        ConfigError: `sure` outside (0.5, 1].
    """

    def __init__(self, first: Judge, second: Judge, sure: float = 0.9) -> None:
        if not 0.5 < sure <= 1.0:
            raise ConfigError(f"sure must lie above 0.5 and not above 1, not {sure!r}")
        self.first = first
        self.second = second
        self.sure = sure
        self.per_call = second.per_call
        self.weak = first.weak or second.weak

    @property
    def identity(self) -> str:
        mark = "weak " if self.weak else ""
        return f"{mark}cascade [{self.first.identity}] then [{self.second.identity}] sure={self.sure:g}"

    async def ready(self) -> None:
        """Make both judges' identities complete; see `LLMJudge.ready`."""
        for judge in (self.first, self.second):
            ready = getattr(judge, "ready", None)
            if ready is not None:
                await ready()

    async def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair; its facts say under `decided_by` which judge it is from."""
        verdicts = await _ask(self.first, pairs)
        rest = [index for index, verdict in enumerate(verdicts) if not self._stands(verdict)]
        decided = ["first"] * len(verdicts)
        if rest:
            for index, verdict in zip(rest, await _ask(self.second, [pairs[i] for i in rest]), strict=True):
                verdicts[index], decided[index] = verdict, "second"
        identity = self.identity
        return [
            replace(verdict, by=identity, facts={**verdict.facts, "decided_by": which, "judge": verdict.by})
            for verdict, which in zip(verdicts, decided, strict=True)
        ]

    def _stands(self, verdict: Verdict) -> bool:
        if verdict.label == "unjudged":
            return False
        if verdict.cause == "no_evidence":
            return True
        return verdict.p is not None and max(verdict.p, 1.0 - verdict.p) >= self.sure


async def _ask(judge: Judge, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
    """The verdicts of a judge of either kind; a blocking one runs on a thread of its own."""
    if inspect.iscoroutinefunction(judge.judge):
        verdicts = judge.judge(pairs)
    else:
        verdicts = await asyncio.to_thread(judge.judge, pairs)
    return list(await verdicts if inspect.isawaitable(verdicts) else verdicts)
