"""`factrl tune truthfulness`, `checklist-verifier` and `extractor`: rows in, a model and its numbers out.

The loss is the cross-entropy of the reply alone; a truthfulness model's, of " True" against " False", whose
odds KLCF reads (arXiv:2509.23765, Eq. 6).  A tuned model is measured as it will be used: the truthfulness of
claims by those odds, a verifier and an extractor by `factrl.rewards.checklist` and `factrl.verifier.claims`,
and a reply that these cannot read counts as such and never as a label.

Files of a run folder: `model`, `replies.jsonl` (what came of every held-out row), `metrics.json`.  A run that
was stopped goes on from its last checkpoint and its last row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer, set_seed
from transformers.trainer_callback import ProgressCallback
from transformers.training_args import TrainingArguments

from factrl.errors import ConfigError, DataError, LLMError, ModelError, Unscored
from factrl.llm import Message, Reply, models
from factrl.llm.background import wait_for
from factrl.llm.writers import digest_of
from factrl.rewards.checklist import Checklist
from factrl.rewards.truthfulness import TUNED_PROMPT
from factrl.rewards.tuned_truthfulness import CARD
from factrl.runs.journal import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import ModelSettings, TrainSettings
from factrl.runs.whole_file import write_whole
from factrl.train.answering import end_tokens
from factrl.train.callbacks import last_checkpoint, train_on
from factrl.train.model import embedded_policy, is_embedded, load_policy, uses_bf16
from factrl.train.sampling import sample
from factrl.train.tuning.labelled import ANSWERS, Lesson, Split, drawn, load_lessons, split_by_group
from factrl.train.tuning.labelled_numbers import UNTUNED, reply_numbers, temperature_of, truth_numbers
from factrl.train.tuning.labelled_settings import LabelledSettings, Method
from factrl.verifier.claims import LLMClaims

REPLIES, NUMBERS, FINISHED = "replies.jsonl", "metrics.json", "finished.json"
PAD_TO = 16  # tokens; a CPU keeps kernels for every length that it meets, which came to 10 GB in an hour


def tune_labelled(
    method: Method, settings: LabelledSettings, tell: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Tune a model on labelled rows and measure it on documents that it has not seen.

    The same call again goes on where the first one stopped, and changes nothing when it had finished.

    Args:
        tell: what the user should know on the way.

    Returns:
        What `metrics.json` of the folder `run.dir` holds.

    Raises:
        SetupError: what the user must change.
        KeyboardInterrupt: stopped; the folder holds a checkpoint.
    """
    data, folder, seed = settings.data, Path(settings.run.dir), settings.run.seed
    truth = method == "truthfulness"
    lessons, left_out = load_lessons(method, data)
    calibrate = data.calibrate if truth else 0.0
    split = split_by_group(drawn(lessons, data.limit, seed), data.held_out, calibrate, seed)
    name = settings.model.name
    about = {
        "job": f"tune {method}",
        "model": models.identity(embedded_policy(name) if is_embedded(name) else models.get(name)),
        "rows": split.digest,
        "settings": settings.model_dump(exclude={"run": {"dir"}, "data": {"files"}}),
    }
    for why, count in left_out.most_common():
        tell(f"{count} rows left out: {why}")
    with Journal(folder / REPLIES, about) as journal:
        if not (folder / NUMBERS).is_file():
            if truth:
                _score(None, settings, split.report, journal, UNTUNED)
            policy, done = _trained(method, settings, split, folder)
            if truth:
                numbers = _truth(policy, settings, split, journal)
                _write_card(folder / "model", numbers["temperature"], about, data.files)
            else:
                _ask(policy, method, settings, split.report, journal)
                numbers = reply_numbers(method, split, journal, seed)
            counts = {"learnt": len(split.train) - done["over_length"], "calibrate": len(split.calibrate)}
            counts |= {"report": len(split.report), "groups": len({row.group for row in split.report})}
            dropped = {**left_out, "seen in another part": split.left_out}
            numbers = {**about, **done, "rows_used": counts, "left_out": dropped, **numbers}
            write_whole(folder / NUMBERS, json.dumps(numbers, indent=2).encode() + b"\n")
    return json.loads((folder / NUMBERS).read_text(encoding="utf-8"))


