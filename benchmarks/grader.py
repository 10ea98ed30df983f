"""The rule grader and the abstention detector against people's judgements.

    FACTRL_DATA=DIR python benchmarks/grader.py [--held-out]

DIR holds the public sets that `notebook/grading.md` names.  For each: agreement with people, F1 of the class
"correct" and Cohen's kappa of `Grader(form="sentence")` without a judge, beside equality (ours and SQuAD's
exact match), token F1 of at least 0.5, token F1 at the threshold that is best on the same rows (an oracle)
and "an accepted answer stands in the text".  Intervals resample questions (1,000 times).  The rules were
written with the half of the questions in view whose SHA-256 begins with an even byte; --held-out reports the
other half.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from factrl.rewards.grading import Grader
from factrl.runs.rows import read_rows
from factrl.text.abstention import abstains
from factrl.text.answers import equals, normalize_answer

Row = Mapping[str, Any]
GRADED = {
    "EVOUNA-NQ": "evouna/evouna_nq.jsonl.gz",
    "EVOUNA-TQ": "evouna/evouna_tq.jsonl.gz",
    "OpenQA-eval NQ301": "openqa_eval_nq301/judgements.jsonl",
    "Czech SimpleQA": "czech_simpleqa_graded/graded.jsonl",
    "TruthfulQA judged": "truthfulqa_judged/judgements.jsonl.gz",
}
DECLINED = {
    "FActScore": "factscore_abstain/responses.jsonl",
    "XSTest": "xstest/completions.jsonl",
}
FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures"
RESAMPLES = 1_000


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def rows_of(path: Path) -> list[Row]:
    """The rows of a `.jsonl`, compressed or not."""
    return list(read_rows(str(path)))


def held_out(row: Row) -> bool:
    """Whether a row's question was out of view when the rules were written."""
    return hashlib.sha256(str(row["group_id"]).encode()).digest()[0] % 2 == 1


# -- Graders ------------------------------------------------------------------------------------------


def token_f1(text: str, answer: str) -> float:
    """SQuAD's F1 of the words that two normalised texts share."""
    said, wanted = normalize_answer(text).split(), normalize_answer(answer).split()
    shared = sum((Counter(said) & Counter(wanted)).values())
    return 2 * shared / (len(said) + len(wanted)) if shared else 0.0


def contains(text: str, answer: str) -> bool:
    """Whether the normalised answer stands in the normalised text as whole words."""
    wanted = normalize_answer(answer)
    return bool(wanted) and f" {wanted} " in f" {normalize_answer(text)} "


def verdicts(rows: Sequence[Row], people: np.ndarray, *, truthful: bool) -> dict[str, np.ndarray]:
    """What each grader says about each row, True for correct; `truthful` counts an abstention as right."""
    pairs = [(row["prediction"], row["gold"]) for row in rows]
    grade = Grader(form="sentence")
    labels = [grade(row["question"], row["prediction"], row["gold"]).label for row in rows]
    overlap = np.array([max((token_f1(text, gold) for gold in golds), default=0.0) for text, golds in pairs])
    steps = np.arange(0.0, 1.01, 0.05)
    best = max(steps, key=lambda step: float(np.mean((overlap >= step) == people)))
    equal = [any(normalize_answer(text) == normalize_answer(gold) for gold in golds) for text, golds in pairs]
    return {
        "factrl, sentence form": np.array(
            [label == "correct" or (truthful and label == "abstained") for label in labels]
        ),
        "factrl, short form": np.array(
            [equals(row["prediction"], row["gold"], row["question"]) is not None for row in rows]
        ),
        "exact match": np.array(equal),
        "token F1 ≥ 0.5": overlap >= 0.5,
        f"token F1 ≥ {best:.2f} (oracle)": overlap >= best,
        "gold in the text": np.array([any(contains(text, gold) for gold in golds) for text, golds in pairs]),
    }


# -- Agreement ----------------------------------------------------------------------------------------


