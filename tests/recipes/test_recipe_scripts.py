"""`run.sh` of every paper's folder: its commands would be taken, and a mistake is told before a step."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from argparse import ArgumentParser
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from scripts import script

from factrl.cli import _parse, all_parsers, evaluate, train, tune
from factrl.cli.options import _take_settings, as_overrides
from factrl.evals.ask import EvalSettings
from factrl.evals.catalogue import benchmarks, groups
from factrl.evals.published import read_published
from factrl.job import read_job, unread_in_training
from factrl.runs import RECIPES
from factrl.train.tuning.settings import read_tuning_job

SCRIPTS = sorted(RECIPES.glob("*/run.sh"))
GIVEN = {"DATA": "in", "OUT": "made", "JUDGE": "http://localhost:8000/v1#judge", "VERISCORE": "in"}
PARSERS = all_parsers()
each = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)


def called(script: Path, folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script in a folder where `factrl`, `python` and `accelerate` only write that they were called."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("factrl", "python", "accelerate"):
        (programs / name).write_text(f"#!/bin/sh\necho called >>{folder}/called\n")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(folder), "PATH": path, **environment}
    return subprocess.run(
        ["bash", str(script), *words], cwd=folder, env=own, capture_output=True, text=True, check=False
    )


@cache
def printed(script: Path, **environment: str) -> list[tuple[str, list[str]]]:
    """Name and words of every step."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = called(script, Path(folder), DRY="1", **{**GIVEN, **environment})
        assert done.returncode == 0, done.stderr
        assert not (Path(folder) / "called").exists()
        assert not (Path(folder) / "made").exists()
    lines = [line.partition(": ") for line in done.stdout.splitlines()]
    return [(name, shlex.split(words)) for name, _, words in lines]


def settings_of(words: list[str]) -> Any:
    """What a command resolves to, as its verb does it.

    Raises:
        SetupError: the verb would refuse it.
    """
    root, verbs = PARSERS
    args = _parse(root, verbs, words)
    _take_settings(verbs[words[0]], args)
    if words[0] == "train":
        return read_job(*train._layers(args), unread=unread_in_training).settings
    if words[0] == "tune":
        return read_tuning_job(*tune._layers(args)).settings
    if words[0] == "eval" and args.paper:
        overrides = [f"data.train={args.words[0]}", "model.name=none", *as_overrides(args)]
        return read_job(args.config, overrides, EvalSettings).settings
    if words[0] == "eval":
        asks = args.completions is None and bool(args.model)
        long = args.long or any(
            benchmarks()[one].kind == "long"
            for word in args.words
            for one in groups().get(word, (word,))
            if one in benchmarks()
        )
        return evaluate._config(args, asks=asks, long=long)[1].settings
    return None


class Taken(Exception):
    """A script's parser has taken its words."""


def parse(path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script until its words are parsed."""
    own = "parse_known_args" if "parse_known_args" in path.read_text("utf-8") else "parse_args"
    read = getattr(ArgumentParser, own)

    def take(parser: ArgumentParser, given: list[str] | None = None, *more: Any) -> None:
        read(parser, given, *more)
        raise Taken

    with monkeypatch.context() as patched:
        patched.setattr(ArgumentParser, own, take)
        script(path, *words)


@each
def test_every_command_would_be_taken(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = printed(script)
    for file in {word for _, words in steps for word in words if re.fullmatch(r"in/\S+\.toml", word)}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()  # settings that data.py writes
    assert len(steps) == len({name for name, _ in steps}) > 3
    for name, words in steps:
        if words[0] == "python":
            with pytest.raises(Taken):
                parse(Path(words[1]), words[2:], monkeypatch)
        else:
            assert words[0] == "factrl"
            settings_of(words[1:])
        assert words[-2:] == ["--output", f"made/{name}"]


@each
def test_a_step_reads_what_is_there_by_then(script: Path) -> None:
    made: list[str] = []
    for name, words in printed(script):
        for file in re.findall(r"(?:^|=)made/(\S+)", "\n".join(words[:-1]), re.M):
            assert any(f"{file}/".startswith(f"{one}/") for one in made), f"{name} reads {file}"
        made.append(name)


@each
def test_with_several_gpus_what_trains_is_started_by_accelerate(script: Path) -> None:
    for name, words in printed(script, GPUS="2"):
        verb = words[words.index("factrl") + 1] if "factrl" in words else ""
        assert (words[:2] == ["accelerate", "launch"]) == (verb in ("train", "tune")), name


@each
def test_a_mistake_is_one_line_before_the_first_step(script: Path, tmp_path: Path) -> None:
    files = {
        word.rpartition("=")[2]
        for _, words in printed(script)
        for word in words
        if word.rpartition("=")[2].startswith("in/")
    }
    assert files
    for file in files:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")

    def refused(named: str, *words: str, **environment: str) -> None:
        done = called(script, tmp_path, *words, **environment)
        assert done.returncode, named
        assert named in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "called").exists(), named

    for file in files:
        (tmp_path / file).rename(tmp_path / "away")
        refused(file, **GIVEN)
        (tmp_path / "away").rename(tmp_path / file)
    for name in GIVEN.keys() - {"VERISCORE"}:  # a folder, looked for as VeriScore where it is not given
        if name in script.read_text("utf-8"):
            refused(name, **{key: value for key, value in GIVEN.items() if key != name})
    refused("no-such-step", "no-such-step", **GIVEN)


@pytest.mark.parametrize("table", sorted(RECIPES.glob("*/table*.toml")), ids=lambda path: path.parent.name)
def test_a_published_row_is_a_step_and_its_changes_have_a_start(table: Path) -> None:
    published = read_published(table)
    whole = printed(table.parent / "run.sh", EXISTING="1", WEIGHTS="0.3 0.3 0.4", BETA="0.1")
    steps = {Path(name).name.removeprefix("eval-") for name, _ in whole}
    names = {one.name for one in published.rows}
    for one in published.rows:
        assert one.name in steps, one
        assert not one.start or one.start in names, one
        assert one.values, one
