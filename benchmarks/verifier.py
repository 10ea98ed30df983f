"""How often the embedded judges agree with people, on seven human-labelled sets that carry evidence.

    python benchmarks/verifier.py --data FOLDER --scores FILE [--per-set N] [--only weak,llama] [--fit FOLDER]

The sets are those of the folder named by FACTRL_DATA or `--data`.  A pair is supported when its label says
so, and not supported when its evidence refutes the claim, says nothing about it or supports only a part.
Half of a sample is supported.  A claim of several sentences (only the summaries are) is judged sentence by
sentence and is as supported as the weakest one, as the verifier does it.

Judging is the slow part (0.7 CPU seconds per claim for the language model, or 2 to 4 by llama.cpp), so raw
scores are kept in `--scores` and judged only once; everything in the tables is computed from that file.  What
is fitted is fitted on other documents than it is tested on.  `--only weak,local,llama` puts the same model
through llama.cpp beside it, claim by claim.  `--fit` writes the calibrations that the package ships.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from factrl.llm.local.llama import JUDGE, LlamaModel
from factrl.runs.rows import read_lines, read_rows
from factrl.text.sentences import sentences
from factrl.types import Claim, Passage
from factrl.verifier.judges.local import ALONE, Calibration, LocalJudge, features_of, prompt_digest
from factrl.verifier.judges.overlap import ENOUGH, apart, compare, lacks

FILES = {
    "wice": ("oracle_chunks_dev.jsonl", "oracle_chunks_test.jsonl"),
    "factcheck_gpt": ("stance.jsonl",),
    "nli_small": ("mnli.jsonl", "vitaminc.jsonl"),
    "esnli_sample": ("dev.jsonl", "test.jsonl"),
    "summedits": ("summaries.jsonl.gz",),
    "bump": ("summaries.jsonl.gz",),
    "wikibio_hallucination": ("sentences.jsonl",),
}
Truth = Literal["supported", "refuted", "unknown", "unsupported"]
TRUTH: dict[str, Truth] = {
    "supported": "supported",
    "refuted": "refuted",
    "not_enough_info": "unknown",
    "unsupported": "unsupported",
    "partially_supported": "unsupported",
}
SUMMARIES = {"summedits", "bump"}
PILOT = 8  # one document in so many was used to choose the prompt, and is not in any sample
FOLDS = 10
RESAMPLES = 1000


@dataclass
class Item:
    """One labelled claim and what the judges' models said about its sentences."""

    id: str
    set: str
    group: str
    label: str
    claim: str
    passages: list[Passage]
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    rows: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    @property
    def supported(self) -> bool:
        return self.label == "supported"


# -- Data ---------------------------------------------------------------------------------------------


def load(folder: Path, name: str) -> list[Item]:
    """The labelled claims of a set; WiCE's three views of one claim are one claim with three passages."""
    found: dict[str, Item] = {}
    for file in FILES[name]:
        for row in read_rows(str(folder / name / file)):
            if row["label"] not in TRUTH:
                continue
            key = row["meta"]["claim_id"] if name == "wice" else row["id"]
            passages = [Passage(e["text"], e["title"], e["source"] or "") for e in row["evidence"]]
            if key in found:
                found[key].passages += passages
            else:
                found[key] = Item(row["id"], name, str(row["group_id"]), row["label"], row["claim"], passages)
    return [item for item in found.values() if not in_pilot(item.group)]


def in_pilot(group: str) -> bool:
    """Whether a document was used to choose the prompt."""
    return int(hashlib.sha256(f"pilot{group}".encode()).hexdigest()[:8], 16) % PILOT == 0


