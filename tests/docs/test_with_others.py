"""The programs of docs/with_others.md, with stand-ins of LangChain, LlamaIndex and LangSmith."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import factrl as fx

PAGE = Path(__file__).parents[2] / "docs" / "with_others.md"
FACT, QUESTION = "Marie Curie was born in Warsaw.", "Where was Marie Curie born?"


class Chain:
    def __or__(self, then: Any) -> Any:
        found = {"question": QUESTION, "context": [SimpleNamespace(page_content=FACT)], "answer": FACT}
        return SimpleNamespace(invoke=lambda asked: then(found | asked))


class Response:
    source_nodes = (SimpleNamespace(get_content=lambda: FACT),)

    def __str__(self) -> str:
        return FACT


class Client:
    def evaluate(self, target: Any, data: str, evaluators: list[Any]) -> None:
        reference = {"answers": ["Warsaw"]}
        answers = ("Warsaw", "I don't know", "a town")
        rows.extend(evaluators[0]({"question": QUESTION}, {"answer": text}, reference) for text in answers)


rows: list[dict[str, str]] = []


def test_the_programs_run(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"langchain_core": {}, "langchain_core.runnables": {"RunnableLambda": lambda f: f}}
    for name, names in {**modules, "langsmith": {"Client": Client}}.items():
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    judge = fx.FakeLLM(lambda _: fx.LLMError("timeout", "nobody answers"))
    engine = SimpleNamespace(query=lambda question: Response())
    names = {"chain": Chain(), "index": SimpleNamespace(as_query_engine=lambda: engine), "target": None}
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(programs) == 4
    for program in programs:
        done: dict[str, Any] = {**names, "judge": judge}
        exec(compile(program, str(PAGE), "exec"), done)  # noqa: S102
        if "report" in done:
            report = done["report"]
            assert (report.text, report.question, report.failure.cause) == (FACT, QUESTION, "timeout")
    assert [row["value"] for row in rows] == ["correct", "abstained", "not graded"]
    assert "timeout" in rows[-1]["comment"] or "nobody answers" in rows[-1]["comment"]
