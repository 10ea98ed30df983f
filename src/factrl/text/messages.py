"""What a message of a chat says, in the forms in which trainers, servers and logs hand messages over.

A message is a mapping or an object with `role` and `content`.  `content` is a text, nothing, or a list of
parts.  Reasoning that a chat template or a server has taken out of the text, as `reasoning_content`,
`reasoning`, `thinking` or a part of that type, stands in `<think>` before the text again, where rewards read
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_REASONING = ("reasoning_content", "reasoning", "thinking")
_TEXT = ("text", "refusal")  # of a part; the first that there is


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages, and not empty."""
    return isinstance(value, (list, tuple)) and bool(value) and all(_get(one, "role") for one in value)


def last_message(messages: Sequence[Any], role: str) -> Any:
    """The last message of a role, `user` or `assistant`; None where there is none."""
    return next((one for one in reversed(messages) if _get(one, "role") == role), None)


def text_of(message: Any) -> str:
    """What a message says, without its reasoning; images and the like say nothing.

    >>> text_of({"role": "user", "content": [{"type": "text", "text": "Where?"}, {"type": "image"}]})
    'Where?'
    """
    content = _get(message, "content")
    return _joined(content, thought=False) or _joined(_get(message, "refusal"), thought=False)


def reasoning_of(message: Any) -> str:
    """The reasoning that was taken out of a message; "" where none was.

    >>> reasoning_of({"role": "assistant", "reasoning_content": "Poland.", "content": "Warsaw"})
    'Poland.'
    """
    apart = (_joined(_get(message, name), thought=None) for name in _REASONING)
    return next((text for text in apart if text.strip()), "") or _joined(
        _get(message, "content"), thought=True
    )


def said(message: Any) -> str:
    """What the policy wrote in a message, as rewards read it: its reasoning in `<think>`, and then its text.

    >>> said({"role": "assistant", "reasoning_content": "Poland.", "content": "Warsaw"})
    '<think>Poland.</think>Warsaw'
    """
    return with_reasoning(reasoning_of(message), text_of(message))


def with_reasoning(reasoning: str, text: str) -> str:
    """A text with the reasoning that was taken out of it, unless it still begins with the same."""
    if not reasoning.strip():
        return text
    opening, _, rest = text.lstrip().partition("<think>")
    kept = not opening and rest.lstrip().startswith(reasoning.strip())
    return text if kept else f"<think>{reasoning}</think>{text}"


def _joined(content: Any, *, thought: bool | None) -> str:
    """The texts of a content; of its parts those that are reasoning, or are not; None for all."""
    if isinstance(content, str):
        return "" if thought else content
    if isinstance(content, Mapping) or hasattr(content, "type"):
        content = [content]
    if not isinstance(content, (list, tuple)):
        return ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append("" if thought else part)
            continue
        kind = str(_get(part, "type") or "")
        reasons = kind.startswith(("thinking", "reasoning"))
        if thought is not None and reasons is not thought:
            continue
        names = (*_REASONING, "text", "summary", "content") if reasons else _TEXT
        if _get(part, "redacted"):  # its text is not for reading
            names = ("summary",)
        found = (_joined(_get(part, name), thought=None) for name in names)
        texts.append(next((text for text in found if text), ""))
    return "".join(texts)


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
