"""A real run logs the signals of its steps, and trains as without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.runs.folder import read_metrics
from factrl.train import online
from factrl.train.grpo import FactualGRPOTrainer
from factrl.train.plan import Plan, make_plan, run_settings
from test_metric_glossary import glossary

REWARD = """
import factrl

@factrl.reward
def own(example, completion):
    if example.id == "ada":
        raise factrl.Unscored("timeout")
    return {"own": float(len(completion))}
"""


def planned(tiny_model: Path, questions: Path, folder: Path, **more: object) -> Plan:
    own = folder / "own.py"
    own.write_text(REWARD, encoding="utf-8")
    overrides = {
        "paper": f"{own}:own",
        "model.name": tiny_model,
        "data.train": questions,
        "data.eval": questions,
        "train.steps": 4,
        "train.eval_steps": 2,
        "train.prompts_per_step": 8,
        "train.num_generations": 4,
        "train.max_completion_length": 1,  # so that a completion is now and then a bare "?" or "."
        "train.learning_rate": 1e-3,
        "run.dir": folder / "runs",
        **more,
    }
    return make_plan(run_settings(None, [f"{key}={value}" for key, value in overrides.items()]))


def trained(tiny_model: Path, questions: Path, folder: Path, **more: object) -> Path:
    return online.train(planned(tiny_model, questions, folder, **more))


def test_a_run_logs_its_signals_and_trains_as_without(
    tiny_model: Path,
    questions: Path,
    tmp_path: Path,
    one_thread: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "watched").mkdir()
    lines = read_metrics(trained(tiny_model, questions, tmp_path / "watched"))
    steps = [line for line in lines if "reward" in line]
    assert len(steps) == 4
    always = {"text/len", "claims/per_response", "reward/masked_frac/q1", "abstain/rate"}
    assert all(always <= {*line} for line in steps)
    assert any(line["hack/masterkey_rate"] > 0 for line in steps)
    gaps = [line["hack/proxy_true_gap"] is not None for line in lines if "eval/accuracy" in line]
    assert gaps == [True, True]
    named = {name for line in lines for name in line if name.partition("/")[0] in ("hack", "claims", "text")}
    assert named <= {*glossary("Detectors")}

    # The same run without signals: the same rewards, losses and gradients.
    monkeypatch.setattr(online, "WatchedTrainer", FactualGRPOTrainer)
    (tmp_path / "plain").mkdir()
    plain = read_metrics(trained(tiny_model, questions, tmp_path / "plain"))
    assert "text/len" not in plain[0]
    for name in ("reward", "loss", "grad_norm", "eval/accuracy"):
        assert [line.get(name) for line in plain] == [line.get(name) for line in lines]
