"""recipes/fspo: data.py's mix, from upstream's rows and the release's to what reward and prompt read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import load

import factrl as fx
from commands import process, read, write
from factrl.runs import RECIPES

HERE = RECIPES / "fspo"
ROWS = json.loads((Path(__file__).parent.parent / "fixtures" / "upstream_rows.json").read_text("utf-8"))
FILES = ("--facts", "hotpot.jsonl", "wiki.jsonl", "--mathematics", "math.jsonl")
GOLD: dict[str, Any] = {
    **{"question": "A?", "answer": "a", "supporting_facts": [["T", 0]]},
    "context": [["T", ["Yes.", " It is."]], ["U", ["No."]]],
}


@pytest.fixture(autouse=True)
def sources(folder: Path) -> None:
    for name, row in (("hotpot", ROWS["hotpotqa"]), ("wiki", ROWS["2wiki"])):
        write(f"{name}.jsonl", *({**row, "question": f"{name} {n}?"} for n in range(40)))
    write("math.jsonl", *({"problem": f"What is {n} + 1?", "answer": f"{n + 1}"} for n in range(12)))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """data.py, of sizes that these sources have."""
    module = load(HERE / "data.py")
    monkeypatch.setattr(module, "SIZES", {"train.jsonl": 18, "train-9.jsonl": 9, "train-80.jsonl": 80})
    return module


def made(script: Any, *words: str, files: tuple[str, ...] = FILES) -> dict[str, list[dict[str, Any]]]:
    script.main([*files, *words, "--output", "data"])
    return {path.stem: read(path) for path in Path("data").iterdir()}


def asked(rows: list[dict[str, Any]], kind: str) -> list[str]:
    return [row["question"] for row in rows if row["data_source"] == kind]


def test_two_sources_and_mathematics_are_files_that_the_reward_takes(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    files = made(script, "--held-out", "10")
    rows, held = files["train"], asked(files["held_out"], "facts")
    facts = asked(rows, "facts")
    # 18 x 4,761 / 8,498 of HotpotQA, the rest of 2Wiki, and all of mathematics.
    assert sorted(question.partition(" ")[0] for question in facts) == ["hotpot"] * 10 + ["wiki"] * 8
    assert len(asked(rows, "mathematics")) == 12
    assert len(held) == 10
    assert not {*held} & {*facts}
    assert {*asked(files["train-9"], "facts")} < {*facts}
    assert "train-80" not in files
    assert "train-80.jsonl: not written" in capsys.readouterr().out
    for row in rows:  # the gold paragraph and not the others; none in mathematics
        gold = [{"title": "Bern", "text": "Bern is on the Aare."}]
        assert row.get("evidence") == (gold if row["data_source"] == "facts" else None)
    assert [row["data_source"] for row in rows] != sorted(row["data_source"] for row in rows)
    examples = fx.load_examples("data/train.jsonl")
    fx.load_reward("fspo:mixed").check_examples(examples)
    assert len({example.id for example in examples}) == 30
    assert made(script, "--held-out", "10") == files
    assert made(script, "--held-out", "10", "--seed", "1") != files


def test_what_is_in_another_set_is_left_out(script: Any) -> None:
    write("test.jsonl", {"question": "Wiki 3"}, {"problem": "What is 5 + 1?"})
    rows = made(script, "--held-out", "0", "--against", "test.jsonl")["train"]
    assert not {"wiki 3?", "What is 5 + 1?"} & {row["question"] for row in rows}
    assert len(asked(rows, "mathematics")) == 11


def test_the_releases_rows_and_names_of_the_hub_are_read(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = {"prompt": [{"role": "user", "content": "…"}], "data_source": "HotpotQA", "knowledge": "All."}
    write("2k.jsonl", *({**released, "_id": f"{n}", "question": f"Q{n}?", "answer": "a"} for n in range(20)))
    rows = made(script, "--held-out", "0", files=("--facts", "2k.jsonl", *FILES[3:]))["train"]
    assert len(asked(rows, "facts")) == 18
    assert {one["text"] for row in rows for one in row.get("evidence", [])} == {"All."}

    requests = []
    hub = {"hotpotqa/hotpot_qa": "hotpotqa", "framolfese/2WikiMultihopQA": "2wiki"}

    def rows_of(*of: Any) -> list[Any]:
        requests.append(of)
        return [ROWS[hub[of[0]]]] * 20 if of[0] in hub else read("math.jsonl")

    monkeypatch.setattr(script, "read_rows", rows_of)
    made(script, "--held-out", "0", files=("--facts", "hotpotqa", "2wiki", *FILES[3:]))
    assert requests[:2] == [
        ("hotpotqa/hotpot_qa", "train", "distractor"),
        ("framolfese/2WikiMultihopQA", "train", None),
    ]


TABLES = [{"title": title, "sentences": texts} for title, texts in GOLD["context"]]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"context": TABLES, "supporting_facts": [{"title": "T", "sent_id": 0}]},
        {"context": {"title": ["T", "U"], "sentences": [["Yes.", " It is."], ["No."]]}},
        {name: json.dumps(GOLD[name]) for name in ("context", "supporting_facts")},  # in a .csv
        {"context": None, "evidence": [{"title": "T", "text": "Yes. It is.", "is_supporting": True}]},
    ],
)
def test_paragraphs_in_every_form_that_there_is(script: Any, change: dict[str, Any]) -> None:
    row = {name: cell for name, cell in (GOLD | change).items() if cell is not None}
    write("hotpot.jsonl", *[row] * 20)
    rows = made(script, "--held-out", "0", files=("--facts", "hotpot.jsonl", *FILES[3:]))["train"]
    assert {str(row["evidence"]) for row in rows if "evidence" in row} == {
        "[{'title': 'T', 'text': 'Yes. It is.'}]"
    }


@pytest.mark.parametrize(
    ("file", "row", "named"),
    [
        ("wiki", {"question": "B?", "answer": "b"}, "wiki.jsonl, row 1"),
        ("math", {"problem": "1 + 1?", "level": 5}, "math.jsonl, row 1"),
        ("hotpot", {"answer": "x", "context": []}, "hotpot.jsonl, row 1"),
        ("hotpot", GOLD | {"context": "A text."}, "context"),
        ("hotpot", GOLD | {"supporting_facts": [1]}, "supporting_facts"),
    ],
)
def test_a_row_that_lacks_something_is_named(script: Any, file: str, row: dict[str, Any], named: str) -> None:
    write(f"{file}.jsonl", row)
    with pytest.raises(fx.SetupError, match=named):
        made(script)
    assert not Path("data").exists()


def test_a_missing_file_is_one_line() -> None:
    done = process(str(HERE / "data.py"), "--facts", "no.jsonl", *FILES[3:], "--output", "data")
    assert done.returncode
    assert done.stderr.count("\n") == 1
    assert "no.jsonl" in done.stderr
