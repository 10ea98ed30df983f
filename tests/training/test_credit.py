"""Which tokens wrote which characters: exact, against the offsets that tokenizers give."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from factrl.errors import ModelError
from factrl.train.advantages import flip_advantages
from factrl.train.credit import TokenOffsets
from factrl.types import Span

TEXTS = 500
SPECIAL = ["<pad>", "<s>", "<|end|>"]
WRITTEN = """
The A Curie was born in Warsaw and won two Nobel prizes , which is not naïve ; don't say 3,141.59 ! café
居里夫人 出生于 华沙 。 她 获得 了 诺贝尔奖 ， 東京 ひらがな 한국어 Ünïcödé e\u0301 ½ → “quoted” (see [1])
😀 👨\u200d👩\u200d👧 👍🏽 🇵🇱 ✅ **bold** `x = 1` $\\frac{1}{2}$ https://a.b/c >The <b>x</b> <think> don’t 𝛼
"""
WORDS = WRITTEN.split()
GAPS = (" ", " ", " ", "  ", "\n", "\n\n", "\n- ", "\n\n1. ", "\n\t* ", "", "\r\n", "\u3000")

Texts = list[tuple[str, list[Span]]]


def random_texts(count: int, seed: int) -> Texts:
    """Texts of one to five sentences, whose spans leave out what is between them; some have no span."""
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        text, spans = draw.choice(("", "", "\n", "- ", "</think>\n\n")), []
        for _ in range(draw.randint(1, 5)):
            glue = draw.choice((" ", " ", ""))
            sentence = glue.join(draw.choices(WORDS, k=draw.randint(1, 9))) + draw.choice(
                (".", "。", "!", "")
            )
            if draw.random() < 0.9:
                spans.append(Span(len(text), len(text) + len(sentence), draw.choice((-1, 0, 1))))
            text += sentence + draw.choice(GAPS)
        texts.append((text, spans))
    return texts


def byte_level(texts: Sequence[str], vocabulary: int = 1500) -> Tokenizer:
    """As GPT-2, Llama 3, Qwen and SmolLM2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=letters, show_progress=False)
    )
    return tokenizer


def byte_fallback(texts: Sequence[str], *, strip: bool) -> Tokenizer:
    """As Llama 2, Mistral and Gemma: spaces are ▁, letters that are not in the vocabulary are bytes."""
    learned = Tokenizer(models.BPE())
    learned.normalizer = normalizers.Replace(" ", "▁")  # pyright: ignore[reportAttributeAccessIssue]
    common = Counter(letter for text in texts for letter in text).most_common(60)
    ascii_only = ["".join(c for c in text if c in dict(common)) for text in texts]
    learned.train_from_iterator(ascii_only, trainers.BpeTrainer(vocab_size=400, show_progress=False))
    described = learned.to_str()
    model = json.loads(described)["model"]
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(
        models.BPE(
            {name: number for number, name in enumerate(names)},
            merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    first = [normalizers.Prepend("▁")] if strip else []
    tokenizer.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])  # pyright: ignore
    last = [decoders.Strip(" ", 1, 0)] if strip else []
    tokenizer.decoder = decoders.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )
    return tokenizer


def unigram(texts: Sequence[str]) -> Tokenizer:
    """As XGLM: sentencepiece's Unigram with ▁ before every word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        texts,
        trainers.UnigramTrainer(
            vocab_size=800, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"]
        ),
    )
    return tokenizer


def word_piece(texts: Sequence[str]) -> Tokenizer:
    """As BERT, whose decoder takes spaces away again: what one token adds depends on the others."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=800, show_progress=False, special_tokens=["[UNK]"])
    )
    return tokenizer


def words(texts: Sequence[str]) -> Tokenizer:
    """No decoder at all: tokens are joined by spaces."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        texts, trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]"])
    )
    return tokenizer


KINDS: dict[str, Callable[[Sequence[str]], Tokenizer]] = {
    "byte_level": byte_level,
    "byte_fallback": lambda texts: byte_fallback(texts, strip=False),
    "byte_fallback_strip": lambda texts: byte_fallback(texts, strip=True),
    "unigram": unigram,
    "word_piece": word_piece,
    "words": words,
}


def wrap(tokenizer: Tokenizer, **options: Any) -> Any:
    """For transformers, with special tokens and one added token that is not special."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        **options,
    )
    fast.add_tokens(["<think>", "an added token"])
    return fast


@pytest.fixture(scope="module")
def wrapped() -> dict[str, Any]:
    texts = [text for text, _ in random_texts(400, seed=7)]
    return {kind: wrap(make(texts)) for kind, make in KINDS.items()}


