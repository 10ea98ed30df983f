"""A benchmark's questions put to a model, every answer on disk as soon as it exists.

Questions are asked in blocks whose members do not depend on what was there before: a job that is killed and
started again asks the rest of a block together with what it already has of it, so that batches, and with them
the texts, are those of a job that was never killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from factrl.bench.choice import Scorer
from factrl.errors import Unscored
from factrl.journal import Journal
from factrl.types import Completion, Example
from factrl.writers import Writer, Written

BLOCK = 32  # questions whose answers are kept together

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
        missing = sorted({number for name, number in wanted if _key(name, number) not in journal})
        if missing:
            groups = writer.write(block, missing, temperature=temperature, top_p=top_p, seed=seed)
            for example, group in zip(block, groups, strict=True):
                for number, text in zip(missing, group, strict=True):
                    _keep(journal, texts, example.id, number, text)
        for name, number in wanted:
            if _key(name, number) in journal:
                row = journal[_key(name, number)]
                texts[name, number] = Completion(
                    row["text"], truncated=row["truncated"], tokens=row["tokens"]
                )
        on_done(len(block))
    return texts


def _keep(journal: Journal, texts: Texts, name: str, number: int, text: Written) -> None:
    key = _key(name, number)
    if key in journal:  # it came back only to make up the batch
        return
    if isinstance(text, Unscored):
        texts[name, number] = text
    else:
        journal.add(key, {"text": str(text), "truncated": text.truncated, "tokens": text.tokens})


def weigh(
    scorer: Scorer,
    examples: Sequence[Example],
    journal: Journal,
    on_done: Callable[[int], None] = lambda count: None,
) -> dict[str, list[float]]:
    """The log-probabilities of the options of every question, by its id."""
    missing = [example for example in examples if example.id not in journal]
    on_done(len(examples) - len(missing))
    for example in missing:
        sums = scorer.score([example], [example.meta["choices"]])[0]
        journal.add(example.id, {"sums": sums})
        on_done(1)
    return {example.id: list(journal[example.id]["sums"]) for example in examples}


def _key(name: str, number: int) -> str:
    return f"{number}:{name}"
