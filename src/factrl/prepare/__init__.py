"""What is made before training: KLCF's dataset, retrieved passages, and rows for other trainers.

`klcf` makes checklists and truthfulness rows from a model's own answers, `retrieve` puts passages beside
questions, and `dataset` writes files, those of TRL, verl and OpenRLHF among them.  Here is what they share:
having many texts written, which part of a text is the answer, and keeping questions of an evaluation set out.

Two questions are the same when they are equal after NFKC, without case, punctuation, English articles and
superfluous spaces.  Only equality counts: a paraphrase is missed, and a match is certain.
"""

from __future__ import annotations

import string
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factrl.errors import DataError
from factrl.llm.replies import after_thinking
from factrl.llm.writers import Writer, Written
from factrl.runs.data import load_examples, render_prompt, to_example
from factrl.runs.rows import read_rows
from factrl.runs.settings import LOCAL, AskSettings
from factrl.text import clean
from factrl.text.answers import normalize_answer
from factrl.text.sentences import sentences
from factrl.types import Completion, Example

TOGETHER = 16  # texts of a policy in this process that are written, and lost by a kill, together
CALLERS = 16  # of a server at once; of KLCF's, each checks a question and keeps several calls in flight
_TABLES = (".jsonl", ".jsonl.gz", ".parquet")


ZERO_SHOT = (
    "{question}\n\nAnswer in detail. State as many facts as you know, in full sentences, and only facts that "
    "you are sure of."
)
FEW_SHOT = "Question: {question}\nAnswer:"
"""The default templates, both ours: without demonstrations, and for each of them."""

_ENDS = (".", "!", "?", "。", "！", "？", '."', ".”", ".)")


def read_demonstrations(path: str) -> list[Example]:
    """Questions, each with the answer to show.

    Raises:
        DataError: a row without one of them.
    """
    shown = load_examples(path)
    bare = [example.id for example in shown if not example.answers]
    if bare:
        raise DataError(f"{path}: {len(bare)} demonstrations have no answer, first {bare[0]!r}")
    return shown


def few_shot(template: str, shown: Sequence[Example]) -> str:
    """`template` after the demonstrations, each of them rendered by it and followed by its answer.

    >>> few_shot("Q: {question}\\nA:", [Example("Capital of Peru?", ("Lima",))])
    'Q: Capital of Peru?\\nA: Lima\\n\\nQ: {question}\\nA:'
    """
    gap = "" if template[-1:].isspace() else " "
    turns = [f"{render_prompt(example, template)}{gap}{example.answers[0]}\n\n" for example in shown]
    return "".join(turns).replace("{", "{{").replace("}", "}}") + template


def answer_part(completion: Completion, template: str = "") -> str:
    """What of a sample is the answer, ready to be taken apart into claims.

    Thoughts are left out, and the last sentence of an answer that was cut off before its end.  A base model
    that goes on with a question of its own, as in the demonstrations, has answered before that.

    Args:
        template: the template of demonstrations; empty where there were none.
    """
    text = after_thinking(completion)
    opening = next((literal.strip() for literal, *_ in string.Formatter().parse(template)), "")
    text, goes_on, _ = text.partition(f"\n{opening}") if opening else (text, "", "")
    text = text.strip()
    if goes_on or not completion.truncated:
        return text
    parts = sentences(text)
    whole = parts if text.endswith(_ENDS) else parts[:-1]
    return text[: whole[-1].end] if whole else ""


def write_each(
    writer: Writer,
    examples: Sequence[Example],
    numbers: Sequence[int],
    settings: AskSettings,
    keep: Callable[[Example, int, Written], None],
) -> None:
    """Have the samples of these numbers written for each example, and keep each as soon as it is there.

    A policy in this process is faster with many texts at once, and what was written together is kept
    together.  A server, and the local model, are asked for one text at a time, by as many callers as the
    server takes.

    Args:
        keep: called with each text; never by two threads at once.

    Raises:
        SetupError: as the writer.
    """
    name, sampling, lock = settings.model.name, settings.sampling, threading.Lock()
    how = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": settings.run.seed}
    served = name.startswith(("http://", "https://"))
    if served or name == LOCAL:
        batches = [([example], [number]) for example in examples for number in numbers]
    else:
        starts = range(0, len(examples), TOGETHER)
        batches = [([*examples[start : start + TOGETHER]], [*numbers]) for start in starts]

    def write(batch: tuple[list[Example], list[int]]) -> None:
        several, these = batch
        groups = writer.write(several, these, **how)
        with lock:
            for example, group in zip(several, groups, strict=True):
                for number, text in zip(these, group, strict=True):
                    keep(example, number, text)

    callers = min(CALLERS, settings.judge.max_concurrency) if served else 1
    with ThreadPoolExecutor(callers, thread_name_prefix="factrl-write") as pool:
        list(pool.map(write, batches))  # the first failure cancels what has not begun


@dataclass(frozen=True)
class Sieve:
    """The questions of evaluation sets.

    Attributes:
        known: normalised question -> the file that it was first seen in.
    """

    known: Mapping[str, str]

    @classmethod
    def read(cls, sources: Sequence[str | Path]) -> Sieve:
        """The questions of files, of all tables in folders at any depth, and of the test splits of hub ids.

        Raises:
            DataError: a source is missing, or none of its rows has a question.
        """
        known: dict[str, str] = {}
        for source in sources:
            seen, columns = False, dict[str, None]()
            for file in _files(Path(source).expanduser()):
                for row in read_rows(str(file), "test"):
                    columns |= dict.fromkeys(row)
                    if question := normalised(_question(row)):
                        known.setdefault(question, str(file))
                        seen = True
            if not seen:
                raise DataError(
                    f"--against {source} holds no question; columns: {', '.join(columns) or 'none'}; name "
                    "the file with the questions, or call their column `question`"
                )
        return cls(known)

    def found_in(self, question: str) -> str | None:
        """The evaluation file that has this question; None when none has it."""
        return self.known.get(normalised(question))

    def sift(self, examples: Sequence[Example]) -> tuple[list[Example], dict[str, Any]]:
        """The examples that are in no evaluation set, and of the others their number, files and ids."""
        sources = {example.id: self.found_in(example.question) for example in examples}
        matches = {id_: source for id_, source in sources.items() if source}
        files = dict(Counter(matches.values()).most_common())
        report = {"found": len(matches), "of": len(examples), "files": files, "ids": list(matches)}
        return [example for example in examples if example.id not in matches], report


def normalised(question: str) -> str:
    """The spelling by which questions are compared; empty for a text without a letter or a digit.

    >>> normalised("¿Who wrote  THE Iliad?")
    'who wrote iliad'
    """
    plain = clean(normalize_answer(question).casefold())
    return " ".join("".join(char for char in plain if unicodedata.category(char)[0] != "P").split())


def _question(row: Mapping[str, Any]) -> str:
    try:
        return to_example(row).question
    except DataError:  # some other column is odd; what counts here is the question
        texts = (row.get(name) for name in ("question", "query", "problem", "prompt"))
        return next((text for text in texts if isinstance(text, str)), "")


def _files(source: Path) -> Iterator[Path]:
    if not source.is_dir():
        yield source
        return
    files = sorted(file for file in source.rglob("*") if file.name.endswith(_TABLES))
    if not files:
        raise DataError(f"--against {source} holds no {', '.join(_TABLES)}; name a file with questions")
    yield from files
