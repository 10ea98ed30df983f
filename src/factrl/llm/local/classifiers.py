"""Classifiers of the hub in this process: does a premise support a hypothesis, and how good is an answer.

A `CrossEncoder` says the former: NLI models, and the published verifiers of `VERIFIERS`, of which one
writes a word.  What each output means is read from the model's configuration, or from the row of
its name, and never assumed: published models order their labels in every possible way, and a swapped pair
turns a judge into its opposite.  HHEM-2.1 (vectara/hallucination_evaluation_model) comes with its own code
and reads both texts in a prompt of its own, which its configuration holds; such a model is loaded and asked
so.

A `RewardModel` says the latter: a sequence classifier with one output that reads a chat (Skywork-Reward,
Llama and Qwen fine-tunes) or a pair of texts (DeBERTa).  Such models learn from comparisons of two answers,
so only differences between answers to one request mean something.

Left out: judges that write more than a word, which are language models, and reward models with several
outputs or code of their own.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from factrl.errors import ConfigError, ModelError, Unscored
from factrl.llm.background import Call
from factrl.llm.local import TOKENS_AT_ONCE, Encoding, Network

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
    """A classifier that reads premise and hypothesis together, or a verifier of the field by its name.

    A model with two labels, or one logit, tells supported from not supported; what is not supported counts as
    unknown.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder with safetensors weights.
        trust_remote_code: run Python code that comes with the model; only from a folder, or at a commit.
        named: what it reads and what its outputs mean; without, both are read from its configuration.

    Raises:
        ModelError: not there, no classifier, or its labels cannot be read; the message shows them.
        ConfigError: code to be run without a commit.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self, model: str | Path, *, trust_remote_code: bool = False, named: NamedVerifier | None = None
    ) -> None:
        fixed = Path(model).expanduser().exists() or re.fullmatch(r".+@[0-9a-f]{7,40}", str(model))
        if trust_remote_code and not fixed:
            raise ConfigError(f"code that comes with {model} is only run at a fixed commit: org/model@COMMIT")
        kind = named.kind if named else "AutoModelForSequenceClassification"
        what, dtype = (named.name, "auto") if named else ("cross-encoder", "float32")
        super().__init__(model, kind, what, dtype=dtype, trusted=trust_remote_code)
        self._chat, self._ending = (named.chat, named.ending) if named else (None, "")
        self._answers: list[Any] = []
        if named is None:
            self.meanings = _meanings(self.config, self.identity)
            prompt = getattr(self.config, "prompt", None)
            self._prompt = prompt if isinstance(prompt, str) and all(p in prompt for p in _PLACES) else ""
            return
        self.identity = f"{named.name} {self.identity}"
        self.meanings, self._prompt, self.longest = named.labels, named.prompt, named.longest
        if not named.answers and self.config.num_labels != len(named.labels):
            raise ModelError(
                f"{model} has {self.config.num_labels} outputs and {named.name} has {len(named.labels)}"
            )
        self._answers = self.firsts(self._text("", ""), named.answers) if named.answers else []

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Probabilities of what the premise does to the hypothesis, float64 (pairs, 3): see `COLUMNS`.

        A premise that is too long for the model is cut at its end.  A hypothesis is never cut: one that
        leaves no room for a premise has a row of NaN.
        """
        import numpy as np

        scores = np.full((len(pairs), len(COLUMNS)), np.nan)
        with self.lock:
            rows = [self._read(premise, hypothesis) for premise, hypothesis in pairs]
            options: dict[str, Any] = {}
            if self._chat is not None:
                parameters = inspect.signature(self.network.forward).parameters
                options = {"left": True, **({"logits_to_keep": 1} if "logits_to_keep" in parameters else {})}
            for batch, logits in self.logits(rows, TOKENS_AT_ONCE, **options):
                odds = self._odds(logits)
                scores[batch] = 0.0
                for number, meaning in enumerate(self.meanings):
                    scores[batch, COLUMNS.index(meaning)] += odds[:, number].numpy()
        return scores

    def _odds(self, logits: Any) -> Any:
        """Probabilities of a batch's meanings."""
        if logits.dim() == 3 and self._answers:  # it writes: only its answers are compared
            logits = logits[:, -1, self._answers]
        one = logits.shape[-1] == 1  # its odds, and the rest
        return self.torch.cat([logits, 0 * logits], -1).softmax(-1) if one else logits.softmax(-1)

    def _read(self, premise: str, hypothesis: str) -> Encoding | None:
        hypothesis = self.apart(hypothesis)
        return self.cut(self.apart(premise), lambda kept: self._tokens(kept, hypothesis))

    def _tokens(self, premise: str, hypothesis: str) -> Encoding:
        text = self._text(premise, hypothesis)
        if self._chat is not None:
            return self.tokenizer(text, add_special_tokens=False)
        if _PLACES[1] in self._prompt:
            return self.tokenizer(text)
        return self.tokenizer(text, hypothesis)

    def _text(self, premise: str, hypothesis: str) -> str:
        """What the model reads of both, or of the premise where they are a pair."""
        texts: dict[str, str] = dict(zip(_PLACES, (premise, hypothesis), strict=True))
        if self._chat is None:
            return _filled(self._prompt or _PLACES[0], texts)
        chat = _filled(self._chat, texts)
        whole = self.tokenizer.apply_chat_template(**chat, add_generation_prompt=True, tokenize=False)
        return whole + self._ending


