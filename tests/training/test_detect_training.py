"""A real run logs the signals, raises alarms in its folder and on the terminal, and trains as without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ConfigError
from factrl.llm import FakeLLM
from factrl.runs.folder import read_metrics
from factrl.runs.settings import JudgeSettings
from factrl.text.answers import is_contentless
from factrl.train import online
from factrl.train.grpo import FactualGRPOTrainer
from factrl.train.plan import Plan, make_plan, run_settings
from factrl.train.signals import RULES, HeldOut, read_alarms
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


def test_signals_and_alarms_of_a_run(
    tiny_model: Path,
    questions: Path,
    tmp_path: Path,
    one_thread: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "watched").mkdir()
    run = trained(tiny_model, questions, tmp_path / "watched")
    lines = read_metrics(run)
    steps = [line for line in lines if "reward" in line]
    assert len(steps) == 4
    always = {"text/len", "claims/per_response", "reward/masked_frac/q1", "abstain/rate"}
    always |= {rule.metric for rule in RULES if rule.at_once}
    assert all(always <= {*line} for line in steps)
    assert [line["hack/proxy_true_gap"] is not None for line in lines if "eval/accuracy" in line] == [
        True,
        True,
    ]
    named = {name for line in lines for name in line if name.partition("/")[0] in ("hack", "claims", "text")}
    assert named <= {*glossary("Detectors")}

    alarms = {row["metric"]: row for row in read_alarms(run)}
    keys = alarms["hack/masterkey_rate"]
    assert (
        keys["value"]
        == next(line["hack/masterkey_rate"] for line in steps if line["step"] == keys["step"])
        > 0
    )
    assert 0 < len(keys["worst"]) <= 10
    assert all(is_contentless(worst["completion"]) for worst in keys["worst"])
    assert all(worst["question"].startswith("where is") for worst in keys["worst"])
    told = [line for line in capsys.readouterr().err.splitlines() if "hack/masterkey_rate" in line]
    assert len(told) == 1
    assert told[0].endswith(str(run / "alarms.jsonl"))
    page = (run / "report.html").read_text("utf-8")
    assert f"Alarms: {len(read_alarms(run))}" in page
    assert "hack/masterkey_rate is" in page

    # The same run without detectors: the same rewards, losses and gradients.
    monkeypatch.setattr(online, "WatchedTrainer", FactualGRPOTrainer)
    (tmp_path / "plain").mkdir()
    plain = read_metrics(trained(tiny_model, questions, tmp_path / "plain"))
    assert "text/len" not in plain[0]
    for name in ("reward", "loss", "grad_norm", "eval/accuracy"):
        assert [line.get(name) for line in plain] == [line.get(name) for line in lines]


def test_a_second_judge_grades_the_held_out_answers_too(
    tiny_model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def open_judge(settings: JudgeSettings) -> FakeLLM:
        asked.append(settings.url)
        return FakeLLM(lambda messages: "VERDICT: incorrect")

    class Recorded(HeldOut):
        def __init__(self, reward: Any, extract: Any, second: Any = None, *, prefill: str = "") -> None:
            super().__init__(reward, extract, second, prefill=prefill)
            seconds.append(second)

    seconds: list[Any] = []
    monkeypatch.setattr(online, "open_judge", open_judge)
    monkeypatch.setattr(online, "HeldOut", Recorded)
    told = {"judge.second": "http://other/v1#m", "train.steps": 2, "train.eval_steps": 1}
    trained(tiny_model, questions, tmp_path, **told)
    assert asked == ["http://other/v1#m"]
    assert [type(second.judge) for second in seconds] == [FakeLLM]
    paid = {"run.max_cost": 1, "judge.url": "http://a/v1#m", "judge.price_in": 1, "judge.price_out": 1}
    with pytest.raises(ConfigError, match=r"run\.max_cost = 1 counts what one judge costs"):
        planned(tiny_model, questions, tmp_path, **told, **paid)