def scores(cells: np.ndarray) -> np.ndarray:
    """Agreement, F1 of "correct" and Cohen's kappa, `(R, 3)`, of counts `(R, 4)`: tp, fp, fn, tn."""
    tp, fp, fn, tn = np.moveaxis(cells.astype(float), -1, 0)
    n = tp + fp + fn + tn
    agreed = (tp + tn) / n
    chance = ((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)) / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        f1 = np.where(tp > 0, 2 * tp / (2 * tp + fp + fn), 0.0)
        kappa = np.where(chance < 1, (agreed - chance) / (1 - chance), 0.0)
    return np.stack([agreed, f1, kappa], axis=-1)


def cells_of(said: np.ndarray, people: np.ndarray) -> np.ndarray:
    """One-hot tp, fp, fn, tn of each row, `(N, 4)`."""
    return np.stack([said & people, said & ~people, ~said & people, ~said & ~people], axis=-1)


def by_group(cells: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """Cells summed by question, `(G, 4)`."""
    index = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    total = np.zeros((len(index), cells.shape[1]))
    np.add.at(total, [index[group] for group in groups], cells)
    return total


def intervals(total: np.ndarray, other: np.ndarray | None = None, seed: int = 0) -> list[str]:
    """Point and 95 % limits of the three scores, or of their differences on the same questions, in points."""
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(total), np.full(len(total), 1 / len(total)), size=RESAMPLES)

    def both(weights: np.ndarray) -> np.ndarray:
        mine = scores(weights @ total)
        return mine if other is None else mine - scores(weights @ other)

    point = both(np.ones((1, len(total))))[0]
    low, high = np.quantile(both(drawn), [0.025, 0.975], axis=0)
    sign = "" if other is None else "+"
    return [
        f"{100 * p:{sign}.1f} [{100 * a:{sign}.1f}, {100 * b:{sign}.1f}]"
        for p, a, b in zip(point, low, high, strict=True)
    ]


def graded(name: str, rows: Sequence[Row]) -> None:
    """Prints the table of one set."""
    if name == "Czech SimpleQA":
        people = np.array([row["grade"] == "correct" for row in rows])
    else:
        people = np.array([bool(row["human_correct"]) for row in rows])
    groups = [row["group_id"] for row in rows]
    said = verdicts(rows, people, truthful=name.startswith("TruthfulQA"))
    totals = {grader: by_group(cells_of(found, people), groups) for grader, found in said.items()}
    _say(f"\n### {name}: {len(rows)} answers to {len(set(groups))} questions, {people.mean():.1%} right\n")
    _say("| grader | agreement | F1 | kappa | ours minus it |\n|---|---|---|---|---|")
    ours = totals["factrl, sentence form"]
    for grader, total in totals.items():
        gain = "" if total is ours else intervals(ours, total)[0]
        _say(f"| {grader} | {' | '.join(intervals(total))} | {gain} |")
    if any(row["meta"].get("auto_judges") for row in rows):
        _models(rows, people)
    if rows[0]["model"]:
        _systems(rows, said, people)


def _models(rows: Sequence[Row], people: np.ndarray) -> None:
    """The verdicts of model judges that the set comes with."""
    for judge in ("bem", "instructgpt", "gpt4"):
        kept = [i for i, row in enumerate(rows) if row["meta"]["auto_judges"].get(judge)]
        said = np.array([rows[i]["meta"]["auto_judges"][judge]["verdict"] == "Yes" for i in kept])
        total = by_group(cells_of(said, people[kept]), [rows[i]["group_id"] for i in kept])
        _say(f"| {judge} of the paper ({len(kept)} rows) | {' | '.join(intervals(total))} | |")


