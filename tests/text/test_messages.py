"""Messages of a chat in the forms of all hosts: what the policy wrote is read the same."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import factrl as fx
from factrl.errors import DataError
from factrl.rewards.grading import Grader
from factrl.text.messages import completion_of, last_message, text_of

THOUGHT, ANSWER = "Marie Curie was born in Warsaw in 1867.", "<answer>Warsaw</answer>"
WHOLE = f"<think>{THOUGHT}</think>{ANSWER}"
TEXT = {"type": "text", "text": ANSWER}

# What a host hands over; each says WHOLE.
APART: Mapping[str, Any] = {
    "nothing apart": {"content": WHOLE},
    "TRL, vLLM, DeepSeek": {"reasoning_content": THOUGHT, "content": ANSWER},
    "vLLM since 0.12, OpenRouter": {"reasoning": THOUGHT, "content": ANSWER},
    "Ollama": {"thinking": THOUGHT, "content": ANSWER},
    "null beside it": {"reasoning_content": None, "reasoning": THOUGHT, "content": ANSWER},
    "kept in both": {"reasoning_content": THOUGHT, "content": WHOLE},
    "parts of Anthropic": {"content": [{"type": "thinking", "thinking": THOUGHT, "signature": "x"}, TEXT]},
    "parts of Mistral": {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}, TEXT]
    },
    "parts of Inspect": SimpleNamespace(
        role="assistant",
        content=[
            SimpleNamespace(type="reasoning", reasoning=THOUGHT, redacted=False),
            SimpleNamespace(type="text", text=ANSWER),
        ],
    ),
    "redacted, with a summary": {
        "content": [{"type": "reasoning", "reasoning": "Zm9v", "redacted": True, "summary": THOUGHT}, TEXT]
    },
    "parts of the Responses API": {
        "content": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
            {"type": "output_text", "text": ANSWER},
        ]
    },
    "reasoning of open models there": {
        "content": [
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": THOUGHT}]},
            {"type": "output_text", "text": ANSWER},
        ]
    },
    "parts that are texts": {"reasoning_content": [THOUGHT], "content": ["<answer>", "Warsaw</answer>"]},
    "OpenRouter's details": {
        "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}],
        "content": ANSWER,
    },
    "a summary in a table": {
        "reasoning": {"effort": "low", "summary": [{"text": THOUGHT}]},
        "content": ANSWER,
    },
    "an object": SimpleNamespace(role="assistant", content=ANSWER, reasoning_content=THOUGHT, refusal=None),
}
OTHERS: Mapping[str, tuple[Any, str]] = {
    "a text": ({"content": "Warsaw"}, "Warsaw"),
    "an image": ({"content": [{"type": "image_url", "image_url": {"url": "x"}}, TEXT]}, ANSWER),
    "a call": ({"content": None, "tool_calls": [{"function": {"name": "search"}}]}, ""),
    "reasoning alone": ({"reasoning_content": THOUGHT, "content": None}, f"<think>{THOUGHT}</think>"),
    "empty reasoning": ({"reasoning_content": " \n", "content": ANSWER}, ANSWER),
    "a refusal": ({"content": None, "refusal": "I can't."}, "I can't."),
    "a part that refuses": ({"content": [{"type": "refusal", "refusal": "I can't."}]}, "I can't."),
    "other reasoning in the text": (
        {"reasoning_content": "It was Paris.", "content": WHOLE},
        f"<think>It was Paris.</think>{WHOLE}",
    ),
    "reasoning that the text repeats": (
        {"reasoning_content": "Warsaw", "content": "Warsaw"},
        "<think>Warsaw</think>Warsaw",
    ),
    "none": (None, ""),
    "Assistants' text": (
        {"content": [{"type": "text", "text": {"value": ANSWER, "annotations": []}}]},
        ANSWER,
    ),
    "a part's content": ({"content": [{"type": "text", "content": ANSWER}]}, ANSWER),
    "a part's content, alone": ({"content": {"type": "output_text", "content": [TEXT]}}, ANSWER),
    "a value": ({"content": {"value": ANSWER}}, ANSWER),
    "parts that say nothing": (
        {
            "content": [
                {"type": "text", "text": ""},
                {"type": "image", "data": "x"},
                {"type": "text", "text": None},
            ]
        },
        "",
    ),
    "a tool's reply": ({"content": [{"type": "tool_result", "content": "Paris"}, TEXT]}, ANSWER),
    "analysis": ({"channel": "analysis", "content": THOUGHT}, f"<think>{THOUGHT}</think>"),
    "final": ({"channel": "final", "content": ANSWER}, ANSWER),
}
UNKNOWN: Mapping[str, tuple[Any, str]] = {
    "a table": ({"answer": ANSWER}, "a dict with answer"),
    "a part": ([{"type": "text", "body": ANSWER}], "a dict with type, body"),
    "a part without type": ([{"message": ANSWER}], "a dict with message"),
    "a table in a part": ([{"type": "text", "text": {"body": ANSWER}}], "a dict with type, text"),
    "a number in a part": ([{"type": "text", "text": 5}], "a dict with type, text"),
    "a number": (5, "holds a int"),
    "bytes": (b"Warsaw", "holds a bytes"),
    "beside a known part": ([TEXT, {"type": "output_text", "words": "x"}], "a dict with type, words"),
}
FIRST, OTHER = {"role": "assistant", "content": ANSWER}, {"role": "assistant", "content": "Paris"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "search"}}]}
TALKS: Mapping[str, tuple[list[Any], str]] = {
    "Gemini's role": ([OTHER, {**FIRST, "role": "model"}], ANSWER),
    "a capital": ([OTHER, {**FIRST, "role": "Assistant"}], ANSWER),
    "final first": ([{**FIRST, "channel": "final"}, {**OTHER, "channel": "analysis"}], ANSWER),
    "final last": ([{**OTHER, "channel": "analysis"}, {**FIRST, "channel": "final"}], ANSWER),
    "analysis alone": ([{**OTHER, "channel": "analysis"}], "<think>Paris</think>"),
    "a call after it": ([OTHER, FIRST, CALL], ANSWER),
    "a call and its reply after it": (
        [FIRST, {**CALL, "content": ""}, {"role": "tool", "content": "x"}],
        ANSWER,
    ),
    "a call with words": ([OTHER, {**CALL, "content": ANSWER}], ANSWER),
    "nothing but a call": ([CALL], ""),
    "nothing said at last": ([OTHER, {"role": "assistant", "content": ""}], ""),
}


@pytest.mark.parametrize("message", APART.values(), ids=APART)
def test_reasoning_stands_before_the_text(message: Any) -> None:
    assert completion_of(message) == WHOLE


@pytest.mark.parametrize(("message", "text"), OTHERS.values(), ids=OTHERS)
def test_what_a_message_says(message: Any, text: str) -> None:
    assert completion_of(message) == text


@pytest.mark.parametrize(("content", "named"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_form_that_is_not_known_is_named(content: Any, named: str) -> None:
    message = {"role": "assistant", "content": content}
    with pytest.raises(DataError, match=named):
        completion_of(message)
    with pytest.raises(DataError, match=named):
        fx.to_trl(fx.load_reward("truthrl").with_(grade=Grader()))(
            prompts=["Q?"], completions=[[message]], answers=["Warsaw"]
        )


@pytest.mark.parametrize(("talk", "text"), TALKS.values(), ids=TALKS)
def test_which_message_is_the_answer(talk: list[Any], text: str) -> None:
    assert completion_of(last_message(talk, "assistant")) == text


def test_the_question_is_what_the_user_says_and_not_what_is_thought_or_shown() -> None:
    talk = [
        {"role": "user", "content": "First?"},
        {"role": "assistant", "reasoning_content": "x", "content": "y"},
        SimpleNamespace(role="user", content=[{"type": "input_text", "text": "Where?"}]),
        {"role": "assistant", "content": "there"},
    ]
    assert text_of(last_message(talk, "user")) == "Where?"
    assert last_message(talk, "tool") is None


# -- Hosts

ASKED = [{"role": "user", "content": "Where was Marie Curie born?"}]
COLUMNS = {"answers": [["Warsaw"]], "evidence": [[THOUGHT]]}


@pytest.mark.parametrize("begun", [ASKED, [*ASKED, {"role": "assistant", "content": "<think>"}]])
@pytest.mark.parametrize("name", APART)
def test_trl_is_paid_alike(name: str, begun: Any) -> None:
    """Also where the prompt opens `<think>`: what is handed apart was opened and closed there."""
    message = {"role": "assistant", **APART[name]} if isinstance(APART[name], dict) else APART[name]
    reward = fx.load_reward("knowrl").with_(grade=Grader(), verify=fx.open_verifier("local", judge="weak"))
    paid = fx.to_trl(reward)(prompts=[begun], completions=[[message]], **COLUMNS)
    twice = name == "nothing apart" and begun is not ASKED  # there the tag stands twice
    assert (paid == [4.0]) is not twice
    assert twice or fx.to_trl(reward, prefill="" if name == "nothing apart" else "<think>")(
        prompts=[ASKED], completions=[[message]], **COLUMNS
    ) == [4.0]
