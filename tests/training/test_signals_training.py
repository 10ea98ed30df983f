"""A real run logs the signals of its steps and the gap between reward and truth."""

from __future__ import annotations

from pathlib import Path

from factrl.runs.folder import read_metrics
from factrl.train.online import train
from factrl.train.plan import make_plan, run_settings
from test_metric_glossary import glossary

REWARD = """
import factrl

@factrl.reward
def own(example, completion):
    if example.id == "ada":
        raise factrl.Unscored("timeout")
    return {"own": float(len(completion))}
"""


def test_a_run_logs_its_signals(tiny_model: Path, questions: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(REWARD, encoding="utf-8")
    told = {
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
        "run.dir": tmp_path / "runs",
    }
    run = train(make_plan(run_settings(None, [f"{key}={value}" for key, value in told.items()])))
    lines = read_metrics(run)
    steps = [line for line in lines if "reward" in line]
    assert len(steps) == 4
    assert all({"text/len", "claims/per_response", "abstain/rate"} <= {*line} for line in steps)
    assert any(line["hack/masterkey_rate"] > 0 for line in steps)
    gaps = [line["hack/proxy_true_gap"] is not None for line in lines if "eval/accuracy" in line]
    assert gaps == [True, True]
    named = {name for line in lines for name in line if name.partition("/")[0] in ("hack", "claims", "text")}
    assert named <= {*glossary("Detectors")}
