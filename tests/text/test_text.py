"""Tags, boxes and the clean payload: exact grammar, raw offsets, linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.text import (
    CHAT_TOKEN,
    MAX_PAYLOAD,
    Slice,
    boxed,
    clean,
    strip_end_tokens,
    tag,
    think_answer,
    unwrap_latex,
)

# Text that is likely to hit a parser: markers, brackets and characters that normalise in odd ways.
PIECES = [
    *("<think>", "</think>", "<answer>", "</answer>", "<answer >", "＜answer>", "<аnswer>", "\\boxed{"),
    *("\\fbox{", "\\boxed ", "{", "}", "\\{", "\\}", "\\\\", "$", "\n", " ", "x", "Paris", "\\text{", "²"),
    *("½", "1", "\u0301", "\u200b", "\u034f", "\ud800", "\ufdfa", "\x00", "\x01", "é", "中", "\u0316"),
    *("\u1100", "\u1161", "\u00a8"),
]
odd_text = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=12).map("".join)


def agrees(raw: str, found: Slice | None) -> None:
    if found is not None:
        assert 0 <= found.start <= found.end <= len(raw)
        assert raw[found.start : found.end] == found.text


# -- think_answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "prefill", "think", "answer"),
    [
        ("<think>a</think><answer>b</answer>", "", "a", "b"),
        (" \n<think>\na\n</think>\n\n<answer> b </answer>\n", "", "\na\n", " b "),
        ("<think>a < b > c</think><answer>x <b>y</b></answer>", "", "a < b > c", "x <b>y</b>"),
        ("a</think><answer>b</answer>", "<|im_start|>assistant\n<think>\n", "a", "b"),
        ("\n\n<answer>b</answer>", "<think>known</think>", "", "b"),
        ("b</answer>", "<think>known</think><answer>The ", "", "b"),
        ("<think>\u0430</think><answer>Pa\u200bris</answer>", "", "\u0430", "Pa\u200bris"),
    ],
)
def test_well_formed(raw: str, prefill: str, think: str, answer: str) -> None:
    blocks = think_answer(raw, prefill)
    assert blocks.malformed is None
    assert blocks.think is not None
    assert blocks.answer is not None
    assert (blocks.think.text, blocks.answer.text) == (think, answer)
    agrees(raw, blocks.think)
    agrees(raw, blocks.answer)


GOOD_THINK = "<think>x</think>"
MALFORMED = [
    ("Paris", "no_think"),
    ("x</think><answer>Paris</answer>", "no_think"),
    ("<think>x<answer>Paris</answer>", "think_unclosed"),
    ("<think>x</think>", "no_answer"),
    ("<think>x</think><answer>Paris", "answer_unclosed"),
    ("<think>Paris</think><answer></answer>", "empty_answer"),
    ("<think></think><answer>Paris</answer>", "empty_think"),
    ("<think> \n\t</think><answer>Paris</answer>", "empty_think"),
    (GOOD_THINK + "<answer>\u00a0\u3000</answer>", "empty_answer"),
    ("<answer>Paris</answer><think>x</think>", "tag_order"),
    ("<think>x<answer>Paris</answer></think>", "tag_order"),
    ("<think>x</think></answer>Paris<answer>", "tag_order"),
    ("<think>a<answer>Paris</answer></think><answer>I don't know</answer>", "tag_repeated"),
    ("<think><think>x</think><answer>Paris</answer>", "tag_repeated"),
    ("<think>x</think></think><answer>Paris</answer>", "tag_repeated"),
    (GOOD_THINK + "<answer>Lyon</answer><answer>Paris</answer>", "tag_repeated"),
    ("<think>x</think>y</think><answer>Paris</answer>", "tag_repeated"),
    (GOOD_THINK + "<answer>Lyon</answer>\nAssistant: <think>x</think><answer>Paris</answer>", "tag_repeated"),
    ("So: <think>x</think><answer>Paris</answer>", "text_outside"),
    (GOOD_THINK + "y<answer>Paris</answer>", "text_outside"),
    (GOOD_THINK + "<answer>Paris</answer> done", "text_outside"),
    (GOOD_THINK + "\u200b<answer>Paris</answer>", "text_outside"),
    (GOOD_THINK + "<answer>Paris</answer><|im_end|>", "text_outside"),
    (GOOD_THINK + "<ANSWER>Paris</ANSWER>", "no_answer"),
    (GOOD_THINK + '<answer id="1">Paris</answer>', "no_answer"),
    (GOOD_THINK + "<answer >Paris</answer>", "no_answer"),
    (GOOD_THINK + "<answer>Paris<answer/>", "answer_unclosed"),
    (GOOD_THINK + "<answer>Paris<\\answer>", "answer_unclosed"),
    (GOOD_THINK + "&lt;answer&gt;Paris&lt;/answer&gt;", "no_answer"),
    (GOOD_THINK + "\\boxed{Paris}", "no_answer"),
    ("<thinking>x</thinking><answer>Paris</answer>", "no_think"),
]


@pytest.mark.parametrize(("raw", "cause"), MALFORMED)
def test_malformed(raw: str, cause: str) -> None:
    blocks = think_answer(raw)
    assert (blocks.think, blocks.answer, blocks.malformed) == (None, None, cause)


def test_a_policy_that_opens_the_block_again_repeats_the_tag() -> None:
    assert think_answer("<think>a</think><answer>b</answer>", "<think>\n").malformed == "tag_repeated"


INVISIBLE = [
    *("\u00ad", "\u034f", "\u061c", "\u115f", "\u1160", "\u180e", "\u200b", "\u200c", "\u200d", "\u200e"),
    *("\u202a", "\u202e", "\u2060", "\u2063", "\u2066", "\u2069", "\u2800", "\u3164", "\ufe0f", "\ufeff"),
    *("\uffa0", "\U000e0001", "\U000e0041", "\U000e007f", "\U000e0100", "\x00", "\x7f", "\ud800"),
]


@pytest.mark.parametrize("char", INVISIBLE, ids=ascii)
def test_invisible_characters_break_tags_and_leave_answers(char: str) -> None:
    assert think_answer(f"{GOOD_THINK}<ans{char}wer>Paris</answer>").malformed == "no_answer"
    assert think_answer(f"{GOOD_THINK}<answer>{char}</answer>").malformed == "empty_answer"
    blocks = think_answer(f"{GOOD_THINK}<answer>Pa{char}ris{char}</answer>")
    assert blocks.answer is not None
    assert clean(blocks.answer.text) == "Paris"


@pytest.mark.parametrize(
    "fake", ["<аnswer>", "＜answer＞", "<аｎswer>", "‹answer›", "〈answer〉", "<ɑnswer>"]
)
def test_lookalike_tags_are_no_tags(fake: str) -> None:
    raw = f"{GOOD_THINK}{fake}Paris</answer>"
    assert think_answer(raw).malformed == "no_answer"
    assert tag(raw, "answer") is None


@given(odd_text, st.sampled_from(["", "<think>", "<think>\n", "x<think>y"]))
def test_think_answer_never_raises_and_offsets_slice_the_raw_text(raw: str, prefill: str) -> None:
    blocks = think_answer(raw, prefill)
    assert (blocks.malformed is None) == (blocks.think is not None) == (blocks.answer is not None)
    agrees(raw, blocks.think)
    agrees(raw, blocks.answer)


# -- tag ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "first", "last"),
    [
        ("", None, None),
        ("</a><a>", None, None),
        ("<a>1</a><a>2</a>", "1", "2"),
        ("<a>1</a><a>2", "1", "1"),
        ("</a><a>1</a>", "1", "1"),
        ("<a><a>1</a>", "1", "1"),
        ("<a>1<a>2</a>3</a>", "2", "2"),
        ("<A>1</A><ab>2</ab>", None, None),
    ],
)
def test_tag(raw: str, first: str | None, last: str | None) -> None:
    for which, expected in (("first", first), ("last", last)):
        found = tag(raw, "a", which)
        assert (found and found.text) == expected
        agrees(raw, found)


# -- boxed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "box"),
    [
        ("", None),
        ("\\boxed{5}", "5"),
        *[("<!-- \\boxed{5} -->", None), ("<!-- \\boxed{5}", None), ("\\boxed{1} <!-- \\boxed{5} -->", "1")],
        *[("  % \\boxed{5}\n", None), ("50% of it is \\boxed{5}", "5"), ("<!-- { --> \\boxed{5}", "5")],
        ("\\fbox{5}", "5"),
        ("\\boxed{1} and \\boxed{2}", "2"),
        ("\\boxed{\\text{New York}}", "\\text{New York}"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("\\boxed{a\\}", None),
        ("\\boxed{a\\\\}", "a\\\\"),
        ("\\boxed{1", None),
        ("\\boxed{1} \\boxed{2", None),
        ("\\boxed{1 \\boxed{2}", "2"),
        ("\\boxed{\\boxed{5} 6}", "\\boxed{5} 6"),
        ("\\boxed{1} \\boxed{2 \\boxed{3} \\fbox{4}} \\boxed{", None),
        ("\\boxed{\ud800é中}", "\ud800é中"),
    ],
)
def test_boxed(raw: str, box: str | None) -> None:
    found = boxed(raw)
    assert (found and found.text) == box
    agrees(raw, found)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("$\\text{New\\ York}$", "New York"),
        ("\\mathbf{\\text{Paris}}", "Paris"),
        ("\\(42\\)", "42"),
        ("$5", "$5"),
        ("\\$5", "$5"),
        ("50\\%", "50%"),
        ("1{,}000", "1,000"),
        ("5\\,\\text{km}", "5 km"),
        ("\\frac{1}{2}", "\\frac{1}{2}"),
        ("", ""),
    ],
)
def test_unwrap_latex(raw: str, plain: str) -> None:
    assert unwrap_latex(raw) == plain


# -- clean --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("", ""),
        (" a \n\t b\u00a0\u3000c ", "a b c"),
        ("I don’t “know” — ‘yes’…", "I don't \"know\" - 'yes'..."),
        ("don´t", "don't"),
        ("1939–1945", "1939-1945"),
        ("−5", "-5"),
        ("ｐａｒｉｓ", "paris"),
        ("e\u0301", "é"),
        ("10²", "10^2"),
        ("H₂O", "H2O"),
        ("2½", "2 1/2"),
        ("Pa\x00ris\x1b", "Paris"),
        ("a\ud800b", "ab"),
        ("＜answer＞", "<answer>"),
        ("\u200b\ufeff", ""),
        ("a" + "\u0301" * 100, "á" + "\u0301" * 29),
    ],
)
def test_clean(raw: str, expected: str) -> None:
    assert clean(raw) == expected


@pytest.mark.parametrize(
    "bomb",
    ["\u0316\u0300", "\ufdfa", "\u200b", " ", "½", "각"],
    ids=ascii,
)
def test_clean_is_capped(bomb: str) -> None:
    assert len(clean(bomb * (1 << 19))) <= MAX_PAYLOAD


def test_clean_is_idempotent_on_every_character() -> None:
    chars = [*map(chr, range(0x32000)), *map(chr, range(0xE0000, 0xE1000))]  # beyond, none is assigned
    for start in range(0, len(chars), 4096):
        once = clean(" ".join(chars[start : start + 4096]))
        assert clean(once) == once


# Special tokens of chat templates

END_TOKENS = [
    *("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "<|return|>"),
    *("<|call|>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>", "<end_of_turn>", "</s>", "<eos>"),
    *("<pad><pad>", "[EOS]", "<|separator|>", "<extra_id_1>", "<seed:eos>", "<|message_sep|>", "<unused1>"),
    *("<reserved_106>", "<_end>", "[e~[", "<|user|>", "<|observation|>", "<|reserved_special_token_12|>"),
    *("<|unused_7|>", " <|im_end|>\n", "<|im_end|><|endoftext|>", "\n</s></s>"),
]
WORDS = [
    *("<|Paris|>", "<|in_1867|>", "<b>Paris</b>", "a <| b |>", "[1]", "[Paris]", "<end of story>", "<extra>"),
    *("<unused>", "<seed:oil>", "[e]", "x|>", "<|>"),
]


@pytest.mark.parametrize("token", END_TOKENS)
def test_an_end_token_is_cut_at_the_end_and_nowhere_else(token: str) -> None:
    assert strip_end_tokens(f"War{token}saw.{token}") == f"War{token}saw."
    assert CHAT_TOKEN.sub("", token).strip() == ""


def test_words_are_no_tokens() -> None:
    for word in WORDS:
        assert (strip_end_tokens(f"Warsaw {word} "), CHAT_TOKEN.sub("", word)) == (f"Warsaw {word} ", word)
