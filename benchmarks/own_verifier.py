"""How often a verifier of our own agrees with people, on documents that it never saw, beside the others.

    python benchmarks/own_verifier.py --data FOLDER --model runs/verifier/own --scores FILE \\
        [--rows runs/verifier/rows.jsonl.gz] [--packages FOLDER] [--per-set N] [--parts-seed N] \\
        [--judge-local] [--kinds-local N]

The claims are those of `verifier.py` (the same sample, and the same file of raw scores, so that the local
language model is asked only once) without the documents that the verifier learnt from or was calibrated on;
WiCE and Factcheck-GPT are held out whole.  The thresholds of the weak judges and of the cosine are fitted on
other documents of the same sets, which favours them; the verifier comes with its own calibration.

Speed is pairs per CPU second on one thread.  `--rows` adds the table by kind of error, on rows made from
held-out passages; `--packages` adds RTE and CB, which no part of the verifier has seen.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from verifier import (
    FILES,
    Item,
    Predicted,
    balanced,
    cell,
    fitted,
    load,
    parts,
    raw,
    resampled,
    sample,
    score,
)

from factrl.judges.overlap import nearest_pieces, pieces_of
from factrl.judges.own import OwnJudge
from factrl.local.own_verifier import CARD, OwnVerifier
from factrl.rows import json_lines
from factrl.tuning.reliability import reliability
from factrl.tuning.verifier_rows import Pair, part_of, read_pairs
from factrl.tuning.verifier_sources import HUMAN_SHARES, SOURCES, Where, entailments
from factrl.tuning.verifier_swaps import KINDS
from factrl.types import Passage

SURE = (0.65, 0.8)  # from which on a cascade keeps the verifier's word
LEARNT = {source.name for source in SOURCES if source.human}
BASELINES = ("weak", "embedded")
_STAGED = {"unknown": "not_enough_info"}  # as the staged sets call it
_NEAREST = 64  # sentences of a claim's evidence that are embedded


@dataclass(frozen=True)
class Speed:
    """CPU seconds and pairs of one judge on one thread."""

    seconds: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.pairs / self.seconds:.1f}" if self.seconds else "-"


# -- Judges -------------------------------------------------------------------------------------------


def ask_own(items: Sequence[Item], judge: OwnJudge) -> Speed:
    """Fill in what the verifier says of each item's least supported sentence."""
    asked = [(item, claim) for item in items for claim in parts(item)]
    started = time.process_time()
    features = judge.features([(claim, item.passages) for item, claim in asked])
    spent = time.process_time() - started
    for (item, _), found in zip(asked, features, strict=True):
        before = item.scores.get("own")
        if found is not None and (before is None or found["supports"] < before["supports"]):
            item.scores["own"] = found
    return Speed(spent, len(asked))


def ask_cosine(items: Sequence[Item], encode: Callable[[Sequence[str]], np.ndarray]) -> Speed:
    """Fill in the highest cosine of each item's least supported sentence with a sentence of its evidence."""
    started, count = time.process_time(), 0
    for item in items:
        found = []
        pieces = pieces_of(item.passages)
        for claim in parts(item):
            near = [piece.text for piece in nearest_pieces(claim.text, pieces, _NEAREST)]
            rows = encode([claim.text, *near])
            found.append(float((rows[1:] @ rows[0]).max()) if near else 0.0)
            count += 1
        item.scores["cosine"] = {"likeness": min(found)}
    return Speed(time.process_time() - started, count)


def own(items: Sequence[Item], judge: OwnJudge) -> Predicted:
    """The verifier's calibrated word."""
    p = np.array([judge.calibration.probabilities(item.scores["own"])[0] for item in items])
    return Predicted(p, p >= 0.5)


def cascade(first: Predicted, second: Predicted, sure: float) -> tuple[Predicted, float]:
    """The first judge where it is sure, else the second; and how often the second was asked."""
    kept = np.maximum(first.p, 1 - first.p) >= sure
    found = Predicted(np.where(kept, first.p, second.p), np.where(kept, first.supported, second.supported))
    return found, float((~kept).mean())


# -- Tables -------------------------------------------------------------------------------------------


def unseen(items: Sequence[Item], seed: int) -> list[Item]:
    """Those whose document was not learnt from and not calibrated on."""
    return [
        item
        for item in items
        if item.set not in LEARNT or part_of(item.group, seed, HUMAN_SHARES) == "report"
    ]