def _filled(value: Any, texts: Mapping[str, str]) -> Any:
    """Both texts at their places in a prompt, or in the arguments of a chat template."""
    if isinstance(value, str):
        return re.sub("|".join(map(re.escape, texts)), lambda place: texts[place[0]], value)
    if isinstance(value, Mapping):
        return {name: _filled(one, texts) for name, one in value.items()}
    return [_filled(one, texts) for one in value] if isinstance(value, list) else value


def _meanings(config: Any, name: str) -> tuple[Meaning, ...]:
    """What each output means; for one logit, what a high and what a low value means."""
    own = [str(config.id2label.get(number, "")) for number in range(config.num_labels)]
    labels = _HHEM if "hhem" in config.model_type.lower() else own
    words = [" ".join(re.findall(r"[a-z0-9]+", label.lower())) for label in labels]
    meanings: tuple[Meaning, ...] = tuple(_MEANINGS[word] for word in words if word in _MEANINGS)
    if len(meanings) == config.num_labels == 1:
        meanings = (*meanings, "unknown" if meanings[0] == "supported" else "supported")
    if len(meanings) == max(config.num_labels, 2) and "supported" in meanings:
        return meanings
    raise ModelError(
        f"the outputs of {name} are called {', '.join(own)}, which does not say what they mean; name them in "
        f"id2label of its config.json, each as one of {', '.join(COLUMNS)}"
    )


class RewardModel(Network):
    """A reward model: `rate(question, text)`.

    The chat template of the model is used where it has one, else its way to read two texts.  Special tokens
    in the texts are taken apart, so that an answer cannot end itself and start another turn.  What exceeds
    the model's context is not rated: take one whose context holds the longest completion.

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

    def _read(self, question: str, text: str) -> Encoding | Unscored:
        question, text = self.apart(question).strip(), self.apart(text).strip()
        row = self.cut(text, lambda kept: self._tokens(question, kept))
        detail = f"a request of {len(question)} characters leaves no room for an answer"
        return row or Unscored("too_long", f"{detail} among {self.longest} tokens", stage="rate")

    def _tokens(self, question: str, text: str) -> Encoding:
        if self.tokenizer.chat_template:
            chat = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
            whole = self.tokenizer.apply_chat_template(chat, tokenize=False)
            return self.tokenizer(whole, add_special_tokens=False)
        return self.tokenizer(question, text)


# -- Published verifiers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedVerifier:
    """A published verifier that is known by name.

    Attributes:
        repository, revision: on the hub; no revision: not known to us.
        kind: the `AutoModel…` class.
        prompt: what it reads of evidence (`{text1}`) and claim (`{text2}`); without a place for the claim,
            that is the second text of a pair.
        labels: what its outputs mean, in their order.
        licence: of the weights.
        longest: tokens that its released code lets it read; not known to us, so our choice, of hhem-2.1 and
            granite-guardian-3.3.
        aggrefact: its balanced accuracy on LLM-AggreFact in percent, as others report; None: not known to us.
        answers: of a model that writes: its first words in the order of `labels`.
        chat: of a model with a chat template: the template's arguments, with the same places.
        ending: what stands between the template's text and the answer.
        code: it comes with Python code of its own.
        note: what to know before it can be used.
        source: where its format is told.
    """

    name: str
    repository: str
    revision: str
    kind: str
    prompt: str
    labels: tuple[str, ...]
    licence: str
    longest: int
    aggrefact: float | None = None
    answers: tuple[str, ...] = ()
    chat: Mapping[str, Any] | None = None
    ending: str = ""
    code: bool = False
    note: str = ""
    source: str = ""

    @property
    def address(self) -> str:
        """Its name on the hub, with the commit."""
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


def _named() -> Iterator[NamedVerifier]:
    rows = json.loads(Path(__file__).with_name("verifiers.json").read_text("utf-8"))
    for row in rows:
        lists = {name: tuple(value) for name, value in row.items() if name in ("labels", "answers")}
        yield NamedVerifier(**{**row, **lists})


VERIFIERS: Mapping[str, NamedVerifier] = {row.name: row for row in _named()}
"""By name: those whose format is told by their model card or released code, in weights that factrl loads.

factrl ships none of them and has not run them with their real weights: prompts and label orders are tested on
small random networks of the same kind.  Commits, licences and figures are second-hand.  Two things differ for
all: a document is a passage, cut at its end where the released code splits it and takes the best part, and
special tokens in a text are taken apart.
"""
