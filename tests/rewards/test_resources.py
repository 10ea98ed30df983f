"""One table says what settings make for a reward: a row more, and all that speak of resources know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.cli import main
from factrl.papers import load_paper, load_reward, paper_names
from factrl.rewards.needs import RESOURCES, Resource, supply
from factrl.stress.stand_ins import Truth, stand_ins
from factrl.types import Completion, Example

OWN = """
import factrl as fx

@fx.reward
def fresh(example, completion, *, novelty):
    return {"new": novelty(completion)}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    row = Resource("verifier.web", lambda source: len, ("verifier.web",))
    monkeypatch.setitem(RESOURCES, "novelty", row)
    (tmp_path / "own.py").write_text(OWN, "utf-8")
    (tmp_path / "q.jsonl").write_text('{"question": "Where?", "answers": ["Warsaw"]}\n', "utf-8")
    return str(tmp_path / "own.py:fresh")


def test_papers_ask_for_what_has_a_row_and_a_stand_in() -> None:
    rewards = [one for name in paper_names() for one in load_paper(name).variants.values()]
    asked = {name for one in rewards for name in one.resources}
    assert asked <= {*RESOURCES} == {*stand_ins(Truth(lambda text: None))}


def test_settings_make_a_further_resource(own: str) -> None:
    assert supply(load_reward(own))(Example("?"), Completion("four")).value == 4


def test_show_says_where_a_further_resource_comes_from(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", own]) == 1  # nothing stands in for it, so what it pays is not known
    shown = capsys.readouterr()
    assert "novelty   verifier.web" in shown.out
    assert "novelty" in shown.err


@pytest.mark.parametrize(("word", "code"), [("verifier.web=http://h/", 0), ("judge.url=http://h/v1#m", 2)])
def test_a_dry_run_knows_which_settings_a_further_resource_reads(
    own: str, tmp_path: Path, word: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "m", "--data", str(tmp_path / "q.jsonl"), "--dry-run", "train.prompts_per_step=1"]
    assert main(["train", own, *words, word]) == code
    assert ("this needs novelty" in capsys.readouterr().err) == bool(code)
