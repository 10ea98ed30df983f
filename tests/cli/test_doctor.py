"""`factrl doctor`: what it finds, what it leaves unsaid, and when it fails."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from factrl import doctor
from factrl.cli import main
from factrl.doctor import Diagnostic, cache, extra_finding, megabytes, sqlite, variables
from factrl.llm import models
from fault_server import FaultServer, answers, says

REQUIRED = [
    "httpx>=0.27",
    "tomli>=2; python_version < '3.5'",
    'future>=2; python_version >= "3.5"',
    "torch>=2.6; extra == 'train'",
    'trl<1.17,>=1.16; extra == "train"',
    'old>=1; python_version < "3.5" and extra == "train"',
]


pytestmark = pytest.mark.usefixtures("folder")


def examined(capsys: pytest.CaptureFixture[str], code: int = 0) -> list[Diagnostic]:
    """What `factrl doctor --json` says."""
    assert main(["doctor", "--json"]) == code
    return [Diagnostic(**row) for row in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("extra", "installed", "state", "detail"),
    [
        ("", {"httpx": "0.28.1", "future": "2.0"}, "ok", "httpx 0.28.1, future 2.0"),
        (
            "",
            {"httpx": "0.27"},
            "wrong",
            "future not installed: pip install --force-reinstall '.' in a clone",
        ),
        ("train", {"torch": "2.10.0+cpu", "trl": "1.16"}, "ok", "torch 2.10.0+cpu, trl 1.16"),
        (
            "train",
            {"torch": "2.10"},
            "missing",
            "trl not installed: pip install '.[train]' in a clone of factrl",
        ),
        ("train", {"torch": "2.6", "trl": "1.17.0"}, "warning", "trl 1.17.0, not <1.17,>=1.16: pip"),
    ],
)
def test_an_extra_is_whole_missing_or_of_another_version(
    extra: str, installed: dict[str, str], state: str, detail: str
) -> None:
    diagnostic = extra_finding(extra, REQUIRED, installed.get)
    assert diagnostic.state == state
    assert diagnostic.detail.startswith(detail)


def test_a_sqlite_that_can_damage_the_cache_is_warned_of() -> None:
    assert [sqlite(version).state for version in ("3.51.2", "3.51.3", "3.52")] == ["warning", "ok", "ok"]


@pytest.mark.parametrize(("version", "expected"), [("2.9.1+cpu", 1), ("2.10.0", 0), (None, 0)])
def test_a_torch_that_runs_code_of_checkpoints_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str | None, expected: int
) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda name: version if name == "torch" else "99")
    assert [one.what for one in examined(capsys)].count("torch") == expected


def test_the_cache_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache(folder / "a" / "b") == Diagnostic("ok", "cache", f"{folder / 'a' / 'b'}, not made yet")
    (folder / "inside").mkdir()
    (folder / "inside" / "model").write_bytes(b"x" * 2_500_000)
    (folder / "link").symlink_to(folder / "inside" / "model")
    assert cache(folder) == Diagnostic("ok", "cache", f"{folder}, 2.5 MB")
    monkeypatch.setenv("FACTRL_CACHE", str(folder / "inside" / "model"))
    (wrong,) = [finding for finding in examined(capsys, 1) if finding.state == "wrong"]
    assert (wrong.what, "set FACTRL_CACHE" in wrong.detail) == ("cache", True)


def test_variables_are_named_and_never_told() -> None:
    finding = variables({"OPENAI_API_KEY": "sk-secret", "FACTRL_JUDGE_MODEL": "secret-model", "HOME": "/x"})
    assert finding.detail.startswith("set: FACTRL_JUDGE_MODEL, OPENAI_API_KEY; not set: ")
    assert "secret" not in finding.detail


def test_one_line_per_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"(ok|missing|warning|wrong) +\S", line) for line in lines)
    names = [re.split(r" {2,}", re.sub(r"^\w+ +", "", line))[0] for line in lines]
    assert {"factrl", "packages", "extra train", "SQLite", "cache", "environment", "model"} <= {*names}
    assert not {"extra dev", "extra test", "judge server"} & {*names}
    assert sqlite3.sqlite_version in "".join(lines)
    for model in models.MODELS:
        expected = f"{model.name} is not here ({megabytes(model.size)}): factrl doctor --get {model.name}"
        assert expected in "".join(lines)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (says("ok"), ""),
        (answers(401, {"error": {"message": "bad key sk-secret"}}), "check that key"),
    ],
)
def test_a_judge_server_is_asked_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fault: Any, problem: str
) -> None:
    server = FaultServer(fault)
    monkeypatch.setenv("FACTRL_JUDGE_BASE_URL", server.url)
    monkeypatch.setenv("FACTRL_JUDGE_MODEL", "m")
    monkeypatch.setenv("FACTRL_JUDGE_API_KEY", "sk-secret")
    (diagnostic,) = [one for one in examined(capsys, int(problem != "")) if one.what == "judge server"]
    server.close()
    assert diagnostic.state == ("wrong" if problem else "ok")
    assert problem in diagnostic.detail
    assert "sk-secret" not in diagnostic.detail
    assert len(server.requests) == 1


def test_factrl_that_is_no_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert [one.state for one in examined(capsys) if one.what == "packages"] == ["warning"]


# factrl doctor --get


def test_a_model_that_is_here_is_not_downloaded(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("cache", "models", "mine")
    folder.mkdir(parents=True)
    assert main(["doctor", "--get", str(folder)]) == 0  # a folder is that folder
    assert capsys.readouterr().out == f"{folder}\n"


def test_a_download_that_fails_says_what_was_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["doctor", "--get", "SmolLM2-135M-Instruct"]) == 2
    message = "No matching distribution found; the hub: huggingface_hub is not installed; check the network"
    assert message in capsys.readouterr().err
