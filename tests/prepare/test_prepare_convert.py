"""What other trainers are handed holds every column, in their shape and in ours again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from preparing import prepared

from commands import write
from factrl.bridges.trl import to_trl
from factrl.cli import main
from factrl.errors import ConfigError
from factrl.papers import settings_of
from factrl.prepare.dataset import VERL_COLUMNS, Target, convert
from factrl.rewards import reward
from factrl.runs.data import load_examples, to_example
from factrl.runs.rows import read_rows
from factrl.runs.settings import DataSettings
from factrl.types import Completion, Example, Passage

FULL = Example(
    "Who founded Vehm?",
    ("Ysolde", "Ysolde T."),
    id="full",
    topic="Vehm",
    ook=False,
    false_premise=True,
    evidence=(Passage("Ysolde founded it.", "Vehm", "http://x"), Passage("It is old.")),
    checklist=("Ysolde founded Vehm.", "Vehm is old."),
    meta={"dataset": "towns", "meta": {"level": 3, "of": []}, "answerable": False, "threshold": 0.5},
)
BARE = Example("Who founded „Ü”?\r\n{braces}", id="bare")
DATA = DataSettings(train="-", prompt="Answer: {question}", system="Be brief.")
FIELDS = ("question", "answers", "id", "topic", "ook", "false_premise", "evidence", "checklist")


def columns_of(examples: Iterable[Example]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(example, name) for name in FIELDS) for example in examples]


BOTH = columns_of((BARE, FULL))


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Path]:
    def made(to: Target, suffix: str, data: DataSettings = DATA) -> Path:
        path = tmp_path / f"{to}{suffix}"
        convert((BARE, FULL), to, data, path)
        return path

    return made


@reward
def watched(example: Example, completion: Completion) -> dict[str, float]:
    SEEN.append(example)
    return {"length": float(len(completion))}


SEEN: list[Example] = []


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_trl(converted: Callable[..., Path], suffix: str) -> None:
    path = converted("trl", suffix)
    rows = list(read_rows(str(path)))
    assert rows[1]["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Answer: Who founded Vehm?"},
    ]
    examples = load_examples(path, require_answers=False)
    assert columns_of(examples) == BOTH
    assert examples[1].meta.items() >= FULL.meta.items()
    # A trainer hands the same examples to a reward.
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    SEEN.clear()
    replies = [[{"role": "assistant", "content": "Ysolde"}]] * 2
    assert to_trl(watched)([row["prompt"] for row in rows], replies, **columns) == [6.0, 6.0]
    assert columns_of(sorted(SEEN, key=lambda example: example.id)) == BOTH


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_verl(converted: Callable[..., Path], suffix: str) -> None:
    path = converted("verl", suffix)
    row = list(read_rows(str(path)))[1]
    assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert (row["data_source"], row["ability"]) == ("towns", "fact-reasoning")
    assert row["prompt"][-1] == {"role": "user", "content": "Answer: Who founded Vehm?"}
    truth = {"problem": "Who founded Vehm?", "target": ["Ysolde", "Ysolde T."], "out_of_knowledge": False}
    assert row["reward_model"] == {"style": "rule", "ground_truth": truth}
    assert (row["extra_info"]["index"], row["extra_info"]["split"]) == (1, "train")
    examples = load_examples(path, columns=VERL_COLUMNS, require_answers=False)
    assert columns_of(examples) == BOTH
    assert examples[1].meta.items() >= FULL.meta.items()
    plain = load_examples(path, require_answers=False)[1]  # what TruthRL's layout alone says
    assert (plain.question, plain.answers, plain.ook) == (FULL.question, FULL.answers, False)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_openrlhf(converted: Callable[..., Path], suffix: str) -> None:
    rows = list(read_rows(str(converted("openrlhf", suffix))))
    assert [row["datasource"] for row in rows] == ["factrl", "towns"]
    assert rows[1]["input"][-1]["content"] == "Answer: Who founded Vehm?"
    examples = [to_example(json.loads(row["label"])) for row in rows]
    assert columns_of(examples) == BOTH
    assert examples[1].meta == FULL.meta


def test_what_a_trainer_cannot_ask_is_refused(converted: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="verl applies the chat template"):
        converted("verl", ".parquet", DATA.model_copy(update={"chat": False}))
    with pytest.raises(ConfigError, match=r"data\.prefill = '<think>': trl"):
        converted("trl", ".parquet", DATA.model_copy(update={"prefill": "<think>"}))


def test_rows_of_no_use_to_the_paper_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("q.jsonl", {"question": "Who?", "answers": ["a"]}, {"question": "Where?"})
    words = ["prepare", "convert", "q.jsonl", "--to", "trl", "--output", "t.jsonl"]
    assert main([*words, "paper=truthrl"]) == 2
    assert "'answers'" in capsys.readouterr().err
    assert not Path("t.jsonl").exists()
    assert main(words) == 0


def test_with_the_prompt_of_a_paper(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"Who founded town {n}?", "answer": f"Person {n}", "id": n} for n in range(3)]
    write("q.jsonl", *rows)
    words = ["q.jsonl", "--to", "trl", "paper=truthrl", "data.limit=2"]
    rows = prepared("convert", *words, output="t.jsonl")
    prompt = settings_of("truthrl")["data"]["prompt"]
    assert [row["prompt"][-1]["content"] for row in rows] == [
        prompt.format(question=f"Who founded town {n}?", asked_at="") for n in range(2)
    ]
    out, err = capsys.readouterr()
    assert (out, "factrl.bridges.trl" in err) == ("t.jsonl\n", True)
    assert main(["prepare", "convert", *words, "--output", "data"]) == 0  # a folder, which TRL reads
    out, err = capsys.readouterr()
    assert (out, "--dataset_name data " in err) == ("data/train.parquet\n", True)
    assert len(load_examples("data", require_answers=False)) == 2
    assert main(["prepare", "convert", *words, "--output", "data"]) == 2
