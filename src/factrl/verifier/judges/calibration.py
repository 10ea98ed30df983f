"""From a judge's raw scores to a probability: two small logistic regressions, fitted on human labels.

The first says how probable it is that the evidence supports the claim; the second, among the claims that it
does not support, how probable it is that it refutes them.  Two instead of one regression over three classes,
because most human labels only say "not supported", and these can then be used for the first.

Raw scores rank well but their thresholds do not carry over from one kind of text to another, so fit your own
when you have labels: a hundred pairs are enough.  Fitting needs scikit-learn, applying does not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from factrl.errors import DataError, MissingExtra
from factrl.types import Finding

Truth = Literal["supported", "refuted", "unknown", "unsupported"]


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled pair.

    Attributes:
        features: name -> value, the same names in every row.
        label: what a person said; `unsupported` is refuted or unknown, without saying which.
        weight: how much the row counts.
    """

    features: Mapping[str, float]
    label: Truth
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """A logistic regression: `sigmoid(bias + sum(weights * standardised features))`."""

    weights: tuple[float, ...]
    bias: float

    def __call__(self, standardised: Sequence[float]) -> float:
        """The probability, from features with mean 0 and deviation 1."""
        total = self.bias + math.fsum(w * x for w, x in zip(self.weights, standardised, strict=True))
        return 0.5 * (1.0 + math.tanh(total / 2.0))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Weights that turn features into probabilities.

    Attributes:
        features: names of the features, in the order of the weights.
        mean, scale: of each feature, where it was fitted.
        supported: says whether the evidence supports the claim.
        refuted: says, when it does not, whether it refutes it; None never says so.
        provenance: the data and settings of the fit.
    """

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    supported: Line
    refuted: Line | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def identity(self) -> str:
        """A hash of the weights; the provenance does not matter."""
        weights = {key: value for key, value in asdict(self).items() if key != "provenance"}
        return hashlib.sha256(json.dumps(weights, sort_keys=True).encode()).hexdigest()[:12]

    def probabilities(self, features: Mapping[str, float]) -> tuple[float, float, float]:
        """Probabilities of supported, refuted and unknown; they sum to 1.

        Raises:
            KeyError: a feature is missing.
        """
        row = [
            (features[name] - mean) / scale
            for name, mean, scale in zip(self.features, self.mean, self.scale, strict=True)
        ]
        supported = self.supported(row)
        refuted = (1.0 - supported) * (self.refuted(row) if self.refuted else 0.0)
        return supported, refuted, 1.0 - supported - refuted

    def decide(self, features: Mapping[str, float]) -> tuple[Finding, float]:
        """The label and the probability of support.

        Supported from 0.5 on; below, the likelier of refuted and unknown.
        """
        supported, refuted, unknown = self.probabilities(features)
        if supported >= 0.5:
            return "supported", supported
        return ("refuted" if refuted >= unknown else "unknown"), supported

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read what `save` wrote.

        Raises:
            DataError: no such file, or not a calibration.
        """
        try:
            value = json.loads(Path(path).read_text("utf-8"))
            lines = [
                Line(tuple(v["weights"]), v["bias"]) if v else None
                for v in (value["supported"], value["refuted"])
            ]
            names, mean, scale = (tuple(value[key]) for key in ("features", "mean", "scale"))
        except OSError as error:
            raise DataError(f"no calibration at {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{path} is not a calibration ({error!r}); write one with Calibration.save"
            ) from error
        if lines[0] is None or not len(names) == len(mean) == len(scale) == len(lines[0].weights):
            raise DataError(
                f"{path} is not a calibration: it has {len(names)} features and other numbers of weights"
            )
        return cls(names, mean, scale, lines[0], lines[1], value.get("provenance", {}))

    @classmethod
    def shipped(cls, name: str) -> Calibration:
        """The one that comes with factrl for a judge: `local`, `weak` or `weak-embedded`."""
        return cls.load(Path(__file__).parent / "calibrations" / f"{name}.json")


def fit(
    rows: Sequence[Row], *, strength: float = 1.0, provenance: Mapping[str, Any] | None = None
) -> Calibration:
    """Fit a calibration on labelled pairs.

    Args:
        rows: labelled pairs of every class; weigh them so that what should count the same does.
        strength: inverse of the L2 penalty; smaller is more cautious with few rows.
        provenance: kept beside the weights.

    Raises:
        DataError: the rows are all supported, or none is.
        MissingExtra: scikit-learn is not installed.
    """
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingExtra("scikit-learn", "calibrate") from error
    import numpy as np

    supported = [row.label == "supported" for row in rows]
    if all(supported) or not any(supported):
        raise DataError(
            f"{len(rows)} rows of one class cannot be told apart; label supported and other pairs"
        )
    names = tuple(rows[0].features)
    values = np.array([[row.features[name] for name in names] for row in rows])
    weights = np.array([row.weight for row in rows])
    mean = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    scale = np.where(scale > 0, scale, 1.0)  # a feature that is the same everywhere says nothing

    def line(members: Sequence[int], truth: Sequence[bool]) -> Line:
        model = LogisticRegression(C=strength, max_iter=1000)
        chosen = np.array(members)
        model.fit((values[chosen] - mean) / scale, truth, sample_weight=weights[chosen])
        weights_of, bias = np.asarray(model.coef_)[0], np.asarray(model.intercept_)[0]
        return Line(_rounded(weights_of), round(float(bias), 6))

    known = [index for index, row in enumerate(rows) if row.label in ("refuted", "unknown")]
    refuted = [rows[index].label == "refuted" for index in known]
    return Calibration(
        names,
        _rounded(mean),
        _rounded(scale),
        line(range(len(rows)), supported),
        line(known, refuted) if any(refuted) and not all(refuted) else None,
        dict(provenance or {}),
    )


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)
