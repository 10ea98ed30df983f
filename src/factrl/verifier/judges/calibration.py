"""From a judge's raw scores to a probability: two small logistic regressions, fitted on human labels.

The first says how probable it is that the evidence supports the claim; the second, among the claims that it
does not support, how probable it is that it refutes them.  Two instead of one regression over three classes,
because most human labels only say "not supported", and these can then be used for the first.

`benchmarks/verifier.py` fits them with scikit-learn; the files beside this one also say on which data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from factrl.types import Finding


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
    """

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    supported: Line
    refuted: Line | None = None

    @property
    def identity(self) -> str:
        """A hash of the weights."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    def decide(self, features: Mapping[str, float]) -> tuple[Finding, float]:
        """The label and the probability of support.

        Supported from 0.5 on; below, the likelier of refuted and unknown.
        """
        row = [
            (features[name] - mean) / scale
            for name, mean, scale in zip(self.features, self.mean, self.scale, strict=True)
        ]
        supported = self.supported(row)
        if supported >= 0.5:
            return "supported", supported
        refuted = (1.0 - supported) * (self.refuted(row) if self.refuted else 0.0)
        return ("refuted" if refuted >= 1.0 - supported - refuted else "unknown"), supported

    @classmethod
    def shipped(cls, name: str) -> Calibration:
        """The one that comes with factrl for a judge: `local` or `weak`."""
        value = json.loads((Path(__file__).parent / "calibrations" / f"{name}.json").read_text("utf-8"))
        supported, refuted = (
            Line(tuple(value[key]["weights"]), value[key]["bias"]) for key in ("supported", "refuted")
        )
        names, mean, scale = (tuple(value[key]) for key in ("features", "mean", "scale"))
        return cls(names, mean, scale, supported, refuted)
