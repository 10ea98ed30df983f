"""`benchmarks/gpu/study.py`: the table of finished runs, and jobs that fail, on folders made up here."""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from factrl.cli import main

SOURCE = Path(__file__).parents[1] / "benchmarks" / "gpu" / "study.py"
study: Any = SimpleNamespace(**runpy.run_path(str(SOURCE)))

ANSWERS = {  # of ten questions, whose right answer is Rome
    "base": ["Rome"] * 4 + ["Paris"] * 6,
    "ternary-full-0": ["Rome"] * 4 + ["I don't know."] * 6,
    "trl-full-0": ["Rome"] * 3 + ["Paris"] * 7,
}
# Two commands; the second began with step 3 again, as the first one's last checkpoint was of step 2.
STEPS = [
    {"session": session, "at": at, "step": step, "seconds": seconds, "tokens": tokens, "memory_gb": memory}
    for session, at, step, seconds, tokens, memory in (
        (1.0, 30.0, 1, 20.0, 5, 9.0),
        (1.0, 36.0, 2, 6.0, 600, 9.5),
        (1.0, 40.0, 3, 4.0, 400, 9.5),
        (2.0, 50.0, 3, 40.0, 5, 9.25),
        (2.0, 80.0, 4, 10.0, 1_000, 9.25),
    )
]


@pytest.fixture
def told(tmp_path: Path) -> argparse.Namespace:
    """The options of a study of which nothing is done."""
    for name in ("done", "times", "logs"):
        (tmp_path / name).mkdir()
    return argparse.Namespace(
        home=tmp_path,
        place=tmp_path,
        runs=tmp_path / "runs",
        **{"arms": ["ternary", "trl", "binary"], "weights": ["full"], "seeds": [0], "settings": []},
        **{"model": "random", "steps": 4, "held_out": 10, "rate": 3.0, "minutes": 1.0},
    )


@pytest.fixture
def document(told: argparse.Namespace) -> dict[str, Any]:
    """Its `study.json` when two runs are evaluated, and a third is not."""
    place = told.place
    for name, texts in ANSWERS.items():
        file, run = place / name / "test.jsonl", place / "runs" / name / "a-run"
        for folder in (file.parent, run):
            folder.mkdir(parents=True)
        rows = [
            {"id": str(n), "question": f"Capital {n}?", "answers": ["Rome"], "completion": text}
            for n, text in enumerate(texts)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert main(["eval", str(file), "--output", str(place / "evals" / name)]) == 0
        (place / "done" / f"eval {name}").touch()
        parts = {"generation": 1.0, "reward": 0.5}
        lines = "".join(json.dumps({**step, **parts}) + "\n" for step in STEPS)
        (place / "times" / f"{name}.jsonl").write_text(lines + '{"torn')  # the process was killed
        (run / "config.toml").touch()
        curve = {"step": 4, "eval/accuracy": 0.4, "eval/abstention": 0.6, "eval/hallucination": 0.0, "lr": 1}
        (run / "metrics.jsonl").write_text(json.dumps(curve) + "\n")
    return json.loads(json.dumps(study.summary(told)))  # as it is brought back


def test_what_runs_did_and_cost(document: dict[str, Any]) -> None:
    base, ternary, trl = document["rows"]
    assert [row["run"] for row in (base, ternary, trl)] == list(ANSWERS)
    assert "minutes" not in base
    assert ternary["change"]["value"] == pytest.approx(0.6)  # from 4 - 6 to 4 - 0 of ten
    assert trl["change"]["value"] == pytest.approx(-0.2)
    # Each command's time counts from its start to its last step, the step that was done twice too.
    assert (ternary["minutes"], ternary["sessions"], ternary["steps"]) == (2.0, 2, 4)
    # Medians without the first step of a command: of 6 and 10 seconds (step 3 came first in the second).
    assert (ternary["step"], ternary["generation"], ternary["update"]) == (8.0, 1.0, 6.5)
    assert (ternary["tokens_per_s"], ternary["memory_gb"]) == (100.0, 9.5)
    assert ternary["curve"][0].keys() == {"step", "eval/accuracy", "eval/abstention", "eval/hallucination"}
    table = [line for line in study.table(document, 3.0).split("\n") if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    of = dict(zip(rows[0], rows[2], strict=True))
    assert rows[1][-3:] == ["–", "–", "–"]
    assert of["hallucination"] == "0.0 [0.0, 27.8]"
    assert of["change of truthfulness"].startswith("+60.0 [+30.0, ")
    assert (of["minutes"], of["minutes per point"], of["US$"]) == ("2.0", "0.03", "0.10")
    assert rows[3][-2] == "–"  # it gained nothing, so a point has no cost
    assert rows[5] == ["ternary-full-0", "4", "1.00", "0.50", "6.50", "8.00", "100", "9.5", "2"]
    assert study.table(document, None).count("0.10 |") == 0  # the price is the reader's


def test_another_study_in_the_same_place_is_refused(told: argparse.Namespace) -> None:
    (told.place / "done" / "model").write_text(json.dumps(["model", "another"]))
    with pytest.raises(SystemExit, match=r"model was done as .*another.* give another place"):
        study.run(told)


def test_a_job_that_fails_ends_the_command_with_the_end_of_its_log(told: argparse.Namespace) -> None:
    job = study.Job("eval x", ("eval", str(told.place / "nothing.jsonl")))
    with pytest.raises(SystemExit, match=r"(?s)eval x ended with exit code 2; .*nothing\.jsonl"):
        study._do(job, told, 60.0)


def test_full_weights_are_refused_where_their_checkpoints_do_not_fit(told: argparse.Namespace) -> None:
    model = told.place / "random"
    model.mkdir()
    with (model / "model.safetensors").open("wb") as file:
        file.truncate(1 << 42)  # a hole: it takes no room itself
    job = study.Job("ternary-full-1", ("train",), "factrl")
    with pytest.raises(SystemExit, match=r"full weights need 43980 GB .*--weights lora"):
        study._do(job, told, 60.0)
