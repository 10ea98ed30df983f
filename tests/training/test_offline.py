"""`factrl tune`: every method through TRL on a tiny model, killed and resumed, and what DPO compares with."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from commands import write
from factrl.errors import DataError, ModelError, TooManyMasked
from factrl.runs.folder import read_metrics
from factrl.runs.rows import read_lines
from factrl.runs.settings import ModelSettings
from factrl.train import offline
from factrl.train.model import load_policy
from factrl.train.offline import tune
from factrl.train.tuning.plan import TunePlan, plan_tuning
from factrl.train.tuning.rules import Candidate
from factrl.train.tuning.samples import check_masked, measure_samples
from factrl.train.tuning.settings import read_tuning_job
from factrl.train.writing import PolicyWriter

pytestmark = pytest.mark.usefixtures("one_thread")

REWARDS = """
import factrl as fx

@fx.reward
def early(example, completion, *, knob=1.0):
    return {"early": knob / (1 + completion.find(example.answers[0]))} if example.answers[0] in completion \\
        else {"early": -float(len(completion))}
"""
SIZES = ("train.prompts_per_step=4", "train.micro_batch_size=4", "train.max_completion_length=5")
OFF = ("train.gradient_checkpointing=false", "train.bf16=false")
COMMON = ("data.prompt={question}", *SIZES, *OFF, "train.learning_rate=1e-3", "run.seed=3")
SAMPLED = ("sampling.num_samples=4", "sampling.temperature=1.0")


@pytest.fixture
def words(tiny_model: Path, questions: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "own.py").write_text(REWARDS, "utf-8")
    return [
        *COMMON,
        f"model.name={tiny_model}",
        f"data.train={questions}",
        f"run.dir={tmp_path / 'runs'}",
        f"paper={tmp_path / 'own.py'}:early",
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
    sampled = () if {"tune.method=sft", "tune.method=r-tuning"} & {*more} else SAMPLED
    return plan_tuning(read_tuning_job(None, [*words, *sampled, *more]))


def test_a_given_completion_opens_no_reasoning_that_its_prompt_has_opened(
    words: list[str], questions: Path, tmp_path: Path
) -> None:
    """Chat templates of DeepSeek-R1's distillations end with `<think>`, and R1's texts begin with it."""
    rows = [*read_lines(questions)][:3]
    texts = ("<think>\nHmm.\n</think><answer>Rome</answer>", "Hmm.</think>Oslo", " ")
    given = (row | {"r1": text} for row, text in zip(rows, texts, strict=True))
    file = write(tmp_path / "r1.jsonl", *given)
    plan = planned(words, "tune.method=dpo", "rule=max-min", "tune.chosen=r1", f"data.train={file}")
    group, prompts = [Candidate("worst", value=0.0)], ["Q<think>\n", "Q<think>", "Q"]
    made, left_out = offline.make_rows(plan, [group] * 3, prompts, 0)
    assert [(row["chosen"], row["rejected"]) for row in made] == [
        ("Hmm.\n</think><answer>Rome</answer>", "worst"),
        ("Hmm.</think>Oslo", "worst"),
    ]
    assert left_out == {"no chosen text": 1}
    made, _ = offline.make_rows(plan, [group] * 3, ["Q"] * 3, 0)
    assert made[0]["chosen"] == texts[0]
    plan = planned(words, "tune.method=sft", "data.columns.answers=r1", f"data.train={file}", "data.limit=2")
    made, _ = offline.make_rows(plan, [[], []], prompts[:2], 0)
    assert [row["completion"] for row in made] == ["Hmm.\n</think><answer>Rome</answer>", "Hmm.</think>Oslo"]


def rows_of(run: Path, part: str = "") -> list[dict[str, Any]]:
    return [*read_lines(run / "data" / part / "train.jsonl")]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def same(first: Path, second: Path) -> bool:
    a, b = weights(first), weights(second)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_sft_learns_the_answers(words: list[str], questions: Path) -> None:
    plan = planned(words, "tune.method=sft", "train.steps=40", "learning_rate=1e-2", f"data.eval={questions}")
    told: list[str] = []
    run, outcome = tune(plan, told.append)
    assert told == ["8 rows from 8 questions"]
    assert rows_of(run)[0] == {
        "id": "ada",
        "prompt": "user where is ada from ? is ",
        "completion": "rome",
        "truncated": False,
        "why": "accepted answer",
    }
    assert outcome is not None
    document = json.loads((run / "evaluation.json").read_text("utf-8"))
    after = [row["after"]["completion"] for row in document["rows"]]
    assert {*after} <= {"rome", "oslo", "lima", "cairo"}  # one word: the end token was learnt too
    assert document["after"]["accuracy"]["value"] > document["before"]["accuracy"]["value"] == 0
    lines = read_metrics(run)
    assert [line["step"] for line in lines] == list(range(1, 41))
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"]
    assert not (run / "lock").exists()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (("r-tuning",), {"accepted answer": 4, "out of knowledge: abstention": 4}),
        (("rft",), {"own right sample, 1 of 1 among 3": 4, "own abstaining sample, 1 of 1 among 3": 4}),
        (
            ("dpo", "tune.rule=correctness"),
            {"right over wrong": 4, "out of knowledge: abstained over wrong": 4},
        ),
    ],
)
def test_methods_that_need_a_probe_learn_from_its_samples(
    words: list[str], probed: Path, method: tuple[str, ...], expected: dict[str, int]
) -> None:
    plan = planned(words, f"tune.method={method[0]}", *method[1:], f"tune.probe={probed}", "train.steps=3")
    run, outcome = tune(plan)
    assert outcome is None
    found = [row["why"] for row in rows_of(run)]
    assert {why: found.count(why) for why in found} == expected
    assert not (run / "data" / "samples.jsonl").exists()
    assert not same(run / "model", Path(plan.settings.model.name))
    assert read_metrics(run)[-1]["step"] == 3


def test_dpo_on_a_reward_moves_towards_the_chosen(words: list[str]) -> None:
    plan = planned(words, "tune.method=dpo", "tune.rule=max-min", "train.steps=12")
    run, _ = tune(plan)
    for row in rows_of(run):
        better, worse = map(float, row["why"].split(" over "))
        assert better > worse
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
    found = measure_samples(broken, {}, plan.examples, samples, path, prefill="", label="measure")
    assert [s.cause for s in found[0]] == ["timeout", "timeout"]
    asked: list[str] = []

    def mended(examples: Any, texts: Any) -> Any:
        asked.extend(texts)
        return [{"label": "correct"}] * len(texts)

    again = measure_samples(mended, {}, plan.examples, samples, path, prefill="", label="measure")
    assert asked == ["ada 0", "ada 1"]
    assert {s.label for group in again for s in group} == {"correct"}
    assert check_masked(found, 0.5, tmp_path) == {"timeout": 2}
    with pytest.raises(TooManyMasked, match=r"2 of 16 samples .*2 timeout.*factrl tune --resume"):
        check_masked(found, 0.1, tmp_path)
    assert check_masked([[Candidate("", cause="declines")]], 0.1, tmp_path) == {"declines": 1}
    assert check_masked([[Candidate("", cause="no_think")]], 0.1, tmp_path) == {"no_think": 1}


def test_every_round_compares_with_the_model_of_the_round_before(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def recorded(settings: Any) -> Any:
        loaded.append(Path(settings.name).name)
        return load_policy(settings)

    monkeypatch.setattr(offline, "load_policy", recorded)
    plan = planned(words, "tune.method=iterative-dpo", "tune.rule=max-min", "tune.rounds=2", "train.steps=3")
    run, _ = tune(plan)
    assert loaded[2:] == ["1", "1"]  # the second round's policy and its reference
    lines = read_metrics(run)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    margins = [line["rewards/margins"] for line in lines]
    assert margins[0] == margins[3] == 0
    assert all(margin != 0 for margin in (*margins[1:3], *margins[4:]))
    first, second = (run / "data" / f"round_{n}" / "samples.jsonl" for n in (1, 2))
    heads = [json.loads(path.read_text("utf-8").splitlines()[0]) for path in (first, second)]
    assert heads[0]["model"] != heads[1]["model"]
    assert [head["numbers"] for head in heads] == [[0, 3], [4, 7]]
    assert not same(run / "iterates" / "1", run / "model")


def test_what_an_adapter_was_tuned_to_is_the_whole_start_of_the_next_stage(
    words: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    lora = ("model.lora=true", "model.lora_rank=4", "train.steps=2", "tune.rule=max-min")
    run, _ = tune(planned(words, "tune.method=dpo", *lora))
    first = run / "model"
    again, _ = tune(planned(words, "tune.method=dpo", *lora, f"model.name={first}", "learning_rate=1e-12"))
    moved, kept = weights(first), weights(again / "model")
    assert all(torch.allclose(moved[name], kept[name], atol=1e-6) for name in moved)
    assert not same(tiny_model, first)
    run, _ = tune(planned(words, "tune.method=iterative-dpo", "tune.rounds=2", *lora))
    for folder in (first, again / "model", run / "iterates" / "1", run / "model"):
        assert (folder / "config.json").is_file()
        assert not (folder / "adapter_config.json").exists()
    assert not same(run / "iterates" / "1", run / "model")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").touch()
    with pytest.raises(ModelError, match="is an adapter"):
        tune(planned(words, "tune.method=sft", f"model.name={adapter}"))


def test_label_smoothing_is_conservative_dpo(words: list[str], tmp_path: Path) -> None:
    smoothing = 0.3
    losses = []
    for e in (0.0, smoothing):
        plan = planned(words, "tune.method=dpo", "tune.rule=max-min", f"tune.label_smoothing={e}")
        model, tokenizer = load_policy(plan.settings.model)
        row = {"prompt": "where is ada", "chosen": "rome", "rejected": "oslo ."}
        row |= {"chosen_truncated": False, "rejected_truncated": True}
        trainer: Any = offline.trainer_of(
            plan.settings, plan.settings.model, model, tokenizer, [row], tmp_path
        )
        with torch.no_grad():
            model.get_input_embeddings().weight[7] += 0.5
        batch = next(iter(trainer.get_train_dataloader()))
        losses.append(trainer.compute_loss(trainer.model, batch).item())
        assert batch["completion_mask"].sum(dim=1).tolist() == [2, 2]  # `rome <end>`, `oslo .`
    margin = -math.log(math.expm1(losses[0]))
    assert abs(margin) > 1e-3
    assert losses[1] == pytest.approx(
        (1 - smoothing) * losses[0] + smoothing * (losses[0] + margin), abs=1e-6
    )


# Killed and resumed


@pytest.mark.fault("F20")
def test_killed_before_a_round_is_said_to_be_done_it_goes_on(words: list[str]) -> None:
    plan = planned(words, "tune.method=sft", "train.steps=2", "train.save_steps=1")
    run, _ = tune(plan)
    before = weights(run / "model")
    (run / "data" / "done.json").unlink()
    resumed, _ = tune(plan_tuning(read_tuning_job(run / "tune.toml", [f"run.resume={run}"])))
    after = weights(resumed / "model")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (run / "data" / "done.json").is_file()


KILLED = """
import os, sys
from factrl.runs import disk, folder as run
from factrl.train.tuning import samples
from factrl.train.offline import tune
from factrl.train.tuning.plan import plan_tuning
from factrl.train.tuning.settings import read_tuning_job

