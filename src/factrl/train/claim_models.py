"""`factrl tune truthfulness`: a model that says how likely a claim is to be true, and what it is worth.

    token-pair   a causal language model; the logit of *true* is that of " True" minus that of " False" as the
                 next token of the prompt, as KLCF reads its truthfulness model (arXiv:2509.23765, Eq. 6)
    classifier   a sequence classifier with one output, also on an encoder

Both are trained on the binary cross-entropy of that logit.  Files of a run folder: `model` (weights,
`truthfulness.json`), `scores.jsonl` (the logit of every held-out claim), `metrics.json`, `reliability.png`.
A run that was stopped goes on from its last checkpoint and its last scored batch.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PrinterCallback, Trainer, set_seed
from transformers.trainer_callback import ProgressCallback
from transformers.training_args import TrainingArguments

from .. import models
from ..errors import DataError, ModelError, first_line
from ..journal import Journal
from ..progress import Progress
from ..settings import ModelSettings, TrainSettings
from ..truthfulness import TUNED_PROMPT
from ..tuned_truthfulness import CARD
from ..tuning.claim_rows import LabelledClaim, Split
from ..tuning.claim_settings import ClaimSettings
from ..tuning.samples import parts_of
from .callbacks import Interrupt, MarkComplete, ShowProgress, StopWhen, last_checkpoint
from .embedded import embedded_policy, is_embedded
from .model import load_policy, uses_bf16

EVIDENCE_PROMPT = (
    "Evidence: {evidence}\nClaim: {claim}\nIs the claim true, by the evidence? Answer True or False.\nAnswer:"
)
ANSWERS = (" True", " False")
SCORED_AT_ONCE = 32
PAD_TO = 16  # tokens; a CPU keeps kernels for every length that it meets, which came to 10 GB in an hour


class ClaimModel:
    """A network with one logit for a claim: how much likelier *true* is than *false*.

    Args:
        settings: `head`, `model`, `data.with_evidence` and `train`.

    Raises:
        ModelError: the model cannot be loaded, or has not the layers that are to be trained.
    """

    def __init__(self, settings: ClaimSettings) -> None:
        self.settings = settings
        self.pairs = settings.head == "token-pair"
        name = settings.model.name
        set_seed(settings.run.seed)  # a classifier's new output is drawn at random
        if self.pairs:
            self.network, self.tokenizer = load_policy(ModelSettings(name=name))
        else:
            self.network, self.tokenizer = load_classifier(name, ("supported",))
        self.network.config.use_cache = False
        if torch.cuda.is_available():
            self.network.to("cuda")
        self.prompt = EVIDENCE_PROMPT if settings.data.with_evidence else TUNED_PROMPT
        self.words = self._words() if self.pairs else (0, 0)
        freeze(self.network, settings.model.trainable_layers)

    def tokens(self, row: LabelledClaim) -> dict[str, list[int]] | None:
        """What the network reads, the evidence cut to fit; None when the claim alone is too long."""
        limit = self.settings.train.max_length
        if self.pairs:
            return self._prompted(row, limit)
        alone = len(self.tokenizer("", row.claim)["input_ids"])
        if alone > limit:
            return None
        if not row.evidence:
            return dict(self.tokenizer(row.claim, truncation=True, max_length=limit))
        return dict(self.tokenizer(row.evidence, row.claim, truncation="only_first", max_length=limit))

    def logits(self, network: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The logit of *true* for each row of a padded batch, float32 (B,)."""
        if not self.pairs:
            return network(**inputs).logits[:, 0].float()
        positions = (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        last = network(**inputs, position_ids=positions, logits_to_keep=1).logits[:, -1].float()
        return last[:, self.words[0]] - last[:, self.words[1]]

    def pad(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        """A batch, its length a multiple of `PAD_TO`; a causal model's texts end at the same place."""
        return dict(self.tokenizer.pad(list(rows), return_tensors="pt", pad_to_multiple_of=PAD_TO))

    def _prompted(self, row: LabelledClaim, limit: int) -> dict[str, list[int]] | None:
        def read(evidence: str) -> list[int]:
            text = self.prompt.replace("{claim}", row.claim, 1)
            text = text.replace("{evidence}", evidence, 1) if row.evidence else text
            return self.tokenizer(text.encode("utf-8", "replace").decode())["input_ids"]

        evidence, ids = row.evidence, read(row.evidence)
        while len(ids) > limit and evidence:
            kept = self.tokenizer(evidence, add_special_tokens=False, return_offsets_mapping=True)
            ends = kept["offset_mapping"][: max(len(kept["input_ids"]) - (len(ids) - limit), 0)]
            evidence = evidence[: min(ends[-1][1] if ends else 0, len(evidence) - 1)]
            ids = read(evidence)
        return {"input_ids": ids, "attention_mask": [1] * len(ids)} if len(ids) <= limit else None

    def _words(self) -> tuple[int, int]:
        """The first tokens of the two answers behind the prompt."""
        plain = self.tokenizer(self.prompt, add_special_tokens=False)["input_ids"]
        found = []
        for answer in ANSWERS:
            ids = self.tokenizer(self.prompt + answer, add_special_tokens=False)["input_ids"]
            if ids[: len(plain)] != plain or len(ids) == len(plain):
                raise ModelError(
                    f"{self.settings.model.name}: its tokenizer merges {answer!r} with the prompt"
                )
            found.append(ids[len(plain)])
        if found[0] == found[1]:
            raise ModelError(
                f"{self.settings.model.name}: {ANSWERS} begin with the same token; use a classifier"
            )
        return found[0], found[1]


def train_claim_model(
    model: ClaimModel, rows: Sequence[LabelledClaim], folder: Path
) -> tuple[int, Counter[str]]:
    """Tune the model on the rows, from the last complete checkpoint in `folder` if there is one.

    Returns:
        The optimizer steps that were done in all, and how many rows were left out, by reason.

    Raises:
        DataError: no row is short enough.
        KeyboardInterrupt: SIGINT or SIGTERM; a checkpoint was written.
    """
    read = [(model.tokens(row), row.true) for row in rows]
    data = [{**tokens, "labels": float(true)} for tokens, true in read if tokens is not None]
    left_out = Counter({"over train.max_length": len(read) - len(data)})
    if not data:
        raise DataError(f"none of {len(read)} claims fits train.max_length; raise it")
    arguments = training_arguments(model.settings, folder)
    trainer = _PairTrainer(model, arguments, data)
    run_trainer(trainer, "tune truthfulness", folder)
    return trainer.state.global_step, left_out


def score(
    model: ClaimModel, rows: Sequence[LabelledClaim], journal: Journal, stage: str
) -> list[float | None]:
    """The logit of each claim, None for one that is too long; what the journal has is not computed again."""
    missing = [row for row in rows if f"{stage} {row.id}" not in journal]
    device = next(model.network.parameters()).device
    model.network.eval()
    read = [(row, model.tokens(row)) for row in missing]
    read.sort(key=lambda pair: (len(pair[1]["input_ids"]) if pair[1] else 0, pair[0].id))
    bf16 = uses_bf16(TrainSettings(bf16=model.settings.train.bf16))
    with Progress(f"score, {stage}", len(rows), already=len(rows) - len(missing)) as progress:
        for part in parts_of(read, SCORED_AT_ONCE):
            kept = [tokens for _, tokens in part if tokens]
            found: list[float] = []
            if kept:
                inputs = {name: tensor.to(device) for name, tensor in model.pad(kept).items()}
                with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    found = model.logits(model.network, inputs).tolist()
            logits = iter(found)
            for row, tokens in part:
                logit = next(logits) if tokens else None
                journal.add(f"{stage} {row.id}", {"logit": logit, "true": row.true, "group": row.group})
            progress.advance(len(part))
    return [journal[f"{stage} {row.id}"]["logit"] for row in rows]


def save(model: ClaimModel, folder: Path, card: dict[str, Any]) -> None:
    """Write a folder that `judge.truthfulness_model` can name.

    A classifier's temperature goes into its output layer, so that every reader of the folder has it.
    """
    card = {"head": model.settings.head, "with_evidence": model.settings.data.with_evidence, **card}
    card |= {"prompt": model.prompt, "answers": list(ANSWERS)}
    if not model.pairs:
        with torch.no_grad():
            for weight in _output_layer(model.network).parameters():
                weight /= card["temperature"]
        card |= {"temperature": 1.0, "fitted_temperature": card["temperature"]}
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


def training_arguments(settings: ClaimSettings, folder: Path, **more: Any) -> dict[str, Any]:
    """What the Trainer of every tuned claim model is told."""
    told = settings.train
    return {
        "output_dir": str(folder),
        "num_train_epochs": told.epochs,
        "max_steps": told.steps or -1,
        "per_device_train_batch_size": told.micro_batch_size,
        "gradient_accumulation_steps": told.batch_size // told.micro_batch_size,
        "learning_rate": told.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": told.warmup_steps,
        "weight_decay": told.weight_decay,
        "optim": "adamw_torch_fused",
        "bf16": uses_bf16(TrainSettings(bf16=told.bf16)),
        "use_cpu": not torch.cuda.is_available(),
        "save_strategy": "steps",
        "save_steps": told.save_steps,
        "save_total_limit": 2,
        "logging_steps": 10,
        "report_to": [],
        "disable_tqdm": True,
        "seed": settings.run.seed,
        **more,
    }


def run_trainer(trainer: Any, label: str, folder: Path) -> None:
    """Train from the last complete checkpoint, with a bar; a checkpoint is saved before an interruption.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM.
    """
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    checkpoint = last_checkpoint(folder)
    already = checkpoint[1] if checkpoint else 0
    args = trainer.args
    per_step = args.per_device_train_batch_size * args.gradient_accumulation_steps
    total = args.max_steps if args.max_steps > 0 else -(-len(trainer.train_dataset) // per_step)
    total = total if args.max_steps > 0 else math.ceil(total * args.num_train_epochs)
    with Interrupt() as interrupt, Progress(label, total, already=already) as progress:
        stop = StopWhen(lambda: interrupt.asked)
        for callback in (ShowProgress(progress), MarkComplete(), stop):
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=str(checkpoint[0]) if checkpoint else None)
    if stop.stopped:
        raise KeyboardInterrupt(f"stopped after step {trainer.state.global_step}; the same command goes on")


def all_parts(split: Split[Any]) -> tuple[Sequence[Any], ...]:
    """The three parts, in their order."""
    return split.train, split.calibrate, split.report


def base_folder(name: str) -> Path:
    """The folder of a model by name, that of an embedded policy with plain weights."""
    return embedded_policy(name) if is_embedded(name) else models.get(name)


class LabelledTrainer(Trainer):
    """Padded batches of rows with `labels`; the loss is a subclass's.

    Args:
        model: has the `network` and pads rows.
        arguments: those of `training_arguments`.
        data: rows of what the network reads, and their `labels`.
    """

    def __init__(self, model: Any, arguments: dict[str, Any], data: list[dict[str, Any]]) -> None:
        self.claims = model

        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            texts = [{k: v for k, v in row.items() if k != "labels"} for row in rows]
            return {**model.pad(texts), "labels": torch.tensor([row["labels"] for row in rows])}

        told = TrainingArguments(**arguments, remove_unused_columns=False)
        super().__init__(model.network, told, data_collator=collate, train_dataset=data)  # pyright: ignore[reportArgumentType]
        self.model_accepts_loss_kwargs = False  # our loss is a mean, which has to be divided by accumulation

    def loss_of(self, network: Any, inputs: dict[str, Any], labels: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        raise NotImplementedError

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """See `Trainer`."""
        labels = inputs.pop("labels")
        loss = self.loss_of(model, inputs, labels)
        return (loss, {}) if return_outputs else loss


class _PairTrainer(LabelledTrainer):
    """Binary cross-entropy of the claims' logits."""

    def loss_of(self, network: Any, inputs: dict[str, Any], labels: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(self.claims.logits(network, inputs), labels)


def load_classifier(name: str, labels: Sequence[str]) -> tuple[Any, Any]:
    """A sequence classifier with these outputs and its tokenizer; outputs that it lacks start at random.

    Raises:
        ModelError: it cannot be loaded as one.
    """
    folder = base_folder(name)
    outputs = dict(enumerate(labels))
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        network = AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=len(labels),
            id2label=outputs,
            label2id={label: number for number, label in outputs.items()},
            dtype="float32",
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"model.name = {name!r} cannot be loaded as a classifier: {first_line(error)}"
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    network.config.pad_token_id = tokenizer.pad_token_id
    return network, tokenizer


def freeze(network: Any, layers: int | None) -> None:
    """Leave all but the last layers, and what stands behind them, as they are; None trains all.

    Raises:
        ModelError: the model has fewer layers.
    """
    if layers is None:
        return
    lists = [part for part in network.modules() if isinstance(part, torch.nn.ModuleList)]
    blocks = max(lists, key=len, default=[])
    if layers > len(blocks):
        raise ModelError(f"model.trainable_layers = {layers}, but the model has {len(blocks)} layers")
    frozen = [*network.get_input_embeddings().parameters()]
    frozen += [weight for block in list(blocks)[: len(blocks) - layers] for weight in block.parameters()]
    embeddings = getattr(network.base_model, "embeddings", None)  # an encoder's: positions and kinds too
    frozen += [*embeddings.parameters()] if embeddings is not None else []
    for weight in frozen:
        weight.requires_grad_(False)


def _output_layer(network: Any) -> torch.nn.Linear:
    """The last layer of a classifier with one output."""
    linear = [
        part for part in network.modules() if isinstance(part, torch.nn.Linear) and part.out_features == 1
    ]
    return linear[-1]
