"""`factrl tune`: every method through TRL on a tiny model, killed and resumed, and what DPO compares with."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from dying import died

from commands import write
from factrl.errors import DataError, ModelError, TooManyMasked
from factrl.runs.folder import read_metrics
from factrl.runs.rows import read_lines
from factrl.runs.settings import ModelSettings
from factrl.train import offline
from factrl.train.model import load_policy, load_tokenizer
from factrl.train.offline import tune
from factrl.train.tuning.plan import TunePlan, plan_tuning
from factrl.train.tuning.rules import Candidate
from factrl.train.tuning.samples import check_masked, measure_samples
from factrl.train.tuning.settings import read_tuning_job

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = ("train.prompts_per_step=4", "train.micro_batch_size=4", "train.max_completion_length=5")
OFF = ("train.gradient_checkpointing=false", "train.bf16=false")
COMMON = ("data.prompt={question}", *SIZES, *OFF, "train.learning_rate=1e-3", "run.seed=3")
SAMPLED = ("sampling.num_samples=4", "sampling.temperature=1.0")


@pytest.fixture
def words(tiny_model: Path, questions: Path, tmp_path: Path) -> list[str]:
    return [
        *COMMON,
        f"model.name={tiny_model}",
        f"data.train={questions}",
        f"run.dir={tmp_path / 'runs'}",
    ]


@pytest.fixture
def probed(questions: Path, tmp_path: Path) -> Path:
    """What a probe would have found: every second question is known."""
    rows = []
    for number, row in enumerate([*read_lines(questions)]):
        right = {"text": f"{row['answers'][0]} .", "label": "correct"}
        wrong, idk = (
            {"text": "i know", "label": "incorrect"},
            {"text": "i don ' t know", "label": "abstained"},
        )
        samples = [wrong, right, idk] if number % 2 else [idk, wrong, {"text": "oslo", "label": None}]
        rows.append({**row, "ook": not number % 2, "samples": samples})
    return write(tmp_path / "probed.jsonl", *rows)


def planned(words: Sequence[str], *more: str) -> TunePlan:
    return plan_tuning(read_tuning_job(None, [*words, *more]))


def test_given_rows_are_read_as_they_stand(words: list[str], tiny_model: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(ModelSettings(name=str(tiny_model)))
    ask = [{"role": "user", "content": "where"}]
    rows = [
        {"prompt": "where ?", "completion": "rome"},
        {"prompt": ask, "completion": "oslo"},
        {"prompt": [*ask, {"role": "assistant", "content": "i"}], "completion": "know"},
        {"question": "where ?", "completion": "lima"},
        {"question": "where <think>", "completion": "<think>\nHmm.</think>lima"},
    ]
    file = write(tmp_path / "given.jsonl", *rows)
    plan = planned(words, "tune.method=sft", f"data.train={file}", "data.prefill=<think>")
    found = [(row["prompt"], row["chat"], row["completion"]) for row in offline.given_rows(plan, tokenizer)]
    assert found == [
        ("where ?", False, "rome"),
        ("user where is ", True, "oslo"),
        ("user where assistant i", True, "know"),
        ("user where ? is <think>", True, "lima"),
        ("user where <think> is <think>", True, "Hmm.</think>lima"),  # which the prompt has opened
    ]
    write(file, {"messages": [*ask, {"role": "assistant", "content": "rome oslo"}]})
    run = tune(
        planned(words, "tune.method=sft", f"data.train={file}", "train.prompts_per_step=1", "train.steps=30")
    )
    model, _ = load_policy(ModelSettings(name=str(run / "model")))
    ids = tokenizer("user where is ", return_tensors="pt")
    written = model.generate(**ids, max_new_tokens=3, do_sample=False)[0, ids["input_ids"].size(1) :]
    assert tokenizer.decode(written) == "rome oslo <end>"


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [*read_lines(run / "data" / "train.jsonl")]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def same(first: Path, second: Path) -> bool:
    a, b = weights(first), weights(second)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_sft_makes_rows_of_the_answers(words: list[str]) -> None:
    told: list[str] = []
    run = tune(planned(words, "tune.method=sft", "train.steps=2"), told.append)
    assert told == ["8 rows from 8 questions"]
    assert rows_of(run)[0] == {
        "id": "ada",
        "prompt": "user where is ada from ? is ",
        "chat": True,
        "completion": "rome",
        "truncated": False,
        "why": "accepted answer",
    }
    assert [line["step"] for line in read_metrics(run)] == [1, 2]
    assert not (run / "lock").exists()


def test_a_method_that_needs_a_probe_learns_from_its_samples(words: list[str], probed: Path) -> None:
    method = ("tune.method=dpo", "tune.rule=correctness", f"tune.probe={probed}")
    plan = planned(words, *method, "train.steps=3")
    run = tune(plan)
    found = [row["why"] for row in rows_of(run)]
    assert Counter(found) == {"right over wrong": 4, "out of knowledge: abstained over wrong": 4}
    assert not (run / "data" / "samples.jsonl").exists()
    assert not same(run / "model", Path(plan.settings.model.name))
    assert read_metrics(run)[-1]["step"] == 3


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Eight pairs, of which the better one is a place and the worse one none."""
    rows = [
        {"prompt": f"where is {who} from ?", "chosen": "rome", "rejected": "i don ' t know ."}
        for who in ("ada", "bo", "cleo", "dan", "eve", "fay", "gus", "hal")
    ]
    return write(tmp_path / "pairs.jsonl", *rows)


