"""The field's verifiers by name: where each is, what it reads, and what its outputs mean.

Each is asked as its released code asks it; the sources stand beside the rows.  factrl ships none of them
and has not run them with their real weights: prompts and label orders are tested on small random networks
of the same kind.  Commits, licences and figures are second-hand.  Two things differ for all: a document is
a passage, cut at its end where the released code splits it and takes the best part, and special tokens in a
text are taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TWO = ("unknown", "supported")
_CLASSES, _TOKENS = "AutoModelForSequenceClassification", "AutoModelForTokenClassification"
_PICKLED = "published as pytorch_model.bin, which factrl does not load: save it as safetensors once"


@dataclass(frozen=True)
class Named:
    """A verifier that is known by name.

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
        answers: of a model that writes: its first tokens in the order of `labels`, as words or numbers.
        chat: of a model with a chat template: the template's arguments, with the same places.
        ending: what stands behind the template's text and before the answer.
        code: it comes with Python code of its own.
        note: what to know before it can be used.
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
    answers: tuple[str | int, ...] = ()
    chat: Mapping[str, Any] | None = None
    ending: str = ""
    code: bool = False
    note: str = ""

    @property
    def address(self) -> str:
        """Its name on the hub, with the commit."""
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


VERIFIERS: tuple[Named, ...] = (
    Named(  # its config.json and model card; the same prompt without a name, by `nli:`
        "hhem-2.1",
        "vectara/hallucination_evaluation_model",
        "8e4a2e6e96c708cc76c2344f7e4757df2515292c",
        _CLASSES,
        "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {text1}\n\n"
        "Hypothesis: {text2}",
        _TWO,
        "Apache-2.0",
        512,
        71.8,
        code=True,
    ),
    # Liyan06/MiniCheck 00a1ed4, minicheck/inference.py: joined by the end token; token 3 is `0`, 209 is `1`.
    Named(
        "minicheck-flan-t5",
        "lytang/MiniCheck-Flan-T5-Large",
        "96eafd01cee2d16cf81aaa2fb226b14f422a37b3",
        "AutoModelForSeq2SeqLM",
        "predict: {text1}</s>{text2}",
        _TWO,
        "MIT",
        2048,
        75.0,
        answers=(3, 209),
        note=_PICKLED,
    ),
    Named(
        "minicheck-deberta",
        "lytang/MiniCheck-DeBERTa-v3-Large",
        "2f2d01a54fa022a7ffadb76260e1ea8bc88c82bb",
        _CLASSES,
        "{text1}[SEP]{text2}",
        _TWO,
        "MIT",
        2048,
        note=_PICKLED,
    ),
    Named(
        "minicheck-roberta",
        "lytang/MiniCheck-RoBERTa-Large",
        "74c8919647e61ed0f71bc177d94f10930f090068",
        _CLASSES,
        "{text1}</s>{text2}",
        _TWO,
        "MIT",
        512,
        note=_PICKLED,
    ),
    Named(  # the same, minicheck/utils.py; released: P(Yes) of all words, here of Yes and No
        "bespoke-minicheck-7b",
        "bespokelabs/Bespoke-MiniCheck-7B",
        "1ed7786bcda3fa1dc35f7c4ed9e3f36b785d33b8",
        "AutoModelForCausalLM",
        "",
        _TWO,
        "CC BY-NC 4.0",
        32_768,
        77.4,
        answers=("No", "Yes"),
        chat={
            "conversation": [
                {
                    "role": "system",
                    "content": "Determine whether the provided claim is consistent with the corresponding "
                    "document. Consistency in this context implies that all information presented "
                    "in the claim is substantiated by the document. If not, it should be "
                    "considered inconsistent. Please assess the claim's consistency with the "
                    'document by responding with either "Yes" or "No".',
                },
                {"role": "user", "content": "Document: {text1}\nClaim: {text2}"},
            ]
        },
        code=True,
        note="14 GB in half precision; its code was not tried with this version of transformers",
    ),
    Named(  # derenlei/FactCG 4eb1537, factcg/utils.py and inference.py
        "factcg",
        "yaxili96/FactCG-DeBERTa-v3-Large",
        "0430e3509dbd28d2dff7a117c0eae25359ff3e80",
        _CLASSES,
        '{text1}\n\nChoose your answer: based on the paragraph above can we conclude that "{text2}"?'
        "\n\nOPTIONS:\n- Yes\n- No\nI think the answer is ",
        _TWO,
        "MIT",
        2048,
        77.2,
    ),
    Named(  # ibm-granite/granite-guardian 1d6a7ea, evaluation/: yes means ungrounded; without thinking
        "granite-guardian-3.3",
        "ibm-granite/granite-guardian-3.3-8b",
        "",
        "AutoModelForCausalLM",
        "",
        _TWO,
        "Apache-2.0",
        8192,
        76.5,
        answers=(" yes", " no"),
        chat={
            "conversation": [{"role": "assistant", "content": "{text2}"}],
            "documents": [{"doc_id": "0", "text": "{text1}"}],
            "guardian_config": {"criteria_id": "groundedness"},
            "think": False,
        },
        ending="<score>",
        note="16 GB in half precision; its commit is not known to us",
    ),
    Named(  # KRLabsOrg/LettuceDetect 0c6b4e0, lettucedetect/models/inference.py, without a question
        "lettucedetect",
        "KRLabsOrg/lettucedetect-large-modernbert-en-v1",
        "",
        _TOKENS,
        "\nSummarize the following text:\npassage 1: {text1}\noutput:\n",
        ("supported", "unknown"),
        "MIT",
        4096,
        note="marks the words without support; F1 79.2 on RAGTruth; its commit is not known to us",
    ),
)


def verifier(name: str) -> Named | None:
    """The row of a name; None where there is none."""
    return next((row for row in VERIFIERS if row.name == name), None)
