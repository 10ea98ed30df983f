"""Chain of verification: what each step sees, what is kept of it, and what happens when a step fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from factrl.errors import LLMError, Unscored
from factrl.llm import Message, Reply
from factrl.llm.writers import ServerWriter
from factrl.runs.settings import AskSettings, DataSettings
from factrl.train import answering
from factrl.train.answering import CoVeWriter, open_cove, read_questions
from factrl.types import Completion, Example

DATA = DataSettings(train="unused")
CURIE = Example("Where was Marie Curie born?", ("Warsaw",), id="curie")
EMMA = Example("Who wrote Emma?", ("Jane Austen",), id="emma")
PLAN = "Here are the questions:\n- Where was Marie Curie born?\n2. When was Marie Curie born?"


def step_of(prompt: str) -> str:
    for step, marker in (("plan", "Questions:"), ("revise", "Final answer:")):
        if prompt.endswith(marker):
            return step
    return "answer" if prompt.startswith("Answer the question in one short sentence.") else "draft"


class Scripted:
    """An LLM with one reply per step, or a function of the prompt; remembers what it was asked."""

    identity = "scripted"

    def __init__(self, **replies: str | Exception | Callable[[str], str]) -> None:
        self.replies: dict[str, Any] = {"draft": "In Paris, in 1867.", "plan": PLAN, "revise": "Warsaw."}
        self.replies.update({"answer": "It was Warsaw.", **replies})
        self.asked: dict[str, list[str]] = {"draft": [], "plan": [], "answer": [], "revise": []}
        self._lock = threading.Lock()

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        prompt = messages[-1]["content"]
        step = step_of(prompt)
        with self._lock:
            self.asked[step].append(prompt)
        reply = self.replies[step]
        if isinstance(reply, Exception):
            raise reply
        text = reply if isinstance(reply, str) else reply(prompt)
        return Reply(f"{text} {sampling['seed']}" if "seed" in sampling else text, "stop", "m", tokens_out=5)


def cove_of(llm: Any, prompt: str = "{question}") -> CoVeWriter:
    drafts = ServerWriter(llm, DATA.model_copy(update={"prompt": prompt}), 100)
    return CoVeWriter(drafts, ServerWriter(llm, DATA, 200), prompt)


def test_each_step_sees_what_it_may() -> None:
    llm = Scripted()
    ((found,),) = cove_of(llm, "Be brief. {question}").write([CURIE])
    assert isinstance(found, Completion)
    assert found == "Warsaw."
    assert llm.asked["draft"] == ["Be brief. Where was Marie Curie born?"]
    for step in ("plan", "revise"):
        (prompt,) = llm.asked[step]
        assert "Request: Be brief. Where was Marie Curie born?" in prompt
        assert "Draft: In Paris, in 1867." in prompt
    assert len(llm.asked["answer"]) == 2
    assert not any("Paris" in prompt or "Be brief" in prompt for prompt in llm.asked["answer"])
    assert "- Where was Marie Curie born? It was Warsaw.\n- When was" in llm.asked["revise"][0]
    assert (found.tokens, found.truncated, found.prefill) == (5, False, "")


def test_samples_differ_by_their_drafts() -> None:
    llm = Scripted()
    done: list[int] = []
    told: dict[str, Any] = {"temperature": 1.0, "seed": 3}
    first = cove_of(llm).write([CURIE, EMMA], (0, 1), **told, on_done=lambda: done.append(1))
    assert [len(group) for group in first] == [2, 2]
    assert len(done) == 2
    assert len({*llm.asked["revise"]}) == 4


@pytest.mark.parametrize(("plan", "left", "asked"), [("none", "In Paris, in 1867.", 0), (PLAN, "Warsaw.", 1)])
def test_what_is_asked(plan: str, left: str, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to ask leaves the draft; questions beyond the limit are not asked."""
    monkeypatch.setattr(answering, "MAX_QUESTIONS", 1)
    llm = Scripted(plan=plan)
    assert cove_of(llm).write([CURIE]) == [[left]]
    assert (len(llm.asked["answer"]), len(llm.asked["revise"])) == (asked, asked)


@pytest.mark.parametrize(
    ("step", "reply", "cause", "asked"),
    [
        ("draft", LLMError("timeout"), "timeout", (1, 0, 0, 0)),
        ("plan", LLMError("timeout"), "timeout", (1, 1, 0, 0)),
        ("plan", "The draft looks right to me.", "plan_unreadable", (1, 1, 0, 0)),
        ("answer", LLMError("http_500"), "http_500", (1, 1, 2, 0)),
        ("revise", LLMError("connection"), "connection", (1, 1, 2, 1)),
    ],
)
def test_a_step_that_fails_leaves_no_answer(
    step: str, reply: Any, cause: str, asked: tuple[int, ...]
) -> None:
    llm = Scripted(**{step: reply})
    ((found,),) = cove_of(llm).write([CURIE])
    assert isinstance(found, Unscored)
    assert found.cause == cause
    assert tuple(map(len, llm.asked.values())) == asked


def test_a_final_answer_over_its_limit_says_so() -> None:
    ((found,),) = cove_of(Scripted(revise=LLMError("truncated", text="Warsaw, the"))).write([CURIE])
    assert isinstance(found, Completion)
    assert (str(found), found.truncated) == ("Warsaw, the", True)


def test_it_opens_for_the_model_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Scripted()
    monkeypatch.setattr("factrl.llm.local.llama.shared_model", lambda: llm)
    settings = AskSettings.model_validate(
        {
            "model": {"name": "local"},
            "data": {"train": "unused", "prompt": "Be brief. {question}", "system": "You are terse."},
        }
    )
    ((found,),) = open_cove(settings).write([CURIE])
    assert found == "Warsaw."
    assert llm.asked["draft"] == ["Be brief. Where was Marie Curie born?"]


@pytest.mark.parametrize(
    ("reply", "questions"),
    [
        ("- Who wrote Emma?\n- When did it appear?", ["Who wrote Emma?", "When did it appear?"]),
        ("Q1: Who wrote Emma?\n\n* **When was it?**", ["Who wrote Emma?", "When was it?"]),
        ("- Who wrote Emma?\n- Who wrote Emma?", ["Who wrote Emma?"]),
        ("- 1984 is by whom, and when?", ["1984 is by whom, and when?"]),
        ("none", []),
    ],
)
def test_plans_that_can_be_read(reply: str, questions: list[str]) -> None:
    assert read_questions(reply) == questions


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "- Jane Austen wrote Emma.",
        "- Who wrote Emma?\n- It is by Austen.",
        "- Who wrote Emma?\nI hope this helps!",
        "none\nnone of it is wrong",
    ],
)
def test_plans_that_cannot(reply: str) -> None:
    with pytest.raises(Unscored) as caught:
        read_questions(reply)
    assert caught.value.cause == "plan_unreadable"


@pytest.mark.security("S03")
def test_braces_in_texts_are_only_text() -> None:
    llm = Scripted(draft="{request} {0}", plan="- What is {x}?", answer="{question}")
    ((found,),) = cove_of(llm).write([CURIE])
    assert found == "Warsaw."
    assert "Draft: {request} {0}" in llm.asked["revise"][0]
    assert "- What is {x}? {question}" in llm.asked["revise"][0]
