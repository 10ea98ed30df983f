"""`examples/grpo_from_scratch.py`: all of GRPO in one file, and its model learns what it should."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_from_scratch.py"


def test_it_learns_what_can_be_known_and_declines_the_rest(
    capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    before, after = runpy.run_path(str(EXAMPLE))["main"](warm_steps=60, steps=20)
    assert before["mayor false"] >= 60
    assert before["country true"] <= 40
    assert after["country true"] >= 80  # a tenth of the calls fails or less
    assert after["mayor unknown"] >= 80
    assert after["mayor false"] + after["country false"] <= 5
    rows = [line.split() for line in capsys.readouterr().out.split("\n") if "%" in line]
    assert [row[0] for row in rows] == ["1", "5", "10", "15", "20"]
    assert any(float(row[2].rstrip("%")) > 0 for row in rows), "no sample was masked"
    assert float(rows[-1][1]) > float(rows[0][1]) + 1
