"""recipes/knowrl: what data.py and pairs.py write, from files in the released form and servers by script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scripts import script

import factrl as fx
import fault_server as fs
from commands import process, read, write
from factrl.runs import RECIPES

HERE = RECIPES / "knowrl"
# A row as each of the paper's three sets has it.
QUESTIONS: list[dict[str, Any]] = [
    {"id": 1, "question": "when does justice league come out on dvd", "answer": ["March 13, 2018"]},
    {"id": 2, "question": "what is cher's son's name?", "answer": ["Elijah", "Chaz"]},
    {
        "id": 3,
        "question": "Where did the author live?",
        "answer": [{"answer": "Washington, D.C.", "aliases": ["Washington"], "answer_id": "m.0rh6k"}],
    },
]
NAMED = {
    "justice": '["Justice League", "Justice League (film)", "Justice League"]',
    "cher": '<think>Who?</think>\n["Cher; singer"]',
    "author": "I cannot say.",
}
WRITTEN = {
    "justice": "<think>It is in March.</think>\n<answer>March 13, 2018</answer>",
    "cher": "She had two. </think><answer>Elijah</answer>",  # its chat template has opened the reasoning
    "author": "In Washington.",
}
GPQA = {"Question": "Which is a noble gas?", "Correct Answer": "neon"}
PAGES = [{"title": title, "text": f"On {title}."} for title in ("Justice League (film)", "Cher", "Rome")]


@pytest.fixture
def given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("questions.jsonl", *QUESTIONS)
    write("wikipedia.jsonl", *PAGES)
    wrong = {f"Incorrect Answer {n}": gas for n, gas in enumerate(("oxygen", "ozone", "water"), start=1)}
    (folder / "sets" / "gpqa_diamond").mkdir(parents=True)
    write("sets/gpqa_diamond/test.jsonl", {**GPQA, **wrong})
    (folder / "physics").mkdir()
    write("physics/train.jsonl", {"id": 7, "question": "How far?", "final_answer": ["$3$"], "unit": "m"})
    monkeypatch.setenv("FACTRL_DATA", str(folder / "sets"))


def by(texts: Mapping[str, str]) -> fs.Fault:
    """A server whose reply depends on a word in what is asked last."""
    return fs.replies(lambda content: next((t for w, t in texts.items() if w in content[-400:]), "ok"))


SOURCES = ("--wikipedia", "wikipedia.jsonl", "--olympiad", "physics", "--output", "data")


def data(*words: str) -> None:
    script(HERE / "data.py", *words, *SOURCES)


@pytest.mark.usefixtures("given")
def test_questions_become_rows_pages_and_answers_and_nobody_is_asked_twice(
    serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names, r1 = serve(by(NAMED)), serve(by(WRITTEN))
    words = ["--questions", "questions.jsonl", "--entities", f"{names.url}#gpt-4o", "--r1", f"{r1.url}#r1"]
    data(*words)
    rows = read("data/train.jsonl")
    assert [row["title"] for row in rows] == ["Justice League;Justice League (film)", "Cher singer"]
    assert rows[1]["answers"] == ["Elijah", "Chaz"]
    assert "train.jsonl: 2 rows; 1 without an entity" in capsys.readouterr().out
    assert [row["chosen"] for row in read("data/r1.jsonl")] == [
        WRITTEN["justice"],
        "<think>She had two. </think><answer>Elijah</answer>",
    ]
    assert [row["completion"] for row in read("data/sft.jsonl")] == [
        row["chosen"] for row in read("data/r1.jsonl")
    ]
    assert [page["title"] for page in read("data/pages.jsonl")] == ["Justice League (film)"]
    found = fx.Index.open("data/wiki").search("dvd", 5, topic=rows[0]["title"])
    assert [passage.title for passage in found] == ["Justice League (film)"]
    [gas] = fx.load_examples("data/gpqa_diamond.jsonl")
    [letter] = gas.answers
    assert f"{letter}. neon" in gas.question.splitlines()
    assert {tuple(row["answers"]) for row in read("data/olympiad_physics.jsonl")} == {("$3$ m",)}

    asked = len(names.requests), len(r1.requests)
    data(*words)
    assert capsys.readouterr().out == ""
    assert (len(names.requests), len(r1.requests)) == asked


@pytest.mark.usefixtures("given")
def test_what_a_server_failed_at_is_asked_again_and_nothing_else(serve: Any) -> None:
    names, r1 = serve(by(NAMED)), serve(fs.answers(400, {"error": "no"}))
    words = ["--questions", "questions.jsonl", "--entities", f"{names.url}#gpt-4o", "--r1", f"{r1.url}#r1"]
    with pytest.raises((fx.FactrlError, SystemExit)):
        data(*words)
    assert not Path("data/r1.jsonl").exists()
    r1.play(by(WRITTEN))
    before = len(names.requests)
    data(*words)
    assert len(read("data/r1.jsonl")) == 2
    assert len(names.requests) == before


@pytest.mark.usefixtures("given")
def test_the_release_is_read_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"question": "When is it out?", "answers": "March 13, 2018", "title": "Cher;Rome"}
    (folder / "rl.json").write_text(json.dumps([row]))
    turns = [{"from": "human", "value": "when IS it out?"}, {"from": "gpt", "value": WRITTEN["justice"]}]
    other = [{"from": "human", "value": "Where?"}, {"from": "gpt", "value": "Here."}]
    (folder / "cold.json").write_text(json.dumps([{"conversations": turns}, {"conversations": other}]))
    data("--release", "rl.json", "--conversations", "cold.json")
    [made] = read("data/train.jsonl")
    assert made == {
        "id": "0",
        "question": "When is it out?",
        "answers": [row["answers"]],
        "title": "Cher;Rome",
    }
    [lesson] = read("data/sft.jsonl")
    assert lesson["completion"] == WRITTEN["justice"]
    assert lesson["title"] == "Cher;Rome"
    assert "1 in another form" in capsys.readouterr().out
    assert {page["title"] for page in read("data/pages.jsonl")} == {"Cher", "Rome"}


@pytest.mark.usefixtures("given")
def test_a_missing_file_or_model_is_one_line() -> None:
    for words, name in ((["--release", "no.json"], "no.json"), (["--questions", "q.jsonl"], "--entities")):
        done = process(str(HERE / "data.py"), *words, *SOURCES)
        assert done.returncode
        assert name in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


# -- pairs.py -------------------------------------------------------------------------------------------


def pairs(*words: str) -> None:
    script(HERE / "pairs.py", *words, "--output", "pairs.jsonl")


@pytest.mark.usefixtures("folder")
def test_r1_is_preferred_to_the_first_own_answer_that_is_not_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("r1.jsonl", *({"id": name, "question": f"{name}?", "chosen": "R1's"} for name in "abc"))
    Path("samples").mkdir()
    written = [("a", "correct", "1"), ("a", "incorrect", "2"), ("a", "incorrect", "3")]
    written += [("b", "incorrect", "4"), ("b", "incorrect", " "), ("c", "correct", "5"), ("c", None, "6")]
    samples = ({"question": f"{name}?", "label": label, "completion": text} for name, label, text in written)
    write("samples/samples.jsonl", *samples)
    pairs("dpo", "r1.jsonl", "samples")
    assert "2 of 3 rows" in capsys.readouterr().out
    assert [(row["id"], row["chosen"], row["rejected"]) for row in read("pairs.jsonl")] == [
        ("a", "R1's", "2"),
        ("b", "R1's", "4"),
    ]
    write("samples/samples.jsonl")
    pairs("dpo", "r1.jsonl", "samples")  # it is there already
    assert len(read("pairs.jsonl")) == 2


@pytest.mark.usefixtures("folder")
def test_the_better_half_by_the_claims_of_the_reasoning_is_kept() -> None:
    """Where Wikipedia says so; the answer is not looked at."""
    write("pages.jsonl", {"title": "Lima", "text": "Lima is in Peru. Lima is a city."})
    fx.Index.build("wiki", ["pages.jsonl"])
    thoughts = {
        "true": "Lima is in Peru.",
        "half": "Lima is in Peru. Lima is in Chile.",
        "false": "Lima is in Chile.",
    }
    write(
        "sft.jsonl",
        *(
            {
                "id": name,
                "question": "Where?",
                "title": "Lima",
                "completion": f"<think>{text}</think><answer>Peru</answer>",
            }
            for name, text in thoughts.items()
        ),
    )
    words = ("verifier.preset=local", "verifier.judge=weak", "verifier.embedder=", "verifier.index=wiki")
    pairs("facttune", "sft.jsonl", *words)
    assert {row["id"]: row["factscore"] for row in read("pairs.jsonl")} == {"true": 1.0, "half": 0.5}


@pytest.mark.usefixtures("folder")
def test_a_judge_that_is_down_makes_no_rows(serve: Any) -> None:
    write("pages.jsonl", {"title": "Lima", "text": "Lima is in Peru."})
    fx.Index.build("wiki", ["pages.jsonl"])
    write(
        "sft.jsonl",
        {
            "id": "a",
            "question": "Where?",
            "title": "Lima",
            "completion": "<think>Lima.</think><answer>x</answer>",
        },
    )
    server = serve(fs.answers(400, {"error": "no"}))
    words = ("verifier.embedder=", "verifier.index=wiki", f"judge.url={server.url}#judge")
    with pytest.raises(SystemExit):
        pairs("facttune", "sft.jsonl", *words)
    assert not Path("pairs.jsonl").exists()
