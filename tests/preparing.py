"""A model by script, for the tests of `factrl prepare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from factrl.errors import Unscored
from factrl.runs.settings import AskSettings, DataSettings, ModelSettings, SamplingSettings
from factrl.types import Completion, Example


class ScriptedWriter:
    """Says what its script has for an id and a number, an error among it; counts what it was asked."""

    identity = "scripted"

    def __init__(self, script: Callable[[str, int], Any]) -> None:
        self.script = script
        self.asked: list[tuple[Example, int]] = []

    def write(
        self, examples: Sequence[Example], numbers: Sequence[int] = (0,), **told: Any
    ) -> list[list[Any]]:
        self.asked += [(example, number) for example in examples for number in numbers]
        said = [[self.script(example.id, number) for number in numbers] for example in examples]
        return [[s if isinstance(s, Unscored) else Completion(s) for s in group] for group in said]


def asking(model: str = "policy", samples: int = 1) -> AskSettings:
    return AskSettings(
        model=ModelSettings(name=model),
        data=DataSettings(train="-"),
        sampling=SamplingSettings(num_samples=samples, temperature=1.0),
    )
