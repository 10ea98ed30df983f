"""`examples/first_steps.ipynb` runs as it stands; its committed outputs are short and as it makes them.

jupyter execute --inplace examples/first_steps.ipynb     # makes them again
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from commands import process

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


def outputs(path: Path) -> list[dict[str, Any]]:
    """What its cells print and show, in their order."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def test_the_notebook_runs_and_its_model_learns_to_decline(tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    run = "from nbclient.cli import main; main()"
    done = process("-c", run, f"--output={tmp_path / 'done.ipynb'}", str(NOTEBOOK))
    assert done.returncode == 0, done.stderr
    made, kept = outputs(tmp_path / "done.ipynb"), outputs(NOTEBOOK)
    *shown, printed, change = made
    assert [one["data"]["text/html"] for one in shown[:3]] == [one["data"]["text/html"] for one in kept[:3]]
    assert "".join(printed["text"]).startswith("reward by step: -")
    assert [one["output_type"] for one in made] == [one["output_type"] for one in kept]
    for one in (change, kept[-1]):
        html = "".join(one["data"]["text/html"])
        assert "abstention</th><td>+" in html
        assert "hallucination</th><td>-" in html


def test_its_outputs_are_short_and_hold_no_warning() -> None:
    assert NOTEBOOK.stat().st_size < 16_000
    assert not [one for one in outputs(NOTEBOOK) if one.get("name") == "stderr"]
