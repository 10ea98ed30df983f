"""Judges in this process: a small language model, read by its log-probabilities, cross-encoders, and words.

The language model is shown a claim and the sentences of the evidence that bear on it, and is not asked to
write: what counts is how likely `Yes`, `No` and `Unknown` are as its next word.  These ranks are good and
their natural thresholds are not (notebook/judges.md), so a calibration fitted on human labels turns them,
with the plain comparison of words, into the probability that the claim is supported.  It is computed with
8-bit integers where torch is installed and the processor multiplies them (`factrl.llm.local.int8`, 0.7
seconds of a CPU for a claim), and by llama.cpp elsewhere (2 to 4).  The prompt is in ChatML, which Qwen and
SmolLM2 speak.

A cross-encoder (NLI- or HHEM-style) gives one score per passage and claim, without a prompt.  A
claim is as supported as its best passage makes it; passages are not joined, because these models are trained
on one short premise.

`WeakJudge` compares words, for machines without a model, and its verdicts are no verification.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, repeat
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factrl.errors import LLMError
from factrl.llm.quoting import broken
from factrl.runs.rows import read_rows
from factrl.types import Claim, Passage, Verdict, VerdictLabel
from factrl.verifier.judges.llm import unjudged
from factrl.verifier.judges.overlap import (
    ENOUGH,
    Overlap,
    Piece,
    apart,
    best_pieces,
    compare,
    lacks,
    quote_of,
)

if TYPE_CHECKING:
    import numpy as np

    from factrl.llm.local.classifiers import CrossEncoder

ANSWERS = ("Yes", "No", "Unknown")
EVIDENCE = 450
"""Characters of evidence that are shown for one claim: on a CPU every word costs time."""
ABOUT = 0.2
"""Share of a claim's words that one place of the evidence has to hold to be about the same thing."""
READS = 1.05
"""Tokens a character up to which the model reads a text; one in a script that its tokenizer has no words of
takes more, and is not understood (docs/verify.md)."""
ALONE = 3
"""Passages that a claim is held against, one at a time."""
_MAX_CLAIM = 1_000  # characters; more than any sentence
_TURN_ENDS = "<|im_end|>\n<|im_start|>assistant\n"
_Pairs = Sequence[tuple[Claim, Sequence[Passage]]]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Weights that turn features into probabilities: two logistic regressions, fitted on human labels.

    The first says how probable it is that the evidence supports the claim; the second, among the claims that
    it does not support, how probable it is that it refutes them.  Two instead of one over three classes,
    because most human labels only say "not supported", and these can then be used for the first.
    `benchmarks/verifier.py` fits them with scikit-learn; the file in `calibrations` says on which data.
    """

    features: tuple[str, ...]  # their names, in the order of all below
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    supported: Mapping[str, Any]  # `weights` and `bias`
    refuted: Mapping[str, Any]

    @property
    def identity(self) -> str:
        return _digest(json.dumps(asdict(self), sort_keys=True))

    def decide(self, features: Mapping[str, float]) -> tuple[VerdictLabel, float]:
        """The label and the probability of support: supported from 0.5 on, below it refuted or unknown."""
        row = [
            (features[name] - mean) / scale
            for name, mean, scale in zip(self.features, self.mean, self.scale, strict=True)
        ]
        supported, refuted = (
            0.5 + 0.5 * math.tanh((line["bias"] + math.fsum(map(mul, line["weights"], row))) / 2.0)
            for line in (self.supported, self.refuted)
        )
        if supported >= 0.5:
            return "supported", supported
        return ("refuted" if refuted >= 0.5 else "unknown"), supported

    @classmethod
    def shipped(cls) -> Calibration:
        """The one that comes with factrl: of the default model and this prompt."""
        value = json.loads((Path(__file__).parent / "calibrations" / "local.json").read_text("utf-8"))
        return cls(*(value[field.name] for field in fields(cls)))


class LetterModel(Protocol):
    """What `factrl.llm.local.llama.LlamaModel` and `factrl.llm.local.int8.Int8Model` are."""

    @property
    def identity(self) -> str: ...

    def letter_logprobs(
        self, prefix: str, prompts: Sequence[str], letters: Sequence[str] = ..., *, suffix: str = ""
    ) -> np.ndarray:
        """Log-probabilities of each letter as the next token, of all words or of the letters alone.

        Returns:
            (prompts, letters); NaN for a prompt that is too long.
        """
        ...

    def tokens(self, text: str) -> int:
        """How many tokens a text is."""
        ...


class LocalJudge:
    """A `Judge` that reads the probabilities of a language model in this process, by default of the one that
    factrl downloads, Qwen2.5-Coder-1.5B-Instruct.

    Raises:
        ModelError, MissingExtra: the default model cannot be had.
    """

    weak = False
    per_call = 32
    alone = ALONE

    def __init__(self, model: LetterModel | None = None) -> None:
        self._prefix = _prefix()
        self.model = _fastest(self._prefix) if model is None else model
        self.calibration = Calibration.shipped()
        self.identity = (
            f"local {self.model.identity} prompt={prompt_digest()} calibration={self.calibration.identity} "
            f"evidence={EVIDENCE} about={ABOUT} reads={READS} apart={ALONE} words=4"
        )

    def judge(self, pairs: _Pairs) -> list[Verdict]:
        """A verdict for every pair, in their order: that of the passage that supports the claim most.

        A claim is held against at most `ALONE` passages, those with most of its words, each on its own, and
        against nothing that only two of them say together.

        A claim that does not fit into the model's context is `unjudged` with the cause `too_long`; when the
        model fails, all are.  One whose evidence the model cannot read is `unknown` with the cause
        `unread_language`, and one that it cannot read itself with `unread_claim`, which is the text's own
        doing: neither is masked.
        """
        held = [
            [(claim.text, one) for one in apart(claim.text, passages, ALONE)] for claim, passages in pairs
        ]
        shown = [_evidence(*one) for own in held for one in own]
        try:
            rows = iter(self._rows(shown))
        except LLMError as error:
            rows = repeat(unjudged(self.identity, error))
        nothing = Verdict("unknown", self.identity, cause="no_evidence")
        verdicts = []
        for own in held:
            own_verdicts = [self._verdict(*one, next(rows)) for one in own]
            verdicts.append(max(own_verdicts, key=_rank, default=nothing))
        return verdicts

    def logprobs(self, held: Sequence[tuple[str, Sequence[Piece]]]) -> list[list[float]]:
        """How likely each of `ANSWERS` is for each claim with the sentences of its evidence."""
        return self._ask([_evidence(*one) for one in held])

    def _rows(self, questions: Sequence[tuple[str, str]]) -> list[Verdict | Sequence[float]]:
        unread = [self._unread(*texts) for texts in questions]
        read = [index for index, verdict in enumerate(unread) if verdict is None]
        rows = dict(zip(read, self._ask([questions[index] for index in read]), strict=True))
        return [verdict or rows[index] for index, verdict in enumerate(unread)]

    def _unread(self, evidence: str, claim: str) -> Verdict | None:
        why = "the judge does not read this language"
        for shown, cause in ((evidence, "unread_language"), (claim, "unread_claim")):
            if not shown.isascii() and self.model.tokens(shown) > READS * len(shown):
                return Verdict("unknown", self.identity, why=why, cause=cause)
        return None

    def _ask(self, questions: Sequence[tuple[str, str]]) -> list[list[float]]:
        if not questions:
            return []
        prompts = [_turn(*texts) for texts in questions]
        return self.model.letter_logprobs(self._prefix, prompts, ANSWERS, suffix=_TURN_ENDS).tolist()

    def _verdict(self, claim: str, pieces: Sequence[Piece], row: Verdict | Sequence[float]) -> Verdict:
        """What one passage says of a claim."""
        if isinstance(row, Verdict):
            return row
        if any(map(math.isnan, row)):
            return Verdict("unjudged", self.identity, cause="too_long")
        overlap = compare(claim, pieces)
        label, p = self.calibration.decide(features_of(overlap, row))
        if label == "refuted" and overlap[0]["covered_best"] < ABOUT:
            label = "unknown"  # silence refutes nothing
        facts = {answer.lower(): round(value, 3) for answer, value in zip(ANSWERS, row, strict=True)}
        return Verdict(label, self.identity, p=p, quote=overlap[1], facts=facts)


def _rank(verdict: Verdict) -> tuple[int, float]:
    """Of the verdicts of a claim's passages the highest counts: supported, then without verdict, refuted, and
    unknown; of two with one label the surer."""
    order = ("unknown", "refuted", "unjudged", "supported")
    p = verdict.p if verdict.p is not None else -1.0
    return order.index(verdict.label), -p if verdict.label == "refuted" else p


def _fastest(prefix: str) -> LetterModel:
    """The model that factrl downloads, by 8-bit integers where these can be multiplied, else by llama.cpp."""
    try:
        from factrl.llm.local import int8

        if int8.available():
            return int8.shared_model(prefix)
    except ImportError:  # torch is not installed, or a part of it
        pass
    from factrl.llm.local import llama

    return llama.shared_model()


def features_of(overlap: Overlap, row: Sequence[float]) -> dict[str, float]:
    """The log-odds of the answers beside the comparison of words.

    `supports` is log P(Yes) - log P(No or Unknown), `contradicts` is log P(No) - log P(Unknown).
    """
    yes, no, unknown = row
    return {
        "supports": yes - (max(no, unknown) + math.log1p(math.exp(-abs(no - unknown)))),
        "contradicts": no - unknown,
        **overlap[0],
    }


def prompt_digest() -> str:
    """A hash of the instructions and examples; weights fitted under another one do not hold."""
    return _digest(_prefix())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _evidence(claim: str, pieces: Sequence[Piece]) -> tuple[str, str]:
    """What is shown of the evidence, and of the claim, as JSON strings."""
    evidence = _shown(best_pieces(claim, pieces, EVIDENCE))[: 2 * EVIDENCE]
    return _quoted(evidence), _quoted(claim[:_MAX_CLAIM])


def _shown(pieces: Sequence[Piece]) -> str:
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
        turn = _turn(_quoted(shot["evidence"]), _quoted(shot["claim"]))
        parts.append(f"<|im_start|>user\n{turn}{_TURN_ENDS}{shot['answer']}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>user\n"


def _turn(evidence: str, claim: str) -> str:
    """One question; both texts are JSON strings, so that neither can pass for the other or for an answer."""
    return f"Evidence: {evidence}\nClaim: {claim}"


def _quoted(text: str) -> str:
    """On one line, without what draws nothing, letters as they are usually written, and no markup in it."""
    return json.dumps(" ".join(broken(text).split()), ensure_ascii=False)


class WeakJudge:
    """A `Judge` that counts words in the passages that are about a claim's subject, each on its own.

    A claim is `refuted` only when a sentence covers it but for another number or a negation, and its passage
    has all of the claim's names, so that it is about the same thing; `supported` when one passage holds
    `ENOUGH` of its words, lacks none of its names and numbers and has no other in their place; else
    `unknown`.
    """

    weak = True
    per_call = 256
    alone = ALONE
    identity = f"weak word overlap/3 covered>={ENOUGH} apart={ALONE}"

    def judge(self, pairs: _Pairs) -> list[Verdict]:
        """A verdict for every pair; without evidence `unknown` with the cause `no_evidence`."""
        nothing = Verdict("unknown", self.identity, cause="no_evidence")
        verdicts = []
        for claim, passages in pairs:
            own = (self._verdict(claim.text, one) for one in apart(claim.text, passages, ALONE))
            verdicts.append(max(own, key=_rank, default=nothing))
        return verdicts

    def _verdict(self, claim: str, pieces: Sequence[Piece]) -> Verdict:
        features, quote = compare(claim, pieces)
        why = lacks(features)
        supported = not why and features["covered"] >= ENOUGH
        refuted = features["conflict"] and not features["missing_names"]
        label = "refuted" if refuted else "supported" if supported else "unknown"
        return Verdict(label, self.identity, quote=quote, why=why)


class NLIJudge:
    """A `Judge` by thresholds on a cross-encoder's probabilities; all passages of all claims go in at once.

    A claim is supported when a passage reaches `threshold_supported`, and refuted when none does and one
    reaches `threshold_refuted`.  When two passages disagree, the surer one counts.

    Args:
        cross_encoder: its `scores` are of (premise, hypothesis) pairs, of the shape (N, 3) with
            the columns supported, refuted, unknown.
        threshold_supported, threshold_refuted: probability from which on; None never says refuted.
        otherwise: the verdict when neither threshold is reached.
    """

    weak = False
    per_call = 256
    alone = ALONE

    def __init__(
        self,
        cross_encoder: CrossEncoder,
        threshold_supported: float = 0.5,
        threshold_refuted: float | None = 0.5,
        *,
        otherwise: VerdictLabel = "unknown",
    ) -> None:
        self.cross_encoder = cross_encoder
        self.threshold_supported = threshold_supported
        self.threshold_refuted = threshold_refuted
        self.otherwise: VerdictLabel = otherwise

    @property
    def refutes(self) -> bool:
        """Whether `refuted` is among its verdicts; a model whose labels are supported or not has two."""
        by_label = self.threshold_refuted is not None and "refuted" in self.cross_encoder.meanings
        return by_label or self.otherwise == "refuted"

    @property
    def identity(self) -> str:
        thresholds = f"supported>={self.threshold_supported} refuted>={self.threshold_refuted}"
        return f"nli {self.cross_encoder.identity} {thresholds} otherwise={self.otherwise}"

    def judge(self, pairs: _Pairs) -> list[Verdict]:
        """A verdict for every pair; `p` is the highest probability of support.

        A score that is no number leaves its claim `unjudged` with the cause `nan_score`.
        """
        shown = [[(n, p.text) for n, p in enumerate(passages) if p.text.strip()] for _, passages in pairs]
        own = [(claim.text, texts) for (claim, _), texts in zip(pairs, shown, strict=True)]
        questions = [(text, claim) for claim, texts in own for _, text in texts]
        rows = iter(self.cross_encoder.scores(questions).tolist() if questions else [])
        return [
            self._verdict(claim, passages, {number: next(rows) for number, _ in texts})
            for (claim, passages), texts in zip(pairs, shown, strict=True)
        ]

    def _verdict(
        self,
        claim: Claim,
        passages: Sequence[Passage],
        rows: Mapping[int, Sequence[float]],
    ) -> Verdict:
        if not rows:
            return Verdict("unknown", self.identity, cause="no_evidence")
        if any(map(math.isnan, chain.from_iterable(rows.values()))):
            return Verdict("unjudged", self.identity, cause="nan_score")
        for_it = max(rows, key=lambda number: rows[number][0])
        against = max(rows, key=lambda number: rows[number][1])
        p, q = rows[for_it][0], rows[against][1]
        supported = p >= self.threshold_supported
        refuted = self.threshold_refuted is not None and q >= self.threshold_refuted
        if refuted and not (supported and p >= q):
            label, decided = "refuted", against
        else:
            label, decided = ("supported" if supported else self.otherwise), for_it
        quote = quote_of(claim.text, [passages[decided]])
        facts: dict[str, Any] = {"supported": round(p, 4), "refuted": round(q, 4)}
        where = (decided, *quote[1:]) if quote else None
        return Verdict(label, self.identity, p=min(max(p, 0.0), 1.0), quote=where, facts=facts)
