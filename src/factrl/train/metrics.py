"""What a batch of results says in numbers; the definitions are in docs/metrics.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, pstdev

from factrl.types import Result


def reward_metrics(results: Sequence[Result]) -> dict[str, float]:
    """State shares, causes and per-term statistics of one batch; see docs/metrics.md.

    Args:
        results: one or more; those of all processes, since a share of one process's is not a share of all.
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
        attempted = labels["correct"] + labels["incorrect"]
        if attempted:
            metrics["answer/correct_given_attempt"] = labels["correct"] / attempted
    return metrics
