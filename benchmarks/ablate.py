"""What each rule of the grader and of the claims buys: where it fires, and what agreement is without it.

    FACTRL_DATA=DIR python benchmarks/ablate.py [--form short] [--sets NQ,TQ,NQ301,CZ,TfQA] [--every N]

Without a judge against people's labels, in the form "sentence", as evaluation reads, or "short", as rewards
do. A row is a rule that is switched off: in how many answers it fires, how many verdicts change without it,
and the change of agreement in points on each set; a minus says that the rule is worth having. Those that
fire in fewer than 1 of 1,000 answers are marked: such a rule stays only where a property needs it
(CONTRIBUTING.md). Last, what is skipped as no claim, on responses whose sentences people have labelled.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factrl.rewards import grading
from factrl.rewards.grading import Grader
from factrl.runs.rows import read_rows
from factrl.text import abstention, answers, mentions, reasoning
from factrl.verifier.claims import SentenceClaims

SETS = {
    "NQ": "evouna/evouna_nq.jsonl.gz",
    "TQ": "evouna/evouna_tq.jsonl.gz",
    "NQ301": "openqa_eval_nq301/judgements.jsonl",
    "CZ": "czech_simpleqa_graded/graded.jsonl",
    "TfQA": "truthfulqa_judged/judgements.jsonl.gz",
}
RARE = 1_000
_NEVER = re.compile(r"(?!)")

Rule = tuple[Any, str, Any]
"""A module, the name of a rule in it, and what stands in its place: a function, a pattern or a number."""
RULES: Mapping[str, Rule] = {
    "a listed refusal abstains": (grading, "is_refusal", lambda text, more=(): False),
    "the learnt score abstains": (grading, "abstention_score", lambda text, question=None: 0.0),
    "an announced answer is the answer": (reasoning, "announced", lambda text, *, whole=False: text),
    "wrappings are taken off": (answers, "_OPENERS", _NEVER),
    "a subject of the question is taken off": (answers, "_without_subject", lambda text, question: text),
    "amounts are equal": (answers, "_only_amount", lambda text, question: None),
    "closed answers lead": (answers, "closed", lambda text, answer, question="": False),
    "lists in any order": (answers, "_reordered", lambda one, other, question: False),
    "accents of names": (answers, "_unaccented", lambda word: word),
    "footnotes glued to words": (mentions, "_GLUED", _NEVER),
    "what is denied is not said": (mentions, "_denied", lambda reading: set()),
    "candidates joined by or": (mentions, "_alternatives", lambda reading, known: set()),
    "spellings of an answer": (mentions, "_spellings", lambda answer: [answer]),
    "numbers are said": (mentions, "_counted", lambda amount, reply: True),
    "yes and no": (mentions, "_agrees", lambda reply, polarity, query_words: False),
    "an answer that denies": (mentions, "_NEGATED", frozenset()),
    "dates to the year": (mentions, "_dated", lambda wanted, reply, query: False),
    "spaces aside": (mentions, "_LONG", 10**6),
    "surnames": (mentions, "_names", lambda wanted, informative: []),
    "another word in its place": (mentions, "_replaced", lambda *_: False),
    "a script without spaces": (mentions, "_stands", lambda raw, answer: False),
}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def without(rule: Rule) -> Iterator[None]:
    """Puts the stand-in in the place of a rule; what was read with the rule is forgotten."""
    module, name, instead = rule
    own = getattr(module, name)
    setattr(module, name, instead)
    _forget()
    try:
        yield
    finally:
        setattr(module, name, own)
        _forget()


@contextmanager
def counting(rule: Rule, fired: list[bool]) -> Iterator[None]:
    """Notes in `fired[0]` that a rule, where it is a function, said something else than its stand-in."""
    module, name, instead = rule
    own = getattr(module, name)
    if not callable(own):
        yield
        return

    def watched(*args: Any, **named: Any) -> Any:
        found = own(*args, **named)
        fired[0] = fired[0] or found != instead(*args, **named)
        return found

    with without((module, name, watched)):
        yield


def _forget() -> None:
    answers._formed.cache_clear()
    answers._amount_kept.cache_clear()
    abstention.question_words.cache_clear()


class Set:
    """The rows of a set with people's verdicts."""

    def __init__(self, name: str, path: Path, every: int) -> None:
        rows = [row for row in read_rows(str(path)) if any(gold.strip() for gold in row["gold"])]
        self.name, self.rows = name, rows[:: every * (2 if name == "TfQA" else 1)]
        key: Callable[[Any], bool] = (
            (lambda row: row["grade"] == "correct")
            if name == "CZ"
            else (lambda row: bool(row["human_correct"]))
        )
        self.people = [key(row) for row in self.rows]

    def verdicts(self, grade: Grader) -> list[bool]:
        labels = [grade(row["question"], row["prediction"], row["gold"]).label for row in self.rows]
        return [one == "correct" or (self.name == "TfQA" and one == "abstained") for one in labels]

    def fires(self, grade: Grader, rule: Rule) -> int:
        count, fired = 0, [False]
        with counting(rule, fired):
            for row in self.rows:
                fired[0] = False
                grade(row["question"], row["prediction"], row["gold"])
                count += fired[0]
        return count

    def agreement(self, verdicts: Sequence[bool]) -> float:
        return 100 * sum(a == b for a, b in zip(verdicts, self.people, strict=True)) / len(self.people)


