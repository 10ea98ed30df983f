"""New prompts: strictly read, all different, none of an evaluation set, and not paid for twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from preparing import ScriptedWriter, asking

from commands import read
from factrl.errors import DataError, LLMError, TooManyMasked, Unscored
from factrl.prepare import TOGETHER, Sieve
from factrl.prepare.prompts import GONE, TRIES, read_new_prompt, write_prompts
from factrl.types import Example

FACTUAL = [Example(f"Tell me the facts of {n}.", id=f"f{n}") for n in range(5)]
USERS = [Example(f"hey what is {n} </prompt> about", id=f"u{n}") for n in range(9)]
NOTHING = Sieve({})


def new(number: int) -> str:
    return f"Here it is: <new_prompt>What is\n known of {number}?</new_prompt>"


def numbered(script: Callable[[int], Any]) -> ScriptedWriter:
    """A writer by the number of the call."""
    return ScriptedWriter(lambda id_, _: script(int(id_.rpartition("-")[2])))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Any]:
    def made(writer: ScriptedWriter, count: int = 5, sieve: Sieve = NOTHING):
        path = tmp_path / "p.jsonl"
        done = write_prompts(writer, asking(), (FACTUAL, USERS), count, path, sieve)
        return done, read(path)

    return made


def test_a_call_shows_two_and_four_by_its_number(make: Callable[..., Any], tmp_path: Path) -> None:
    writers = [numbered(new), numbered(new)]
    make(writers[0], TOGETHER)
    for name in ("p.journal.jsonl", "p.jsonl"):
        (tmp_path / name).unlink()
    make(writers[1], TOGETHER)
    first, second = ([example.question for example, _ in writer.asked] for writer in writers)
    assert first == second
    assert len(set(first)) > TOGETHER // 2
    shown = re.findall(r"<prompt>(.+?)</prompt>", first[0].partition("These")[2])
    assert len(shown) == 6
    assert all("facts of" in text for text in shown[:2])
    assert all(
        "hey what is" in text and "< /prompt>" in text for text in shown[2:]
    )  # it cannot close the tag


def test_what_is_not_new_is_left_out_and_counted(make: Callable[..., Any]) -> None:
    replies = {
        0: new(1), 1: new(1), 2: "No tags here", 3: new(2) + new(3), 4: "<new_prompt> ?! </new_prompt>",
        5: "<new_prompt>TELL me facts of 3</new_prompt>", 6: f"<new_prompt>{'x' * 2001}</new_prompt>",
        7: new(77),
    }  # fmt: skip
    sieve = Sieve({"what is known of 77": "eval.jsonl"})
    done, rows = make(numbered(lambda n: replies.get(n, new(n))), 3, sieve)
    assert [row["number"] for row in rows] == [0, 8, 9]
    assert done.outcomes == {
        "kept": 3, "repeat": 1, "no_tag": 1, "several_tags": 1, "empty": 1, "demonstration": 1,
        "too_long": 1, "contaminated": 1,
    }  # fmt: skip


def test_what_was_not_written_is_asked_again(make: Callable[..., Any]) -> None:
    down = {1}
    writer = numbered(lambda n: LLMError("timeout") if n in down else new(n))
    done, rows = make(writer, 4)
    assert ([row["number"] for row in rows], done.outcomes["not_written"]) == ([0, 2, 3, 4], 1)
    down.clear()
    asked = len(writer.asked)
    _, rows = make(writer, 4)
    assert ([row["number"] for row in rows], len(writer.asked) - asked) == ([0, 1, 2, 3], 1)


def test_it_ends_when_nothing_comes(make: Callable[..., Any]) -> None:
    silent = numbered(lambda n: "Nothing.")
    done, rows = make(silent, 10)
    assert (rows, done.outcomes) == ([], {"no_tag": 10 * TRIES})


def test_a_server_that_goes_away_midway_leaves_what_is_there(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    up = 64
    writer = numbered(lambda n: new(n) if n < up else LLMError("timeout"))
    with pytest.raises(TooManyMasked, match="64 of 66 prompts"):
        make(writer, 66)
    assert len(writer.asked) == 64 + GONE
    assert not (tmp_path / "p.jsonl").exists()
    up = 100
    asked = len(writer.asked)
    _, rows = make(writer, 66)
    assert (len(rows), len(writer.asked) - asked) == (66, 2)


def test_too_few_demonstrations_are_told(tmp_path: Path) -> None:
    for groups, name in (
        ((FACTUAL[:1], USERS), "--demonstrations holds 1"),
        ((FACTUAL, USERS[:3]), "--like holds 3"),
    ):
        with pytest.raises(DataError, match=name):
            write_prompts(numbered(new), asking(), groups, 1, tmp_path / "p.jsonl", NOTHING)


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ("<new_prompt>What?", "no_tag"),
        ("What?</new_prompt>", "no_tag"),
        ("</new_prompt>What?<new_prompt>", "no_tag"),
        ("<new_prompt><new_prompt>What?</new_prompt>", "several_tags"),
    ],
)
def test_what_is_no_prompt(reply: str, cause: str) -> None:
    with pytest.raises(Unscored) as error:
        read_new_prompt(reply)
    assert error.value.cause == cause
