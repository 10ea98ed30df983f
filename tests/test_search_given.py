"""Words, evidence that was handed in, and the pool of a group."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factrl.types import Passage
from factrl.verifier.search import EvidencePool, Given
from factrl.verifier.search.given import Ranking
from factrl.verifier.search.words import title_key, words

CURIE = Passage("Marie Curie was born in Warsaw in 1867.", title="Marie Curie")
PIERRE = Passage("Pierre Curie was born in Paris in 1859.", title="Pierre Curie")
ULM = Passage("Albert Einstein was born in Ulm.", title="Albert Einstein")

# Words


@given(st.text())
def test_composed_and_decomposed_are_the_same_words(text: str) -> None:
    assert words(unicodedata.normalize("NFC", text)) == words(unicodedata.normalize("NFD", text))


def test_words() -> None:
    text = (
        "Who was born in WARSAW? École Ångström e\u0301cole 3.14 1,000 居里夫人 于1867年 ﬁne １９ "
        + "x" * 999
    )
    found = "born warsaw ecole angstrom ecole 3 14 1 000 居里 里夫 夫人 于 1867 年 fine 19"
    assert " ".join(words(text)) == f"{found} {'x' * 64}"
    assert words("the of in") == []
    assert title_key(" Marie_Curie ") == title_key("marie  curie")
    assert title_key("US", exact=True) != title_key("Us", exact=True)


# Ranking


def test_bm25_by_hand() -> None:
    ranking = Ranking()
    for text in ("cat dog", "cat cat mouse bird", "fish"):
        ranking.add(text)
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 7 / 3
    expected = {
        0: idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / mean)),
        1: idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 4 / mean)),
    }
    assert ranking.scores("the cat") == pytest.approx(expected)
    assert ranking.scores("whale") == {}
    assert Ranking().scores("cat") == {}


def test_given_evidence_is_ranked_and_never_dropped() -> None:
    found = Given([ULM, PIERRE, CURIE]).search("Marie Curie was born in 1868.", k=3)
    assert [passage.title for passage in found] == ["Marie Curie", "Pierre Curie", "Albert Einstein"]
    scores = [passage.score or 0.0 for passage in found]
    assert scores == sorted(scores, reverse=True)
    assert [p.text for p in Given(["a text"]).search("nothing shared")] == ["a text"]
    assert Given([]).search("x") == []


def test_a_topic_narrows_given_evidence_where_it_can() -> None:
    evidence = Given([ULM, PIERRE, CURIE])
    assert [p.title for p in evidence.search("born", topic="marie_curie")] == ["Marie Curie"]
    assert len(evidence.search("born", topic="Pierre Curie;Marie Curie")) == 2
    assert len(evidence.search("born", topic="Nobody")) == 3


# The pool


def pool_of(*results: list[Passage]) -> EvidencePool:
    pool = EvidencePool()
    for found in results:
        pool.add(found)
    return pool


def test_a_pool_holds_each_passage_once() -> None:
    pool = pool_of(
        [CURIE, ULM], [Passage(f"  {CURIE.text}\n", source="elsewhere")], [], [PIERRE, Passage("  ")]
    )
    assert len(pool.top("born", k=9)) == 3
    assert [passage.title for passage in pool.top("Where was Marie Curie born?", k=2)] == [
        "Marie Curie",
        "Pierre Curie",
    ]


def test_a_pool_says_when_it_has_nothing() -> None:
    pool = pool_of([CURIE, ULM])
    assert pool.covers("Marie Curie was born in Warsaw in 1868.")  # the year is wrong, the passage right
    assert not pool.covers("Marie Curie discovered radium and polonium in Paris.")
    assert not pool.covers("Whales are mammals.")
    assert pool.top("Whales are mammals.") == []
    assert not pool_of().covers("Whales")
    assert pool_of().top("Whales") == []
    assert pool_of().covers("1 2 3")


@pytest.mark.security("S24")
@settings(max_examples=50)
@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=60))
def test_any_text(texts: list[str], claim: str) -> None:
    pool = pool_of([Passage(text) for text in texts])
    assert pool.covers(claim) in (True, False)
    assert {p.text for p in pool.top(claim)} <= {*texts}
    assert len(Given(texts).search(claim, k=3)) == min(3, len(texts))
