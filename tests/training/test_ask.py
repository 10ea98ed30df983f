"""`factrl ask`: questions over a pipe to one and to two models, and the line that a demo ends with."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from factrl.cli import main

PAYS = """
import factrl as fx

@fx.reward
def pays(example, completion):
    return {"x": 0.5}

@fx.reward
def fails(example, completion):
    raise fx.Unscored("our_side", "down")

@fx.reward(needs=fx.Needs(lambda example: None if example.topic else "it has no topic"))
def topical(example, completion):
    return {"x": 0.5}
"""
PIPED = "where is ada from ? | rome | in rome\n\nwhere is \x1b[31mbo from ?\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ask(
    monkeypatch: pytest.MonkeyPatch, text: str, *words: str, stdin: type[io.StringIO] = io.StringIO
) -> int:
    monkeypatch.setattr(sys, "stdin", stdin(text))
    return main(["ask", *words, "train.max_completion_length=4"])


@pytest.mark.parametrize(
    ("paper", "first", "second"),
    [
        (
            "truthrl",
            "[incorrect (no_box), reward -1.00 (no_box)]",
            "[no label: no accepted answers, no reward: it needs accepted answers]",
        ),
        ("pays.py:pays", "[incorrect, reward +0.50]", "[no label: no accepted answers, reward +0.50]"),
        ("pays.py:fails", ", no reward: our_side]", "[no label: no accepted answers, no reward: our_side]"),
        ("pays.py:topical", "it has no topic]", "it has no topic]"),
    ],
)
def test_each_answer_has_its_label_and_reward_or_why_there_is_none(
    paper: str,
    first: str,
    second: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pays.py").write_text(PAYS)
    model = str(tiny_model)
    assert ask(monkeypatch, PIPED, model, model, "--paper", paper) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    lines = [line for line in out.split("\n") if line]
    assert [line.split()[0] for line in lines] == ["where", "before", "after"] * 2
    for line, end in zip(lines, ("", first, first, "", second, second), strict=True):
        assert line.endswith(end), out
    assert ask(monkeypatch, PIPED, model, "--paper", paper, "run.seed=1") == 0
    assert capsys.readouterr().out.count("  answer  ") == 2


def test_a_mark_of_the_byte_order_is_no_part_of_a_question(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (str(tiny_model), "--paper", "truthrl")
    outs = []
    for text in ("where is ada from ? | rome\n", "\ufeffwhere is ada from ? | rome\r\n"):
        assert ask(monkeypatch, text, *words) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]


def test_in_a_terminal_questions_are_asked_for(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (str(tiny_model), "--paper", "truthrl")
    talk = " | rome\nwhere is ada from ? | rome\n"  # the first line is a slip of the hand
    assert ask(monkeypatch, talk, *words, stdin=Terminal) == 0
    out = capsys.readouterr().out
    assert out.count("question | accepted answer | another: ") == 3
    assert out.count("line 1 of stdin has no question before its |") == 1
    assert out.count("  answer  ") == 1
    assert out.endswith("another: \n")


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (" | rome\n", ("--paper", "truthrl"), "line 1 of stdin has no question before its |"),
        ("", (), "factrl ask needs a reward: --paper truthrl"),
        ("", ("--paper", "truthrl:retrieval"), "data.prompt: {evidence} is no column"),
        ("", ("--paper", "truthrl", "train.learning_rate=1"), "train.learning_rate = 1"),
        ("", ("--paper", "truthrl", "verifier.docs=['x']"), "is not used: it is for verify"),
        ("", ("nowhere/at/all", "--paper", "truthrl"), "there is no such folder"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    text: str,
    words: tuple[str, ...],
    message: str,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ask(monkeypatch, text, str(tiny_model), *words) == 2
    error = capsys.readouterr().err.rpartition("factrl: ")[2]
    assert message in error
    assert error.count("\n") == 1
