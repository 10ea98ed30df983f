"""`factrl tune checklist-verifier` and `tune extractor`: models that answer as their readers want it.

TRL's SFT trainer, its loss on the reply alone.  The tuned model is measured as it will be used: it is asked
by `factrl.rewards.checklist.Checklist` or `factrl.verifier.claims.LLMClaims`, and a reply that these cannot
read counts as such and never as a label.

Files of a run folder: `model`, `replies.jsonl` (what came of every held-out row), `metrics.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from datasets import Dataset
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from factrl.evals.metrics import Interval, bootstrap, ratio
from factrl.llm import models
from factrl.llm.background import wait_for
from factrl.rewards.checklist import Checklist, Item
from factrl.runs.journal import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import ModelSettings, TrainSettings
from factrl.train.tuning.claim_rows import digest_of_rows, drawn, split_by_group
from factrl.train.tuning.claim_settings import ClaimSettings
from factrl.train.tuning.reply_rows import Lesson, checklist_lessons, extractor_lessons
from factrl.verifier.claims import LLMClaims
from factrl.verifier.claims.marks import normalised

from ..errors import ConfigError, DataError, LLMError, Unscored
from ..llm import Message, Reply
from .answering import end_tokens
from .claim_models import all_parts, base_folder, freeze, run_trainer, training_arguments
from .model import load_policy, uses_bf16
from .sampling import sample

REPLIES, NUMBERS = "replies.jsonl", "metrics.json"
SAME_CLAIM = 0.8  # F1 of the words from which two claims count as the same
_LABELS = get_args(Item)


class TunedLLM:
    """A causal language model in this process as a `factrl.llm.LLM`: greedy, one chat after the other.

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
        chat = [dict(message) for message in messages]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ends = end_tokens(self.model, self.tokenizer)
        limit = min(max_tokens, self._max_tokens)
        device = self.model.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self._bf16):
            written = sample(self.model, [ids], max_new_tokens=limit, temperature=0.0, eos_ids=ends)[0][0]
        if not written or written[-1] not in ends:
            raise LLMError("truncated", f"the reply is longer than {limit} tokens")
        said = self.tokenizer.decode(written, skip_special_tokens=True)
        return Reply(said, "stop", self.identity, len(ids), len(written))


