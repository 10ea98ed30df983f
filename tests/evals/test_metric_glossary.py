"""docs/metrics.md, docs/causes.md and the code name the same metrics and the same causes."""

from __future__ import annotations

import re
from pathlib import Path

from factrl.evals.metrics import short_form
from factrl.train.metrics import reward_metrics
from factrl.types import Result

ROOT = Path(__file__).parents[2]


def glossary(*sections: str) -> dict[str, str]:
    """Name -> last cell of every row in these sections."""
    text = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("metrics.md", "causes.md"))
    rows: dict[str, str] = {}
    for section in sections:
        body = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
        assert body, f"no section {section!r}"
        for row in re.findall(r"^\| `(.*)", body[1], re.M):
            name, *_, meaning = row.rstrip("| ").split("|")
            name = name.strip().removesuffix("`")
            assert name not in rows, f"{name} is defined twice"
            rows[name] = meaning.strip()
    return rows


def test_evaluation_metrics() -> None:
    logged = {f"eval/{name}" for name in short_form([]).metrics} | {"eval/masked"}
    assert set(glossary("Evaluation")) == logged


def test_causes() -> None:
    """What is raised or floored with one finds it in the table, and the table has none that is gone."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    raised = re.findall(r'\b(?:Unscored|LLMError|Failure|_floored)\(\s*"(\w+)"|\bfloored=\s*"(\w+)"', source)
    known = {*glossary("All causes")}
    assert {cause for pair in raised for cause in pair} - {""} <= known
    assert [cause for cause in known - {"http_<status>"} if f'"{cause}"' not in source] == []


def test_reward_metrics() -> None:
    label = {"label": "correct"}
    results = [
        Result("scored", 1.0, {"<term>": 1.0}, facts=label),
        Result("floored", -1.0, {"<term>": -1.0}, cause="<cause>", facts={"label": "incorrect"}),
        Result("masked", None, cause="<cause>"),
    ]
    trls = {"reward", "reward_std", "rewards/sum/mean", "rewards/sum/std", "frac_reward_zero_std"}
    assert set(reward_metrics(results)) == {*glossary("Rewards", "States", "Answers")} - trls


def test_a_share_of_no_attempts_is_no_metric() -> None:
    metrics = reward_metrics([Result("scored", 0.0, {"outcome": 0.0}, facts={"label": "abstained"})])
    assert metrics["abstain/rate"] == 1.0
    assert "answer/correct_given_attempt" not in metrics
