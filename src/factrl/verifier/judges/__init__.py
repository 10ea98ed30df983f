"""Judges: whether passages support a claim.

`LocalJudge` runs a small language model in this process, `LLMJudge` asks one over HTTP, `NLIJudge` is a
cross-encoder, and `WeakJudge` compares words, for machines with nothing else; its verdicts are marked weak
wherever they are shown.  `TableJudge` compares plain sentences with a table of facts, exactly.  Any object
with the shape of `Judge` is a judge.

Importing this loads no model; a judge that needs one loads it when it is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from factrl.types import Claim, Passage, Verdict
from factrl.verifier.judges.llm import LLMJudge
from factrl.verifier.judges.local import LocalJudge, NLIJudge, WeakJudge
from factrl.verifier.judges.table import Table, TableJudge

__all__ = ["Judge", "LLMJudge", "LocalJudge", "NLIJudge", "Table", "TableJudge", "WeakJudge"]


class Judge(Protocol):
    """Anything that says whether passages support claims.

    Attributes:
        identity: everything that changes a verdict: model, revision, hash of the prompt, thresholds.
        per_call: pairs that one call takes; more are split.
        weak: True only when verdicts come from comparing words, and must not be called verification.

    A judge with `alone = N` is asked about the best N pieces of evidence one at a time, any other about
    several
    together.  A judge that never says `refuted` has `refutes = False`, and is refused where a reward lives on
    it.  A
    judge whose identity must be asked for has `async def ready()`, which is awaited before each batch.
    """

    @property
    def identity(self) -> str: ...
    @property
    def per_call(self) -> int: ...
    @property
    def weak(self) -> bool: ...

    def judge(
        self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]
    ) -> list[Verdict] | Awaitable[list[Verdict]]:
        """A verdict for every pair, in their order; may be a coroutine, awaited on the background loop.

        Without evidence a claim is `unknown` with the cause `no_evidence`.  One bad reply never raises: its
        claims are `unjudged`, with the cause.

        Raises:
            SetupError: what the user must change before any claim can be judged.
        """
        ...