def tune_replies(method: str, settings: ClaimSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """Tune a checklist verifier or an extractor and measure it on documents that it has not seen.

    The same call again goes on where the first one stopped, and changes nothing when it had finished.

    Args:
        method: `checklist-verifier` or `extractor`.
        settings: everything; the folder `run.dir` is filled.

    Returns:
        What `metrics.json` holds.

    Raises:
        SetupError: what the user must change.
        KeyboardInterrupt: stopped; the folder holds a checkpoint.
    """
    data, folder = settings.data, Path(settings.run.dir)
    checks = method == "checklist-verifier"
    read = checklist_lessons(data.files) if checks else extractor_lessons(data.files, data.style)
    lessons, left_out = read
    split = split_by_group(
        drawn(lessons, data.limit, settings.run.seed), data.held_out, 0.0, settings.run.seed
    )
    told = settings.model_dump(exclude={"run": {"dir"}, "data": {"files"}, "head": True})
    about = {
        "job": f"tune {method}",
        "model": models.identity(base_folder(settings.model.name)),
        "rows": digest_of_rows(all_parts(split)),
        "settings": told,
    }
    for why, count in left_out.most_common():
        tell(f"{count} rows left out: {why}")
    with Journal(folder / REPLIES, about) as journal:
        if not (folder / NUMBERS).is_file():
            model, tokenizer, steps, over = _trained(settings, split.train, folder, method)
            bf16 = uses_bf16(TrainSettings(bf16=settings.train.bf16))
            llm = TunedLLM(
                model, tokenizer, about["model"], max_tokens=settings.train.max_new_tokens, bf16=bf16
            )
            _ask_all(llm, split.report, journal, checks=checks, style=data.style)
            kept = {"train": len(split.train) - over, "over_length": over, "report": len(split.report)}
            about |= {"steps": steps, "rows_used": kept, "left_out": dict(left_out)}
            found = _measured(split.train, split.report, journal, checks=checks, seed=settings.run.seed)
            (folder / NUMBERS).write_text(json.dumps({**about, **found}, indent=2) + "\n", encoding="utf-8")
    return json.loads((folder / NUMBERS).read_text(encoding="utf-8"))


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """The numbers of `metrics.json` as rows of a table, the first of them its head."""
    rows = [["held-out documents", "value"]]
    for name, numbers in found["metrics"].items():
        rows.append([name.replace("_", " "), str(Interval(**numbers)) if numbers else "undefined"])
    return rows


def told_of(found: Mapping[str, Any], folder: Path) -> str:
    """What to say under the table."""
    unread = ", ".join(f"{count} {cause}" for cause, count in found["unreadable"].items()) or "none"
    return (
        f"{found['rows_used']['report']} rows of {found['groups']} documents that were not learnt from, "
        f"{found['rows_used']['train']} learnt in {found['steps']} steps\n"
        f"replies that could not be read: {unread}\n"
        f"use it: serve {folder / 'model'} and name the server, judge.url=http://HOST/v1#NAME"
    )


def _trained(
    settings: ClaimSettings, lessons: Sequence[Lesson], folder: Path, method: str
) -> tuple[Any, Any, int, int]:
    """The tuned model, its tokenizer, the steps done, and the rows that were too long."""
    finished = folder / "model"
    done = (finished / "finished.json").is_file()
    name = str(finished) if done else settings.model.name
    model, tokenizer = load_policy(ModelSettings(name=name))
    if not tokenizer.chat_template:
        raise ConfigError(
            f"model.name = {settings.model.name!r} has no chat template; take an instruct model"
        )
    if torch.cuda.is_available():
        model.to("cuda")
    if done:
        said = json.loads((finished / "finished.json").read_text(encoding="utf-8"))
        return model, tokenizer, said["steps"], said["over_length"]
    freeze(model, settings.model.trainable_layers)
    chats = [_chat(lesson) for lesson in lessons]
    lengths = [
        len(
            tokenizer.apply_chat_template([*chat["prompt"], *chat["completion"]], return_dict=True)[
                "input_ids"
            ]
        )
        for chat in chats
    ]
    kept = [c for c, length in zip(chats, lengths, strict=True) if length <= settings.train.max_length]
    if not kept:
        raise DataError(
            f"none of {len(chats)} rows fits train.max_length = {settings.train.max_length}; the shortest "
            f"has {min(lengths)} tokens"
        )
    arguments = SFTConfig(
        **training_arguments(settings, folder / "checkpoints"),
        completion_only_loss=True,
        max_length=settings.train.max_length,
        gradient_checkpointing=False,
    )
    trainer = SFTTrainer(
        model, args=arguments, train_dataset=Dataset.from_list(kept), processing_class=tokenizer
    )
    run_trainer(trainer, f"tune {method}", folder / "checkpoints")
    model.save_pretrained(finished)
    tokenizer.save_pretrained(finished)
    said = {"steps": trainer.state.global_step, "over_length": len(chats) - len(kept)}
    (finished / "finished.json").write_text(json.dumps(said) + "\n", encoding="utf-8")
    return model, tokenizer, said["steps"], said["over_length"]


def _chat(lesson: Lesson) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": lesson.asked}],
        "completion": [{"role": "assistant", "content": lesson.reply}],
    }


def _ask_all(llm: TunedLLM, lessons: Sequence[Lesson], journal: Journal, *, checks: bool, style: Any) -> None:
    """Have the reader ask the model about every held-out row; what the journal has is not asked again."""
    llm.model.eval()
    missing = [lesson for lesson in lessons if lesson.id not in journal]
    with Progress("ask", len(lessons), already=len(lessons) - len(missing)) as progress:
        for lesson in missing:
            journal.add(lesson.id, _asked(llm, lesson, checks=checks, style=style))
            progress.advance()


def _asked(llm: TunedLLM, lesson: Lesson, *, checks: bool, style: Any) -> dict[str, Any]:
    try:
        if checks:
            return {"said": Checklist(llm)(lesson.question, lesson.response, lesson.told)}
        claims = wait_for(LLMClaims(llm, style, "response")(lesson.response, lesson.question))
        return {"said": [claim.text for claim in claims if claim.skip in (None, "repeat")]}
    except Unscored as error:
        return {"unreadable": error.cause, "detail": error.detail[:200]}


