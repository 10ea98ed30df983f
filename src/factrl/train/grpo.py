"""A thin subclass of TRL's GRPO trainer that knows about rewards which could not be computed.

What it adds: one composite reward with `None` for masked samples, which then take no part in the
update; advantages from `factrl.train.advantages`, of shape (B,) or, for step-wise credit, (B, T);
REINFORCE++; term, state and cause metrics and one row per completion in the run folder; answers in several
turns (`search`); and exact shortcuts (`shortcuts`).  Losses, clipping, KL, optimizer, PEFT, distributed
training, vLLM, checkpoints and trackers stay TRL's.

TRL is pinned to the minor version 1.16, because the code overrides these private methods as they are in it:

* here `_calculate_rewards`, `_compute_loss`, `_generate`, `_generate_and_score_completions`,
  `_get_tool_suffix_ids` and `_get_train_sampler`;
* in `shortcuts` `_compute_loss`, `_generate_single_turn`, `_get_per_token_logps_and_entropies` and
  `_prepare_inputs`;
* in `offline` `_prepare_dataset` of the DPO trainer.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import PreTrainedModel
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.utils import RepeatSampler

from factrl.llm import Message
from factrl.rewards import SUM, Reward
from factrl.runs.folder import Rollout, Run
from factrl.text import encodable
from factrl.types import Completion, Example, Result, TrainingState

from .advantages import Scale, flip_advantages, group_advantages, reinforce_pp_advantages
from .credit import TokenOffsets
from .metrics import ScoredSample, reward_metrics, signals
from .model import encode
from .search import SearchEnvironment, attach_search, last_message, tolerant, transcript
from .shortcuts import Batch, ShortcutTrainer
from .writing import evaluating, self_certainty

MEANS_OF_ROWS = frozenset({"grpo", "dr_grpo", "sapo", "luspo"})  # losses that are means over completions
RIGHT = "eval/accuracy"  # the metric that a run logs for the share of right answers to held-out questions
STEPS_OVER_LIMIT = 3  # a run stops when this many steps in a row are mostly masked


@dataclass
class FactualGRPOConfig(GRPOConfig):
    """TRL's `GRPOConfig` with what factrl adds."""

    advantage_estimator: Literal["group", "reinforce++"] = "group"  # reinforce++ whitens over the batch
    advantage_epsilon: float = 1e-6  # added to the standard deviation (TRL 1e-4, verl 1e-6)
    max_masked_share: float = 0.5  # a run stops when more are masked for `STEPS_OVER_LIMIT` steps
    shortcuts: bool = True  # prompts are shared and wasted work is left out
    chat: bool = True  # prompts hold chat markup, special tokens included
    prefill: str = ""  # text that the assistant's turn starts with, e.g. <think>


