"""Classifiers of the hub in this process: does a premise support a hypothesis, and how good is an answer.

A `CrossEncoder` says the former: NLI models, MiniCheck's encoders and HHEM-like models.  Which column means
what is read from the model's own configuration and never assumed: published models order their labels in
every possible way, and a swapped pair turns a judge into its opposite.  HHEM-2.1
(vectara/hallucination_evaluation_model) comes with its own code and reads both texts in a prompt of its own,
which its configuration holds; such a model is loaded and asked so.

A `RewardModel` says the latter: a sequence classifier with one output that reads a chat (Skywork-Reward,
Llama and Qwen fine-tunes) or a pair of texts (DeBERTa).  Such models learn from comparisons of two answers,
so only differences between answers to one request mean something.

Left out: models that answer by generating text (MiniCheck-Flan-T5, judges that write their verdict), which
are language models, and reward models with several outputs or code of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from factrl.errors import ConfigError, ModelError, Unscored
from factrl.llm.background import Call
from factrl.llm.local import TOKENS_AT_ONCE, Network, Row, plain

if TYPE_CHECKING:
    import numpy as np

Meaning = Literal["supported", "refuted", "unknown"]
COLUMNS: tuple[Meaning, ...] = ("supported", "refuted", "unknown")
_PLACES = ("{text1}", "{text2}")  # of premise and hypothesis in a prompt of the model's own
_HHEM = ["inconsistent", "consistent"]  # its two outputs, which its configuration does not name
# A label such as "not entailment" covers contradiction and silence; to claim the milder is the safer error.
_WORDS: Mapping[Meaning, str] = {
    "supported": "entailment, entails, entailed, support, supports, supported, consistent, factual",
    "refuted": "contradiction, contradicts, contradicted, contradictory, refute, refutes, refuted",
    "unknown": "neutral, unknown, not enough info, nei, not entailment, not entailed, unsupported, "
    "not supported, inconsistent, hallucinated, hallucination",
}
_MEANINGS: Mapping[str, Meaning] = {
    word: meaning for meaning, words in _WORDS.items() for word in words.split(", ")
}


class CrossEncoder(Network):
    """A sequence classifier that reads premise and hypothesis together.

    A model with two labels, or one logit, tells supported from not supported; what is not supported counts as
    unknown.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder with safetensors weights.
        trust_remote_code: run Python code that comes with the model; only from a folder, or at a commit.

    Raises:
        ModelError: not there, no classifier, or its labels cannot be read; the message shows them.
        ConfigError: code to be run without a commit.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(self, model: str | Path, *, trust_remote_code: bool = False) -> None:
        fixed = Path(model).expanduser().exists() or re.fullmatch(r".+@[0-9a-f]{7,40}", str(model))
        if trust_remote_code and not fixed:
            raise ConfigError(f"code that comes with {model} is only run at a fixed commit: org/model@COMMIT")
        kind = "AutoModelForSequenceClassification"
        super().__init__(model, kind, "cross-encoder", dtype="float32", trusted=trust_remote_code)
        self._meanings = _meanings(self.config, self.identity)
        prompt = getattr(self.config, "prompt", None)
        self._prompt = prompt if isinstance(prompt, str) and all(p in prompt for p in _PLACES) else None

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Probabilities of what the premise does to the hypothesis, float64 (pairs, 3): see `COLUMNS`.

        A premise that is too long for the model is cut at its end.  A hypothesis is never cut: one that
        leaves no room for a premise has a row of NaN.
        """
        import numpy as np

        found = np.full((len(pairs), len(COLUMNS)), np.nan)
        with self.lock:
            rows = [self._read(plain(premise), plain(hypothesis)) for premise, hypothesis in pairs]
            for batch, logits in self.logits(rows, TOKENS_AT_ONCE):
                one = logits.shape[1] == 1  # its odds, and the rest
                odds = self.torch.cat([logits, 0 * logits], 1).softmax(1) if one else logits.softmax(1)
                found[batch] = 0.0
                for number, meaning in enumerate(self._meanings):
                    found[batch, COLUMNS.index(meaning)] += odds[:, number].numpy()
        return found

    def _read(self, premise: str, hypothesis: str) -> Row | None:
        if self._prompt is None:
            if len(self.tokenizer("", hypothesis)["input_ids"]) >= self.longest:
                return None
            return self.tokenizer(premise, hypothesis, truncation="only_first", max_length=self.longest)
        # Both texts in the model's own prompt, the premise cut where it leaves no room.
        before, _, rest = self._prompt.partition(_PLACES[0])
        after = rest.replace(_PLACES[1], hypothesis)
        room = self.longest - len(self.tokenizer(f"{before}{after}")["input_ids"])
        if room <= 0:
            return None
        places = self.tokenizer(premise, add_special_tokens=False, return_offsets_mapping=True)
        offsets = places["offset_mapping"]
        kept = premise if len(offsets) <= room else premise[: offsets[room - 1][1]]
        return self.tokenizer(f"{before}{kept}{after}", truncation=True, max_length=self.longest)


def _meanings(config: Any, name: str) -> tuple[Meaning, ...]:
    """What each output means; for one logit, what a high and what a low value means."""
    own = [str(config.id2label.get(number, "")) for number in range(config.num_labels)]
    told = _HHEM if "hhem" in config.model_type.lower() else own
    words = [" ".join(re.findall(r"[a-z0-9]+", label.lower())) for label in told]
    found: tuple[Meaning, ...] = tuple(_MEANINGS[word] for word in words if word in _MEANINGS)
    if len(found) == config.num_labels == 1:
        found = (*found, "unknown" if found[0] == "supported" else "supported")
    if len(found) == max(config.num_labels, 2) and "supported" in found:
        return found
    raise ModelError(
        f"the outputs of {name} are called {', '.join(own)}, which does not say what they mean; name them in "
        f"id2label of its config.json, each as one of {', '.join(COLUMNS)}"
    )


class RewardModel(Network):
    """A reward model: `rate(question, text)`.

    The chat template of the model is used where it has one, else its way to read two texts.  Special tokens
    in the texts are taken apart, so that an answer cannot end itself and start another turn.  What stands
    behind the model's context is not rated: take one whose context holds the longest completion.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder with safetensors weights.

    Raises:
        ModelError: the model is not there, or is no classifier with one output.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(self, model: str | Path) -> None:
        super().__init__(model, "AutoModelForSequenceClassification", "reward model")
        if self.config.num_labels != 1:
            raise ModelError(f"{model} is no reward model: it has {self.config.num_labels} outputs, not one")
        self.identity += " scale=sigmoid"
        special = [str(token) for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        longer_first = sorted((token for token in special if len(token) > 1), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longer_first)) or r"(?!)")

    def __call__(self, question: str, text: str) -> float:
        """The probability of `text` to beat an answer that the model gives 0.

        A text that is too long for the model together with its question is cut at its end.

        Raises:
            Unscored: `too_long`: a question that leaves no room for a text.
        """
        [answer] = self.answer_together([((question, text), {})])
        if isinstance(answer, Unscored):
            raise answer
        return answer

    def answer_together(self, calls: Sequence[Call]) -> list[float | Unscored]:
        """Many calls of this model as one batch; rewards ask this way.

        A call that cannot be answered has its `Unscored` in its place, so that it masks no other sample.
        """
        with self.lock:
            read = [self._read(*args, **named) for args, named in calls]
            answers = [row if isinstance(row, Unscored) else 0.0 for row in read]
            rows = [None if isinstance(row, Unscored) else row for row in read]
            budget = 1 if self.pad is None else TOKENS_AT_ONCE  # it takes one row at a time
            for batch, logits in self.logits(rows, budget):
                for number, value in zip(batch, logits[:, 0].sigmoid().tolist(), strict=True):
                    answers[number] = value
        return answers

    def _read(self, question: str, text: str) -> Row | Unscored:
        def apart(part: str) -> str:
            return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", plain(part)).strip()

        question, text = apart(question), apart(text)
        row = self._tokens(question, text)
        while (over := len(row["input_ids"]) - self.longest) > 0:
            read = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            kept = read["offset_mapping"][: max(len(read["input_ids"]) - over, 0)]
            text = text[: min(kept[-1][1] if kept else 0, len(text) - 1)]
            if not text:
                detail = f"a request of {len(question)} characters leaves no room for an answer"
                return Unscored("too_long", f"{detail} among {self.longest} tokens", stage="rate")
            row = self._tokens(question, text)
        return row

    def _tokens(self, question: str, text: str) -> Row:
        if self.tokenizer.chat_template:
            chat = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
            whole = self.tokenizer.apply_chat_template(chat, tokenize=False)
            return self.tokenizer(whole, add_special_tokens=False)
        return self.tokenizer(question, text)
