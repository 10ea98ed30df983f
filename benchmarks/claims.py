"""Claims with labels: what a judge shows of the true, of the false and of what no document says.

    python benchmarks/claims.py weak|local|careless|URL... [--set NAME] [--show]

    similar      136 claims over 20 families of similar documents, English and German; the false ones take
                 what another document of the family says
    german       60 German ones that hang on a comparative, a name within a name, a number, a negation, …
    languages    three true and three false ones in each of nineteen languages
    twenty       two sentences about each of ten subjects, over ten encyclopedia passages together
    folders/dev, folders/test    claims about folders of documents as people have them, read as --docs does

The sets were written before, or by another hand than, the code that they measure.  A claim is as supported as
the gravest of the checks in its place.  `careless` is a model server that reads badly: it calls supported
what has all of its words anywhere in the passages that it is shown, and quotes what holds most of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from factrl.llm import FakeLLM, Message, connect
from factrl.runs.rows import read_rows
from factrl.types import Passage
from factrl.verifier import Verifier, open_verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges import LLMJudge
from factrl.verifier.judges.overlap import pieces_of, quote_of, words_of
from factrl.verifier.report import KINDS
from factrl.verifier.search import Given
from factrl.verifier.tokens import read

HERE = Path(__file__).parent
SHOWN = ("supported", "unsure", "refuted", "unknown", "unjudged", "no claim")


class Labelled(NamedTuple):
    """A claim in its text; `evidence` is a folder, or passages."""

    evidence: Path | Sequence[Passage]
    text: str
    claim: str
    label: str
    kind: str
    topic: str | None = None
    source: str = ""  # the sentence or row that says it, behind the name of its file


def labelled(name: str) -> Iterator[Labelled]:
    """The claims of a set, those with the same evidence behind each other."""
    place = Path(name) if Path(name).exists() else HERE / name
    if place.is_dir():
        for path in sorted(place.glob("*/claims.jsonl")):
            for row in read_rows(str(path)):
                said = row["text"], row["claim"], row["label"], row["kind"]
                yield Labelled(path.parent / "docs", *said, source=row["source"])
        return
    rows = [*read_rows(str(place if place.suffix else place.with_suffix(".jsonl")))]
    if "sentences" in rows[0]:
        everything = [Passage(row["text"], row["title"]) for row in rows]
        for row in rows:  # the sentences of a subject are one text, so that "She" has somebody to mean
            text = " ".join(said for said, _ in row["sentences"])
            for said, answer in row["sentences"]:
                label = "true" if answer == "supported" else "false"
                yield Labelled(everything, text, said, label, row["title"], row["title"])
        return
    for row in rows:
        docs = row.get("docs") or [{"text": row["evidence"], "title": ""}]
        evidence = [Passage(doc["text"], doc["title"]) for doc in docs]
        for one in row["claims"]:
            kind = one.get("kind") or row["language"]
            yield Labelled(evidence, one["text"], one["text"], str(one["true"]).lower(), kind)


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


def opened(judge: str, docs: Path | None) -> Verifier:
    """A verifier whose claims are sentences, with this judge."""
    if judge == "careless" or "://" in judge:
        llm = FakeLLM(careless) if judge == "careless" else connect(judge)
        return Verifier(SentenceClaims(), Given.read([docs]) if docs else None, LLMJudge(llm))
    return open_verifier("local", docs=[docs] if docs else [], judge=judge)


def was_seen(row: Labelled, passages: Sequence[Passage]) -> bool:
    """Whether a passage has nine in ten of the words of the sentence that says a claim.

    Of a row, which is shown without the cells that have nothing to do with a claim, those that both have.
    """
    wanted = read(row.source.partition(": ")[2]).keys
    wanted &= read(row.claim).keys if row.kind.startswith("table") else wanted
    held = (read(one.title).keys | read(one.text).keys for one in passages)
    return max((len(wanted & own) for own in held), default=0) >= 0.9 * len(wanted)


def checked(judge: str, rows: Sequence[Labelled]) -> Iterator[tuple[Labelled, str, str, bool]]:
    """Each claim with what is shown of it, why, and whether the judge was shown the sentence that says it."""
    groups: dict[Any, list[Labelled]] = defaultdict(list)
    for row in rows:
        groups[row.evidence if isinstance(row.evidence, Path) else id(row.evidence)].append(row)
    verifier = opened(judge, None)
    for group in groups.values():
        given = group[0].evidence
        if isinstance(given, Path):
            verifier = opened(judge, given)
        verifier.deadline = 36_000.0  # on a busy machine a batch takes longer than anybody would wait
        reports = verifier.batch(
            [row.text for row in group],
            topics=[row.topic or "" for row in group],
            evidence=None if isinstance(given, Path) else [given] * len(group),
        )
        for row, report in zip(group, reports, strict=True):
            start = row.text.rindex(row.claim)
            end = start + len(row.claim)
            own = [one for one in report.checks if one.verdict and start < one.claim.end <= end]
            shown = min({one.shown for one in own}, key=[*KINDS].index, default="no claim")
            why = " | ".join(f"“{one.quote}” {one.verdict.why}" for one in own if one.verdict)
            most = getattr(verifier.judge, "alone", None)
            yield row, shown, why, was_seen(row, [p for one in own for p in one.passages[:most]])


def main() -> None:
    """Print, for each judge, what is shown by label and by kind, and the time a claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("judges", nargs="+")
    parser.add_argument("--set", default="similar", help="a set above, or a file or folder in its form")
    parser.add_argument("--show", action="store_true", help="print every claim, too")
    args = parser.parse_args()
    rows, say = [*labelled(args.set)], sys.stdout.write
    for judge in args.judges:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        kinds: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        wall, cpu = time.monotonic(), time.process_time()
        seen = []
        for row, shown, why, in_view in checked(judge, rows):
            seen += [in_view] if row.label == "true" and row.source else []
            counts[row.label][shown] += 1
            kinds[row.label, row.kind][shown] += 1
            if args.show:
                say(f"{row.label:<9}{shown:<10}{row.kind:<14.14}{row.claim}  {why}\n")
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        for (label, kind), count in sorted(kinds.items()):
            say(f"    {label:<9}{kind:<20} {count['supported']}/{count.total()} shown as supported\n")
        for label, count in sorted(counts.items(), reverse=True):
            told = ", ".join(f"{count[kind]} {kind}" for kind in SHOWN if count[kind])
            say(f"{judge}: of {count.total()} {label}: {told}\n")
        if seen:
            say(f"{judge}: saw the sentence that says it for {sum(seen)} of {len(seen)} true claims\n")
        say(f"{judge}: {cpu / len(rows):.3f} CPU s and {wall / len(rows):.3f} s a claim\n")


if __name__ == "__main__":
    main()
