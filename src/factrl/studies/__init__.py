"""Studies: rewards compared from one start on one small world of real entities, and the table that results.

    factrl study knowrl --output out --seeds 5      # or a TOML file of your own
    factrl study all --output out                   # every paper's rows from one start

A study is a TOML file: a task, what the start learns, and rows, each a reward with what it changes.  The
engine (`factrl.studies.engine`) makes the start once, trains each row from it, evaluates all on the same
held-out entities and writes a table.  A row named `random` pays for a hash of the text: what it moves is the
noise of training alone.  A paper's pipeline at its own scale is a folder under `recipes/`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from factrl.errors import ConfigError, nearest
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.rewards.needs import RESOURCES
from factrl.runs.config import check_knobs, load_settings, read_toml
from factrl.runs.settings import Positive, Section, TrainSettings
from factrl.stress.payoffs import PROBE, try_out
from factrl.studies.world import TASKS, Task

_ROW_NAME = re.compile(r"[^\W_][\w.+ -]{0,59}")
MODEL = "SmolLM2-135M-Instruct"
"""What a study starts from."""
START_FILE, BEGUN_FILE, WORLD_FILE = "start.safetensors", "begun.json", "world.json"
"""In a seed's folder: the start's weights, what they were made of, and the facts."""
PICTURE_MARK = b"<desc>a study of factrl</desc>"
"""In every picture of a study."""
RANDOM = "random"
CALIBRATED = "calibrated"
"""The row of the start after `[calibrate]`, from which a study with it trains."""
ALL = "all"


class StartSettings(Section):
    """`[start]`: the supervised steps that teach the forms of all tasks, and what the start is asked then."""

    steps: Positive = 60
    """Optimizer steps where all three tasks are taught; of one task alone its share of them."""
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
    interpolation: float = Field(default=0.6, gt=0, le=1)
    """How far the weights go from the start's to those that the steps end at (WiSE-FT, arXiv 2109.01903)."""


class TruthfulnessSettings(Section):
    """`[truthfulness]`: supervised steps from the start on its own claims with the table's labels, to a model
    that rates how likely claims are to be true (KLCF)."""

    steps: Positive = 80
    """Optimizer steps."""
    batch_size: Positive = 32
    """Claims of a step."""
    learning_rate: float = Field(default=1e-4, gt=0, lt=1)
    """Peak learning rate."""


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
    truthfulness: Literal["table", "trained"] = "table"
    """KLCF: whether a claim is true by the table, or how likely it is by the model of `[truthfulness]`."""


class SizeSettings(Section):
    """`[size]`: held-out texts."""

    test: Positive = 80
    """Held-out entities of a profile, or questions."""
    more: int = Field(default=0, ge=0)
    """Cities that are added to the test entities."""
    sampled: bool = True
    """Measure one sample at the training temperature beside the greedy text."""


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
    truthfulness: TruthfulnessSettings = TruthfulnessSettings()
    size: SizeSettings = SizeSettings()
    train: TrainSettings = TrainSettings()
    rows: dict[str, RowSettings] = Field(default_factory=dict)
    gpu: dict[str, Any] = Field(default_factory=dict)
    """What changes on a GPU, as `section.key`."""

    def _problems(self) -> Iterator[str]:
        if not self.rows:
            yield "a study needs at least one row"
        for name in self.rows:
            if name in (CALIBRATED, "start"):
                yield f"rows.{name}: the name is that of a start; give the row another"
            elif not _ROW_NAME.fullmatch(name):
                yield f"rows.{name!r}: a name has up to 60 letters, digits, spaces and . + - _"
            elif self.rows[name].reward == RANDOM and self.rows[name].knobs:
                yield f"rows.{name}: a random reward has no knobs; leave them out"
        if "\n" in self.title:
            yield "title is one line"
        if self.calibrate.right > self.known.samples:
            yield (
                f"calibrate.right = {self.calibrate.right} of known.samples = {self.known.samples} are never "
                "right; lower it"
            )
        if self.task != "profile":
            for name, row in self.rows.items():
                if row.checklist or row.truthfulness != "table":
                    yield f"rows.{name}: checklist and truthfulness are for profiles alone"
        if self.calibrate.steps and self.task != "short":
            yield f"calibrate.steps = {self.calibrate.steps} is for short questions alone; set it to 0"


