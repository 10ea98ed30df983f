"""The whole of `factrl tune truthfulness`: rows in, a folder with a model and its held-out numbers out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from factrl.evals.metrics import Interval
from factrl.llm import models
from factrl.llm.writers import digest_of
from factrl.rewards.tuned_truthfulness import CARD
from factrl.runs.journal import Journal
from factrl.train.tuning.claim_rows import (
    LabelledClaim,
    Split,
    digest_of_rows,
    drawn,
    load_claims,
    split_by_group,
)
from factrl.train.tuning.claim_settings import ClaimSettings
from factrl.train.tuning.reliability import METRICS, Bin, Reliability, fit_temperature, reliability, sigmoid
from factrl.train.tuning.reliability_plot import reliability_diagram

from .claim_models import ClaimModel, all_parts, base_folder, save, score, train_claim_model

SCORES, NUMBERS, PICTURE = "scores.jsonl", "metrics.json", "reliability.png"
ALWAYS, UNTUNED, RAW, SCALED = "majority", "untuned", "tuned", "tuned, scaled"


def tune_truthfulness(settings: ClaimSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """Tune a truthfulness model and measure it on documents that it has not seen.

    The same call again goes on where the first one stopped, and changes nothing when it had finished.

    Args:
        settings: everything; the folder `run.dir` is filled.
        tell: what the user should know on the way.

    Returns:
        What `metrics.json` holds: counts, `temperature`, and for each set of probabilities its numbers.

    Raises:
        SetupError: what the user must change.
        KeyboardInterrupt: stopped; the folder holds a checkpoint.
    """
    data, folder = settings.data, Path(settings.run.dir)
    rows, left_out = load_claims(
        data.files, with_evidence=data.with_evidence, positive=data.positive, negative=data.negative
    )
    split = split_by_group(
        drawn(rows, data.limit, settings.run.seed), data.held_out, data.calibrate, settings.run.seed
    )
    base = base_folder(settings.model.name)
    told = settings.model_dump(exclude={"run": {"dir"}, "data": {"files"}})
    about = {
        "job": "tune truthfulness",
        "model": models.identity(base),
        "rows": digest_of_rows(all_parts(split)),
        "settings": told,
    }
    for why, count in left_out.most_common():
        tell(f"{count} rows left out: {why}")
    with Journal(folder / SCORES, about) as journal:
        tuned = folder / "model"
        if settings.head == "token-pair":
            _score_untuned(settings, split, journal)
        over = 0
        if not (tuned / CARD).is_file():
            model = ClaimModel(settings)
            steps, gone = train_claim_model(model, split.train, folder / "checkpoints")
            over = gone.total()
            fitted = _temperature(split.calibrate, score(model, split.calibrate, journal, RAW))
            found = _measure(settings, split, model, journal, fitted)
            found |= {"steps": steps, "model": about["model"], "settings": told, "over_length": over}
            found["left_out"] = {**left_out, "seen in another part": split.left_out}
            found["rows"] = {"train": len(split.train), "calibrate": len(split.calibrate)}
            _write(folder, settings, found)
            save(
                model,
                tuned,
                {"temperature": fitted, "digest": digest_of(about), "trained_on": _names(data.files)},
            )
    return json.loads((folder / NUMBERS).read_text(encoding="utf-8"))


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """The numbers of `metrics.json` as rows of a table, the first of them its head."""
    names = ("accuracy", "macro_f1", "auc", "ece", "brier")
    rows = [["held-out documents", *(name.replace("_", "-") for name in names)]]
    for label, numbers in found["sets"].items():
        rows.append([label, *(_cell(numbers["metrics"][name]) for name in names)])
    return rows


def told_of(found: Mapping[str, Any], folder: Path) -> str:
    """What to say under the table: of how many claims it is, and where the model and the picture are."""
    scaled = found["sets"][SCALED]
    lines = [
        f"{scaled['n']} claims of {scaled['groups']} documents that were not learnt from; "
        f"{found['rows']['train']} learnt in {found['steps']} steps",
        f"temperature {found['temperature']:.3g}, fitted on {found['rows']['calibrate']} other claims",
        f"calibration: {folder / PICTURE}",
    ]
    if not found["settings"]["data"]["with_evidence"]:
        lines.append(f"use it: judge.truthfulness_model={folder / 'model'}")
    elif found["settings"]["head"] == "classifier":
        lines.append(f"use it: verifier.judge=nli:{folder / 'model'}")
    return "\n".join(lines)


def _score_untuned(settings: ClaimSettings, split: Split[LabelledClaim], journal: Journal) -> None:
    """What the model says of the held-out claims before it is tuned."""
    if all(f"{UNTUNED} {row.id}" in journal for row in split.report):
        return
    score(ClaimModel(settings), split.report, journal, UNTUNED)


def _measure(
    settings: ClaimSettings, split: Split[LabelledClaim], model: ClaimModel, journal: Journal, fitted: float
) -> dict[str, Any]:
    """The numbers of the report's claims, beside those of always naming the class that is commoner."""
    seed = settings.run.seed
    logits = score(model, split.report, journal, RAW)
    kept = [(row, z) for row, z in zip(split.report, logits, strict=True) if z is not None]
    rows, known = [row for row, _ in kept], [z for _, z in kept]
    true, groups = [row.true for row in rows], [row.group for row in rows]
    share = sum(row.true for row in split.train) / len(split.train)
    sets: dict[str, Reliability] = {
        ALWAYS: reliability([share] * len(rows), true, groups, seed=seed),
    }
    if settings.head == "token-pair":
        before = [journal[f"{UNTUNED} {row.id}"]["logit"] for row in rows]
        sets[UNTUNED] = reliability(sigmoid(before), true, groups, seed=seed)
    sets[RAW] = reliability(sigmoid(known), true, groups, seed=seed)
    sets[SCALED] = reliability(sigmoid([z / fitted for z in known]), true, groups, seed=seed)
    by_file = {
        "/".join(Path(source).parts[-2:]): reliability(
            *_columns([(row, z / fitted) for row, z in kept if row.source == source]), seed=seed
        )
        for source in dict.fromkeys(row.source for row in rows)
    }
    return {
        "temperature": fitted,
        "not_scored": len(split.report) - len(rows),
        "sets": {name: asdict(found) for name, found in sets.items()},
        "files": {name: asdict(found) for name, found in by_file.items()},
    }


