"""What `factrl tune truthfulness`, `tune checklist-verifier` and `tune extractor` can be told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from factrl.runs.settings import Positive, Section

Method = Literal["truthfulness", "checklist-verifier", "extractor"]


class LabelledModel(Section):
    """`[model]`: what is tuned."""

    name: str = Field(min_length=1)
    """A folder, a hub id, or a model of `factrl models list`."""
    trainable_layers: Positive | None = None
    """Train only the last so many layers and what stands behind them; all weights by default."""


class LabelledData(Section):
    """`[data]`: rows with labels, and how they are divided."""

    files: tuple[str, ...] = Field(min_length=1, strict=False)
    """Files of rows."""
    positive: tuple[str, ...] = Field(default=("supported",), strict=False)
    """Labels that count as true."""
    negative: tuple[str, ...] = Field(default=("refuted", "unsupported"), strict=False)
    """Labels that count as false; rows with any other are left out and counted."""
    held_out: float = Field(default=0.3, gt=0, lt=1)
    """Share of each file's documents that is not learnt from."""
    calibrate: float = Field(default=0.33, gt=0, lt=1)
    """Share of those that the temperature is fitted on, and that no number is of (truthfulness)."""
    limit: Positive | None = None
    """Use only so many rows, drawn with the seed from those of all files."""
    style: Literal["factscore", "veriscore"] = "veriscore"
    """Whose definition of a claim the extractor is asked for."""

    @model_validator(mode="after")
    def _classes_differ(self) -> LabelledData:
        both = {*self.positive} & {*self.negative}
        if both or not self.positive or not self.negative:
            raise ValueError(
                f"data.positive = {list(self.positive)} and data.negative = {list(self.negative)} must be "
                "two lists without a common label"
            )
        return self


class LabelledTraining(Section):
    """`[train]`: the optimisation."""

    epochs: float = Field(default=1.0, gt=0)
    """Passes over the rows."""
    steps: Positive | None = None
    """Optimizer steps; when set, `epochs` is not used."""
    batch_size: Positive = 16
    """Rows of one optimizer step."""
    micro_batch_size: Positive = 16
    """Rows of one forward pass."""
    learning_rate: float = Field(default=2e-5, gt=0, lt=1)
    """Peak learning rate of AdamW; it falls to 0 as a cosine."""
    warmup_steps: float = Field(default=0.1, ge=0)
    """Steps of linear warm-up; below 1 it is a share of all steps."""
    weight_decay: float = Field(default=0.01, ge=0, lt=1)
    """AdamW weight decay."""
    max_length: Positive = 256
    """Tokens of a row; a longer row is left out and counted."""
    max_new_tokens: Positive = 512
    """Tokens that a tuned verifier or extractor may write when it is evaluated."""
    bf16: Literal["auto"] | bool = "auto"
    """bfloat16 autocast; `auto` uses it where the device has it."""
    save_steps: Positive = 50
    """Steps between checkpoints."""

    @model_validator(mode="after")
    def _batches_divide(self) -> LabelledTraining:
        if self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"train.micro_batch_size = {self.micro_batch_size} does not divide "
                f"train.batch_size = {self.batch_size}"
            )
        return self


class LabelledOutput(Section):
    """`[run]`: where the model goes."""

    dir: str = Field(min_length=1)
    """Folder of the model, its numbers and its checkpoints; the same command goes on there."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of everything that is random."""


class LabelledSettings(Section):
    """Everything that the three methods can be told."""

    model: LabelledModel
    data: LabelledData
    train: LabelledTraining = LabelledTraining()
    run: LabelledOutput
