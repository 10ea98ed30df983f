"""Claims about folders of documents as people have them: what is shown of the true, the false and the unsaid?

    python benchmarks/folders.py weak|local|careless|URL... [--set dev|test] [--show]

Every folder below `benchmarks/folders/SET` has `docs/`, which a verifier reads as `--docs` does, and
`claims.jsonl`: a text, the claim in it that counts, its label (true, false, unsaid, disagree), a kind, and
the
sentences that say it.  The sets were written by another hand than the code.  A claim is as supported as the
gravest of the checks in its place.  `reached` counts the true claims whose sentence, with its heading or the
names of its columns, was among what the judge was shown, or was found word for word.

`careless` is a model server that reads badly (`benchmarks/similar.py`).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from similar import careless

from factrl.llm import FakeLLM, connect
from factrl.llm.store import Store
from factrl.runs.rows import read_rows
from factrl.types import Passage
from factrl.verifier import Verifier, open_verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges import LLMJudge
from factrl.verifier.report import KINDS, Check
from factrl.verifier.search import Given

SHOWN = ("supported", "unsure", "refuted", "unknown", "unjudged", "no claim")
_SAID, _SHARED = 0.5, 0.9
"""Of the words of a sentence (not of a row, of which only some cells are shown), and of those that the claim
shares with it, in one piece that was shown."""


def opened(judge: str, docs: Path, store: Store | None) -> Verifier:
    """A verifier over a folder, with this judge."""
    if judge == "careless" or "://" in judge:
        llm = FakeLLM(careless) if judge == "careless" else connect(judge)
        return Verifier(SentenceClaims(), Given.read([docs]), LLMJudge(llm))
    return open_verifier("local", docs=[docs], judge=judge, store=store)


def words(text: str) -> list[str]:
    """The words of a text in small letters."""
    return re.findall(r"\w+", text.casefold().replace("\u00ad", ""))


def reached(row: Mapping[str, Any], passages: list[Passage]) -> bool:
    """Whether a sentence that says the claim was among what the judge was shown."""
    shown = [{*words(f"{one.title} {one.text}")} for one in passages]
    for source in row["source"].split(" // "):
        said = words(source.partition(": ")[2])
        both = [word for word in said if word in words(row["claim"])]
        if any(
            (row["kind"].startswith("table") or sum(word in own for word in said) >= _SAID * len(said))
            and sum(word in own for word in both) >= _SHARED * len(both)
            for own in shown
        ):
            return True
    return False


def checked(
    judge: str, folders: list[Path], store: Store | None
) -> Iterator[tuple[Path, Mapping[str, Any], str, list[Check]]]:
    """Each claim with what is shown of it, and its checks."""
    for folder in folders:
        verifier = opened(judge, folder / "docs", store)
        verifier.deadline = 36000.0  # on a busy machine a batch takes longer than anybody would wait
        rows = [*read_rows(str(folder / "claims.jsonl"))]
        for row, report in zip(rows, verifier.batch([row["text"] for row in rows]), strict=True):
            start = row["text"].rindex(row["claim"])
            own = [one for one in report.checks if one.verdict and one.claim.end > start]
            shown = min({one.shown for one in own}, key=[*KINDS].index, default="no claim")
            yield folder, row, shown, own


def main() -> None:
    """Print, for each judge, what is shown by label and by kind, what was reached, and the time a claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("judges", nargs="+")
    parser.add_argument("--set", default="dev", help="dev, test, disagree, or a folder in their form")
    parser.add_argument("--show", action="store_true", help="print every claim, too")
    parser.add_argument("--store", type=Path, help="a file that keeps verdicts from one run to the next")
    args = parser.parse_args()
    store = Store(args.store) if args.store else None
    place = Path(__file__).parent / "folders" / args.set
    folders = sorted(
        one.parent for one in (place if place.is_dir() else Path(args.set)).glob("*/claims.jsonl")
    )
    for judge in args.judges:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        kinds: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        seen = Counter[str]()
        wall, cpu = time.monotonic(), time.process_time()
        for folder, row, shown, own in checked(judge, folders, store):
            counts[row["label"]][shown] += 1
            kinds[row["label"], row["kind"]][shown] += 1
            if row["label"] == "true":
                near = reached(row, [passage for one in own for passage in one.passages])
                seen["reached"] += near
                seen["not supported though reached"] += near and shown != "supported"
            else:
                near = True
            if args.show:
                told = " ".join(f"{c.verdict.p:.2f}" for c in own if c.verdict and c.verdict.p is not None)
                why = " | ".join(f"“{c.quote}” {c.verdict.why}" for c in own if c.verdict)
                mark = " " if near else "x"
                sys.stdout.write(
                    f"{mark} {row['label']:<9}{shown:<10}{told:<6}{folder.name[:4]} {row['kind']:<14.14}"
                    f"{row['text']}  {why}\n"
                )
        total = sum(count.total() for count in counts.values())
        wall, cpu = (
            (now - then) / total for now, then in ((time.monotonic(), wall), (time.process_time(), cpu))
        )
        for label, count in counts.items():
            told = ", ".join(f"{count[kind]} {kind}" for kind in SHOWN if count[kind])
            sys.stdout.write(f"{judge}: of {count.total()} {label}: {told}\n")
        for (label, kind), count in sorted(kinds.items()):
            sys.stdout.write(f"    {label:<9}{kind:<20} {count['supported']}/{count.total()} shown\n")
        true = counts["true"].total()
        told = ", ".join(f"{name} {count}" for name, count in seen.items())
        sys.stdout.write(f"{judge}: of {true} true ones {told}; {cpu:.3f} CPU s and {wall:.3f} s a claim\n")


if __name__ == "__main__":
    main()
