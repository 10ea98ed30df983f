"""`trl.GRPOTrainer` that knows which rewards could not be computed, and which steps of a text were right.

    trainer = FactualGRPOTrainer(model, reward_funcs=reward, args=GRPOConfig(…), train_dataset=dataset)

It is TRL's trainer with one reward function and the documented hook `compute_loss`.  The function grades the
completions and keeps their advantages (`factrl.train.advantages`), per token where the reward has spans.
`compute_loss` puts these into each micro-batch, leaves out what was not graded, and corrects the counts that
losses divide by (`factrl.train.graded`).

All else is TRL's: losses, clipping, KL penalty, optimizer, PEFT, several processes, vLLM, tools, checkpoints,
trackers.  Nothing private of it is touched, so every release since 1.0 will do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from factrl.errors import ConfigError
from factrl.rewards import SUM
from factrl.runs.folder import Rollout, Run

from .advantages import group_advantages, reinforce_pp_advantages
from .context import attach_context
from .credit import TokenOffsets
from .graded import Batch, GradedBatch, GradedSample
from .metrics import signals
from .model import end_tokens
from .search import tolerant, transcript
from .shortcuts import use_shortcuts
from .trl_rows import reader_of

MEANS_OF_ROWS = frozenset({"grpo", "dr_grpo", "sapo", "luspo"})  # losses that are means over completions
STEPS_OVER_LIMIT = 3  # a run stops when this many steps in a row are mostly masked


@dataclass
class FactualGRPOConfig(GRPOConfig):
    """TRL's `GRPOConfig` with what factrl adds; a plain `GRPOConfig` has these defaults."""

    advantage_estimator: Literal["group", "reinforce++"] = "group"  # reinforce++ whitens over the batch
    advantage_epsilon: float = 1e-6  # added to the standard deviation (TRL 1e-4, verl 1e-6)
    max_masked_share: float = 0.5  # `factrl train` stops when more are masked for `STEPS_OVER_LIMIT` steps
    shortcuts: bool = True  # on a CPU prompts are shared and wasted work is left out

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.advantage_estimator not in ("group", "reinforce++"):
            raise ConfigError(f"advantage_estimator={self.advantage_estimator!r} is not group or reinforce++")