def _columns(kept: Sequence[tuple[LabelledClaim, float]]) -> tuple[Any, list[bool], list[str]]:
    return sigmoid([z for _, z in kept]), [row.true for row, _ in kept], [row.group for row, _ in kept]


def _temperature(rows: Sequence[LabelledClaim], logits: Sequence[float | None]) -> float:
    """1 where the claims to fit it on are of one class."""
    kept = [(z, row.true) for row, z in zip(rows, logits, strict=True) if z is not None]
    if len({true for _, true in kept}) < 2:
        return 1.0
    return fit_temperature([z for z, _ in kept], [true for _, true in kept])


def _write(folder: Path, settings: ClaimSettings, found: dict[str, Any]) -> None:
    shown = {name: _read(found["sets"][name]) for name in (RAW, SCALED)}
    seen = "claims with evidence" if settings.data.with_evidence else "claims alone"
    reliability_diagram(
        shown,
        folder / PICTURE,
        title=f"{settings.head} of {Path(settings.model.name).name}, {seen}: {shown[RAW].n} held-out claims",
    )
    (folder / NUMBERS).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _read(found: Mapping[str, Any]) -> Reliability:
    metrics = {
        name: Interval(**found["metrics"][name]) if found["metrics"][name] else None for name in METRICS
    }
    return Reliability(found["n"], found["groups"], metrics, tuple(Bin(**one) for one in found["bins"]))


def _cell(interval: Mapping[str, float] | None) -> str:
    return str(Interval(**interval)) if interval else "undefined"


def _names(files: Sequence[str]) -> list[str]:
    return ["/".join(Path(file).parts[-2:]) for file in files]
