"""A judge that asks a language model behind the `LLM` protocol, about several claims in one call.

Claims and passages enter the prompt only as quoted JSON.  Every claim has an id made from its own
words and its evidence, so a verdict that belongs to another call, or one that slipped by a place, has an id
that does not exist here.  What the judge cites is looked up: the quote of a verdict is a sentence of the
evidence.

The styles `factscore` and `veriscore` ask the questions of these two systems, one claim per call, in words of
ours, with a last line `VERDICT: word`; their replies are read by repaired parsers (`factrl.llm.replies`).
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from factrl.errors import LLMError, Unscored
from factrl.llm import LLM, Reply, ask
from factrl.llm.quoting import quoted_message
from factrl.llm.replies import (
    ReadVerdict,
    item_ids,
    read_supported,
    read_true_false,
    read_verdicts,
)
from factrl.types import Claim, Passage, Verdict, VerdictLabel
from factrl.verifier.judges.overlap import quote_of

Style = Literal["factrl", "factscore", "veriscore"]
_Pair = tuple[Claim, tuple[Passage, ...]]

_READERS: Mapping[str, Callable[[str], VerdictLabel]] = {
    "factscore": read_true_false,
    "veriscore": read_supported,
}
_LAST = re.compile(r"^\W{0,4}verdict\W{0,4}:\W{0,4}(\w[^\n]{0,40})\s{0,9}\Z", re.IGNORECASE | re.MULTILINE)
_SEALED = (
    ("The Ambrel Hall in Tosk was built in 1834.", "Ambrel Hall was built in {}.", "1834", "1871"),
    ("Ilse Vanterpool taught physics in Mora.", "Ilse Vanterpool taught {}.", "physics", "Latin"),
    ("The Corvane Prize was given to Odo Marsh.", "{} got the Corvane Prize.", "Odo Marsh", "Pia Lund"),
    ("The opera Tessaly has five acts.", "The opera Tessaly has {} acts.", "five", "three"),
)
"""Of the control claims: a passage, a claim about it, and what makes that claim true and false.  The subjects
are invented: nothing but the passage decides."""
_TOKENS_PER_CLAIM = 128  # id, verdict and a quote of 30 words
_TOKENS_ONE_WORD = 256  # a model that explains itself before or after its word


def unjudged(by: str, error: Unscored, facts: Mapping[str, Any] | None = None) -> Verdict:
    """No verdict of the judge `by`, because its model failed or its reply cannot be read."""
    facts = {**(facts or {}), **error.facts}
    return Verdict("unjudged", by, why=error.detail, cause=error.cause, facts=facts)


def _prompt(name: str) -> tuple[str, str]:
    """A prompt, and its digest for the identity of the judge."""
    text = (Path(__file__).parent / "prompts" / f"{name}.txt").read_text("utf-8").rstrip("\n")
    return text, hashlib.sha256(text.encode()).hexdigest()[:12]


def _name_of(llm: LLM) -> str:
    parts = (type(llm).__name__, getattr(llm, "base_url", None), getattr(llm, "model", None))
    return getattr(llm, "identity", None) or " ".join(str(part) for part in parts if part)


async def _in_calls(
    by: str,
    pairs: Sequence[_Pair],
    calls: Sequence[Sequence[int]],
    call: Callable[[Sequence[_Pair]], Awaitable[list[Verdict]]],
) -> list[Verdict]:
    """A verdict for every pair; `calls` has the pairs of each by number, and what is in none no evidence."""
    verdicts = [Verdict("unknown", by, cause="no_evidence")] * len(pairs)
    answers = await asyncio.gather(*(call([pairs[index] for index in numbers]) for numbers in calls))
    for numbers, answered in zip(calls, answers, strict=True):
        for index, verdict in zip(numbers, answered, strict=True):
            verdicts[index] = verdict
    return verdicts


class LLMJudge:
    """A `Judge` that asks a language model; `judge` is a coroutine.

    Args:
        llm: any LLM.
        claims_per_call: claims in one call; the published styles always ask about one.
        style: `factrl`, or the question of `factscore` or `veriscore`.
        controls: put a true and a false claim of ours among those of every call of the style `factrl`, in
            their form.  A judge that is broken, badly set up or talked round by a text in its prompt says the
            same of everything: a call that gets one of the two wrong is void, its claims `unjudged` with the
            cause `judge_fails_control`.

    Attributes:
        evidence_chars: characters of evidence shown for one claim, best passages first; claims with the same
            evidence share it.
    """

    weak = False
    evidence_chars = 6000

    def __init__(
        self, llm: LLM, *, claims_per_call: int = 5, style: Style = "factrl", controls: bool = False
    ) -> None:
        self.llm = llm
        self.style = style
        self.controls = controls
        self.per_call = claims_per_call if style == "factrl" else 1
        self._prompt, self._digest = _prompt(style)

    @property
    def identity(self) -> str:
        return (
            f"{_name_of(self.llm)} {self.style}@{self._digest} claims={self.per_call} "
            f"evidence={self.evidence_chars} tokens=auto"
            f"{' controls' if self.controls else ''}"
        )

    async def ready(self) -> None:
        """Ask a server that was named without a model which one it serves, so that `identity` says it.

        Raises:
            LLMError: it could not be asked.
        """
        find = getattr(self.llm, "find_model", None)
        if find is not None:
            await find()

    async def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair, in their order; pairs with the same evidence are asked about together.

        A call that fails leaves its claims `unjudged` with the cause of the failure, and a reply that cannot
        be read those that it concerns with `judge_unreadable` or `judge_refusal`.
        """
        shown = [(claim, self._shown(passages)) for claim, passages in pairs]
        shared: dict[tuple[Passage, ...], list[int]] = {}
        for index, (_, passages) in enumerate(shown):
            if passages:
                shared.setdefault(passages, []).append(index)
        order = [index for members in shared.values() for index in members]
        calls = [order[start : start + self.per_call] for start in range(0, len(order), self.per_call)]
        return await _in_calls(self.identity, shown, calls, self._call)

    def _shown(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """The first passages, up to the limit; the last of them may be cut."""
        shown: list[Passage] = []
        left = self.evidence_chars
        for passage in passages:
            if left > 0:
                shown.append(Passage(passage.text[:left], passage.title))
                left -= len(passage.text)
        return tuple(shown) if any(passage.text and not passage.text.isspace() for passage in shown) else ()

    async def _call(self, pairs: Sequence[_Pair]) -> list[Verdict]:
        shown, true, false = _with_controls(pairs) if self.controls else (list(pairs), None, None)
        ids = item_ids(["\0".join([claim.text, *(p.text for p in passages)]) for claim, passages in shown])
        together = self.style == "factrl"
        if together:
            data = _joint(shown, ids)
        else:
            [(claim, passages)] = pairs
            data = {"passages": [{"title": p.title, "text": p.text} for p in passages], "claim": claim.text}
        limit = _TOKENS_PER_CLAIM * (len(shown) + 1) if together else _TOKENS_ONE_WORD
        try:
            reply = await ask(self.llm, quoted_message(self._prompt, data), max_tokens=limit)
        except LLMError as error:
            return [unjudged(self.identity, error)] * len(pairs)
        facts = {**reply.facts, "elapsed": round(reply.elapsed, 3)}
        answers = dict(zip(shown, self._read(reply, ids), strict=True))
        if true is not None and false is not None:
            controls = [answers[true], answers[false]]
            labels = [answer.label if isinstance(answer, ReadVerdict) else "" for answer in controls]
            if labels[0] != "supported" or labels[1] in ("supported", ""):
                detail = f"the judge calls a true and a false claim of ours {labels[0]!r} and {labels[1]!r}"
                void = Unscored("judge_fails_control", detail)
                return [unjudged(self.identity, void, facts)] * len(pairs)
        verdicts = []
        for claim, passages in pairs:
            answer = answers[claim, passages]
            if isinstance(answer, Unscored):
                verdicts.append(unjudged(self.identity, answer, facts))
                continue
            # The sentence that the judge cites, or the one that covers most of the claim when it cites none.
            cited = quote_of(answer.quote, passages) if answer.quote else None
            quote = cited or quote_of(claim.text, passages)
            verdicts.append(Verdict(answer.label, self.identity, quote=quote, facts=facts))
        return verdicts

    def _read(self, reply: Reply, ids: Sequence[str]) -> list[ReadVerdict | Unscored]:
        if self.style == "factrl":
            read = read_verdicts(reply.text, ids)
            return [read[id_] for id_ in ids]
        try:
            last = _LAST.search(reply.text)
            return [ReadVerdict(_READERS[self.style](last[1] if last else reply.text))]
        except Unscored as error:
            return [error]


def _with_controls(pairs: Sequence[_Pair]) -> tuple[list[_Pair], _Pair, _Pair]:
    """The claims of a call with a true and a false one of ours among them, and these two.

    They and their places are chosen by all that the call asks: the same call has the same ones.
    """
    text = "\0".join(part for claim, passages in pairs for part in (claim.text, *(p.text for p in passages)))
    rng = random.Random(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    evidence, frame, *words = rng.choice(_SEALED)
    true, false = ((Claim(text, 0, len(text)), (Passage(evidence),)) for text in map(frame.format, words))
    whole = list(pairs)
    for control in (true, false):
        whole.insert(rng.randint(0, len(whole)), control)
    return whole, true, false


def _joint(pairs: Sequence[_Pair], ids: Sequence[str]) -> dict[str, Any]:
    """The passages once each, then the claims with the passages that each is held against."""
    numbers: dict[Passage, str] = {}
    for _, passages in pairs:
        for passage in passages:
            numbers.setdefault(passage, f"p{len(numbers) + 1}")
    claims = {
        id_: {"id": id_, "claim": claim.text, "passages": [numbers[passage] for passage in passages]}
        for id_, (claim, passages) in zip(ids, pairs, strict=True)
    }
    return {
        "passages": [{"id": id_, "title": p.title, "text": p.text} for p, id_ in numbers.items()],
        "claims": list(claims.values()),
    }
