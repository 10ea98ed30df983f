"""`to_trl`: factrl's rewards in a plain TRL trainer and on TRL's own command line."""

from __future__ import annotations

import inspect
import json
import math
import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from tiny import FEW_STEPS
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from factrl.bridges import trl as bridge
from factrl.bridges.trl import to_trl
from factrl.errors import ConfigError, DataError, TooManyMasked, Unscored
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.papers import load_paper, load_reward, paper_names
from factrl.rewards import reward
from factrl.rewards.grading import Grader
from factrl.runs.rows import read_lines
from factrl.train import trl_rows
from factrl.types import Completion, Example, Passage, Score
from fault_server import FaultServer, says

SPECS = [f"{name}:{variant}" for name in paper_names() for variant in load_paper(name).variants]
TRUTHRL = load_reward("truthrl").with_(grade=Grader())
SEEN: list[tuple[Example, Completion]] = []


@reward
def watched(example: Example, completion: Completion) -> Score:
    """Keeps what it is given; cannot grade a "?"."""
    SEEN.append((example, completion))
    if completion == "?":
        raise Unscored("odd")
    return Score({"length": float(len(completion))}, facts={"n": 1})


@pytest.fixture(autouse=True)
def _nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    for name in ("FACTRL_JUDGE_BASE_URL", "FACTRL_JUDGE_MODEL", "FACTRL_JUDGE_API_KEY", "FACTRL_SETTINGS"):
        monkeypatch.delenv(name, raising=False)


def examples() -> list[Example]:
    return sorted((example for example, _ in SEEN), key=lambda example: example.question)


# What the function makes of its arguments


@reward
def late(example: Example, completion: Completion) -> Score:
    if completion == "late":
        raise Unscored("timeout", "http://host/v1 no complete reply within 20 s")
    return Score({"a": 1.0})


def test_each_batch_says_what_failed_and_what_helps(caplog: pytest.LogCaptureFixture) -> None:
    score, seen = to_trl(late), dict[str, float]()
    for _ in range(2):
        assert score(["q"] * 3, ["late", "fine", "late"], log_metric=seen.__setitem__) == [None, 1.0, None]
    assert len(caplog.messages) == 2
    for word in ("2 of 3", "timeout", "20 s", "judge.timeout_attempt"):
        assert word in caplog.messages[0]
    assert seen["reward/seconds"] >= 0.0
    caplog.clear()
    score(["q"], ["fine"])
    assert not caplog.messages


def test_batches_without_a_number_end_the_run() -> None:
    score = to_trl(late)
    for texts in (["late"], ["late"], ["fine"], ["late"], ["late"]):
        score(["q"], texts)
    with pytest.raises(TooManyMasked, match="timeout"):
        score(["q"], ["late"])


def test_another_process_gets_the_same_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's AsyncGRPOTrainer pickles its rewards."""
    judge = OpenAICompatible("http://localhost:1/v1", "m")
    score = to_trl(load_reward("truthrl:binary").with_(grade=Grader(judge), wrong=-2.0), prefill="<think>")
    again = pickle.loads(pickle.dumps(score))  # noqa: S301
    assert again.__name__ == score.__name__
    assert (again.reward.fn, again.reward.knobs) == (score.reward.fn, score.reward.knobs)
    answers = (["a"], [r"</think>\boxed{I don't know}"])
    assert again(*answers, answers=[["b"]]) == score(*answers, answers=[["b"]]) == [-1.0]
    (tmp_path / "own.py").write_text(
        "from factrl import reward\n@reward\ndef f(e, c):\n    return {'a': 1}\n"
    )
    with pytest.raises(TypeError, match="put its folder into PYTHONPATH"):
        pickle.dumps(load_reward(f"{tmp_path}/own.py:f"))


