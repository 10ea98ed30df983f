"""factrl's rewards inside TRL's own training step, on a tiny random Llama."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny import GivenTexts, Recording

from factrl.errors import LLMError, Unscored
from factrl.rewards import Reward, reward
from factrl.rewards.needs import supply
from factrl.runs.config import load_settings
from factrl.runs.folder import Run, read_metrics
from factrl.runs.settings import RunSettings
from factrl.train.callbacks import RunCallback
from factrl.train.grpo import FactualGRPOTrainer
from factrl.train.model import load_policy, render_prompts
from factrl.train.online import grpo_config
from factrl.train.trl_rows import TRLReward
from factrl.types import Completion, Example, Result, Score, Span
from test_metric_glossary import glossary

Values = Sequence[float | None]


def scripted(values: Values) -> Reward:
    """A reward that gives the n-th completion of a batch the n-th value; None is a judge that is down."""

    @reward
    def script(example: Example, completion: Completion) -> dict[str, float]:
        raise NotImplementedError

    class Script(Reward):
        def batch(self, examples: Sequence[Example], completions: Sequence[str]) -> list[Result]:
            return [
                Result("masked", None, cause="connection")
                if value is None
                else Result("scored", value, {"outcome": value})
                for value in (values[i % len(values)] for i in range(len(completions)))
            ]

    return Script(script.fn, "script", {}, {})


class Recorded(Recording, FactualGRPOTrainer):
    pass


class Scripted(GivenTexts, Recorded):
    pass


@pytest.fixture
def trainer(tiny_model: Path, tmp_path: Path) -> Callable[..., Recorded]:
    def make(
        values: Values | Reward,
        *overrides: str,
        kind: type[Recorded] = Recorded,
        run: Run | None = None,
        **extra: Any,
    ) -> Recorded:
        defaults = {
            "paper": "truthrl",
            "model": {"name": str(tiny_model)},
            "data": {"train": "none", "chat": False},
            "train": {
                "steps": 1,
                "prompts_per_step": 1,
                "num_generations": 4,
                "micro_batch_size": 4,
                "max_completion_length": 5,
                "gradient_checkpointing": False,
                "bf16": False,
                "learning_rate": 1e-2,
            },
        }
        settings = load_settings(RunSettings, overrides=list(overrides), defaults=defaults)
        model, tokenizer = load_policy(settings.model)
        people = ("ada", "bo", "cleo", "dan")
        examples = [Example(f"where is {name} from ?", ("rome",), id=name) for name in people]
        config = grpo_config(settings, tmp_path / "out")
        prefill = extra.pop("prefill", "")
        for name, value in extra.items():
            setattr(config, name, value)
        chosen = values if isinstance(values, Reward) else scripted(values)
        prompts = render_prompts(examples, tokenizer, settings.data)
        reader = TRLReward(chosen, prefill)
        reader.table = examples
        rows = Dataset.from_dict({"prompt": prompts, "example": range(len(prompts))})
        return kind(model, reader, config, rows, run=run, processing_class=tokenizer)

    return make


Make = Callable[..., Recorded]


def _weights(trainer: Recorded) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


# --- masking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[None] * 4, [1.0, None, None, None]])
def test_a_step_without_two_grades_changes_nothing(trainer: Make, values: Values) -> None:
    quiet = trainer(values, "train.weight_decay=0.0")
    before = _weights(quiet)
    quiet.train()
    assert quiet.losses == [0.0]
    assert torch.equal(_weights(quiet), before)


# --- step-wise credit -----------------------------------------------------------------------------------

GROUP = ("ada is from rome . bo is from oslo .", "oslo . rome", "lima", "i don ' t know . rome .")


def steps(text: str) -> tuple[Span, ...]:
    """One span per sentence: Rome is right, Oslo is wrong, the rest nobody knows."""
    spans, start = [], 0
    for sentence in text.split(" ."):
        spans.append(Span(start, start + len(sentence), ("rome" in sentence) - ("oslo" in sentence)))
        start += len(sentence) + 2
    return tuple(span for span in spans if span.end > span.start)


def judged(*, fails: Callable[[str], bool] = lambda text: False) -> Reward:
    """A reward with a judge behind it, which is down for the texts that `fails` names."""

    @reward
    def judged_steps(example: Example, completion: Completion) -> Score:
        if fails(completion):
            raise LLMError("connection", "refused")
        value = 2.0 * completion.startswith("ada") - 0.1 * len(completion.split())
        return Score({"outcome": value}, spans=steps(completion))

    return judged_steps


def signs(texts: Sequence[str]) -> torch.Tensor:
    """Of every word of the texts and of the end token."""
    rows = []
    for text in texts:
        row = []
        for sentence in text.split(" ."):
            words = sentence.split()
            row += [("rome" in words) - ("oslo" in words)] * len(words) + [0]  # the full stop
        rows.append(torch.tensor([*row[: len(text.split())], 0]))
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def written(
    trainer: Make, script: Sequence[str], loss: str, judge: Reward, *overrides: str, **extra: Any
) -> Scripted:
    size = (f"train.num_generations={len(script)}", f"train.micro_batch_size={len(script)}")
    told = (f"train.loss_type={loss}", "train.max_completion_length=12", *size, *overrides)
    trained: Any = trainer(judge, *told, kind=Scripted, **extra)
    trained.texts = script
    return trained


def test_a_reward_sees_the_group_the_step_and_how_the_run_goes(trainer: Make, tmp_path: Path) -> None:
    seen: list[Completion] = []

    @reward
    def watching(example: Example, completion: Completion, *, group: Any, course: Any) -> dict[str, float]:
        assert group(completion) == completion.group
        seen.append(completion)
        return {"length": float(len(completion))}

    told = trainer(supply(watching), "train.prompts_per_step=2", "train.micro_batch_size=8", "train.steps=3")
    scores = iter([0.2, 0.1, 0.3])
    callback = RunCallback(Run(tmp_path), evaluate=lambda step: {"accuracy": next(scores)}, eval_steps=1)
    told.add_callback(callback)
    told.train()
    assert [completion.course.stalled for completion in seen[::8]] == [0, 0, 1]
    for step in (seen[:8], seen[8:16], seen[16:]):
        assert sorted(step[0].course.texts) == sorted(step)
        groups = {completion.group for completion in step}
        assert [len(group) for group in groups] == [4, 4] or len(groups) == 1
        assert all(completion in completion.group for completion in step)


@pytest.mark.parametrize("loss", ["dapo", "reinforce++"])
def test_spans_become_token_advantages(trainer: Make, loss: str) -> None:
    """Equation 11 on the sequence advantages, which are those of the same rewards without spans."""

    @reward
    def plain(example: Example, completion: Completion) -> dict[str, float]:
        return dict(judged()(example, completion).terms)

    credited, whole = (written(trainer, GROUP, loss, judge) for judge in (judged(), plain))
    credited.train()
    whole.train()
    advantages, found = whole.batches[0]["advantages"], credited.batches[0]["advantages"]
    assert advantages.shape == (4,)
    rows = advantages.unsqueeze(1).expand(4, 11)
    y = signs(GROUP)
    expected = torch.where(y * rows >= 0, rows, -rows)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    flips = y * rows < 0
    assert bool((flips & (y > 0)).any())
    assert bool((flips & (y < 0)).any())
    assert credited.losses != whole.losses
    mask = credited.batches[0]["completion_mask"].bool()
    [log] = [entry for entry in credited.state.log_history if "credit/flipped" in entry]
    shares = [flips & mask, (y > 0) & mask, (y < 0) & mask]
    for name, share in zip(("flipped", "supported", "contradicted"), shares, strict=True):
        assert log[f"credit/{name}"] == pytest.approx(share.sum().item() / mask.sum().item())
    assert not any("credit" in name for entry in whole.state.log_history for name in entry)
    assert {name for name in log if name.startswith("credit/")} == set(glossary("Credit"))


def test_the_reward_knows_how_many_tokens_were_written(trainer: Make) -> None:
    """Without the end token; the prompt's prefill is no part of it, nor of the characters of spans."""
    seen: dict[str, Completion] = {}

    @reward
    def counting(example: Example, completion: Completion) -> dict[str, float]:
        seen[completion] = completion
        return {"outcome": 0.0}

    class CutOff(Scripted):
        def write(self, *args: Any) -> Any:
            told = super().write(*args)
            ids = [row[:-1] if len(row) > 10 else row for row in told["completion_ids"]]
            return {**told, "completion_ids": ids}

    cut: Any = trainer(counting, "train.max_completion_length=12", kind=CutOff, prefill="<think>")
    cut.texts = GROUP
    cut.train()
    assert [(c.tokens, c.truncated) for c in map(seen.__getitem__, GROUP)] == [
        (10, True),
        (3, False),
        (1, False),
        (8, False),
    ]
    assert {c.prefill for c in seen.values()} == {"<think>"}