def sample(items: Sequence[Item], size: int, seed: int = 0) -> list[Item]:
    """Half supported, the other half spread evenly over the other labels, over many documents."""
    by_label: dict[str, list[Item]] = defaultdict(list)
    for item in random.Random(seed).sample(sorted(items, key=lambda item: item.id), len(items)):
        by_label[item.label].append(item)
    positive = _over_groups(by_label.pop("supported"))[: size // 2]
    others = [_over_groups(rest) for _, rest in sorted(by_label.items())]
    negative: list[Item] = []
    while any(others) and len(negative) < size // 2:
        for rest in others:
            if rest and len(negative) < size // 2:
                negative.append(rest.pop(0))
    return positive + negative


def _over_groups(items: Iterable[Item]) -> list[Item]:
    """The first of every document, then the second of every document, and so on."""
    seen: dict[str, int] = defaultdict(int)
    turns = []
    for item in items:
        turns.append((seen[item.group], item))
        seen[item.group] += 1
    return [item for _, item in sorted(turns, key=lambda turn: turn[0])]


def parts(item: Item) -> list[Claim]:
    """What is judged of an item: a summary's sentences, or the claim."""
    text = item.claim
    spans = [(s.start, s.end) for s in sentences(text)] if item.set in SUMMARIES else []
    return [Claim(text[a:b], a, b) for a, b in spans] or [Claim(text, 0, len(text))]


# -- Scores -------------------------------------------------------------------------------------------


def score(items: Sequence[Item], path: Path, only: Sequence[str]) -> None:
    """Fill in what the judges' models say, from the file or by asking them; the file grows as they answer."""
    known: dict[tuple[str, str], list[dict[str, float]]] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        for row in read_lines(path):
            known[row["judge"], row["id"]] = row["parts"]
    judges: dict[str, Callable[[], Any]] = {
        "weak": lambda: lambda pairs: [words_in_common(one.text, held) for one, held in pairs],
        "local": lambda: partial(local_features, LocalJudge()),
        "llama": lambda: partial(local_features, LocalJudge(LlamaModel(JUDGE))),
    }
    for name in only:
        missing = [item for item in items if (name, item.id) not in known]
        if not missing:
            continue
        features = judges[name]()
        started = time.process_time()
        with path.open("a", encoding="utf-8") as file:
            for count, item in enumerate(missing, start=1):
                rows = features([(claim, item.passages) for claim in parts(item)])
                known[name, item.id] = [row for row in rows if row is not None]
                file.write(json.dumps({"judge": name, "id": item.id, "parts": known[name, item.id]}) + "\n")
                file.flush()
                if count % 50 == 0 or count == len(missing):
                    claims = sum(len(known[name, done.id]) for done in missing[:count])
                    spent = (time.process_time() - started) / max(claims, 1)
                    sys.stderr.write(f"{name}: {count} of {len(missing)}, {spent:.2f} CPU s a claim\n")
    for name, item in ((name, item) for name in only for item in items):
        if known.get((name, item.id)):
            item.scores[name], item.rows[name] = weakest(known[name, item.id]), known[name, item.id]


def local_features(judge: LocalJudge, pairs: Sequence[Any]) -> list[dict[str, float] | None]:
    """What the calibration sees of pairs with evidence; None for one that is too long."""
    held = [[(claim.text, one) for one in apart(claim.text, passages, ALONE)] for claim, passages in pairs]
    rows = iter(judge.logprobs([*chain(*held)]))
    found = []
    for own in held:
        each = [
            None if np.isnan(row).any() else features_of(compare(*one), row)
            for one, row in zip(own, rows)  # noqa: B905 (the rows go on)
        ]
        read = [features for features in each if features is not None]
        found.append(max(read, key=lambda one: judge.calibration.decide(one)[1], default=None))
    return found


def words_in_common(claim: str, passages: Sequence[Passage]) -> dict[str, float]:
    """The comparison with the passage that holds most of the claim's words."""
    each = [compare(claim, one)[0] for one in apart(claim, passages, ALONE)] or [compare(claim, [])[0]]
    return max(each, key=lambda features: features["covered"])


def weakest(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The scores of the sentence that is supported least: by the model, or by the words that it shares."""
    return min(rows, key=lambda row: row.get("supports", row["covered_best"]))


# -- Predictions --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicted:
    """Probabilities of support for every item, and which are called supported."""

    p: np.ndarray
    supported: np.ndarray


def raw(items: Sequence[Item]) -> Predicted:
    """The model's own odds: the likeliest of its three answers."""
    supports = np.array([item.scores["local"]["supports"] for item in items])
    contradicts = np.array([item.scores["local"]["contradicts"] for item in items])
    p = 1 / (1 + np.exp(-supports))
    # P(No) / P(No or Unknown): the answer is Yes when it is likelier than either of them.
    of_others = 1 / (1 + np.exp(-np.abs(contradicts)))
    return Predicted(p, p > (1 - p) * of_others)


def fitted(
    items: Sequence[Item], judge: str, features: Sequence[str] | None, apart: Callable[[Item], Any]
) -> Predicted:
    """Calibrated on all items but those that `apart` puts with the one that is tested."""
    folds = defaultdict(list)
    for index, item in enumerate(items):
        folds[apart(item)].append(index)
    p = np.zeros(len(items))
    for members in folds.values():
        held_out = {*members}
        model = fit(rows_of([item for i, item in enumerate(items) if i not in held_out], judge, features))
        for index in members:
            p[index] = model.decide(items[index].scores[judge])[1]
    return Predicted(p, p >= 0.5)


def weak(items: Sequence[Item]) -> Predicted:
    """The weak judge's own rule; it gives no probability."""
    scores = [item.scores["weak"] for item in items]
    said = np.array([not lacks(one) and one["covered"] >= ENOUGH for one in scores])
    return Predicted(said.astype(float), said)


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled pair: what its evidence and claim have in numbers, the same names in every row."""

    features: Mapping[str, float]
    label: Truth
    weight: float = 1.0


def fit(rows: Sequence[Row]) -> Calibration:
    """Fit a calibration on labelled pairs; `unsupported` is refuted or unknown, without saying which."""
    from sklearn.linear_model import LogisticRegression

    names = tuple(rows[0].features)
    values = np.array([[row.features[name] for name in names] for row in rows])
    weights = np.array([row.weight for row in rows])
    mean = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    scale = np.where(scale > 0, scale, 1.0)  # a feature that is the same everywhere says nothing

    def line(members: Sequence[int], truth: Sequence[bool]) -> dict[str, Any]:
        model = LogisticRegression(max_iter=1000)
        chosen = np.array(members)
        model.fit((values[chosen] - mean) / scale, truth, sample_weight=weights[chosen])
        weights_of, bias = np.asarray(model.coef_)[0], np.asarray(model.intercept_)[0]
        return {"weights": _rounded(weights_of), "bias": round(float(bias), 6)}

    known = [index for index, row in enumerate(rows) if row.label in ("refuted", "unknown")]
    refuted = [rows[index].label == "refuted" for index in known]
    return Calibration(
        names,
        _rounded(mean),
        _rounded(scale),
        line(range(len(rows)), [row.label == "supported" for row in rows]),
        line(known, refuted) if any(refuted) and not all(refuted) else {"weights": (), "bias": -99.0},
    )


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)


def rows_of(items: Sequence[Item], judge: str, features: Sequence[str] | None = None) -> list[Row]:
    """Rows for a fit in which every set counts the same, and supported as much as not supported."""
    size: dict[tuple[str, bool], int] = defaultdict(int)
    for item in items:
        size[item.set, item.supported] += 1
    share = len(items) / len(size)
    return [
        Row(
            {name: item.scores[judge][name] for name in features or item.scores[judge]},
            TRUTH[item.label],
            share / size[item.set, item.supported],
        )
        for item in items
    ]


def fold(item: Item) -> int:
    """A tenth of the documents."""
    return int(hashlib.sha256(item.group.encode()).hexdigest()[:8], 16) % FOLDS


# -- Figures ------------------------------------------------------------------------------------------


def balanced(truth: np.ndarray, said: np.ndarray) -> float:
    """Mean of the shares of supported and of not supported claims that are told right."""
    return float((said[truth].mean() + (~said[~truth]).mean()) / 2)


def ece(truth: np.ndarray, p: np.ndarray) -> float:
    """Expected calibration error over ten bins of equal width."""
    bins = np.minimum((p * 10).astype(int), 9)
    return float(sum(abs(truth[bins == b].sum() - p[bins == b].sum()) for b in range(10)) / len(p))


def resampled(truth: np.ndarray, said: np.ndarray, groups: Sequence[str], seed: int = 0) -> np.ndarray:
    """Balanced accuracy of `RESAMPLES` samples of documents, drawn with replacement."""
    names = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    of = np.array([names[group] for group in groups])
    counts = np.zeros((4, len(names)))
    for row, chosen in enumerate((truth & said, truth, ~truth & ~said, ~truth)):
        np.add.at(counts[row], of[chosen], 1)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
    right_yes, yes, right_no, no = (draws @ row for row in counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num((right_yes / yes + right_no / no) / 2, nan=0.5)


def cell(values: tuple[float, np.ndarray]) -> str:
    """A figure with its interval, in percent."""
    low, high = np.percentile(values[1], [2.5, 97.5])
    return f"{100 * values[0]:.0f} ({100 * low:.0f}-{100 * high:.0f})"


def report(items: Sequence[Item]) -> str:
    """The tables, in Markdown."""
    methods = {
        "majority class": Predicted(np.full(len(items), 0.5), np.zeros(len(items), bool)),
        "word overlap, threshold fitted": fitted(items, "weak", ["covered"], fold),
        "weak": weak(items),
    }
    local, llama = (all(name in item.scores for item in items) for name in ("local", "llama"))
    if local:
        only = ["supports", "contradicts"]
        methods["local, likeliest answer"] = raw(items)
        methods["**local, calibrated**"] = fitted(items, "local", None, fold)
        methods["local, calibrated on the other sets"] = fitted(items, "local", None, lambda item: item.set)
        methods["local, calibrated without words"] = fitted(items, "local", only, fold)
    if llama:
        methods["llama.cpp, calibrated"] = fitted(items, "llama", None, fold)
    tables = [_accuracy_table(items, methods), _detail_table(items, methods), _sure_table(items, methods)]
    tables += ([_three_way(items)] if local else []) + ([_beside(items)] if local and llama else [])
    return "\n\n".join("\n".join(table) for table in tables)


def _accuracy_table(items: Sequence[Item], methods: dict[str, Predicted]) -> list[str]:
    """Balanced accuracy per set and on average; then the average without partly supported claims."""
    sets = [name for name in FILES if any(item.set == name for item in items)]
    truth = np.array([item.supported for item in items])
    whole = np.array([item.label != "partially_supported" for item in items])
    counts = [f"{name} ({sum(item.set == name for item in items)})" for name in sets]
    lines = [
        f"| judge | {' | '.join(counts)} | average | without partly supported |",
        f"|---|{'---|' * (len(sets) + 2)}",
    ]
    for label, predicted in methods.items():
        values = []
        lenient = []
        for name in sets:
            of = np.array([item.set == name for item in items])
            groups = [item.group for item in items if item.set == name]
            values.append(
                (
                    balanced(truth[of], predicted.supported[of]),
                    resampled(truth[of], predicted.supported[of], groups),
                )
            )
            lenient.append(balanced(truth[of & whole], predicted.supported[of & whole]))
        average = (float(np.mean([v for v, _ in values])), np.mean([draws for _, draws in values], axis=0))
        cells = [cell(value) for value in (*values, average)]
        lines.append(f"| {label} | {' | '.join(cells)} | {100 * np.mean(lenient):.0f} |")
    return lines


def _detail_table(items: Sequence[Item], methods: dict[str, Predicted]) -> list[str]:
    """Precision and recall of "supported" and calibration error, of each set, then averaged."""
    truth = np.array([item.supported for item in items])
    sets = [name for name in FILES if any(item.set == name for item in items)]
    lines = [
        f"| precision / recall / ECE | {' | '.join(sets)} | average | ECE of all |",
        f"|---|{'---|' * (len(sets) + 2)}",
    ]
    for label, predicted in methods.items():
        if label == "majority class":
            continue
        rows = []
        for name in sets:
            of = np.array([item.set == name for item in items])
            said, true = predicted.supported[of], truth[of]
            precision = (said & true).sum() / max(said.sum(), 1)
            rows.append((precision, said[true].mean(), ece(true, predicted.p[of])))
        rows.append(tuple(np.mean(rows, axis=0)))
        cells = [f"{100 * a:.0f} / {100 * b:.0f} / {c:.2f}" for a, b, c in rows]
        lines.append(f"| {label} | {' | '.join(cells)} | {ece(truth, predicted.p):.2f} |")
    return lines


def _sure_table(items: Sequence[Item], methods: dict[str, Predicted]) -> list[str]:
    """What a judge would decide as the first of a cascade, and how often it would be right."""
    truth = np.array([item.supported for item in items])
    levels = (0.7, 0.8, 0.9)
    lines = [
        f"| decided / right when at least so sure | {' | '.join(f'{level:.0%}' for level in levels)} |",
        f"|---|{'---|' * len(levels)}",
    ]
    for label in ("weak", "**local, calibrated**"):
        if label in methods:
            predicted = methods[label]
            cells = []
            for level in levels:
                sure = np.maximum(predicted.p, 1 - predicted.p) >= level
                right = (predicted.supported == truth)[sure]
                cells.append(f"{sure.mean():.0%} / {right.mean() if sure.any() else 0:.0%}")
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _three_way(items: Sequence[Item]) -> list[str]:
    """Supported, refuted or unknown, where people said which."""
    known = [index for index, item in enumerate(items) if TRUTH[item.label] != "unsupported"]
    known = [
        index for index in known if items[index].set not in (*SUMMARIES, "wice", "wikibio_hallucination")
    ]
    said: dict[int, str] = {}
    for number in range(FOLDS):
        model = fit(rows_of([item for item in items if fold(item) != number], "local"))
        for index in known:
            if fold(items[index]) == number:
                said[index] = model.decide(items[index].scores["local"])[0]
    labels = ("supported", "refuted", "unknown")
    lines = ["| people say (three-way sets) | judge: supported | refuted | unknown |", "|---|---|---|---|"]
    recalls = []
    for label in labels:
        of = [index for index in known if TRUTH[items[index].label] == label]
        counts = [sum(said[index] == other for index in of) for other in labels]
        recalls.append(counts[labels.index(label)] / max(len(of), 1))
        lines.append(f"| {label} | {' | '.join(map(str, counts))} |")
    return [*lines, "", f"Mean recall of the three: {100 * np.mean(recalls):.0f} %."]


def _beside(items: Sequence[Item]) -> list[str]:
    """How far apart the model in this process and llama.cpp are on the same claims, by what is shipped."""
    shipped = Calibration.shipped()
    pairs = [
        tuple(shipped.decide(row)[1] for row in rows)
        for item in items
        if len(item.rows["local"]) == len(item.rows["llama"])
        for rows in zip(item.rows["local"], item.rows["llama"], strict=True)
    ]
    p = np.array(pairs)
    apart = np.abs(p[:, 0] - p[:, 1])
    other = int(((p[:, 0] >= 0.5) != (p[:, 1] >= 0.5)).sum())
    return [
        f"p here and by llama.cpp, {len(p)} claims: apart by {apart.mean():.3f} on average, "
        f"{np.median(apart):.3f} the median, {apart.max():.3f} at most; "
        f"{(apart <= 0.02).mean():.0%} within 0.02; {other} on the other side of a half."
    ]


# -- The shipped calibrations -------------------------------------------------------------------------


def ship(items: Sequence[Item], folder: Path, data: Path) -> None:
    """Fit on all items and write `local.json`."""
    sources = {
        name: {
            "pairs": sum(item.set == name for item in items),
            "licence": json.loads((data / name / "SOURCE.json").read_text("utf-8"))["licence"],
        }
        for name in FILES
    }
    folder.mkdir(parents=True, exist_ok=True)
    note = "fitted by benchmarks/verifier.py; every set and class counts the same"
    about = {"how": note, "sets": sources, "model": JUDGE, "prompt": prompt_digest()}
    content = {**asdict(fit(rows_of(items, "local"))), "provenance": about}
    (folder / "local.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def main() -> None:
    """Score what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("FACTRL_DATA"), help="the staged data")
    parser.add_argument("--scores", type=Path, default=Path("build/verifier.jsonl"), help="raw scores, kept")
    parser.add_argument("--per-set", type=int, default=100, help="claims of each set")
    parser.add_argument("--only", default="weak,local", help="judges, separated by commas")
    parser.add_argument("--fit", type=Path, help="write the calibrations into this folder")
    options = parser.parse_args()
    if not options.data:
        parser.error("name the folder with the data: --data FOLDER, or set FACTRL_DATA")
    data = Path(options.data)
    items = [item for name in FILES for item in sample(load(data, name), options.per_set)]
    score(items, options.scores, options.only.split(","))
    items = [item for item in items if all(judge in item.scores for judge in options.only.split(","))]
    if options.fit:
        ship(items, options.fit, data)
    sys.stdout.write(report(items) + "\n")


if __name__ == "__main__":
    main()
