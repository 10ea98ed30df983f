"""Studies: rewards compared from one start on one small world of real entities, and the table that results.

    factrl study knowrl --output out --seeds 5      # or a TOML file of your own
    factrl study all --output out                   # every paper's rows from one start

A study is a TOML file: a task, what the start learns, and rows, each a reward with what it changes.  The
engine (`factrl.studies.engine`) makes the start once, trains each row from it, evaluates all on the same
held-out entities and writes a table.  A row named `random` pays for a hash of the text: what it moves is the
noise of training alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

if sys.version_info < (3, 11):
    import tomli as tomllib  # pyright: ignore[reportMissingImports]
else:
    import tomllib

from factrl.errors import ConfigError, nearest
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.runs.config import load_settings
from factrl.runs.settings import Positive, Section, TrainSettings

RANDOM = "random"
CALIBRATED = "calibrated"
"""The row of the start after `[calibrate]`, from which a study with it trains."""
ALL = "all"


class StartSettings(Section):
    """`[start]`: the supervised steps that teach the forms of all tasks, and what the start is asked then."""

    steps: Positive = 60
    """Optimizer steps."""
    batch_size: Positive = 16
    """Texts of a step."""
    learning_rate: float = Field(default=1e-4, gt=0, lt=1)
    """Peak learning rate."""
    decline: float = Field(default=0.15, ge=0, lt=1)
    """Share of the answers that are replaced by "I don't know.", drawn at random."""
    profiles: float = Field(default=0.45, ge=0, le=1)
    """Share of the texts that are profiles; of the rest three in five are reasoned answers."""
    freeze_layers: int = Field(default=15, ge=0)
    """Leave so many of the lowest layers as they are, in all training."""


class KnownSettings(Section):
    """`[known]`: samples that tell what the start knows of the training questions."""

    questions: Positive = 160
    """Training questions of the task."""
    samples: Positive = 8
    """Samples of each."""


class CalibrateSettings(Section):
    """`[calibrate]`: supervised steps from the start's own samples, before any reward (R-Tuning)."""

    steps: int = Field(default=0, ge=0)
    """Optimizer steps; 0 leaves it out."""
    batch_size: Positive = 16
    """Questions of a step."""
    learning_rate: float = Field(default=5e-5, gt=0, lt=1)
    """Peak learning rate."""
    right: Positive = 2
    """So many samples must be right; otherwise the question is taught to be declined."""
    way: float = Field(default=0.6, gt=0, le=1)
    """How far the weights go from the start's to those that the steps end at (WiSE-FT, arXiv 2109.01903)."""


class RowSettings(Section):
    """`[rows.NAME]`: one reward from the start."""

    reward: str = Field(min_length=1)
    """A paper, a variant, `random`, or your own `my.py:reward`."""
    knobs: dict[str, Any] = Field(default_factory=dict)
    """Of the reward."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Settings of `[train]` that are this row's alone."""
    checklist: Literal["", "own", "all"] = ""
    """KLCF: what the start itself says rightly in its samples, or all facts of the table."""
    published: dict[str, float] = Field(default_factory=dict)
    """The paper's change against its base, by column."""


class SizeSettings(Section):
    """`[size]`: held-out texts."""

    test: Positive = 80
    """Held-out entities of a profile, or questions."""
    more: int = Field(default=0, ge=0)
    """Cities that are added to the test entities."""


class StudySettings(Section):
    """A study as its file has it."""

    title: str
    """One line."""
    task: Literal["profile", "reasoned", "short"]
    """What is asked."""
    table: str | None = None
    """Your own facts, a CSV file with entity, relation, value; by default the real world's."""
    practice: float = Field(default=0.0, ge=0)
    """Train on the questions that half of the start's samples have right and on so many others for each of
    these; 0 trains on all."""
    notes: tuple[str, ...] = Field(default=(), strict=False)
    """Lines under the table."""
    start: StartSettings = StartSettings()
    known: KnownSettings = KnownSettings()
    calibrate: CalibrateSettings = CalibrateSettings()
    size: SizeSettings = SizeSettings()
    train: TrainSettings = TrainSettings()
    rows: dict[str, RowSettings]
    gpu: dict[str, Any] = Field(default_factory=dict)
    """What changes on a GPU, as `section.key`."""

    def _problems(self) -> Iterator[str]:
        if not self.rows:
            yield "a study needs at least one row"
        if CALIBRATED in self.rows:
            yield f"rows.{CALIBRATED}: the name is that of the calibrated start; give the row another"
        if self.calibrate.steps and self.task != "short":
            yield f"calibrate.steps = {self.calibrate.steps} is for short questions alone; set it to 0"


