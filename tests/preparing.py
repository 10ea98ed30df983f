"""The command `factrl prepare`, and a model by script, for its tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from commands import read
from factrl.cli import main
from factrl.errors import Unscored
from factrl.runs.settings import AskSettings, DataSettings, ModelSettings, SamplingSettings
from factrl.types import Completion, Example


def prepared(kind: str, *words: str, output: str = "out.jsonl") -> list[dict[str, Any]]:
    """The rows that `factrl prepare KIND` writes, in place of earlier ones."""
    Path(output).unlink(missing_ok=True)
    assert main(["prepare", kind, *words, "--output", output]) == 0
    return read(output)


class ScriptedWriter:
    """Writes what its script has for an id and a number, or an error; keeps what was asked."""

    identity = "scripted"

    def __init__(self, script: Callable[[str, int], Any]) -> None:
        self.script = script
        self.asked: list[tuple[Example, int]] = []

    def write(
        self, examples: Sequence[Example], numbers: Sequence[int] = (0,), **sampling: Any
    ) -> list[list[Any]]:
        self.asked += [(example, number) for example in examples for number in numbers]
        texts = [[self.script(example.id, number) for number in numbers] for example in examples]
        return [[t if isinstance(t, Unscored) else Completion(t) for t in group] for group in texts]


def asking(model: str = "policy", samples: int = 1) -> AskSettings:
    return AskSettings(
        model=ModelSettings(name=model),
        data=DataSettings(train="-"),
        sampling=SamplingSettings(num_samples=samples, temperature=1.0),
    )
