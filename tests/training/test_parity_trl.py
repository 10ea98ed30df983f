"""Our advantages and losses are TRL's own, number for number, on random groups.

TRL's trainer and ours are given the same completions, rewards and old log-probabilities.  With masked rows,
TRL is given the other rows alone: so much is a masked row not there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer.grpo_trainer import GRPOTrainer

from factrl.rewards import Reward, reward
from factrl.train.grpo import FactualGRPOConfig, FactualGRPOTrainer
from factrl.types import Example, Result, Span

SIZES = (2, 7)  # of a group: the smallest, and one that no mask divides
PROMPTS = 2
LONGEST = 8
LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo")
PROMPT = "where is ada from ?"

Value = float | None


class Given:
    """The completions and rewards of one batch, in place of a model's and a judge's."""

    def __init__(self, size: int, seed: int, masked: int = 0, spans: bool = False) -> None:
        draw = random.Random(1000 * size + seed)
        self.size = size
        words = range(3, 20)  # of the tiny vocabulary, whose first three are special
        self.ids = [[*draw.choices(words, k=draw.randint(1, LONGEST - 1)), 2] for _ in range(PROMPTS * size)]
        self.values: list[Value] = [draw.choice((-1.0, 0.0, 0.25, 1.0, 2.0)) for _ in self.ids]
        for group in range(PROMPTS):
            for row in draw.sample(range(size), masked):
                self.values[group * size + row] = None
        self.signs = [[draw.choice((-1, 0, 1)) if spans else 0 for _ in row[:-1]] for row in self.ids]
        self.noise = torch.randn(2, len(self.ids), LONGEST, generator=torch.Generator().manual_seed(seed))

    @property
    def kept(self) -> list[int]:
        return [row for row, value in enumerate(self.values) if value is not None]

    def results(self, completions: Sequence[str]) -> list[Result]:
        """Words are apart by one space each, so the n-th word's span is known without any tokenizer."""
        results = []
        for text, value, signs in zip(completions, self.values, self.signs, strict=True):
            ends = [len(" ".join(text.split()[: n + 1])) for n in range(len(signs))]
            starts = [end - len(word) for end, word in zip(ends, text.split(), strict=True)]
            spans = [Span(*at) for at in zip(starts, ends, signs, strict=True) if at[2]]
            results.append(
                Result("masked", None, cause="connection")
                if value is None
                else Result("scored", value, {"outcome": value}, spans=tuple(spans))
            )
        return results

    def alone(self) -> Given:
        """The rows that are not masked; the same number in every group."""
        other = Given(self.size, 0)
        other.ids, other.values = ([rows[row] for row in self.kept] for rows in (self.ids, self.values))
        other.signs = [self.signs[row] for row in self.kept]
        other.noise = self.noise[:, self.kept]
        other.size = len(self.kept) // PROMPTS
        return other


class TRL(GRPOTrainer):
    """TRL's trainer with given completions."""

    given: Given


class Ours(FactualGRPOTrainer):
    given: Given


def prepared(trainer: Any, given: Given) -> dict[str, Any]:
    """The batch that the trainer would train on, off-policy and with a reference by given noise.

    Of ours it is what TRL's loss gets; `raw` is what TRL made.
    """

    def write(prompts: list[str], _: Any) -> dict[str, Any]:
        asked = trainer.processing_class(text=prompts)["input_ids"]
        return {"prompt_ids": asked, "completion_ids": given.ids, "logprobs": None}

    trainer.given, trainer.rollout_func = given, write
    trainer.num_generations = given.size
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    batch = trainer._generate_and_score_completions([{"prompt": PROMPT, "example": 0}] * len(given.ids))
    logps = log_probs(trainer, batch).detach()
    old, reference = 0.2 * given.noise[:, :, : logps.size(1)]
    raw = {**batch, "old_per_token_logps": logps + old, "ref_per_token_logps": logps + reference}
    return {**(trainer.corrected(raw) if isinstance(trainer, Ours) else raw), "raw": raw}


def log_probs(trainer: Any, batch: dict[str, Any]) -> torch.Tensor:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, batch["completion_ids"].size(1)
    )[0]