_SHARED = files("factrl.studies") / "shared.toml"


def study_names() -> list[str]:
    """The studies that come with factrl."""
    names = (path.name for path in files("factrl.studies").iterdir())
    return sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml") and n != "shared.toml")


def load_study(name: str, overrides: tuple[str, ...] = (), *, gpu: bool = False) -> StudySettings:
    """A study by name or file, with `section.key=value` overrides.

    Raises:
        ConfigError: no such study, or its settings are wrong; every problem at once.
    """
    path = Path(name) if name.endswith(".toml") else files("factrl.studies") / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise ConfigError(f"the study's file {name} is not there")
        known = study_names()
        raise ConfigError(f"no study {name!r}{nearest(name, known)} (there are: {', '.join([*known, ALL])})")
    shared = tomllib.loads(_SHARED.read_text("utf-8"))
    try:
        own = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:  # no UTF-8, no TOML
        raise ConfigError(f"{name} cannot be read as TOML: {error}") from error
    forced = {**shared.get("gpu", {}), **own.get("gpu", {})} if gpu else {}
    words = [f"{key}={_word(value)}" for key, value in forced.items()]
    study = load_settings(StudySettings, str(path), [*words, *overrides], defaults=_merged(shared, own))
    for row in study.rows:
        row_settings(study, row)
        row_reward(study.rows[row])
    return study


def steps_of(studies: Mapping[str, StudySettings], only: Sequence[str] = ()) -> list[str]:
    """`start` and every row as `study/row`, in order.

    Raises:
        ConfigError: `only` names something else.
    """
    steps = ["start", *(f"{name}/{row}" for name, study in studies.items() for row in study.rows)]
    for step in only:
        if step not in steps:
            raise ConfigError(f"--only {step!r} is no step (there are: {', '.join(steps)})")
    return steps


SUPPLIED = ("verify", "grade", "extract", "checklist", "truthfulness", "compare", "contradicts")
BY_TRAINER = ("group", "course", "certainty")
"""What a reward may ask for in a study: made by rules and from the table, and what the trainer writes."""


def row_settings(study: StudySettings, row: str) -> TrainSettings:
    """`[train]` of one row.

    Raises:
        ConfigError: a setting of the row is none, or has a wrong value.
    """
    try:
        return TrainSettings.model_validate(
            {**study.train.model_dump(exclude_unset=True), **study.rows[row].train}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"rows.{row}.train.{where}: {first['msg']}") from error


def row_reward(row: RowSettings) -> Reward | None:
    """The reward of a row without what it asks for; None for the random one.

    Raises:
        ConfigError: no such reward or knob, or it asks for what a study has not.
    """
    if row.reward == RANDOM:
        return None
    bare = load_reward(row.reward).with_(**row.knobs)
    if lacking := [name for name in bare.missing if name not in (*SUPPLIED, *BY_TRAINER)]:
        raise ConfigError(
            f"{row.reward} needs {', '.join(lacking)}, which a study of the small world has not; it has "
            f"{', '.join(SUPPLIED)}"
        )
    return bare


def add_row(study: StudySettings, spec: str, like: str = "") -> StudySettings:
    """The study with a further reward as a row, named by the last part of its specification.

    Args:
        like: a row whose knobs it takes over, those that it has.
    """
    name = spec.rpartition("/")[2].replace(".py:", "-").replace(":", "-")
    if name in study.rows:
        raise ConfigError(f"--add {spec}: the study has a row {name!r} already")
    if not spec:
        raise ConfigError("--add needs a reward, such as my.py:reward")
    knobs = study.rows[like].knobs if like else {}
    usual = load_reward(spec).knobs if knobs else {}
    row = RowSettings(reward=spec, knobs={knob: value for knob, value in knobs.items() if knob in usual})
    row_reward(row)
    return study.model_copy(update={"rows": {**study.rows, name: row}})


def _merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What all studies share, of the task's own where it has its own."""
    task = shared["tasks"].get(str(own.get("task", "")), {})
    base = {name: dict(shared.get(name, {})) for name in ("start", "known", "size", "train")}
    for name, values in task.items():
        base[name] |= values
    return base


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
