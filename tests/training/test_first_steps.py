"""`examples/first_steps.ipynb` runs as it stands; its committed outputs are as it makes them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
KEPT = [output for cell in CELLS for output in cell.get("outputs", [])]


def run(cells: list[dict[str, Any]]) -> list[str]:
    """What the last line of each cell shows, in one namespace, as Jupyter runs them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in cells:
        *lines, last = ast.parse("".join(cell["source"])).body
        if not isinstance(last, ast.Expr):
            lines, last = [*lines, last], ast.Expr(ast.Constant(None))
        exec(compile(ast.Module(lines, []), str(NOTEBOOK), "exec"), names)  # noqa: S102
        if (value := eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)) is not None:  # noqa: S307
            shown.append(value._repr_html_())
    return shown


@pytest.mark.filterwarnings("default")
def test_the_notebook_runs_and_its_model_learns_to_decline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    *shown, change = run([cell for cell in CELLS if cell["cell_type"] == "code"])
    *kept, before = ["".join(one["data"]["text/html"]) for one in KEPT if "data" in one]
    assert shown[:3] == kept[:3]
    assert len(shown) == len(kept)
    assert "reward by step: -" in capsys.readouterr().out
    for html in (change, before):
        assert "abstention</th><td>+" in html
        assert "hallucination</th><td>-" in html