def test_a_judge_that_dies_in_the_middle_of_training(trainer: Make, tmp_path: Path) -> None:
    """From the third step on, the judge fails for the last text: as if it had not been sampled."""
    step = 0
    dying = written(
        trainer, GROUP, "dapo", judged(fails=lambda text: step >= 2 and text == GROUP[3]), "train.steps=4"
    )

    def count(*args: Any) -> Any:
        nonlocal step
        step = dying.state.global_step
        return dying.write(*args)

    dying.rollout_func = count
    with Run.create(tmp_path, "dying", "") as run:
        dying.run = run
        dying.add_callback(RunCallback(run))
        dying.train()
        metrics = read_metrics(run.path)
    alive = written(trainer, GROUP, "dapo", judged())
    alone = written(trainer, GROUP[:3], "dapo", judged())
    alive.train()
    alone.train()
    assert len(dying.batches) == 4
    for batch in dying.batches[:2]:
        torch.testing.assert_close(batch["advantages"], alive.batches[0]["advantages"], atol=1e-6, rtol=0)
    for batch in dying.batches[2:]:
        found, theirs = batch["advantages"], alone.batches[0]["advantages"]
        torch.testing.assert_close(found[:3], theirs, atol=1e-6, rtol=0)
        assert found[3].abs().max() == batch["completion_mask"][3].max() == 0
    assert dying.masked_causes == {"connection": 2}
    assert [line["reward/masked_frac"] for line in metrics] == [0.0, 0.0, 0.25, 0.25]
    assert [line.get("masked/connection") for line in metrics] == [None, None, 0.25, 0.25]


