"""`trl.GRPOTrainer` that knows which rewards could not be computed, and which steps of a text were right.

    trainer = FactualGRPOTrainer(model, reward_funcs=reward, args=GRPOConfig(…), train_dataset=dataset)

It is TRL's trainer with one reward function and the documented hook `compute_loss`.  The function grades the
completions, computes their advantages (`factrl.train.advantages`) and keeps them, with the sign of each token
where the reward has spans, under the tokens of prompt and completion.  `compute_loss` takes them up again for
the rows of a micro-batch, zeroes the mask of what was not graded, and mends the counts that losses divide by.
Rows of one prompt with the same tokens can stand for each other, so which of them is which does not matter.

All else is TRL's: losses, clipping, KL penalty, optimizer, PEFT, several processes, vLLM, tools, checkpoints,
trackers.  Nothing private of it is touched, so every release since 1.0 will do.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from factrl.errors import ConfigError, ModelError
from factrl.rewards import SUM, Reward
from factrl.rewards.trl import from_trl, is_trl, weighted
from factrl.runs.folder import Rollout, Run
from factrl.types import Completion, Example, Result, Span, TrainingState

from .advantages import flip_advantages, group_advantages, reinforce_pp_advantages
from .credit import TokenOffsets
from .metrics import ScoredSample, signals
from .model import end_tokens
from .search import tolerant, transcript
from .shortcuts import use_shortcuts
from .trl_rows import TRLReward
from .writing import evaluating, self_certainty

MEANS_OF_ROWS = frozenset({"grpo", "dr_grpo", "sapo", "luspo"})  # losses that are means over completions
RIGHT = "eval/accuracy"  # the metric that a run logs for the share of right answers to held-out questions
STEPS_OVER_LIMIT = 3  # a run stops when this many steps in a row are mostly masked
Batch = dict[str, Any]
"""What TRL trains on: tensors with a first axis of B rows, and scalars."""


@dataclass
class FactualGRPOConfig(GRPOConfig):
    """TRL's `GRPOConfig` with what factrl adds; a plain `GRPOConfig` has these defaults."""

    advantage_estimator: Literal["group", "reinforce++"] = "group"  # reinforce++ whitens over the batch
    advantage_epsilon: float = 1e-6  # added to the standard deviation (TRL 1e-4, verl 1e-6)
    max_masked_share: float = 0.5  # `factrl train` stops when more are masked for `STEPS_OVER_LIMIT` steps
    shortcuts: bool = True  # on a CPU prompts are shared and wasted work is left out


@dataclass
class _Graded:
    """What one generation's completions of this process are worth, row by row."""

    advantages: list[float] = field(default_factory=list)
    signs: list[list[int]] = field(default_factory=list)  # of each token; none without spans
    masked: list[bool] = field(default_factory=list)
    has_spans: bool = False  # of whatever process
    share: float = 1.0  # of the completions of all processes, those that were graded
    tokens: int = 0  # of all processes
    masked_tokens: int = 0
    rows: dict[tuple[Any, ...], deque[int]] = field(default_factory=lambda: defaultdict(deque))

    def take(self, prompt: tuple[int, ...], completion: tuple[int, ...]) -> int:
        """The number of a row of these tokens, another each time until all had their turn.

        Raises:
            ModelError: it cannot be told.
        """
        same = self.rows.get((prompt, completion))
        if same is None:  # the prompt was not tokenised as TRL did
            same = deque(row for key, rows in self.rows.items() if key[1] == completion for row in rows)
            worth = {(self.advantages[row], tuple(self.signs[row]), self.masked[row]) for row in same}
            if len(worth) != 1:
                raise ModelError(
                    "which completion a row of the batch is cannot be told: the prompt is not tokenised as "
                    "usual, and several prompts have this completion; give prompts as texts, with the chat "
                    "markup in them"
                )
        same.rotate(-1)
        return same[-1]

    def credit(self, lengths: Sequence[int]) -> list[float]:
        """Of all processes' graded tokens those praised, those blamed, and those of a turned advantage."""
        counts = [[0, 0, 0, 0]]
        for signs, value, masked, length in zip(
            self.signs, self.advantages, self.masked, lengths, strict=True
        ):
            if length and not masked:
                turned = sum(sign * value < 0 for sign in signs)
                counts.append([signs.count(1), signs.count(-1), turned, length])
        *parts, tokens = map(sum, zip(*gather_object(counts), strict=True))
        return [part / max(tokens, 1) for part in parts]


