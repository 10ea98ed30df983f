"""Rewards of one's own: their evidence, functions in TRL's form, sums, a probe before a run."""

from __future__ import annotations

import json
import pickle
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import factrl as fx
from commands import write
from factrl.cli import main
from factrl.errors import ConfigError, NoScore, RewardBug
from factrl.stress import chosen, guards
from factrl.stress.payoffs import PROBE, try_out
from factrl.stress.texts import HONEST_ANSWERS

LIMA = fx.Example("Capital of Peru?", ("Lima", "City of Kings"), meta={"year": 1535})
PAGE = (Path(__file__).parents[2] / "docs/own_reward.md").read_text("utf-8")


def named(completions: list[str], answer: list[str], **columns: Any) -> list[bool]:
    return [right in text for right, text in zip(answer, completions, strict=True)]


def turns(prompts: Any, completions: Any, **columns: Any) -> list[float]:
    """As a script for conversations has it."""
    return [
        float(len(p[-1]["content"]) + len(c[0]["content"])) for p, c in zip(prompts, completions, strict=True)
    ]


def dated(completions: list[str], year: list[int]) -> list[float | None]:
    return [None if str(y) in text else 1.0 for y, text in zip(year, completions, strict=True)]


async def later(completions: list[str], log_metric: Any, **columns: Any) -> list[float]:
    log_metric("seen", len(completions))
    return [2.0] * len(completions)


def short(completions: list[str], **columns: Any) -> list[float]:
    return [1.0]


def scalar(completions: list[str], **columns: Any) -> float:
    return 1.0


def texts(completions: list[str], **columns: Any) -> list[str]:
    return ["good"] * len(completions)


def one_none(completions: list[str], **columns: Any) -> None:
    return None


@fx.from_trl
def decorated(completions: list[str], **columns: Any) -> list[float]:
    return [3.0] * len(completions)


def values(reward: fx.Reward, *texts: str) -> list[float | None]:
    return [result.value for result in reward.batch([LIMA] * len(texts), texts)]


def test_verify_takes_the_examples_evidence_by_itself_alone_and_in_a_batch() -> None:
    @fx.reward
    def checked(example: fx.Example, completion: str, *, verify: Any) -> dict[str, float]:
        return {"true": verify(completion, example.question).precision or 0.0}

    ready = checked.with_(verify=fx.open_verifier(judge="weak"))
    example = fx.Example("?", evidence=(fx.Passage("Lima is in Peru."),))
    assert ready(example, "Lima is in Peru.").value == 1.0
    texts = ["Lima is in Peru.", "Oslo is in Chile."]
    assert [one.value for one in ready.batch([example] * 2, texts)] == [1.0, 0.0]
    with pytest.raises(ConfigError, match="evidence"):
        ready(fx.Example("?"), "Lima is in Peru.")


def test_a_verify_of_ones_own_without_evidence_is_called_as_the_reward_calls_it() -> None:
    @fx.reward
    def own(example: fx.Example, completion: str, *, verify: Any) -> dict[str, float]:
        return {"n": verify(completion)}

    assert own.with_(verify=len)(PROBE, "four").value == 4.0
    assert own.with_(verify=lambda text: 5.0)(PROBE, "four").value == 5.0


