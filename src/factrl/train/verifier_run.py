"""The whole of `factrl tune verifier`: rows in, a folder with a small judge and its held-out numbers out.

Files of a run folder: `rows.jsonl.gz` and `sources.json` (rows made from staged sets, with licences and what
was left out), `judged.jsonl` (what a judge said of claims that it was asked to label), `held_out.jsonl`
(numbers on the way), `scores.jsonl` (logits of calibration and report rows), `metrics.json`, `weights` (for
torch), `own` (8-bit ONNX, what `verifier.judge=own:FOLDER` reads).
A run that was stopped, also by a kill, goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import models
from ..errors import ConfigError, DataError, MissingExtra
from ..journal import Journal
from ..judges.calibration import Calibration, Row, fit
from ..judges.own import features_of
from ..progress import Progress
from ..tuning.claim_rows import digest_of_rows
from ..tuning.verifier_card import model_card
from ..tuning.verifier_distilled import SOURCE as SAME_TITLE
from ..tuning.verifier_distilled import Teacher, distil
from ..tuning.verifier_numbers import Numbers, numbers_of
from ..tuning.verifier_rows import PARTS, Pair, Part, Seen, mixed, read_pairs, without_seen, write_pairs
from ..tuning.verifier_settings import VerifierSettings
from ..tuning.verifier_sources import SOURCES, Where, rows_of, seen_by, unjudged
from ..verifier.presets import open_judge
from .claim_models import base_folder
from .verifier_export import LARGEST, export
from .verifier_model import VerifierModel, score_pairs, train_verifier

ROWS, ABOUT, JUDGED, LIVE, SCORES, NUMBERS = (
    "rows.jsonl.gz",
    "sources.json",
    "judged.jsonl",
    "held_out.jsonl",
    "scores.jsonl",
    "metrics.json",
)
_SHARES: Mapping[Part, float] = {
    "report": 0.1,
    "calibrate": 0.05,
}  # of documents of rows that do not say their part


@dataclass(frozen=True)
class Parts:
    """Rows to learn from, to calibrate on and to report on."""

    train: Sequence[Pair]
    calibrate: Sequence[Pair]
    report: Sequence[Pair]


def tune_verifier(settings: VerifierSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """Tune a verifier and measure it on documents that it has not seen.

    The same call again goes on where the first one stopped, and changes nothing when it had finished.

    Returns:
        What `metrics.json` holds.

    Raises:
        SetupError: what the user must change.
        KeyboardInterrupt: stopped; the folder holds a checkpoint.
    """
    folder = Path(settings.run.dir)
    _check_packages(settings.export)
    folder.mkdir(parents=True, exist_ok=True)
    parts, sources = _parts(settings, folder, tell)
    told = settings.model_dump(exclude={"run": {"dir"}, "data": {"files", "folder", "packages"}})
    about = {
        "job": "tune verifier",
        "model": models.identity(base_folder(settings.model.name)),
        "rows": digest_of_rows((parts.train, parts.calibrate, parts.report)),
        "settings": told,
    }
    with Journal(folder / SCORES, about) as journal, Journal(folder / LIVE, about) as live:
        if not (folder / NUMBERS).is_file():
            model, steps, gone = _trained(settings, parts, folder, live, tell)
            calibration = _calibration(model, parts.calibrate, journal)
            found = _measured(model, parts.report, journal, calibration, settings.run.seed)
            found |= {"steps": steps, "over_length": gone.total(), "model": about["model"], "settings": told}
            found |= {"learnt": _counts(parts.train), "calibrated": len(parts.calibrate), "sources": sources}
            model.network.save_pretrained(folder / "weights")
            model.tokenizer.save_pretrained(folder / "weights")
            calibration.save(folder / "weights" / "calibration.json")
            if settings.export:
                found["bytes"] = _exported(settings, folder, calibration, found)
            (folder / NUMBERS).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return json.loads((folder / NUMBERS).read_text(encoding="utf-8"))


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """The numbers of `metrics.json` as rows of a table, the first of them its head."""
    rows = [["held-out documents", "rows", "balanced accuracy", "AUC", "ECE", "three-way"]]
    for name, numbers in {"all": found["all"], **found["sets"], **found["kinds"]}.items():
        cells = (numbers[key] for key in ("balanced", "auc", "ece", "three_way"))
        rows.append([name, str(numbers["n"]), *("-" if cell is None else f"{cell:.3f}" for cell in cells)])
    return rows


def told_of(found: Mapping[str, Any], folder: Path) -> str:
    """What to say under the table."""
    lines = [
        f"{sum(found['learnt'].values())} rows learnt in {found['steps']} steps; calibrated on "
        f"{found['calibrated']} others; {found['over_length']} rows were too long"
    ]
    if "bytes" in found:
        lines.append(f"use it: verifier.judge=own:{folder / 'own'} ({found['bytes'] / 1e6:.1f} MB)")
        if found["bytes"] > LARGEST:
            lines.append(f"it is larger than {LARGEST / 1e6:.0f} MB, too large to be shipped")
    return "\n".join(lines)


def _check_packages(exports: bool) -> None:
    """Complain before the training about what is needed after it."""
    needed = {
        "sklearn": ("scikit-learn", "calibrate"),
        "onnx": ("onnx", "train"),
        "onnxruntime": ("onnxruntime", "local"),
    }
    for name, (package, extra) in needed.items():
        if (exports or name == "sklearn") and find_spec(name) is None:
            raise MissingExtra(package, extra)


def _parts(
    settings: VerifierSettings, folder: Path, tell: Callable[[str], None]
) -> tuple[Parts, dict[str, Any]]:
    data, seed = settings.data, settings.run.seed
    sources: dict[str, Any] = {}
    rows = read_pairs(data.files, seed, _SHARES)
    if data.folder is not None:
        sources = _made(settings, folder, tell)
        rows += read_pairs([str(folder / ROWS)], seed, _SHARES)
    elif data.distil is not None:
        raise ConfigError("data.distil takes its claims from the staged sets; name their folder: data.folder")
    if not rows:
        raise ConfigError("no rows: name files of rows, or data.folder with the staged sets")
    usual = {source.name: source.weight for source in SOURCES} | data.weights
    if unknown := {*data.sources} - {row.source for row in rows}:
        raise ConfigError(f"data.sources: no rows are from {', '.join(sorted(unknown))}")
    if data.sources:
        usual = {row.source: usual.get(row.source, 1.0) * (row.source in data.sources) for row in rows}
    calibrate = [row for row in rows if row.part == "calibrate"]
    calibrate = [row for row in calibrate if row.human] or calibrate
    report = [row for row in rows if row.part == "report"]
    parts = Parts(
        mixed(rows, usual, data.limit, seed),
        calibrate,
        mixed([replace(row, part="train") for row in report], {}, data.report_rows, seed),
    )
    for name, some in zip(PARTS, (parts.train, parts.calibrate, parts.report), strict=True):
        if {row.label == "supported" for row in some} != {True, False}:
            raise DataError(f"the part {name!r} has {len(some)} rows of one class; give more rows")
    return parts, sources


def _made(settings: VerifierSettings, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Rows of the staged sets into the run folder, once; what is known of their sources."""
    data = settings.data
    where = Where(
        Path(data.folder or ""),
        Path(data.packages) if data.packages else None,
        data.evidence_chars,
        settings.run.seed,
        data.documents,
    )
    told = {name: getattr(where, name) for name in ("chars", "seed", "documents")}
    told["packages"] = where.packages is not None
    if data.distil is not None:
        told |= {"distil": data.distil, "judge": data.judge, "sure": data.sure}
    path = folder / ABOUT
    if path.is_file():
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["made_with"] != told:
            raise ConfigError(
                f"{folder / ROWS} was made with {held['made_with']}, not {told}: name another folder"
            )
        return held
    judge = open_judge(data.judge) if data.distil is not None else None
    rows = rows_of(where, tell)
    seen = seen_by(where, rows)
    kept, left_out, documents = without_seen(rows, seen)
    licences = {source.name: source.licence for source in SOURCES if source.name in documents}
    if judge is not None:
        judged, left_out[SAME_TITLE], titles = _judged(settings, where, seen, judge, folder, tell)
        kept += judged
        documents |= titles
        licences[SAME_TITLE] = f"Wikipedia text CC BY-SA 3.0 and 4.0; labels of {data.judge}"
    for name, sets in left_out.items():
        shown = ", ".join(f"{count} {other}" for other, count in sorted(sets.items()))
        tell(f"{name}: {sum(sets.values())} of {documents[name]} documents left out, seen in: {shown}")
    write_pairs(kept, folder / ROWS)
    held = {
        "made_with": told,
        "licences": licences,
        "documents": documents,
        "left_out": left_out,
    }
    path.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
    return held


