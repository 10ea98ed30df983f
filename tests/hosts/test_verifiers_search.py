"""Search as an action in verifiers 1: its own evaluation with a tool server of ours, what rewards read."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

vf = pytest.importorskip("verifiers.v1", reason="needs tests/hosts/requirements.txt")

from traces import trace_of  # noqa: E402

from factrl.bridges.verifiers import (  # noqa: E402
    SearchConfig,
    SearchState,
    SearchToolset,
    to_verifiers,
)
from factrl.errors import Unscored  # noqa: E402
from factrl.rewards import reward  # noqa: E402
from factrl.train.search import DOWN, SPENT, SearchEnvironment  # noqa: E402
from factrl.types import Completion, Example, Passage, Score  # noqa: E402
from factrl.verifier.search import Given, Index  # noqa: E402

ROOT = Path(__file__).parents[2]
FACTS = ("Ada is from Rome.", "Bo is from Oslo.")
SAYS = (("search", "Ada"), ("search", "Bo"), ("search", "more"), ("answer", r"From Rome [1]. \boxed{Rome}"))


class Given2(Given):
    """Knows the facts; what is asked about "nowhere" fails as told."""

    def __init__(self, error: Exception) -> None:
        super().__init__(FACTS)
        self.error = error

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        if "nowhere" in query:
            raise self.error
        return super().search(query, k)


def episode(error: Exception, *queries: str) -> tuple[SearchState, list[str]]:
    """The state after these calls, as it travels, and what the policy read."""
    tools = SearchToolset(SearchConfig(index="given below", k=1, turns=2))
    tools._source = Given2(error)
    replies = [asyncio.run(tools.search(query)) for query in queries]
    return SearchState.model_validate_json(tools.state.model_dump_json()), replies


@reward
def shown(example: Example, completion: Completion) -> Score:
    return Score({"shown": float(len(completion.shown or ()))})


def pays(state: SearchState) -> tuple[float, Any]:
    task = vf.TaskData(prompt="Where is Ada from?")
    trace = trace_of(task, "From Rome [1].", state=state)
    return asyncio.run(to_verifiers(shown)(task, trace)), trace


def test_the_policy_reads_what_it_reads_in_training() -> None:
    state, replies = episode(OSError(), "Ada", "Ada", "Bo")
    alike = SearchEnvironment(Given(FACTS), k=1, turns=2)
    assert replies == [alike.search("Ada"), alike.search("Ada"), alike.search("Bo")]
    assert replies[2] == SPENT
    assert pays(state)[0] == 1.0
    assert [one.text for one in state.shown] == [FACTS[0]]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unscored("timeout", "60 s"), "search_failed: timeout: 60 s"),
        (OSError("the disk is gone"), "search_failed: the disk is gone"),
        (AttributeError("no such thing"), "bug: search: AttributeError: no such thing"),
    ],
)
def test_a_search_that_fails_leaves_no_number_now_or_when_the_trace_is_read_again(
    error: Exception, message: str
) -> None:
    state, replies = episode(error, "nowhere", "Ada")
    assert replies == [DOWN, DOWN]
    with pytest.raises(Unscored, match=message):
        pays(state)
    saved = trace_of(vf.TaskData(prompt="q"), "From Rome.", info={"search": {"failed": state.failed}})
    with pytest.raises(Unscored, match=message):
        asyncio.run(to_verifiers(shown)(saved.task.data, saved))


def test_a_policy_cannot_write_what_masks_it_or_what_it_was_shown() -> None:
    task = vf.TaskData(prompt="Where is Ada from?")
    text = f'{DOWN}\n[1] {{"text": "Ada is from Rome."}}'
    assert asyncio.run(to_verifiers(shown)(task, trace_of(task, text, state=SearchState()))) == 0.0


@contextmanager
def model() -> Iterator[tuple[str, list[Any]]]:
    """A server that streams the n-th of `SAYS` in the n-th turn, and the messages that it was asked with."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(body)
            kind, text = SAYS[sum(one["role"] == "assistant" for one in body["messages"])]
            function = {"name": "search", "arguments": json.dumps({"query": text})}
            call = {"index": 0, "id": f"call-{len(requests)}", "type": "function", "function": function}
            delta = {"content": text} if kind == "answer" else {"tool_calls": [call]}
            ends = "stop" if kind == "answer" else "tool_calls"
            chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
            choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": ends}
            lines = [json.dumps({**chunk, "choices": [choice]}), "[DONE]"]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write("".join(f"data: {line}\n\n" for line in lines).encode())

    requests: list[Any] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        server.server_close()


def test_an_evaluation_of_verifiers_searches_our_index(tmp_path: Path) -> None:
    """`vf-eval` with the example's taskset: a process of its own for the tools, one for each rollout."""
    files = [tmp_path / f"{name}.txt" for name in ("ada", "bo")]
    for file, fact in zip(files, FACTS, strict=True):
        file.write_text(fact, encoding="utf-8")
    Index.build(tmp_path / "wiki", files)
    row = {"question": "Where is Ada from?", "answers": ["Rome"]}
    (tmp_path / "q.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with model() as (url, requests):
        words = {
            "model": "m",
            "env.taskset.file": tmp_path / "q.jsonl",
            "env.taskset.search.index": tmp_path / "wiki",
            "env.taskset.search.k": 1,
            "env.taskset.search.turns": 2,
            "env.agent.harness.id": "null",
            "env.agent.runtime.type": "subprocess",
            "client.base-url": url,
            "client.api-key-var": "NO_KEY",
            "output-dir": tmp_path / "out",
        }
        options = [str(part) for name, value in words.items() for part in (f"--{name}", value)]
        command = [Path(sys.executable).with_name("vf-eval"), "searching_taskset", *options]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        modules = os.pathsep.join(str(ROOT / name) for name in ("examples", "src"))
        env = {**os.environ, "PATH": path, "PYTHONPATH": modules, "NO_KEY": "none"}
        done = subprocess.run(
            [*command, "--no-push", "--no-rich"], env=env, cwd=tmp_path, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [file] = tmp_path.glob("out/*/traces.jsonl")
    [saved] = map(json.loads, file.read_text("utf-8").splitlines())
    [trace] = saved["traces"]
    assert trace["rewards"]["truthrl"]["score"] == 1.0, done.stdout[-2000:] + done.stderr[-2000:]
    assert [one["text"] for one in trace["info"]["search"]["shown"]] == [*FACTS]
    replies = [one["content"] for one in requests[-1]["messages"] if one["role"] == "tool"]
    assert replies[0] == '[1] {"title": "ada", "text": "Ada is from Rome."}\n1 of 2 searches are left.'
    assert replies[1].startswith('[2] {"title": "bo", "text": "Bo is from Oslo."}')
    assert replies[2] == SPENT
    assert "Search the documents" in requests[0]["tools"][0]["function"]["description"]
