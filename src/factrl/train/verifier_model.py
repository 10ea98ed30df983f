"""The network of `factrl tune verifier`: a cross-encoder that reads evidence and claim and has three outputs.

The loss is the negative log-likelihood of the label; of a row that is only known to be not supported it is
that of the two other outputs together, so that sets which do not tell refuted from unknown teach what they
know.  Batches hold rows of like length.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler
from transformers import set_seed

from ..errors import DataError
from ..journal import Journal
from ..local.nli import COLUMNS, batches
from ..progress import Progress
from ..settings import TrainSettings
from ..tuning.verifier_rows import LABELS, Pair
from ..tuning.verifier_settings import VerifierSettings
from .callbacks import EvaluateEvery
from .claim_models import PAD_TO, LabelledTrainer, freeze, load_classifier, run_trainer, training_arguments
from .model import uses_bf16

SCORED_TOKENS = 8192  # of one batch, padding included


class VerifierModel:
    """A cross-encoder with the outputs of `factrl.local.nli.COLUMNS`.

    Args:
        settings: `model`, `train` and `run.seed`.
        folder: weights to take instead of those that `model.name` names.

    Raises:
        ModelError: the model cannot be loaded, or has not the layers that are to be trained.
    """

    def __init__(self, settings: VerifierSettings, folder: Path | None = None) -> None:
        self.settings = settings
        set_seed(settings.run.seed)  # the new outputs are drawn at random
        self.network, self.tokenizer = load_classifier(str(folder or settings.model.name), COLUMNS)
        if torch.cuda.is_available():
            self.network.to("cuda")
        else:  # the fused kernel's backward pass is slower here than plain products
            self.network.set_attn_implementation("eager")
        for module in self.network.modules():  # its masks cost a third of a step
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        freeze(self.network, settings.model.trainable_layers)

    def tokens(self, pair: Pair) -> dict[str, list[int]] | None:
        """What the network reads, the evidence cut to fit; None when the claim leaves it no room."""
        limit = self.settings.train.max_length
        if len(self.tokenizer("", pair.claim)["input_ids"]) >= limit:
            return None
        return dict(self.tokenizer(pair.evidence, pair.claim, truncation="only_first", max_length=limit))

    def pad(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch, its length a multiple of `PAD_TO`."""
        return dict(self.tokenizer.pad(list(rows), return_tensors="pt", pad_to_multiple_of=PAD_TO))

    def logits(self, rows: Sequence[Mapping[str, Any]]) -> torch.Tensor:
        """Logits of tokenised rows, float32 (B, 3), without a gradient."""
        device = next(self.network.parameters()).device
        bf16 = uses_bf16(TrainSettings(bf16=self.settings.train.bf16))
        inputs = {name: tensor.to(device) for name, tensor in self.pad(rows).items()}
        training = self.network.training
        self.network.eval()
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            found = self.network(**inputs).logits.float().cpu()
        self.network.train(training)
        return found


def three_way_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood of labels (B,), numbers of `LABELS`, under logits (B, 3).

    The fourth label, `unsupported`, has the probability of the second and third output together.
    """
    logs = logits.log_softmax(dim=1)
    either = logs[:, 1:].logsumexp(dim=1, keepdim=True)
    return -torch.cat([logs, either], dim=1).gather(1, labels[:, None]).mean()


def train_verifier(
    model: VerifierModel,
    rows: Sequence[Pair],
    folder: Path,
    evaluate: Callable[[int], Mapping[str, float | None]],
) -> tuple[int, Counter[str]]:
    """Tune the model on the rows, from the last complete checkpoint in `folder` if there is one.

    Args:
        evaluate: called every `train.eval_steps` and at the end with the number of the step.

    Returns:
        The optimizer steps that were done in all, and how many rows were left out, by reason.

    Raises:
        DataError: no row is short enough.
        KeyboardInterrupt: SIGINT or SIGTERM; a checkpoint was written.
    """
    read = [(model.tokens(row), LABELS.index(row.label)) for row in rows]
    data = [{**tokens, "labels": label} for tokens, label in read if tokens is not None]
    left_out = Counter({"over train.max_length": len(read) - len(data)})
    if not data:
        raise DataError(f"none of {len(read)} rows fits train.max_length; raise it")
    trainer = _ThreeWayTrainer(model, training_arguments(model.settings, folder), data)
    trainer.add_callback(EvaluateEvery(evaluate, model.settings.train.eval_steps, None))
    run_trainer(trainer, "tune verifier", folder)
    return trainer.state.global_step, left_out


def score_pairs(
    model: VerifierModel, rows: Sequence[Pair], journal: Journal, stage: str
) -> list[list[float] | None]:
    """The three logits of each row, None for one that is too long; what the journal has is kept."""
    missing = [row for row in rows if f"{stage} {row.id}" not in journal]
    read = [model.tokens(row) for row in missing]
    lengths = [len(tokens["input_ids"]) if tokens else 0 for tokens in read]
    with Progress(f"score, {stage}", len(rows), already=len(rows) - len(missing)) as progress:
        for number, length in enumerate(lengths):
            if not length:
                journal.add(f"{stage} {missing[number].id}", {"logits": None})
        fitting = [number for number, length in enumerate(lengths) if length]
        for batch in batches(fitting, lengths, SCORED_TOKENS):
            found = model.logits([read[number] or {} for number in batch]).tolist()
            for number, logits in zip(batch, found, strict=True):
                journal.add(f"{stage} {missing[number].id}", {"logits": logits})
            progress.advance(len(batch))
    return [journal[f"{stage} {row.id}"]["logits"] for row in rows]


class ByLength(Sampler[int]):
    """Batches of rows of like length in random order, another order in every epoch, the same on a resume.

    Args:
        lengths: of the rows.
        batch: rows that go together; like lengths are sought among `AMONG` times as many.
    """

    AMONG = 50

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths, self.batch, self.seed, self.epoch = lengths, batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch; the trainer calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        drawn = random.Random(f"{self.seed} {self.epoch}")
        rows = drawn.sample(range(len(self.lengths)), len(self.lengths))
        made: list[list[int]] = []
        for start in range(0, len(rows), self.AMONG * self.batch):
            near = sorted(rows[start : start + self.AMONG * self.batch], key=lambda row: self.lengths[row])
            made += [near[at : at + self.batch] for at in range(0, len(near), self.batch)]
        whole = [rows for rows in made if len(rows) == self.batch]
        drawn.shuffle(whole)
        rest = [row for rows in made if len(rows) < self.batch for row in rows]
        yield from (row for rows in whole for row in rows)
        yield from rest


class _ThreeWayTrainer(LabelledTrainer):
    """Three-way loss with partly known labels, and rows of like length together."""

    def __init__(self, model: VerifierModel, arguments: dict[str, Any], data: list[dict[str, Any]]) -> None:
        super().__init__(model, arguments, data)
        lengths, settings = [len(row["input_ids"]) for row in data], model.settings
        self._by_length = ByLength(lengths, settings.train.batch_size, settings.run.seed)

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self._by_length

    def loss_of(self, network: Any, inputs: dict[str, Any], labels: torch.Tensor) -> torch.Tensor:
        return three_way_loss(network(**inputs).logits.float(), labels)