def _judged(
    settings: VerifierSettings,
    where: Where,
    seen: Seen,
    judge: Teacher,
    folder: Path,
    tell: Callable[[str], None],
) -> tuple[list[Pair], dict[str, int], dict[str, int]]:
    """Rows that a judge labelled, what was left out of their documents as seen, and how many there were."""
    data = settings.data
    pairs, left_out, documents = without_seen(unjudged(where), seen)
    asked = pairs[: data.distil]
    about = {"job": "label claims", "judge": judge.identity, "chars": data.evidence_chars}
    with Journal(folder / JUDGED, about) as journal, Progress("label claims", len(asked)) as progress:
        rows = distil(asked, judge, data.sure, journal, progress.advance)
    tell(f"{SAME_TITLE}: {len(asked)} of {len(pairs)} claims asked about; sure of {len(rows)}")
    return rows, left_out.get(SAME_TITLE, {}), documents


def _trained(
    settings: VerifierSettings, parts: Parts, folder: Path, live: Journal, tell: Callable[[str], None]
) -> tuple[VerifierModel, int, Counter[str]]:
    model = VerifierModel(settings)
    drawn = mixed([replace(row, part="train") for row in parts.calibrate], {}, None, settings.run.seed)
    watched = [(row, model.tokens(row)) for row in drawn[: settings.train.eval_rows]]
    held = [(row, tokens) for row, tokens in watched if tokens is not None]
    held.sort(key=lambda one: len(one[1]["input_ids"]))

    def evaluate(step: int) -> Mapping[str, float | None]:
        logits = [
            row
            for start in range(0, len(held), 32)
            for row in model.logits([tokens for _, tokens in held[start : start + 32]]).tolist()
        ]
        found = numbers_of([row for row, _ in held], [_odds(row) for row in logits])
        live.add(str(step), found)
        shown = ", ".join(
            f"{name} {found[name]:.3f}" for name in ("balanced", "auc") if found[name] is not None
        )
        tell(f"step {step}, {len(held)} held-out rows: {shown}")
        return {}

    steps, gone = train_verifier(model, parts.train, folder / "checkpoints", evaluate)
    return model, steps, gone