def _reader(reward_funcs: Any, weights: Sequence[float] | None) -> TRLReward:
    """What reads TRL's rows and grades them with these rewards, of several with their weighted sum.

    Raises:
        ConfigError: one of them is no reward.
    """
    given: list[Any] = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    readers = [one for one in given if isinstance(one, TRLReward)]
    if given == readers[:1] and weights is None:
        return readers[0]
    rewards = [
        one.reward if isinstance(one, TRLReward) else from_trl(one) if is_trl(one) else one for one in given
    ]
    for reward in rewards:
        if not isinstance(reward, Reward):
            raise ConfigError(
                f"{str(reward)[:80]!r} in reward_funcs is no reward of factrl and no function in TRL's form, "
                "f(prompts, completions, **columns); or take trl.GRPOTrainer"
            )
    total = rewards[0] if len(rewards) == 1 and weights is None else weighted(rewards, weights)
    return TRLReward(total, *([readers[0].prefill, readers[0].columns] if readers else []))


class FactualGRPOTrainer(GRPOTrainer):
    """GRPO with a reward of factrl; the arguments are TRL's, and `run`.

    Args:
        reward_funcs: a reward with its resources, what `fx.to_trl` made of one, a function in TRL's form, or
            a list of these, whose sum is taken with `args.reward_weights`.  The columns of the dataset become
            its examples.
        args: TRL's `GRPOConfig`, or `FactualGRPOConfig`.
        run: where rollouts are written; None writes none.

    Raises:
        ConfigError: something that is no reward, or a resource of one is missing.

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
        estimator = getattr(args, "advantage_estimator", "group")
        if estimator not in ("group", "reinforce++"):
            raise ConfigError(f"advantage_estimator={estimator!r} is not group or reinforce++")
        self.reader, self.run = _reader(reward_funcs, getattr(args, "reward_weights", None)), run
        self.masked_causes: Counter[str] = Counter()
        self.steps_over_limit = 0
        self.graded = {"train": _Graded(), "eval": _Graded()}

        def score(**told: Any) -> list[float | None]:
            return self.score(**told)

        score.__name__ = SUM  # in metrics
        if getattr(args, "reward_weights", None) is not None:  # they are in the sum
            args = copy(args)
            args.reward_weights = None
        super().__init__(model, score, args, *more, **named)
        self.words: Any = getattr(self.processing_class, "tokenizer", self.processing_class)
        if self.tools:
            if self.option("advantage_estimator") == "reinforce++":
                raise ConfigError("reinforce++ counts the policy's own tokens, not known beside tools")
            tolerant(self.words)
        self.ends = end_tokens(self.accelerator.unwrap_model(self.model), self.words)
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
        environments: Sequence[Any] | None = None,
        log_metric: Callable[[str, float], None] = lambda name, value: None,
        log_extra: Callable[[str, list[Any]], None] = lambda name, values: None,
        **columns: Any,
    ) -> list[float | None]:
        """The reward function: grades this process's B completions and keeps what they are worth."""
        told = {**columns, "environments": environments}
        told["ends"] = {*self.ends, self.words.pad_token_id}
        examples, texts = self.reader.read(prompts, completions, completion_ids, **told)
        prompt_ids = self.prompt_tokens(prompts)
        resources = self.reader.reward.resources.keys()
        if "certainty" in resources:
            self.attach_certainties(texts, prompt_ids, completion_ids)
        if {"group", "course"} & resources:
            self.attach_group_and_course(texts)
        results = self.reader.grade(examples, texts)
        cut_off = bool(self.args.mask_truncated_completions)  # and so left out by TRL
        lengths = [
            0 if cut_off and text.truncated else len(ids)
            for text, ids in zip(texts, completion_ids, strict=True)
        ]
        shown = [_to_read(*row) for row in zip(examples, texts, prompts, completions, strict=True)]
        everyone = gather_object(list(zip(results, lengths, shown, strict=True)))
        advantages = self.advantages(everyone).tolist()
        first = self.accelerator.process_index * len(results)
        graded = _Graded(
            advantages=advantages[first : first + len(results)],
            signs=self.token_signs(results, texts, completion_ids),
            masked=[result.state == "masked" for result in results],
            has_spans=any(result.spans for result, *_ in everyone),
            share=max(sum(result.state != "masked" for result, *_ in everyone), 1) / len(everyone),
            tokens=sum(length for _, length, _ in everyone),
            masked_tokens=sum(length for result, length, _ in everyone if result.state == "masked"),
        )
        for row, key in enumerate(zip(map(tuple, prompt_ids), map(tuple, completion_ids), strict=True)):
            graded.rows[key].append(row)
        self.graded[self.mode] = graded
        self.reader.log(results, [result for result, *_ in everyone], log_metric, log_extra)
        log_extra(f"{self.reader.reward.name}_advantage", graded.advantages)
        if graded.has_spans:
            for name, share in zip(
                ("supported", "contradicted", "flipped"), graded.credit(lengths), strict=True
            ):
                log_metric(f"credit/{name}", share)
        if self.mode == "train":
            self.record(everyone, advantages, log_metric)
        return [result.value for result in results]

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """TRL's loss of what was graded."""
        loss = super().compute_loss(model, self.mended(inputs), return_outputs, num_items_in_batch)
        # TRL's bonus for entropy (`entropy_coef`) is divided too: with 5 % masked it weighs 1/0.95 as much.
        if self.loss_type in MEANS_OF_ROWS:
            return loss / torch.tensor(self.graded[self.mode].share, device=loss.device)
        return loss

    def mended(self, inputs: Batch) -> Batch:
        """A micro-batch with factrl's advantages, and without what was not graded.

        Args:
            inputs: `prompt_ids` (B, P), `completion_ids` (B, T), their masks, `num_items_in_batch` and so on.

        Returns:
            The same with `advantages` (B,), or (B, T) where the reward of any completion has spans; masked
            rows are out of `completion_mask` and of the count.  In a search the count is of all tokens in the
            proportion of graded ones, as which are the policy's is known of these B rows alone.
        """
        graded, mask = self.graded[self.mode], inputs["completion_mask"]
        prompts = _tokens(inputs["prompt_ids"], inputs["prompt_mask"])
        completions = _tokens(inputs["completion_ids"], mask)
        rows = [  # None is cut off, and left out by TRL
            graded.take(prompt, own) if own else None
            for prompt, own in zip(prompts, completions, strict=True)
        ]
        values = [0.0 if row is None else graded.advantages[row] for row in rows]
        advantages = torch.tensor(values, device=mask.device)
        if graded.has_spans:
            signs = torch.zeros(mask.shape)
            for place, row in enumerate(rows):
                own = [] if row is None else graded.signs[row]
                signs[place, : len(own)] = torch.tensor(own)
            advantages = flip_advantages(advantages, signs.to(mask.device))
        out = torch.tensor([row is None or graded.masked[row] for row in rows], device=mask.device)
        if self.may_skip():
            out |= (advantages if advantages.dim() == 2 else advantages.unsqueeze(1)).eq(0).all(dim=1)
        mended = {**inputs, "advantages": advantages}
        mended["completion_mask"] = mask * (~out).unsqueeze(1).to(mask.dtype)
        if "num_items_in_batch" in inputs:
            count = inputs["num_items_in_batch"]
            share = graded.masked_tokens / max(graded.tokens, 1)
            left = count * (1 - share) if "tool_mask" in inputs else count - graded.masked_tokens
            mended["num_items_in_batch"] = left.clamp(min=1)
        return mended

    def may_skip(self) -> bool:
        """Whether a row whose advantage is 0 adds nothing to the loss, and need not be run."""
        bonus = self.option("entropy_coef") or self.option("use_adaptive_entropy")
        whole = (self.option("top_entropy_quantile") or 1.0) == 1.0 and self.loss_type != "bnpo"
        return self.packed and self.beta == 0 and whole and not bonus

    @property
    def mode(self) -> str:
        """`train` or `eval`, as the model is."""
        return "train" if self.model.training else "eval"

    @property
    def group_size(self) -> int:
        """Completions of a prompt."""
        size: Any = self.num_generations if self.mode == "train" else self.num_generations_eval
        return size

    def prompt_tokens(self, prompts: Sequence[Any]) -> list[list[int]]:
        """The tokens of prompts, as TRL has them; of those of a processor, such as with images, none."""
        if not isinstance(self.processing_class, PreTrainedTokenizerBase):
            return [[] for _ in prompts]
        if isinstance(prompts[0], str):
            return self.processing_class(text=list(prompts))["input_ids"]
        told: dict[str, Any] = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
        told |= {"tools": self.tools or None, "chat_template": self.chat_template}
        told |= self.args.chat_template_kwargs or {}
        asked: Any = self.processing_class.apply_chat_template(list(prompts), **told)
        return asked["input_ids"]

    # --- advantages --------------------------------------------------------------------------------

    def advantages(self, everyone: Sequence[tuple[Result, int, Any]]) -> torch.Tensor:
        """Of the completions of all processes, groups one after the other."""
        values = [torch.nan if result.value is None else result.value for result, *_ in everyone]
        rewards = torch.tensor(values, dtype=torch.float32)
        if self.option("advantage_estimator") == "reinforce++":
            return reinforce_pp_advantages(rewards, torch.tensor([length for _, length, _ in everyone]))
        scale: Any = self.scale_rewards
        epsilon = self.option("advantage_epsilon")
        return group_advantages(rewards, self.group_size, scale=scale, epsilon=epsilon)

    def token_signs(
        self, results: Sequence[Result], texts: Sequence[Completion], ids: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Of each completion the signs of its tokens; after a search the reward read what came last."""
        offsets, signs = TokenOffsets(self.words), list[list[int]]()
        for result, text, tokens in zip(results, texts, ids, strict=True):
            if not result.spans:
                signs.append([])
                continue
            whole = self.words.decode(list(tokens), skip_special_tokens=True)
            start = whole.rfind(text)
            if start < 0:  # refused, by both texts
                whole, start = str(text), 0
            spans = [Span(start + span.start, start + span.end, span.sign) for span in result.spans]
            signs.append(offsets.signs(tokens, whole, spans).tolist())
        return signs

    # --- what a reward is told, and what a run keeps -------------------------------------------------

    def attach_certainties(
        self, texts: Sequence[Completion], prompts: list[list[int]], ids: Sequence[Sequence[int]]
    ) -> None:
        """Tell each completion how certain the policy was of it."""
        policy: Any = self.accelerator.unwrap_model(self.model)
        with evaluating(policy), self.accelerator.autocast():
            certain = self_certainty(policy, prompts, [list(row) for row in ids])
        for text, value in zip(texts, certain, strict=True):
            text.certainty = value

    def attach_group_and_course(self, texts: Sequence[Completion]) -> None:
        """Give each completion its group, from all processes, and the state of the training run."""
        right = [logs[RIGHT] for logs in self.state.log_history if logs.get(RIGHT) is not None]
        since = len(right) - 1 - right.index(max(right)) if right else 0
        everyone, size = gather_object(list(texts)), self.group_size
        course = TrainingState(tuple(everyone), gather_object([since])[0])  # only the first process evaluates
        first = self.accelerator.process_index * len(texts)
        for place, text in enumerate(texts, start=first):
            start = place - place % size
            text.group, text.course = tuple(everyone[start : start + size]), course

    def record(
        self,
        everyone: Sequence[tuple[Result, int, Any]],
        advantages: Sequence[float],
        log_metric: Callable[[str, float], None],
    ) -> None:
        """Count what was masked; write the rollouts and log the step's signals where there is a run."""
        masked = [result for result, *_ in everyone if result.state == "masked"]
        self.masked_causes.update(result.cause or "" for result in masked)
        over = len(masked) / len(everyone) > self.option("max_masked_share")
        self.steps_over_limit = self.steps_over_limit + 1 if over else 0
        if self.run is None or not self.accelerator.is_main_process:
            return
        rows, samples = [], []
        for (result, _, (example, text, prefill, asked, read)), value in zip(
            everyone, advantages, strict=True
        ):
            advantage = None if result.state == "masked" else value
            rows.append(Rollout(example.id, asked, read, result, advantage, example.question))
            samples.append(ScoredSample(example, text, result, prefill))
        self.run.write_rollouts(self.state.global_step + 1, rows)
        for name, value in signals(samples).items():
            log_metric(name, value)


def _tokens(ids: torch.Tensor, mask: torch.Tensor) -> list[tuple[int, ...]]:
    """The tokens of each row that its mask keeps."""
    pairs = zip(ids.tolist(), mask.tolist(), strict=True)
    return [tuple(token for token, kept in zip(row, keeps, strict=True) if kept) for row, keeps in pairs]


def _to_read(
    example: Example, text: Completion, prompt: Any, completion: Any
) -> tuple[Example, str, str, str, str]:
    """What a person reads of a completion: its example, text and prefill, the prompt, and all turns."""
    asked, read = (one if isinstance(one, str) else transcript(one) for one in (prompt, completion))
    return example, str(text), text.prefill, asked, read