class FactualGRPOTrainer(ShortcutTrainer):
    """GRPO with a factrl reward.

    Args:
        reward: with its resources supplied.
        prompts: the full text before the completion, one per example (`render_prompts`); with an environment
            the conversation before it (`conversation`).
        environment: makes the environment of one episode, in which the policy searches before it answers.
        run: where rollouts are written, and signals logged; None does neither.
        kwargs: passed to TRL (`processing_class`, `peft_config`, `callbacks`, …).
    """

    args: FactualGRPOConfig
    model: Any
    accelerator: Any
    train_dataset: Any
    num_generations: int
    scale_rewards: Scale

    def __init__(
        self,
        model: str | PreTrainedModel,
        reward: Reward,
        examples: Sequence[Example],
        prompts: Sequence[str] | Sequence[Sequence[Message]],
        args: FactualGRPOConfig,
        *,
        environment: Callable[[], SearchEnvironment] | None = None,
        run: Run | None = None,
        **kwargs: Any,
    ) -> None:
        reward.check_examples(examples)
        self.reward = reward
        self.examples = list(examples)
        self.run = run
        self.masked_causes: Counter[str] = Counter()
        self.steps_over_limit = 0
        self._results: list[Result] = []
        self._texts: list[tuple[int, str]] = []
        self._read: list[str] = []  # the same texts with the turns before them, for people to read
        self._token_ids: list[list[int]] = []
        self._own: list[list[int]] | None = None  # 1 for tokens of the policy's own, 0 for those it was shown
        self._rewards = torch.empty(0)
        logging.getLogger("trl.trainer.grpo_trainer").addFilter(_is_no_dump)
        rows = Dataset.from_dict({"prompt": list(prompts), "example": list(range(len(prompts)))})
        if environment is not None:
            kwargs["environment_factory"] = environment
        with warnings.catch_warnings():  # about TRL's environments, which may change: its version is pinned
            warnings.filterwarnings("ignore", message="You are using 'environment_factory'")
            super().__init__(model, reward_funcs=self._composite, args=args, train_dataset=rows, **kwargs)
        if environment is not None:
            tolerant(self._tokenizer)
        self.reward_func_names = [SUM]  # in metrics, as a bound method's own name cannot be set
        self._shortcuts = args.shortcuts and not self.use_vllm and self._take_shortcuts()

    def _get_train_sampler(self, dataset: Any = None) -> RepeatSampler:
        """TRL's sampler, in an order that depends on the epoch's number, not on the epochs before it."""
        own: Any = super()._get_train_sampler(dataset)
        return _EpochOrder(
            own.data_source, own.mini_repeat_count, own.batch_size, own.repeat_count, own.shuffle, own.seed
        )

    # --- rewards -----------------------------------------------------------------------------------

    def _composite(
        self,
        prompts: list[Any],
        completions: list[Any],
        completion_ids: list[list[int]],
        example: list[int],
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[Any]], None],
        environments: Sequence[SearchEnvironment] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """The one reward function TRL sees: None where the sample is masked."""
        certain: Sequence[float | None] = [None] * len(completions)
        if "certainty" in self.reward.resources:
            certain = self._certainties(prompts, completion_ids)
        if environments is None:
            texts = list(map(self._completion, completions, completion_ids, certain))
        else:
            texts = list(map(self._episode, range(len(completions)), completion_ids, environments))
        if {"group", "course"} & self.reward.resources.keys():
            self._attach_group_and_course(example, texts)
        self._results = self.reward.batch([self.examples[i] for i in example], texts)
        # TRL averages a metric over the processes that log it, and not all see every cause or term.
        for name, value in reward_metrics(gather_object(self._results)).items():
            log_metric(name, value)
        log_extra("state", [result.state for result in self._results])
        log_extra("cause", [result.cause or "" for result in self._results])
        return [result.value for result in self._results]

    def _completion(self, text: str, ids: list[int], certainty: float | None = None) -> Completion:
        ended = bool(ids) and ids[-1] in (*self.eos_token_ids, self._tokenizer.pad_token_id)
        kwargs = {"prefill": self.args.prefill, "truncated": not ended, "certainty": certainty}
        return Completion(text, tokens=len(ids) - ended, **kwargs)

    def _attach_group_and_course(self, example: list[int], completions: list[Completion]) -> None:
        """Give each completion its group, from all processes, and the state of the training run."""
        right = [logs[RIGHT] for logs in self.state.log_history if logs.get(RIGHT) is not None]
        since = len(right) - 1 - right.index(max(right)) if right else 0
        everyone = gather_object(list(zip(example, completions, strict=True)))
        course = TrainingState(
            tuple(text for _, text in everyone), gather_object([since])[0]
        )  # only the first process evaluates
        groups: dict[int, list[str]] = {}
        for number, text in everyone:
            groups.setdefault(number, []).append(text)
        for number, completion in zip(example, completions, strict=True):
            completion.group, completion.course = tuple(groups[number]), course

    def _episode(self, row: int, ids: list[int], environment: SearchEnvironment) -> Completion:
        last = self._completion(self._texts[row][1], ids)
        last.tokens = (last.tokens or 0) - (self._own[row].count(0) if self._own else 0)
        return attach_search(environment, last)

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, str]]) -> Any:
        replies = [{name: encodable(text) for name, text in one.items()} for one in tool_messages]
        return super()._get_tool_suffix_ids(replies)

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        self._own = generated[2]
        return generated

    def _certainties(self, prompts: list[Any], ids: list[list[int]]) -> Sequence[float]:
        """The policy's certainty about each completion."""
        model: Any = self.accelerator.unwrap_model(self.model)
        with evaluating(model), self.accelerator.autocast():
            return self_certainty(model, encode(prompts, self._tokenizer, chat=self.args.chat), ids)

    def _answer_starts(self) -> list[int]:
        """Where the last stretch of the policy's own tokens starts in each completion."""
        if self._own is None:
            return [0] * len(self._token_ids)
        return [*map(last_message, self._own)]

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: list[str], completion_ids_list: list[list[int]]
    ) -> torch.Tensor:
        self._token_ids, texts = completion_ids_list, completions
        self._read = [text if isinstance(text, str) else transcript(text) for text in completions]
        if self.environments is not None:  # the answer is what was written after the last thing shown
            self._token_ids = [
                ids[start:] for ids, start in zip(completion_ids_list, self._answer_starts(), strict=True)
            ]
            texts = self._tokenizer.batch_decode(self._token_ids, skip_special_tokens=True)
        self._texts = [(row["example"], text) for row, text in zip(inputs, texts, strict=True)]
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards = rewards[:, 0]  # of all processes
        return rewards

    # --- advantages --------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        batch["row"] = torch.arange(len(inputs), device=batch["completion_ids"].device)
        lengths = self.accelerator.gather(_own_tokens(batch).sum(dim=1))
        if self.args.advantage_estimator == "reinforce++":
            advantages = reinforce_pp_advantages(self._rewards, lengths)
        else:
            scale, epsilon = self.scale_rewards, self.args.advantage_epsilon
            advantages = group_advantages(self._rewards, self.num_generations, scale=scale, epsilon=epsilon)
        # TRL's own advantages then drop out of its table, which has a fixed length.
        self._logs["advantages"].extend(advantages.tolist())
        start = self.accelerator.process_index * len(inputs)
        local = advantages[start : start + len(inputs)]
        self._leave_out_masked(batch, lengths)
        batch["advantages"] = self._credit(local, self._results, batch)
        self._record_step(local)
        return batch

    def _credit(
        self, advantages: torch.Tensor, results: Sequence[Result], batch: dict[str, Any]
    ) -> torch.Tensor:
        """Advantages for each token, where the reward of a completion says which steps were right.

        Args:
            advantages: (B,) of this process, with its B results.
            batch: what TRL will train on; `completion_ids` and `completion_mask` are (B, T).

        Returns:
            (B, T) when the reward of any completion, of whatever process, has spans, else (B,).
        """
        signs, offsets = advantages.new_zeros(batch["completion_ids"].shape), TokenOffsets(self._tokenizer)
        for row, result in enumerate(results):
            if result.spans:
                ids, start = self._token_ids[row], self._answer_starts()[row]
                token_signs = offsets.signs(ids, self._texts[row][1], result.spans)
                signs[row, start : start + len(ids)] = torch.from_numpy(token_signs).to(signs)
        kept = _own_tokens(batch).bool()
        flipped = signs * advantages.unsqueeze(1) < 0
        counts = [(part & kept).sum() for part in (signs > 0, signs < 0, flipped, kept)]
        spans = torch.tensor(sum(len(result.spans) for result in results), device=kept.device)
        everyone = self.accelerator.gather(torch.stack([*counts, spans])).view(-1, 5).sum(dim=0)
        *shares, tokens, total = everyone.tolist()
        if not total:
            return advantages
        for name, share in zip(("supported", "contradicted", "flipped"), shares, strict=True):
            self._metrics["train"][f"credit/{name}"].append(share / max(tokens, 1))
        return flip_advantages(advantages, signs)

    def _leave_out_masked(self, batch: dict[str, Any], lengths: torch.Tensor) -> None:
        """Take masked completions out of the counts of tokens and rows, KL penalty and entropy too."""
        masked = torch.tensor([r.state == "masked" for r in self._results], device=lengths.device)
        batch["completion_mask"] = batch["completion_mask"] * (~masked).unsqueeze(1).to(
            batch["completion_mask"].dtype
        )
        batch["graded"] = ~masked
        everyone = self._rewards.isnan()
        batch["num_items_in_batch"] = batch["num_items_in_batch"] - lengths[everyone].sum()
        batch["graded_share"] = (~everyone).float().mean().clamp(min=1 / len(everyone))

    def _record_step(self, advantages: torch.Tensor) -> None:
        """Count what was masked; write the rollouts and log the step's signals where there is a run."""
        everyone = gather_object(
            [
                (index, str(text), read, result, None if result.state == "masked" else advantage)
                for (index, text), read, result, advantage in zip(
                    self._texts, self._read, self._results, advantages.tolist(), strict=True
                )
            ]
        )
        self.masked_causes.update(r.cause or "" for *_, r, _ in everyone if r.state == "masked")
        over = self._rewards.isnan().float().mean().item() > self.args.max_masked_share
        self.steps_over_limit = self.steps_over_limit + 1 if over else 0
        if self.run is None or not self.accelerator.is_main_process:
            return
        rows, samples = [], []
        for n, text, read, result, advantage in everyone:
            example, prompt = self.examples[n], self.train_dataset[n]["prompt"]
            prompt = prompt if isinstance(prompt, str) else transcript(prompt)
            rows.append(Rollout(example.id, prompt, read, result, advantage, example.question))
            samples.append(ScoredSample(example, text, result, self.args.prefill))
        self.run.write_rollouts(self.state.global_step + 1, rows)
        for name, value in signals(samples).items():
            self._metrics["train"][name].append(value)

    # --- losses ------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        # TRL's bonus for entropy (`entropy_coef`) is divided too: with 5 % masked it weighs 1/0.95 as much.
        if self.loss_type in MEANS_OF_ROWS:
            return loss / inputs["graded_share"]
        return loss / inputs.get("graded_parts", 1.0)

    def _prepared(self, parts: list[Batch]) -> list[Batch]:
        """For `bnpo`, a mean over micro-batches, count those that have a graded completion."""
        parts = super()._prepared(parts)
        if self.loss_type == "bnpo":
            graded = torch.stack([part["graded"].any() for part in parts]).float()
            share = self.accelerator.gather(graded).mean().clamp(min=1e-6)
            for part in parts:
                part["graded_parts"] = share
        return parts


class _EpochOrder(RepeatSampler):
    """An order set by the epoch's number: a resumed run asks in the same order as one never stopped."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Generator[int, None, None]:
        if self.shuffle:
            self.generator.manual_seed((self.seed or 0) + self.epoch)
        yield from super().__iter__()


def _own_tokens(batch: Batch) -> torch.Tensor:
    """(B, T), 1 for tokens that the policy wrote, 0 for padding and for what a search showed it."""
    return batch["completion_mask"] * batch.get("tool_mask", 1)


def _is_no_dump(record: logging.LogRecord) -> bool:
    """Masked samples are counted and written; TRL would print each batch's first one, text and all."""
    return "All reward functions returned None" not in record.getMessage()
