"""Accuracy, ranking and calibration against numbers worked out by hand or by scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from factrl.train.tuning.labelled_numbers import _sigmoid, fit_temperature, reliability

P = [0.95, 0.85, 0.65, 0.35, 0.15, 0.55]
TRUE = [True, True, False, True, False, False]
GROUPS = ["a", "a", "b", "b", "c", "c"]


def value(name: str, p: list[float], true: list[bool], groups: list[str]) -> float:
    interval = reliability(p, true, groups, resamples=200)[name]
    assert interval is not None
    assert interval.low <= interval.value + 1e-12
    return interval.value


def test_numbers_by_hand() -> None:
    assert value("accuracy", P, TRUE, GROUPS) == pytest.approx(3 / 6)
    # true: precision 2/4, recall 2/3; false: precision 1/2, recall 1/3
    assert value("macro_f1", P, TRUE, GROUPS) == pytest.approx((4 / 7 + 2 / 5) / 2)
    assert value("auc", P, TRUE, GROUPS) == pytest.approx(7 / 9)
    wrong = [0.05, 0.15, 0.65, 0.65, 0.15, 0.55]
    assert value("brier", P, TRUE, GROUPS) == pytest.approx(sum(x * x for x in wrong) / 6)
    assert value("ece", P, TRUE, GROUPS) == pytest.approx(sum(wrong) / 6)  # a claim in each bin


def test_numbers_by_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    true = (rng.random(300) < 0.7).tolist()
    p = np.round(np.clip(rng.normal(0.55, 0.2, 300) + 0.1 * np.array(true), 0, 1), 2).tolist()  # with ties
    groups = [str(n // 5) for n in range(300)]
    said = [x >= 0.5 for x in p]
    assert value("auc", p, true, groups) == pytest.approx(metrics.roc_auc_score(true, p))
    assert value("macro_f1", p, true, groups) == pytest.approx(metrics.f1_score(true, said, average="macro"))
    assert value("brier", p, true, groups) == pytest.approx(metrics.brier_score_loss(true, p))


def test_always_the_same_answer() -> None:
    found = reliability([0.7] * 10, [True] * 7 + [False] * 3, [*"abcdefghij"], resamples=100)
    numbers = {name: one.value for name, one in found.items() if one}
    assert numbers["accuracy"] == pytest.approx(0.7)
    assert numbers["auc"] == 0.5
    assert numbers["ece"] == pytest.approx(0.0, abs=1e-12)


def test_one_class_has_no_auc() -> None:
    found = reliability([0.7, 0.8], [True, True], ["a", "b"], resamples=10)
    assert found["auc"] is None
    assert found["accuracy"] is not None


def test_the_bootstrap_draws_documents() -> None:
    p, true = [0.9] * 50 + [0.1] * 50, [True] * 100

    def width(groups: list[str]) -> float:
        interval = reliability(p, true, groups, resamples=400)["accuracy"]
        assert interval is not None
        return interval.high - interval.low

    by_claim, by_document = width([str(n) for n in range(100)]), width([str(n // 25) for n in range(100)])
    assert by_document > 2 * by_claim


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_the_temperature_undoes_a_factor(factor: float) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0.5, 1.5, 20_000)
    true = rng.random(20_000) < _sigmoid(logits)
    assert fit_temperature((logits * factor).tolist(), true.tolist()) == pytest.approx(factor, rel=0.08)


def test_temperatures_have_limits() -> None:
    assert fit_temperature([1.0, -1.0], [True, False]) == pytest.approx(0.05, rel=1e-3)
    assert fit_temperature([1.0, -1.0], [False, True]) == pytest.approx(20, rel=1e-3)


def test_logits_of_any_size_have_probabilities() -> None:
    assert _sigmoid(np.array([-1e9, 0.0, 1e9])).tolist() == [0.0, 0.5, 1.0]
