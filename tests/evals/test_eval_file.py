"""What a judge was paid for once is not paid for again, however the command ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import factrl
from commands import write
from factrl.cli import main
from factrl.llm import FakeLLM
from factrl.llm.store import Store
from factrl.rewards.needs import Supplier
from factrl.runs.settings import JudgeSettings, VerifierSettings
from fault_server import FaultServer, says

CITIES = ["Bergen", "Molde", "Narvik", "Tromso", "Stavanger", "Trondheim"]
WRONG = says("It is another city.\nVERDICT: incorrect")


@pytest.fixture
def server() -> Iterator[FaultServer]:
    judge = FaultServer(WRONG)
    yield judge
    judge.close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": str(n), "question": "Capital of Norway?", "answers": ["Oslo"], "completion": city}
        for n, city in enumerate([*CITIES, "Oslo"])
    ]
    write("rows.jsonl", *rows)


def asked(server: FaultServer) -> Counter[str]:
    """How often the judge was asked about each city."""
    bodies = [request.body["messages"][-1]["content"] for request in server.requests]
    return Counter(city for city in CITIES for body in bodies if f'"answer": "{city}"' in body)


@pytest.mark.parametrize(
    ("name", "said", "arguments"),
    [
        ("grade", "incorrect", ("Capital?", "Bergen", ["Oslo"])),
        ("reason", "precise", ("Capital?", "Oslo has the king, and so it is.", ["Oslo"])),
        ("rate", "good", ("Tell me about Oslo.", "Oslo is the capital.")),
        ("compare", "given", ("Tell me about Oslo.", "Oslo is the capital.")),
        ("checklist", "missing", ("Tell me about Oslo.", "Oslo is old.", ["It is big."])),
    ],
)
def test_every_resource_that_asks_a_judge_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str, arguments: Any
) -> None:
    monkeypatch.setattr(Supplier, "_store", lambda supplier: Store(tmp_path / "one.db"))
    verdict = "hm"

    def reply(messages: Any) -> str:
        data = messages[-1]["content"].splitlines()
        if len(data) > 1 and '"items"' in data[-2]:
            items = json.loads(data[-2])["items"]
            return "\n".join(json.dumps({"id": item["id"], "verdict": verdict}) for item in items)
        return f"Because.\nVERDICT: {verdict}"

    class Judge(FakeLLM):
        identity = "counting"

    judge = Judge(reply)
    supplier = Supplier(judge, JudgeSettings(), VerifierSettings())
    for _ in range(2):
        with pytest.raises(factrl.Unscored):
            getattr(supplier, name)()(*arguments)
    asked = len(judge.calls)
    assert asked >= 2  # what cannot be read is asked for again
    verdict = said
    first = getattr(supplier, name)()(*arguments)
    assert (getattr(supplier, name)()(*arguments), len(judge.calls)) == (first, asked + 1)


def test_a_sentence_that_gives_the_answer_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read as a reward reads it, it is wrong, and the other form is named."""
    file = tmp_path / "france.jsonl"
    row = {
        "question": "What is the capital of France?",
        "answers": ["Paris"],
        "completion": "In France, the capital city is Paris.",
    }
    write(file, row)
    assert main(["eval", str(file)]) == 0
    assert "100.0" in capsys.readouterr().out
    assert main(["eval", str(file), "grade.form=short"]) == 0
    told = capsys.readouterr()
    assert "100.0 " not in told.out.split("hallucination")[0]
