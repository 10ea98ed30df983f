"""What models tuned on labelled rows are worth: probabilities of claims, and replies of the two others.

Every number has a percentile bootstrap interval over documents, because claims of one document stand or fall
together.  Expected calibration error is over ten bins of equal width of the probability of *true*: the mean
over claims of |mean probability - share of true claims| of their bin (Naeini et al. 2015, AAAI).  The
temperature divides logits so that the held-out likelihood is greatest (Guo et al. 2017, arXiv:1706.04599).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from factrl.evals.metrics import Interval, bootstrap, ratio
from factrl.rewards.checklist import Item
from factrl.runs.journal import Journal
from factrl.train.tuning.labelled import ANSWERS, Lesson, Split
from factrl.train.tuning.labelled_settings import Method
from factrl.verifier.claims.marks import normalised

BINS = 10
METRICS = ("accuracy", "macro_f1", "auc", "ece", "brier")
UNTUNED, TUNED = "untuned", "tuned"
SAME_CLAIM = 0.8  # F1 of the words from which two claims count as the same
_LABELS: tuple[str, ...] = get_args(Item)
_COLDEST, _HOTTEST = 0.05, 20.0

Floats = NDArray[np.float64]


def truth_numbers(split: Split, journal: Journal, temperature: float, seed: int) -> dict[str, Any]:
    """Numbers of the report's claims before and after, beside those of always giving the share of true ones.

    Returns:
        `temperature`, `not_scored` and `sets`, name -> metric -> interval or None where it is undefined.
    """
    scored = [(row, journal[f"{TUNED} {row.id}"]["logit"]) for row in split.report]
    rows = [row for row, logit in scored if logit is not None]
    tuned = np.array([logit for _, logit in scored if logit is not None], dtype=np.float64)
    share = sum(row.reply == ANSWERS[0] for row in split.train) / len(split.train)
    untuned = np.array([journal[f"{UNTUNED} {row.id}"]["logit"] for row in rows], dtype=np.float64)
    sets = {
        "majority": np.full(len(rows), share),
        UNTUNED: _sigmoid(untuned),
        TUNED: _sigmoid(tuned),
        "tuned, scaled": _sigmoid(tuned / temperature),
    }
    true, groups = [row.reply == ANSWERS[0] for row in rows], [row.group for row in rows]
    numbers = {}
    for name, values in sets.items():
        found = reliability(values, true, groups, seed=seed) if rows else dict.fromkeys(METRICS)
        numbers[name] = {metric: interval and asdict(interval) for metric, interval in found.items()}
    return {"temperature": temperature, "not_scored": len(scored) - len(rows), "sets": numbers}


def temperature_of(rows: Sequence[Lesson], journal: Journal) -> float:
    """1 where the claims to fit it on are of one class."""
    scored = [(journal[f"{TUNED} {row.id}"]["logit"], row.reply == ANSWERS[0]) for row in rows]
    kept = [(logit, true) for logit, true in scored if logit is not None]
    if len({true for _, true in kept}) < 2:
        return 1.0
    return fit_temperature([logit for logit, _ in kept], [true for _, true in kept])


def _sigmoid(logits: Floats) -> Floats:
    """Probabilities of logits, without overflow."""
    return 0.5 + 0.5 * np.tanh(logits / 2)


def fit_temperature(logits: Sequence[float], true: Sequence[bool]) -> float:
    """What logits have to be divided by for the greatest likelihood, between 0.05 and 20.

    The negative log-likelihood is convex in 1 / temperature, so thirds of the interval find its minimum.
    """
    z, y = np.asarray(logits, dtype=np.float64), np.where(np.asarray(true), 1.0, -1.0)
    low, high = 1 / _HOTTEST, 1 / _COLDEST
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if np.logaddexp(0, -y * z * a).sum() <= np.logaddexp(0, -y * z * b).sum():
            high = b
        else:
            low = a
    return 2 / (low + high)


def reliability(
    probabilities: ArrayLike,
    true: Sequence[bool],
    groups: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = 1_000,
) -> Mapping[str, Interval | None]:
    """All `METRICS` of the probabilities of some claims to be true; None where one is undefined.

    Args:
        true: whether each claim is.
        groups: the document of each, what is drawn in the bootstrap.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(true, dtype=bool)
    _, member = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    count = int(member.max()) + 1
    values = _metrics(p, y, np.ones(len(p)))
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
    found = np.array([_metrics(p, y, weights[member]) for weights in drawn])
    metrics: dict[str, Interval | None] = {}
    for column, name in enumerate(METRICS):
        kept = found[~np.isnan(found[:, column]), column]
        defined = len(kept) > 0 and not math.isnan(values[column])
        low, high = np.quantile(kept, [0.025, 0.975]) if defined else (0.0, 0.0)
        metrics[name] = Interval(values[column], float(low), float(high)) if defined else None
    return metrics


def _metrics(p: Floats, y: NDArray[np.bool_], w: Floats) -> tuple[float, ...]:
    """The numbers of `METRICS`, each claim counted `w` times; NaN where one is undefined."""
    total = w.sum()
    said = p >= 0.5
    scores = []
    for label in (True, False):
        hit = w[(said == label) & (y == label)].sum()
        both = w[said == label].sum() + w[y == label].sum()
        scores.append(2 * hit / both if both else 0.0)
    place = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    gaps = np.abs(np.bincount(place, w * (p - y), BINS))
    return (
        float(w[said == y].sum() / total),
        float(np.mean(scores)),
        _auc(p, y, w),
        float(gaps.sum() / total),
        float((w * (p - y) ** 2).sum() / total),
    )