class FactualGRPOTrainer(GRPOTrainer):
    """GRPO with a reward of factrl; the arguments are TRL's, and `run`.

    Args:
        reward_funcs: a reward with its resources, what `fx.to_trl` made of one, a function in TRL's form, or
            a list of these, whose sum is taken with `args.reward_weights`.  The columns of the dataset become
            its examples.
        args: TRL's `GRPOConfig`, or `FactualGRPOConfig`.
        run: where rollouts are written; None writes none.

    Raises:
        ConfigError: something that is no reward, a resource of one is missing, or reinforce++ beside tools.

    Attributes:
        reader: what reads TRL's rows and grades them, the object that `fx.to_trl` makes.
        masked_causes: how many completions could not be graded so far, by cause.
        steps_over_limit: steps in a row of which more than `max_masked_share` could not be graded.
    """

    model: Any
    args: Any
    accelerator: Any

    def __init__(
        self,
        model: Any,
        reward_funcs: Any,
        args: Any = None,
        *more: Any,
        run: Run | None = None,
        **named: Any,
    ) -> None:
        weights = getattr(args, "reward_weights", None)
        self.reader, self.run = reader_of(reward_funcs, weights), run
        self.masked_causes: Counter[str] = Counter()
        self.steps_over_limit = 0
        self.graded: dict[str, GradedBatch] = {}
        if weights is not None:  # they are in the sum
            args = copy(args)
            args.reward_weights = None

        def score(**columns: Any) -> list[float | None]:
            return self.score(**columns)

        score.__name__ = SUM  # in metrics
        super().__init__(model, score, args, *more, **named)
        self.text_tokenizer: Any = getattr(self.processing_class, "tokenizer", self.processing_class)
        if self.tools:
            if self.option("advantage_estimator") == "reinforce++":
                raise ConfigError("reinforce++ counts the policy's own tokens, not known beside tools")
            tolerant(self.text_tokenizer)
        self.eos_token_ids = end_tokens(self.accelerator.unwrap_model(self.model), self.text_tokenizer)
        self.packed = bool(self.option("shortcuts")) and use_shortcuts(self)

    def option(self, name: str) -> Any:
        """A setting of `FactualGRPOConfig`, also where `args` is a plain `GRPOConfig`; None without any."""
        return getattr(self.args, name, getattr(FactualGRPOConfig, name, None))

    # --- what TRL calls ----------------------------------------------------------------------------

    def score(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        *,
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[Any]], None],
        **columns: Any,
    ) -> list[float | None]:
        """The reward function: grades this process's B completions and keeps their advantages."""
        stop_ids = {*self.eos_token_ids, self.text_tokenizer.pad_token_id}
        examples, texts = self.reader.read(prompts, completions, completion_ids, stop_ids=stop_ids, **columns)
        prompt_ids = self.tokenize(prompts)
        attach_context(self, texts, prompt_ids, completion_ids)
        results = self.reader.grade(examples, texts)
        skips_truncated = self.args.mask_truncated_completions
        samples = [
            GradedSample(
                example,
                str(text),
                result,
                text.prefill,
                prompt=_readable(prompt),
                transcript=_readable(completion),
                num_tokens=0 if skips_truncated and text.truncated else len(ids),
            )
            for example, text, result, prompt, completion, ids in zip(
                examples, texts, results, prompts, completions, completion_ids, strict=True
            )
        ]
        gathered = gather_object(samples)
        all_advantages = self.advantages(gathered).tolist()
        first = self.accelerator.process_index * len(samples)
        advantages = all_advantages[first : first + len(samples)]
        offsets = TokenOffsets(self.text_tokenizer)
        signs = [
            offsets.signs_at_end(ids, text, result.spans)
            for ids, text, result in zip(completion_ids, texts, results, strict=True)
        ]
        graded = GradedBatch(samples, gathered, prompt_ids, completion_ids, advantages, signs)
        self.graded[self.mode] = graded
        self.reader.log(results, [sample.result for sample in gathered], log_metric, log_extra)
        log_extra(f"{self.reader.reward.name}_advantage", advantages)
        if graded.has_spans:
            for name, share in graded.credit_shares().items():
                log_metric(f"credit/{name}", share)
        if self.mode == "train":
            self.record(gathered, all_advantages, log_metric)
        return [result.value for result in results]

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """TRL's loss of what was graded."""
        loss = super().compute_loss(model, self.corrected(inputs), return_outputs, num_items_in_batch)
        # TRL's bonus for entropy (`entropy_coef`) is divided too: with 5 % masked it weighs 1/0.95 as much.
        if self.loss_type in MEANS_OF_ROWS:
            return loss / torch.tensor(self.graded[self.mode].graded_share, device=loss.device)
        return loss

    def corrected(self, inputs: Batch) -> Batch:
        """A micro-batch as `GradedBatch.corrected` makes it of TRL's."""
        bonus = self.option("entropy_coef") or self.option("use_adaptive_entropy")
        all_tokens = (self.option("top_entropy_quantile") or 1.0) == 1.0 and self.loss_type != "bnpo"
        # Then a row whose advantage is 0 adds nothing to the loss, and need not be run.
        skip_zero = self.packed and self.beta == 0 and all_tokens and not bonus
        return self.graded[self.mode].corrected(inputs, skip_zero=skip_zero)

    @property
    def mode(self) -> str:
        """`train` or `eval`, as the model is."""
        return "train" if self.model.training else "eval"

    @property
    def group_size(self) -> int:
        """Completions of a prompt."""
        size: Any = self.num_generations if self.mode == "train" else self.num_generations_eval
        return size

    def tokenize(self, prompts: Sequence[Any]) -> list[list[int]]:
        """The tokens of prompts, as TRL has them; none for a processor's, such as with images."""
        if not isinstance(self.processing_class, PreTrainedTokenizerBase):
            return [[] for _ in prompts]
        if isinstance(prompts[0], str):
            return self.processing_class(text=list(prompts))["input_ids"]
        encoded: Any = self.processing_class.apply_chat_template(
            list(prompts),
            tools=self.tools or None,  # pyright: ignore[reportArgumentType]
            chat_template=self.chat_template,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **(self.args.chat_template_kwargs or {}),
        )
        return encoded["input_ids"]

    def advantages(self, gathered: Sequence[GradedSample]) -> torch.Tensor:
        """(N,) of the completions of all processes, groups one after the other."""
        values = [torch.nan if sample.result.value is None else sample.result.value for sample in gathered]
        rewards = torch.tensor(values, dtype=torch.float32)
        if self.option("advantage_estimator") == "reinforce++":
            lengths = torch.tensor([sample.num_tokens for sample in gathered])
            return reinforce_pp_advantages(rewards, lengths)
        scale: Any = self.scale_rewards
        epsilon = self.option("advantage_epsilon")
        return group_advantages(rewards, self.group_size, scale=scale, epsilon=epsilon)

    # --- what a run keeps ----------------------------------------------------------------------------

    def record(
        self,
        gathered: Sequence[GradedSample],
        advantages: Sequence[float],
        log_metric: Callable[[str, float], None],
    ) -> None:
        """Count what was masked; write the rollouts and log the step's signals where there is a run."""
        masked = [sample for sample in gathered if sample.masked]
        self.masked_causes.update(sample.result.cause or "" for sample in masked)
        over = len(masked) / len(gathered) > self.option("max_masked_share")
        self.steps_over_limit = self.steps_over_limit + 1 if over else 0
        if self.run is None or not self.accelerator.is_main_process:
            return
        rollouts = [
            Rollout(
                sample.example.id,
                sample.prompt,
                sample.transcript,
                sample.result,
                None if sample.masked else advantage,
                sample.example.question,
            )
            for sample, advantage in zip(gathered, advantages, strict=True)
        ]
        self.run.write_rollouts(self.state.global_step + 1, rollouts)
        for name, value in signals(gathered).items():
            log_metric(name, value)


def _readable(messages: Any) -> str:
    """A prompt or completion as a person reads it."""
    return messages if isinstance(messages, str) else transcript(messages)
