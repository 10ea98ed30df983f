"""What a verifier's probabilities are worth on labelled rows, as plain numbers for files and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from factrl.tuning.reliability import reliability
from factrl.tuning.verifier_rows import Pair

Numbers = Mapping[str, float | None]
_THREE = ("supported", "refuted", "unknown")


def numbers_of(rows: Sequence[Pair], odds: Sequence[tuple[float, float, float]]) -> dict[str, float | None]:
    """Numbers of rows with the probabilities of supported, refuted and unknown.

    Returns:
        `n`; `balanced` (mean recall of supported and not supported at 0.5); `auc` and `ece` of P(supported);
        `three_way` (mean recall of the three labels, over rows that say which).  None where a class is
        missing.

    Raises:
        ValueError: no rows, or lists of different length.
    """
    truth = np.array([row.label == "supported" for row in rows])
    p = np.array([one[0] for one in odds])
    found = reliability(p, truth.tolist(), [row.group for row in rows], resamples=1)
    of = {name: interval.value if interval else None for name, interval in found.metrics.items()}
    both = bool(truth.any() and not truth.all())
    said = p >= 0.5
    return {
        "n": len(rows),
        "balanced": float((said[truth].mean() + (~said[~truth]).mean()) / 2) if both else None,
        "auc": of["auc"],
        "ece": of["ece"],
        "recall_supported": float(said[truth].mean()) if truth.any() else None,
        "recall_not_supported": float((~said[~truth]).mean()) if not truth.all() else None,
        "three_way": _three_way(rows, odds),
    }


def _three_way(rows: Sequence[Pair], odds: Sequence[tuple[float, float, float]]) -> float | None:
    recalls = []
    for number, label in enumerate(_THREE):
        said = [
            int(np.argmax(one)) == number for row, one in zip(rows, odds, strict=True) if row.label == label
        ]
        if not said:
            return None
        recalls.append(sum(said) / len(said))
    return sum(recalls) / len(recalls)
