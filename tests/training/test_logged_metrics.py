"""A real run logs what docs/metrics.md defines, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow.parquet
import pytest
from transformers import TrainerCallback
from transformers.integrations import integration_utils
from trl.trainer import grpo_trainer

from factrl.job import read_job
from factrl.runs.folder import read_metrics
from factrl.train.online import train
from factrl.train.plan import make_plan
from test_metric_glossary import glossary

REWARD = """
import factrl

@factrl.reward
def own(example, completion):
    if example.id in ("ada", "bo"):
        raise factrl.Unscored("no_evidence")
    right = completion in example.answers
    label = "correct" if right else "abstained" if len(completion) % 2 else "incorrect"
    return factrl.Score({"own": float(right)}, floored=None if right else "wrong", facts={"label": label})
"""


SECTIONS = ("Rewards", "States", "Answers", "Detectors", "Evaluation", "The trainer's own")
# Completions of three words have no long part and no reasoning; there is no probe, second judge or source.
NOT_HERE = {
    *("abstain/false_rate", "claims/unextracted_char_frac", "think/len", "text/compress_ratio"),
    *("prompts/too_long", "prompts/cut"),
}


class Recorder(TrainerCallback):
    """Stands in for trackio, by what transformers gives its callback and TRL its module."""

    logged: ClassVar[list[tuple[int, dict[str, Any]]]] = []
    tables: ClassVar[list[Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.logged.append((state.global_step, dict(logs)))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr(integration_utils, "is_trackio_available", lambda: True)
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "trackio", Recorder)
    backend = SimpleNamespace(Table=lambda dataframe: dataframe, log=Recorder.tables.append)
    monkeypatch.setattr(grpo_trainer, "trackio", backend, raising=False)
    Recorder.logged.clear()
    Recorder.tables.clear()
    return Recorder


def test_every_logged_name_is_defined(
    tiny_model: Path, questions: Path, tmp_path: Path, recorder: type[Recorder]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(REWARD, encoding="utf-8")
    overrides = {
        "paper": f"{own}:own",
        "model.name": tiny_model,
        "data.train": questions,
        "data.eval": questions,
        "train.steps": 2,
        "train.eval_steps": 1,
        "train.prompts_per_step": 4,
        "train.num_generations": 2,
        "train.max_completion_length": 3,
        "train.beta": 0.01,
        "train.report_to": '["tensorboard", "trackio"]',
        "run.dir": tmp_path,
    }
    plan = make_plan(read_job(None, [f"{key}={value}" for key, value in overrides.items()]))
    run = train(plan)
    check_tracker(run, from_tensorboard(run))
    check_table(run, recorder)
    logged = {name for line in read_metrics(run) for name in line} - {"step"}
    defined = {
        name.replace("<term>", "own").replace("<cause>", cause)
        for name in glossary(*SECTIONS)
        for cause in ("no_evidence", "wrong")
    }
    assert logged <= defined
    unlogged = {"aux_loss", "masked/wrong", "floored/no_evidence", *NOT_HERE}
    assert {name for name in defined - logged if not name.startswith("sampling/")} == unlogged


def check_tracker(run: Path, got: Mapping[int, Mapping[str, float]]) -> None:
    """A tracker has every number of every step, under the name of the glossary behind `train/`."""
    steps = [line for line in read_metrics(run) if "reward" in line]
    assert [line["step"] for line in steps] == [1, 2]
    for line in steps:
        sent = {name: value for name, value in line.items() if name != "step" and value is not None}
        assert {
            "rewards/own/mean",
            "reward/masked_frac",
            "masked/no_evidence",
            "abstain/rate",
            "text/len",
        } <= {*sent}
        found = {name: got[line["step"]][f"train/{name}"] for name in sent}
        assert found == pytest.approx(sent, rel=1e-5, nan_ok=True)
    held_out = [line for line in read_metrics(run) if "eval/accuracy" in line]
    assert [line["step"] for line in held_out] == [1, 2]
    for line in held_out:
        sent = {n if n.startswith("eval/") else f"train/{n}": v for n, v in line.items() if v is not None}
        assert "train/hack/proxy_true_gap" in sent
        found = {name: got[line["step"]].get(name) for name in sent if name != "train/step"}
        assert found == pytest.approx({n: v for n, v in sent.items() if n != "train/step"}, rel=1e-5)


def check_table(run: Path, recorder: type[Recorder]) -> None:
    """A tracker that has tables gets one of each step's completions, as the run folder has them."""
    assert {step for step, logs in recorder.logged if "eval_accuracy" in logs} == {1, 2}
    tables = {table["step"][0]: table for table in (sent["completions"] for sent in recorder.tables)}
    assert {*tables} == {1, 2}
    for step, table in tables.items():
        rows = pyarrow.parquet.read_table(run / "rollouts" / f"step_{step:06d}.parquet").to_pylist()
        assert list(table["own_state"]) == [row["state"] for row in rows]
        assert [cause or None for cause in table["own_cause"]] == [row["cause"] for row in rows]
        for value, row in zip(table["own_advantage"], rows, strict=True):
            assert value == pytest.approx(row["advantage"] or 0.0, abs=1e-6)


def from_tensorboard(run: Path) -> Mapping[int, Mapping[str, float]]:
    """What TensorBoard would draw."""
    from tensorboard.backend.event_processing import event_accumulator

    folder = run / "tensorboard"
    events = event_accumulator.EventAccumulator(str(folder)).Reload()
    got: dict[int, dict[str, float]] = defaultdict(dict)
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            got[event.step][name] = event.value
    return got
