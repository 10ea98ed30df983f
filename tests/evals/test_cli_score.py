"""`factrl eval FILE --paper P`: the rewards of stored completions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import read, write
from factrl.cli import main
from factrl.cli.score import AT_ONCE, score_stored
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.types import Example
from fault_server import FaultServer, answers, says

ROWS: list[dict[str, Any]] = [
    {"id": "1", "question": "Capital of Peru?", "answers": ["Lima"], "completion": "It is \\boxed{Lima}"},
    {
        "id": "2",
        "question": "Capital of Chile?",
        "answers": ["Santiago"],
        "completion": "\\boxed{I don't know}",
    },
    {"id": "3", "question": "Capital of Norway?", "answers": ["Oslo"], "completion": "\\boxed{Bergen}"},
    {"id": "4", "question": "Capital of Japan?", "answers": ["Tokyo"], "completion": "Tokyo"},
    {"id": "5", "question": "Capital of Japan?", "answers": ["Tokyo"], "completion": None},
]
OWN = """
from factrl import Example, Score, Span, Unscored, reward

@reward
def short(example, completion):
    if completion == "?":
        raise Unscored("too_odd\\x1b[31m", "nobody knows")
    return Score({"short": float(len(completion) < 9)}, (Span(0, 1, 1),), facts={"n": len(completion)})

@reward
def opened(example, completion):
    return {"prefill": float(completion.prefill.endswith("<think>"))}