samples.PART = 8
where, after, *words = sys.argv[1:]
kind, method = (disk.Journal, "add") if where == "sampling" else (run.Run, "log")
left, plain = int(after), getattr(kind, method)

def dying(self, *args):
    global left
    if left == 0:
        os._exit(9)  # as a kill does: nothing is closed, flushed or released
    left -= 1
    return plain(self, *args)

setattr(kind, method, dying)
tune(plan_tuning(read_tuning_job(None, words)))
"""


@pytest.mark.fault("F20")
@pytest.mark.parametrize(("where", "after"), [("sampling", 5), ("training", 5)])
def test_a_killed_run_goes_on_with_the_same_rows_and_weights(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, after: int
) -> None:
    monkeypatch.setattr("factrl.train.tuning.samples.PART", 8)
    more = (*SAMPLED, "tune.method=iterative-dpo", "tune.rule=max-min", "tune.rounds=2")
    more += ("train.steps=4", "train.save_steps=2")
    whole, _ = tune(planned(words, *more))
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, where, str(after), *words, *more, f"run.dir={folder}"]
    died = subprocess.run(command, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert died.returncode == 9, died.stderr.decode()
    [run] = folder.iterdir()

    written: list[Sequence[str]] = []
    plain = PolicyWriter.write

    def counted(self: Any, examples: Any, *args: Any, **named: Any) -> Any:
        written.append([example.id for example in examples])
        return plain(self, examples, *args, **named)

    monkeypatch.setattr(PolicyWriter, "write", counted)
    job = read_tuning_job(run / "tune.toml", [f"run.resume={run}"])
    resumed, _ = tune(plan_tuning(job))
    assert resumed == run
    assert not [*run.rglob("*.unfinished"), *run.rglob("*.tmp")]
    assert len(written) == (6 if where == "sampling" else 0)  # 4 parts a round, 2 of them done; or all done
    for part in ("round_1", "round_2"):
        assert rows_of(run, part) == rows_of(whole, part)
    assert same(run / "model", whole / "model")
    curves = [[(line["step"], line["loss"]) for line in read_metrics(path)] for path in (run, whole)]
    assert curves[0] == curves[1]
    written.clear()
    tune(plan_tuning(job))  # there is nothing left to do
    assert written == []


@pytest.mark.parametrize("lora", [True, False])
def test_before_and_after_are_answered_in_one_precision(
    words: list[str], questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: bool
) -> None:
    half = tmp_path / "half"
    model, tokenizer = load_policy(ModelSettings(name=words[len(COMMON)].removeprefix("model.name=")))
    model.to(torch.bfloat16).save_pretrained(half)
    tokenizer.save_pretrained(half)
    found: list[tuple[Any, ...]] = []
    plain = PolicyWriter.load

    def recorded(settings: Any) -> PolicyWriter:
        writer = plain(settings)
        weight = writer.model.get_input_embeddings().weight
        found.append((settings.model.model_copy(update={"name": ""}), weight.dtype))
        return writer

    monkeypatch.setattr(PolicyWriter, "load", recorded)
    more = (f"model.name={half}", f"data.eval={questions}", f"model.lora={str(lora).lower()}")
    tune(planned(words, "tune.method=sft", *more, "train.steps=1"))
    _, before, after = found
    assert before == after
    assert before[1] == (torch.bfloat16 if lora else torch.float32)
