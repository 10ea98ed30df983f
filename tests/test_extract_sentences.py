"""Claims without a model: a sentence is a claim in its own words, in its own place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factrl.text.sentences import Sentence
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.claims.marks import content_words
from factrl.verifier.claims.whole import shown


def said(text: str) -> list[str]:
    return [claim.text for claim in SentenceClaims()(text)]


@pytest.mark.parametrize(
    ("sentence", "claim"),
    [
        ("Some people say that the Moon is made of cheese.", "The Moon is made of cheese."),
        ("I think Paris is the capital of France.", "Paris is the capital of France."),
        ("Reportedly, the king died in 1900.", "The king died in 1900."),
        ("Note that Lima is the capital of Peru.", "Lima is the capital of Peru."),
        ("It is known that water boils at 100 degrees.", "Water boils at 100 degrees."),
        ("According to NASA, the comet is old.", ""),
        ("Some people wrongly believe that the Earth is flat.", ""),
        ("Some say it is flat, but it is round.", ""),
        ("If he had lived, he would have won and become king.", ""),
        ("居里夫人出生于华沙，死于法国。", ""),
    ],
)
def test_who_says_it_is_taken_off(sentence: str, claim: str) -> None:
    """Else "some people say" would make any falsehood true; a named source and a denial stay."""
    assert said(sentence) == [claim or sentence]


def test_a_claim_keeps_its_place_and_loses_its_markup() -> None:
    text = "Curie was **born** in Warsaw.[1] She won. What a life! Some people say that she was tall."
    claims = SentenceClaims()(text, "Who was Curie?")
    assert [(claim.text, claim.skip) for claim in claims] == [
        ("Curie was born in Warsaw.", None),
        ("She won.", None),
        ("What a life!", None),
        ("She was tall.", None),
    ]
    assert text[claims[0].start : claims[0].end] == "Curie was **born** in Warsaw.[1]"
    assert text[claims[3].start : claims[3].end] == "she was tall."


def test_an_item_gets_the_line_that_introduces_it() -> None:
    text = "Her best books are:\n\n- **Emma** (1815)\n- *Persuasion* [2]\n- Emma was reviewed by Scott."
    claims = SentenceClaims()(text)
    assert [(claim.text, claim.skip) for claim in claims[:3]] == [
        ("Her best books are:", "unverifiable"),
        ("Her best books are: Emma (1815)", None),
        ("Her best books are: Persuasion", None),
    ]


def test_a_row_is_read_with_its_headings() -> None:
    text = "| Year | Prize |\n|---|---|\n| 1903 | Physics |\n| 1911 | Chemistry |"
    assert said(text) == ["Year: 1903; Prize: Physics", "Year: 1911; Prize: Chemistry"]


def test_code_and_headings_claim_nothing_but_what_hides_in_code_is_read() -> None:
    assert said("# Life\n\n```python\nborn = {'Rome': 1900}\n```\n") == []
    hidden = ["Paris is the capital of Peru.", "Lima is in France."]
    assert said("```python\n" + "\n".join(hidden) + "\n```") == hidden
    assert said(f"```\n{hidden[0]}") == hidden[:1]


def test_nothing_said_is_no_claim() -> None:
    texts = ["", " ", "\n\n", "...", "---", "😀", "```\nx = 1\n```"]
    assert {text: said(text) for text in texts} == {text: [] for text in texts}


def test_a_long_text_loses_nothing() -> None:
    claims = SentenceClaims()("Marie Curie was born in Warsaw in 1868 and died in Passy. " * 1_100)
    assert [claim.skip for claim in claims] == [None, *["repeat"] * 1_099]
    assert claims[-1].sentence == 1_099


WORDS = """
he it Marie Warsaw a the and but who that was born died in 1868 his not if said Some people say 's also of
, . ; : ( ) " “ ” - * | # 中 。 é ́ 😀
""".split()  # noqa: SIM905  (fifty quoted words would be no clearer)
TEXTS = st.one_of(
    st.text(max_size=200), st.lists(st.sampled_from([*WORDS, "\n", "\u200b"]), max_size=60).map(" ".join)
)


@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_every_claim_points_to_its_words(text: str) -> None:
    last = -1
    for claim in SentenceClaims()(text):
        assert 0 <= claim.start < claim.end <= len(text)
        assert claim.text.strip()
        assert claim.sentence >= last
        last = claim.sentence
        words = content_words(claim.text)
        # As a reader sees it: a mark or a control between two letters joins them.
        there = content_words(shown(text, Sentence(claim.start, claim.end))[0])
        assert not words or not there or words & there