# --- what is written ----------------------------------------------------------------------------------


def test_rollouts_and_metrics_hold_every_sample(trainer: Make, tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    calls = itertools.count(1)

    @reward
    def style(example: Example, completion: Completion) -> Score:
        call = next(calls)
        if call == 2:
            raise Unscored("judge_unreadable", "no verdict in the reply")
        if call == 3:
            return Score({"outcome": -1.0}, floored="no_box")
        return Score({"outcome": 1.0, "style": 0.25}, facts={"label": "correct"})

    with Run.create(tmp_path, "test", "") as run:
        trained = trainer(style, run=run)
        trained.add_callback(RunCallback(run))
        trained.train()
        rows = parquet.read_table(run.rollouts / "step_000001.parquet").to_pylist()
        [metrics] = read_metrics(run.path)
    assert sorted(row["state"] for row in rows) == ["floored", "masked", "scored", "scored"]
    masked = next(row for row in rows if row["state"] == "masked")
    assert (masked["value"], masked["advantage"], masked["cause"]) == (None, None, "judge_unreadable")
    assert metrics["reward/masked_frac"] == metrics["reward/floored_frac"] == 0.25
    assert metrics["masked/judge_unreadable"] == metrics["floored/no_box"] == 0.25
    assert metrics["rewards/style/mean"] == 0.25  # the term, not the reward of the same name
    assert metrics["rewards/sum/mean"] == pytest.approx((1.25 + 1.25 - 1) / 3)


def test_a_micro_batch_of_masked_rows_alone_does_not_thin_the_others(trainer: Make) -> None:
    norms = []
    for size in (1, 4):
        torch.manual_seed(0)
        told = ("train.loss_type=grpo", "train.max_completion_length=12", f"train.micro_batch_size={size}")
        made: Any = trainer([1.0, 0.0, None, None], *told, kind=Scripted)
        made.texts = GROUP
        made.train()
        norms.append(next(entry["grad_norm"] for entry in made.state.log_history if "grad_norm" in entry))
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    assert norms[0] > 0.1


def test_a_masked_completion_is_not_printed(trainer: Make, caplog: pytest.LogCaptureFixture) -> None:
    made = trainer([1.0, 0.0, None, None])
    trl = logging.getLogger("trl.trainer.grpo_trainer")
    trl.addHandler(caplog.handler)
    made.train()
    trl.removeHandler(caplog.handler)
    assert "returned None" not in caplog.text