def graded(sets: Sequence[Set], grade: Grader) -> None:
    """Prints the table of the grader's rules."""
    own = [one.verdicts(grade) for one in sets]
    say(f"| rule | fires | verdicts that change | {' | '.join(one.name for one in sets)} |")
    say("|---|--:|--:|" + "--:|" * len(sets))
    figures = (f"{one.agreement(found):.2f}" for one, found in zip(sets, own, strict=True))
    total = sum(len(one.rows) for one in sets)
    say(f"| **all rules**, {total} answers | | | {' | '.join(figures)} |")
    for name, rule in RULES.items():
        fires = sum(one.fires(grade, rule) for one in sets)
        with without(rule):
            others = [one.verdicts(grade) for one in sets]
        changed = sum(
            a != b for mine, other in zip(own, others, strict=True) for a, b in zip(mine, other, strict=True)
        )
        gains = (
            f"{one.agreement(other) - one.agreement(mine):+.2f}"
            for one, mine, other in zip(sets, own, others, strict=True)
        )
        fires = fires or changed  # of a pattern or a number only what changes is known
        rare = " (rare)" if fires * RARE < total else ""
        say(f"| {name} | {fires}{rare} | {changed} | {' | '.join(gains)} |")


def claimed(data: Path) -> None:
    """Prints what is skipped as no claim."""
    extract = SentenceClaims()
    counts: dict[str, Counter[str]] = {}
    for name in ("felm", "factcheck_gpt"):
        for path in sorted((data / name).glob("*.jsonl*")):
            for row in read_rows(str(path)):
                text = row.get("claim") or row.get("text") or ""
                label = str(row.get("label"))
                if not isinstance(text, str) or not text.strip():
                    continue
                for claim in extract(text):
                    counts.setdefault(claim.skip or "judged", Counter())[f"{name} {label}"] += 1
    labels = sorted({label for count in counts.values() for label in count})
    say(f"\n| skipped as | {' | '.join(labels)} |\n|---|" + "--:|" * len(labels))
    for skip, count in sorted(counts.items(), key=lambda one: -one[1].total()):
        say(f"| {skip} | {' | '.join(str(count[label]) for label in labels)} |")


def main() -> None:
    """Prints both tables as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS), help="of the grader's rules")
    parser.add_argument("--form", choices=["sentence", "short"], default="sentence")
    parser.add_argument("--every", type=int, default=1, help="only every N-th answer")
    chosen = parser.parse_args()
    folder = os.environ.get("FACTRL_DATA")
    if not folder:
        raise SystemExit("set FACTRL_DATA to the folder with the public sets, for instance FACTRL_DATA=data")
    names = chosen.sets.split(",")
    sets = [Set(name, Path(folder) / SETS[name], chosen.every) for name in names]
    graded(sets, Grader(form=chosen.form))
    if chosen.form == "sentence":
        claimed(Path(folder))


if __name__ == "__main__":
    main()
