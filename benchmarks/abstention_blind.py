"""Who abstains, on a blind set, in evaluation and under a reward, by kind and by language.

    python benchmarks/abstention_blind.py [FILE] [--local]

The sets were written by other hands than the training data and the code, and frozen before either changed:
`abstention_everyday.jsonl` (260 everyday replies in ten languages, the default) and `abstention_blind3.jsonl`
(300, most of them near the border); `abstention_blind.jsonl` and `abstention_blind2.jsonl` are training data
now.  Under a reward without a judge the listed refusals abstain; with a judge that is always right, scripted
from the labels, what the learnt score leaves open is its to say; --local asks the local one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.evals.metrics import wilson
from factrl.llm import FakeLLM, Message
from factrl.rewards.grading import Grader
from factrl.runs.rows import read_rows

DEFAULT = Path(__file__).with_name("abstention_everyday.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", default=str(DEFAULT))
    parser.add_argument("--local", action="store_true", help="also the local judge, a second a text")
    chosen = parser.parse_args()
    rows = [_named(row) for row in read_rows(chosen.file)]
    ways: dict[str, Grader] = {
        "evaluation without a judge": Grader(form="sentence"),
        "reward without a judge": Grader(),
        "reward with a perfect judge": Grader(FakeLLM(_perfect(rows)), max_answer_chars=0),
    }
    if chosen.local:
        from factrl.llm.local.llama import shared_model

        ways["reward with the local judge"] = Grader(shared_model(), small=True)
    for name, grade in ways.items():
        found = [_abstains(grade, row) for row in rows]
        right = sum(took for took, row in zip(found, rows, strict=True) if row["declines"])
        lines = [f"{name}: precision {share(right, sum(found))}, "]
        lines[0] += f"recall {share(right, sum(row['declines'] for row in rows))}"
        for field in ("kind", "lang"):
            groups: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
            for took, row in zip(found, rows, strict=True):
                groups[row[field]].append((took, row["declines"]))
            lines += [f"  {value:<22} {counts(pairs)}" for value, pairs in sorted(groups.items())]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _abstains(grade: Grader, row: Mapping[str, Any]) -> bool:
    return grade(row["question"], row["text"], ["Ysolde of Vehm"]).label == "abstained"


def _perfect(rows: Sequence[Mapping[str, Any]]) -> Callable[[Sequence[Message]], str]:
    """A judge that says of each text what its label says, and of an answer that it is wrong."""
    declines = {_letters(row["question"] + row["text"]) for row in rows if row["declines"]}

    def reply(messages: Sequence[Message]) -> str:
        data = json.loads(str(messages[-1]["content"]).split("\n")[-2])
        if "reply" not in data:
            return "VERDICT: incorrect"
        said = _letters(data["question"] + data["reply"]) in declines
        return f"VERDICT: {'declines' if said else 'offers'}"

    return reply


def _letters(text: str) -> str:
    """What markup and quoting leave of a text."""
    return "".join(filter(str.isalnum, text))


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the names of the later sets; others have their own."""
    if "declines" in row:
        return dict(row)
    return {
        **row,
        "lang": row.get("language") or row["lang"],
        "declines": row["label"] in ("abstained", "abstains"),
    }


def counts(pairs: Iterable[tuple[bool, bool]]) -> str:
    """Found of those that decline, and taken for one of the others."""
    pairs = list(pairs)
    yes, no = ([took for took, declines in pairs if declines is side] for side in (True, False))
    return f"found {sum(yes)} of {len(yes)}" * bool(yes) + f"  taken for one {sum(no)} of {len(no)}" * bool(
        no
    )


def share(part: int, whole: int) -> str:
    interval = wilson(part, whole)
    return f"{100 * part / max(whole, 1):.1f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


if __name__ == "__main__":
    main()
