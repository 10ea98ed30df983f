"""The folder of one training run: its settings, what it measured and what the policy wrote.

    config.toml                    every setting as resolved; reading it back starts the same run
    env.json                       versions, platform and commit
    metrics.jsonl                  one JSON object per logged step
    rollouts/step_000001.parquet   one row per completion of that step
    checkpoints/                   the trainer's
    spent.json                     what the judge has cost, over all sessions
    tracker.json                   the run's name for trackers
    model/                         the trained model
    done.json                      how many steps it has; written last
    lock                           which process writes here

Only one process writes: rank 0 of a training job.  A run survives being killed at any moment: files
appear whole or not at all, and a half-written last line of metrics is dropped on the next start.  The
folder is readable by its owner only, because prompts and completions can be private; whoever wants to
share a run changes its permissions.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError, first_line, nearest
from factrl.runs.disk import FileLock, is_full, whole_file, whole_lines, write_whole
from factrl.runs.settings import OutputSettings
from factrl.types import Result, plain

_PACKAGES = ("factrl", "torch", "transformers", "trl", "peft", "accelerate", "datasets", "vllm", "pyarrow")
_STEP_FILE = re.compile(r"step_(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion as it goes into the rollout file.

    Attributes:
        id: id of the example.
        result: what became of it; each of its terms becomes a column `term/<name>`.
        advantage: sequence advantage; None when the sample took no part in the update.
        question: the prompt's name on a page; empty where it is not known.
    """

    id: str
    prompt: str
    completion: str
    result: Result
    advantage: float | None
    question: str = ""


