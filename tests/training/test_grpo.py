"""factrl's rewards inside TRL's own training step, on a tiny random Llama."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from factrl.config import load_settings
from factrl.errors import Unscored
from factrl.rewards import Reward, reward
from factrl.run import Run, read_metrics
from factrl.settings import RunSettings
from factrl.train import grpo
from factrl.train.callbacks import LogToRun
from factrl.train.grpo import FactualGRPOTrainer
from factrl.train.model import load_policy
from factrl.train.online import grpo_config
from factrl.train.prompts import render_prompts
from factrl.types import Completion, Example, Result, Score

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


class Recording(FactualGRPOTrainer):
    """Keeps the batches that TRL trains on and the losses it computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.batches: list[dict[str, torch.Tensor]] = []
        self.losses: list[float] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        self.batches.append({key: value.clone() for key, value in batch.items() if torch.is_tensor(value)})
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        self.losses.append(loss.item())
        return loss


class SameCompletions(Recording):
    """Generates with transformers' `generate` whether or not it takes the shortcuts."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        taken, self._shortcuts = self._shortcuts, False
        try:
            return super()._generate_single_turn(*args, **kwargs)
        finally:
            self._shortcuts = taken


@pytest.fixture
def trainer(tiny_model: Path, tmp_path: Path) -> Callable[..., Recording]:
    def make(
        values: Values | Reward,
        *overrides: str,
        kind: type[Recording] = Recording,
        run: Run | None = None,
        **extra: Any,
    ) -> Recording:
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
        for name, value in extra.items():
            setattr(config, name, value)
        chosen = values if isinstance(values, Reward) else scripted(values)
        prompts = render_prompts(examples, tokenizer, settings.data)
        return kind(model, chosen, examples, prompts, config, run=run, processing_class=tokenizer)

    return make


Make = Callable[..., Recording]


def _weights(trainer: Recording) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


# --- masking -----------------------------------------------------------------------------------------


def test_a_judge_that_is_down_does_not_move_the_siblings(trainer: Make) -> None:
    """[correct, wrong, wrong, judge down] against the same group without the fourth."""
    four = trainer([1.0, -1.0, -1.0, None])
    four.train()
    three = trainer([1.0, -1.0, -1.0], "num_generations=3", "micro_batch_size=3")
    three.train()
    found, alone = four.batches[0]["advantages"], three.batches[0]["advantages"]
    torch.testing.assert_close(found[:3], alone, atol=1e-6, rtol=0)
    assert found[3] == 0
    assert found[0] > 1  # and they are not all zero


def test_masked_completions_leave_loss_and_token_count(trainer: Make) -> None:
    masked = trainer([1.0, -1.0, -1.0, None])
    masked.train()
    batch = masked.batches[0]
    assert batch["completion_mask"][3].sum() == 0
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum()


@pytest.mark.parametrize("values", [[None] * 4, [1.0, None, None, None]])
def test_a_step_without_two_grades_changes_nothing(trainer: Make, values: Values) -> None:
    quiet = trainer(values, "weight_decay=0.0")
    before = _weights(quiet)
    quiet.train()
    assert quiet.losses == [0.0]
    assert torch.equal(_weights(quiet), before)


def test_advantages_equal_trls_own(trainer: Make) -> None:
    """With TRL's epsilon, ours are the numbers TRL computed itself."""

    class Both(Recording):
        theirs = torch.empty(0)

        def _leave_out_masked(self, batch: dict[str, Any], lengths: torch.Tensor) -> None:
            self.theirs = torch.tensor(list(self._logs["advantages"]))
            super()._leave_out_masked(batch, lengths)

    for values in ([1.0, -1.0, 0.0, 0.5], [1.0, -1.0, None, 0.5]):
        both: Any = trainer(values, "advantage_epsilon=1e-4", kind=Both)
        both.train()
        torch.testing.assert_close(both.batches[0]["advantages"], both.theirs[-4:], atol=1e-6, rtol=0)


def test_a_run_that_is_mostly_masked_is_noticed(trainer: Make) -> None:
    failing = trainer([None, None, None, 1.0], "steps=3")
    failing.train()
    assert failing.steps_over_limit == 3
    assert failing.masked_causes == {"connection": 9}


