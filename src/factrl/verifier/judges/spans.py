"""A detector of unsupported spans behind an OpenAI-compatible server, as a judge of claims: one call a text.

Prompt and reply are those of LettuceDetect v2's generative models (arXiv:2607.00895; `lettucedetect` 0.2.0,
`prompts/generative.py`, MIT, © 2025 KR Labs), which were trained on these very words.  Tried on recorded
replies, and on no real weights.

Different from the released code: the answer is the claims of the text, a line each; the request before the
evidence is left out, as a judge of claims has none; a reply that is not JSON, or quotes what is not in the
answer, is no verdict, where the release drops the span and so calls its words supported.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from factrl.errors import Unscored
from factrl.llm import LLM, Message, ask
from factrl.llm.quoting import broken
from factrl.llm.replies import after_thinking
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.judges.overlap import quote_of

_PROMPT = Path(__file__).parent / "prompts" / "lettucedetect.txt"
_MARK = re.compile(r"(answer to verify)\W{0,3}:", re.I)  # which a text or a passage could repeat
MAX_SPANS = 256
"""Quotations of one reply; each is looked for in the whole text."""
_Pair = tuple[Claim, Sequence[Passage]]
_Spans = list[tuple[int, int, str]]


class SpanJudge:
    """A `Judge` that has a model quote what of a text its evidence does not carry; `judge` is a coroutine.

    A claim that a span lies in is `refuted` where the span's category is `contradiction`, and `unknown` where
    it is another: the evidence does not say it.  A claim without a span is `supported`.

    Attributes:
        evidence_chars: characters of evidence of one call, the best passages of every claim first.
    """

    weak = False
    per_call = 1024  # a group of texts, which `judge` takes apart
    evidence_chars = 24_000

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self._prompt = _PROMPT.read_text("utf-8").rstrip("\n")
        digest = hashlib.sha256(self._prompt.encode()).hexdigest()[:12]
        name = getattr(llm, "identity", type(llm).__name__)
        self.identity = f"{name} spans@{digest} evidence={self.evidence_chars}"

    async def judge(self, pairs: Sequence[_Pair]) -> list[Verdict]:
        """A verdict for every pair, in their order; claims of one text share a call and their evidence.

        A call that fails leaves its claims `unjudged` with the cause of the failure, and a reply that cannot
        be read with `judge_unreadable`.
        """
        verdicts = [Verdict("unknown", self.identity, cause="no_evidence")] * len(pairs)
        calls: list[list[int]] = []
        for index, (claim, passages) in enumerate(pairs):
            if not any(passage.text.strip() for passage in passages):
                continue
            if not calls or claim.start < pairs[calls[-1][-1]][0].start:  # another text begins
                calls.append([])
            calls[-1].append(index)
        judged = await asyncio.gather(*(self._call([pairs[index] for index in call]) for call in calls))
        for call, found in zip(calls, judged, strict=True):
            for index, verdict in zip(call, found, strict=True):
                verdicts[index] = verdict
        return verdicts

    async def _call(self, pairs: Sequence[_Pair]) -> list[Verdict]:
        lines = [_shown(claim.text) for claim, _ in pairs]
        answer = "\n".join(lines)
        facts: dict[str, Any] = {}
        try:
            reply = await ask(self.llm, self._messages(pairs, answer), max_tokens=512 + len(answer) // 2)
            facts = {**reply.facts, "elapsed": round(reply.elapsed, 3)}
            spans = read_spans(reply.text, answer)
        except Unscored as error:
            facts = {**facts, **error.facts}
            failed = Verdict("unjudged", self.identity, why=error.detail, cause=error.cause, facts=facts)
            return [failed] * len(pairs)
        verdicts, start = [], 0
        for (claim, passages), line in zip(pairs, lines, strict=True):
            verdicts.append(self._verdict(claim, passages, line, start, spans, facts))
            start += len(line) + 1
        return verdicts

    def _messages(self, pairs: Sequence[_Pair], answer: str) -> list[Message]:
        ranked = zip_longest(*(passages for _, passages in pairs))
        shown = (
            _shown(": ".join(filter(None, (one.title, one.text)))) for rank in ranked for one in rank if one
        )
        context = "\n\n".join(dict.fromkeys(shown))[: self.evidence_chars]
        return [
            {"role": "system", "content": self._prompt},
            {"role": "user", "content": f"{context}\n\nAnswer to verify:\n{answer}"},
        ]

    def _verdict(
        self,
        claim: Claim,
        passages: Sequence[Passage],
        line: str,
        start: int,
        spans: _Spans,
        facts: dict[str, Any],
    ) -> Verdict:
        if not line:  # of characters that nobody sees
            return Verdict("unknown", self.identity, cause="unread_claim", facts=facts)
        own = [(max(a - start, 0), min(b - start, len(line)), kind) for a, b, kind in spans]
        own = [(a, b, kind) for a, b, kind in own if a < b]
        if not own:
            return Verdict("supported", self.identity, quote=quote_of(claim.text, passages), facts=facts)
        label = "refuted" if any(kind == "contradiction" for _, _, kind in own) else "unknown"
        why = "; ".join(f"{kind or 'unsupported'}: {line[a:b]}" for a, b, kind in own)
        return Verdict(label, self.identity, why=why, facts=facts)


def _shown(text: str) -> str:
    """On one line, with nothing in it that could pass for a part of the prompt."""
    return _MARK.sub(r"\1 -", broken(text))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("an object names a key twice")
    return record


def _find(answer: str, text: str, begin: int) -> int:
    """Where it stands from there on, as whole words if it does ("5" not in "1957"); -1 for nowhere."""
    whole = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)").search(answer, begin)
    return whole.start() if whole else answer.find(text, begin)


def read_spans(reply: str, answer: str) -> _Spans:
    """Start, end and category of each span that a reply quotes: `{"hallucinated_spans": [{"text": …}]}`.

    A text that is quoted several times is found from one place to the next.

    Raises:
        Unscored: `judge_unreadable`: no such JSON, or a quotation of what is not in the answer.
    """
    spans: _Spans = []
    ends: dict[str, int] = {}
    try:
        found = json.loads(after_thinking(reply), object_pairs_hook=_once)["hallucinated_spans"]
        if not isinstance(found, list) or len(found) > MAX_SPANS:
            raise TypeError
        for span in found:
            text, kind = span["text"], span.get("category") or ""
            start = _find(answer, text, ends.get(text, 0))
            if not text.strip() or (start < 0 and text not in ends):
                raise Unscored("judge_unreadable", f"the detector quotes {text[:80]!r}, not in the text")
            if start >= 0:
                ends[text] = start + len(text)
                spans.append((start, ends[text], kind.strip().lower()))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        problem = f"the detector's reply holds no list of spans: {reply[:200]!r}"
        raise Unscored("judge_unreadable", problem) from None
    return spans