def accuracy_table(
    items: Sequence[Item], methods: dict[str, Predicted], speeds: dict[str, Speed]
) -> list[str]:
    """Balanced accuracy of each set, and balanced accuracy, AUC and ECE on average over the sets."""
    sets = list(dict.fromkeys(item.set for item in items))
    truth = np.array([item.supported for item in items])
    counts = [f"{name} ({sum(item.set == name for item in items)})" for name in sets]
    lines = [
        f"| judge | {' | '.join(counts)} | average | AUC | ECE | pairs per CPU second |",
        f"|---|{'---|' * (len(sets) + 4)}",
    ]
    for label, predicted in methods.items():
        cells, others = [], []
        for name in sets:
            of = np.array([item.set == name for item in items])
            groups = [item.group for item in items if item.set == name]
            said, true = predicted.supported[of], truth[of]
            cells.append((balanced(true, said), resampled(true, said, groups)))
            found = reliability(predicted.p[of], true.tolist(), groups, resamples=1).metrics
            values = (found["auc"], found["ece"])
            others.append([value.value if value else np.nan for value in values])
        mean = (float(np.mean([v for v, _ in cells])), np.mean([draws for _, draws in cells], axis=0))
        auc, ece = np.nanmean(others, axis=0)
        shown = " | ".join(cell(value) for value in (*cells, mean))
        lines.append(f"| {label} | {shown} | {auc:.3f} | {ece:.3f} | {speeds.get(label, '-')} |")
    return lines


def kinds_table(
    rows: Sequence[Pair],
    judge: OwnJudge,
    encode: Callable[[Sequence[str]], np.ndarray],
    scores: Path,
    ask: int | None,
) -> list[str]:
    """Share of the errors of each kind that are not called supported, and AUC against true claims.

    Args:
        ask: rows of each kind that the local model is asked about as well; None asks it nothing.
    """
    items = [
        Item(
            f"{row.id} {hashlib.sha256(row.words.encode()).hexdigest()[:12]}",  # other seeds, other rows
            row.kind,
            row.group,
            _STAGED.get(row.label, row.label),
            row.claim,
            [Passage(row.evidence)],
        )
        for row in rows
        if row.part == "report" and not row.human and row.kind
    ]
    score(items, scores, ["weak"])
    ask_cosine(items, encode)
    ask_own(items, judge)
    items = [item for item in items if "own" in item.scores and "weak" in item.scores]
    fold = lambda item: hash_fold(item.group)  # noqa: E731
    lines = [
        f"| recall of errors / AUC | {' | '.join(KINDS)} | left out | true claims called supported |",
        f"|---|{'---|' * (len(KINDS) + 2)}",
        _kinds_row("weak", items, fitted(items, "weak", None, fold)),
        _kinds_row("cosine", items, fitted(items, "cosine", ["likeness"], fold)),
        _kinds_row("own", items, own(items, judge)),
        _kinds_row("rows", items, None),
    ]
    if ask is None:
        return lines
    few = _some_of_each(items, ask)
    score(few, scores, ["local"])
    few = [item for item in few if "local" in item.scores]
    return [
        *lines,
        _kinds_row("own, those that the local model was asked about", few, own(few, judge)),
        _kinds_row("local language model", few, raw(few)),
        _kinds_row(
            f"cascade, own first, sure {SURE[0]:g}", few, cascade(own(few, judge), raw(few), SURE[0])[0]
        ),
        _kinds_row("rows", few, None),
    ]


