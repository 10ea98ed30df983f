"""A small language model in this process as the judge: three answers, scored by their log-probabilities.

The model is shown a claim and the sentences of the evidence that bear on it, and is not asked to write: what
counts is how likely `Yes`, `No` and `Unknown` are as its next word.  These ranks are good and their natural
thresholds are not (docs/history.md), so a calibration fitted on human labels turns them, with the plain
comparison of words, into the probability that the claim is supported.

A claim takes 3 seconds of a CPU.  The prompt is written in ChatML, which Qwen and SmolLM2 speak.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factrl.errors import LLMError
from factrl.llm.quoting import broken
from factrl.runs.rows import read_rows
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.judges.calibration import Calibration
from factrl.verifier.judges.overlap import Overlap, Piece, best_pieces, compare, pieces_of

if TYPE_CHECKING:
    import numpy as np

ANSWERS = ("Yes", "No", "Unknown")
EVIDENCE = 450
"""Characters of evidence that are shown for one claim: on a CPU every word costs time."""
_MAX_CLAIM = 1_000  # characters; more than any sentence
_TURN_ENDS = "<|im_end|>\n<|im_start|>assistant\n"


class LetterModel(Protocol):
    """What `factrl.llm.local.llama.LlamaModel` is."""

    @property
    def identity(self) -> str: ...

    def letter_logprobs(
        self, prefix: str, prompts: Sequence[str], letters: Sequence[str] = ..., *, suffix: str = ""
    ) -> np.ndarray:
        """Log-probabilities of each letter as the next token: (prompts, letters); NaN for one too long."""
        ...


class LocalJudge:
    """Judges with a model in this process.

    Args:
        model: the model; by default the judge that factrl downloads, Qwen2.5-Coder-1.5B-Instruct.

    Attributes:
        identity: model, hash of the prompt, calibration and limit of the evidence.
        per_call: pairs that one call takes.
        weak: False.

    Raises:
        ModelError, MissingExtra: the default model cannot be had.
    """

    weak = False
    per_call = 32

    def __init__(self, model: LetterModel | None = None) -> None:
        if model is None:
            from factrl.llm.local.llama import shared_model

            model = shared_model()
        self.model = model
        self.calibration = Calibration.shipped("local")  # fitted with the default model and this prompt
        self._prefix = _prefix()
        self.identity = (
            f"local {model.identity} prompt={prompt_digest()} calibration={self.calibration.identity} "
            f"evidence={EVIDENCE}"
        )

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair, in their order.

        A claim without evidence is `unknown` with the cause `no_evidence`.  One that does not fit into the
        model's context is `unjudged` with the cause `too_long`; when the model fails, all are.
        """
        held = [(claim.text, pieces_of(passages)) for claim, passages in pairs]
        verdicts = [Verdict("unknown", self.identity, cause="no_evidence")] * len(held)
        asked = [index for index, (_, pieces) in enumerate(held) if pieces]
        try:
            rows = self._logprobs([held[index] for index in asked])
        except LLMError as error:
            failed = Verdict(
                "unjudged", self.identity, why=error.detail, cause=error.cause, facts=dict(error.facts)
            )
            return [
                failed if pieces else verdict for verdict, (_, pieces) in zip(verdicts, held, strict=True)
            ]
        for index, row in zip(asked, rows, strict=True):
            verdicts[index] = self._verdict(compare(*held[index]), row)
        return verdicts

    def features(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[dict[str, float] | None]:
        """What the calibration sees of pairs with evidence; None for one that is too long.

        Raises:
            LLMError: the model failed.
        """
        held = [(claim.text, pieces_of(passages)) for claim, passages in pairs]
        return [
            None if any(map(math.isnan, row)) else features_of(compare(*one), row)
            for one, row in zip(held, self._logprobs(held), strict=True)
        ]

    def _logprobs(self, held: Sequence[tuple[str, Sequence[Piece]]]) -> list[list[float]]:
        if not held:
            return []
        prompts = []
        for claim, pieces in held:
            shown = shown_pieces(best_pieces(claim, pieces, EVIDENCE))
            prompts.append(_turn(shown[: 2 * EVIDENCE], claim[:_MAX_CLAIM]))
        return self.model.letter_logprobs(self._prefix, prompts, ANSWERS, suffix=_TURN_ENDS).tolist()

    def _verdict(self, overlap: Overlap, row: Sequence[float]) -> Verdict:
        if any(map(math.isnan, row)):
            return Verdict("unjudged", self.identity, cause="too_long")
        label, p = self.calibration.decide(features_of(overlap, row))
        facts: dict[str, Any] = {
            answer.lower(): round(value, 3) for answer, value in zip(ANSWERS, row, strict=True)
        }
        return Verdict(label, self.identity, p=p, quote=overlap.quote, facts=facts)


def features_of(overlap: Overlap, row: Sequence[float]) -> dict[str, float]:
    """The log-odds of the answers beside the comparison of words.

    `supports` is log P(Yes) - log P(No or Unknown), `contradicts` is log P(No) - log P(Unknown).
    """
    yes, no, unknown = row
    return {
        "supports": yes - (max(no, unknown) + math.log1p(math.exp(-abs(no - unknown)))),
        "contradicts": no - unknown,
        **overlap.features,
    }


def prompt_digest() -> str:
    """A hash of the instructions and examples; weights fitted under another one do not hold."""
    return hashlib.sha256(_prefix().encode()).hexdigest()[:12]


def shown_pieces(pieces: Sequence[Piece]) -> str:
    """The sentences as one text, the title before the first of each passage: it may say whom "she" means."""
    parts: list[str] = []
    last = -1
    for piece in pieces:
        parts += [f"{piece.title.strip()}:"] if piece.passage != last and piece.title.strip() else []
        parts.append(piece.text)
        last = piece.passage
    return " ".join(parts)


def _prefix() -> str:
    """Instructions and examples, as a chat up to where the next question begins."""
    system, *shots = read_rows(str(Path(__file__).parent / "prompts" / "local.jsonl"))
    parts = [f"<|im_start|>system\n{system['system']}<|im_end|>\n"]
    for shot in shots:
        turn = _turn(shot["evidence"], shot["claim"])
        parts.append(f"<|im_start|>user\n{turn}{_TURN_ENDS}{shot['answer']}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>user\n"


def _turn(evidence: str, claim: str) -> str:
    """One question; both texts are JSON strings, so that neither can pass for the other or for an answer."""
    return f"Evidence: {_quoted(evidence)}\nClaim: {_quoted(claim)}"


def _quoted(text: str) -> str:
    return json.dumps(" ".join(broken(text).split()), ensure_ascii=False)
