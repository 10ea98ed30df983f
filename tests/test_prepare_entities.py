"""KnowRL's rows from the question sets that it takes: entities asked of a model, and what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fault_server as fs
from commands import read, write
from factrl.cli import main
from factrl.errors import Unscored
from factrl.job import read_job
from factrl.prepare.entities import REQUEST, read_entities
from factrl.runs.data import load_examples
from factrl.train.plan import make_plan
from factrl.verifier import open_search

# A row as each of the three sets has it.
WASHINGTON = {"answer": "Washington, D.C.", "aliases": ["Washington", "the District"], "answer_id": "m.0rh6k"}
ASKED: dict[str, dict[str, Any]] = {
    "NQ-Open": {"question": "when does justice league come out on dvd", "answer": ["March 13, 2018"]},
    "WebQuestions": {
        "url": "http://x",
        "question": "what is cher's son's name?",
        "answers": ["Elijah", "Chaz"],
    },
    "ComplexWebQuestions": {
        "ID": "WebQTrn-1_a",
        "question": "Where did the author of it live?",
        "answers": [WASHINGTON, {"answer": "Rome", "aliases": [], "answer_id": "m.06c62"}],
        "sparql": "SELECT …",
    },
}
ANSWERS = {
    "NQ-Open": ("March 13, 2018",),
    "WebQuestions": ("Elijah", "Chaz"),
    "ComplexWebQuestions": ("Washington, D.C.", "Washington", "the District", "Rome"),
}
NAMED = {
    "justice": '["Justice League", "Justice League (film)"]',
    "cher": '["Cher"]',
    "author": "I cannot say.",
}


pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("name", ASKED)
def test_the_rows_of_the_papers_question_sets_are_read(name: str) -> None:
    write("rows.jsonl", ASKED[name])
    assert load_examples("rows.jsonl")[0].answers == ANSWERS[name]
    columns = {"aliases": [["Washington", "the District"], []], "answer": ["Washington, D.C.", "Rome"]}
    write("rows.jsonl", {"question": "Where?", "answers": columns})  # as `datasets` has a list of tables
    assert {*load_examples("rows.jsonl")[0].answers} == {*ANSWERS["ComplexWebQuestions"]}


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ('["Cher", " Chaz  Bono", "Cher", ""]', ("Cher", "Chaz Bono")),
        ('<think>Who?</think>\n```json\n["Cher; singer"]\n```', ("Cher singer",)),
        ("[]", ()),
        *((text, None) for text in ("Cher", '{"entities": ["Cher"]}', '["Cher", 1]', "", "[" * 9000)),
    ],
)
def test_a_reply_is_a_list_or_none(reply: str, names: tuple[str, ...] | None) -> None:
    if names is not None:
        assert read_entities(reply) == names
        return
    with pytest.raises(Unscored) as caught:
        read_entities(reply)
    assert caught.value.cause == "judge_unreadable"


def reply_to(content: str) -> str:
    return next((text for word, text in NAMED.items() if word in content.removeprefix(REQUEST)), "ok")


def entity_requests(server: fs.FaultServer) -> list[str]:
    contents = [request.body["messages"][-1]["content"] for request in server.requests]
    return [content for content in contents if content.startswith(REQUEST)]


def test_questions_become_rows_that_knowrl_trains_on_and_none_is_paid_for_twice(
    serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ASKED["NQ-Open"] | {"answers": ASKED["NQ-Open"]["answer"]}
    write("questions.jsonl", first, ASKED["WebQuestions"])
    server = serve(fs.replies(reply_to))
    words = ["prepare", "entities", "questions.jsonl", "--output", "rows.jsonl"]
    assert main([*words, "--judge", f"{server.url}#gpt-4o"]) == 0
    assert "2 rows; none left out" in capsys.readouterr().err
    rows = read("rows.jsonl")
    assert [sorted(row) for row in rows] == [["answers", "id", "question", "title"]] * 2
    assert rows[0]["title"] == "Justice League;Justice League (film)"
    Path("rows.jsonl").rename("before.jsonl")
    assert main([*words, "--judge", f"{server.url}#gpt-4o"]) == 0
    assert len(entity_requests(server)) == 2

    pages = [{"title": title, "text": f"On {title}."} for title in ("Justice League (film)", "Cher", "Rome")]
    write("pages.jsonl", *pages)
    assert main(["index", "pages.jsonl", "--out", "wiki"]) == 0
    given = ["paper=knowrl", "model.name=m", "data.train=rows.jsonl", "verifier.index=wiki"]
    one = ["judge.url=http://127.0.0.1:9/v1#m", "train.prompts_per_step=2"]
    plan = make_plan(read_job(None, [*given, *one]))
    search: Any = open_search(index="wiki")
    passages = search.search("dvd", 5, topic=plan.examples[0].topic)
    assert [passage.title for passage in passages] == ["Justice League (film)"]


def test_a_question_without_a_readable_reply_is_left_out_and_counted(
    serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write("questions.jsonl", ASKED["WebQuestions"], ASKED["ComplexWebQuestions"])
    server = serve(fs.replies(reply_to))
    words = ["prepare", "entities", "questions.jsonl", "--output", "rows.jsonl"]
    assert main([*words, "--judge", f"{server.url}#gpt-4o"]) == 0
    assert "1 rows; 1 judge_unreadable left out" in capsys.readouterr().err
    write("questions.jsonl", ASKED["ComplexWebQuestions"])
    Path("rows.jsonl").unlink()
    assert main([*words, "--judge", f"{server.url}#gpt-4o"]) == 3
    assert "none of the 1 questions has entities" in capsys.readouterr().err