def _systems(rows: Sequence[Row], said: Mapping[str, np.ndarray], people: np.ndarray) -> None:
    by_system: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        by_system[row["model"]].append(place)
    _say("\n| system | answers | right | " + " | ".join(said) + " | our kappa |")
    _say("|---" * (len(said) + 4) + "|")
    for system, places in by_system.items():
        agreed = [f"{np.mean(found[places] == people[places]):.1%}" for found in said.values()]
        ours = cells_of(said["factrl, sentence form"][places], people[places]).sum(axis=0)
        kappa = scores(ours[None])[0, 2]
        share = people[places].mean()
        _say(f"| {system} | {len(places)} | {share:.1%} | {' | '.join(agreed)} | {kappa:.2f} |")


# -- Abstention ---------------------------------------------------------------------------------------


def macro_f1(truth: np.ndarray, found: np.ndarray) -> float:
    """The mean of the F1 of both classes."""
    return float(
        np.mean(
            [scores(cells_of(a, b).sum(axis=0)[None])[0, 1] for a, b in ((found, truth), (~found, ~truth))]
        )
    )


def abstention(name: str, rows: Sequence[tuple[str, str, bool]]) -> None:
    """Prints one line of the table of abstentions, of (question, text, whether it abstains)."""
    labels = np.array([truth for _, _, truth in rows])
    started = time.process_time()
    found = np.array([abstains(text, question or None) for question, text, _ in rows])
    taken = 1000 * (time.process_time() - started) / max(len(rows), 1)
    rng = np.random.default_rng(0)
    drawn = [
        macro_f1(labels[some], found[some])
        for some in rng.integers(len(labels), size=(RESAMPLES, len(labels)))
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    hits, false = int((labels & found).sum()), int((~labels & found).sum())
    precision, recall = hits / max(hits + false, 1), hits / max(labels.sum(), 1)
    _say(
        f"| {name} | {len(rows)} | {macro_f1(labels, found):.3f} [{low:.3f}, {high:.3f}] | {precision:.1%} | "
        f"{recall:.1%} | {hits} of {labels.sum()} | {false} of {(~labels).sum()} | {taken:.2f} |"
    )


def abstentions(data: Path) -> None:
    """Prints the table of abstentions."""
    _say(
        "\n### Abstentions\n\n"
        "| set | texts | macro-F1 | precision | recall | found | answers taken for one | ms a text |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    fixtures = rows_of(FIXTURES / "abstention.jsonl")
    for split in ("dev", "test"):
        kept = [("", row["text"], row["label"] == "abstain") for row in fixtures if row["split"] == split]
        abstention(f"fixtures, {split}", kept)
    for path in sorted(FIXTURES.glob("abstention_*.jsonl")):
        name, rows = path.stem.removeprefix("abstention_"), rows_of(path)
        parts = {name: rows}
        for key in ("length", "lang", "kind"):
            for part, count in Counter(row.get(key) for row in rows).items():
                if part and count >= 4 and name != "written":
                    parts[f"{name}, {part}"] = [row for row in rows if row.get(key) == part]
        for part, kept in parts.items():
            told = [(row["question"], row["text"], row["label"] in ("abstain", "abstention")) for row in kept]
            abstention(part, told)
    for name, path in DECLINED.items():
        yes, no = ("abstention", "answer") if name == "FActScore" else ("refusal", "compliance")
        rows = [row for row in rows_of(data / path) if row["label"] in (yes, no)]
        for how in ("with its question", "alone"):
            told = [
                (row["prompt"] if how != "alone" else "", row["response"], row["label"] == yes)
                for row in rows
            ]
            abstention(f"{name}, {how}", told)


def main() -> None:
    """Prints all tables as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--held-out", action="store_true", help="only questions the rules were not written with"
    )
    chosen = parser.parse_args()
    folder = os.environ.get("FACTRL_DATA")
    if not folder:
        raise SystemExit("set FACTRL_DATA to the folder with the public sets, for instance FACTRL_DATA=data")
    for name, path in GRADED.items():
        rows = [row for row in rows_of(Path(folder) / path) if any(gold.strip() for gold in row["gold"])]
        graded(name, [row for row in rows if held_out(row)] if chosen.held_out else rows)
    if not chosen.held_out:
        abstentions(Path(folder))


if __name__ == "__main__":
    main()
