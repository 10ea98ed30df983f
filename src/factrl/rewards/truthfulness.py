"""How likely claims are to be true, by what a model knows: no evidence, no search, one number per claim.

KLCF's truthfulness reward (arXiv:2509.23765, Eq. 6) reads the probability of the positive answer word from a
model that was tuned on claims with known labels.  `TruthfulnessModel` is for such a model; the prompt of the
paper's own is lost, so give the prompt and the words that yours was tuned with.  A model that was not tuned
prefers what sounds familiar.

A judge behind an API is left out: it gives words and no log-probabilities, and a word would make the mean of
probabilities a share of claims, which is another reward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import ConfigError, ModelError
from factrl.llm.background import Call
from factrl.llm.quoting import broken
from factrl.text import bytes_of, first_bytes

if TYPE_CHECKING:
    from factrl.verifier.judges.local import LetterModel

MAX_CLAIM = 1_000  # bytes of a claim that are read: more than any sentence, and at most as many tokens
_CLAIM = "{claim}"

TUNED_PROMPT = "Claim: {claim}\nIs the claim true? Answer True or False.\nAnswer:"


class TruthfulnessModel:
    """The probability of each claim by a model that is not asked to write: `truthfulness(claims)`.

    p = P(true) / (P(true) + P(false)), of the two answers as the next word.  Equal claims are asked about
    once.  A claim enters the prompt as its visible text without role tokens, cut at `MAX_CLAIM` bytes.

    Args:
        model: a causal language model that was tuned to tell true claims from false ones, as a folder or a
            hub name (needs the extra `train`), or an object that tells the odds of words.
        prompt: a text with `{claim}` in it, once: what the model was tuned with; the paper's is lost, and the
            default is ours.  A role token in it counts as such.
        answers: the words for true and for false, as they follow the prompt.

    Raises:
        ConfigError: a prompt without `{claim}`, or not two answers; when it is called, answers that cannot be
            told apart.
        ModelError, MissingExtra: not there, no causal language model, or torch is not installed.
    """

    def __init__(
        self,
        model: str | Path | LetterModel,
        *,
        prompt: str = TUNED_PROMPT,
        answers: Sequence[str] = (" True", " False"),
    ) -> None:
        if prompt.count(_CLAIM) != 1:
            raise ConfigError(f"the prompt must hold {_CLAIM} exactly once, not {prompt.count(_CLAIM)} times")
        if isinstance(answers, str) or len({*answers}) != 2 or len(answers) != 2:
            raise ConfigError(f"answers={answers!r} must be two words, for true and for false")
        if isinstance(model, (str, Path)):
            from factrl.llm.local import CausalModel

            model = CausalModel(model)
        self.model = model
        self.answers = tuple(answers)
        self._before, _, self._after = prompt.partition(_CLAIM)

    def __call__(self, claims: Sequence[str]) -> list[float]:
        """The probability that each claim is true, in their order.

        Raises:
            LLMError: the model failed.
            ModelError: the model's context is too short for the prompt and a claim.
        """
        shown = [shown_claim(claim) for claim in claims]
        distinct = [*dict.fromkeys(shown)]
        if not distinct:
            return []
        rows = self.model.letter_logprobs(self._before, distinct, self.answers, suffix=self._after).tolist()
        if any(math.isnan(value) for row in rows for value in row):
            raise ModelError(
                f"a claim of up to {MAX_CLAIM} bytes does not fit into the context of {self.model.identity} "
                "behind its prompt; open the model with a longer one (n_ctx), or shorten the prompt"
            )
        odds = (0.5 + 0.5 * math.tanh((true - false) / 2) for true, false in rows)
        known = dict(zip(distinct, odds, strict=True))
        # What could stand behind the cut is the policy's own doing.
        fits = (bytes_of(broken(claim)) <= MAX_CLAIM for claim in claims)
        return [known[claim] if whole else 0.0 for claim, whole in zip(shown, fits, strict=True)]

    def answer_together(self, calls: Sequence[Call]) -> list[list[float]]:
        """The answers to several calls at once: what the samples of a batch ask for."""
        requests: list[Sequence[str]] = [args[0] if args else named["claims"] for args, named in calls]
        odds = iter(self([claim for claims in requests for claim in claims]))
        return [[next(odds) for _ in claims] for claims in requests]


def shown_claim(claim: str) -> str:
    """A claim as the model sees it: more bytes are not read, so no claim has more tokens than fit."""
    return first_bytes(broken(claim), MAX_CLAIM)
