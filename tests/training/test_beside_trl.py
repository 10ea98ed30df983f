"""`FactualGRPOTrainer` beside TRL's own trainer: the same steps, and a drop-in for it."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from datasets import Dataset
from packaging.version import Version
from tiny import FEW_STEPS, GivenTexts
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from factrl.bridges.trl import to_trl
from factrl.errors import ConfigError, ModelError
from factrl.rewards import Reward, reward
from factrl.runs.folder import Run
from factrl.train.grpo import FactualGRPOConfig, FactualGRPOTrainer
from factrl.train.shortcuts import FusedCausalLMOutput
from factrl.types import Completion, Example

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 4
QUESTIONS = ("where is ada from ?", "where is bo from ?")
TEXTS = (  # of two prompts; the first prompt's end later
    *("rome . oslo . lima . cairo", "oslo", "i don ' t know .", "rome"),
    *("lima", "oslo . rome", "cairo rome", "rome . lima"),
)


def value(text: str) -> float:
    return 1.0 * text.count("rome") - 0.1 * len(text.split())


@reward
def plain(example: Example, completion: Completion) -> dict[str, float]:
    return {"outcome": value(completion)}


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
        config = settings(tmp_path, FactualGRPOConfig, **more)
        rows = Dataset.from_dict({"prompt": list(QUESTIONS)})
        model = AutoModelForCausalLM.from_pretrained(tiny_model)
        tokenizer = AutoTokenizer.from_pretrained(tiny_model, padding_side="left")
        return kind(model, judge, config, rows, run=run, processing_class=tokenizer)

    return make


@pytest.fixture
def stock(tiny_model: Path, tmp_path: Path) -> Make:
    def make(**more: Any) -> Any:
        def answer(completions: list[str], **_: Any) -> list[float]:
            return [value(text) for text in completions]

        model = AutoModelForCausalLM.from_pretrained(tiny_model)
        tokenizer: Any = AutoTokenizer.from_pretrained(tiny_model, padding_side="left")
        config = settings(tmp_path, GRPOConfig, **more)
        rows = Dataset.from_dict({"prompt": list(QUESTIONS)})
        return Stock(model, answer, args=config, train_dataset=rows, processing_class=tokenizer)

    return make


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])


def logged(trainer: Any, *names: str) -> list[list[float | None]]:
    return [[entry.get(name) for name in names] for entry in trainer.state.log_history if "loss" in entry]


# --- the same step -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "beta", "iterations"), [("grpo", 0.0, 1), ("dapo", 0.1, 2)])
def test_losses_and_weights_equal_stock_trls(
    ours: Make, stock: Make, loss: str, beta: float, iterations: int
) -> None:
    """Nothing is masked and no advantage is 0, so nothing is skipped."""
    told = {"loss_type": loss, "beta": beta, "num_iterations": iterations}
    mine = ours(plain, advantage_epsilon=1e-4, **told)  # TRL's own epsilon
    mine.train()

    theirs = stock(**told)
    theirs.train()
    names = ("loss", "reward", "reward_std", "grad_norm")
    found, expected = logged(mine, *names), logged(theirs, *names)
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    assert any(entry[3] for entry in found)
    torch.testing.assert_close(weights(mine), weights(theirs), atol=2e-4, rtol=0)


@pytest.mark.skipif(FusedCausalLMOutput is None, reason="a TRL without the fused forward")
def test_rows_without_advantage_are_not_run(ours: Make) -> None:
    """Half of the groups are flat; the step is the same, and fewer tokens go through the model."""

    @reward
    def flat(example: Example, completion: Completion) -> dict[str, float]:
        return {"outcome": value(completion) if "ada" in example.question else 1.0}

    found = []
    for shortcuts in (True, False):
        made, tokens = ours(flat, shortcuts=shortcuts), []
        body = made.model.base_model
        forward = body.forward

        def count(*args: Any, _forward: Any = forward, _tokens: list[int] = tokens, **named: Any) -> Any:
            _tokens.append(named["input_ids"].numel())
            return _forward(*args, **named)

        body.forward = count
        made.train()
        found.append((logged(made, "loss", "grad_norm", "entropy"), weights(made), sum(tokens)))
    (fast, fast_weights, fewer), (slow, slow_weights, all_tokens) = found
    assert [entry[:2] for entry in fast] == [pytest.approx(entry[:2], abs=1e-5) for entry in slow]
    assert all(entry[2] is not None for entry in fast)
    torch.testing.assert_close(fast_weights, slow_weights, atol=2e-4, rtol=0)
    assert fewer < all_tokens / 2


class Stub:
    """Of vLLM: takes the weights, and says how likely its tokens were."""

    @staticmethod
    def sync_weights() -> None:
        """Nothing to send."""

    @staticmethod
    def use(trainer: Any) -> None:
        write = trainer.write

        def told(prompts: Any, own: Any) -> Any:
            given = write(prompts, own)
            likely = [[-3.0 - 0.1 * n for n in range(len(ids))] for ids in given["completion_ids"]]
            return {**given, "logprobs": likely}

        trainer.rollout_func, trainer.vllm_generation, trainer.use_vllm = told, Stub, True
        trainer.vllm_importance_sampling_correction = True
        trainer._last_loaded_step = -1
        trainer.train()


def test_vllms_correction_is_trls(ours: Make, stock: Make) -> None:
    """Here without vLLM: its logarithms are given, and go through TRL's own path."""
    told = {"loss_type": "dapo", "vllm_importance_sampling_mode": "token_truncate"}
    mine, theirs = ours(plain, advantage_epsilon=1e-4, shortcuts=False, **told), stock(**told)
    Stub.use(mine)
    Stub.use(theirs)
    assert any(entry[0] for entry in logged(mine, "sampling/importance_sampling_ratio/mean"))
    torch.testing.assert_close(weights(mine), weights(theirs), atol=2e-4, rtol=0)


