"""From spans of characters to signs of tokens: which token wrote what the reward praised or blamed.

A reward speaks of characters, the trainer of the tokens that were generated.  The same text has many
tokenisations, so it is never tokenised again; what each token adds is seen by decoding it behind those before
it (15 us a token), and must add up to the very text that the reward saw.

Only numpy is needed here; the sign rule itself is `factrl.train.advantages.flip_advantages`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from factrl.errors import ModelError
from factrl.types import Span

CONTEXT = 32  # tokens decoded before the next one, as what it adds may depend on those before it

Offsets = tuple[np.ndarray, np.ndarray]


class TokenOffsets:
    """Finds the characters that each generated token wrote, by a tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {})  # what `decode` leaves out
        self._special = {*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}

    def signs(self, ids: Sequence[int], text: str, spans: Sequence[Span]) -> np.ndarray:
        """The sign of the span that each token belongs to, 0 outside of spans.

        A token over an edge belongs where most of its visible characters are; of equals, to a span before
        none and to the first before the second.  So in `>The` the word decides, and a space in front never
        does.  Special tokens and padding have no characters and get 0.  Where spans overlap, the later one
        in the sequence counts.

        Args:
            ids: the T generated tokens.
            text: the completion as the reward saw it: decoded without special tokens.

        Returns:
            (T,) of -1, 0 and 1.
        """
        starts, ends = self.offsets(ids, text)
        owner = np.zeros(len(text) + 1, dtype=np.int32)  # number of the span that holds a character
        for number, span in enumerate(spans, start=1):
            owner[span.start : span.end] = number
        sign_of = np.array([0, *(span.sign for span in spans)], dtype=np.int8)
        edges = np.concatenate(([0], np.cumsum(owner[1:] != owner[:-1])))
        has_text = ends > starts
        owners = np.where(has_text, owner[starts], 0)
        for token in np.flatnonzero(has_text & (edges[ends - 1] != edges[starts])):
            here = slice(starts[token], ends[token])
            owners[token] = _holder(owner[here].tolist(), text[here])
        return sign_of[owners]

    def signs_at_end(self, ids: Sequence[int], text: str, spans: Sequence[Span]) -> list[int]:
        """`signs` for a text that is the end of what the tokens spell, as a policy's last message is.

        Returns:
            (T,), or none where there are no spans.
        """
        if not spans:
            return []
        whole = self._decode(ids)
        start = whole.rfind(text)
        if start < 0:  # `offsets` refuses it and names both texts
            return self.signs(ids, text, spans).tolist()
        moved = [Span(start + span.start, start + span.end, span.sign) for span in spans]
        return self.signs(ids, whole, moved).tolist()

    def offsets(self, ids: Sequence[int], text: str) -> Offsets:
        """(T,) first character and (T,) end of what each token wrote, both equal for special tokens.

        Tokens that hold parts of one character all have that character; one that adds nothing else, such as a
        first space that the decoder drops, has the next character.

        Raises:
            ModelError: `text` is not what `ids` decode to.
        """
        offsets = self._offsets(ids, text, CONTEXT) or self._offsets(ids, text, len(ids))
        if offsets is None:
            raise ModelError(
                f"step-wise credit: tokens and text of a completion differ: {type(self._tokenizer).__name__} "
                f"decodes the tokens to {_start(self._decode(ids))}, the reward saw {_start(text)}; "
                "use a reward without spans or another tokenizer"
            )
        return offsets

    def _offsets(self, ids: Sequence[int], text: str, context: int) -> Offsets | None:
        """The same from windows of at least `context` tokens; None where they do not add up to `text`."""
        starts, ends = np.zeros((2, len(ids)), dtype=np.int64)
        lead = before = begin = reached = 0  # `before` characters of the window are text[:begin]
        unfinished = False  # the last character may be a part of one, which decodes to �
        for index, token in enumerate(ids):
            window = self._decode(ids[lead : index + 1])
            start, broken = reached, unfinished and text[reached : reached + 1] == "\ufffd"
            unfinished = window.endswith("\ufffd")
            reached = max(reached, begin + _common(window[before : len(window) - unfinished], text, begin))
            if broken and reached > start:  # it stays �, and this token is no part of it
                start += 1
            end = reached + ((unfinished or start == reached) and reached < len(text))
            starts[index], ends[index] = (reached, reached) if token in self._special else (start, end)
            settled = begin + len(window) - before == reached
            if settled and index + 1 - lead >= 2 * context:
                lead = index + 1 - context
                before, begin = len(self._decode(ids[lead : index + 1])), reached
        return (starts, ends) if reached + (unfinished and text.endswith("\ufffd")) == len(text) else None

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def _holder(owners: Sequence[int], piece: str) -> int:
    """The span, or 0, that a token over an edge belongs to; see `TokenOffsets.signs`."""
    visible = [owner for owner, letter in zip(owners, piece, strict=True) if not letter.isspace()]
    counts = Counter(visible or owners)
    return max(counts, key=lambda owner: (counts[owner], owner > 0))  # the first of equals


def _common(piece: str, text: str, begin: int) -> int:
    """How many characters `piece` and `text[begin:]` have in common at the start."""
    if text.startswith(piece, begin):
        return len(piece)
    pairs = enumerate(zip(piece, text[begin : begin + len(piece)], strict=False))
    return next((length for length, (here, there) in pairs if here != there), len(text) - begin)


def _start(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
