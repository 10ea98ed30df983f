"""docs/metrics.md and the code name the same metrics and the same causes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from factrl.evals.metrics import short_form
from factrl.rewards import SUM
from factrl.text import think_answer
from factrl.train.metrics import reward_metrics
from factrl.types import Result

ROOT = Path(__file__).parents[1]
# What TRL logs only with settings that factrl does not have.
TRL_UNUSED = {
    *("policy_loss", "entropy_coef"),  # entropy bonus
    *("cispo_clip_ratio", "vespo/phi_seq_mean"),  # other losses
    *("tools/call_frequency", "tools/failure_frequency"),
}
TRANSFORMERS = {"loss", "grad_norm", "learning_rate", "epoch"}
# Calls that name a cause, and at which position.
NAMES_A_CAUSE = {"Unscored": 0, "LLMError": 0, "Failure": 0, "_floored": 0, "EvalSample": 3, "Blocks": 2}


def glossary(*sections: str) -> dict[str, str]:
    """Name -> last cell of every row in these sections."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
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
    named = {
        cause for path in (ROOT / "src").rglob("*.py") for cause in causes(ast.parse(path.read_text("utf-8")))
    }
    assert set(glossary("Causes")) == named | {malformed(text) for text in MALFORMED}


# What the parser says by looking it up in tables of its own.
MALFORMED = (
    *("<answer>a</answer>", "<think>t", "<think>t</think>", "<think>t</think><answer>a"),
    *("<think> </think><answer>a</answer>", "<think>t</think><answer> </answer>"),
)


def malformed(text: str) -> str:
    return think_answer(text).malformed or ""


def causes(tree: ast.Module) -> Iterator[str]:
    """The causes that a module names in calls and in assignments to `cause`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__" and node.args[1:]:
            yield from words(node.args[0])  # a failure that always has the same cause
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            position = NAMES_A_CAUSE.get(node.func.id)
            if position is not None and len(node.args) > position:
                yield from words(node.args[position])
            for keyword in node.keywords:
                if keyword.arg == "floored" or (
                    node.func.id in ("Verdict", "replace") and keyword.arg == "cause"
                ):
                    yield from words(keyword.value)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "cause":
            yield from words(node.value)


def words(node: ast.expr) -> Iterator[str]:
    """What a literal, an f-string or a choice between them says; `http_<status>` for a part that varies."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            f"<{ast.unparse(part.value)}>" if isinstance(part, ast.FormattedValue) else ast.literal_eval(part)
            for part in node.values
        )
    elif isinstance(node, ast.IfExp):
        yield from words(node.body)
        yield from words(node.orelse)


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


@pytest.mark.torch
def test_what_trl_logs() -> None:
    grpo = pytest.importorskip("trl.trainer.grpo_trainer", reason="needs the extra `train`")
    source = Path(grpo.__file__).read_text("utf-8")
    logged = {
        name.replace("{reward_func_name}", SUM)
        for name in re.findall(r'_metrics\[[^]]*\]\[f?"([^"]+)"\]', source)
    }
    assert len(logged) > 20
    ours = {name for name in glossary("Rewards", "The trainer's own") if "<term>" not in name}
    assert ours - TRANSFORMERS == logged - TRL_UNUSED
