"""A paper is one file: every verb knows its reward, its form and its weaknesses from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import factrl.papers
from commands import write
from factrl.cli import main

PAPER = '''"""Made up: right or not, and a quarter for declining.

Paper     Nobody's, of no year
"""

from __future__ import annotations

from factrl.papers import Paper
from factrl.rewards import reward
from factrl.rewards.grading import Grader
from factrl.text import boxed
from factrl.text.abstention import abstains


@reward
def madeup(example, completion, *, grade: Grader, declined: float = 0.25):
    """Right or not; the term is `right`."""
    box = boxed(completion)
    if box is None:
        return {"right": -1.0}
    if abstains(box.text, example.question):
        return {"right": declined}
    return {"right": float(grade(example.question, box.text, example.answers).label == "correct")}


PAPER = Paper(
    {"paper": madeup, "harsh": madeup.with_(declined=0.0)},
    form="boxed",
    settings={"": {"data": {"prompt": "Q: {question} A:"}, "train": {"learning_rate": 2e-6}}},
    weaknesses={"": {"wrong >= floored": "made up", "D30": "the reasoning is not read"}, "harsh": {}},
)
'''


@pytest.fixture(autouse=True)
def _one_paper_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The papers with one file more."""
    (tmp_path / "madeup.py").write_text(PAPER, encoding="utf-8")
    monkeypatch.setattr(factrl.papers, "__path__", [*factrl.papers.__path__, str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    rows = [{"question": "Capital of Italy?", "answers": ["Rome"], "completion": "\\boxed{Rome}"}]
    write("rows.jsonl", *rows * 8)
    yield
    sys.modules.pop("factrl.papers.madeup", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("show", "madeup      Made up: right or not"),
        ("show madeup", "declined"),
        ("show madeup", "0.25"),
        ("eval rows.jsonl --paper madeup", "1.0"),
        ("train madeup --data rows.jsonl --model none --dry-run train.prompts_per_step=8", "madeup"),
    ],
)
def test_every_verb_knows_it(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0, capsys.readouterr().err
    assert said in capsys.readouterr().out


def test_its_form_and_its_weaknesses_reach_stress(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--policies", "D01,D30", "--questions", "4", "--json"]
    main(["stress", "madeup", *small])
    told = json.loads(capsys.readouterr().out)
    assert (told["form"], told["length"]) == ("boxed", "short")
    verdicts = {row["id"]: row["verdict"] for row in told["policies"]}
    assert verdicts["D30"] in ("known", "repaired")
    main(["stress", "madeup:harsh", *small])
    verdicts = {row["id"]: row["verdict"] for row in json.loads(capsys.readouterr().out)["policies"]}
    assert verdicts["D30"] in ("broken", "held")