@pytest.fixture(scope="module")
def smol() -> Any:
    """SmolLM2's own tokenizer where it was downloaded, else one of its kind."""
    folder = Path(os.environ.get("FACTRL_CACHE", "/nonexistent")) / "SmolLM2-135M-Instruct"
    if (folder / "tokenizer.json").is_file():
        return AutoTokenizer.from_pretrained(folder)
    return wrap(byte_level([text for text, _ in random_texts(1000, seed=8)], 4000))


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """What TRL hands to rewards."""
    return tokenizer.batch_decode([list(ids)], skip_special_tokens=True)[0]


# --- many texts ---------------------------------------------------------------------------------


def held(text: str, start: int, end: int, owners: Sequence[int]) -> int:
    """The rule of `TokenOffsets.signs`, written out: number of the span of text[start:end], 0 for none."""
    inside = [owners[i] for i in range(start, end) if not text[i].isspace()] or owners[start:end]
    best = max(map(inside.count, inside), default=0)
    leaders = [owner for owner in inside if inside.count(owner) == best]
    return next((owner for owner in leaders if owner), 0)


def test_many_texts(smol: Any) -> None:
    """Against the offsets that the tokenizer gave when it made the tokens.

    A third of the texts has an unusual tokenisation (BPE dropout) and a third is cut off after some token, as
    what a policy writes is.
    """
    texts = random_texts(TEXTS, seed=1)
    backend, offsets = smol.backend_tokenizer, TokenOffsets(smol)
    usual = backend.encode_batch([text for text, _ in texts], add_special_tokens=False)
    backend.model.dropout = 0.3
    unusual = backend.encode_batch([text for text, _ in texts], add_special_tokens=False)
    backend.model.dropout = None
    draw = random.Random(2)
    over_edges = 0
    for number, (whole, all_spans) in enumerate(texts):
        encoded = (unusual if number % 3 == 1 else usual)[number]
        keep = draw.randint(1, len(encoded.ids)) if number % 3 == 2 else len(encoded.ids)
        ids, where = encoded.ids[:keep], encoded.offsets[:keep]
        text = decode(smol, ids)
        assert text == whole or number % 3 == 2
        spans = [Span(s.start, min(s.end, len(text)), s.sign) for s in all_spans if s.start < len(text)]
        owners = [0] * len(text)
        for index, span in enumerate(spans, start=1):
            owners[span.start : span.end] = [index] * (span.end - span.start)
        signs = offsets.signs(ids, text, spans).tolist()
        for position, (start, end) in enumerate(where):
            end = min(end, len(text))
            at = set(owners[start:end])
            owner = at.pop() if len(at) == 1 else held(text, start, end, owners)
            over_edges += bool(at)
            assert signs[position] == (spans[owner - 1].sign if owner else 0), (text, start, end)
    assert over_edges > TEXTS / 2  # spaces before a sentence's first word, and more


# --- every kind of tokenizer ----------------------------------------------------------------------------


def random_ids(tokenizer: Any, draw: random.Random) -> list[int]:
    """Half of them what no text is tokenised to: any token after any other, special and broken ones too."""
    size = len(tokenizer)
    ids = [draw.randrange(size) for _ in range(draw.randint(1, 60))]
    if draw.random() < 0.5:
        [(text, _)] = random_texts(1, seed=draw.randrange(10**9))
        ids = tokenizer(text, add_special_tokens=False)["input_ids"] + draw.choice(([], ids[:3]))
    special = draw.choices(tokenizer.all_special_ids, k=2)
    return [*ids, *special] if draw.random() < 0.5 else [*special[:1], *ids]


@pytest.mark.parametrize("kind", KINDS)
def test_every_boundary_is_where_decoding_puts_it(wrapped: dict[str, Any], kind: str) -> None:
    """Whenever the first n tokens decode to a start of the text, token n ends there."""
    tokenizer, draw = wrapped[kind], random.Random(3)
    offsets = TokenOffsets(tokenizer)
    checked = 0
    for _ in range(150):
        ids = random_ids(tokenizer, draw)
        text = decode(tokenizer, ids)
        starts, ends = offsets.offsets(ids, text)
        assert ends.max(initial=0) == len(text)
        assert (starts <= ends).all()
        assert (np.diff(ends) >= -1).all()  # a token without text of its own has the next character
        for index, token in enumerate(ids):
            assert token not in tokenizer.all_special_ids or starts[index] == ends[index]
            prefix = decode(tokenizer, ids[: index + 1])
            if (
                text.startswith(prefix)
                and not prefix.endswith("\ufffd")
                and token not in tokenizer.all_special_ids
            ):
                checked += 1
                assert ends[index] in (len(prefix), len(prefix) + (starts[index] == len(prefix)))
    assert checked > 1000