def _measured(
    learnt: Sequence[Lesson], lessons: Sequence[Lesson], journal: Journal, *, checks: bool, seed: int
) -> dict[str, Any]:
    rows = [(lesson, journal[lesson.id]) for lesson in lessons]
    unreadable = Counter(row["unreadable"] for _, row in rows if "unreadable" in row)
    readable = [(lesson, row["said"]) for lesson, row in rows if "said" in row]
    count = _label_counts if checks else _claim_counts
    groups: dict[str, np.ndarray] = {}
    for lesson, said in readable:
        groups[lesson.group] = groups.get(lesson.group, 0) + count(lesson, said)
    statistics: Mapping[str, Any] = _LABEL_NUMBERS if checks else _CLAIM_NUMBERS
    values = np.array([*groups.values()], dtype=np.float64)
    found = {
        name: bootstrap(values, number, seed, n=2_000) if len(values) else None
        for name, number in statistics.items()
    }
    metrics: dict[str, Any] = {name: interval and asdict(interval) for name, interval in found.items()}
    if checks and readable:
        common = Counter(label for lesson in learnt for label in lesson.labels).most_common(1)[0][0]
        always = [sum(word == common for word in lesson.labels) for lesson, _ in readable]
        counts = np.array([always, [len(lesson.labels) for lesson, _ in readable]]).T
        found = bootstrap(counts, lambda means: means[:, 0] / means[:, 1], seed, n=2_000)
        metrics[f"always_{common}"] = found and asdict(found)
    return {"metrics": metrics, "unreadable": dict(unreadable), "groups": len({x.group for x in lessons})}


def _label_counts(lesson: Lesson, said: Sequence[str]) -> np.ndarray:
    """(3, 3) flattened: how often each true label was called each label."""
    found = np.zeros((3, 3))
    for true, word in zip(lesson.labels, said, strict=True):
        found[_LABELS.index(true), _LABELS.index(word)] += 1
    return found.ravel()


def _claim_counts(lesson: Lesson, said: Sequence[str]) -> np.ndarray:
    """Claims in common, claims said, claims wanted; each is matched with one other at most."""
    pairs = [(_overlap(a, b), i, j) for i, a in enumerate(said) for j, b in enumerate(lesson.told)]
    taken: set[tuple[str, int]] = set()
    common = 0
    for share, i, j in sorted(pairs, reverse=True):
        if share >= SAME_CLAIM and not {("said", i), ("told", j)} & taken:
            taken |= {("said", i), ("told", j)}
            common += 1
    return np.array([common, len(said), len(lesson.told)], dtype=np.float64)


def _overlap(one: str, other: str) -> float:
    """F1 of the words of two claims."""
    a, b = Counter(normalised(one).split()), Counter(normalised(other).split())
    common = sum((a & b).values())
    return 2 * common / (sum(a.values()) + sum(b.values())) if common else 0.0


def _macro_f1(means: Any) -> Any:
    cells = means.reshape(-1, 3, 3)
    hits = np.einsum("rii->ri", cells)
    both = cells.sum(axis=1) + cells.sum(axis=2)
    return np.divide(2 * hits, both, out=np.zeros_like(hits), where=both > 0).mean(axis=1)


_LABEL_NUMBERS = {
    "item_accuracy": lambda m: ratio(m[:, 0] + m[:, 4] + m[:, 8], m.sum(axis=1)),
    "macro_f1": _macro_f1,
    **{
        f"recall_{label}": (lambda m, n=n: ratio(m[:, 4 * n], m[:, 3 * n : 3 * n + 3].sum(axis=1)))
        for n, label in enumerate(_LABELS)
    },
}
_CLAIM_NUMBERS = {
    "claim_precision": lambda m: ratio(m[:, 0], m[:, 1]),
    "claim_recall": lambda m: ratio(m[:, 0], m[:, 2]),
    "claim_f1": lambda m: ratio(2 * m[:, 0], m[:, 1] + m[:, 2]),
}
