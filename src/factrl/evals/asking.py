"""A benchmark's questions put to a model, every answer on disk as soon as it exists.

Questions are asked in blocks whose members do not depend on what was there before: a job that is killed and
started again asks the rest of a block together with what it already has of it, so that batches, and with them
the texts, are those of a job that was never killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factrl.errors import Unscored
from factrl.evals.choice import Scorer
from factrl.llm.writers import Writer, Written, digest_of
from factrl.runs.journal import Journal
from factrl.types import Completion, Example

BLOCK = 32  # questions whose answers are kept together

_OF = "question"  # where a row keeps which question it is about

Texts = dict[tuple[str, int], Written]
"""By id of the question and number of the sample."""


def ask(
    writer: Writer,
    examples: Sequence[Example],
    journal: Journal,
    *,
    samples: int = 1,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    on_done: Callable[[int], None] = lambda count: None,
) -> Texts:
    """Samples 0 to `samples - 1` of every question; failed calls are `Unscored` and are not kept.

    Args:
        journal: what was written before; new texts are added to it.
        on_done: called with a number of questions that are done.
    """
    texts: Texts = {}
    for start in range(0, len(examples), BLOCK):
        block = examples[start : start + BLOCK]
        wanted = [(example.id, number) for example in block for number in range(samples)]
        told = {example.id: _digest(example) for example in block}
        kept: dict[tuple[str, int], Mapping[str, Any]] = {
            (name, number): row
            for name, number in wanted
            if (row := journal.get(_key(name, number), {})).get(_OF) == told[name]
        }
        missing = sorted({number for name, number in wanted if (name, number) not in kept})
        if missing:
            groups = writer.write(block, missing, temperature=temperature, top_p=top_p, seed=seed)
            for example, group in zip(block, groups, strict=True):
                for number, text in zip(missing, group, strict=True):
                    key = (example.id, number)
                    if key in kept:  # it came back only to make up the batch
                        continue
                    if isinstance(text, Unscored):
                        texts[key] = text
                    else:
                        kept[key] = _plain(text, told[example.id])
                        journal.add(_key(*key), kept[key])
        for key, row in kept.items():
            given = {name: row[name] for name in ("prefill", "truncated", "tokens")}
            texts[key] = Completion(row["text"], **given)
        on_done(len(block))
    return texts


def _plain(text: Completion, of: str) -> dict[str, Any]:
    told = {"prefill": text.prefill, "truncated": text.truncated, "tokens": text.tokens}
    return {"text": str(text), **told, _OF: of}


def weigh(
    scorer: Scorer,
    examples: Sequence[Example],
    journal: Journal,
    on_done: Callable[[int], None] = lambda count: None,
) -> dict[str, list[float]]:
    """The log-probabilities of the options of every question, by its id."""
    told = {example.id: _digest(example) for example in examples}
    missing = [one for one in examples if journal.get(one.id, {}).get(_OF) != told[one.id]]
    on_done(len(examples) - len(missing))
    for example in missing:
        sums = scorer.score([example], [example.meta["choices"]])[0]
        journal.add(example.id, {"sums": sums, _OF: told[example.id]})
        on_done(1)
    return {example.id: list(journal[example.id]["sums"]) for example in examples}


def _digest(example: Example) -> str:
    """Of what a model can be shown of a question: everything but the accepted answers."""
    return digest_of(example.question, example.topic, example.evidence, sorted(example.meta.items()))


def _key(name: str, number: int) -> str:
    return f"{number}:{name}"