def _auc(p: Floats, y: NDArray[np.bool_], w: Floats) -> float:
    """P(a true claim's probability is above a false one's), ties half; NaN without both classes."""
    _, level = np.unique(p, return_inverse=True)
    true, false = np.bincount(level, w * y), np.bincount(level, w * ~y)
    if not true.sum() or not false.sum():
        return math.nan
    below = np.cumsum(false) - false
    return float((true * (below + false / 2)).sum() / (true.sum() * false.sum()))


def reply_numbers(method: Method, split: Split, journal: Journal, seed: int) -> dict[str, Any]:
    """Numbers of the report's replies: `metrics`, an interval or None each, and `unreadable` by cause."""
    checks = method == "checklist-verifier"
    rows = [(lesson, journal[lesson.id]) for lesson in split.report]
    unreadable = Counter(row["unreadable"] for _, row in rows if "unreadable" in row)
    readable = [(lesson, row["said"]) for lesson, row in rows if "said" in row]
    count, statistics = (_label_counts, _LABEL_NUMBERS) if checks else (claim_counts, _CLAIM_NUMBERS)
    groups: dict[str, Floats] = {}
    for lesson, said in readable:
        groups[lesson.group] = groups.get(lesson.group, 0) + count(lesson, said)
    values = np.array([*groups.values()], dtype=np.float64)
    found = {
        name: bootstrap(values, one, seed, n=2_000) if readable else None for name, one in statistics.items()
    }
    if checks and readable:
        common = Counter(label for lesson in split.train for label in lesson.labels).most_common(1)[0][0]
        column = _LABELS.index(common)
        found[f"always_{common}"] = bootstrap(
            values,
            lambda m: ratio(m[:, 3 * column : 3 * column + 3].sum(axis=1), m.sum(axis=1)),
            seed,
            n=2_000,
        )
    metrics = {name: interval and asdict(interval) for name, interval in found.items()}
    return {"metrics": metrics, "unreadable": dict(unreadable)}


def _label_counts(lesson: Lesson, said: Sequence[str]) -> np.ndarray:
    """(3, 3) flattened: how often each true label was called each label."""
    found = np.zeros((3, 3))
    for true, word in zip(lesson.labels, said, strict=True):
        found[_LABELS.index(true), _LABELS.index(word)] += 1
    return found.ravel()


def claim_counts(lesson: Lesson, said: Sequence[str]) -> np.ndarray:
    """Claims in common, claims said, claims wanted; each is matched with one other at most."""
    pairs = [(_overlap(a, b), i, j) for i, a in enumerate(said) for j, b in enumerate(lesson.told)]
    taken: set[tuple[str, int]] = set()
    common = 0
    for share, i, j in sorted(pairs, reverse=True):
        if share >= SAME_CLAIM and not {("said", i), ("told", j)} & taken:
            taken |= {("said", i), ("told", j)}
            common += 1
    return np.array([common, len(said), len(lesson.told)], dtype=np.float64)


def _overlap(one: str, other: str) -> float:
    """F1 of the words of two claims."""
    a, b = Counter(normalised(one).split()), Counter(normalised(other).split())
    common = sum((a & b).values())
    return 2 * common / (sum(a.values()) + sum(b.values())) if common else 0.0


def _macro_f1(means: Any) -> Any:
    cells = means.reshape(-1, 3, 3)
    hits = np.einsum("rii->ri", cells)
    both = cells.sum(axis=1) + cells.sum(axis=2)
    return np.divide(2 * hits, both, out=np.zeros_like(hits), where=both > 0).mean(axis=1)


_LABEL_NUMBERS = {
    "item_accuracy": lambda m: ratio(m[:, 0] + m[:, 4] + m[:, 8], m.sum(axis=1)),
    "macro_f1": _macro_f1,
    **{
        f"recall_{label}": (lambda m, n=n: ratio(m[:, 4 * n], m[:, 3 * n : 3 * n + 3].sum(axis=1)))
        for n, label in enumerate(_LABELS)
    },
}
_CLAIM_NUMBERS = {
    "claim_precision": lambda m: ratio(m[:, 0], m[:, 1]),
    "claim_recall": lambda m: ratio(m[:, 0], m[:, 2]),
    "claim_f1": lambda m: ratio(2 * m[:, 0], m[:, 1] + m[:, 2]),
}


def table(numbers: Mapping[str, Any]) -> list[list[str]]:
    """What `metrics.json` holds as rows of a table, the first of them its head."""
    if "sets" not in numbers:
        rows = [[name.replace("_", " "), _cell(one)] for name, one in numbers["metrics"].items()]
        return [["held-out documents", "value"], *rows]
    head = ["held-out documents", *(name.replace("_", "-") for name in METRICS)]
    return [head, *([name, *(_cell(one[m]) for m in METRICS)] for name, one in numbers["sets"].items())]


def _cell(interval: Mapping[str, float] | None) -> str:
    return str(Interval(**interval)) if interval else "undefined"


def told_of(numbers: Mapping[str, Any], folder: Path) -> str:
    """What to say under the table: of how many rows it is, and how the model is used."""
    rows, model = numbers["rows_used"], folder / "model"
    lines = [
        f"{rows['report']} rows of {rows['groups']} documents that were not learnt from; {rows['learnt']} "
        f"learnt in {numbers['steps']} steps"
    ]
    if "sets" in numbers:
        fitted = f"temperature {numbers['temperature']:.3g}, fitted on {rows['calibrate']} other claims"
        return "\n".join([*lines, fitted, f"use it: judge.truthfulness_model={model}"])
    unread = ", ".join(f"{count} {cause}" for cause, count in numbers["unreadable"].items()) or "none"
    lines.append(f"replies that could not be read: {unread}")
    return "\n".join([*lines, f"use it: serve {model} and name the server, judge.url=http://HOST/v1#NAME"])