# --- a trainer of one's own ----------------------------------------------------------------------------


CHATS = [[{"role": "user", "content": question}] for question in QUESTIONS]


def test_a_plain_config_conversations_and_columns_will_do(tiny_model: Path, tmp_path: Path) -> None:
    """Rollouts where a run is given, and held-out losses without them."""
    seen: list[tuple[str, str]] = []

    @reward
    def watching(example: Example, completion: Completion) -> dict[str, float]:
        seen.append((example.answers[0], str(completion)))
        return {"outcome": value(completion)}

    rows = Dataset.from_dict({"prompt": CHATS, "answers": [["rome"], ["oslo"]]})
    config = settings(tmp_path, GRPOConfig, per_device_eval_batch_size=4)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, padding_side="left")
    with Run.create(tmp_path, "drop-in", "") as run:
        made = FactualGRPOTrainer(
            str(tiny_model), watching, config, rows, rows, run=run, processing_class=tokenizer
        )
        made.train()
        assert len(seen) == 24
        assert {answer for answer, _ in seen} == {"rome", "oslo"}
        assert math.isfinite(made.evaluate()["eval_loss"])
        files = sorted(run.rollouts.iterdir())
    assert [file.stem for file in files] == ["step_000001", "step_000002", "step_000003"]


def test_a_list_of_rewards_is_summed_with_trls_weights(tiny_model: Path, tmp_path: Path) -> None:
    def longer(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        return [1.0] * len(completions)

    rows = Dataset.from_dict({"prompt": list(QUESTIONS)})
    told = settings(tmp_path, GRPOConfig, max_steps=1, reward_weights=[1.0, 0.25])
    made: Any = FactualGRPOTrainer(str(tiny_model), [to_trl(plain), longer], told, train_dataset=rows)
    assert told.reward_weights == [1.0, 0.25]
    made.train()
    [entry] = [entry for entry in made.state.log_history if "rewards/longer/mean" in entry]
    assert entry["rewards/longer/mean"] == 0.25


@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(Version(trl.__version__) < Version("1.6"), reason="a TRL that makes 0 of None")
@pytest.mark.parametrize("kind", ["factual", "plain"])
def test_the_example_runs(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    script = str(Path(__file__).parents[2] / "examples" / "factual_grpo.py")
    monkeypatch.setattr("sys.argv", [script, str(tiny_model), kind])
    runpy.run_path(script)
    assert "reward/scored_frac" in capsys.readouterr().out


def test_what_is_no_reward_is_refused(tiny_model: Path) -> None:
    for wrong in ([plain, plain], len, "truthrl", [plain, "truthrl"]):
        with pytest.raises(ConfigError, match=r"truthrl|plain|len"):
            FactualGRPOTrainer(str(tiny_model), wrong)
    with pytest.raises(ConfigError, match="advantage_estimator='reinforce'"):
        FactualGRPOConfig("out", advantage_estimator="reinforce", bf16=False)  # type: ignore[arg-type]


def test_two_prompts_with_one_completion_are_told_apart(ours: Make, tmp_path: Path) -> None:
    """By the prompt's tokens; where those are not known, by nothing, and then it is an error."""

    @reward
    def of_the_question(example: Example, completion: Completion) -> dict[str, float]:
        return {"outcome": value(completion) * (1 if "ada" in example.question else -1)}

    class Same(Ours):
        texts = TEXTS[:4] * 2

    class Blind(Same):
        def tokenize(self, prompts: Any) -> list[list[int]]:
            return [[] for _ in prompts]

    made = ours(of_the_question, Same)
    made.train()
    assert any(entry[0] for entry in logged(made, "loss"))
    with pytest.raises(ModelError, match="cannot be told"):
        ours(of_the_question, Blind).train()
    ours(plain, Blind).train()  # worth the same for either prompt


def test_nothing_of_trl_is_overridden_but_the_documented_hook() -> None:
    """So a private name of a later TRL cannot be one of ours by chance either."""
    theirs = {name for base in GRPOTrainer.__mro__ for name in vars(base)}
    ours = {name for name in vars(FactualGRPOTrainer) if not name.startswith("__")}
    assert ours & theirs == {"compute_loss"}
