"""What the published FActScore and VeriScore packages make of human decisions, kept as a test's fixture.

    python -m venv V && V/bin/pip install --no-deps factscore==0.2.0 veriscore==2.0.3 numpy tqdm
    V/bin/python benchmarks/longform_parity.py --data FOLDER --output tests/fixtures/longform_parity.json

The packages' own code does the arithmetic, unmodified.  FActScore's `FactScorer.get_score` runs with its
retrieval and its language model replaced by the annotators' decisions; what it merely imports (torch,
transformers, openai, spaCy, NLTK, rank_bm25) is replaced by nothing.  VeriScore's `utils.get_veriscore` gets
the same decisions as triplets; it prints its figures rounded to three decimals, so the unrounded ones are
read where it hands them to `round`.

The decisions are those of the FActScore annotators (MIT, arXiv 2305.14251) on three systems' biographies,
`factscore_human` of the staged data: supported (1) or not (0), irrelevant facts left out.  A response without
annotation, and one without a relevant fact, has none.  Nothing of factrl is imported here.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from factrl.runs.rows import read_lines

Decisions = str | None  # "110…", one letter per fact
_UNUSED = ("torch", "transformers", "openai", "spacy", "nltk", "nltk.tokenize", "rank_bm25")
_GAMMAS = (10, 0, 25)
_SOURCE = "enwiki-20230401"
_ABOUT = (
    "Decisions of the FActScore annotators (MIT licence, Copyright (c) 2023 Sewon Min, arXiv 2305.14251; "
    "1 supported, 0 not, irrelevant facts left out) and what the published packages make of them. "
    "Written by benchmarks/longform_parity.py."
)


def read(path: Path) -> list[tuple[str, str, Decisions]]:
    """Id, system and decisions of every response."""
    rows = []
    for row in read_lines(path):
        labels = [fact["label"] for part in row["sentences"] or () for fact in part["human_facts"] or ()]
        said = "".join("1" if label == "S" else "0" for label in labels if label != "IR")
        rows.append((row["id"], row["model"], said or None))
    return rows


class _Said:
    """A language model that repeats decisions in the order in which the package asks for them."""

    def __init__(self, decisions: Sequence[Decisions]) -> None:
        self.cache_dict: dict[str, Any] = {}
        self._next: Iterator[str] = iter("".join(said or "" for said in decisions))

    def generate(self, _prompt: str) -> tuple[str, None]:
        return ("True" if next(self._next) == "1" else "False"), None

    def save_cache(self) -> None: ...


class _NoPassages:
    def get_passages(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def save_cache(self) -> None: ...


class _Facts:
    """Claims that are as many as there are decisions; the text of a response is its number."""

    def __init__(self, decisions: Sequence[Decisions]) -> None:
        self._decisions = decisions

    def run(self, text: str, cost_estimate: Any = None) -> Any:
        facts = [f"fact {n}" for n in range(len(self._decisions[int(text)] or ""))]
        return 0 if cost_estimate else ([(text, facts)], None)

    def save_cache(self) -> None: ...


def factscore(decisions: Sequence[Decisions], gamma: int, given: bool = False) -> Mapping[str, Any]:
    """FActScore's own numbers.

    Args:
        given: hand the facts over as `atomic_facts` instead of having them generated.
    """
    from factscore.factscorer import FactScorer

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where it makes its cache
        try:
            scorer = FactScorer(model_name="retrieval+ChatGPT")
        finally:
            os.chdir(here)
    scorer.lm = _Said(decisions)
    scorer.retrieval[_SOURCE] = _NoPassages()
    scorer.af_generator = _Facts(decisions)
    texts = [str(number) for number in range(len(decisions))]
    facts = [[f"fact {n}" for n in range(len(said or ""))] for said in decisions] if given else None
    out = scorer.get_score(texts, texts, gamma=gamma, atomic_facts=facts)
    return {name: float(value) for name, value in out.items() if name != "decisions"}


def veriscore(by_model: Mapping[str, Sequence[str]]) -> Mapping[str, Mapping[str, float]]:
    """VeriScore's own numbers for each system of one domain, not rounded."""
    from veriscore import utils

    names = ("sentences", "supported", "unsupported", "precision", "recall_median", "recall_max")
    names += ("f1_median", "f1_max", "f1_median_again")
    triplets = {model: [[said.count("1"), len(said), 1] for said in all_] for model, all_ in by_model.items()}
    seen: list[float] = []

    def watched(value: float, digits: int) -> float:
        seen.append(value)
        return round(value, digits)

    utils.round = watched  # shadows the built-in one in that module only
    print_, utils.print = print, lambda *_: None
    try:
        utils.get_veriscore({"bios": triplets})
    finally:
        utils.round, utils.print = round, print_
    width = len(names)
    rows = [seen[start : start + width] for start in range(0, len(seen), width)]
    stats = utils.get_stats({"bios": triplets})["bios"]
    found = {
        model: dict(zip(names[1:-1], row[1:-1], strict=True))
        for model, row in zip(triplets, rows, strict=True)
    }
    return {"": {"median": stats["K_median"], "max": stats["K_max"]}, **found}


def failure(call: Any) -> str:
    """The kind of error that a call of a package ends in."""
    try:
        call()
    except ZeroDivisionError as error:
        return type(error).__name__
    return "none"


def main() -> None:
    """Run both packages and write the fixture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("FACTRL_DATA"), help="the staged data")
    parser.add_argument("--output", type=Path, required=True, help="the fixture")
    options = parser.parse_args()
    if not options.data:
        parser.error("name the folder with the data: --data FOLDER, or set FACTRL_DATA")
    logging.disable(logging.CRITICAL)  # what it thinks the calls will cost
    warnings.simplefilter("ignore")  # the mean of no facts, which is one of the findings
    sys.modules.update({name: MagicMock() for name in _UNUSED})
    rows = read(Path(options.data) / "factscore_human" / "responses.jsonl")
    decisions = [said for _, _, said in rows]
    models = sorted({model for _, model, _ in rows})
    of = {model: [said for _, other, said in rows if other == model] for model in models}
    fixture = {
        "about": _ABOUT,
        "responses": rows,
        "factscore": {
            "version": version("factscore"),
            "all": {gamma: factscore(decisions, gamma) for gamma in _GAMMAS},
            "systems": {model: {g: factscore(of[model], g) for g in _GAMMAS} for model in models},
            "each": [None if said is None else factscore([said], 10)["score"] for said in decisions],
            "given_no_facts": failure(lambda: factscore(["1", None], 10, given=True)),
        },
        "veriscore": {
            "version": version("veriscore"),
            "systems": veriscore({model: [said for said in of[model] if said] for model in models}),
            "no_claims": failure(lambda: veriscore({"one": ["1", ""]})),
        },
    }
    options.output.write_text(json.dumps(fixture, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
