"""Self-certainty: its formula on distributions made by hand, and Intuitor's reward in real training steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import small_run

from factrl.errors import ConfigError
from factrl.job import read_job
from factrl.papers import load_reward
from factrl.rewards.needs import supply
from factrl.runs.folder import read_metrics
from factrl.runs.settings import ModelSettings
from factrl.train import certainty
from factrl.train.certainty import certainty_of, self_certainty
from factrl.train.model import load_policy
from factrl.train.online import train
from factrl.train.plan import make_plan
from factrl.types import Completion, Example

ROME = Example("Capital of Italy?", ("Rome",), id="rome")


def by_formula(odds: list[float]) -> float:
    """-1/V sum_j log(V p_j), as the paper writes it."""
    return -sum(math.log(len(odds) * p) for p in odds) / len(odds)


@pytest.mark.parametrize("odds", [[0.7, 0.2, 0.1], [0.97, 0.01, 0.01, 0.01], [0.5, 0.5], [0.25] * 4])
def test_it_is_the_formula(odds: list[float]) -> None:
    found = certainty_of(torch.tensor(odds).log() + 3.0)  # logits have no zero point
    assert found.item() == pytest.approx(by_formula(odds), abs=1e-6)


def test_a_completion_has_the_mean_over_its_own_tokens(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = load_policy(ModelSettings(name=str(tiny_model)))
    prompts, completions = [[5, 6, 7], [8], [4, 4], [9, 3]], [[10, 2], [11, 12, 13, 14, 2], [], [6]]
    wanted = []
    for prompt, completion in zip(prompts, completions, strict=True):
        with torch.no_grad():
            odds = model(torch.tensor([prompt + completion])).logits[0].softmax(-1).double()
        told = [by_formula(odds[len(prompt) - 1 + n].tolist()) for n in range(len(completion))]
        wanted.append(sum(told) / len(told) if told else math.nan)
    for name, size in (("_ROWS", 1), ("_POSITIONS", 2)):
        monkeypatch.setattr(certainty, name, size)
        found = self_certainty(model, prompts, completions)
        assert found == pytest.approx(wanted, abs=1e-5, nan_ok=True)


def test_logits_are_those_of_the_models_own_head() -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "head_dim": 8,
    }
    capped = Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=20, num_attention_heads=2, num_key_value_heads=1, final_logit_softcapping=0.1, **shape
        )
    ).eval()
    with torch.no_grad():
        wanted = certainty_of(capped(torch.tensor([[5, 6, 7]])).logits[0, 1])
    assert self_certainty(capped, [[5, 6]], [[7]]) == pytest.approx([wanted.item()], rel=1e-4)


def test_training_raises_the_certainty(tiny_model: Path, questions: Path, tmp_path: Path) -> None:
    words = ["paper=intuitor", f"model.name={tiny_model}", f"data.train={questions}", "data.chat=false"]
    sizes = {"prompts_per_step": 4, "num_generations": 8, "micro_batch_size": 32}
    words += small_run(steps=12, **sizes, learning_rate=1e-2, beta=0.0, save_steps=100)
    folder = train(make_plan(read_job(None, [*words, f"run.dir={tmp_path}"])))
    told = [row["rewards/certainty/mean"] for row in read_metrics(folder) if "rewards/certainty/mean" in row]
    assert len(told) == 12
    assert all(value > 0 for value in told)
    assert sum(told[-3:]) > 1.5 * sum(told[:3])


def test_stored_completions_have_no_certainty() -> None:
    reward = supply(load_reward("intuitor"))
    with pytest.raises(ConfigError, match="known in training alone"):
        reward(ROME, Completion("Rome"))
    masked = reward(ROME, Completion("", certainty=math.nan))
    assert (masked.state, masked.cause) == ("masked", "no_tokens")
    assert reward.with_(weight=0.5)(ROME, Completion("Rome", certainty=3.0)).value == 1.5
