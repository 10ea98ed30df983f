"""Reading what a policy wrote: tags, boxes and the clean payload inside them.

Every parser works on the raw text with exact ASCII markers and reports character offsets into it,
because Unicode normalisation creates tags that were not there (NFKC turns `＜` into `<`).  `clean` is for
the payload, after parsing.  Everything is linear in the length of the text, whatever it holds: tags are
found with `str.find` and `str.count`, braces in one pass, and no pattern has two unbounded quantifiers,
since a policy that finds a slow text can stall a whole training step.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

MAX_PAYLOAD = 32_768
"""Characters of an answer that are read; `clean` drops the rest, before and after normalising."""
MAX_MARKS = 30
"""Combining marks kept in a row, the bound of Unicode's stream-safe text format (UAX #15)."""

THINK, END_THINK = "<think>", "</think>"
_ANSWER, _END_ANSWER = "<answer>", "</answer>"
_MISSING = ("no_think", "think_unclosed", "no_answer", "answer_unclosed")
MALFORMED = (*_MISSING, "tag_repeated", "tag_order", "text_outside", "empty_think", "empty_answer")
"""Causes for which a completion has no two blocks."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of a text: `text` is `raw[start:end]`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The two blocks of a completion; both are None exactly when `malformed` names a cause."""

    think: Slice | None
    answer: Slice | None
    malformed: str | None = None


# -- Tags


def think_answer(text: str, prefill: str = "") -> Blocks:
    """Split `<think>…</think> <answer>…</answer>`, the only form that counts as well-formed.

    Each tag occurs exactly once, in this order and in exact ASCII; around the blocks there is only
    whitespace; neither block is empty or invisible.  A tag that is repeated inside a block, an attribute,
    an upper-case letter, a zero-width or look-alike character therefore makes the text malformed.

    >>> blocks = think_answer("<think>Poland.</think><answer>Warsaw</answer>")
    >>> blocks.answer.text, think_answer("Warsaw").malformed
    ('Warsaw', 'no_think')

    Args:
        text: what the policy wrote; offsets are relative to it.
        prefill: what the prompt already put there.  From its first `<think>` on it is read as if the
            policy had written it, so a policy that opens the block again repeats a tag; a part of a block
            that lies in the prefill is not part of the slice.

    Returns:
        `malformed` is one of `MALFORMED`, or None.
    """
    opened = prefill[prefill.find(THINK) :] if THINK in prefill else ""
    whole = opened + text
    tags = (THINK, END_THINK, _ANSWER, _END_ANSWER)
    counts = [whole.count(tag) for tag in tags]
    if max(counts) > 1:
        return Blocks(None, None, "tag_repeated")
    if 0 in counts:
        return Blocks(None, None, _MISSING[counts.index(0)])
    a, b, c, d = (whole.find(tag) for tag in tags)
    if not a < b < c < d:
        return Blocks(None, None, "tag_order")
    outside = (whole[:a], whole[b + len(END_THINK) : c], whole[d + len(_END_ANSWER) :])
    if any(part.strip() for part in outside):
        return Blocks(None, None, "text_outside")
    think, answer = (a + len(THINK), b), (c + len(_ANSWER), d)
    for (start, end), cause in ((think, "empty_think"), (answer, "empty_answer")):
        if all(char.isspace() or _hidden(char) for char in whole[start:end].strip()[:MAX_PAYLOAD]):
            return Blocks(None, None, cause)
    return Blocks(_slice(text, think, len(opened)), _slice(text, answer, len(opened)))


def opened(prompt: str) -> str:
    """The `<think>` at the end of a prompt that is still open, with the space after it; empty without one.

    Chat templates of reasoning models end with it, and the completion then starts inside the block.
    """
    start = prompt.rfind(THINK)
    return prompt[start:] if start >= 0 and not prompt[start + len(THINK) :].strip() else ""


def implied(text: str) -> str:
    """`<think>` for a text that closes a reasoning it never opens: what its model's chat template had opened.

    For texts whose prompt is not known, as those of a server or a file.  Where nothing follows the closing
    tag, the text before it is the answer.
    """
    end = text.find(END_THINK)
    closes = end >= 0 and THINK not in text[:end]
    return THINK if closes and strip_end_tokens(text[end + len(END_THINK) :]).strip() else ""


def tag(text: str, name: str, which: Literal["first", "last"] = "last") -> Slice | None:
    """The content of the last (or first) `<name>…</name>` block, wherever it stands; None without one.

    A block runs from an opening tag to the next closing tag with no other opening tag in between, so an
    unclosed tag neither hides nor widens a well-closed one.

    >>> tag("<a>1</a><a>2</a><a>3", "a").text
    '2'
    """
    opening, closing = f"<{name}>", f"</{name}>"
    if which == "first":
        start = text.find(opening)
        end = text.find(closing, start + len(opening)) if start >= 0 else -1
        start = text.rfind(opening, 0, end) if end >= 0 else -1
    else:
        start = text.rfind(opening, 0, max(text.rfind(closing), 0))
        end = text.find(closing, start + len(opening)) if start >= 0 else -1
    if start < 0 or end < 0:
        return None
    return _slice(text, (start + len(opening), end), 0)


