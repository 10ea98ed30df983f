"""What a benchmark is: where its questions are, how they are read and asked, and how answers are scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from factrl.evals import prompts, readers
from factrl.evals.readers import Reader

Kind = Literal["short", "choice", "discrimination", "reasoning", "long"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows are.

    Attributes:
        hub, subset, split: dataset on the hub; an empty `hub` means that there is none with these columns.
        local: file under `FACTRL_DATA`, of the plain schema.
    """

    hub: str = ""
    subset: str | None = None
    split: str = "test"
    local: str = ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark.

    Attributes:
        about: what it measures, in a few words, with its paper.
        kind: how it is scored: `short` answers are graded, `choice` by the likelihood of the options or a
            letter, `discrimination` by a letter, `reasoning` by mathematical equivalence, `long` by claims.
        read: reads an upstream row.
        read_local: reads a row of the plain schema.
        prompt: what the user says, as `data.prompt`.
        max_tokens: length limit of an answer.
        demos: rows to take worked examples from; its own, left out of the evaluation, where there are none.
        keep: leaves out rows of a file that several benchmarks share.
        several: how many options may be right: MC1 has one, MC2 several.
        recall_at: K of F1@K, for `long`.
        lm_eval: question, answer and options as Jinja over upstream's columns, for the export to lm-eval.
    """

    name: str
    about: str
    kind: Kind
    test: Source
    licence: str
    read: Reader = readers.same
    read_local: Reader = readers.plain
    prompt: str = prompts.SHORT
    language: Literal["en", "zh"] = "en"
    max_tokens: int = 48
    demos: Source | None = None
    keep: tuple[str, str] | None = None
    several: bool = False
    recall_at: int = 32
    lm_eval: Mapping[str, str] = field(default_factory=dict, hash=False)
