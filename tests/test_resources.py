"""One table says what a reward may ask for: a row more, and all that speak of resources know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from factrl.cli import main
from factrl.papers import load_paper, load_reward, paper_names, rewards_of
from factrl.rewards.resources import RESOURCES, Resource, supply
from factrl.stress import broken
from factrl.studies import add_row, load_study
from factrl.types import Completion, Example

OWN = """
import factrl as fx

@fx.reward
def fresh(example, completion, *, novelty):
    return {"new": novelty(completion)}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def stand_in(truth: Any) -> Any:
        return lambda text: float(truth.of(text))

    row = Resource(
        "verifier.web", stand_in, lambda source: len, ("verifier.web",), by_table=lambda facts: len
    )
    monkeypatch.setitem(RESOURCES, "novelty", row)
    (tmp_path / "own.py").write_text(OWN, "utf-8")
    (tmp_path / "q.jsonl").write_text('{"question": "Where?", "answers": ["Warsaw"]}\n', "utf-8")
    return str(tmp_path / "own.py:fresh")


def test_papers_ask_for_what_has_a_row() -> None:
    rewards = [one for name in paper_names() for one in rewards_of(load_paper(name)).values()]
    assert {name for one in rewards for name in one.resources} <= {*RESOURCES}


def test_settings_make_a_further_resource(own: str) -> None:
    assert supply(load_reward(own))(Example("?"), Completion("four")).value == 4


def test_show_says_where_a_further_resource_comes_from(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", own]) == 0
    shown = capsys.readouterr().out
    assert "novelty   verifier.web" in shown
    assert "correct    1 = new 1" in shown
    assert "wrong      0 = new 0" in shown


@pytest.mark.parametrize(("word", "code"), [("verifier.web=http://h/", 0), ("judge.url=http://h/v1#m", 2)])
def test_a_dry_run_knows_which_settings_a_further_resource_reads(
    own: str, tmp_path: Path, word: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "m", "--data", str(tmp_path / "q.jsonl"), "--dry-run", "train.prompts_per_step=1"]
    assert main(["train", own, *words, word]) == code
    assert ("this needs novelty" in capsys.readouterr().err) == bool(code)


def test_stress_stands_in_for_a_further_resource(own: str) -> None:
    assert broken(load_reward(own), "D01", questions=1)


def test_a_study_has_a_further_resource_that_a_table_knows(own: str) -> None:
    assert "own-fresh" in add_row(load_study("knowrl"), own).rows
