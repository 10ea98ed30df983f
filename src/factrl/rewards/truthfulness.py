"""How likely claims are to be true, by what a model knows: no evidence, no search, one number per claim.

KLCF's truthfulness reward (arXiv:2509.23765, Eq. 6) reads the probability of the positive answer word from a
model that was tuned on claims with known labels.  `TruthfulnessModel` is for such a model; the prompt of the
paper's own is lost, so give the prompt and the words that yours was tuned with.
`LetterTruthfulness` asks an untuned small model with a few examples, for machines without one: it prefers
what sounds familiar, and nobody calibrated it.

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

_SHOTS = (
    ("The Danube flows into the Black Sea.", "True"),
    ("The Danube flows into the Baltic Sea.", "False"),
    ("Ludwig van Beethoven composed an opera called Fidelio.", "True"),
    ("Ludwig van Beethoven was born in Vienna.", "False"),
    ("The chemical symbol of tungsten is T.", "False"),
    ("Jane Austen published Emma in December 1815.", "True"),
    ("The first modern Olympic Games were held in Paris in 1896.", "False"),
    ("Mount Kilimanjaro is in Tanzania.", "True"),
)


def _turn(claim: str, answer: str = "") -> str:
    prompt = f"<|im_start|>user\nClaim: {claim}<|im_end|>\n<|im_start|>assistant\n"
    return f"{prompt}{answer}<|im_end|>\n" if answer else prompt


LETTER_PROMPT = (
    "<|im_start|>system\nYou are told a claim. Is it true, as far as you know? Answer with one word: True if "
    "every part of it is true, False if any part is wrong.<|im_end|>\n"
    + "".join(_turn(claim, answer) for claim, answer in _SHOTS)
    + _turn(_CLAIM)
)
TUNED_PROMPT = "Claim: {claim}\nIs the claim true? Answer True or False.\nAnswer:"


class LetterTruthfulness:
    """The probability of each claim by a model that is not asked to write: `truthfulness(claims)`.

    p = P(true) / (P(true) + P(false)), of the two answers as the next word.  Equal claims are asked about
    once.  A claim enters the prompt as its visible text without role tokens, cut at `MAX_CLAIM` bytes.

    Args:
        model: by default the small model that factrl downloads, Qwen2.5-Coder-1.5B-Instruct.
        prompt: a text with `{claim}` in it, once; by default eight examples in ChatML.
        answers: the words for true and for false, as they follow the prompt; for a `LlamaModel`, each one
            token.

    Raises:
        ConfigError: a prompt without `{claim}`, or not two answers.
        ModelError, MissingExtra: the default model cannot be had.
    """

    def __init__(
        self,
        model: LetterModel | None = None,
        *,
        prompt: str = LETTER_PROMPT,
        answers: Sequence[str] = ("True", "False"),
    ) -> None:
        if prompt.count(_CLAIM) != 1:
            raise ConfigError(f"the prompt must hold {_CLAIM} exactly once, not {prompt.count(_CLAIM)} times")
        if isinstance(answers, str) or len({*answers}) != 2 or len(answers) != 2:
            raise ConfigError(f"answers={answers!r} must be two words, for true and for false")
        if model is None:
            from factrl.llm.local.llama import shared_model

            model = shared_model()
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


class TruthfulnessModel(LetterTruthfulness):
    """A causal language model that was tuned to tell true claims from false ones; needs the extra `train`.

    p is the softmax over the first tokens of the two answers.

    Args:
        model: a folder or a hub name.
        prompt, answers: what the model was tuned with; the paper's are lost, and the defaults are ours.  A
            role token in the prompt counts as such.

    Raises:
        ConfigError: as `LetterTruthfulness`; when it is called, answers that cannot be told apart.
        ModelError, MissingExtra: not there, no causal language model, or torch is not installed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        prompt: str = TUNED_PROMPT,
        answers: Sequence[str] = (" True", " False"),
    ) -> None:
        from factrl.llm.local import CausalModel

        super().__init__(CausalModel(model), prompt=prompt, answers=answers)


def shown_claim(claim: str) -> str:
    """A claim as the model sees it: more bytes are not read, so no claim has more tokens than fit."""
    return first_bytes(broken(claim), MAX_CLAIM)