def test_special_tokens_and_padding_have_no_characters(smol: Any) -> None:
    ids = smol("It is Rome.", add_special_tokens=False)["input_ids"]
    end = smol.eos_token_id
    padded = [end, *ids, end, smol.pad_token_id, smol.pad_token_id]
    signs = TokenOffsets(smol).signs(padded, "It is Rome.", [Span(0, 11, -1)])
    assert signs.tolist() == [0, *([-1] * len(ids)), 0, 0, 0]


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback", "byte_fallback_strip"])
def test_cut_off_in_the_middle_of_a_character(wrapped: dict[str, Any], kind: str) -> None:
    tokenizer = wrapped[kind]
    offsets = TokenOffsets(tokenizer)
    whole = "So. 🦩🦩"
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    cuts = 0
    for keep in range(2, len(ids) + 1):
        text = decode(tokenizer, ids[:keep])
        cuts += text.endswith("\ufffd")
        spans = [Span(0, min(3, len(text)), 1), *([Span(4, len(text), -1)] if len(text) > 4 else [])]
        signs = offsets.signs(ids[:keep], text, spans).tolist()
        full = offsets.signs(ids, whole, [Span(0, 3, 1), Span(4, 6, -1)]).tolist()
        assert signs == full[:keep]
    assert cuts > 2


# --- tokens over an edge ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start", "end", "mine"),
    [
        (" Yes", 1, 4, True),  # the space in front is no part of the sentence
        (" Yes", 0, 1, False),
        (">The", 1, 4, True),  # the word decides
        (">The", 0, 1, False),
        (".\n\n", 0, 1, True),  # the newlines behind are no part of it
        ("\n\n", 0, 1, True),  # nothing visible: a span before none
        (".A", 0, 1, True),
        (".A", 1, 2, True),
        ("ab", 2, 2, False),
        ("ab", 0, 2, True),
    ],
)
def test_a_token_over_an_edge(text: str, start: int, end: int, mine: bool) -> None:
    tokenizer = wrap(byte_level(["x"], 257))
    tokenizer.add_tokens([text])
    ids = tokenizer.convert_tokens_to_ids(["x", text, "x"])
    spans = [Span(1 + start, 1 + end, -1)]
    signs = TokenOffsets(tokenizer).signs(ids, f"x{text}x", spans)
    assert signs.tolist() == [0, -1 if mine else 0, 0]


def test_text_that_the_tokens_do_not_spell(smol: Any) -> None:
    ids = smol("It is Rome.", add_special_tokens=False)["input_ids"]
    with pytest.raises(ModelError, match=r"'It is Rome\.'.*'It is Oslo\.'"):
        TokenOffsets(smol).signs(ids, "It is Oslo.", [Span(0, 2, 1)])


# --- time --------------------------------------------------------------------------------------------------


def test_work_is_linear(wrapped: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the tokens that are decoded, twice as many for a text that is twice as long."""
    tokenizer, decoded = wrapped["byte_level"], list[int]()
    offsets, plain = TokenOffsets(tokenizer), TokenOffsets._decode

    def counted(self: TokenOffsets, ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return plain(self, ids)

    monkeypatch.setattr(TokenOffsets, "_decode", counted)
    ids = tokenizer(" ".join(text for text, _ in random_texts(100, seed=6)), add_special_tokens=False)
    work = []
    for length in (512, 1024):
        decoded.clear()
        own = ids["input_ids"][:length]
        assert len(own) == length
        offsets.offsets(own, decode(tokenizer, own))
        work.append(sum(decoded))
    assert work[1] < 2.1 * work[0]


# --- the sign rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advantage", "sign", "expected"),
    [
        (2.0, 1, 2.0),
        (2.0, 0, 2.0),
        (2.0, -1, -2.0),
        (0.0, 1, 0.0),
        (0.0, 0, 0.0),
        (0.0, -1, 0.0),
        (-2.0, 1, 2.0),
        (-2.0, 0, -2.0),
        (-2.0, -1, -2.0),
    ],
)
def test_fspo_equation_11(advantage: float, sign: int, expected: float) -> None:
    found = flip_advantages(torch.tensor([advantage, 5.0]), torch.tensor([[0, sign], [0, 0]]))
    assert found.tolist() == [[advantage, expected], [5.0, 5.0]]
