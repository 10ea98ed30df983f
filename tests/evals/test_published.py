"""Several evaluations in one table, and a paper's numbers beside those that were measured alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from factrl.cli import main
from factrl.errors import ConfigError
from factrl.evals.ask import EvalConfig, _summary
from factrl.evals.catalogue import own_file
from factrl.evals.folder import Output, read_output
from factrl.evals.published import first_model, read_published
from factrl.evals.samples import EvalSample
from factrl.runs.settings import AskSettings
from factrl.types import Example, Grade

TABLE = """
source = "A paper, Table 1"
row = [
    { name = "base", model = "Small-1B", set = "CRAG", runs = 1, accuracy = 40.0 },
    { name = "base", model = "Small-1B", set = "NQ", runs = 1, accuracy = 20.0 },
    { name = "base", model = "Small-1B", set = "average", runs = 1, accuracy = 30.0 },
    { name = "mine", model = "Small-1B", set = "CRAG", runs = 1, start = "base", accuracy = 47.5 },
    { name = "mine", model = "Small-1B", set = "NQ", runs = 1, start = "base" },
    { name = "mine", model = "Small-1B", set = "average", runs = 1, start = "base", accuracy = 61.25 },
    { name = "other", model = "Large-9B", set = "CRAG", runs = 1, start = "base", accuracy = 88.0 },
    { name = "often", model = "Small-1B", set = "CRAG", runs = 5, start = "base", incorrect = 77.0 },
    { name = "often", model = "Small-1B", set = "NQ", start = "base", accuracy = 66.0 },
]
"""


def evaluation(folder: Path, model: str, right: int, *, samples: int = 1, sets: tuple[str, ...]) -> str:
    """An evaluation of ten questions a set, of which so many are right."""
    by_set: dict[str, list[EvalSample]] = {}
    for name in sets:
        by_set[name] = [
            EvalSample(
                Example(f"Which {n}?", ("x",), str(n)),
                "x" if n < right else "y",
                Grade("correct" if n < right else "incorrect", "x", "exact"),
                benchmark=name,
            )
            for n in range(10)
        ]
    about = {"source": "here", "model": "m", "judge": "j", "asked_for": "text", "prompt": "p"}
    settings = AskSettings.model_validate({"model": {"name": "m"}, "data": {"train": "-"}})
    rows = {
        name: _summary(own_file(f"{name}.jsonl", settings.data), about, graded, EvalConfig(settings))
        for name, graded in by_set.items()
    }
    Output(folder, {"model": model, "sampling": {"num_samples": samples}}, rows, by_set).write()
    return str(folder)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    """Evaluations: the base, a model trained from it, one of another model, and one with five runs."""
    for name, start in (("mine", "org/Small-1B"), ("again", str(tmp_path / "mine" / "model"))):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text(f'[model]\nname = "{start}"\n', encoding="utf-8")
    both = ("crag", "nq")
    return {
        "base": evaluation(tmp_path / "eval" / "base", "org/Small-1B", 4, sets=both),
        "mine": evaluation(tmp_path / "eval" / "mine", str(tmp_path / "again" / "model"), 7, sets=both),
        "other": evaluation(tmp_path / "eval-other", "org/Small-1B", 5, sets=both),
        "often": evaluation(tmp_path / "often", "org/Small-1B", 6, samples=3, sets=both),
    }


def test_the_first_model_is_found_over_the_runs_that_made_another(folders: dict[str, str]) -> None:
    assert (
        first_model(read_output(folders["mine"])) == first_model(read_output(folders["base"])) == "Small-1B"
    )


def test_one_table_has_every_change_against_the_first_and_the_papers_numbers(
    folders: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "table.toml").write_text(TABLE, encoding="utf-8")
    words = ["report", *folders.values(), "--published", str(tmp_path / "table.toml")]
    assert main(words) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if "mine" in line]
    crag, nq, average = [line for line in lines if "70.0" in line and "+30.0" in line][:3]
    assert "47.5" in crag
    assert "+7.5" in crag
    assert "20" not in nq.split("clear")[-1]  # the paper's digit is lost, and nothing stands in its place
    assert "61.25" in average
    assert "+31.2" in average
    for line in out.splitlines():  # another model, and another number of runs
        assert "88" not in line
        assert "77" not in line
    [untold] = [line for line in out.splitlines() if "66" in line]  # how often the paper asked is not known
    assert "often" in untold
    assert "A paper, Table 1" in out


def test_a_row_of_averages_alone_stands_beside_the_mean_of_the_same_sets(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("base", "mine"):
        path = Path(folders[name]) / "results.json"
        results = json.loads(path.read_text())
        for at, benchmark in enumerate(results["benchmarks"].values()):
            number = {"value": 30 + 8 * at, "low": 20, "high": 50, "n": 10, "percent": False}
            benchmark["numbers"]["detail"] = number
            if name == "mine":
                benchmark["numbers"]["win_rate"] = {**number, "value": 0.25, "percent": True}
        path.write_text(json.dumps(results))
    alone = re.sub(r'"mine"(.*?set = "(CRAG|NQ)")', r'"first"\1', TABLE)
    alone = alone.replace("accuracy = 61.25", "detail = 29.0, win_rate = 54.4")
    (tmp_path / "table.toml").write_text(alone, encoding="utf-8")
    words = ["report", folders["base"], folders["mine"], "--published", str(tmp_path / "table.toml")]
    assert main(words) == 0
    _, _, average = capsys.readouterr().out.partition("average")
    for ours, published in (("34", "29"), ("25.0", "54.4")):
        [line] = [line for line in average.splitlines() if "mine" in line and ours in line]
        assert published in line


def test_json_has_the_same(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.toml").write_text(TABLE, encoding="utf-8")
    assert main(["report", *folders.values(), "--json", "--published", str(tmp_path / "table.toml")]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(document) == [folders[name] for name in ("mine", "other", "often")]
    crag = document[folders["mine"]]["crag"]
    assert crag["published"] == {"accuracy": {"value": 47.5, "change": 7.5}}
    assert crag["differences"]["accuracy"]["value"] == pytest.approx(0.3)
    assert "published" not in document[folders["other"]]["crag"]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{ model = 'm', set = 's', runs = 1 }", "name"),
        ("{ name = 'n', model = 'm', set = 's', runs = 'one' }", "runs"),
        ("{ name = 'n', model = 'm', set = 's', runs = 1, accuracy = '37.□' }", "accuracy"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(row: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text(f"row = [{row}]", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"row 1: {named}"):
        read_published(path)


def test_what_is_for_two_evaluations_alone_is_refused_for_more(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for option in (["--judge", "local"], ["--output", "page.html"]):
        assert main(["report", *folders.values(), *option]) == 2
        assert option[0] in capsys.readouterr().err
