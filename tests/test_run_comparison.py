"""Training runs side by side: what is different, a line for each, and the same question answered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_run_page import SETTINGS

from factrl.cli import main
from factrl.errors import ConfigError, DataError
from factrl.runs.folder import Rollout, Run
from factrl.train.page import write_run_comparison
from factrl.types import Result
from test_report import PAYLOADS


def made(folder: Path, name: str, paper: str, level: float) -> Path:
    """A run of three steps that asks the question `q` and one of its own."""
    with Run.create(folder, name, SETTINGS.replace('"fspo"', f'"{paper}"')) as run:
        for step in range(1, 4):
            rows = [
                Rollout("q", "Colour?", f"{name} at {step}", Result("scored", level, {"x": level}), 0.5),
                Rollout(name, PAYLOADS[step], "-", Result("masked", None, cause="timeout"), None),
            ]
            run.write_rollouts(step, rows)
            logged = {"reward": level, "rewards/sum/mean": level * step, "reward/masked_frac": 0.5}
            run.log(step, logged | ({"rewards/fact/mean": 0.25} if paper == "fspo" else {}))
            shares = {"accuracy": 0.5, "abstention": 0.1 * step, "hallucination": 0.5 - 0.1 * step}
            run.log(step, {f"eval/{share}": value for share, value in shares.items()})
    return run.path


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return made(tmp_path, "one", "fspo", 0.5), made(tmp_path, "two", "knowrl", 1.0)


def test_every_quantity_has_a_line_for_each_run_that_has_it(runs: tuple[Path, Path]) -> None:
    first, second = "A", "B"
    text = write_run_comparison(runs).read_text("utf-8")
    sums = re.findall(r"<title>(\S+) ([\d.]+) at step (\d)</title>", text)
    assert (first, "1.5", "3") in sums
    assert (second, "3", "3") in sums
    assert (first, "0.25", "2") in sums  # of the term that only one of them has
    assert (second, "0.25", "2") not in sums
    assert f"{second}, step 3: accuracy 50.0, abstention 30.0" in text


def test_it_says_what_is_different_and_shows_the_same_question(runs: tuple[Path, Path]) -> None:
    text = write_run_comparison(runs).read_text("utf-8")
    assert [folder.name in text.partition("What is different")[0] for folder in runs] == [True, True]
    different = text.partition("What is different")[2].partition("</section>")[0]
    assert re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td><td>([^<]*)</td>', different) == [
        ("paper", "fspo", "knowrl"),
        ("steps done", "3", "3"),
    ]
    states = text.partition("States of completions")[2].partition("</section>")[0]
    assert "masked: timeout" in states
    assert states.count("<td>50.0</td>") == 4
    written = text.partition("What they wrote")[2]
    assert "one at 3" in written
    assert "two at 3" in written
    assert "one at 2" not in written
    assert written.count("<article") == 1


def test_runs_that_asked_different_questions_are_told_so(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with Run.create(tmp_path, name, SETTINGS) as run:
            run.write_rollouts(1, [Rollout(name, name, "-", Result("scored", 1.0, {"x": 1.0}), 0.0)])
            run.log(1, {"reward": 1.0, "rewards/sum/mean": 1.0})
    text = write_run_comparison([*tmp_path.iterdir()]).read_text("utf-8")
    assert "No question was put to all of them." in text
    assert "On the way" not in text


def test_the_verb_compares_runs_and_refuses_what_cannot_be(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *map(str, runs)]) == 0
    assert capsys.readouterr().out.strip() == str(runs[1] / "runs.html")
    assert main(["report", str(runs[0]), str(runs[1]), "--output", str(tmp_path / "p.html")]) == 0
    assert (tmp_path / "p.html").is_file()
    assert main(["report", *map(str, runs), "--json"]) == 2
    with pytest.raises(ConfigError, match="compared with itself"):
        write_run_comparison([runs[0], runs[0] / "."])
    with pytest.raises(DataError, match="is not a run folder"):
        write_run_comparison([runs[0], tmp_path / "none"])