def _some_of_each(items: Sequence[Item], count: int) -> list[Item]:
    """So many of each kind of error, and twice as many that are true."""
    by: dict[str, list[Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: random.Random(item.id.rpartition(" ")[0]).random()):
        by["true" if _is_true(item) else item.set].append(item)
    return [
        item for kind in (*KINDS, "left out", "true") for item in by[kind][: count * (1 + (kind == "true"))]
    ]


def _is_true(item: Item) -> bool:
    """A clause of the passage as it is, or an edited one whose passage was edited too."""
    return item.set == "copy" or item.set.endswith("in evidence")


def _kinds_row(label: str, items: Sequence[Item], predicted: Predicted | None) -> str:
    """What a judge says of each kind of error; without one, how many there are."""
    true = np.array([_is_true(item) for item in items])
    cells = []
    for kind in (*KINDS, "left out"):
        of = np.array([item.set == kind for item in items])
        if predicted is None:
            cells.append(str(int(of.sum())))
            continue
        both = of | true
        found = reliability(predicted.p[both], true[both].tolist(), ["x"] * int(both.sum()), resamples=1)
        auc = found.metrics["auc"]
        cells.append(f"{100 * (~predicted.supported[of]).mean():.0f} / {auc.value:.2f}" if auc else "-")
    last = int(true.sum()) if predicted is None else f"{100 * predicted.supported[true].mean():.0f}"
    return f"| {label} | {' | '.join(cells)} | {last} |"


def hash_fold(group: str) -> int:
    """One of ten folds of documents."""
    return random.Random(group).randrange(10)


def entailment_items(where: Where) -> list[Item]:
    """RTE and CB as items."""
    return [
        Item(
            pair.id,
            name,
            pair.group,
            _STAGED.get(pair.label, pair.label),
            pair.claim,
            [Passage(pair.evidence)],
        )
        for name in ("rte", "cb")
        for pair in entailments(where, name)
    ]


def report(items: Sequence[Item], judge: OwnJudge, speeds: dict[str, Speed], local: bool) -> str:
    """The first table, on items that every judge has scored."""
    fold = lambda item: hash_fold(item.group)  # noqa: E731
    methods = {
        "weak": fitted(items, "weak", None, fold),
        "weak with potion": fitted(items, "embedded", None, fold),
        "cosine, MiniLM": fitted(items, "cosine", ["likeness"], fold),
        "**own**": own(items, judge),
    }
    notes: list[str] = []
    if local:
        methods["local language model"] = raw(items)
        methods["local, calibrated"] = fitted(items, "local", None, fold)
        for sure in SURE:
            both, asked = cascade(methods["**own**"], methods["local, calibrated"], sure)
            methods[f"cascade, own first, sure {sure:g}"] = both
            notes.append(f"At {sure:g} the cascade asks the model about {100 * asked:.0f} % of the claims.")
    return "\n".join([*accuracy_table(items, methods, speeds), "", *notes])


def main() -> None:
    """Score what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("FACTRL_DATA"), help="the staged data")
    parser.add_argument("--model", type=Path, required=True, help="folder that factrl tune verifier wrote")
    parser.add_argument("--scores", type=Path, default=Path("build/verifier.jsonl"), help="raw scores, kept")
    parser.add_argument("--rows", type=Path, help="rows.jsonl.gz of the run: adds the table by kind of error")
    parser.add_argument("--packages", type=Path, help="folder with the wheels: adds RTE and CB")
    parser.add_argument("--parts-seed", type=int, help="seed that the rows were made with, if another")
    parser.add_argument("--per-set", type=int, default=100, help="claims of each set, before the seen go")
    parser.add_argument(
        "--judge-local", action="store_true", help="ask the local model what it has not said yet"
    )
    parser.add_argument(
        "--kinds-local", type=int, help="rows of each kind of error to ask the local model about"
    )
    options = parser.parse_args()
    if not options.data:
        parser.error("name the folder with the data: --data FOLDER, or set FACTRL_DATA")
    from factrl.local.embed import MiniLM

    data, encode = Path(options.data), MiniLM(threads=1).encode
    model = OwnVerifier(options.model, threads=1)
    judge = OwnJudge(model)
    seed = options.parts_seed
    if seed is None:
        seed = json.loads((options.model / CARD).read_text("utf-8"))["seed"]
    items = unseen([item for name in FILES for item in sample(load(data, name), options.per_set)], seed)
    score(items, options.scores, BASELINES)
    if options.judge_local:
        score(items, options.scores, ["local"])
    else:
        known_local(items, options.scores)
    speeds = {"**own**": ask_own(items, judge), "cosine, MiniLM": ask_cosine(items, encode)}
    items = [item for item in items if all(name in item.scores for name in ("weak", "embedded", "own"))]
    sys.stdout.write("All unseen claims:\n\n" + report(items, judge, speeds, local=False) + "\n\n")
    with_local = [item for item in items if "local" in item.scores]
    if with_local:
        sys.stdout.write(
            "Those that the local model has judged:\n\n" + report(with_local, judge, speeds, True) + "\n\n"
        )
    if options.packages:
        rest = entailment_items(Where(data, options.packages, model.evidence_chars, seed, 1))
        score(rest, options.scores, BASELINES)
        ask_own(rest, judge)
        ask_cosine(rest, encode)
        sys.stdout.write("Entailment sets:\n\n" + report(rest, judge, {}, local=False) + "\n\n")
    if options.rows:
        rows = read_pairs([str(options.rows)], seed, {})
        sys.stdout.write(
            "Kinds of error, made rows:\n\n"
            + "\n".join(kinds_table(rows, judge, encode, options.scores, options.kinds_local))
            + "\n"
        )


def known_local(items: Sequence[Item], path: Path) -> None:
    """Fill in what the file has of the local model, and ask it nothing."""
    from verifier import weakest

    held: dict[str, Any] = defaultdict(list)
    if path.exists():
        for row in json_lines(path.read_bytes()):
            if row["judge"] == "local":
                held[row["id"]] = row["parts"]
    for item in items:
        if held[item.id]:
            item.scores["local"] = weakest(held[item.id])


if __name__ == "__main__":
    main()