class LabelledTrainer(Trainer):
    """Learns the labels that are not -100, of all tokens or of the two that `words` names.

    Args:
        data: rows of `input_ids` and `labels`.
        words: the tokens of *true* and *false*; empty for the whole vocabulary.
    """

    def __init__(
        self,
        model: Any,
        pad: int,
        arguments: TrainingArguments,
        data: list[dict[str, Any]],
        words: Sequence[int],
    ) -> None:
        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            inputs = padded([row["input_ids"] for row in rows], pad)
            width = inputs["input_ids"].shape[1]
            labels = [[-100] * (width - len(row["labels"])) + row["labels"] for row in rows]
            return {**inputs, "labels": torch.tensor(labels)}

        super().__init__(model, arguments, data_collator=collate, train_dataset=data)  # pyright: ignore[reportArgumentType]
        self.words = list(words)
        self.model_accepts_loss_kwargs = True  # the loss is divided by the labels of the whole step

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """See `Trainer`."""
        labels = inputs.pop("labels")
        first = int((labels != -100).any(dim=0).int().argmax())
        labels = labels[:, first:]
        # Replies end where rows end, so the logits of the prompts before them are not computed.
        logits = model(**inputs, logits_to_keep=labels.shape[1] + 1).logits[:, :-1].float()
        wanted = labels != -100
        logits, labels = logits[wanted], labels[wanted]
        if self.words:
            logits, labels = logits[:, self.words], (labels == self.words[1]).long()
        count = len(labels) if num_items_in_batch is None else num_items_in_batch
        loss = cross_entropy(logits, labels, reduction="sum") / count
        return (loss, {}) if return_outputs else loss


