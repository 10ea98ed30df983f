"""Inspect runs tasks with factrl's scorers on its mock model."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

inspect_ai = pytest.importorskip("inspect_ai", reason="needs tests/hosts/requirements.txt")

from inspect_ai.dataset import MemoryDataset, Sample  # noqa: E402
from inspect_ai.log import read_eval_log  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.scorer import Scorer, Target  # noqa: E402
from inspect_ai.solver import generate  # noqa: E402

from factrl.bridges import inspect as bridge  # noqa: E402

# Inspect leaves streams open and calls what others have deprecated, which is no business of ours.
pytestmark = pytest.mark.filterwarnings("ignore", "ignore::pytest.PytestUnraisableExceptionWarning")

SAID = ("She was born in Warsaw.", "I don't know.", "In Paris.", "The city on the Vistula.")
OWN = """
from factrl import Unscored, reward

@reward
def mine(example, completion):
    if completion.startswith("I"):
        raise Unscored("judge_down", "nobody answers")
    return {"length": float(len(completion)), "known": float(example.topic == "curie")}
"""


def run(tmp_path: Path, *scorers: Scorer, metadata: Any = None, status: str = "success") -> Any:
    """The log of a task of four samples with these answers."""
    question = "In which city was Marie Curie born?"
    samples = [
        Sample(
            id=number, input=question, target=["Warsaw", "Warszawa"], metadata=metadata or {"topic": "curie"}
        )
        for number, _ in enumerate(SAID, 1)
    ]
    # Without usage the mock model counts tokens with a tokenizer that it downloads.
    usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in SAID]
    outputs = [output.model_copy(update={"usage": usage}) for output in outputs]
    task = inspect_ai.Task(dataset=MemoryDataset(samples), solver=generate(), scorer=list(scorers))
    model = get_model("mockllm/model", custom_outputs=outputs)
    [log] = inspect_ai.eval(
        task, model=model, log_dir=str(tmp_path / "logs"), display="none", max_connections=1
    )
    assert log.status == status, log.error
    return log


def means(log: Any) -> dict[str, float]:
    return {score.name: score.metrics["mean"].value for score in log.results.scores}


def test_outcomes_are_metrics(tmp_path: Path) -> None:
    log = run(tmp_path, bridge.outcome())
    assert means(log) == {"correct": 0.25, "abstained": 0.25, "incorrect": 0.5, "truthfulness": -0.25}
    assert [s.scores["outcome"].answer for s in log.samples][1] == "I don't know."


@pytest.mark.parametrize(
    "scorer", [bridge.outcome(), bridge.reward("truthrl:binary", settings="reward.answer=text")]
)
@pytest.mark.parametrize("error", [None, "the model is overloaded"])
def test_a_sample_without_a_reply_is_unscored(scorer: Scorer, error: str | None) -> None:
    output = ModelOutput(model="m", choices=[], error=error)
    state: Any = SimpleNamespace(output=output, metadata={}, sample_id=1, input_text="Where?")
    score: Any = asyncio.run(scorer(state, Target("Warsaw")))
    assert math.isnan(score.value)
    assert score.reason == "no_completion"


def test_a_reward_is_a_scorer_and_masked_is_in_no_mean(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    log = run(tmp_path, bridge.reward(f"{tmp_path}/own.py:mine"))
    paid = [len(text) + 1 for text in SAID if not text.startswith("I")]
    assert means(log) == {"reward": sum(paid) / len(paid)}
    assert log.results.scores[0].unscored_samples == len(SAID) - len(paid)
    assert log.samples[0].scores["reward"].metadata["terms"] == {"length": 23.0, "known": 1.0}
    assert log.samples[1].scores["reward"].reason == "judge_down"


def test_accepted_answers_stand_in_the_target_alone(tmp_path: Path) -> None:
    log = run(tmp_path, bridge.outcome(), metadata={"answers": ["Paris"]}, status="error")
    assert "stands in the sample's input or target" in log.error.message


def test_a_log_is_scored_on_inspects_command_line(tmp_path: Path) -> None:
    log = run(tmp_path, bridge.outcome())
    for words in (
        ["factrl/outcome"],
        ["factrl/reward", "-S", "paper=truthrl:binary", "-S", "settings=reward.answer=text"],
    ):
        command = [str(Path(sys.executable).with_name("inspect")), "score", log.location, "--scorer", *words]
        more = ["--action", "append", "--overwrite", "--display", "none"]
        subprocess.run([*command, *more], check=True)
    paid = read_eval_log(log.location).samples[0].scores
    assert paid["reward"].value == -1.0  # a sentence is no short answer, and no judge was asked
    assert paid["outcome1"].value["correct"] == 1.0