def loss_and_gradient(trainer: Any, batch: dict[str, Any], loss: str, beta: float) -> tuple[float, Any]:
    trainer.loss_type, trainer.beta = loss, beta
    trainer.model.zero_grad()
    value = trainer.compute_loss(trainer.model, batch["raw"])
    value.backward()
    gradient = torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()])
    trainer.beta = 0.0
    return value.item(), gradient


def config(folder: Path, **settings: Any) -> FactualGRPOConfig:
    return FactualGRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=PROMPTS * 16,
        num_generations=2,
        max_completion_length=LONGEST,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        use_bias_correction_kl=False,
        report_to=[],
        **settings,
    )


def our_trainer(model: Path, folder: Path, **settings: Any) -> Ours:
    @reward
    def given(example: Example, completion: str) -> dict[str, float]:
        raise NotImplementedError

    class Scripted(Reward):
        def batch(self, examples: Sequence[Example], completions: Sequence[str]) -> list[Result]:
            return trainer.given.results(completions)

    trainer = Ours(
        AutoModelForCausalLM.from_pretrained(model),
        Scripted(given.fn, "given", {}, {}),
        config(folder, **settings),
        Dataset.from_dict({"prompt": [PROMPT]}),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )
    return trainer


@pytest.fixture(scope="module")
def both(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ours, TRL]:
    folder = tmp_path_factory.mktemp("parity")
    ours = our_trainer(tiny_model, folder, advantage_epsilon=1e-4)  # TRL's
    theirs = TRL(
        AutoModelForCausalLM.from_pretrained(tiny_model),
        reward_funcs=lambda completions, **_: list(theirs.given.values),
        args=config(folder),
        train_dataset=Dataset.from_dict({"prompt": [PROMPT]}),
        processing_class=AutoTokenizer.from_pretrained(tiny_model, padding_side="left"),
    )
    return ours, theirs


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("masked_share", [0.0, 0.4])
def test_advantages_and_losses(both: tuple[Ours, TRL], size: int, masked_share: float) -> None:
    ours, theirs = both
    masked = min(round(masked_share * size), size - 2)
    for seed, scale in enumerate(("group", "batch", "none")):
        ours.scale_rewards = theirs.scale_rewards = scale
        given = Given(size, seed, masked)
        mine, plain = prepared(ours, given), prepared(theirs, given.alone())
        torch.testing.assert_close(mine["advantages"][given.kept], plain["advantages"], atol=1e-6, rtol=0)
        assert mine["advantages"].count_nonzero() == plain["advantages"].count_nonzero()
        for number, loss in enumerate((LOSSES + LOSSES)[seed : seed + 2]):
            beta = (number + size) % 2 * 0.04
            found, gradient = loss_and_gradient(ours, mine, loss, beta)
            expected, their_gradient = loss_and_gradient(theirs, plain, loss, beta)
            assert found == pytest.approx(expected, abs=1e-6)
            torch.testing.assert_close(gradient, their_gradient, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("loss", [*LOSSES, "cispo", "sapo"])
def test_token_advantages_of_one_value_are_the_completions(both: tuple[Ours, TRL], loss: str) -> None:
    """TRL's (B, T) path, and that signs which flip nothing change nothing."""
    ours, theirs = both
    ours.scale_rewards = theirs.scale_rewards = "group"
    given = Given(6, 1, spans=True)
    plain = prepared(theirs, given)
    given.signs = [
        [1 if advantage > 0 else -1] * len(row)
        for row, advantage in zip(given.signs, plain["advantages"].tolist(), strict=True)
    ]
    mine = prepared(ours, given)
    assert mine["advantages"].shape == mine["completion_ids"].shape
    found, _ = loss_and_gradient(ours, mine, loss, 0.0)
    assert found == pytest.approx(loss_and_gradient(theirs, plain, loss, 0.0)[0], abs=1e-6)


def test_the_bonus_for_entropy_is_trls(both: tuple[Ours, TRL], monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given(4, 2)
    losses = []
    for coefficient in (0.0, 0.5):
        for trainer in both:
            monkeypatch.setattr(trainer, "scale_rewards", "group")
            monkeypatch.setattr(trainer, "entropy_coef", coefficient)
            monkeypatch.setattr(trainer, "_entropy_bonus_enabled", coefficient > 0)
            losses.append(loss_and_gradient(trainer, prepared(trainer, given), "dapo", 0.0)[0])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert losses[2] == pytest.approx(losses[3], abs=1e-6)
    assert losses[2] < losses[0]
