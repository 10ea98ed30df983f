"""`factrl prepare`: KLCF's dataset from a model server, once more after a kill; columns that rewards read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from preparing import prepared

from commands import write
from factrl.cli import main
from factrl.errors import DataError
from factrl.llm import FakeLLM
from factrl.papers import load_reward
from factrl.prepare.dataset import importance_of
from factrl.rewards.grading import Grader
from factrl.runs.data import load_examples, to_example
from factrl.verifier.search import Index
from fault_server import FaultServer, Handler, completion

TOWNS = 6
pytestmark = pytest.mark.usefixtures("folder")


def town_of(text: str) -> str:
    return next(f"town {n}" for n in range(TOWNS) if f"town {n}" in text.lower())


def reply_to(content: str) -> tuple[str, str, str]:
    """The kind of a request, the town that it is about, and the reply."""
    if "Answer with the word ok" in content:
        return "ping", "", "ok"
    data = json.loads(content.splitlines()[-2]) if "\nDATA " in content else {}
    if "facts" in data:
        lines = [json.dumps({"id": fact["id"], "verdict": "keep"}) for fact in data["facts"]]
        return "choice", town_of(data["question"]), "\n".join(lines)
    if "sentences" in data:
        return "extract", town_of(str(data)), "\n".join(f"- {s}" for s in data["sentences"])
    town = town_of(content)
    return "sample", town, f"{town.title()} is an old port. {town.title()} has 7 mills."


class Towns(FaultServer):
    """A model that knows six towns, and keeps calls back once it has answered `after` of them."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str]] = Counter()
        self.after, self.full, self.gate = 10**9, threading.Event(), threading.Event()
        self._lock, self._bodies = threading.Lock(), dict[int, str]()
        super().__init__(self.answer)

    def next_fault(self, request: Any) -> Any:
        self._bodies[threading.get_ident()] = request.body["messages"][-1]["content"]
        return super().next_fault(request)

    def answer(self, handler: Handler) -> None:
        kind, town, reply = reply_to(self._bodies[threading.get_ident()])
        with self._lock:
            late = kind != "ping" and self.calls >= self.after
            if not late:
                self.answered[kind, town] += 1
        if late:
            self.full.set()
            self.gate.wait(30)
            handler.close_connection = True
            return
        handler.send(200, json.dumps(completion(reply, model="towns")).encode())

    @property
    def calls(self) -> int:
        """Answers that were sent off, those to the first tiny questions apart."""
        return sum(count for (kind, _), count in self.answered.items() if kind != "ping")


@pytest.fixture
def model() -> Iterator[Towns]:
    write("prompts.jsonl", *({"prompt": f"Tell me about town {n}.", "id": f"t{n}"} for n in range(TOWNS)))
    write("facts.jsonl", *({"text": f"Town {n} is an old port.", "title": f"Town {n}"} for n in range(TOWNS)))
    server = Towns()
    yield server
    server.gate.set()
    server.close()


def klcf(model: Towns, output: str, *more: str, source: str = "docs=facts.jsonl") -> list[str]:
    url = f"{model.url}#towns"
    words = ["prepare", "klcf", "prompts.jsonl", "--model", url, "--judge", url, "--output", output, *more]
    return [*words, f"verifier.{source}", "verifier.judge=weak", "verifier.cache=false"]


def files(output: str) -> dict[str, bytes]:
    """What a run leaves, the journal apart, whose order is that of the server's answers."""
    return {path.name: path.read_bytes() for path in Path(output).iterdir() if "journal" not in path.name}