# -- Special tokens of chat templates, by name: `<|im_end|>`, `<|eot_id|>`, `<｜end▁of▁sentence｜>`, `</s>`

_ENDING = (
    r"<[|｜](?:[a-z]{1,12}[_▁]){0,2}(?:end(?:of[a-z]{1,12})?|eo[adfmst]|stop|return|call|pad)"
    r"(?:[_▁][a-z]{1,12}){0,4}[|｜]>"
    r"|<[|｜](?:[a-z]{1,12}[_▁]){0,2}(?:sep(?:arator)?|mask|unk|cls|observation|user|assistant)[|｜]>"
    r"|<[|｜]?(?:extra|unused|reserved|special|placeholder|dummy)(?:[_▁](?:id|special|token)){0,2}[_▁]?\d{1,5}[|｜]?>"
    r"|<[a-z]{1,12}:(?:eo[a-z]|pad|sep|end)>|<_(?:end|eo[a-z]|pad|sep)_?>|\[e~\["
    r"|</s>|</?(?:eo[dfmst]|pad)>|<(?:end_of_[a-z]{1,12}|turn\|)>|\[(?:EOS|PAD)\]"
)
_ROLE = r"(?:system|user|human|assistant|model|developer|tool)"
END_TOKEN = re.compile(_ENDING, re.IGNORECASE)
"""One special token that ends a text or a turn of it, or that models leave at an end, as a reserved one."""
_LONGEST_END = 96  # characters of an end token, and more
CHAT_TOKEN = re.compile(
    rf"(?:<[|｜](?:im_start|start_header_id|start|turn)[|｜]>|<(?:start_of_turn|\|turn)>)(?:{_ROLE}\b)?|{_ENDING}"
    r"|<[|｜](?:begin[_▁]of[_▁][a-z]{1,12}|startoftext|bos|message|system|user|assistant)[|｜]>"
    r"|<[|｜]channel[|｜]>(?:(?:analysis|commentary|final)\b)?|<(?:s|bos|unk)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS)\]|<</?SYS>>|</?tool_call>",
    re.IGNORECASE,
)
"""One special token of a chat template that was left in a text, with the role that it names."""


def strip_end_tokens(text: str) -> str:
    """The text without the tokens that end a turn where they stand at its end, and the space before them.

    Anywhere else they are characters of the text.  Verifiers, graders, rewards and evaluations read what
    others wrote by this one rule.

    >>> strip_end_tokens("Warsaw.<|im_end|>"), strip_end_tokens("War<|im_end|>saw")
    ('Warsaw.', 'War<|im_end|>saw')
    """
    end, cut = len(text), len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        start = max(text.rfind(sign, max(0, end - _LONGEST_END), max(0, end - 1)) for sign in "<[")
        if start < 0 or not END_TOKEN.fullmatch(text, start, end):
            return text if cut == len(text) else text[:end]
        end = cut = start


def _slice(text: str, span: tuple[int, int], shift: int) -> Slice:
    start, end = (max(position - shift, 0) for position in span)
    return Slice(text[start:end], start, end)


# -- Boxes


def boxed(text: str) -> Slice | None:
    r"""The content of the last LaTeX box; None without a closed one.

    A box is `\boxed{…}` or `\fbox{…}` with balanced braces, where `\{` and `\}` do not count.  Of nested
    boxes the outer one counts, so that no text around an answer stays unread.  Boxes in comments of HTML
    and on comment lines of LaTeX do not count, as no reader sees them.
    """
    if "\\boxed" not in text and "\\fbox" not in text:
        return None
    span = _braced(_shown(text))
    return _slice(text, span, 0) if span else None


_LEFT_OUT = re.compile(r"^[ \t]{0,80}%.*$", re.M)


def _shown(text: str) -> str:
    """A text with spaces for the comments of HTML and LaTeX, one of HTML up to its end or the text's."""
    parts: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0:
        end = text.find("-->", start)
        end = len(text) if end < 0 else end + 3
        parts += [text[at:start], " " * (end - start)]
        at = end
    return _LEFT_OUT.sub(lambda line: " " * len(line[0]), "".join([*parts, text[at:]]))


def _braced(text: str) -> tuple[int, int] | None:
    boxes = {match.end() - 1 for match in re.finditer(r"\\(?:boxed|fbox) ?\{", text)}
    stack: list[int] = []
    closed: list[tuple[int, int]] = []
    for match in re.finditer(r"\\[\\{}]|[{}]", text) if boxes else ():
        at = match.end() - 1
        if match[0] == "{" or at in boxes:
            stack.append(at)
        elif match[0] == "}" and stack and (start := stack.pop()) in boxes:
            closed.append((start + 1, at))
    unfinished = max((start for start in stack if start in boxes), default=-1)
    if not closed or unfinished > max(closed)[1]:  # the last one was cut off
        return None
    last = max(closed)  # or the outer one of those around it
    return min(one for one in closed if one[1] >= last[1])