"""


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    write("stored.jsonl", *ROWS)
    Path("own.py").write_text(OWN)


def cells(out: str) -> dict[str, list[str]]:
    return {row[0]: row[1:] for line in out.splitlines() if (row := re.split(r"\s*│\s*", line)[1:-1])}


# What it prints and writes


def test_the_same_command_again_replaces_its_own_rows_and_no_other_file() -> None:
    words = ["eval", "stored.jsonl", "--paper", "truthrl", "--output", "rows.jsonl"]
    assert main(words) == 0
    first = Path("rows.jsonl").read_bytes()
    assert main(words) == 0
    assert Path("rows.jsonl").read_bytes() == first
    for other in (first.replace(b"Bergen", b"Molde"), b"notes\n"):
        Path("rows.jsonl").write_bytes(other)
        assert main(words) == 2
        assert Path("rows.jsonl").read_bytes() == other


def test_a_row_for_each_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["eval", "stored.jsonl", "--paper", "truthrl", "--output", "out.jsonl", "reward.wrong=-2"]) == 0
    )
    rows = read("out.jsonl")
    assert [(row["id"], row["state"], row["value"], row["cause"]) for row in rows] == [
        ("1", "scored", 1.0, None),
        ("2", "scored", 0.0, None),
        ("3", "scored", -2.0, None),
        ("4", "floored", -2.0, "no_box"),
        ("5", "masked", None, "no_completion"),
    ]
    assert rows[0]["terms"] == {"outcome": 1.0}
    assert rows[0]["facts"]["label"] == "correct"
    assert rows[0]["completion"] == ROWS[0]["completion"]
    assert "one row per completion: out.jsonl" in capsys.readouterr().err


def test_json_is_all_of_stdout_and_a_term_counts_where_it_occurs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "stored.jsonl", "--paper", "truthrl:binary", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    about = [document[name] for name in ("file", "paper", "completions")]
    assert about == ["stored.jsonl", "truthrl:binary", 5]
    assert document["reward"]["abstain"] == -1
    assert document["terms"]["sum"] == {"mean": pytest.approx(-1 / 2), "share": 0.8}
    assert document["states"] == {"scored": 3, "masked": 1, "floored": 1}


def test_what_the_reward_does_not_need_may_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    write("bare.jsonl", {"question": "Say something", "text": "hello"}, {"question": "More", "text": "?"})
    assert main(["eval", "bare.jsonl", "--paper", "own.py:short", "grade.column=text"]) == 0
    out, err = capsys.readouterr()
    assert cells(out)["masked"][2] == "too_odd⟨U+001B⟩[31m 1"
    assert "No --judge" not in err
    assert "\x1b" not in out + err


def test_claims_that_no_model_judges_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    text = "<think>Lima lies in Peru.</think><answer>Lima</answer>"
    write("steps.jsonl", {**ROWS[0], "completion": text, "evidence": ["Lima lies in Peru, on the coast."]})
    options = ["--paper", "fspo", "verifier.judge=weak", "verifier.cache=false", "--output", "out.jsonl"]
    assert main(["eval", "steps.jsonl", *options]) == 0
    assert "No model judges claims" in capsys.readouterr().err
    (row,) = read("out.jsonl")
    assert row["terms"] == {"answer": 1, "fact": 1}
    assert row["spans"] == [{"start": 7, "end": 25, "sign": 1}]


def test_where_nothing_could_be_graded(
    serve: Callable[..., FaultServer], capsys: pytest.CaptureFixture[str]
) -> None:
    write("hard.jsonl", ROWS[2])
    server = serve(says("ok"), answers(400, {"error": {"message": "gone"}}))
    options = ["--judge", f"{server.url}#j", "--output", "out.jsonl"]
    assert main(["eval", "hard.jsonl", "--paper", "truthrl", *options]) == 3
    out, err = capsys.readouterr()
    assert "none of the 1 completions could be graded (1 http_400)" in err
    assert cells(out)["sum"][0] == "–"
    assert read("out.jsonl")[0]["state"] == "masked"


def test_rows_are_on_disk_before_the_next_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    write("many.jsonl", *({"id": str(n), "question": "?", "completion": "x"} for n in range(AT_ONCE + 3)))
    seen, batch = [], Reward.batch

    def spied(self: Reward, *args: Any, **kwargs: Any) -> Any:
        (unfinished,) = Path().glob("*.tmp")  # under its own name it is whole or not there
        seen.append(len(read(unfinished.name)))
        assert not Path("out.jsonl").exists()
        return batch(self, *args, **kwargs)

    monkeypatch.setattr(Reward, "batch", spied)
    assert main(["eval", "many.jsonl", "--paper", "own.py:short", "--output", "out.jsonl"]) == 0
    assert seen == [0, AT_ONCE]
    assert [row["id"] for row in read("out.jsonl")] == [str(n) for n in range(AT_ONCE + 3)]


@pytest.mark.parametrize(
    ("text", "prefilled"),
    [
        ("so </think>", 1.0),
        ("<answer>so", 1.0),
        ("<think>so </think>", 0.0),
        ("\nStep by step.\n<think>so", 0.0),
    ],
)
def test_a_completion_that_was_stored_with_the_prefill_gets_none(text: str, prefilled: float) -> None:
    (result,) = score_stored(load_reward("own.py:opened"), [(Example("?"), text)], "Step by step.\n<think>")
    assert result.terms == {"prefill": prefilled}


def test_a_stored_completion_that_only_closes_its_reasoning_began_in_it() -> None:
    """As those of a reasoning model whose chat template ends with <think>."""
    reward = load_reward("fspo:outcome")
    example = Example("Where was Marie Curie born?", ("Warsaw",))
    (result,) = score_stored(reward, [(example, "I recall it.</think><answer>Warsaw</answer>")])
    assert (result.state, result.value) == ("scored", 1.0)


# Mistakes


def test_a_bug_in_a_users_reward_shows_the_users_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bug.py").write_text(
        "from factrl import reward\n\n@reward\ndef broken(example, completion):\n    return {}['nope']\n"
    )
    assert main(["eval", "stored.jsonl", "--paper", "bug.py:broken"]) == 2
    err = capsys.readouterr().err
    assert re.findall(r'File ".*?(\w+\.py)", line (\d+)', err) == [("bug.py", "5")]
    assert "KeyError: 'nope'\nfactrl: reward 'broken' failed on example '1' with KeyError: 'nope'\n" in err
