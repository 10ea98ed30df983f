"""verifiers 1 scores traces with factrl's rewards, named by import path."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

vf = pytest.importorskip("verifiers.v1", reason="needs tests/hosts/requirements.txt")

from traces import trace_of  # noqa: E402

ROWS = [{"question": "In which city was Marie Curie born?", "answers": ["Warsaw"]}]
ROOT = Path(__file__).parents[2]
OWN = """
from factrl import Unscored, reward
from factrl.bridges.verifiers import to_verifiers

@reward
def down(example, completion):
    raise Unscored("judge_down", "nobody answers")

@reward
def seen(example, completion):
    assert (example.question, example.answers) == ("In which city was Marie Curie born?", ("Warsaw",))
    return {"length": float(len(completion)), "cut": float(completion.truncated)}

ungraded, length = to_verifiers(down), to_verifiers(seen)
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> vf.Task:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    from truthful_taskset import TruthfulConfig, TruthfulTaskset

    [one] = TruthfulTaskset(TruthfulConfig(file=path)).load()
    yield one
    sys.modules.pop("truthful_taskset")


@pytest.mark.parametrize(
    ("text", "pays"),
    [(r"\boxed{Warsaw}", 1.0), (r"\boxed{I don't know}", 0.0), (r"\boxed{Paris}", -1.0), ("Warsaw", -1.0)],
)
def test_the_examples_taskset_pays_what_truthrl_pays(task: vf.Task, text: str, pays: float) -> None:
    trace = trace_of(task.data, text)
    asyncio.run(task.score(trace))
    assert trace.reward == pays
    assert trace.metrics == {"truthrl/outcome": pays}


def test_reasoning_that_the_server_took_out_stands_before_the_answer(task: vf.Task) -> None:
    task.config = vf.TaskConfig(rewards={"own": {"fn": "own.py:length"}})
    trace = trace_of(task.data, "<answer>Warsaw</answer>", "In Warsaw.")
    asyncio.run(task.score(trace))
    assert trace.rewards["own"].score == len("<think>In Warsaw.</think><answer>Warsaw</answer>")


def test_a_reward_that_does_not_exist_is_named(task: vf.Task) -> None:
    task.config = vf.TaskConfig(rewards={"own": {"fn": "factrl.bridges.verifiers:truthrll"}})
    with pytest.raises(Exception, match="verifiers:truthrll"):
        asyncio.run(task.score(trace_of(task.data, "Warsaw")))
