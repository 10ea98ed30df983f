"""A run's folder as a page: every number and text of it, safely, and one clear line when there is none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from factrl.cli import main
from factrl.errors import DataError
from factrl.runs.folder import Rollout, Run
from factrl.train.page import write_run_page
from factrl.types import Result, Span
from pages import PAYLOADS, Page

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


def test_a_page_has_the_curves_the_causes_and_what_was_written(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    text = (run / "report.html").read_text("utf-8")
    whole = Page(text)
    for attrs in (*whole.by_class("scroll"), *whole.by_class("tall")):  # reached by keyboard
        assert (attrs.get("tabindex"), attrs.get("role")) == ("0", "region"), attrs
    assert [float(v) for v in re.findall(r"sum ([\d.]+) at step", text)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5]
    )
    assert "Not scored: 5 of 10 completions" in text
    assert re.search(r"masked</th><td>timeout</td><td>5<", text)
    assert re.findall(r"wrote at step (\d)", text) == ["1", "3", "5"]
    assert "answer +1, fact +0.5" in text
    assert "advantage +0.70" in text
    assert "no reward" in text


def test_what_is_no_run_is_told_in_one_line(tmp_path: Path, run: Path) -> None:
    with pytest.raises(DataError, match="is not a run folder"):
        write_run_page(tmp_path / "none")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 0, "eval/accuracy": 1.0}) + "\n", "utf-8")
    with pytest.raises(DataError, match="no step was logged yet"):
        write_run_page(run)


def test_held_out_questions_are_drawn_where_the_run_asked_some(run: Path) -> None:
    text = write_run_page(run).read_text("utf-8")
    assert "On the way" not in text
    assert "reward 0.10 at step 1 → 0.50 at step 5; no question was held out" in text
    with Run.open(run) as more:
        for step, right in ((2, 0.25), (4, 0.5)):
            shares = {"accuracy": right, "abstention": 0.25, "hallucination": 0.75 - right}
            more.log(step, {f"eval/{name}": value for name, value in shares.items()})
        more.log(5, {f"eval/{name}": None for name in ("accuracy", "abstention", "hallucination")})
    text = write_run_page(run).read_text("utf-8")
    for told in ("accuracy 50.0 at step 4", "hallucination 25.0 at step 4", "truthfulness 25.0 at step 4"):
        assert told in text
    shares = "hallucination 50.0 → 25.0 %, abstention 25.0 → 25.0 %, accuracy 25.0 → 50.0 %"
    assert f"held-out questions, step 2 → 4: {shares}" in text


def test_a_step_in_which_nothing_could_be_graded_is_no_damage(tmp_path: Path) -> None:
    with Run.create(tmp_path, "fspo", SETTINGS) as run:
        run.log(1, {"reward": None, "reward/masked_frac": 1.0})
        assert "no completion could be graded" in write_run_page(run.path).read_text("utf-8")
        run.log(2, {"reward": 0.25, "reward/masked_frac": 0.0})
        run.log(3, {"reward": None, "reward/masked_frac": 1.0})
        assert "reward 0.25 at step 2 → 0.25 at step 2" in write_run_page(run.path).read_text("utf-8")


def test_a_group_is_called_by_its_question_and_what_is_alike_stands_once(tmp_path: Path) -> None:
    with Run.create(tmp_path, "fspo", SETTINGS) as run:
        same = [
            Rollout("q", "<|user|>Colour?", "blue", Result("scored", 1.0, {"x": 1.0}), 0.5, "Colour?")
        ] * 3
        run.write_rollouts(1, [*same, replace(same[0], completion="red")])
        run.log(1, {"reward": 1.0, "rewards/sum/mean": 1.0, "rewards/x/mean": 1.0, "reward/masked_frac": 0.0})
        text = write_run_page(run.path).read_text("utf-8")
    assert "&lt;|user|&gt;" not in text
    assert text.count("Colour?") == 1
    assert (text.count("3 × scored"), text.count(">scored<")) == (1, 1)
    assert "x 1 at step" not in text, "a reward of one term is drawn twice"


def test_the_worst_and_the_best_are_shown(tmp_path: Path) -> None:
    with Run.create(tmp_path, "fspo", SETTINGS) as run:
        for step in range(1, 14):
            values = {f"text {n} of step {step}": step + n / 10 for n in range(4)}
            rows = [
                Rollout(
                    "q", "?", text, Result("scored", value, {"x": value}, facts={"label": "<b>", "n": 3}), 0.0
                )
                for text, value in values.items()
            ]
            run.write_rollouts(
                step, [*rows, Rollout("q", "?", "none", Result("masked", None, cause="x"), None)]
            )
            run.log(step, {"reward": 0.0})
        text = write_run_page(run.path).read_text("utf-8")
    part = text.partition("<h2>Worst and best</h2>")[2].partition("</section>")[0]
    assert re.findall(r"text (\d) of step (\d+)", part) == [
        *(("0", "4"), ("1", "4"), ("2", "4")),  # the worst of the last ten steps
        *(("3", "13"), ("2", "13"), ("1", "13")),
    ]
    assert "label &lt;b&gt;, n 3" in part


def test_checked_claims_are_shown_with_their_evidence(tmp_path: Path) -> None:
    bad = '<b onclick="x()">&'
    kept = [
        {"claim": bad, "verdict": "supported", "quote": f"Red {bad}", "source": f"Colours {bad}"},
        {"claim": "It is blue", "verdict": "unknown", "quote": "", "source": ""},
    ]
    facts = [{"checked": one} for one in (kept, [], "of one's own", [1, None])]
    with Run.create(tmp_path, "knowrl", SETTINGS) as run:
        results = [Result("scored", float(n), {"fact": 1.0}, facts=some) for n, some in enumerate(facts)]
        run.write_rollouts(1, [Rollout("q", "Colour?", f"text {n}", r, 0.0) for n, r in enumerate(results)])
        run.log(1, {"reward": 1.0})
    text = write_run_page(run.path).read_text("utf-8")
    step = text[text.index("What it wrote at step 1") :]
    assert step.count("claims that were checked: 2") == step.count("claims that were checked") == 1
    page = Page(text)
    assert f"“Red {bad}” (Colours {bad})" in page.text
    assert not [attrs for _, attrs in page.elements if "onclick" in attrs]
