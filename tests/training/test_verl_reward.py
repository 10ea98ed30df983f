"""The function that verl's reward managers call."""

from __future__ import annotations

import asyncio
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factrl.bridges import verl
from factrl.bridges.verl import as_verl, compute_score, from_verl
from factrl.errors import ConfigError, RewardBug
from factrl.prepare.dataset import convert
from factrl.runs.rows import read_rows
from factrl.runs.settings import DataSettings
from factrl.types import Completion, Example, Result, Span

QUESTION = {"question": "Capital of France?", "answers": ["Paris"], "id": "1", "topic": ""}
OWN = """
from factrl import Score, Span, Unscored, reward

@reward
def spans(example, completion):
    if "masked" in completion:
        raise Unscored("timeout", "no reply")
    return Score({"a": 1.0, "b": 0.5}, (Span(0, 2, -1),))

@reward
def told(example, completion):
    return Score({"a": 0.0}, facts={
        "answers": list(example.answers), "question": example.question, "topic": example.topic,
        "prefill": completion.prefill, "truncated": completion.truncated, "tokens": completion.tokens,
    })
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    return tmp_path / "own.py"


def score(text: str, truth: Any = "", extra: Any = QUESTION, **which: Any) -> dict[str, Any]:
    return asyncio.run(compute_score("set", text, truth, extra, **which))


def test_every_sample_has_the_same_keys_and_a_masked_one_no_number(own: Path) -> None:
    told = {name: score(name, paper=f"{own}:spans") for name in ("fine", "masked")}
    assert told["fine"].keys() == told["masked"].keys()
    assert (told["fine"]["score"], told["fine"]["state"]) == (1.5, "scored")
    assert json.loads(told["fine"]["spans"]) == [[0, 2, -1]]
    assert math.isnan(told["masked"]["score"])
    assert (told["masked"]["state"], told["masked"]["cause"]) == ("masked", "timeout")
    assert all(isinstance(value, (float, str)) for one in told.values() for value in one.values())


def test_a_papers_terms_have_keys_of_their_own() -> None:
    right = score(r"<think>x</think>\boxed{Paris}", paper="truthrl")
    none = score("no box", paper="truthrl")
    assert right.keys() == none.keys()
    assert (right["score"], right["term/outcome"], none["state"]) == (1.0, 1.0, "floored")
    assert json.loads(right["terms"]) == {"outcome": 1.0}


def test_settings_and_recipes_choose_the_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = r"\boxed{Lyon}"
    assert score(wrong, paper="truthrl", settings="reward.wrong=-3")["score"] == -3.0
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'paper = "truthrl"\n[model]\nname = "x"\n[data]\ntrain = "y"\n[reward]\nwrong = -2.0\n',
        encoding="utf-8",
    )
    assert score(wrong, recipe=str(recipe))["score"] == -2.0
    monkeypatch.setenv("FACTRL_SETTINGS", "reward.wrong=-4")
    assert score(wrong, paper="truthrl")["score"] == -4.0
    with pytest.raises(ConfigError, match="which reward"):
        score(wrong)


@pytest.mark.parametrize(
    ("truth", "extra"),
    [
        ("ignored", QUESTION),
        ({"problem": "Capital of France?", "target": ["Paris"], "out_of_knowledge": False}, {}),
        (np.array(["Paris"], dtype=object), {"question": "Capital of France?", "index": 3}),
        ("Paris", {"question": "Capital of France?"}),
    ],
)
def test_the_example_is_found_wherever_verl_has_it(own: Path, truth: Any, extra: Any) -> None:
    facts = json.loads(score("x", truth, extra, paper=f"{own}:told")["facts"])
    assert (facts["question"], facts["answers"]) == ("Capital of France?", ["Paris"])


def test_other_columns_of_a_converted_file_reach_the_reward(tmp_path: Path) -> None:
    asked = Example("Capital of France?", ("Paris",), id="1", meta={"threshold": 0.75})
    convert([asked], "verl", DataSettings(train="-"), tmp_path / "v.parquet")
    [row] = read_rows(str(tmp_path / "v.parquet"))
    truth, extra = row["reward_model"]["ground_truth"], row["extra_info"]
    assert score(r"\boxed{Lyon}", truth, extra, paper="threshold")["score"] == pytest.approx(-3.0)


def test_what_the_agent_loop_knows_reaches_the_reward(own: Path) -> None:
    written = {"truncated": True, "tokens": 7, "prefill": "<think>"}
    said = Completion("x", prefill="<think>", truncated=True, tokens=7)
    extra = {**QUESTION, "factrl_written": said, "num_turns": 2, "rollout_reward_scores": {}}
    facts = json.loads(score("x", "", extra, paper=f"{own}:told", reward_router_address=None)["facts"])
    assert {name: facts[name] for name in written} == written


def test_a_bug_is_handed_to_our_trainer_and_raised_for_any_other(own: Path) -> None:
    own.write_text("from factrl import reward\n@reward\ndef f(e, c):\n    return {'a': 1 / 0}\n", "utf-8")
    with pytest.raises(RewardBug, match="ZeroDivisionError"):
        score("x", "", QUESTION, paper=f"{own}:f")
    told = score("x", "", {**QUESTION, "factrl_written": Completion("x")}, paper=f"{own}:f")
    assert (math.isnan(told["score"]), told["state"]) == (True, "masked")
    assert "RewardBug" in told["bug"]
    assert "ZeroDivisionError" in told["bug"]


def test_samples_are_scored_side_by_side(own: Path) -> None:
    own.write_text(
        "import threading\nfrom factrl import reward\nall_here = threading.Barrier(64)\n"
        "@reward\ndef together(example, completion):\n    all_here.wait(60)\n    return {'a': 1.0}\n",
        encoding="utf-8",
    )

    async def many() -> list[dict[str, Any]]:
        calls = (compute_score("set", "x", "", QUESTION, paper=f"{own}:together") for _ in range(64))
        return await asyncio.gather(*calls)

    assert [one["score"] for one in asyncio.run(many())] == [1.0] * 64


SHARED = """
from factrl import reward

