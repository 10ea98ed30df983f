"""From spans of characters to signs of tokens: which token wrote what the reward praised or blamed.

A reward speaks of characters, the trainer of the tokens that were generated.  The same text has many
tokenisations, so it is never tokenised again; what each token adds to the text is read off the tokenizer.
Whatever the way, the pieces must add up to the very text that the reward saw.

Only numpy is needed here; the sign rule itself is `factrl.train.advantages.flip_advantages`.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factrl.errors import ModelError
from factrl.types import Span

CONTEXT = 32  # tokens decoded before the next one, where decoding one depends on those before it
BROKEN = 0xDC00  # surrogates stand for bytes that are no UTF-8; real text has none
BYTES = "factrl-broken-bytes"  # the codec error handler below

Offsets = tuple[np.ndarray, np.ndarray]


class TokenOffsets:
    """Finds the characters that each generated token wrote.

    Args:
        tokenizer: of transformers; a slow one works, at the speed of its `decode`.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = _special_ids(tokenizer)
        steps = _decoder_steps(tokenizer)
        self._pieces = None if steps is None else _Pieces(tokenizer, steps, self._special)

    def signs(self, ids: Sequence[int], text: str, spans: Sequence[Span]) -> np.ndarray:
        """The sign of the span that each token belongs to, 0 outside of spans.

        A token over an edge belongs where most of its visible characters are; of equals, to a span before
        none and to the first before the second.  So in `>The` the word decides, and a space in front never
        does.  Special tokens and padding have no characters and get 0.  Where spans overlap, the later one
        in the sequence counts.

        Args:
            ids: the T generated tokens.
            text: the completion as the reward saw it: decoded without special tokens.
            spans: in characters of `text`.

        Returns:
            (T,) of -1, 0 and 1.

        Raises:
            ModelError: `text` is not what `ids` decode to.
        """
        starts, ends = self.offsets(ids, text)
        owner = np.zeros(len(text) + 1, dtype=np.int32)  # number of the span that holds a character
        for number, span in enumerate(spans, start=1):
            owner[span.start : span.end] = number
        sign_of = np.array([0, *(span.sign for span in spans)], dtype=np.int8)
        edges = np.concatenate(([0], np.cumsum(owner[1:] != owner[:-1])))
        written = ends > starts
        owners = np.where(written, owner[starts], 0)
        for token in np.flatnonzero(written & (edges[ends - 1] != edges[starts])):
            here = slice(starts[token], ends[token])
            owners[token] = _holder(owner[here].tolist(), text[here])
        return sign_of[owners]

    def offsets(self, ids: Sequence[int], text: str) -> Offsets:
        """(T,) first character and (T,) end of what each token wrote, both equal for special tokens.

        Tokens that hold parts of one character all have that character; one that adds nothing else, such as a
        first space that the decoder drops, has the next character.

        Raises:
            ModelError: `text` is not what `ids` decode to.
        """
        found = self._from_pieces(ids, text)
        if found is None:
            found = self._from_decoding(ids, text, CONTEXT)
        if found is None:
            found = self._from_decoding(ids, text, len(ids))
        if found is None:
            raise ModelError(
                f"step-wise credit: tokens and text of a completion differ: {type(self._tokenizer).__name__} "
                f"decodes the tokens to {_start(self._decode(ids))}, the reward saw {_start(text)}; "
                "use a reward without spans or another tokenizer"
            )
        return found

    def _from_pieces(self, ids: Sequence[int], text: str) -> Offsets | None:
        """From what each token adds on its own; None unless that adds up to `text`."""
        if self._pieces is None:
            return None
        pieces = [self._pieces[token] for token in ids]
        lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        characters = _character_of_byte(b"".join(pieces), text)
        if characters is None:
            return None
        ends = np.cumsum(lengths)
        written = lengths > 0
        after = np.concatenate(([0], characters + 1)).clip(min=0)
        end = after[ends]
        start = np.where(written, np.concatenate((characters, [0])).clip(min=0)[ends - lengths], end)
        return start, end + (written & (start == end) & (end < len(text)))

    def _from_decoding(self, ids: Sequence[int], text: str, context: int) -> Offsets | None:
        """From how the decoded text grows by each token, with `context` tokens or more before it."""
        ends = np.zeros(len(ids), dtype=np.int64)
        lead = known = begin = reached = 0  # `known` characters of the window are text[:begin]
        for index in range(len(ids)):
            window = self._decode(ids[lead : index + 1])
            matched = _common(window[known:], text, begin)
            ends[index] = reached = max(reached, begin + matched)
            settled = begin + len(window) - known == reached
            if settled and index + 1 - lead >= 2 * context:
                lead = index + 1 - context
                known, begin = len(self._decode(ids[lead : index + 1])), reached
        if reached != len(text):
            return None
        starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
        special = np.fromiter((token in self._special for token in ids), dtype=bool, count=len(ids))
        waiting = (starts == ends) & ~special & (starts < len(text))
        return np.where(special, ends, starts), ends + waiting

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


