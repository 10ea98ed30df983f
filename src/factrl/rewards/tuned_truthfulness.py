"""Truthfulness models that `factrl tune truthfulness` made: a folder with weights and `truthfulness.json`.

The file says what a folder of weights cannot: the prompt and the words that the model was tuned with, whether
it saw evidence, and the temperature that its logits have to be divided by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, ModelError
from factrl.llm import models
from factrl.rewards.truthfulness import LetterTruthfulness, TruthfulnessModel

CARD = "truthfulness.json"


class TunedTruthfulness(LetterTruthfulness):
    """The probability of each claim by a model that `factrl tune truthfulness` made, its temperature applied.

    Args:
        folder: with weights and `truthfulness.json`.
        device: where to run; a GPU if there is one.

    Attributes:
        identity: the model with a fingerprint of its weights, prompt, answers and temperature.

    Raises:
        ConfigError: an earlier version made it, as a classifier or with evidence.
        ModelError: the folder cannot be read.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(self, folder: str | Path, *, device: str | None = None) -> None:
        card = read_card(Path(folder))
        if card["with_evidence"] or card["head"] != "token-pair":
            raise ConfigError(
                f"{folder} is a classifier, or was tuned with evidence, which factrl no longer reads (commit "
                "1b92e7e does); make the model again with factrl tune truthfulness"
            )
        from factrl.llm.local.truthfulness import CausalModel

        model = CausalModel(folder, device=device)
        super().__init__(model, prompt=card["prompt"], answers=card["answers"])
        self.temperature = float(card["temperature"])
        self.identity += f" temperature={self.temperature:.6g}"

    def _p(self, true: float, false: float) -> float:
        return super()._p(true / self.temperature, false / self.temperature)


def open_truthfulness(model: str | Path) -> LetterTruthfulness:
    """The truthfulness model of a folder or hub name: one that was tuned here, or any by our defaults.

    Raises:
        ConfigError, ModelError, MissingExtra: as `TunedTruthfulness` and `TruthfulnessModel`.
    """
    path = models.get(model)
    return TunedTruthfulness(path) if (path / CARD).is_file() else TruthfulnessModel(model)


def read_card(folder: Path) -> Mapping[str, Any]:
    """What `truthfulness.json` of a folder says.

    Raises:
        ModelError: it is not there, or is not what `factrl tune` writes.
    """
    wanted = {"head": str, "with_evidence": bool, "prompt": str, "answers": list, "temperature": float}
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        wrong = [name for name, kind in wanted.items() if not isinstance(card[name], kind)]
        sound = not wrong and 0 < card["temperature"] < float("inf")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{folder / CARD} cannot be read: {error}; make the model again") from error
    if not sound:
        raise ModelError(f"{folder / CARD} is not what factrl tune truthfulness writes; make the model again")
    return card
