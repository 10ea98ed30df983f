"""Whether the rule-based grammar of English finds more of what is wrong in a text than plain sentences do.

    FACTRL_DATA=… python benchmarks/grammar.py [--judge weak|local] [--documents 12]

Documents of which people labelled every sentence, each with the evidence that its set gives: WikiBio
hallucinations (the person's Wikipedia article), FELM (reference pages) and Factcheck-GPT (passages found on the
web).  `ClauseClaims` and `SentenceClaims` take each apart, one judge gives every claim its probability of being
supported, and a sentence has the lowest of its claims'.  The threshold below which a sentence is flagged is the
one with the best F1 on one half of a set's documents; precision, recall and F1 are of the other half, both ways
round.  Intervals are bootstraps over documents.

The rule, written down before the first run: the grammar stays if its F1 is higher by 3 points or more on
average.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factrl.extract import ClauseClaims, SentenceClaims
from factrl.judges import Judge
from factrl.types import Claim, Passage
from factrl.verifier import Verifier
from factrl.verifier.presets import open_judge

ROUNDS = 1_000


@dataclass(frozen=True)
class Document:
    """A text with its sentences, as people labelled them.

    Attributes:
        sentences: in the order of the text.
        wrong: whether people found each of them wrong.
    """

    source: str
    question: str
    text: str
    sentences: Sequence[str]
    wrong: Sequence[bool]
    evidence: Sequence[Passage]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    with opened as file:
        yield from map(json.loads, file)


def documents(data: Path) -> Iterator[Document]:
    for row in rows(data / "wikibio_hallucination/passages.jsonl.gz"):
        wrong = [label != "accurate" for label in row["labels"]]
        yield Document("wikibio", "", row["response"], row["sentences"], wrong, [Passage(row["reference"])])
    for row in rows(data / "felm/responses.jsonl"):
        passages = [Passage(part["text"]) for part in row["evidence"] if part["text"].strip()]
        if passages:
            wrong = [not label for label in row["labels"]]
            yield Document("felm", row["prompt"], row["response"], row["segments"], wrong, passages)
    web: dict[str, dict[str, Passage]] = defaultdict(dict)
    for row in rows(data / "factcheck_gpt/stance.jsonl"):
        web[row["group_id"]] |= {part["text"]: Passage(part["text"]) for part in row["evidence"]}
    for row in rows(data / "factcheck_gpt/documents.jsonl"):
        sentences = [part for part in row["sentences"] if part["text"].strip()]
        wrong = [part["sentence_factuality_label"] is False for part in sentences]
        texts = [part["text"] for part in sentences]
        if passages := list(web[row["group_id"]].values()):
            yield Document("factcheck_gpt", row["prompt"], row["response"], texts, wrong, passages)


def places(document: Document) -> list[tuple[int, int]]:
    """Where the sentences stand in the text; a sentence that is not there word for word has an empty place."""
    found, start = [], 0
    for sentence in document.sentences:
        at = document.text.find(sentence.strip(), start)
        found.append((at, at + len(sentence.strip())) if at >= 0 else (start, start))
        start = found[-1][1]
    return found


def scores(document: Document, extract: Callable[..., list[Claim]], judge: Judge) -> tuple[list[float], int]:
    """The lowest probability among the claims of each sentence, 1 without a claim; and how many claims."""
    report = Verifier(extract, None, judge)(document.text, document.question, evidence=document.evidence)
    lowest = [1.0] * len(document.sentences)
    judged = 0
    for check in report.checks:
        claim, verdict = check.claim, check.verdict
        if verdict is None or claim.start is None or claim.end is None:
            continue
        judged += 1
        p = verdict.p if verdict.p is not None else {"supported": 1.0}.get(verdict.label, 0.0)
        for number, (start, end) in enumerate(places(document)):
            if claim.start < end and claim.end > start:
                lowest[number] = min(lowest[number], p)
    return lowest, judged


Scored = Sequence[tuple[Sequence[float], Sequence[bool]]]


def prf(scored: Scored, threshold: float) -> tuple[float, float, float]:
    """Precision, recall and F1 of flagging what is below the threshold."""
    pairs = [(p < threshold, bad) for found, wrong in scored for p, bad in zip(found, wrong, strict=True)]
    hits = sum(flag and bad for flag, bad in pairs)
    flagged, wrong = sum(flag for flag, _ in pairs), sum(bad for _, bad in pairs)
    precision, recall = hits / flagged if flagged else 0.0, hits / wrong if wrong else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def best(scored: Scored) -> float:
    values = sorted({p for found, _ in scored for p in found})
    cuts = [values[i] for i in range(0, len(values), max(1, len(values) // 100))] + [1.01]
    return max(cuts, key=lambda cut: prf(scored, cut)[2])


def crossed(scored: Scored) -> list[tuple[tuple[list[float], Sequence[bool]], int]]:
    """Each document with flags as scores: 0 flagged, 1 not, by the threshold of the other half."""
    halves = [list(scored[0::2]), list(scored[1::2])]
    cuts = [best(halves[1]), best(halves[0])]
    return [
        (([0.0 if p < cuts[number % 2] else 1.0 for p in found], wrong), number)
        for number, (found, wrong) in enumerate(scored)
    ]


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", choices=("weak", "local"), default="weak")
    parser.add_argument("--documents", type=int, default=0, help="of each set; all by default")
    args = parser.parse_args()
    judge = open_judge(args.judge)
    by_source: dict[str, list[Document]] = defaultdict(list)
    for document in documents(Path(os.environ["FACTRL_DATA"])):
        by_source[document.source].append(document)
    arms: dict[str, Callable[..., list[Claim]]] = {"grammar": ClauseClaims(), "sentences": SentenceClaims()}
    print("| set | documents, sentences, wrong | claims of | precision | recall | F1 | claims | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    pooled: dict[str, list[Any]] = defaultdict(list)
    for source, found in by_source.items():
        random.Random(0).shuffle(found)
        chosen = found[: args.documents] if args.documents else found
        flags: dict[str, list[Any]] = {}
        for arm, extract in arms.items():
            began, claims, scored = time.process_time(), 0, []
            for document in chosen:
                lowest, judged = scores(document, extract, judge)
                scored.append((lowest, document.wrong))
                claims += judged
            seconds = time.process_time() - began
            flags[arm] = [row for row, _ in crossed(scored)]
            pooled[arm] += flags[arm]
            sizes = f"{len(chosen)}, {sum(len(d.wrong) for d in chosen)}, {sum(sum(d.wrong) for d in chosen)}"
            values = " | ".join(map(percent, prf(flags[arm], 0.5)))
            print(f"| {source} | {sizes} | {arm} | {values} | {claims} | {seconds:.1f} |", flush=True)
        print(f"| {source} | | grammar − sentences | | | {difference(flags)} | | |", flush=True)
    print(f"| all, pooled | | grammar − sentences | | | {difference(pooled)} | | |")


def difference(flags: dict[str, list[Any]]) -> str:
    """Points of F1 by which the grammar is better, with its interval over documents."""
    rng = random.Random(0)
    count = len(flags["grammar"])
    drawn = [[rng.randrange(count) for _ in range(count)] for _ in range(ROUNDS)]

    def gap(chosen: Sequence[int]) -> float:
        one, other = ([flags[arm][i] for i in chosen] for arm in ("grammar", "sentences"))
        return 100 * (prf(one, 0.5)[2] - prf(other, 0.5)[2])

    gaps = sorted(map(gap, drawn))
    return f"{gap(range(count)):+.1f} [{gaps[25]:+.1f}, {gaps[974]:+.1f}]"


if __name__ == "__main__":
    main()
