"""What run.sh reads, from the sets that TruthRL's authors released: five files of questions with documents.

    python data.py --output data               # from the hub
    python data.py --output data --from FILES  # from FILES/train.parquet, crag.parquet, …

Each row has `question`, `answers`, `query_time` (CRAG alone), `question_type`, `false_premise`, and the
documents as `evidence`.  The numbers of questions are not in the paper; they are printed.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import factrl as fx

# Name of the file -> set on the hub, split.  The paper trains on CRAG alone and tests on all four.
SETS = {
    "train": ("weizhepei/TruthRL-CRAG", "train"),
    "crag": ("weizhepei/TruthRL-CRAG", "test"),
    "nq": ("weizhepei/TruthRL-NaturalQuestions", "test"),
    "hotpotqa": ("weizhepei/TruthRL-HotpotQA", "validation"),
    "musique": ("weizhepei/TruthRL-MuSiQue", "validation"),
}
# The training rows are whole prompts: their documents and the time of the question stand in the text.
DOCUMENT = re.compile(r"<DOC>\s*(?:Document \[\d+\]:)?\s*(.*?)\s*</DOC>", re.S)
TIME = re.compile(r"\d\d/\d\d/\d{4}, \d\d:\d\d:\d\d PT")


def row(example: fx.Example) -> dict[str, object]:
    """An example as a row; chunks that scored too low are left out by factrl, as by the release."""
    meta = example.meta
    shown = json.dumps(meta.get("prompt", ""), ensure_ascii=False, default=str).replace("\\n", "\n")
    evidence = [{"title": p.title, "text": p.text} for p in example.evidence]
    times = [meta["query_time"]] if meta.get("query_time") else TIME.findall(shown)
    made = {
        "id": example.id,
        "question": example.question,
        "answers": list(example.answers),
        "question_type": meta.get("question_type"),
        "false_premise": example.false_premise
        or meta.get("question_type") == "false_premise"
        or example.answers == ("invalid question",),
        "evidence": evidence or [{"title": "", "text": text} for text in DOCUMENT.findall(shown)],
    }
    return made | ({"query_time": times[0]} if times else {})


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FOLDER", help="files in place of the hub's"
    )
    args = parser.parse_args(words)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, (hub, split) in SETS.items():
        files = sorted(args.source.glob(f"{name}.*")) if args.source else [hub]
        if not files:
            raise SystemExit(f"{args.source} has no {name}.parquet or {name}.jsonl")
        rows = [row(one) for one in fx.load_examples(str(files[0]), split=split, require_answers=False)]
        with (args.output / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in rows)
        bare = sum(not one["evidence"] for one in rows)
        premise = sum(bool(one["false_premise"]) for one in rows)
        print(f"{name}: {len(rows)} questions, {premise} on a false premise, {bare} without documents")


if __name__ == "__main__":
    main()