def test_from_prompts_to_what_train_reads(model: Towns, capsys: pytest.CaptureFixture[str]) -> None:
    """But for a prompt of an evaluation set."""
    Index.build(Path("kb"), ["facts.jsonl"])
    write("eval.jsonl", {"question": "tell me about TOWN 3"})
    assert main(klcf(model, "out", "--against", "eval.jsonl", source="index=kb")) == 0
    examples = load_examples("out/train.jsonl", require_answers=False)
    assert [example.id for example in examples] == ["t0", "t1", "t2", "t4", "t5"]
    assert examples[2].checklist == ("Town 2 is an old port.",)
    about = json.loads(Path("out/about.json").read_text())
    assert about["weak"] is True
    assert about["importance"].endswith(importance_of(FakeLLM([])).partition(" ")[2])
    assert about["contamination"]["ids"] == ["t3"]
    assert (about["counts"]["questions"], about["counts"]["claims"]) == (5, 10)
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "out/train.jsonl"
    assert "1 of 6 questions are in an evaluation set (eval.jsonl: 1)" in err
    assert "asked now: 5 samples, 5 checks, 5 choices" in err
    assert "no verification" in err


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_and_run_again_it_repeats_nothing(model: Towns, capsys: pytest.CaptureFixture[str]) -> None:
    words = klcf(model, "out", "judge.max_concurrency=2")
    assert main(klcf(model, "whole", "judge.max_concurrency=2")) == 0
    model.answered.clear()
    model.after = after = 11  # answers: samples and checks
    command = [sys.executable, "-m", "factrl", *words]
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=dict(os.environ))
    assert model.full.wait(60)
    for _ in range(600):
        if kept_rows() == after:  # what was answered has arrived in the journal
            break
        time.sleep(0.05)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert kept_rows() == model.calls == after
    model.after = 10**9
    model.gate.set()
    capsys.readouterr()
    assert main(words) == 0
    assert files("out") == files("whole")
    # Those of both processes; the server may count up to two that were held back when the first one died.
    assert model.calls - 3 * TOWNS in range(3)
    now = re.search(r"asked now: (\d+) samples, (\d+) checks, (\d+) choices", capsys.readouterr().err)
    assert now is not None
    assert sum(map(int, now.groups())) == 3 * TOWNS - after


def kept_rows() -> int:
    return max(len(Path("out/journal.jsonl").read_text().splitlines()) - 1, 0)


def test_no_dataset_is_exit_code_3(model: Towns, capsys: pytest.CaptureFixture[str]) -> None:
    write("facts.jsonl", {"text": "Nothing is known.", "title": "Nothing"})
    assert main(klcf(model, "out")) == 3
    assert "none of the 6 questions has a checklist (6 no_supported_claim)" in capsys.readouterr().err


ANSWERED = {"id": "x", "question": "Who wrote Emma?", "answers": ["Jane Austen"]}


# Thresholds


@pytest.mark.parametrize(
    ("t", "problem"),
    [
        (Decimal("0.5"), None),
        *((t, "it has nothing in the column `threshold`") for t in (None, " ", float("nan"))),
        *((t, f"threshold = {t!r} is not a number from 0") for t in ("half", 1.0, True)),
    ],
)
def test_a_threshold_that_cannot_be_read_names_its_row(t: object, problem: str | None) -> None:
    asked = replace(to_example(ANSWERED), meta={"threshold": t})
    if problem is None:
        load_reward("threshold").check_examples([asked])
        return
    with pytest.raises(DataError, match=f"the first is 'x': {problem}"):
        load_reward("threshold").check_examples([asked])


def test_cells_that_json_has_not_are_text_or_null() -> None:
    """As `convert` writes them too."""
    day, odd = date(2020, 1, 2), {"inf": float("inf"), "nan": [float("nan")]}
    row = {"question": "Who?", "answer": "Ada", "evidence": ["Ada."], "on": day, "raw": b"x", "odd": odd}
    table = pa.Table.from_pylist([row])
    pq.write_table(table, "q.parquet")
    told = {"on": "2020-01-02", "raw": "b'x'", "odd": {"inf": None, "nan": [None]}}
    [row] = prepared("retrieve", "q.parquet")
    [converted] = prepared("convert", "q.parquet", "--to", "trl")
    assert row.items() >= told.items()
    assert json.loads(converted["meta"]).items() >= told.items()


# Unanswerable questions


@pytest.mark.parametrize("spec", ["truthrl", "threshold", "rlcr", "truthrl:knowledge-ternary"])
def test_declining_pays_most_where_nobody_can_answer(spec: str) -> None:
    """The rows of docs/offline.md."""
    row = {"question": "Who wins the cup of 2090?", "answers": ["I don't know", "I do not know"]}
    example = to_example({"id": "1", **row, "answerable": False, "threshold": 0.5})
    form = "\\boxed{%s}"
    if spec == "rlcr":
        form = "<think>Hm.</think><answer>%s</answer><analysis>A</analysis><confidence>0.9</confidence>"
    reward = load_reward(spec).with_(grade=Grader())
    for ook in (None, True, False) if spec == "truthrl:knowledge-ternary" else (None,):
        flagged = replace(example, ook=ook)
        declines, answers = (reward(flagged, form % text).value for text in ("I don't know", "Brazil"))
        assert declines is not None
        assert answers is not None
        assert declines > 0 > answers
