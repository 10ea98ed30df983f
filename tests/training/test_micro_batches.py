"""Micro-batches in another order, cut to their longest completion, without idle rows: the same step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny import FEW_STEPS, GivenTexts
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from factrl.errors import LLMError
from factrl.rewards import Reward, reward
from factrl.runs.folder import Run
from factrl.train.grpo import FactualGRPOConfig, FactualGRPOTrainer
from factrl.train.shortcuts import by_length
from factrl.types import Completion, Example, Score, Span

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 4
QUESTIONS = ("where is ada from ?", "where is bo from ?")
TEXTS = (  # of two prompts; the first prompt's end later
    *("rome . oslo . lima . cairo", "oslo", "i don ' t know .", "rome"),
    *("lima", "oslo . rome", "cairo rome", "rome . lima"),
)
DOWN = TEXTS[2], TEXTS[5]
# Metrics of time, and means over micro-batches, which depend on what is in one.
OF_PARTS = ("entropy", "clip_ratio", "step_time", "runtime", "per_second", "flos", "epoch", "train_loss")


def value(text: str) -> float:
    return 1.0 * text.count("rome") - 0.1 * len(text.split())


@reward
def plain(example: Example, completion: Completion) -> dict[str, float]:
    return {"outcome": value(completion)}


@reward
def partly_down(example: Example, completion: Completion) -> Score:
    if completion in DOWN:
        raise LLMError("connection", "refused")
    spans = (Span(0, 4, 1),) if completion.startswith("rome") else ()
    return Score({"outcome": value(completion)}, spans=spans)


class Ours(GivenTexts, FactualGRPOTrainer):
    texts = TEXTS


class Stock(GivenTexts, GRPOTrainer):
    texts = TEXTS


def settings(folder: Path, kind: type[GRPOConfig], **more: Any) -> Any:
    told: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 3,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "num_generations": SIZE,
        "max_completion_length": 10,
        "learning_rate": 1e-3,
        "shuffle_dataset": False,
        "temperature": 1.0,
        "use_bias_correction_kl": False,
    }
    return kind(**(FEW_STEPS | told | more))


Make = Callable[..., Any]


@pytest.fixture
def ours(tiny_model: Path, tmp_path: Path) -> Make:
    def make(
        judge: Reward, kind: type[FactualGRPOTrainer] = Ours, run: Run | None = None, **more: Any
    ) -> Any:
        config = settings(tmp_path, FactualGRPOConfig, chat=False, **more)
        examples = [Example(question, id=question) for question in QUESTIONS]
        model = AutoModelForCausalLM.from_pretrained(tiny_model)
        tokenizer = AutoTokenizer.from_pretrained(tiny_model, padding_side="left")
        return kind(model, judge, examples, list(QUESTIONS), config, run=run, processing_class=tokenizer)

    return make


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])


def logged(trainer: Any, *names: str) -> list[list[float | None]]:
    return [[entry.get(name) for name in names] for entry in trainer.state.log_history if "loss" in entry]


# --- the same step -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "beta", "iterations"), [("grpo", 0.0, 1), ("dr_grpo", 0.1, 2), ("dapo", 0.1, 2)]
)
def test_losses_and_weights_equal_stock_trls(
    ours: Make, tiny_model: Path, tmp_path: Path, loss: str, beta: float, iterations: int
) -> None:
    """Nothing is masked and no advantage is 0, so nothing is skipped."""
    told = {"loss_type": loss, "beta": beta, "num_iterations": iterations}
    mine = ours(plain, advantage_epsilon=1e-4, **told)  # TRL's own epsilon
    mine.train()

    async def answer(completions: list[str], **_: Any) -> list[float]:
        return [value(text) for text in completions]

    judge: Any = answer
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_model, padding_side="left")
    config = settings(tmp_path, GRPOConfig, **told)
    rows = Dataset.from_dict({"prompt": list(QUESTIONS)})
    theirs = Stock(model, judge, args=config, train_dataset=rows, processing_class=tokenizer)
    theirs.train()
    names = ("loss", "reward", "reward_std", "grad_norm")
    found, expected = logged(mine, *names), logged(theirs, *names)
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    assert any(entry[3] for entry in found)
    torch.testing.assert_close(weights(mine), weights(theirs), atol=2e-4, rtol=0)


@pytest.mark.parametrize(("loss", "iterations"), [("grpo", 1), ("dr_grpo", 2), ("dapo", 2), ("bnpo", 1)])
def test_the_order_of_micro_batches_changes_nothing(
    ours: Make, tmp_path: Path, loss: str, iterations: int
) -> None:
    """Masked rows, spans and all."""
    found = []
    for sort in (True, False):
        with Run.create(tmp_path, f"sorted-{sort}", "") as run:
            made = ours(partly_down, run=run, loss_type=loss, num_iterations=iterations, shortcuts=sort)
            torch.manual_seed(0)  # TRL's shuffle, which is what bnpo's mean depends on
            made.train()
        logs = [
            {name: number for name, number in entry.items() if not any(part in name for part in OF_PARTS)}
            for entry in made.state.log_history
        ]
        found.append((logs, weights(made), dict(made.masked_causes)))
    (logs, ordered, causes), (other_logs, as_trl, other_causes) = found
    assert causes == other_causes
    assert causes["connection"]
    assert any("credit/flipped" in entry for entry in logs)
    for entry, other in zip(logs, other_logs, strict=True):
        assert entry == pytest.approx(other, abs=1e-4, nan_ok=True)
    torch.testing.assert_close(ordered, as_trl, atol=2e-4, rtol=0)


def test_rows_without_advantage_are_not_run_without_packing_either(
    ours: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the groups are flat, and no micro-batch has to be run as a whole for its one row."""

    @reward
    def flat(example: Example, completion: Completion) -> dict[str, float]:
        return {"outcome": value(completion) if "ada" in example.question else 1.0}

    monkeypatch.setattr("factrl.train.shortcuts.use_packed_logprobs", lambda *_: False)
    found = []
    for shortcuts in (True, False):
        made, rows = ours(flat, shortcuts=shortcuts), []
        forward = made.model.forward

        def count(*args: Any, _forward: Any = forward, _rows: list[int] = rows, **named: Any) -> Any:
            _rows.append(len(named["input_ids"]))
            return _forward(*args, **named)

        made.model.forward = count
        made.train()
        found.append((logged(made, "loss", "grad_norm", "entropy"), weights(made), rows))
    (fast, fast_weights, fast_rows), (slow, slow_weights, slow_rows) = found
    assert [entry[:2] for entry in fast] == [pytest.approx(entry[:2], abs=1e-5) for entry in slow]
    assert all(entry[2] is not None for entry in fast)
    torch.testing.assert_close(fast_weights, slow_weights, atol=2e-4, rtol=0)
    assert slow_rows == [2] * 12
    assert sorted(fast_rows) == [1] * 6 + [2] * 6


def test_micro_batches_hold_like_lengths_whole_prompts_and_no_empty_columns() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]])
    wide = torch.arange(16).view(4, 4)
    whole = {"row": torch.arange(4), "completion_mask": mask, "completion_ids": wide, "prompt_ids": wide}
    whole |= {"importance": wide[:, :1]}
    shuffled = [{name: value[rows] for name, value in whole.items()} for rows in ([3, 0], [2, 1])]
    short, long = by_length([part | {"num_items_in_batch": 7} for part in shuffled], samples=2)
    assert short["row"].tolist() == [2, 3]
    assert short["completion_ids"].tolist() == [[8, 9], [12, 13]]
    assert short["completion_mask"].tolist() == [[1, 0], [1, 1]]
    assert short["prompt_ids"].shape == (2, 4)
    assert short["importance"].shape == (2, 1)
    assert short["num_items_in_batch"] == long["num_items_in_batch"] == 7
    assert long["row"].tolist() == [0, 1]
    assert long["completion_ids"].shape == (2, 3)
    masked = [part | {"completion_mask": part["completion_mask"] * 0} for part in shuffled]
    assert [part["completion_mask"].shape for part in by_length(masked, samples=2)] == [(2, 1), (2, 1)]