def _odds(logits: Sequence[float]) -> tuple[float, float, float]:
    """Probabilities of the raw logits: their softmax."""
    top = max(logits)
    supported, refuted, unknown = (math.exp(value - top) for value in logits)
    total = supported + refuted + unknown
    return supported / total, refuted / total, unknown / total


def _calibration(model: VerifierModel, rows: Sequence[Pair], journal: Journal) -> Calibration:
    """Fitted so that every source counts the same, and supported as much as not supported."""
    logits = score_pairs(model, rows, journal, "calibrate")
    held = [(row, found) for row, found in zip(rows, logits, strict=True) if found is not None]
    size = Counter((row.source, row.label == "supported") for row, _ in held)
    fitted = [
        Row(features_of(found), row.label, 1.0 / size[row.source, row.label == "supported"])
        for row, found in held
    ]
    scale = len(fitted) / sum(row.weight for row in fitted)
    fitted = [Row(row.features, row.label, row.weight * scale) for row in fitted]
    about = {"rows": len(fitted), "sources": sorted({row.source for row, _ in held})}
    return fit(fitted, provenance=about)


def _measured(
    model: VerifierModel, rows: Sequence[Pair], journal: Journal, calibration: Calibration, seed: int
) -> dict[str, Any]:
    """Numbers of all report rows, of each source, and of each way that rows were made."""
    logits = score_pairs(model, rows, journal, "report")
    held = [(row, found) for row, found in zip(rows, logits, strict=True) if found is not None]
    odds = {row.id: calibration.probabilities(features_of(found)) for row, found in held}
    by_set: dict[str, list[Pair]] = defaultdict(list)
    by_kind: dict[str, list[Pair]] = defaultdict(list)
    for row, _ in held:
        by_set[row.source].append(row)
        if not row.human and row.kind:
            by_kind[f"{row.kind}"].append(row)

    def numbers(some: Sequence[Pair]) -> Numbers:
        return numbers_of(some, [odds[row.id] for row in some])

    return {
        "all": numbers([row for row, _ in held]),
        "sets": {name: numbers(some) for name, some in sorted(by_set.items())},
        "kinds": {f"made: {name}": numbers(some) for name, some in sorted(by_kind.items())},
    }


def _exported(
    settings: VerifierSettings, folder: Path, calibration: Calibration, found: Mapping[str, Any]
) -> int:
    card = {
        "evidence_chars": settings.data.evidence_chars,
        "max_length": settings.train.max_length,
        "from": found["model"],
        "sources": found["sources"].get("licences", {}),
        "learnt": found["learnt"],
        "seed": settings.run.seed,
    }
    return export(folder / "weights", folder / "own", calibration, card, model_card(found))


def _counts(rows: Sequence[Pair]) -> dict[str, int]:
    return dict(sorted(Counter(row.source for row in rows).items()))
