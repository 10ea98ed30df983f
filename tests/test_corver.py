"""CorVer's pairs and counts: which names of a sentence are looked up, and what an index says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.errors import ConfigError
from factrl.papers import load_reward
from factrl.papers.corver import pair_of
from factrl.rewards.resources import Supplier, supply
from factrl.runs.settings import JudgeSettings, VerifierSettings
from factrl.types import Completion, Example
from factrl.verifier.search.index import Index, _broken

CURIE = Example("In which city was Marie Curie born?", ("Warsaw",))
TEXT = "Marie Curie was born in Warsaw. Pierre Curie worked in Paris."


@pytest.mark.parametrize(
    ("sentence", "pair"),
    [
        ("Marie Curie was born in Warsaw, Poland.", ("marie curie", "warsaw")),
        ("However, Curie taught at the University of Oxford.", ("curie", "university oxford")),
        ("George W. Bush left office in 2009.", ("george w bush", "2009")),
        ("Marie Curie discovered radium.", ("marie curie", "radium")),
        ("Curie, Marie Curie, left Poland.", ("curie", "poland")),
        ("Curie met Curie.", None),  # one word stands with itself in every passage that has it
        ("He was born in Paris and died in Rome.", None),
        ("the Polish capital", None),  # an answer, no sentence
        ("Warsaw.", None),
        ("", None),
    ],
)
def test_the_names_that_are_looked_up(sentence: str, pair: tuple[str, str] | None) -> None:
    assert pair_of(sentence) == pair


@pytest.fixture
def index(tmp_path: Path) -> Index:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("Curie (1867) left Warsaw.")
    return Index.build(tmp_path / "kb", [tmp_path / "a.txt", tmp_path / "b.txt"])


def test_an_index_counts_passages_that_hold_all_words(index: Index) -> None:
    pairs = [
        ("Curie", "Warsaw"),
        ("Marie Curie", "WARSAW"),
        ("Curie", "1867"),
        ("Curie", "Oslo"),
        ("the", ""),
    ]
    assert [index.together(*pair) for pair in pairs] == [2, 1, 1, 0, 0]


def test_counts_are_of_the_index_that_is_named_and_one_that_breaks_masks(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Supplier(None, JudgeSettings(), VerifierSettings(index=str(index.path), cache=False))
    reward = supply(load_reward("corver:corver"), supplier=told)
    said = Completion("<think>Marie Curie came from Warsaw.</think><answer>Warsaw</answer>")
    result = reward(CURIE, said)
    assert (result.facts["looked_up"], [span.sign for span in result.spans]) == (1, [-1, 0])

    def breaks(self: Index, *names: str) -> int:
        raise _broken(self.path, "is damaged")

    monkeypatch.setattr(Index, "together", breaks)
    broken = supply(load_reward("corver"), supplier=told)(CURIE, said)
    assert (broken.state, broken.value, broken.cause) == ("masked", None, "search_failed")
    with pytest.raises(ConfigError, match=r"give verifier\.index=FOLDER"):
        supply(load_reward("corver"))
