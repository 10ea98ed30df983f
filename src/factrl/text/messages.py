"""What a message of a chat says, in the forms in which trainers, servers and logs hand messages over.

A message is a mapping or an object with `role` and `content`.  `content` is a text, nothing, or a list of
parts.  Reasoning that a chat template or a server has taken out of the text, as `reasoning_content`,
`reasoning`, `thinking`, a part of that type or the channel `analysis`, stands in `<think>` before the text
again, where rewards read it.  A text in a form that is not known here is an error that names the form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from factrl.errors import DataError

_REASONING = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
_TEXT = ("text", "refusal")  # of a part; the first that there is
_INSIDE = ("content", "value")  # where a part of text may keep it instead
_ROLES = {"model": "assistant", "ai": "assistant", "human": "user"}


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages, and not empty."""
    return isinstance(value, (list, tuple)) and bool(value) and all(_get(one, "role") for one in value)


def last_message(messages: Sequence[Any], role: str) -> Any:
    """The last message of a role, `user` or `assistant`; None where there is none.

    Of several channels it is one of `final`; one that only calls tools is passed over where another has none.

    >>> last_message([{"role": "Model", "content": "Warsaw"}, {"role": "tool", "content": "x"}], "assistant")
    {'role': 'Model', 'content': 'Warsaw'}
    """
    those = [one for one in reversed(messages) if _role(one) == role]
    those = [one for one in those if _get(one, "channel") == "final"] or those
    if those and _get(those[0], "tool_calls") and not text_of(those[0]):
        return next((one for one in those if not _get(one, "tool_calls")), those[0])
    return those[0] if those else None


def _role(message: Any) -> str:
    role = str(_get(message, "role") or "").lower()
    return _ROLES.get(role, role)


def text_of(message: Any) -> str:
    """What a message says, without its reasoning; images and the like say nothing.

    >>> text_of({"role": "user", "content": [{"type": "text", "text": "Where?"}, {"type": "image"}]})
    'Where?'

    Raises:
        DataError: what it says is in a form that is not known.
    """
    if _get(message, "channel") == "analysis":
        return ""
    content = _get(message, "content")
    return _joined(content, thought=False) or _joined(_get(message, "refusal"), thought=False)


def reasoning_of(message: Any) -> str:
    """The reasoning that was taken out of a message; "" where none was.

    >>> reasoning_of({"role": "assistant", "reasoning_content": "Poland.", "content": "Warsaw"})
    'Poland.'
    """
    apart = (_joined(_get(message, name), thought=None) for name in _REASONING)
    return next((text for text in apart if text.strip()), "") or _joined(
        _get(message, "content"), thought=None if _get(message, "channel") == "analysis" else True
    )


def completion_of(message: Any) -> str:
    """What the policy wrote in a message, as rewards read it: its reasoning in `<think>`, and then its text.

    >>> completion_of({"role": "assistant", "reasoning_content": "Poland.", "content": "Warsaw"})
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
        if content is not None and thought is False:
            raise _unknown(content)
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
        words = kind in ("", "refusal") or "text" in kind  # and no image, nor what a tool is called with
        names = (*_TEXT, *_INSIDE) if words else _TEXT
        if reasons or (words and thought is None):
            names = (*_REASONING, "text", "summary", *_INSIDE)
        if _get(part, "redacted"):  # its text is not for reading
            names = ("summary",)
        candidates = [_joined(_get(part, name), thought=None) for name in names]
        texts.append(next((text for text in candidates if text), ""))
        if words and thought is False and not texts[-1] and not any(_blank(part, name) for name in names):
            raise _unknown(part)
    return "".join(texts)


def _blank(part: Any, name: str) -> bool:
    """Whether a part has such a text, which is empty."""
    there = name in part if isinstance(part, Mapping) else hasattr(part, name)
    return there and not _get(part, name)


def _unknown(content: Any) -> DataError:
    keys = f" with {', '.join(map(str, content))}" if isinstance(content, Mapping) else ""
    return DataError(
        f"the content of a message holds a {type(content).__name__}{keys}: {str(content)[:80]!r}; write a "
        'text, or a list of parts such as {"type": "text", "text": "…"}'
    )


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