class _Pieces(dict[int, bytes]):
    """The bytes that a token adds to the text, worked out when first asked for.

    Args:
        steps: of the tokenizer's decoder, see `_decoder_steps`.
        special: tokens that are left out of the text.
    """

    def __init__(self, tokenizer: Any, steps: Sequence[Mapping[str, Any]], special: frozenset[int]) -> None:
        super().__init__()
        self._name = tokenizer.backend_tokenizer.id_to_token
        self._special = special
        kinds = [step["type"] for step in steps]
        self._byte_level = _byte_letters() if "ByteLevel" in kinds else None
        self._byte_tokens = "ByteFallback" in kinds
        self._replace = [
            (step["pattern"]["String"], step["content"]) for step in steps if step["type"] == "Replace"
        ] + [(step["replacement"], " ") for step in steps if step["type"] == "Metaspace"]

    def __missing__(self, token: int) -> bytes:
        name = None if token in self._special else self._name(token)
        self[token] = piece = b"" if name is None else self._bytes(name)
        return piece

    def _bytes(self, name: str) -> bytes:
        if self._byte_level is not None:
            if all(letter in self._byte_level for letter in name):
                return bytes(self._byte_level[letter] for letter in name)
            return name.encode()  # an added token, written out
        if self._byte_tokens and len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            return bytes.fromhex(name[3:5])
        for pattern, content in self._replace:
            name = name.replace(pattern, content)
        return name.encode()


def _decoder_steps(tokenizer: Any) -> list[dict[str, Any]] | None:
    """The decoder's parts; None when what a token adds cannot be read off it alone."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None:
        return None
    described = json.loads(decoder.__getstate__())
    steps = described["decoders"] if described["type"] == "Sequence" else [described]
    for step in steps:
        if step["type"] not in ("ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"):
            return None
        if step["type"] == "Replace" and "String" not in step["pattern"]:
            return None
    return steps


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Tokens that `decode(…, skip_special_tokens=True)` leaves out."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return frozenset(tokenizer.all_special_ids) | {index for index, token in added.items() if token.special}


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: visible Latin-1 stands for itself, the rest is counted on from 256."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


def _character_of_byte(joined: bytes, text: str) -> np.ndarray | None:
    """(bytes,) which character of `text` each byte is a part of; None when they do not spell `text`.

    Some decoders drop a space at the start, which then is character -1.
    """
    decoded = joined.decode("utf-8", BYTES)
    codes = np.frombuffer(decoded.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)
    lengths = 1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF)
    broken = codes >> 8 == BROKEN >> 8
    if broken.any():
        lengths[broken] = codes[broken] - BROKEN
        decoded = joined.decode("utf-8", "replace")
    dropped = len(decoded) - len(text)
    if decoded != " " * dropped + text or dropped > 1:
        return None
    return np.repeat(np.arange(len(codes)), lengths) - dropped


def _note_length(error: UnicodeError) -> tuple[str, int]:
    """Bytes that are no UTF-8 become one character that says how many they were."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return chr(BROKEN + error.end - error.start), error.end


codecs.register_error(BYTES, _note_length)


def _holder(owners: Sequence[int], piece: str) -> int:
    """The span, or 0, that a token over an edge belongs to; see `TokenOffsets.signs`."""
    visible = [owner for owner, letter in zip(owners, piece, strict=True) if not letter.isspace()]
    counts = Counter(visible or owners)
    return max(counts, key=lambda owner: (counts[owner], owner > 0))  # the first of equals


def _common(written: str, text: str, begin: int) -> int:
    """How many characters `written` and `text[begin:]` have in common at the start."""
    if text.startswith(written, begin):
        return len(written)
    pairs = enumerate(zip(written, text[begin : begin + len(written)], strict=False))
    return next((length for length, (here, there) in pairs if here != there), len(text) - begin)


def _start(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
