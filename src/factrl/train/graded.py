"""The graded completions of one generation, and TRL's micro-batches with their advantages.

TRL hands a reward function the completions of a whole generation, shuffles them, and cuts them into
micro-batches, without a public place for more than one number a completion.  So what was computed is kept
beside TRL and found again by the tokens of prompt and completion.  Rows with the same tokens of both can
stand for each other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object

from factrl.errors import ModelError

from .advantages import flip_advantages
from .metrics import ScoredSample

Batch = dict[str, Any]
"""What TRL's `compute_loss` takes: tensors whose first axis is B rows, and scalars."""
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class GradedSample(ScoredSample):
    """A graded completion of a step, as processes exchange it.

    Attributes:
        prompt: as a person reads it.
        transcript: all turns of the completion, likewise; `text` is what the reward read.
        num_tokens: tokens that TRL's losses count, 0 where TRL leaves the completion out.
    """

    prompt: str = ""
    transcript: str = ""
    num_tokens: int = 0

    @property
    def masked(self) -> bool:
        """Whether it could not be graded."""
        return self.result.state == "masked"


class GradedBatch:
    """What one generation's completions are worth, on the process that wrote B of them.

    Args:
        samples: the B completions of this process.
        gathered: those of all processes.
        prompt_ids: (B, *) tokens of each prompt; empty where they are not known.
        completion_ids: (B, *) tokens of each completion.
        advantages: (B,), 0 where masked.
        signs: (B, *) of -1, 0 and 1, the sign of each token; empty for a completion without spans.
    """

    def __init__(
        self,
        samples: Sequence[GradedSample],
        gathered: Sequence[GradedSample],
        prompt_ids: Sequence[Sequence[int]],
        completion_ids: Sequence[Sequence[int]],
        advantages: Sequence[float],
        signs: Sequence[Sequence[int]],
    ) -> None:
        self.samples, self.advantages, self.signs = samples, advantages, signs
        self.has_spans = any(sample.result.spans for sample in gathered)
        self.graded_share = max(sum(not sample.masked for sample in gathered), 1) / len(gathered)
        self.num_tokens = sum(sample.num_tokens for sample in gathered)
        self.num_masked_tokens = sum(sample.num_tokens for sample in gathered if sample.masked)
        self.rows: defaultdict[tuple[Tokens, Tokens], deque[int]] = defaultdict(deque)
        for row, key in enumerate(zip(map(tuple, prompt_ids), map(tuple, completion_ids), strict=True)):
            self.rows[key].append(row)

    def find_row(self, prompt: Tokens, completion: Tokens) -> int:
        """The number of a completion with these tokens, each time the next one of those that have them.

        Raises:
            ModelError: several that are worth different amounts could be meant.
        """
        same = self.rows.get((prompt, completion))
        if same is None:  # the prompt was not tokenised as TRL did
            same = deque(row for key, rows in self.rows.items() if key[1] == completion for row in rows)
            worth = {(self.advantages[row], tuple(self.signs[row]), self.samples[row].masked) for row in same}
            if len(worth) != 1:
                raise ModelError(
                    "which completion a row of the batch is cannot be told: the prompt is not tokenised as "
                    "usual, and several prompts have this completion; give prompts as texts, with the chat "
                    "markup in them"
                )
        same.rotate(-1)
        return same[-1]

    def corrected(self, inputs: Batch, *, skip_zero: bool = False) -> Batch:
        """A micro-batch with these advantages, and without what was not graded.

        Args:
            inputs: `prompt_ids` (B, P), `completion_ids` (B, T), their masks, `num_items_in_batch` and so on.
            skip_zero: leave out rows whose advantage is 0 too.

        Returns:
            The same with `advantages` (B,), or (B, T) where any completion has spans; masked rows are out of
            `completion_mask` and of the count.  With tools the count shrinks in proportion to all tokens, as
            the policy's own are known of these B rows alone.
        """
        mask = inputs["completion_mask"]
        prompts = _unpadded(inputs["prompt_ids"], inputs["prompt_mask"])
        completions = _unpadded(inputs["completion_ids"], mask)
        rows = [  # None was cut off, and TRL has left it out
            self.find_row(prompt, completion) if completion else None
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        values = [0.0 if row is None else self.advantages[row] for row in rows]
        advantages = torch.tensor(values, device=mask.device)
        if self.has_spans:
            signs = torch.zeros(mask.shape)
            for place, row in enumerate(rows):
                own = [] if row is None else self.signs[row]
                signs[place, : len(own)] = torch.tensor(own)
            advantages = flip_advantages(advantages, signs.to(mask.device))
        out = torch.tensor([row is None or self.samples[row].masked for row in rows], device=mask.device)
        if skip_zero:
            out |= (advantages if advantages.dim() == 2 else advantages.unsqueeze(1)).eq(0).all(dim=1)
        corrected = {**inputs, "advantages": advantages}
        corrected["completion_mask"] = mask * (~out).unsqueeze(1).to(mask.dtype)
        if "num_items_in_batch" in inputs:
            count = inputs["num_items_in_batch"]
            share = self.num_masked_tokens / max(self.num_tokens, 1)
            left = count * (1 - share) if "tool_mask" in inputs else count - self.num_masked_tokens
            corrected["num_items_in_batch"] = left.clamp(min=1)
        return corrected

    def credit_shares(self) -> dict[str, float]:
        """Shares of all processes' graded tokens: supported, contradicted, and of a flipped advantage."""
        counts = [(0, 0, 0, 0)]
        for sample, signs, advantage in zip(self.samples, self.signs, self.advantages, strict=True):
            if sample.num_tokens and not sample.masked:
                flipped = sum(sign * advantage < 0 for sign in signs)
                counts.append((signs.count(1), signs.count(-1), flipped, sample.num_tokens))
        *parts, tokens = map(sum, zip(*gather_object(counts), strict=True))
        names = ("supported", "contradicted", "flipped")
        return {name: part / max(tokens, 1) for name, part in zip(names, parts, strict=True)}


def _unpadded(ids: torch.Tensor, mask: torch.Tensor) -> list[Tokens]:
    """The tokens of each row that its mask keeps."""
    pairs = zip(ids.tolist(), mask.tolist(), strict=True)
    return [tuple(token for token, kept in zip(row, keeps, strict=True) if kept) for row, keeps in pairs]