_HERE = Path(__file__).parent
_DIGESTS = {"facts": "table", "source": "file of the reward", "asked": "choice of questions"}


def study_names() -> list[str]:
    """The studies that come with factrl.

    >>> "knowrl" in study_names()
    True
    """
    return sorted(path.stem for path in _HERE.glob("*.toml") if path.name != "shared.toml")


def load_study(name: str, overrides: tuple[str, ...] = (), *, gpu: bool = False) -> StudySettings:
    """A study by name or file, with `section.key=value` overrides.

    >>> load_study("knowrl", ("train.steps=2",)).train.steps
    2

    Raises:
        ConfigError: no such study, or its settings are wrong; every problem at once.
    """
    known = study_names()
    own_file = name.lower().endswith(".toml")
    path = Path(name) if own_file else _HERE / f"{name}.toml"
    if own_file and not path.is_file():
        raise ConfigError(f"the study's file {name} is not there")
    if not own_file and name not in known:
        raise ConfigError(f"no study {name!r}{nearest(name, known)} (there are: {', '.join([*known, ALL])})")
    shared, own = read_toml(_HERE / "shared.toml"), read_toml(path)
    forced = {**shared.get("gpu", {}), **own.get("gpu", {})} if gpu else {}
    words = [*(f"{key}={_word(value)}" for key, value in forced.items()), *overrides]
    study = load_settings(StudySettings, str(path), words, defaults=_merged(shared, own))
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
    if unknown := [step for step in only if step not in steps]:
        raise ConfigError(
            f"--only {unknown[0]!r} is no step{nearest(unknown[0], steps)} (there are: {', '.join(steps)})"
        )
    return steps


def row_settings(study: StudySettings, row: str) -> TrainSettings:
    """`[train]` of one row.

    Raises:
        ConfigError: the row has an unknown setting, or one with a wrong value.
    """
    values = {**study.train.model_dump(exclude_unset=True), **study.rows[row].train}
    return load_settings(TrainSettings, defaults=values, where=f"rows.{row}.train: ")


def row_identity(study: StudySettings, row: str) -> dict[str, Any]:
    """The settings that decide what a row becomes."""
    return {
        "reward": study.rows[row].reward,
        "knobs": study.rows[row].knobs,
        "train": row_settings(study, row).model_dump(mode="json", exclude_unset=True),
        "size": study.size.model_dump(),
        "calibrate": study.calibrate.model_dump(),
    }


def first_difference(stored: Mapping[str, Any], now: Mapping[str, Any], of: str = "") -> str:
    """`key = old, and now it is new` of the first setting that is another; empty where none is.

    >>> first_difference({"train": {"steps": 2, "bf16": True}}, {"train": {"steps": 3, "bf16": True}})
    'train.steps = 2, and now it is 3'
    """
    for key, value in json.loads(json.dumps(now)).items():
        held = stored.get(key)
        if held == value:
            continue
        if isinstance(held, dict) and isinstance(value, dict):
            return first_difference(held, {**dict.fromkeys(held), **value}, f"{of}{key}.")
        if key in _DIGESTS:
            return f"another {_DIGESTS[key]} than it has now"
        return f"{of}{key} = {held}, and now it is {value}"
    return ""


def row_reward(row: RowSettings) -> Reward | None:
    """The reward of a row without what it asks for; None for the random one.

    Raises:
        ConfigError: no such reward or knob, or it asks for what a study has not.
    """
    if row.reward == RANDOM:
        return None
    from factrl.studies.table import BY_TABLE

    bare = load_reward(row.reward)
    if problems := check_knobs(row.knobs, bare.knobs, "knobs"):
        raise ConfigError(*(f"{row.reward}: {problem}" for problem in problems))
    bare = bare.with_(**row.knobs)
    in_training = [name for name, one in RESOURCES.items() if one.make is None]
    if lacking := [name for name in bare.missing if name not in (*BY_TABLE, *in_training)]:
        raise ConfigError(
            f"{row.reward} needs {', '.join(lacking)}, which a study of the small world has not"
            f"{nearest(lacking[0], BY_TABLE)} (it has: {', '.join(BY_TABLE)})"
        )
    return bare