_LATEX_WORDS = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|emph|underline|mathrm|mathbf|mathit|mathsf|mbox|operatorname"
    r"|boxed|fbox|textcolor\{\w{1,20}\}|color\{\w{1,20}\})\{([^{}]*)\}"
)
_LATEX_SIGNS = (
    *(("\\" + space, " ") for space in (",", ";", ":", " ")),
    *(("\\" + sign, sign) for sign in "$%&_#"),
    ("\\!", ""),
    ("{,}", ","),
)


def unwrap_latex(text: str) -> str:
    r"""The words inside LaTeX markup: `$\text{New\ York}$` becomes `New York`.

    Removes a pair of `$`, `\(…\)` or `\[…\]` around the whole, text, font and box commands (nested
    three deep), spacing commands and escapes of `$ % & _ #`; every other command is left as it is.  Reads
    `MAX_PAYLOAD` characters.
    """
    text = text[:MAX_PAYLOAD].strip()
    if "\\" not in text and "$" not in text and "{" not in text:
        return " ".join(text.split())
    for left, right in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(text) > len(left + right) and text.startswith(left) and text.endswith(right):
            text = text[len(left) : -len(right)]
    for _ in range(3):
        text = _LATEX_WORDS.sub(r"\1", text)
    for sign, plain in _LATEX_SIGNS:
        text = text.replace(sign, plain)
    return " ".join(text.split())


# -- The payload

FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
"""Letters and symbols that draw nothing, although Unicode does not file them under "format"."""
# Beside them selectors and tags.  Removing them before NFKC is enough, because no visible character
# decomposes into one.
_INVISIBLE = frozenset([*FILLERS, *map(chr, range(0xFE00, 0xFE10)), *map(chr, range(0xE0000, 0xE1000))])
_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′‵ʼʹ‹›", "'"),
        **dict.fromkeys("“”„‟«»〝〞〟", '"'),
        **dict.fromkeys("‐‒–—―−⸺⸻", "-"),
        **dict.fromkeys("⁄∕", "/"),
    }
)
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_SUBSCRIPT = re.compile("(?<=[0-9⁰¹²³⁴⁵⁶⁷⁸⁹])(?=[₀₁₂₃₄₅₆₇₈₉])")
_FRACTION = re.compile(r"(?<=\d)[¼½¾⅐-⅞↉]")
_CONTROLS = {code: None for code in (*range(32), 127) if not chr(code).isspace()}


def clean(text: str) -> str:
    """The text as a reader sees it, in one spelling: for answers, after the tags have been parsed.

    Cuts to `MAX_PAYLOAD` characters, removes what cannot be seen (control, zero-width, bidirectional and
    tag characters, variation selectors, soft hyphens, fillers, lone surrogates), keeps at most
    `MAX_MARKS` combining marks in a row, applies NFKC, writes quotes and dashes in ASCII and collapses
    whitespace.  A superscript keeps its meaning (`10²` becomes `10^2`, not `102`), and so do a subscript
    behind a digit (`10₂` becomes `10_2`) and a mixed number (`2½` becomes `2 1/2`).  Cleaning twice changes
    nothing, and the result always encodes as UTF-8.

    >>> clean("Pa\\u200bris,  ‘10²’")
    "Paris, '10^2'"
    """
    return _remembered(text) if len(text) <= _SHORT else _cleaned(text[:MAX_PAYLOAD])


def _cleaned(text: str) -> str:
    if text.isascii():  # nothing below changes it but for its controls, and most of what is judged is plain
        return " ".join(text.translate(_CONTROLS).split())
    text = text.translate({ord(char): None for char in set(text) if _hidden(char)}).replace("´", "'")
    text = _SUPERSCRIPT.sub(lambda match: "^" + match[0], _SUBSCRIPT.sub("_", text))
    text = few_marks(_FRACTION.sub(lambda match: " " + match[0], text))
    # NFKC in two steps: one character may decompose into 18, and composing them again is the slow part.
    text = unicodedata.normalize("NFKD", text)[: 4 * MAX_PAYLOAD]
    text = few_marks(unicodedata.normalize("NFC", text)[:MAX_PAYLOAD])
    return " ".join(text.translate(_TYPOGRAPHIC).split())


_SHORT = 2_048  # characters; a claim or an answer goes through several readers, each of which cleans it
_remembered = lru_cache(maxsize=1_024)(_cleaned)


def few_marks(text: str) -> str:
    """The text with at most `MAX_MARKS` combining marks in a row."""
    if not any(map(unicodedata.combining, set(text))):
        return text
    # Normalising sorts each run of marks, which takes quadratic time in the length of the run.
    kept: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        if marks <= MAX_MARKS:
            kept.append(char)
    return "".join(kept)


def encodable(text: str) -> str:
    """The text with `?` for each half of a surrogate pair, which no file, request or tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def bytes_of(text: str) -> int:
    """How many bytes the text is as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def first_bytes(text: str, most: int) -> str:
    """As much of the start of a text as fits into so many bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _hidden(char: str) -> bool:
    category = unicodedata.category(char)
    return char in _INVISIBLE or category in ("Cf", "Cs") or (category == "Cc" and not char.isspace())
