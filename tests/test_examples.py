"""The numbered programs in `examples/` run as they stand, and print what they promise."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTS = {
    "01_verify": ("Marie Curie was born in Warsaw", "of 2 claims are supported"),
    "02_evaluate": (
        "hallucination",
        "-40.0 [-70.0, -10.0]",
        "wrong: What is the capital of Australia? Sydney",
    ),
    "03_reward": (
        "right, true reasoning     +4.00  scored",
        "wrong                     +1.00  scored",
        "no answer block           -1.00  floored",
        "anything else is masked, its reward is None: connection",
    ),
    "04_trl": ("step  reward  floored  masked  abstains", "   1", "   2"),
    "05_serve": (
        r"\boxed{Warsaw}          +1  scored",
        r"\boxed{Paris}           -1  scored",
        "floored no_box",
    ),
    "06_own_reward": ("answering pays above a confidence of 60%", "D07                   one safe fact"),
}
# The weights and the packages without which an example is skipped.
NEEDS = {
    "01_verify": ("Qwen2.5-Coder-1.5B-Instruct", ("xllamacpp",)),
    "04_trl": ("SmolLM2-135M-Instruct", ("torch", "trl", "gguf")),
    "05_serve": ("", ("fastapi", "uvicorn")),
}
MARKS = {"01_verify": [pytest.mark.model], "04_trl": [pytest.mark.model, pytest.mark.torch]}


def names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("[0-9]*.py"))


def test_each_example_says_what_it_prints() -> None:
    assert names() == sorted(PRINTS)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in names()])
def test_an_example_prints_what_a_person_wants_to_see(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from factrl.llm import models

    model, packages = NEEDS.get(name, ("", ()))
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if model and models.cached(model) is None:
        pytest.skip(f"{model} is not downloaded")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for line in PRINTS[name]:
        assert line in printed, printed
    if name == "01_verify":
        assert "no model judged" not in printed
