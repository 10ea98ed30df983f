"""`factrl serve --mcp` as an agent has it: started by the client of mcp, asked over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="needs factrl[mcp]")

from factrl.cli import main  # noqa: E402
from fault_server import FaultServer, answers, says  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore", "ignore::pytest.PytestUnraisableExceptionWarning")
CURIE = "Marie Curie was born in Warsaw in 1867."


def error_of(reply: Any) -> str:
    """The words of an error; a tool error has one line and no result."""
    assert reply.is_error
    assert reply.structured_content is None
    (content,) = reply.content
    assert "\n" not in content.text
    return content.text


def served(folder: Path, use: Callable[[Any], Awaitable[None]], *words: str, **env: str) -> None:
    """A server that checks by words, with what `words` and `env` change, in the hands of a client."""
    src = os.pathsep.join(map(str, sys.path))
    env = {"PYTHONPATH": src, "FACTRL_CACHE": str(folder), "HF_HUB_OFFLINE": "1", **env}
    args = ["-m", "factrl", "serve", "--mcp", "verifier.judge=weak", *words]
    parameters = mcp.StdioServerParameters(command=sys.executable, args=args, env=env, cwd=folder)

    async def ask() -> None:
        with (folder / "err").open("w") as err:
            async with (
                mcp.stdio_client(parameters, errlog=err) as streams,
                mcp.ClientSession(*streams) as client,
            ):
                await client.initialize()
                await use(client)

    asyncio.run(ask())


def test_an_agent_verifies_grades_and_searches(tmp_path: Path) -> None:
    (tmp_path / "curie.txt").write_text(CURIE)

    async def use(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert [*tools] == ["verify", "grade", "search"]
        needs = {name: tool.input_schema["required"] for name, tool in tools.items()}
        assert needs == {"verify": ["text"], "grade": ["question", "answer", "accepted"], "search": ["query"]}
        assert all(tool.output_schema and tool.description for tool in tools.values())

        reply = (
            await client.call_tool("verify", {"text": "Marie Curie was born in Paris."})
        ).structured_content
        assert reply["claims"] == [
            {
                "claim": "Marie Curie was born in Paris.",
                "verdict": "unknown",
                "p": None,
                "quote": CURIE,
                "source": "curie",
                "cause": "",
            }
        ]
        assert "this is not a verification" in reply["summary"]
        own = {"text": "Nice is in France.", "evidence": ["Nice is in France."]}
        reply = (await client.call_tool("verify", own)).structured_content
        assert [claim["verdict"] for claim in reply["claims"]] == ["supported"]  # word for word

        arguments = {"question": "Where was she born?", "accepted": ["Warsaw"]}
        for answer, label in (
            ("She was born in Warsaw.", "correct"),
            ("In Paris.", "incorrect"),
            ("I don't know.", "abstained"),
        ):
            reply = await client.call_tool("grade", {**arguments, "answer": answer})
            assert reply.structured_content["label"] == label

        reply = (await client.call_tool("search", {"query": "Warsaw", "k": 1})).structured_content
        assert [passage["text"] for passage in reply["result"]] == [CURIE]

    served(tmp_path, use, "verifier.docs=curie.txt")


WRONG: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "no text": ("verify", {}, "text: Field required"),
    "a misspelt argument": (
        "verify",
        {"text": "x", "evidense": []},
        "verify has no argument 'evidense'; did you mean 'evidence'?",
    ),
    "evidence in one text": (
        "verify",
        {"text": "x", "evidence": "y\nz"},
        "evidence: Input should be a valid list",
    ),
    "nothing to check by": (
        "verify",
        {"text": "Paris is here."},
        "this verifier has no search; pass evidence=",
    ),
    "a text that is too long": (
        "verify",
        {"text": "x " * 20_000, "evidence": ["y"]},
        "more than the 32,768 that are read",
    ),
    "nothing to grade by": ("grade", {"question": "Q?", "answer": "A", "accepted": []}, "no accepted answer"),
    "nothing to search": (
        "search",
        {"query": "x"},
        "nothing to search; start it with factrl serve --mcp verifier.index=",
    ),
    "no number": ("search", {"query": "x", "k": 0}, "k: Input should be greater than or equal to 1"),
    "no such tool": ("verifi", {}, "Unknown tool: verifi"),
}


def test_a_mistake_is_an_error_of_the_tool_in_one_line_and_the_next_call_is_answered(tmp_path: Path) -> None:
    async def use(client: Any) -> None:
        for case, (tool, arguments, words) in WRONG.items():
            assert words in error_of(await client.call_tool(tool, arguments)), case
        good = await client.call_tool(
            "verify", {"text": "Nice is in France.", "evidence": ["Nice is in France."]}
        )
        assert not good.is_error

    served(tmp_path, use)


def test_what_could_not_be_graded_is_an_error_with_its_cause_and_never_a_number(tmp_path: Path) -> None:
    async def use(client: Any) -> None:
        arguments = {
            "question": "Where was she born?",
            "answer": "A town on the Vistula.",
            "accepted": ["Warsaw"],
        }
        assert "http_5xx: " in error_of(await client.call_tool("grade", arguments))
        checked = {"text": CURIE, "evidence": [CURIE]}
        assert "could not be checked" in error_of(await client.call_tool("verify", checked))

    with FaultServer(says("ok"), answers(500, {"error": "down"})) as judge:  # it dies after it was tried
        served(tmp_path, use, f"judge.url={judge.url}#judge", "judge.max_attempts=1")


def test_a_judge_that_is_down_is_no_end_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "curie.txt").write_text(CURIE)

    async def use(client: Any) -> None:
        asked = {
            "question": "Where was Marie Curie born?",
            "answer": "In the Polish capital.",
            "accepted": ["Warsaw"],
        }
        assert "127.0.0.1" in error_of(await client.call_tool("grade", asked))
        found = await client.call_tool("search", {"query": "Where was Marie Curie born?"})
        assert not found.is_error

    words = ("verifier.docs=curie.txt", "--judge", "http://127.0.0.1:9/v1#m", "judge.max_attempts=1")
    served(tmp_path, use, *words)
    assert "127.0.0.1" in (tmp_path / "err").read_text()


@pytest.mark.parametrize(
    ("words", "words_told"),
    [("verifier.index=nowhere", "nowhere"), ("judge.urk=x", "did you mean 'judge.url'?")],
)
def test_a_mistake_of_the_one_who_starts_it_ends_it(
    words: str, words_told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--mcp", words]) == 2
    assert words_told in capsys.readouterr().err