class Run:
    """A run folder that this process may write to; a context manager, which releases it.

    `Run.create` and `Run.open` make one.

    Args:
        path: an existing folder.
        shared: another process of the same job has its lock.

    Attributes:
        metrics: the file that `log` appends to.
        rollouts: the folder that `write_rollouts` writes to.
        checkpoints: the folder for the trainer's checkpoints; not created here.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self.path = path
        self.metrics, self.rollouts = path / "metrics.jsonl", path / "rollouts"
        self.checkpoints = path / "checkpoints"
        self._lock = None if shared else FileLock(path / "lock", f"run {path}")

    @classmethod
    def create(cls, root: Path | str, name: str, settings_toml: str) -> Run:
        """A new folder `root/<name>-<UTC date>-<time>`, with the settings and the environment written.

        Args:
            root: folder of all runs; created when missing.
            name: any text; characters that a file name cannot hold are replaced.
            settings_toml: the resolved settings.

        Raises:
            ConfigError: the folder cannot be created.
        """
        return cls(cls._new(root, name))._begun({"config.toml": settings_toml})

    @staticmethod
    def _new(root: Path | str, name: str) -> Path:
        """A new folder of a run.

        Raises:
            ConfigError: it cannot be created.
        """
        # At most 48 characters (192 bytes) that every file system takes and that stay inside the folder.
        name = re.sub(r"[^\w.-]+", "-", name)[:48].strip(".-") or "run"
        stem = f"{name}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
            return new_folder(Path(root), stem)
        except OSError as error:
            raise ConfigError(f"run.dir = {str(root)!r}: cannot create the run folder: {error}") from error

    @classmethod
    def begin(cls, options: OutputSettings, name: str, files: Mapping[str, str]) -> Run:
        """The run of a command: a new one, or the one in `options.output`, which it goes on with.

        Args:
            name: of a new folder in `options.dir`, where there is no `options.output`.
            files: of settings, by name; the last of them says that the run has begun.

        Raises:
            ConfigError: the folder cannot be created, another process writes to it, or it holds something
                that is no run.
        """
        *_, last = files
        if options.output is None:
            path = cls._new(options.dir, name)
        elif (Path(options.output) / last).is_file():
            run = cls.open(options.output)
            for file, text in files.items():  # with more steps, maybe
                write_whole(run.path / file, text.encode())
            return run
        else:
            path = Path(options.output)
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
                others = sorted(one.name for one in path.iterdir() if not _is_of_a_start(one, files))
            except OSError as error:
                raise ConfigError(f"--output {path}: cannot create the run folder: {error}") from error
            if others:
                raise ConfigError(
                    f"--output {path} holds {others[0]!r} and is no run folder; give one that is new or empty"
                )
        return cls(path)._begun(files)

    def _begun(self, files: Mapping[str, str]) -> Run:
        """The same with what a new run holds, its settings last."""
        self.rollouts.mkdir(exist_ok=True)
        environment = {
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": {package: version_of(package) for package in _PACKAGES},
            "commit": _commit(),
        }
        write_whole(self.path / "env.json", json.dumps(environment, indent=2).encode())
        for file, text in files.items():
            write_whole(self.path / file, text.encode())
        return self

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """The folder of an earlier run, to go on with it; what a crash left half-written is removed.

        Raises:
            ConfigError: there is no such run, or another process is writing to it.
            DataError: its metrics are damaged in the middle.
        """
        run = cls(settings_in(path, "config.toml").parent)
        try:
            run.rollouts.mkdir(exist_ok=True)
            for unfinished in [*run.path.glob("*.tmp"), *run.rollouts.glob("*.tmp")]:
                unfinished.unlink()
            write_whole(run.metrics, b"".join(_whole_lines(run.metrics)))
        except (OSError, DataError):
            run.close()
            raise
        return run

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Append one line of metrics; NaN and infinities become null."""
        line = (json.dumps({"step": step, **plain(values)}, allow_nan=False) + "\n").encode()
        # One unbuffered write in append mode: a kill leaves the whole line or a torn last one, never a gap.
        with self.metrics.open("ab", buffering=0) as file:
            size = file.tell()
            if file.write(line) != len(line):
                file.truncate(size)
                raise OSError(f"{self.metrics}: the disk is full")

    def write_rollouts(self, step: int, rollouts: Sequence[Rollout]) -> Path:
        """Write the completions of one step, replacing what an earlier attempt at it wrote.

        Columns: step, id, question, prompt, completion, state, cause, detail, value, advantage,
        `term/<name>` for each term, facts and spans (start, end, sign) as JSON.
        """
        import pyarrow
        import pyarrow.parquet

        rows = [{"step": step, **_row(rollout)} for rollout in rollouts]
        terms = sorted({key for row in rows for key in row if key.startswith("term/")})
        texts = ("id", "question", "prompt", "completion", "state", "cause", "detail")
        schema = pyarrow.schema(
            [
                ("step", pyarrow.int64()),
                *((name, pyarrow.string()) for name in texts),
                *((name, pyarrow.float64()) for name in ("value", "advantage", *terms)),
                *((name, pyarrow.string()) for name in ("facts", "spans")),
            ]
        )
        path = self.rollouts / f"step_{step:06d}.parquet"
        with whole_file(path) as unfinished:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), unfinished)
        return path

    def truncate_after(self, step: int) -> None:
        """Forget everything later than `step`, so that curves go on from that checkpoint without overlap."""
        lines = _whole_lines(self.metrics)
        write_whole(self.metrics, b"".join(line for line in lines if json.loads(line)["step"] <= step))
        for file in self.rollouts.iterdir():
            match = _STEP_FILE.fullmatch(file.name)
            if match and int(match[1]) > step:
                file.unlink()

    def close(self) -> None:
        """Let other processes write to the folder; a second call does nothing."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if is_full(error) and error is not None:
            place = getattr(error, "filename", None) or self._written_last()
            why = getattr(error, "strerror", None) or first_line(error)
            raise ConfigError(
                f"{place} could not be written whole ({why}): make room on the disk, then the same command "
                f"with --output {self.path} goes on"
            ) from error

    def _written_last(self) -> Path:
        """The folder of the file that was written to last, for libraries that name none."""
        files = [path for path in self.path.rglob("*") if path.is_file()]
        return max(files, key=lambda path: path.stat().st_mtime_ns, default=self.path / "x").parent


def settings_in(run: Path | str, name: str) -> Path:
    """The file of that name in the folder of a run.

    Raises:
        ConfigError: there is none.
    """
    run = Path(run)
    if not (run / name).is_file():
        around = [other.name for other in run.parent.iterdir()] if run.parent.is_dir() else []
        problem = f"is not a run folder (no {name})" if run.is_dir() else "does not exist"
        raise ConfigError(f"run {run} {problem}{nearest(run.name, around)}")
    return run / name


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """The metrics of a run folder, also while it is being written; a half-written last line is left out.

    Raises:
        DataError: a line in the middle is not a JSON object with a step.
    """
    return [json.loads(line) for line in _whole_lines(Path(path) / "metrics.jsonl")]


def count_states(path: Path | str) -> Counter[tuple[str, str]]:
    """How many completions of a run ended in which state and for which cause, which is empty when scored."""
    import pyarrow.parquet

    counts: Counter[tuple[str, str]] = Counter()
    for file in (Path(path) / "rollouts").glob("step_*.parquet"):
        columns = pyarrow.parquet.read_table(file, columns=["state", "cause"]).to_pydict()
        counts.update(zip(columns["state"], (cause or "" for cause in columns["cause"]), strict=True))
    return counts


def version_of(package: str) -> str | None:
    """The installed version of a package, None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def gpus_here() -> int:
    """How many GPUs torch sees on this machine; 0 where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()


def _commit() -> str | None:
    """The git commit of the working directory, None outside a repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def new_folder(root: Path, stem: str) -> Path:
    """A new folder, which only its owner reads."""
    path = root / stem
    while True:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
        path = path.with_name(f"{path.name}-2")


def _is_of_a_start(path: Path, files: Mapping[str, str]) -> bool:
    """Whether a run that was killed before it had its settings left this."""
    return path.name in ("lock", "rollouts", "env.json", *files) or path.suffix == ".tmp"


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a metrics file without a last one that a crash, or a write under way, left torn."""
    lines = whole_lines(path)
    for number, line in enumerate(lines, start=1):
        try:
            whole = isinstance(json.loads(line)["step"], int)
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise DataError(f"{path}, line {number} is not a JSON object with a step; remove that line")
    return lines


def _row(rollout: Rollout) -> dict[str, Any]:
    result = rollout.result
    row = {
        "id": rollout.id,
        "question": rollout.question,
        "prompt": rollout.prompt,
        "completion": rollout.completion,
        "state": result.state,
        "value": plain(result.value),
        "cause": result.cause,
        "detail": result.detail,
        "advantage": plain(rollout.advantage),
        "facts": json.dumps(plain(result.facts), allow_nan=False),
        "spans": json.dumps([[span.start, span.end, span.sign] for span in result.spans]),
        **{f"term/{name}": plain(value) for name, value in result.terms.items()},
    }
    for key, value in row.items():
        if isinstance(value, str):  # half a surrogate pair, which JSON data can hold, is no UTF-8
            row[key] = value.encode("utf-8", "backslashreplace").decode()
    return row
