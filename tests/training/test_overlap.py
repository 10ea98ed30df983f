"""Rewards beside generation and training: the same step, and judged early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from factrl.errors import LLMError, RewardBug
from factrl.rewards import Reward, reward
from factrl.run import Run
from factrl.train.grpo import FactualGRPOConfig, FactualGRPOTrainer
from factrl.train.overlap import cut
from factrl.train.sampling import sample
from factrl.types import Completion, Example, Score, Span

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE, PATIENCE = 4, 60.0
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


class Given:
    """Writes the given texts and their end token, whoever trains."""

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        made: Any = self
        ids = [[*made._tokenizer(text)["input_ids"], made.eos_token_ids[0]] for text in TEXTS]
        return ids[: len(prompt_ids)], None


class Ours(Given, FactualGRPOTrainer):
    pass


class Stock(Given, GRPOTrainer):
    pass


def settings(folder: Path, kind: type[GRPOConfig], **more: Any) -> Any:
    told: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 3,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "num_generations": SIZE,
        "max_completion_length": 10,
        "learning_rate": 1e-3,
        "gradient_checkpointing": False,
        "bf16": False,
        "use_cpu": True,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "shuffle_dataset": False,
        "temperature": 1.0,
        "use_bias_correction_kl": False,
    }
    return kind(**(told | more))


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


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize(("beta", "iterations"), [(0.0, 1), (0.1, 2)])
def test_losses_and_weights_equal_stock_trls(
    ours: Make, tiny_model: Path, tmp_path: Path, loss: str, beta: float, iterations: int
) -> None:
    """Nothing is masked and no advantage is 0, so nothing is skipped."""
    told = {"loss_type": loss, "beta": beta, "num_iterations": iterations}
    mine = ours(plain, advantage_epsilon=1e-4, **told)  # TRL's own epsilon
    mine.train()
    assert mine._late
    assert mine._parts.order != sorted(mine._parts.order)

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


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "bnpo"])
@pytest.mark.parametrize("iterations", [1, 2])
def test_masked_rows_known_only_at_the_end_change_nothing(
    ours: Make, tmp_path: Path, loss: str, iterations: int
) -> None:
    """Their share divides micro-batches that were trained on before they were known."""
    found = []
    for overlap in (True, False):
        with Run.create(tmp_path, f"overlap-{overlap}", "") as run:
            made = ours(
                partly_down,
                run=run,
                loss_type=loss,
                num_iterations=iterations,
                overlap=overlap,
                sort_by_length=overlap,
            )
            torch.manual_seed(0)  # TRL's shuffle, which is what bnpo's mean depends on
            made.train()
        assert made._late is (overlap and loss != "bnpo")
        skipped = (
            "entropy",
            "clip_ratio",
            "step_time",
            "runtime",
            "per_second",
            "flos",
            "epoch",
            "train_loss",
        )
        logs = [
            {name: number for name, number in entry.items() if not any(part in name for part in skipped)}
            for entry in made.state.log_history
        ]
        found.append((logs, weights(made), dict(made.masked_causes), list(made._logs["advantages"])))
    (logs, late, causes, advantages), (other_logs, early, other_causes, other_advantages) = found
    assert causes == other_causes
    assert causes["connection"]
    assert any("credit/flipped" in entry for entry in logs)
    for entry, other in zip(logs, other_logs, strict=True):
        assert entry == pytest.approx(other, abs=1e-4, nan_ok=True)
    assert advantages == pytest.approx(other_advantages, abs=1e-6)
    torch.testing.assert_close(late, early, atol=2e-4, rtol=0)


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


def test_a_micro_batch_is_cut_to_its_longest_completion() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
    wide = torch.arange(8).view(2, 4)
    part = {"prompt_ids": wide, "completion_ids": wide, "completion_mask": mask, "advantages": wide[:, 0]}
    found = cut(part | {"num_items_in_batch": torch.tensor(3), "importance": wide[:, :1]})
    assert found["completion_ids"].tolist() == [[0, 1], [4, 5]]
    assert found["completion_mask"].tolist() == [[1, 1], [1, 0]]
    assert found["prompt_ids"].shape == (2, 4)
    assert found["importance"].shape == (2, 1)
    assert found["advantages"].tolist() == [0, 4]
    assert cut({"completion_mask": mask * 0})["completion_mask"].shape == (2, 1)


# --- early -------------------------------------------------------------------------------------------


def test_a_completion_is_judged_before_the_others_are_written(ours: Make) -> None:
    judged = threading.Event()

    @reward
    def watched(example: Example, completion: Completion) -> dict[str, float]:
        judged.set()
        return {"outcome": value(completion)}

    class Waiting(FactualGRPOTrainer):
        early = False

        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            made = super()._generate_single_turn(*args, **kwargs)
            self.early = judged.wait(PATIENCE)  # nobody has seen what was made
            return made

    made = ours(watched, Waiting, max_steps=1)
    made.train()
    assert made.early


def test_a_micro_batch_is_trained_on_while_another_prompt_is_judged(ours: Make) -> None:
    trained = threading.Event()
    waited: list[bool] = []

    @reward
    def slow(example: Example, completion: Completion) -> dict[str, float]:
        if "ada" in example.question:  # the prompt with the longest completion
            waited.append(trained.wait(PATIENCE))
        return {"outcome": value(completion)}

    class Watched(Ours):
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            trained.set()
            return super()._compute_loss(model, inputs)

    ours(slow, Watched, max_steps=1).train()
    assert waited == [True] * SIZE


def test_old_and_reference_log_probabilities_run_while_the_judge_works(ours: Make) -> None:
    run = threading.Event()
    waited: list[bool] = []

    @reward
    def slow(example: Example, completion: Completion) -> dict[str, float]:
        waited.append(run.wait(PATIENCE))
        return {"outcome": value(completion)}

    class Watched(Ours):
        passes = 0

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            self.passes += 1
            if self.passes == 2:  # the old policy's and the reference's
                run.set()
            return found

    ours(slow, Watched, max_steps=1, beta=0.1, num_iterations=2).train()
    assert waited == [True] * len(TEXTS)


def test_a_resource_that_answers_together_gets_one_prompt_at_a_time(ours: Make) -> None:
    asked: list[list[str]] = []

    class Together:
        def answer_together(self, calls: Sequence[Any]) -> list[float]:
            asked.append([args[0] for args, _ in calls])
            return [value(args[1]) for args, _ in calls]

    @reward
    def shared(example: Example, completion: Completion, *, verify: Any) -> dict[str, float]:
        return {"outcome": verify(example.question, completion)}

    ours(shared.with_(verify=Together()), max_steps=1).train()
    assert sorted(asked) == [[question] * SIZE for question in QUESTIONS]


def test_a_bug_in_a_reward_ends_the_run(ours: Make) -> None:
    @reward
    def broken(example: Example, completion: Completion) -> dict[str, float]:
        return {"outcome": 1 / (len(completion.split()) - 1)}

    with pytest.raises(RewardBug, match="ZeroDivisionError"):
        ours(broken, max_steps=1).train()


def test_each_completion_is_told_of_once_when_it_ends(tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    torch.manual_seed(0)
    told: dict[int, list[int]] = {}
    ended: list[int] = []

    def on_end(number: int, ids: list[int]) -> None:
        assert number not in told
        told[number] = list(ids)
        ended.append(len(ids))

    prompts = ([5, 6, 7], [8, 9], [5, 6, 7, 10])
    limits: dict[str, Any] = {"max_new_tokens": 6, "temperature": 1.0, "eos_ids": range(2, 12)}
    groups = sample(model, prompts, num_samples=3, batch_size=6, on_end=on_end, **limits)
    assert [told[number] for number in range(9)] == [ids for group in groups for ids in group]
    assert len(set(ended)) > 1
    assert ended[:6] == sorted(ended[:6])
