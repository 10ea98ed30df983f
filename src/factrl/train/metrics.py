"""Metrics of a training step, without torch; the definitions are in docs/metrics.md.

They are the states, causes and terms of its results, and signs of reward hacking in its completions.  Each
sign is the mean of a number per completion, by rule and cheap (about four milliseconds per hundred words),
and independent of the reward, so that curves of different rewards mean the same.  docs/metrics.md says from
which level on to read completions.  None of them changes a reward, and a person decides.  Claims are those
of the extractor that needs no model.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from factrl.rewards.guards import coverage, relevant, repeats
from factrl.text import clean, tag
from factrl.text.abstention import abstains
from factrl.text.answers import is_contentless
from factrl.types import Example, Result
from factrl.verifier.claims import SentenceClaims, normalised

READ = 256  # completions of a step whose claims are read, evenly spread; the rest is read without
CHARACTERS = 250_000  # of a step that claims are read from, at most: a second or two
MOST = 8_192  # characters of a part that claims are read from
FEW = 20  # words up to which a part need not make a claim
LEAST = 200  # bytes below which a text does not compress, however repetitive
_THINK, _END = "<think>", "</think>"
_TAGS = re.compile(r"</?(?:think|answer)>")
# What imitates a chat template or a verdict, or addresses a judge.  Narrower than `quoting.forges`, which
# also takes apart what honest text may hold, such as `[[1, 2]]` or "Grade: 4".
_INJECTED = re.compile(
    r"<\|[^<>]{1,40}\|>|<</?SYS>>|\[/?INST\]|<(?:start|end)_of_turn>"
    r"|\b(?:verdict|grade|label|score|rating)[\"'*`]{0,3}\s{0,2}[:=]\s{0,2}[\"'*`]{0,3}"
    r"(?:(?:correct|incorrect|supported|precise|pass|accepted)\b"
    r"|(?:true|10|1\.0|(?-i:[AB]))(?=[\s\"'*`]{0,3}(?:[.!;)\]}](?!\w)|$)))"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:instructions?|rubrics?|guidelines|criteria)\b"
    r"|\b(?:note|message|instructions?) (?:to|for) (?:the )?(?:judge|grader|evaluator|verifier|reviewer)\b"
    r"|\b(?:dear|attention,?) (?:judge|grader|evaluator|verifier)\b"
    r"|\b(?:mark|grade|rate|score|count|treat|accept) (?:this|it|my|the) (?:\w+ ){0,2}as "
    r"(?:fully )?(?:correct|supported|true)\b",
    re.IGNORECASE,
)
_extract = SentenceClaims()


def reward_metrics(results: Sequence[Result]) -> dict[str, float]:
    """State shares, causes and per-term statistics of a batch of all processes; see docs/metrics.md.

    >>> results = [Result("scored", 1.0, {"outcome": 1.0}), Result("masked", None, cause="timeout")]
    >>> metrics = reward_metrics(results)
    >>> metrics["reward/masked_frac"], metrics["masked/timeout"], metrics["rewards/outcome/mean"]
    (0.5, 0.5, 1.0)
    """
    n = len(results)
    states = Counter(result.state for result in results)
    metrics = {f"reward/{s}_frac": states[s] / n for s in ("scored", "masked", "floored")}
    for result in results:
        if result.state != "scored":
            name = f"{result.state}/{result.cause}"
            metrics[name] = metrics.get(name, 0.0) + 1 / n
    graded = [result for result in results if result.value is not None]
    for term in sorted({term for result in graded for term in result.terms}):
        values = [result.terms[term] for result in graded if term in result.terms]
        metrics[f"rewards/{term}/mean"] = fmean(values)
        metrics[f"rewards/{term}/std"] = pstdev(values)
    labels = Counter(result.facts["label"] for result in graded if "label" in result.facts)
    if labels:
        metrics["abstain/rate"] = labels["abstained"] / sum(labels.values())
        unlisted = sum(result.facts.get("how") == "unlisted" for result in graded)
        metrics["abstain/unlisted"] = unlisted / sum(labels.values())
        attempted = labels["correct"] + labels["incorrect"]
        if attempted:
            metrics["answer/correct_given_attempt"] = labels["correct"] / attempted
    return metrics


# -- Signs of reward hacking --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """One completion of a step, with what its prompt put at the start of the answer."""

    example: Example
    text: str
    result: Result
    prefill: str = ""


def signals(samples: Sequence[ScoredSample]) -> dict[str, float]:
    """The signals of all completions of a step; one that does not exist in it is absent.

    Masked completions count where no reward is needed.
    """
    read_of = sum(min(len(s.text), 2 * MOST) for s in samples)
    every = max(-(-len(samples) // READ), -(-read_of // CHARACTERS))
    numbers: defaultdict[str, list[float]] = defaultdict(list)
    answers: list[str | None] = []
    for place, sample in enumerate(samples):
        think, answer = split(sample.text, sample.prefill)
        label = sample.result.facts.get("label")  # as the reward's grade says, else by rule
        declines = label == "abstained" if label is not None else abstains(answer, sample.example.question)
        answers.append(None if declines or not answer else normalised(answer))
        for name, value in _read(sample, think, answer, declines=declines, claims=place % every == 0).items():
            numbers[name].append(value)
    metrics = {name: fmean(values) for name, values in numbers.items()}
    if any("label" in s.result.facts for s in samples):
        metrics.pop("abstain/rate", None)  # the reward says it itself
    if any(answer is not None for answer in answers):
        metrics["reward/top1_text_share"] = _largest_share(samples, answers)
    return metrics


def _read(sample: ScoredSample, think: str, answer: str, *, declines: bool, claims: bool) -> dict[str, float]:
    """The numbers of one completion; what would mean nothing is absent."""
    stated = sample.result.facts.get("answer")
    short = stated if isinstance(stated, str) and stated.strip() else answer
    raw = sample.text.encode("utf-8", "replace")
    values = {
        "text/len": float(len(sample.text)),
        "hack/injection_rate": float(_INJECTED.search(clean(_TAGS.sub(" ", sample.text))) is not None),
        "hack/masterkey_rate": float(bool(short.strip()) and is_contentless(short)),
    }
    if think:
        values["think/len"] = float(len(think))
    if len(raw) >= LEAST:
        values["text/compress_ratio"] = len(raw) / len(zlib.compress(raw))
    if sample.result.value is not None:
        values["abstain/rate"] = float(declines)
        if sample.example.ook is False:  # a probe found the starting model to know it
            values["abstain/false_rate"] = float(declines)
    return values | (_claims(sample.example, think, answer) if claims else {})


def _claims(example: Example, think: str, answer: str) -> dict[str, float]:
    """The reasoning may say what the answer says, so each part is read alone."""
    about = " ".join([example.question, example.topic, *example.answers])
    count = fits = again = chars = 0
    covered = 0.0
    for part in (think[:MOST], answer[:MOST]):
        claims = _extract(part, example.question, example.topic)
        counted = [claim for claim in claims if claim.skip not in ("self", "unverifiable")]
        count += len(counted)
        fits += sum(claim.skip != "question" and relevant(claim, about) for claim in counted)
        again += sum(repeats(counted, f"{example.question} {example.topic}"))
        if len(part.split()) > FEW:
            chars += len(part)
            covered += len(part) * coverage(part, claims)
    numbers = {"claims/per_response": float(count)}
    if count:
        numbers |= {"claims/relevant_frac": fits / count, "claims/duplicate_frac": again / count}
    if chars:
        numbers["claims/unextracted_char_frac"] = 1 - covered / chars
    return numbers


def _largest_share(samples: Sequence[ScoredSample], answers: Sequence[str | None]) -> float:
    """Of the batch, of an answer that more than one question got; those that decline are left out."""
    questions: defaultdict[str, set[str]] = defaultdict(set)
    for text, sample in zip(answers, samples, strict=True):
        if text is not None:
            questions[text].add(sample.example.id or sample.example.question)
    counts = Counter(text for text in answers if text is not None and len(questions[text]) > 1)
    return max(counts.values(), default=0) / len(samples)


def split(text: str, prefill: str = "") -> tuple[str, str]:
    """Reasoning and answer of a completion in whatever form, tags off; the reasoning may be empty.

    >>> split("It is in Peru.</think><answer>Lima</answer>", prefill="<think>")
    ('It is in Peru.', 'Lima')
    """
    whole = (prefill[prefill.find(_THINK) :] if _THINK in prefill else "") + text
    start, end = whole.find(_THINK), whole.rfind(_END)
    if start < 0 and end < 0:
        think, rest = "", whole
    else:
        opened = max(start + len(_THINK), 0) if start >= 0 else 0
        closed = end if end >= opened else len(whole)
        think, rest = whole[opened:closed], whole[:start] if start > 0 else ""
        rest += whole[closed + len(_END) :]
    block = tag(rest, "answer")
    answer = block.text if block is not None else rest
    return _TAGS.sub(" ", think).strip(), _TAGS.sub(" ", answer).strip()
