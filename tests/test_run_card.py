"""The card of a trained model: the numbers are the run's, nothing of this machine, no text breaks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from factrl.evals.metrics import wilson
from factrl.job import Job, read_job
from factrl.llm.spending import FILE as SPENT
from factrl.runs.folder import Rollout, Run
from factrl.train.page import write_training_card, write_tuning_card
from factrl.train.plan import Plan
from factrl.train.tuning.plan import TunePlan
from factrl.train.tuning.rules import Candidate
from factrl.train.tuning.samples import TuningResult
from factrl.train.tuning.settings import read_tuning_job
from factrl.types import Example, Result
from test_report import PAYLOADS

HOSTILE = [
    "---\nlicense: mit\n---\n<script>alert(1)</script>",
    "| a | b |\n|---|---|\n\n# Heading\n",
    "[x](javascript:alert(1)) ![y](//evil) <img src=x> https://evil.example www.evil.example a@evil.example",
    "`code` *bold* __b__ ~~s~~ $x$ \\",
    *filter(None, PAYLOADS),
]
EXAMPLES = [Example(f"Where is {n}?", ("Rome",), id=str(n)) for n in range(10)]


def write(folder: Path, *words: str, **more: Any) -> str:
    """The card of a run with one row of everything."""
    usual = ["paper=truthrl", "model.name=Qwen/Qwen2.5-0.5B-Instruct", "data.train=org/questions"]
    return card(folder, read_job(None, [*usual, *words]).settings, **more)


def card(folder: Path, settings: Any, odd: str = "no_box", adapter: bool = False) -> str:
    held_out = EXAMPLES if settings.data.eval else []
    with Run.create(folder, "run", "x = 1\n") as run:
        (run.path / "model").mkdir()
        (run.path / "model" / "README.md").write_text("of another library", "utf-8")
        if adapter:
            (run.path / "model" / "adapter_config.json").touch()
        results = [Result("scored", 1.0, {"outcome": 1.0})] * 5
        results += [Result("masked", None, cause="timeout")] * 2 + [Result("floored", -1.0, cause=odd)]
        for step in (1, 2):
            run.write_rollouts(step, [Rollout("0", "p", "c", result, 0.0) for result in results])
            run.log(step, {"reward": 0.5, "step_time": 30.0})
        if held_out:
            for step, right in ((1, 0.25), (2, 0.5)):
                shares = {"accuracy": right, "abstention": 0.25, "hallucination": 0.75 - right}
                named = {f"eval/{name}": value for name, value in shares.items()}
                run.log(step, {**named, "eval/masked": 0.2})
        spent = {"calls": 1234, "tokens_in": 10**6, "tokens_out": 10**5}
        (run.path / SPENT).write_text(json.dumps({"total": spent, "dearest_step": spent}), "utf-8")
        plan = Plan(Job(settings), EXAMPLES, held_out)
        path = write_training_card(plan, run.path)
    assert path == run.path / "model" / "README.md"
    return path.read_text("utf-8")


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """First cell -> the others, of the table beneath a heading."""
    part = text.partition(f"{heading}\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in cells[2:]}


def shape(text: str) -> list[tuple[str, str]]:
    """What a card is made of beneath its header: tokens of Markdown, without the texts."""
    body = text.split("\n---\n", 1)[1]
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(body)
    inner = [child for token in tokens for child in (token.children or [token])]
    return [(one.type, one.tag) for one in inner if one.type not in ("text", "text_special")]


def test_a_card_says_what_the_run_was(tmp_path: Path) -> None:
    words = ["judge.url=http://secret-host:8000/v1#Qwen/Qwen3-8B", "judge.price_in=1", "judge.price_out=10"]
    text = write(tmp_path, *words, "data.eval=test.jsonl", "train.learning_rate=5e-6")
    recipe = rows(text, "for truthrl")
    assert recipe["reward"] == ["truthrl, [arXiv:2509.25760](https://arxiv.org/abs/2509.25760)"]
    assert recipe["judge"] == ["Qwen/Qwen3-8B"]
    bare = write(tmp_path, "judge.url=http://secret-host:8000/v1")
    assert rows(bare, "for truthrl")["judge"] == ["a server"]
    assert recipe["judge calls"] == ["1,234; 1,000,000 + 100,000 tokens, \\$2"]
    assert recipe["questions"][0].startswith("org/questions: 10, fingerprint ")
    assert "of another library" not in text
    assert "secret" not in text


def test_the_numbers_are_those_of_the_run(tmp_path: Path) -> None:
    """Intervals of the counts, and what was not scored by cause."""
    text = write(tmp_path, "data.eval=test.jsonl")
    table = rows(text, "## Held-out questions")
    assert table["accuracy"] == [str(wilson(2, 8)), str(wilson(4, 8))]
    assert (table["graded"], table["masked"]) == (["8", "8"], ["2", "2"])
    lines = [line for line in text.splitlines() if line.startswith(("| masked | ", "| floored"))]
    assert lines[1:] == [
        "| masked | all causes | 4 | 25.0% |",
        "| floored | all causes | 2 | 12.5% |",
        "| masked | timeout | 4 | 25.0% |",
        "| floored | no\\_box | 2 | 12.5% |",
    ]
    assert "None were asked of this model." in write(tmp_path)


def test_the_header_is_what_the_hub_reads(tmp_path: Path) -> None:
    assert header(write(tmp_path)) == {
        "base_model": "Qwen/Qwen2.5-0.5B-Instruct",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "datasets": ["org/questions"],
        "tags": ["factrl", "trl", "grpo", "truthrl"],
    }
    (tmp_path / "weights").mkdir()
    own = header(
        write(
            tmp_path,
            f"model.name={tmp_path}/weights",
            f"data.train={tmp_path}/q.jsonl",
            "model.lora=true",
            "train.loss_type=reinforce++",
            adapter=True,
        )
    )
    assert own == {
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["factrl", "trl", "reinforce", "truthrl"],
    }


def header(text: str) -> dict[str, Any]:
    """The front matter; its values are JSON, which is YAML."""
    first, *lines = text.splitlines()
    assert first == "---"
    lines = lines[: lines.index("---")]
    return {name: json.loads(value) for name, value in (line.split(": ", 1) for line in lines)}


@pytest.mark.security("S41", "S44")
@pytest.mark.parametrize("bad", HOSTILE)
def test_no_text_of_others_is_read_as_markdown(tmp_path: Path, bad: str) -> None:
    def of(text: str) -> str:
        settings = read_job(None, ["paper=truthrl", "model.name=m", "data.train=d", "data.eval=e"]).settings
        data = settings.data.model_copy(update={"train": text, "eval": text, "prompt": f"{text}{{question}}"})
        model = settings.model.model_copy(update={"name": text, "revision": text})
        knobs = {**settings.reward, "answer": text}
        return card(
            tmp_path, settings.model_copy(update={"data": data, "model": model, "reward": knobs}), odd=text
        )

    plain = bad.encode("utf-8", "replace").decode()
    text = of(plain)
    assert {*header(text)} == {"library_name", "pipeline_tag", "tags"}
    assert shape(text) == shape(of("plain text"))
    assert "<" not in text
    assert not any(sign in text for sign in "\u202e\u2066\u200b\x1b\x00")


def test_nothing_of_this_machine_is_in_a_card(tmp_path: Path) -> None:
    (tmp_path / "kb").mkdir()
    text = write(
        tmp_path,
        "paper=knowrl",
        f"data.eval={tmp_path}/held.jsonl",
        f"verifier.index={tmp_path}/kb",
        f"verifier.judge=nli:{tmp_path}/kb",
        "verifier.web=https://me:pass@search.example/?key=abc",
        "data.system=the key is sk-abcdefgh12345 of https://me:pass@corp.example",
        f"judge.reward_model={tmp_path}/rm",
    )
    assert str(tmp_path) not in text
    for secret in ("search.example", "pass@", "me:pass", "sk-abcdefgh12345"):
        assert secret not in text
    assert "judge nli:kb" in text
    assert "10 of held.jsonl" in text


def test_tuning_sums_up_its_rounds(tmp_path: Path) -> None:
    words = [
        "tune.method=iterative-dpo",
        "tune.rule=max-min",
        "tune.rounds=2",
        "model.name=m",
        "data.train=q.jsonl",
    ]
    job = read_tuning_job(None, [*words, "train.learning_rate=1e-5", "data.eval=test.jsonl"])
    for number in (1, 2):
        (tmp_path / f"data/round_{number}").mkdir(parents=True)
        (tmp_path / f"data/round_{number}/left_out.json").write_text(json.dumps({"rows": 3}), "utf-8")
    (tmp_path / "model").mkdir()
    wrong, right = (
        [Candidate(label, label=label)] * 4  # type: ignore[arg-type]
        for label in ("incorrect", "correct")
    )
    outcome = TuningResult(EXAMPLES[:4], wrong, right)
    plan = TunePlan(job, EXAMPLES, EXAMPLES[:4])
    text = write_tuning_card(plan, tmp_path, outcome).read_text("utf-8")
    assert rows(text, "## Held-out questions")["accuracy"][:2] == [str(wilson(0, 4)), str(wilson(4, 4))]
    assert rows(text, "for truthrl")["rounds"] == ["2"]
    assert rows(text, "for truthrl")["rows"] == ["6"]
