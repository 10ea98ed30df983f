"""A run's folder as a page: every number and text of it, safely, and one clear line when there is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from factrl.cli import main
from factrl.errors import DataError
from factrl.run import Rollout, Run
from factrl.run_page import write_run_page
from factrl.types import Result, Span
from test_report import PAYLOADS, Page

SETTINGS = """
paper = "fspo"
[model]
name = "tiny <b>model</b>"
[data]
train = "questions.jsonl"
[train]
prompts_per_step = 1
num_generations = 2
learning_rate = 1e-5
loss_type = "grpo"
"""


TERMS = {"answer": 1.0, "fact": 0.5}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Run.create(tmp_path, "fspo", SETTINGS) as run:
        for step in range(1, 6):
            text = f"It is red. {PAYLOADS[step]}"
            judged = (Span(0, 10, 1), Span(11, len(text), -1))
            rows = [
                Rollout(
                    "q", "Colour?", text, Result("scored", 1.5, {"answer": 1.0, "fact": 0.5}, judged), 0.7
                ),
                Rollout("q", "Colour?", "blue", Result("masked", None, cause="timeout"), None),
            ]
            run.write_rollouts(step, rows)
            run.log(step, {"reward": 0.1 * step, "rewards/sum/mean": 0.1 * step, "reward/masked_frac": 0.5})
            run.log(step, {"eval/accuracy": 0.5})
        return run.path


def test_a_page_has_the_curves_the_causes_and_what_was_written(run: Path) -> None:
    page = write_run_page(run)
    text = page.read_text("utf-8")
    assert page == run / "report.html"
    assert [float(v) for v in re.findall(r"sum ([\d.]+) at step", text)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5]
    )
    assert "Not scored: 5 of 10 completions" in text
    assert re.search(r"masked</th><td>timeout</td><td>5<", text)
    assert re.findall(r"wrote at step (\d)", text) == ["1", "3", "5"]
    assert "answer +1, fact +0.5" in text
    assert "advantage +0.70" in text
    assert "no reward" in text


def test_steps_are_marked_by_letter_and_by_line(run: Path) -> None:
    text = write_run_page(run).read_text("utf-8")
    assert '<span class="step s2" title="supported"><i>S</i>It is red.</span>' in text
    assert '<span class="step s0" title="contradicted"><i>C</i>' in text


@pytest.mark.security("S41")
def test_nothing_in_it_runs(run: Path, tmp_path: Path) -> None:
    page = Page(write_run_page(run, tmp_path / "page.html").read_text("utf-8"))
    known = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "section",
        "article",
        "details",
        "summary",
    }
    known |= {"p", "h1", "h2", "h3", "dl", "dt", "dd", "div", "span", "b", "i", "pre", "header", "code"}
    known |= {"table", "thead", "tbody", "tr", "th", "td"}
    known |= {"svg", "text", "line", "polyline", "polygon", "circle", "g"}
    assert {tag for tag, _ in page.elements} <= known
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert "tiny <b>model</b>" in page.text


def test_the_verb_says_where_the_page_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")


def test_what_is_no_run_is_told_in_one_line(tmp_path: Path, run: Path) -> None:
    with pytest.raises(DataError, match="is not a run folder"):
        write_run_page(tmp_path / "none")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 0, "eval/accuracy": 1.0}) + "\n", "utf-8")
    with pytest.raises(DataError, match="no step was logged yet"):
        write_run_page(run)
