"""The trainer gives the numbers that it gave on a frozen commit; `frozen.py` says which to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import frozen
import pytest

pytestmark = pytest.mark.usefixtures("one_thread")
FROZEN = json.loads(frozen.FILE.read_text("utf-8"))
CASES = frozen.cases()
LORA = [name for name in CASES if CASES[name].get("lora")]


def marked(case: str) -> Any:
    """Every kind with one loss, and each loss once; the others with the slow tests."""
    usual = case.startswith("dapo") or case.endswith("beta=0.1 passes=2")
    return case if usual else pytest.param(case, marks=pytest.mark.slow)


@pytest.mark.parametrize("case", [marked(name) for name in CASES if name not in LORA])
def test_steps_on_given_texts(case: str, tmp_path: Path) -> None:
    assert frozen.differences(frozen.numbers(tmp_path, **CASES[case]), FROZEN[case]) < 1e-5


# An adapter begins with random numbers, which another TRL draws at another time.
@pytest.mark.parametrize("case", [marked(name) for name in LORA])
def test_steps_of_an_adapter(case: str, tmp_path: Path) -> None:
    found = frozen.numbers(tmp_path, **CASES[case])
    assert found["losses"][:4] == pytest.approx(FROZEN[case]["losses"][:4], abs=1e-5)


@pytest.mark.parametrize("case", frozen.VERBS)
def test_the_verb_asks_writes_and_learns_the_same(case: str, tmp_path: Path) -> None:
    found = frozen.verb(tmp_path, *frozen.VERBS[case], shortcuts="shortcuts" in case)
    assert frozen.differences(found, FROZEN[case]) < 1e-5


def test_every_round_over_the_questions_has_its_order(tmp_path: Path) -> None:
    assert frozen.verb(tmp_path, *frozen.ROUNDS)["questions"] == FROZEN["verb rounds"]["questions"]


@pytest.mark.slow
def test_two_processes() -> None:
    for case, found in frozen.two_processes().items():
        assert frozen.differences(found, FROZEN[case]) < 1e-5
