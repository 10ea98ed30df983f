"""What a reward that reads a confidence, or a threshold, pays best: the truth about oneself.

Every variant of every paper is tried, so a new file is looked at without a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from factrl import Completion
from factrl.errors import ConfigError
from factrl.papers import load_paper, paper_names
from factrl.stress import Setup, oracle_setup
from factrl.stress.texts import example_of, in_blocks, prompts

PAGES = Path(__file__).parents[2] / "docs" / "papers"
GRID = [n / 20 for n in range(21)]
CURIE = prompts()["curie"]
RIGHT, WRONG, DECLINED = CURIE.gold, CURIE.wrong[0], "I don't know"


def setups(name: str) -> Iterator[Setup]:
    """The variants of a paper for whose judges there are oracles."""
    for variant in load_paper(name).variants:
        with suppress(ConfigError):
            yield oracle_setup(f"{name}:{variant}")


def pays(setup: Setup, answer: str, sure: float = 0.9, t: float = 0.5) -> float | None:
    text = in_blocks(setup.form, f"{CURIE.safe} {CURIE.true[0]}", answer)
    stated = f"<confidence>{sure:.2f}</confidence>"
    text = text.partition("<confidence>")[0] + stated if setup.form == "confidence" else f"{text} {stated}"
    example = replace(example_of(CURIE), meta={"threshold": t})
    return setup.reward(example, Completion(text)).value


def best(p: float, right: Callable[[float], float], wrong: Callable[[float], float]) -> float:
    """The confidence with the highest expected reward for a policy that is right with probability p."""
    return max(GRID, key=lambda sure: p * right(sure) + (1 - p) * wrong(sure))


def read(name: str) -> dict[str, bool]:
    """Variants of a paper that read a confidence -> whether saying p is best for every p."""
    found = {}
    for one in setups(name):
        right, wrong = ({q: pays(one, answer, q) or 0.0 for q in GRID} for answer in (RIGHT, WRONG))
        if len({*right.values(), *wrong.values()}) > 4:
            found[one.spec] = all(best(p, right.__getitem__, wrong.__getitem__) == p for p in GRID)
    return found


@pytest.mark.parametrize("name", paper_names())
def test_saying_how_sure_one_is_pays_best_or_the_page_says_not(name: str) -> None:
    improper = [spec for spec, proper in read(name).items() if not proper]
    assert improper == [] or "not proper" in (PAGES / f"{name}.md").read_text("utf-8")


def test_a_reward_that_reads_a_confidence_is_found_and_an_improper_one_is_not_proper() -> None:
    assert read("rlcr") == {"rlcr:rlcr": True, "rlcr:rlcr-no-analysis": True}
    assert best(0.7, lambda q: q, lambda q: -q) == 1.0  # the absolute error is best at an end


@pytest.mark.parametrize("name", paper_names())
def test_answering_pays_exactly_above_the_threshold_of_the_question(name: str) -> None:
    for one in setups(name):
        if pays(one, WRONG, t=0.2) == pays(one, WRONG, t=0.8):
            assert name != "threshold"
            continue
        for t in GRID[:-1]:
            right, declined, wrong = (pays(one, said, t=t) or 0.0 for said in (RIGHT, DECLINED, WRONG))
            assert (declined - wrong) / (right - wrong) == pytest.approx(t), one.spec