def test_dpo_moves_towards_the_chosen(words: list[str], pairs: Path) -> None:
    run = tune(planned(words, "tune.method=dpo", "tune.rule=given", f"data.train={pairs}", "train.steps=12"))
    lines = read_metrics(run)
    assert lines[0]["rewards/margins"] == 0  # the reference is where it starts
    assert lines[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert lines[-1]["rewards/margins"] > 0.01


def test_questions_without_a_row_are_counted_and_none_at_all_is_an_error(
    words: list[str], probed: Path, tmp_path: Path
) -> None:
    wrong = {"samples": [{"text": "i know", "label": "incorrect"}]}
    write(probed, *(row | wrong for row in [*read_lines(probed)]))
    told: list[str] = []
    with pytest.raises(DataError, match=r"no question gives a row .*; 4 left out: no right sample"):
        tune(planned(words, "tune.method=rft", f"tune.probe={probed}"), told.append)
    assert "4 left out: no abstaining sample (out of knowledge)" in told[0]


def test_masked_samples_are_not_kept_and_too_many_stop_the_run(tmp_path: Path, words: list[str]) -> None:
    plan = planned(words, "tune.method=sft")
    samples = [[Candidate(f"{e.id} {n}") for n in range(2)] for e in plan.examples]

    def broken(examples: Any, texts: Any) -> Any:
        return [{"cause": "timeout"} if "ada" in t else {"label": "correct"} for t in texts]

    path = tmp_path / "m.jsonl"
    found = measure_samples(broken, {}, plan.examples, samples, path, prefill="")
    assert [s.cause for s in found[0]] == ["timeout", "timeout"]
    asked: list[str] = []

    def mended(examples: Any, texts: Any) -> Any:
        asked.extend(texts)
        return [{"label": "correct"}] * len(texts)

    again = measure_samples(mended, {}, plan.examples, samples, path, prefill="")
    assert asked == ["ada 0", "ada 1"]
    assert {s.label for group in again for s in group} == {"correct"}
    assert check_masked(found, 0.5, tmp_path) == {"timeout": 2}
    with pytest.raises(TooManyMasked, match=r"2 of 16 samples .*2 timeout.*factrl tune --resume"):
        check_masked(found, 0.1, tmp_path)
    assert check_masked([[Candidate("", cause="no_think")]], 0.1, tmp_path) == {"no_think": 1}


def test_what_an_adapter_was_tuned_to_is_the_whole_start_of_the_next_stage(
    words: list[str], tiny_model: Path, pairs: Path, tmp_path: Path
) -> None:
    lora = ("model.lora=true", "model.lora_rank=4", "train.steps=2", "tune.rule=given", f"data.train={pairs}")
    run = tune(planned(words, "tune.method=dpo", *lora))
    first = run / "model"
    again = tune(planned(words, "tune.method=dpo", *lora, f"model.name={first}", "train.learning_rate=1e-12"))
    moved, kept = weights(first), weights(again / "model")
    assert all(torch.allclose(moved[name], kept[name], atol=1e-6) for name in moved)
    assert not same(tiny_model, first)
    for folder in (first, again / "model"):
        assert (folder / "config.json").is_file()
        assert not (folder / "adapter_config.json").exists()
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").touch()
    with pytest.raises(ModelError, match="is an adapter"):
        tune(planned(words, "tune.method=sft", f"model.name={adapter}"))


# Killed and resumed


def test_a_run_that_is_killed_three_times_ends_as_one_that_never_was(
    words: list[str], questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("factrl.train.tuning.samples.PART", 8)
    flagged = ({**row, "ook": False} for row in read_lines(questions))
    file = write(tmp_path / "flagged.jsonl", *flagged)
    more = (
        *SAMPLED,
        "tune.method=rft",
        f"data.train={file}",
        "train.prompts_per_step=2",
        "train.micro_batch_size=2",
    )
    more += ("train.steps=6", "train.save_steps=2")
    # A model that knows two of the four places, so that some samples are right.
    known = write(tmp_path / "known.jsonl", *({**row, "answers": ["rome"]} for row in read_lines(questions)))
    start = tune(
        planned(words, "tune.method=sft", f"data.train={known}", "train.steps=20", "train.learning_rate=1e-2")
    )
    more += (f"model.name={start / 'model'}",)
    whole = tune(planned(words, *more))
    run = tmp_path / "killed"
    told = [*words, *more, f"run.output={run}"]
    moments = (("sampling", 3), ("logging", 3), ("ending", 0))
    deaths = [["tune", where, after, "kill", *told] for where, after in moments]
    assert died(*deaths)[0] == [9, 9, 9]
    assert not (run / "done.json").exists()
    resumed = tune(plan_tuning(read_tuning_job(None, told)))
    assert resumed == run
    assert not [*run.rglob("*.unfinished"), *run.rglob("*.tmp")]
    assert rows_of(run) == rows_of(whole)
    assert same(run / "model", whole / "model")
    curves = [[(line["step"], line["loss"]) for line in read_metrics(path)] for path in (run, whole)]
    assert curves[0] == curves[1]
    assert json.loads((run / "done.json").read_text("utf-8")) == {"steps": 6}
