"""How long a study will take, told before torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from factrl.runs.settings import TrainSettings
from factrl.studies import (
    CALIBRATED,
    START_FILE,
    StartSettings,
    StudySettings,
    row_file,
    row_settings,
    start_file,
    tasks_of,
)
from factrl.studies.world import Task

LOADING = 12.0
"""Seconds until torch and the model are loaded."""
SECONDS: Mapping[Task, tuple[float, float, float]] = {
    "short": (0.11, 0.04, 0.03),
    "reasoned": (0.35, 0.09, 0.30),
    "profile": (0.40, 0.12, 0.40),
}
"""Of two 2 GHz cores, for a text that is taught, one that is written, and one that is trained on."""


def start_texts(start: StartSettings, tasks: Sequence[Task]) -> dict[Task, int]:
    """How many texts of each task a start is taught; as many of one task whatever the others are."""
    rest = 1 - start.profiles
    shares: Mapping[Task, float] = {"profile": start.profiles, "reasoned": 0.6 * rest, "short": 0.4 * rest}
    return {task: max(round(shares[task] * start.steps * start.batch_size), 1) for task in tasks}


def needs_known(study: StudySettings) -> bool:
    """Whether the start's samples choose a study's questions or checklists, or calibrate it."""
    own = any(row.checklist == "own" or row.truthfulness == "trained" for row in study.rows.values())
    return own or study.practice > 0 or study.calibrate.steps > 0


def start_seconds(start: StartSettings, tasks: Sequence[Task]) -> float:
    """Of the supervised steps that make a start."""
    return sum(count * SECONDS[task][0] for task, count in start_texts(start, tasks).items())


def calibrate_seconds(study: StudySettings) -> float:
    """Of the supervised steps of `[calibrate]`."""
    return study.calibrate.steps * study.calibrate.batch_size * SECONDS[study.task][0]


def train_seconds(study: StudySettings, train: TrainSettings, steps: int) -> float:
    """Of so many steps with a reward."""
    return steps * train.prompts_per_step * train.num_generations * SECONDS[study.task][2]


def written_seconds(task: Task, samples: int = 1) -> float:
    """Of one text that is written, as one of so many samples, which share the reading of their prompt."""
    return SECONDS[task][1] * (3 + samples) / (4 * samples)


def evaluation_seconds(study: StudySettings) -> float:
    """Of the held-out texts of one model."""
    return (1 + study.size.sampled) * study.size.test * written_seconds(study.task)


def seconds_left(folder: Path, studies: Mapping[str, StudySettings], rows: Sequence[str]) -> float:
    """What a seed's folder lacks of these studies and rows."""
    start, left = next(iter(studies.values())).start, 0.0
    if not (folder / START_FILE).exists():
        left += start_seconds(start, tasks_of(studies))
    for study in {study.task: study for study in studies.values()}.values():
        if not start_file(folder, study).exists():
            left += evaluation_seconds(study)
    for study in {one.task: one for one in studies.values() if needs_known(one)}.values():
        if not (folder / f"known-{study.task}.json").exists():
            samples = study.known.samples
            left += study.known.questions * samples * written_seconds(study.task, samples)
    for name, study in studies.items():
        if study.calibrate.steps and not row_file(folder, f"{name}/{CALIBRATED}").exists():
            left += calibrate_seconds(study) + evaluation_seconds(study)
    for name in rows:
        study_name, _, row = name.partition("/")
        study = studies[study_name]
        if not row_file(folder, name).exists():
            train = row_settings(study, row)
            left += train_seconds(study, train, train.steps or 0) + evaluation_seconds(study)
    return left
