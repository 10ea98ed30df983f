"""`factrl doctor`: what it finds, what it leaves unsaid, and when it fails."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from factrl.cli import doctor, main
from factrl.cli.doctor import Finding, cache, extra_finding, megabytes, sqlite, variables
from factrl.llm import models
from fault_server import FaultServer, answers, closed_port, says

REQUIRED = [
    "httpx>=0.27",
    "tomli>=2; python_version < '3.5'",
    'future>=2; python_version >= "3.5"',
    "torch>=2.6; extra == 'train'",
    'trl<1.17,>=1.16; extra == "train"',
    'old>=1; python_version < "3.5" and extra == "train"',
    "gguf>=0.10; extra == 'demo'",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FaultServer]]:
    servers: list[FaultServer] = []

    def start(*script: Any) -> FaultServer:
        servers.append(FaultServer(*script))
        monkeypatch.setenv("FACTRL_JUDGE_BASE_URL", servers[-1].url)
        monkeypatch.setenv("FACTRL_JUDGE_MODEL", "m")
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def examined(capsys: pytest.CaptureFixture[str], code: int = 0) -> list[Finding]:
    """What `factrl doctor --json` says."""
    assert main(["doctor", "--json"]) == code
    return [Finding(**row) for row in json.loads(capsys.readouterr().out)]


# Single findings


@pytest.mark.parametrize(
    ("extra", "installed", "expected"),
    [
        ("", {"httpx": "0.28.1", "future": "2.0"}, Finding("ok", "packages", "httpx 0.28.1, future 2.0")),
        (
            "",
            {"httpx": "0.26", "future": "2"},
            Finding("wrong", "packages", "httpx 0.26, not >=0.27: pip install --force-reinstall factrl"),
        ),
        (
            "",
            {"httpx": "0.27"},
            Finding("wrong", "packages", "future not installed: pip install --force-reinstall factrl"),
        ),
        (
            "train",
            {"torch": "2.10.0+cpu", "trl": "1.16"},
            Finding("ok", "extra train", "torch 2.10.0+cpu, trl 1.16"),
        ),
        (
            "train",
            {"torch": "2.10.0"},
            Finding("missing", "extra train", "trl not installed: pip install 'factrl[train]'"),
        ),
        (
            "train",
            {},
            Finding("missing", "extra train", "torch, trl not installed: pip install 'factrl[train]'"),
        ),
        (
            "train",
            {"torch": "2.6", "trl": "1.17.0"},
            Finding("warning", "extra train", "trl 1.17.0, not <1.17,>=1.16: pip install 'factrl[train]'"),
        ),
        (
            "demo",
            {"gguf": "0.9.9"},
            Finding("warning", "extra demo", "gguf 0.9.9, not >=0.10: pip install 'factrl[demo]'"),
        ),
    ],
)
def test_extras(extra: str, installed: dict[str, str], expected: Finding) -> None:
    assert extra_finding(extra, REQUIRED, installed.get) == expected


def test_every_requirement_of_factrl_is_understood() -> None:
    for line in metadata.requires("factrl") or []:
        match = doctor._REQUIREMENT.fullmatch(line)
        assert match is not None, line
        assert re.fullmatch(r"(\s*(>=|<)[\d.]+,?)*\s*", match["wanted"]), line


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("3.40.1", "warning"),
        ("3.51.2", "warning"),
        ("3.51.3", "ok"),
        ("3.52", "ok"),
        ("3.52.0", "ok"),
        ("4", "ok"),
    ],
)
def test_sqlite(version: str, state: str) -> None:
    finding = sqlite(version)
    assert finding.state == state
    assert finding.detail.startswith(version)
    assert ("fixed in 3.51.3" in finding.detail) == (state == "warning")


@pytest.mark.parametrize(("version", "told"), [("2.9.1+cpu", 1), ("2.10.0", 0), ("3.0", 0), (None, 0)])
def test_old_torch(monkeypatch: pytest.MonkeyPatch, version: str | None, told: int) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == "torch" else None)
    found = [finding for finding in doctor._torch() if finding.state == "warning"]
    assert len(found) == told


def test_the_cache_folder(folder: Path) -> None:
    assert cache(folder / "a" / "b") == Finding("ok", "cache", f"{folder / 'a' / 'b'}, not made yet")
    (folder / "inside").mkdir()
    (folder / "inside" / "model").write_bytes(b"x" * 2_500_000)
    (folder / "link").symlink_to(folder / "inside" / "model")
    assert cache(folder) == Finding("ok", "cache", f"{folder}, 2.5 MB")
    wrong = cache(folder / "inside" / "model")
    assert wrong.state == "wrong"
    assert "set FACTRL_CACHE" in wrong.detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_folder_that_cannot_be_written(folder: Path) -> None:
    folder.chmod(0o500)
    assert cache(folder).state == cache(folder / "new").state == "wrong"
    folder.chmod(0o700)


@pytest.mark.parametrize(
    ("size", "told"), [(0, "0.0 MB"), (12_345_678, "12.3 MB"), (1_117_000_000, "1.1 GB")]
)
def test_sizes(size: int, told: str) -> None:
    assert megabytes(size) == told


@pytest.mark.security("S37")
def test_variables_are_named_and_never_told() -> None:
    finding = variables({"OPENAI_API_KEY": "sk-secret", "FACTRL_JUDGE_MODEL": "secret-model", "HOME": "/x"})
    assert finding.detail.startswith("set: FACTRL_JUDGE_MODEL, OPENAI_API_KEY; not set: ")
    assert "secret" not in finding.detail


# All of it


def test_one_line_per_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"(ok|missing|warning|wrong) +\S", line) for line in lines)
    names = [re.split(r" {2,}", re.sub(r"^\w+ +", "", line))[0] for line in lines]
    assert {"factrl", "packages", "extra train", "SQLite", "cache", "environment", "model"} <= {*names}
    assert not {"extra dev", "extra test", "judge server"} & {*names}
    assert sqlite3.sqlite_version in "".join(lines)


def test_models_are_listed_with_the_way_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    told = {finding.detail for finding in examined(capsys) if finding.what == "model"}
    for model in models.known():
        assert f"{model.name} is not here ({megabytes(model.size)}): factrl models get {model.name}" in told


def test_a_judge_server_that_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, serve: Callable[..., FaultServer]
) -> None:
    server = serve(says("ok"))
    monkeypatch.setenv("FACTRL_JUDGE_API_KEY", "sk-secret")
    assert Finding("ok", "judge server", "it answers") in examined(capsys)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (answers(404, {"error": {"message": "no model m"}}), "check the model's name"),
        (answers(401, {"error": {"message": "bad key sk-secret"}}), "check that key"),
        (answers(500, {}), "500"),
    ],
)
def test_a_judge_server_that_does_not(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[..., FaultServer],
    fault: Any,
    said: str,
) -> None:
    serve(fault)
    monkeypatch.setenv("FACTRL_JUDGE_API_KEY", "sk-secret")
    wrong = [finding for finding in examined(capsys, 1) if finding.state == "wrong"]
    assert [finding.what for finding in wrong] == ["judge server"]
    assert said in wrong[0].detail
    assert "sk-secret" not in wrong[0].detail


def test_a_judge_server_that_is_down(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTRL_JUDGE_BASE_URL", closed_port())
    wrong = [finding for finding in examined(capsys, 1) if finding.state == "wrong"]
    assert "could not be reached" in wrong[0].detail


def test_a_cache_that_cannot_be_made_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (folder / "file").write_text("x")
    monkeypatch.setenv("FACTRL_CACHE", str(folder / "file" / "cache"))
    assert [finding.what for finding in examined(capsys, 1) if finding.state == "wrong"] == ["cache"]


def test_factrl_that_is_no_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    found = [finding for finding in examined(capsys) if finding.what == "packages"]
    assert [finding.state for finding in found] == ["warning"]