def add_row(study: StudySettings, spec: str, like: str = "") -> StudySettings:
    """The study with a further reward as a row, named by the last part of its specification.

    Args:
        like: a row whose knobs it takes over, those that it has.
    """
    name = spec.rpartition("/")[2].replace(".py:", "-").replace(":", "-")
    if name in study.rows:
        raise ConfigError(f"{spec}: the study has a row {name!r} already; rename the function or its file")
    knobs = study.rows[like].knobs if like else {}
    usual = load_reward(spec).knobs if knobs else {}
    row = RowSettings(reward=spec, knobs={knob: value for knob, value in knobs.items() if knob in usual})
    reward, asked = row_reward(row), {"entity": PROBE.topic, "relation": "place of birth"}
    if reward is not None:  # a mistake in it comes before any model
        profile = {"question": PROBE.topic, "answers": ()} if study.task == "profile" else {}
        try_out(reward, replace(PROBE, meta=asked, **profile))
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


# -- What a folder was made with, before torch is loaded


def row_file(folder: Path, name: str) -> Path:
    """Where the results of a row, as `study/row`, are in a seed's folder."""
    return folder / "rows" / f"{name.replace('/', '-')}.json"


def start_file(folder: Path, study: StudySettings) -> Path:
    """Where the start's results in the task of a study are in a seed's folder."""
    return folder / "rows" / f"start-{study.task}.json"


def digest(content: bytes) -> str:
    """A short name of these bytes."""
    return hashlib.sha256(content).hexdigest()[:12]


def read_json(path: Path) -> Mapping[str, Any]:
    """A file of a study.

    Raises:
        ConfigError: it is damaged.
    """
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); delete it, and it is made again") from error


def read_stored(path: Path, settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The results in a file; None where there is no file yet.

    Raises:
        ConfigError: they were made with other settings.
    """
    if not path.exists():
        return None
    stored = read_json(path)
    if other := first_difference(stored, settings):
        raise ConfigError(f"{path} was made with {other}; give another --output, or delete the file")
    return stored


def tasks_of(studies: Mapping[str, StudySettings]) -> list[Task]:
    """The tasks of these studies, which their start is taught."""
    return [task for task in TASKS if any(study.task == task for study in studies.values())]


def check_begun(folder: Path, studies: Mapping[str, StudySettings], model: str) -> dict[str, Any]:
    """What a seed's start is made of: the settings of the first study, and the tasks of all.

    Raises:
        ConfigError: the start that the folder has was made of something else.
    """
    study = next(iter(studies.values()))
    identity: dict[str, Any] = {"model": model, "facts": None, "start": study.start.model_dump()}
    identity["tasks"] = tasks_of(studies)
    if study.table is None:
        identity["more"] = study.size.more
    else:
        identity["facts"] = digest(Path(study.table).read_bytes())
    path = folder / BEGUN_FILE
    if (
        path.exists()
        and (folder / START_FILE).exists()
        and (other := first_difference(read_json(path), identity))
    ):
        raise ConfigError(f"{folder} was begun with {other}; give another --output")
    return identity


def check_folder(
    studies: Mapping[str, StudySettings],
    rows: Sequence[str],
    out: Path,
    seeds: Iterable[int],
    model: str = MODEL,
) -> None:
    """Refuse a folder whose start, or any of these rows as `study/row`, was made with other settings.

    Raises:
        ConfigError: it names the file and the first setting that is another.
    """
    for folder in (out / f"seed-{number}" for number in seeds):
        check_begun(folder, studies, model)
        for study in studies.values():
            read_stored(start_file(folder, study), {"size": study.size.model_dump()})
        for name in rows:
            study, _, row = name.partition("/")
            read_stored(row_file(folder, name), row_identity(studies[study], row))