class Groups:
    def __call__(self, completion):
        return 1

    def answer_together(self, calls):
        return [len(calls)] * len(calls)

@reward
def size(example, completion, *, groups):
    return {"size": groups(completion)}

size = size.with_(groups=Groups())
"""


def test_completions_of_a_question_are_graded_as_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when they come one by one; a held-out answer and one whose group stays small are not kept."""
    monkeypatch.setattr("factrl.bridges.verl.PATIENCE", 5.0)
    (tmp_path / "own.py").write_text(SHARED, encoding="utf-8")

    async def late(seconds: float, index: int, split: str = "train") -> float:
        await asyncio.sleep(seconds)
        extra = {**QUESTION, "index": index, "split": split}
        told = await compute_score("set", "x", "", extra, paper=f"{tmp_path}/own.py:size", group=3)
        return told["score"]

    async def many() -> list[float]:
        whole = [late(0.0, 1), late(0.2, 1), late(0.4, 1)]
        return await asyncio.gather(*whole, late(0.0, 2), late(0.1, 2), late(0.0, 3, "test"))

    assert asyncio.run(many()) == [3.0, 3.0, 3.0, 2.0, 2.0, 1.0]
    assert not verl._WAITING


@pytest.mark.parametrize("reward", ["size", "broken"])
def test_a_call_that_is_given_up_or_a_batch_that_raises_leaves_none_waiting(
    tmp_path: Path, reward: str
) -> None:
    broken = "\n@reward\ndef broken(example, completion):\n    return {'right': 1 / 0}\n"
    (tmp_path / "own.py").write_text(SHARED + broken, encoding="utf-8")

    async def many() -> list[Any]:
        words = {"paper": f"{tmp_path}/own.py:{reward}", "group": 3}
        ask = partial(compute_score, "set", "x", "", {**QUESTION, "index": 1}, **words)
        given_up, waits = asyncio.create_task(ask()), asyncio.create_task(ask())
        while not any(len(batch.members) == 2 for batch in verl._WAITING.values()):
            await asyncio.sleep(0.01)
        given_up.cancel()
        return await asyncio.wait_for(asyncio.gather(waits, ask(), return_exceptions=True), 30)

    told = asyncio.run(many())
    if reward == "size":
        assert [one["score"] for one in told] == [3.0, 3.0]
    else:
        assert all(isinstance(one, RewardBug) for one in told)


def test_there_and_back() -> None:
    results = [
        Result("scored", 1.5, {"a": 1.5}, spans=(Span(0, 1, 1),), facts={"label": "correct"}),
        Result("masked", None, cause="timeout"),
        Result("floored", -1.0, {"a": -1.0}, cause="no_box"),
    ]
    back = [from_verl(as_verl(result)) for result in results]
    assert back == results