def padded(rows: Sequence[Sequence[int]], pad: int) -> dict[str, torch.Tensor]:
    """A batch whose texts end at the same place, (B, T), T a multiple of `PAD_TO`."""
    width = -(-max(map(len, rows)) // PAD_TO) * PAD_TO
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return {
        "input_ids": torch.tensor([[pad] * (width - len(row)) + [*row] for row in rows]),
        "attention_mask": mask,
        "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0),
    }


class TunedLLM:
    """The policy in this process as a `factrl.llm.LLM`: greedy, one chat after the other.

    Args:
        max_tokens: upper limit of every reply, whatever a caller allows.
    """

    def __init__(self, model: Any, tokenizer: Any, identity: str, *, max_tokens: int, bf16: bool) -> None:
        self.model, self.tokenizer, self.identity = model, tokenizer, identity
        self._max_tokens, self._bf16 = max_tokens, bf16

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The most likely reply.

        Raises:
            LLMError: `truncated`: it is longer than the limit.
        """
        ids = _chat_ids(self.tokenizer, [dict(message) for message in messages], add_generation_prompt=True)
        ends = end_tokens(self.model, self.tokenizer)
        limit = min(max_tokens, self._max_tokens)
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self._bf16):
            written = sample(self.model, [ids], max_new_tokens=limit, temperature=0.0, eos_ids=ends)[0][0]
        if not written or written[-1] not in ends:
            raise LLMError("truncated", f"the reply is longer than {limit} tokens")
        text = self.tokenizer.decode(written, skip_special_tokens=True)
        return Reply(text, "stop", self.identity, len(ids), len(written))


Policy = tuple[Any, Any]
"""A network and its tokenizer."""


def _trained(
    method: Method, settings: LabelledSettings, split: Split, folder: Path
) -> tuple[Policy, dict[str, int]]:
    """The tuned model, the steps done and the rows that were too long; a finished one is only loaded."""
    finished = folder / "model"
    if (finished / FINISHED).is_file():
        return _load(finished), json.loads((finished / FINISHED).read_text(encoding="utf-8"))
    set_seed(settings.run.seed)
    network, tokenizer = _load(settings.model.name)
    _freeze(network, settings.model.trainable_layers)
    words = _words(tokenizer) if method == "truthfulness" else []
    if not words and not tokenizer.chat_template:
        raise ConfigError(
            f"model.name = {settings.model.name!r} has no chat template; take an instruct model"
        )
    rows = [_tokens(tokenizer, lesson, words) for lesson in split.train]
    kept = [row for row in rows if len(row["input_ids"]) <= settings.train.max_length]
    if not kept:
        raise DataError(
            f"none of {len(rows)} rows fits train.max_length = {settings.train.max_length}; the shortest has "
            f"{min(len(row['input_ids']) for row in rows)} tokens"
        )
    checkpoints = folder / "checkpoints"
    trainer = LabelledTrainer(network, tokenizer.pad_token_id, _arguments(settings, checkpoints), kept, words)
    trainer.remove_callback(ProgressCallback)
    checkpoint, already = last_checkpoint(checkpoints) or (None, 0)
    progress = Progress(f"tune {method}", _steps(settings, len(kept)), already=already)
    if train_on(trainer, checkpoint, progress):
        step = trainer.state.global_step
        raise KeyboardInterrupt(f"stopped after step {step}; the same command goes on")
    network.save_pretrained(finished)
    tokenizer.save_pretrained(finished)
    done = {"steps": trainer.state.global_step, "over_length": len(rows) - len(kept)}
    write_whole(finished / FINISHED, json.dumps(done).encode() + b"\n")
    return (network, tokenizer), done


def _load(name: str | Path) -> Policy:
    network, tokenizer = load_policy(ModelSettings(name=str(name)))
    network.config.use_cache = False
    return network.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def _tokens(tokenizer: Any, lesson: Lesson, words: Sequence[int]) -> dict[str, list[int]]:
    if words:
        prompt = tokenizer(lesson.prompt)["input_ids"]
        reply = [words[ANSWERS.index(lesson.reply)]]
    else:
        chat = [{"role": "user", "content": lesson.prompt}]
        prompt = _chat_ids(tokenizer, chat, add_generation_prompt=True)
        whole = _chat_ids(tokenizer, [*chat, {"role": "assistant", "content": lesson.reply}])
        if whole[: len(prompt)] != prompt:
            raise ConfigError("the model's chat template changes a prompt once it is answered; take another")
        reply = whole[len(prompt) :]
    return {"input_ids": [*prompt, *reply], "labels": [-100] * len(prompt) + reply}


def _chat_ids(tokenizer: Any, chat: list[dict[str, Any]], **more: Any) -> list[int]:
    text = tokenizer.apply_chat_template(chat, tokenize=False, **more)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _words(tokenizer: Any) -> list[int]:
    """The first tokens of the two answers behind the prompt."""
    plain = tokenizer(TUNED_PROMPT, add_special_tokens=False)["input_ids"]
    words = []
    for answer in ANSWERS:
        ids = tokenizer(TUNED_PROMPT + answer, add_special_tokens=False)["input_ids"]
        if ids[: len(plain)] != plain or len(ids) == len(plain):
            raise ModelError(f"model.name: its tokenizer merges {answer!r} with the prompt; take another")
        words.append(ids[len(plain)])
    if words[0] == words[1]:
        raise ModelError(f"model.name: its tokenizer begins {ANSWERS} with the same token; take another")
    return words


def _freeze(network: Any, layers: int | None) -> None:
    """Leave all but the last layers, and what stands behind them, as they are; None trains all."""
    if layers is None:
        return
    lists = [part for part in network.modules() if isinstance(part, torch.nn.ModuleList)]
    blocks = list(max(lists, key=len, default=[]))
    if layers > len(blocks):
        raise ModelError(f"model.trainable_layers = {layers}, but the model has {len(blocks)} layers")
    for part in (network.get_input_embeddings(), *blocks[: len(blocks) - layers]):
        part.requires_grad_(False)


def _steps(settings: LabelledSettings, rows: int) -> int:
    """Optimizer steps, as transformers counts them."""
    train = settings.train
    return train.steps or math.ceil(-(-rows // train.batch_size) * train.epochs)


def _arguments(settings: LabelledSettings, checkpoints: Path) -> TrainingArguments:
    train = settings.train
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=train.epochs,
        max_steps=train.steps or -1,
        per_device_train_batch_size=train.micro_batch_size,
        gradient_accumulation_steps=train.batch_size // train.micro_batch_size,
        learning_rate=train.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=train.warmup_steps,
        weight_decay=train.weight_decay,
        optim="adamw_torch_fused",
        bf16=uses_bf16(TrainSettings(bf16=train.bf16)),
        use_cpu=not torch.cuda.is_available(),
        save_strategy="steps",
        save_steps=train.save_steps,
        save_total_limit=2,
        logging_steps=10,
        report_to=[],
        disable_tqdm=True,
        seed=settings.run.seed,
        remove_unused_columns=False,
    )


def _score(
    policy: Policy | None,
    settings: LabelledSettings,
    lessons: Sequence[Lesson],
    journal: Journal,
    stage: str,
) -> None:
    """Journal the logit of *true* of each claim, None for one that is too long; None is the untuned model."""
    missing = [lesson for lesson in lessons if f"{stage} {lesson.id}" not in journal]
    if not missing:
        return
    network, tokenizer = policy or _load(settings.model.name)
    network.eval()
    words, device = _words(tokenizer), network.device
    bf16 = uses_bf16(TrainSettings(bf16=settings.train.bf16))
    with Progress(f"score, {stage}", len(lessons), already=len(lessons) - len(missing)) as progress:
        for lesson in missing:
            ids, logit = tokenizer(lesson.prompt)["input_ids"], None
            if len(ids) < settings.train.max_length:  # as in training, where the answer counts too
                inputs = {name: tensor.to(device) for name, tensor in padded([ids], 0).items()}
                with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    last = network(**inputs, logits_to_keep=1).logits[0, -1].float()
                logit = float(last[words[0]] - last[words[1]])
            journal.add(f"{stage} {lesson.id}", {"logit": logit})
            progress.advance()


def _truth(policy: Policy, settings: LabelledSettings, split: Split, journal: Journal) -> dict[str, Any]:
    _score(policy, settings, split.calibrate, journal, "tuned")
    _score(policy, settings, split.report, journal, "tuned")
    return truth_numbers(split, journal, temperature_of(split.calibrate, journal), settings.run.seed)


def _write_card(folder: Path, temperature: float, about: dict[str, Any], files: Sequence[str]) -> None:
    """What `judge.truthfulness_model` has to know of the folder beside its weights."""
    card = {
        "head": "token-pair",
        "with_evidence": False,
        "prompt": TUNED_PROMPT,
        "answers": list(ANSWERS),
        "temperature": temperature,
        "digest": digest_of(about),
        "trained_on": ["/".join(Path(file).parts[-2:]) for file in files],
    }
    write_whole(folder / CARD, json.dumps(card, indent=2).encode() + b"\n")


def _ask(
    policy: Policy, method: Method, settings: LabelledSettings, lessons: Sequence[Lesson], journal: Journal
) -> None:
    """Have the reader ask the model about every held-out row; what the journal has is not asked again."""
    policy[0].eval()
    bf16 = uses_bf16(TrainSettings(bf16=settings.train.bf16))
    llm = TunedLLM(*policy, "tuned", max_tokens=settings.train.max_new_tokens, bf16=bf16)
    missing = [lesson for lesson in lessons if lesson.id not in journal]
    with Progress("ask", len(lessons), already=len(lessons) - len(missing)) as progress:
        for lesson in missing:
            try:
                if method == "checklist-verifier":
                    said = [*Checklist(llm)(lesson.question, lesson.response, lesson.told)]
                else:
                    reader = LLMClaims(llm, settings.data.style, "response")
                    claims = wait_for(reader(lesson.response, lesson.question))
                    said = [claim.text for claim in claims if claim.skip in (None, "repeat")]
                outcome: dict[str, Any] = {"said": said}
            except Unscored as error:
                outcome = {"unreadable": error.cause, "detail": error.detail[:200]}
            journal.add(lesson.id, outcome)
            progress.advance()