# --- estimators, losses and credit --------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "bnpo", "reinforce++"])
def test_every_loss_trains(trainer: Make, loss: str) -> None:
    trained = trainer([1.0, -1.0, 0.0, 1.0], f"loss_type={loss}", "steps=2")
    before = _weights(trained)
    trained.train()
    assert all(math.isfinite(loss) for loss in trained.losses)
    assert not torch.equal(_weights(trained), before)


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "bnpo"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_shortcuts_change_neither_loss_nor_weights(trainer: Make, loss: str, beta: float) -> None:
    """Three optimizer steps of two micro-batches, half of the groups flat, against TRL's plain path."""
    runs = []
    for shortcuts in (True, False):
        run = trainer(
            [1.0, -1.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0],
            f"loss_type={loss}",
            f"beta={beta}",
            "steps=3",
            "prompts_per_step=2",
            "learning_rate=1e-3",
            kind=SameCompletions,
            shortcuts=shortcuts,
        )
        run._shortcuts, generate = False, run._shortcuts  # the same completions for both
        original = run._compute_loss

        def compute(
            model: Any, inputs: Any, run: Recording = run, generate: bool = generate, original: Any = original
        ) -> Any:
            run._shortcuts = generate
            loss = original(model, inputs)
            run._shortcuts = False
            return loss

        run._compute_loss = compute  # pyright: ignore[reportAttributeAccessIssue]
        assert generate is shortcuts
        run.train()
        runs.append((run.losses, _weights(run)))
    (fast_losses, fast), (plain_losses, plain) = runs
    assert fast_losses == pytest.approx(plain_losses, abs=1e-5)
    torch.testing.assert_close(fast, plain, atol=2e-4, rtol=0)


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "bnpo"])
def test_token_advantages_reach_the_loss(trainer: Make, loss: str) -> None:
    """The (B, T) hook: a constant row equals the sequence advantage, a flipped one does not."""

    def run(factor: float | None) -> torch.Tensor:
        class Credited(Recording):
            def _credit(
                self, advantages: torch.Tensor, results: Sequence[Result], batch: dict[str, Any]
            ) -> torch.Tensor:
                if factor is None:
                    return advantages
                rows = advantages.unsqueeze(1).repeat(1, batch["completion_ids"].size(1))
                rows[:, 0] *= factor
                return rows

        credited = trainer([1.0, -1.0, 0.0, 1.0], f"loss_type={loss}", "steps=2", kind=Credited)
        credited.train()
        return _weights(credited)

    plain = run(None)
    torch.testing.assert_close(run(1.0), plain, atol=1e-6, rtol=0)
    assert (run(-1.0) - plain).abs().max() > 1e-3


def test_reinforce_pp_ignores_groups(trainer: Make) -> None:
    """Two flat groups of different value teach nothing in GRPO and something here."""
    values = [1.0] * 4 + [-1.0] * 4
    for loss, taught in (("dapo", False), ("reinforce++", True)):
        run = trainer(values, f"loss_type={loss}", "prompts_per_step=2", "micro_batch_size=8")
        run.train()
        assert bool(run.batches[0]["advantages"].abs().max() > 0.5) is taught


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
        trained.add_callback(LogToRun(run))
        trained.train()
        rows = parquet.read_table(run.rollouts / "step_000001.parquet").to_pylist()
        [metrics] = read_metrics(run.path)
    assert sorted(row["state"] for row in rows) == ["floored", "masked", "scored", "scored"]
    masked = next(row for row in rows if row["state"] == "masked")
    assert (masked["value"], masked["advantage"], masked["cause"]) == (None, None, "judge_unreadable")
    assert metrics["reward/masked_frac"] == metrics["reward/floored_frac"] == 0.25
    assert metrics["masked/judge_unreadable"] == metrics["floored/no_box"] == 0.25
    assert metrics["rewards/style/mean"] == 0.25  # the term, not the reward of the same name
    assert metrics["rewards/sum/mean"] == metrics["reward"] == pytest.approx((1.25 + 1.25 - 1) / 3)


def test_metrics_are_of_the_results_of_all_processes(trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [
        Result("masked", None, cause="timeout"),
        Result("scored", 5.0, {"outcome": 4.0, "style": 1.0}, facts={"label": "abstained"}),
    ]
    monkeypatch.setattr(grpo, "gather_object", lambda mine: [*mine, *others])
    logged: dict[str, float] = {}
    mine = trainer([1.0, None])._composite(["rome", "oslo"], [[5], [6]], [0, 0], logged.__setitem__)
    assert mine == [1.0, None]
    assert logged == {
        "reward/scored_frac": 0.5,
        "reward/masked_frac": 0.5,
        "reward/floored_frac": 0.0,
        "masked/connection": 0.25,
        "masked/timeout": 0.25,
        "rewards/outcome/mean": 2.5,
        "rewards/outcome/std": 1.5,
        "rewards/style/mean": 1.0,
        "rewards/style/std": 0.0,
        "abstain/rate": 1.0,
    }