def test_a_trl_that_makes_a_number_of_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsloth still asks for trl 0.24, where an ungraded completion earns what an abstention does."""
    monkeypatch.setattr(trl_rows, "version_of", lambda name: "1.5.1")
    told: Any = (["Capital of Peru?"], [r"\boxed{Lima}"])
    with pytest.raises(ConfigError, match=r"trl 1\.5\.1 counts .* trl 1\.6 and later"):
        to_trl(TRUTHRL)(*told, answers=[["Lima"]])
    for version in ("1.6.0", "2.0", None):
        monkeypatch.setattr(trl_rows, "version_of", lambda name, version=version: version)
        assert to_trl(TRUTHRL)(*told, answers=[["Lima"]]) == [1.0]


def test_columns_become_the_example() -> None:
    to_trl(watched)(
        prompts=["Answer: Capital of Peru?"],
        completions=["Lima"],
        completion_ids=[[5, 6, 7]],
        question=["Capital of Peru?"],
        answers=[["Lima"]],
        evidence=[[{"text": "Lima is the capital.", "title": "Peru"}]],
        topic=["Peru"],
        checklist=[["Lima is the capital."]],
        ook=[False],
        id=["peru"],
        level=["easy"],
        trainer_state=SimpleNamespace(global_step=1),
    )
    ((example, completion),) = SEEN
    assert (example.question, example.answers, example.id) == ("Capital of Peru?", ("Lima",), "peru")
    assert example.evidence == (Passage("Lima is the capital.", "Peru"),)
    assert (example.topic, example.ook, example.checklist) == ("Peru", False, ("Lima is the capital.",))
    assert example.meta["level"] == "easy"
    assert completion.tokens == 3


def test_the_question_is_what_the_user_says_last() -> None:
    chat = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Capital of Peru?"}]},
    ]
    said = [[{"role": "assistant", "content": "Lima"}], [{"role": "assistant", "content": None}], []]
    assert to_trl(watched)([chat, chat, "Capital of Chile?"], said) == [4.0, 0.0, 0.0]
    assert [example.question for example in examples()] == ["Capital of Chile?", *["Capital of Peru?"] * 2]


def test_of_a_conversation_with_tools_the_last_answer_counts() -> None:
    call = {"type": "function", "function": {"name": "search", "arguments": {"query": "Peru"}}}
    looked = [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "name": "search", "content": "Lima is the capital of Peru."},
    ]
    asked = [{"role": "user", "content": "Capital of Peru?"}]
    answered = [*looked, {"role": "assistant", "content": "Lima"}]
    unanswered = [*looked, {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert to_trl(watched)([asked, asked], [answered, unanswered]) == [4.0, 0.0]


def test_prefill_is_given_or_the_start_of_the_assistants_turn() -> None:
    opened = [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "<think>Hm"}]
    to_trl(watched, prefill="<think>")([opened, "Q?"], [[{"role": "assistant", "content": "x"}], "y"])
    assert {str(text): text.prefill for _, text in SEEN} == {"x": "<think>Hm", "y": "<think>"}


def test_what_is_logged() -> None:
    metrics: dict[str, float] = {}
    extra: dict[str, list[Any]] = {}
    to_trl(watched)(
        ["a", "b"], ["one", "?"], log_metric=metrics.__setitem__, log_extra=lambda k, v: extra.update({k: v})
    )
    assert to_trl(watched).__name__ == "watched"
    assert metrics["rewards/length/mean"] == 3
    assert (metrics["reward/masked_frac"], metrics["masked/odd"]) == (0.5, 0.5)
    assert extra["watched_state"] == ["scored", "masked"]
    assert extra["watched_cause"] == ["", "odd"]
    assert [json.loads(terms) for terms in extra["watched_terms"]] == [{"length": 3}, {}]
    assert json.loads(extra["watched_facts"][0]) == {"n": 1}


def test_what_is_missing_is_told() -> None:
    with pytest.raises(ConfigError, match=r"grade; factrl\.supply\(reward, judge\)"):
        to_trl(load_reward("truthrl"))
    with pytest.raises(DataError, match=r"1 of 1 examples .* accepted answers"):
        to_trl(TRUTHRL)(["Capital of Peru?"], ["Lima"])


def test_a_row_of_no_use_is_refused_at_the_first_batch_and_masked_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics: dict[str, float] = {}
    score, right = to_trl(TRUTHRL), [r"\boxed{Lima}"] * 2
    with pytest.raises(DataError, match=r"none of the 2 rows .* columns: prompt, answers; "):
        score(["Capital of Peru?"] * 2, right, answers=[None, []])
    assert score(["Q?"] * 2, right, answers=[["Lima"], None]) == [1.0, None]
    for cell in (None, [], "[1, 2]", '["Lima'):  # a whole batch, and what cannot be read
        told = score(["Q?"] * 2, right, answers=[cell] * 2, log_metric=metrics.__setitem__)
        assert told == [None, None]
    assert metrics["masked/unusable_row"] == metrics["reward/masked_frac"] == 1
    assert len(caplog.messages) == 1
    assert "it has no accepted answers; their completions are None" in caplog.messages[0]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "truthrl",
            r"reads \\boxed{…}, .*none of the 3 .*\(no_box\).* ask for it .*with_\(answer=\"text\"\)",
        ),
        ("truthrl:binary", r"reads \\boxed{…}, "),
        ("robust", r"reads <think>…</think>, .*no_think"),
        ("rlcr", r"reads <confidence>…</confidence>, .*no_confidence"),
    ],
)
def test_a_form_that_no_prompt_asks_for_is_said_once(
    spec: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = load_reward(spec).with_(grade=Grader())
    score = to_trl(made.with_(verify=lambda *_, **__: None) if "verify" in made.missing else made)
    asked: Any = {"prompts": ["Capital of Peru?"] * 3, "answers": [["Lima"]] * 3, "evidence": [["Lima."]] * 3}
    for _ in range(2):
        assert len({*score(completions=["Lima", "I don't know.", "Cusco"], **asked)}) == 1
    (message,) = caplog.messages
    assert re.search(said, message), message


@pytest.mark.parametrize("completions", [[r"\boxed{Lima}", "Lima"], [r"\boxed{}", r"\boxed{...}"]])
def test_nothing_is_said_of_a_form_that_some_keep(
    completions: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    to_trl(TRUTHRL)(["Capital of Peru?"] * 2, completions, answers=[["Lima"]] * 2)
    to_trl(TRUTHRL.with_(answer="text"))(["Capital of Peru?"], ["Cusco"], answers=[["Lima"]])
    assert not caplog.messages


# A plain trainer


def plain_trainer(
    model: Path, folder: Path, functions: Sequence[Any], rows: Sequence[dict[str, Any]], kind: str
) -> Any:
    made: Any
    settings: Any
    made, settings = (GRPOTrainer, GRPOConfig) if kind == "grpo" else (RLOOTrainer, RLOOConfig)
    config = settings(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=4,
        learning_rate=1e-3,
        **FEW_STEPS,
    )
    return made(str(model), reward_funcs=[*functions], args=config, train_dataset=Dataset.from_list([*rows]))


@pytest.mark.parametrize(
    ("kind", "chat", "asynchronous"), [("grpo", False, False), ("rloo", True, False), ("grpo", True, True)]
)
def test_two_steps_of_a_plain_trainer(
    tiny_model: Path, questions: Path, tmp_path: Path, kind: str, chat: bool, asynchronous: bool
) -> None:
    rows = [*read_lines(questions)]
    for row in rows:
        row["prompt"] = [{"role": "user", "content": row["question"]}] if chat else row["question"]
        if chat:
            del row["question"]

    @reward
    def vowels(example: Example, completion: Completion) -> dict[str, float]:
        assert example.question.startswith("where is ")
        assert example.answers
        if len(completion) % 3 == 0:
            raise Unscored("odd")
        return {"e": float(completion.count("e")), "o": float(completion.count("o"))}

    score = to_trl(vowels, asynchronous=True) if asynchronous else to_trl(vowels)
    assert inspect.iscoroutinefunction(score) is asynchronous  # how TRL before 1.16 asks
    trainer = plain_trainer(tiny_model, tmp_path, [score], rows, kind)
    kept: list[Any] = []
    inner = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: kept.append(inner(inputs)) or kept[-1]
    trainer.train()
    logs = [line for line in trainer.state.log_history if "rewards/vowels/mean" in line]
    assert len(logs) == 2
    for line, batch in zip(logs, kept, strict=True):
        states = line["reward/scored_frac"], line["reward/masked_frac"]
        assert sum(states) == pytest.approx(1)
        if states[0]:
            both = line["rewards/e/mean"] + line["rewards/o/mean"]
            assert line["rewards/vowels/mean"] == pytest.approx(both, abs=1e-6)
        assert (batch["advantages"] == 0).sum() >= round(4 * states[1])
    assert 0 < sum(line["reward/masked_frac"] for line in logs) < len(logs)
    assert math.isfinite(trainer.state.log_history[-1]["train_loss"])
    table = trainer._logs["extra"]
    assert {*table} == {"vowels_state", "vowels_cause", "vowels_terms", "vowels_facts"}
    advantages = trainer._logs["advantages"]
    masked = [state == "masked" for state in table["vowels_state"]]
    assert len(masked) == len(advantages)
    assert all(value == 0 for value, out in zip(advantages, masked, strict=True) if out)


# TRL's command line


def test_every_variant_is_an_attribute() -> None:
    specs = {re.sub(r"\W", "_", spec): spec for spec in (*paper_names(), *SPECS)}
    assert len(specs) == len(paper_names()) + len(SPECS)
    assert {*specs} <= {*dir(bridge)}
    with pytest.raises(AttributeError, match=r"has no reward 'trutrhl'; did you mean 'truthrl'\?"):
        bridge.trutrhl  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute '_nothing'"):
        bridge._nothing  # noqa: B018


def test_settings_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., FaultServer]
) -> None:
    server = serve(says("Paris is not Lima.\nVERDICT: incorrect"))
    monkeypatch.setenv("FACTRL_JUDGE_BASE_URL", server.url)
    monkeypatch.setenv("FACTRL_JUDGE_MODEL", "j")
    monkeypatch.setenv("FACTRL_SETTINGS", "reward.wrong=-3 data.columns.question=q")
    function = bridge.truthrl_binary
    assert function.__name__ == "truthrl_binary"
    assert function(["p"], ["\\boxed{Paris}"], q=["Capital of Peru?"], answers=[["Lima"]]) == [-3.0]
    assert len(server.requests) == 1
    monkeypatch.setenv("FACTRL_SETTINGS", "reward.wrnog=-3")
    with pytest.raises(ConfigError, match="did you mean 'wrong'"):
        bridge.truthrl  # noqa: B018
