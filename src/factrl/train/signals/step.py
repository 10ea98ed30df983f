"""The completions of one step as numbers; what each is, docs/metrics.md says.

A signal is the mean of a number per completion, or of what those numbers are together.  The numbers per
completion are kept, since they say which completions an alarm is about.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from factrl.train.signals.reading import MOST, Reading, read
from factrl.types import Example, Result
from factrl.verifier.claims.marks import normalised

READ = 256  # completions of a step whose claims are read, evenly spread; the rest is read without
CHARACTERS = 250_000  # of a step that claims are read from, at most: a second or two
SOURCES = ("source", "data_source", "dataset")  # columns that say where a question is from
_HASHES, _SHINGLE = 64, 3
_SEED = 20_260_101
Values = list[float | None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a step, as every trainer has it.

    Attributes:
        prefill: text that the prompt already put at the start of the answer.
    """

    example: Example
    text: str
    result: Result
    prefill: str = ""


@dataclass(frozen=True)
class Signals:
    """What a step is like.

    Attributes:
        metrics: name -> value; one that does not exist in this step is absent.
        values: name -> number per sample, None where it has none; of everything that can raise an alarm.
        samples: whose numbers they are.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, Values] = field(default_factory=dict)
    samples: Sequence[Sample] = ()


def signals(samples: Sequence[Sample], *, by_source: bool = True) -> Signals:
    """The signals of one step.

    Args:
        samples: all completions of the step, of all processes.  Masked ones count where no reward is needed.
        by_source: also the share of masked ones of every source.
    """
    if not samples:
        return Signals()
    read_of = sum(min(len(s.text), 2 * MOST) for s in samples)
    every = max(-(-len(samples) // READ), -(-read_of // CHARACTERS))
    reads = [
        read(s.example, s.text, s.result, s.prefill, claims=n % every == 0) for n, s in enumerate(samples)
    ]
    values: dict[str, Values] = {
        "claims/per_response": [r.claims for r in reads],
        "claims/relevant_frac": [r.relevant for r in reads],
        "claims/duplicate_frac": [r.duplicate for r in reads],
        "claims/unextracted_char_frac": [r.unextracted for r in reads],
        "text/len": [float(len(s.text)) for s in samples],
        "think/len": [float(len(r.think)) if r.think else None for r in reads],
        "text/compress_ratio": [r.compress for r in reads],
        "hack/injection_rate": [float(r.injects) for r in reads],
        "hack/invisible_char_rate": [float(r.invisible) for r in reads],
        "hack/masterkey_rate": [float(r.master_key) for r in reads],
        "abstain/false_rate": [_false(s, r) for s, r in zip(samples, reads, strict=True)],
        "text/cross_prompt_similarity": _similarity(samples, reads),
        "reward/top1_text_share": _shares(samples, reads),
    }
    metrics = {name: fmean(kept) for name, numbers in values.items() if (kept := _kept(numbers))}
    if shares := _kept(values["reward/top1_text_share"]):
        metrics["reward/top1_text_share"] = max(shares)
    values["abstain/rate"] = _abstains(samples, reads)
    if all("label" not in s.result.facts for s in samples) and (kept := _kept(values["abstain/rate"])):
        metrics["abstain/rate"] = fmean(kept)  # the reward does not say, so nobody else logs it
    values["reward/masked_frac"], groups = _masked(samples, by_source)
    values |= groups
    shares = {name: fmean(_kept(numbers)) for name, numbers in groups.items()}
    return Signals({**metrics, **shares}, values, samples)


def _kept(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def _abstains(samples: Sequence[Sample], reads: Sequence[Reading]) -> Values:
    """Of the graded ones."""
    pairs = zip(samples, reads, strict=True)
    return [None if s.result.value is None else float(r.declines) for s, r in pairs]


def _false(sample: Sample, reading: Reading) -> float | None:
    """Whether it declines what a probe found the starting model to know."""
    known = sample.example.ook is False and sample.result.value is not None
    return float(reading.declines) if known else None


def _asked(sample: Sample) -> str:
    return sample.example.id or sample.example.question


# -- The same text for different questions ------------------------------------------------------------


def _shares(samples: Sequence[Sample], reads: Sequence[Reading]) -> Values:
    """For each answer its share of the batch: 0 where one question got it, None where it declines."""
    spelt = [None if r.declines or not r.answer else normalised(r.answer) for r in reads]
    counts = Counter(text for text in spelt if text is not None)
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for text, sample in zip(spelt, samples, strict=True):
        if text is not None:
            asked[text].add(_asked(sample))
    return [
        None if text is None else counts[text] / len(samples) if len(asked[text]) > 1 else 0.0
        for text in spelt
    ]


def _similarity(samples: Sequence[Sample], reads: Sequence[Reading]) -> Values:
    """For each answer its mean similarity to those of other questions; None where it declines."""
    import numpy as np

    every = -(-len(reads) // READ)
    places = [n for n, r in enumerate(reads) if r.answer and not r.declines and n % every == 0]
    found: Values = [None] * len(reads)
    if len({_asked(samples[n]) for n in places}) < 2:
        return found
    known: dict[str, int] = {}
    group = np.array([known.setdefault(_asked(samples[n]), len(known)) for n in places])
    signs = np.stack([_minhash(reads[n].answer) for n in places])  # (N, K)
    for row, place in enumerate(places):
        others = group != group[row]
        found[place] = float((signs[others] == signs[row]).mean())
    return found


def _minhash(text: str) -> Any:
    """(K,) smallest hashes of the runs of three words; equal shares estimate Jaccard's similarity.

    Broder, "On the resemblance and containment of documents" (1997); the hashes are multiply-shift.
    """
    import numpy as np

    words = normalised(text).split()
    runs = {" ".join(words[i : i + _SHINGLE]) for i in range(max(1, len(words) - _SHINGLE + 1))}
    hashes = np.array([zlib.crc32(run.encode("utf-8", "replace")) for run in runs], dtype=np.uint64)
    rng = np.random.default_rng(_SEED)
    odd = rng.integers(0, 2**62, _HASHES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return ((hashes[:, None] * odd[None, :]) >> np.uint64(32)).min(axis=0)


# -- What is masked -----------------------------------------------------------------------------------


def _masked(samples: Sequence[Sample], by_source: bool) -> tuple[Values, dict[str, Values]]:
    """Which are masked, and the same of each quarter of length and source, unless none is."""
    masked: Values = [float(s.result.state == "masked") for s in samples]
    if not any(masked):
        return masked, {}
    order = sorted(range(len(samples)), key=lambda n: len(samples[n].text))
    groups = {
        f"q{quarter + 1}": order[quarter * len(order) // 4 : (quarter + 1) * len(order) // 4]
        for quarter in range(4)
    }
    of_source: defaultdict[str, list[int]] = defaultdict(list)
    for n, sample in enumerate(samples):
        if by_source and (source := source_of(sample.example)):
            of_source[f"from/{source}"].append(n)
    if len(of_source) > 1:
        groups |= of_source
    found = {f"reward/masked_frac/{name}": {*places} for name, places in groups.items() if places}
    every = range(len(samples))
    return masked, {name: [masked[n] if n in part else None for n in every] for name, part in found.items()}


def source_of(example: Example) -> str:
    """Where a question is from, as a column `source`, `data_source` or `dataset` says; else empty."""
    for name in SOURCES:
        told = example.meta.get(name)
        if isinstance(told, str) and told:
            return told[:40]
    return ""
