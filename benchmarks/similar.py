"""Claims over families of similar documents, half of them false: is one document's value shown for another?

    python benchmarks/similar.py weak|local|careless|URL... [--set similar|german] [--sure P] [--show]

`benchmarks/similar.jsonl` has 136 claims over 20 families of two to four documents, English and German; the
false ones take what another document of the family says.  `benchmarks/german.jsonl` has 60 German claims that
hang on a comparative, an ordinal, a name within a name, a number, a negation or a direction.  Both were
written before the code that they measure.  A text is as supported as the gravest of its claims.

`careless` is a model server that reads badly: it calls supported what has all of its words anywhere in the
passages that a claim lists, and quotes the sentence that holds most of them.  Words alone never show a claim
as supported; their `unsure` is what they take for supported.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from factrl.llm import FakeLLM, Message, connect
from factrl.runs.rows import read_rows
from factrl.types import Passage
from factrl.verifier import Verifier, open_verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges import LLMJudge
from factrl.verifier.judges.overlap import pieces_of, quote_of, words_of
from factrl.verifier.report import KINDS, SURE, Report

KINDS_SHOWN = ("supported", "unsure", "refuted", "unknown", "no claim")


def careless(messages: Sequence[Message]) -> str:
    """The reply of a judge that mixes what it was shown."""
    data = json.loads(messages[-1]["content"].split("\n")[-2])
    lines = []
    for one in data["claims"]:
        shown = [Passage(p["text"], p["title"]) for p in data["passages"] if p["id"] in one["passages"]]
        held = {stem for piece in pieces_of(shown) for stem in piece.words.stems}
        held |= {stem for passage in shown for stem in words_of(passage.title).stems}
        number, start, end = quote_of(one["claim"], shown) or (0, 0, 0)
        supported = held.issuperset(words_of(one["claim"]).stems)
        said = {"id": one["id"], "quote": shown[number].text[start:end]}
        lines.append(json.dumps({**said, "verdict": "supported" if supported else "unknown"}))
    return "\n".join(lines)


def opened(judge: str) -> Verifier:
    """A verifier whose claims are sentences, with this judge."""
    if judge == "careless" or "://" in judge:
        llm = FakeLLM(careless) if judge == "careless" else connect(judge)
        return Verifier(SentenceClaims(), None, LLMJudge(llm))
    return open_verifier("local", judge=judge)


def shown(report: Report) -> str:
    """The gravest of what is shown of a text's claims."""
    kinds = {report.kind(check) for check in report.checks} & {*KINDS_SHOWN}
    return min(kinds, key=[*KINDS].index, default="no claim")


def main() -> None:
    """Print, for each judge, what is shown of true and of false claims, and the time a claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("judges", nargs="+")
    parser.add_argument("--set", default="similar", help="similar, german, or a file in their form")
    parser.add_argument("--sure", type=float, default=SURE)
    parser.add_argument("--show", action="store_true", help="print every claim, too")
    args = parser.parse_args()
    path = Path(args.set)
    families = list(read_rows(str(path if path.suffix else Path(__file__).parent / f"{path}.jsonl")))
    for judge in args.judges:
        verifier = opened(judge)
        verifier.deadline = 3600.0  # on a busy machine a batch takes longer than anybody would wait
        verifier("The sun is hot.", evidence=["The sun is hot."])  # the model is loaded
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        wall, cpu = time.monotonic(), time.process_time()
        for family in families:
            evidence = [Passage(doc["text"], doc["title"]) for doc in family["docs"]]
            texts = [claim["text"] for claim in family["claims"]]
            reports = verifier.batch(texts, evidence=[evidence] * len(texts))
            for claim, report in zip(family["claims"], reports, strict=True):
                kind = shown(Report(report.text, checks=report.checks, weak=report.weak, sure=args.sure))
                counts["true" if claim["true"] else "false"][kind] += 1
                if args.show:
                    told = " ".join(f"{c.verdict.p:.2f}" for c in report.checks if c.verdict and c.verdict.p)
                    quote = " | ".join(check.quote for check in report.checks)
                    sys.stdout.write(f"{claim['true']!s:<6}{kind:<10}{told:<10}{claim['text']}  “{quote}”\n")
        total = sum(count.total() for count in counts.values())
        wall, cpu = (
            (now - then) / total for now, then in ((time.monotonic(), wall), (time.process_time(), cpu))
        )
        for truth, count in sorted(counts.items(), reverse=True):
            told = ", ".join(f"{count[kind]} {kind}" for kind in KINDS_SHOWN)
            share = count["supported"] / count.total()
            sys.stdout.write(
                f"{judge}: of {count.total()} {truth} claims {told} ({share:.0%} shown as supported)\n"
            )
        sys.stdout.write(f"{judge}: {cpu:.2f} CPU s and {wall:.2f} s a claim\n")


if __name__ == "__main__":
    main()