def test_the_example_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [block] = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "def on_topic" in text]
    (tmp_path / "own.py").write_text("import factrl as fx\n" + block, encoding="utf-8")
    row = {"question": "Where is Lima?", "answers": ["Peru"], "topic": "Lima"}
    said = "Lima is in Peru."
    write(tmp_path / "rows.jsonl", {**row, "evidence": [said], "completion": said})
    rows = str(tmp_path / "rows.jsonl")
    assert main(["eval", rows, "--paper", f"{tmp_path}/own.py", "verifier.judge=weak", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["terms"]["fact"]["mean"] == 1.0
    assert main(["stress", f"{tmp_path}/own.py:on_topic", "--policies", "D08", "--questions", "1"]) == 1
    assert "guards.relevant" in capsys.readouterr().out


def test_functions_in_trls_form() -> None:
    assert values(fx.from_trl(named), "It is Lima.", "Cusco") == [1.0, 0.0]
    assert values(fx.from_trl(turns), "Lima") == [20.0]
    assert values(fx.from_trl(later), "a", "b") == [2.0, 2.0]
    results = fx.from_trl(dated).batch([LIMA] * 2, ["in 1535", "Lima"])
    assert [(one.state, one.cause) for one in results] == [("masked", "no_reward"), ("scored", None)]


def test_a_batch_is_handed_over_together() -> None:
    sizes = list[int]()

    def counted(completions: list[str], **columns: Any) -> list[float]:
        sizes.append(len(completions))
        return [0.0] * len(completions)

    values(fx.from_trl(counted), *"abcdefgh")
    assert len(sizes) < 8
    assert sum(sizes) == 8


def test_what_such_a_function_lacks_or_does_wrong_is_named() -> None:
    with pytest.raises(fx.SetupError, match="year"):
        fx.from_trl(dated).check_examples([fx.Example("?")])

    def digits(completions: list[str]) -> list[str]:
        return ["1.0"] * len(completions)

    wrong = ((short, "1.0"), (scalar, "1.0"), (texts, "good"), (digits, "1.0"), (one_none, "None"))
    for function, returned in wrong:
        with pytest.raises(NoScore, match=rf"{function.__name__}.*{returned}.* for 3 completions"):
            try_out(fx.from_trl(function), PROBE)
    with pytest.raises(RewardBug, match="nothing"):
        values(fx.from_trl(lambda completions, **columns: [text.nothing for text in completions]), "a")
    with pytest.raises(ConfigError, match="completions"):
        fx.from_trl(lambda example, completion: 1.0)


WRONG = {  # what a reward of one's own returns -> what the error names
    "spans": lambda: fx.Score({"p": 1.0}, [(0, 2, 1)]),  # type: ignore[arg-type,list-item]
    "a span": lambda: fx.Score({"p": 1.0}, fx.Span(0, 2, 1)),  # type: ignore[arg-type]
    "facts": lambda: fx.Score({"p": 1.0}, facts="x"),  # type: ignore[arg-type]
    "object": lambda: fx.Score({"p": 1.0}, facts={"a": object()}),
    "floored": lambda: fx.Score({"p": 1.0}, floored=True),  # type: ignore[arg-type]
    "floored=''": lambda: fx.Score({"p": 1.0}, floored=""),
    "start": lambda: fx.Score({"p": 1.0}, (fx.Span(0.5, 1, 1),)),  # type: ignore[arg-type]
    "sign": lambda: fx.Score({"p": 1.0}, (fx.Span(0, 1, True),)),
    "no cause": lambda: fx.Unscored(""),
    "Unscored(3)": lambda: fx.Unscored(3),  # type: ignore[arg-type]
    "cannot be written": lambda: fx.Unscored("mine", "why", thing=object()),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_of_the_wrong_kind_names_the_reward_and_itself(name: str) -> None:
    @fx.reward
    def mine(example: fx.Example, completion: str) -> Any:
        value = WRONG[name]()
        if isinstance(value, Exception):
            raise value
        return value

    with pytest.raises(RewardBug, match=f"mine.*{re.escape(name.removeprefix('a '))}"):
        mine(PROBE, "Lima")


def test_numbers_of_numpy_are_offsets() -> None:
    one = np.int64(1)
    [span] = fx.reward(lambda example, completion: fx.Score({"p": 1.0}, [fx.Span(0, one, one)]))(  # type: ignore[arg-type]
        PROBE, "Lima"
    ).spans
    assert json.dumps([span.start, span.end, span.sign]) == "[0, 1, 1]"


class Counted:
    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        return [float(len(text)) for text in completions]


class Later:
    async def __call__(self, completions: list[str]) -> list[float]:
        return [2.0] * len(completions)


def scaled(completions: list[str], scale: float, **columns: Any) -> list[float]:
    return [scale] * len(completions)


@pytest.mark.parametrize(
    ("called", "value"), [(Counted(), 4.0), (Later(), 2.0), (partial(scaled, scale=3.0), 3.0)]
)
def test_what_is_called_like_a_function_is_one(called: Any, value: float) -> None:
    reward = fx.from_trl(called)
    for one in (reward, fx.weighted([reward]), pickle.loads(pickle.dumps(reward))):  # noqa: S301
        assert values(one, "Lima") == [value]


def taken(completions: list[str], completion_ids: Any, trainer_state: Any) -> list[float]:
    return [1.0] * len(completions)


def counts(completions: list[str], completion_ids: list[list[int]]) -> list[float]:
    return [float(len(ids)) for ids in completion_ids]


def ramps(completions: list[str], **columns: Any) -> list[float]:
    return [float(columns["trainer_state"].global_step)] * len(completions)


def asks(completions: list[str], completion_ids: Any = None, **columns: Any) -> list[float]:
    return [float(completion_ids is None and columns.get("trainer_state") is None)] * len(completions)


def test_what_only_a_trainer_has_is_passed_in_training_and_named_elsewhere() -> None:
    assert values(fx.from_trl(taken), "Lima") == [1.0]
    assert values(fx.from_trl(asks), "Lima") == [1.0]
    state, ids = SimpleNamespace(global_step=3), [[1, 2], [4]]
    for function, name, paid in (
        (counts, "completion_ids", [2.0, 1.0]),
        (ramps, "trainer_state", [3.0, 3.0]),
    ):
        reward = fx.from_trl(function)
        reward.check_examples([PROBE])
        with pytest.raises(ConfigError, match=f"{function.__name__}.*{name}"):
            values(reward, "Lima")
        assert try_out(reward, PROBE) == ()
        score = fx.to_trl(reward)
        assert score(["a", "b"], ["c", "d"], completion_ids=ids, trainer_state=state) == paid


def test_what_a_coroutine_or_a_misspelled_name_needs_is_told() -> None:
    @fx.reward
    async def awaits(example: fx.Example, completion: str, *, verify: Any) -> dict[str, float]:
        return {"p": (await verify(completion)).precision}

    with pytest.raises(RewardBug, match=r"awaits.*`def`"):
        awaits.with_(verify=fx.open_verifier(judge="weak"))(
            fx.Example("?", evidence=(fx.Passage("Lima is in Peru."),)), "Lima is in Peru."
        )

    @fx.reward
    def typo(example: fx.Example, completion: str, *, verfy: Any) -> dict[str, float]:
        return {"p": 1.0}

    with pytest.raises(ConfigError, match=r"verfy.*'verify'"):
        fx.supply(typo)


@pytest.mark.parametrize(
    "reward", [fx.from_trl(named), decorated, fx.weighted([named, decorated], [1.0, 2.0])]
)
def test_such_a_reward_can_be_pickled(reward: fx.Reward) -> None:
    again = pickle.loads(pickle.dumps(reward))  # noqa: S301
    assert values(again, "Lima") == values(reward, "Lima")


def test_a_weighted_sum() -> None:
    both = fx.weighted([fx.load_reward("truthrl").with_(answer="text"), named, decorated], [2.0, 0.5, 1.0])
    assert both.missing == ("grade",)
    assert both.needs_answers
    ready = both.with_(grade=fx.Grader())
    [right, wrong] = ready.batch([LIMA] * 2, ["Lima", "Cusco"])
    assert dict(right.terms) == {"truthrl/outcome": 2.0, "named": 0.5, "decorated": 3.0}
    assert (right.value, wrong.value) == (5.5, 1.0)
    assert right.facts["label"] == "correct"
    assert ready.with_(weights=(0.0, 0.0, 1.0))(LIMA, "Lima").value == 3.0
    with pytest.raises(ConfigError, match="weights"):
        ready.with_(weights=(1.0,))(LIMA, "Lima")
    with pytest.raises(ConfigError, match="named"):
        fx.weighted([named, named])
    with pytest.raises(fx.SetupError, match="year"):
        fx.weighted([named, dated]).check_examples([fx.Example("?", ("a",))])


def test_what_a_part_cannot_grade_masks_the_sum() -> None:
    [result] = fx.weighted([named, dated]).batch([LIMA], ["in 1535"])
    assert (result.state, result.value, result.cause) == ("masked", None, "no_reward")


PLAIN = """
def f(prompts, completions, **columns):
    return [float(len(text)) for text in completions]

def g(example, completion, *, grade):
    return {"a": 1.0}
"""
BUG = """
import factrl as fx

@fx.reward
def mine(example, completion, *, grade):
    return {"a": example.meta["nothing"]}
"""
NOTHING = """
def mine(completions, **columns):
    return [None] * len(completions)
"""


def test_a_plain_function_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text(PLAIN, encoding="utf-8")
    for spec in (f"{file}:f", str(file)):
        assert values(fx.load_reward(spec), "Lima") == [4.0]
    with pytest.raises(ConfigError, match=re.escape("@fx.reward")):
        fx.load_reward(f"{file}:g")
    file.write_text(PLAIN + BUG, encoding="utf-8")
    assert fx.load_reward(str(file)).name == "mine"  # a reward comes before a helper
    assert fx.load_reward(f"{file}:f").name == "f"


def test_a_bug_is_told_before_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bug.py").write_text(BUG, encoding="utf-8")
    rows = write(tmp_path / "rows.jsonl", *[{"question": f"Q{n}?", "answers": ["a"]} for n in range(2)])
    spec, out = f"{tmp_path}/bug.py:mine", tmp_path / "out"
    few = "train.prompts_per_step=1"
    for words in (
        ["train", spec, "--model", "m", "--data", str(rows), few, "--dry-run"],
        ["study", "truthrl", spec, "--output", str(out), "--dry-run"],
    ):
        assert main(words) != 0
        told = capsys.readouterr().err
        assert "nothing" in told
        assert "mine" in told
    assert not out.exists()
    (tmp_path / "bug.py").write_text(NOTHING, encoding="utf-8")
    assert main(["train", spec, "--model", "m", "--data", str(rows), few, "--dry-run"]) == 0
    assert "'mine' could grade none of 3" in capsys.readouterr().err


def test_every_paper_can_be_tried_out() -> None:
    for name in fx.paper_names():
        tried = try_out(fx.load_reward(name), PROBE)
        assert not tried or any(result.value is not None for result in tried), name


def test_every_cheat_has_what_closes_it() -> None:
    policies, families = chosen([])
    steps = {
        f"{a} {'>=' if b == 'floored' else '>'} {b}"
        for a, b in zip(HONEST_ANSWERS, [*HONEST_ANSWERS][1:], strict=False)
    }
    assert guards().keys() == {*(one.id for one in (*policies, *families)), *steps}
    import factrl.rewards.guards as pieces

    for text in guards().values():
        assert all(hasattr(pieces, name) for name in re.findall(r"guards\.(\w+)", text))
