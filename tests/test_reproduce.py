"""`factrl reproduce`: a pipeline of a paper's file, run step by step, gone on with, and its table."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import pytest

from factrl.bridges.verl_overrides import refusals
from factrl.cli import main
from factrl.cli.reproduce import find_pipeline, model_in, write_recipe
from factrl.cli.reproduce_table import Measured, measured
from factrl.evals.metrics import Number
from factrl.evals.samples import Output
from factrl.papers import OUTCOMES, declared, paper_names
from factrl.runs.settings import AskSettings
from factrl.train.plan import run_settings

OWN = """
from factrl import reward
from factrl.papers import Pipeline, Stage

@reward
def mine(example, completion):
    return {"right": 1.0}

PIPELINE = Pipeline(
    steps=(
        Stage("base", "prepare convert {train} --to trl --output {out}/base.jsonl", row="base"),
        Stage("mine", "prepare convert {base} --to verl --output {out}/mine.jsonl", row="mine"),
        Stage("never", "no-such-verb", small=None),
    ),
    small={"data": {"prompt": "{question}"}},
    model="a/large-model",
    asks={"train": "questions of yours", "judge": "a judge"},
    evaluate="eval {held_out} --output {out}/evaluations/{row}",
    published={"mine": {"accuracy": 10.0, "hallucination": 0.5}},
    notes=("It is made up.",),
)
"""
ROWS = (
    ("rome", "Rome"),
    ("oslo", "I don't know."),
    ("lima", "Paris"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    for name in ("train", "held"):
        rows = [
            {"id": name, "question": f"Which city is {name}?", "answers": [name], "completion": said}
            for name, said in ROWS
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return tmp_path


def reproduce(*words: str) -> int:
    given = ("--warm", "train.jsonl", "--train", "train.jsonl", "--held-out", "held.jsonl")
    return main(["reproduce", "own.py", *given, "--output", "out", *words])


def test_every_step_runs_once_and_the_table_says_what_came_of_it(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert reproduce("--only", "base") == 0
    assert not (folder / "out" / "mine.jsonl").exists()
    assert reproduce() == 0
    steps = (folder / "out" / "steps.jsonl").read_text("utf-8")
    table = (folder / "out" / "table.md").read_text("utf-8")
    assert "| base | 33.3 [" in table
    assert "+0.0 (+10.0) ≠ | +0.0 | +0.0 (+0.5) = |" in table  # half a point is no change
    assert "The 2 difficult questions" in table  # both rows get the first of the three right
    assert "| mine | 0.0 | 50.0 | 50.0 |" in table
    assert "No row's interval is apart from base's" in table
    assert "It is made up." in table
    assert "`factrl prepare convert train.jsonl --to trl --output out/base.jsonl`" in table
    out, err = capfd.readouterr()
    assert out.rstrip().endswith("out/table.md")
    assert "[1/4] base: factrl prepare convert" in err

    assert reproduce() == 0  # nothing is left to do
    assert (folder / "out" / "steps.jsonl").read_text("utf-8") == steps
    assert "[" not in capfd.readouterr().err.split("It is made up")[0]


def test_at_full_scale_a_row_is_evaluated_on_each_set_of_the_papers_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pipeline = declared("knowrl", "PIPELINE")
    assert main(["reproduce", "knowrl", "--full", "--output", "out", "--dry-run"]) == 0
    out = capfd.readouterr().out
    assert (
        "# eval base: 6,000 answers; the judge" in out
    )  # five samples of 300 questions of each of four sets
    words = shlex.split(next(line for line in out.splitlines() if line.startswith("factrl eval")))
    sets = words[2 : words.index("--samples")]
    for row, value in (("base", 0.75), ("paper", 0.5)):
        numbers = {name: asdict(Number(value, 0.0, 1.0, 8)) for name in OUTCOMES}
        told = {name: {"numbers": numbers} for name in sets}
        Output(tmp_path / "evaluations" / row, {}, told, {}).write()
    found = measured(pipeline, ["base", "paper"], [tmp_path], full=True)
    assert {"GPQA", "AIME 2025", "ChineseSimpleQA"} <= {*found.columns}
    assert found.changes("paper", "GPQA") == {"ours": -25.0, "paper": pytest.approx(36.87 - 40.91)}


@pytest.mark.parametrize("gpu", [True, False])
def test_the_scale_is_the_papers_where_there_is_a_gpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], gpu: bool
) -> None:
    monkeypatch.setattr("factrl.cli.reproduce.gpus_here", lambda: gpu)
    assert reproduce("--dry-run", "--judge", "http://h/v1#m") == 0
    told = capfd.readouterr()
    assert ("--full" in told.err) == gpu
    assert "no-such-verb" in told.out if gpu else "no-such-verb" not in told.out


def test_every_short_reward_is_trained_from_one_start_or_has_a_reason_why_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And each is asked in the words of its form, of which the start is asked too."""
    pipeline = find_pipeline("rewards")
    trained = {step.name for step in pipeline.steps if step.words.startswith("train ")}
    left_out = {note.split()[1].rstrip(":") for note in pipeline.notes if note.startswith("no ")}
    assert {name.partition("-")[0] for name in trained} == {*paper_names()} - left_out
    assert {"truthrl-ternary", "knowrl-paper", "rlcr-rlcr", "threshold-threshold"} <= trained
    rows = {step.row: step.words for step in pipeline.steps if step.row}
    assert "Think first" in rows["knowrl-paper"]
    assert "--extract answer" in rows["base-tags"]
    assert "--confidence" in rows["rlcr-rlcr"]
    assert "--agreement" in rows["base-sampled"]
    assert {*rows} - {name for name in rows if name.startswith("base")} == trained
    given = ("--warm", "w.jsonl", "--train", "t.jsonl", "--held-out", "h.jsonl")
    assert (
        main(["reproduce", "rewards", "--small", *given, "--dry-run", "--output", str(tmp_path / "o")]) == 0
    )
    told = capfd.readouterr().out
    assert "paper=threshold:threshold 'data.prompt=Question: {question} Answer only if you are" in told
    assert main(["reproduce", "rewards", "--full", "--output", str(tmp_path / "o")]) == 2
    assert "rewards has the small scale alone" in capfd.readouterr().err


def test_what_a_row_has_no_number_of_is_a_dash_and_no_change() -> None:
    known = {"value": 50.0, "low": 40.0, "high": 60.0}
    rows = {"base": [{"accuracy": known}], "sure": [{"accuracy": known, "ece": known}]}
    columns = {"accuracy": "accuracy", "ece": "ece"}
    found = Measured(columns, {"sure": {"ece": -5.0}}, rows, {})
    assert list(found.lines()) == [
        ["base", "50.0 [40.0, 60.0]", "–"],
        ["sure", "50.0 [40.0, 60.0]", "50.0 [40.0, 60.0]"],
        ["", "+0.0", ""],
    ]
    assert not found.tells_apart()


def test_an_effect_is_a_row_whose_interval_is_apart_from_bases() -> None:
    def between(low: float, high: float) -> list[dict[str, dict[str, float]]]:
        return [{"accuracy": {"value": (low + high) / 2, "low": low, "high": high}}]

    rows = {"base": between(10, 20), "near": between(19, 30)}
    assert not Measured({"accuracy": "accuracy"}, {}, rows, {}).tells_apart()
    rows["apart"] = between(21, 30)
    assert Measured({"accuracy": "accuracy"}, {}, rows, {}).tells_apart()


def test_a_step_that_fails_is_said_and_the_same_command_goes_on(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = (folder / "held.jsonl").read_text("utf-8")
    (folder / "held.jsonl").write_text("{", "utf-8")
    assert reproduce() == 2
    assert "the step 'eval base' ended with exit code 2" in capfd.readouterr().err
    (folder / "held.jsonl").write_text(whole, "utf-8")
    assert reproduce() == 0
    assert "base: factrl prepare" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "mien"], "--only 'mien' is no step; did you mean 'mine'?"),
        (["--full"], "--full of own.py needs --judge: a judge"),
        (["--judge", "http://h/v1#m"], "was begun with other settings"),
        (["--train", "held.jsonl"], "and would now be"),
    ],
)
def test_what_does_not_fit_is_one_error(
    folder: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert reproduce("--only", "base") == 0
    assert reproduce(*words) == 2
    assert message in capfd.readouterr().err


def test_a_dry_run_prints_commands_and_asks_at_full_scale(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "own.py", "--full", "--output", "out", "--dry-run", "--seeds", "2"]) == 0
    out, err = capfd.readouterr()
    assert "factrl prepare convert TRAIN --to trl --output out/seed-1/base.jsonl" in out
    assert "--train: questions of yours\nand --judge: a judge" in err
    assert not (folder / "out").exists()


@pytest.mark.parametrize("paper", ["factreason", "fspo", "klcf", "knowrl", "truthrl", "truthrl:retrieval"])
def test_every_step_at_the_small_scale_begins_the_same_turn(paper: str, tmp_path: Path) -> None:
    name = paper.partition(":")[0]
    write_recipe(find_pipeline(paper), Namespace(paper=name, full=False, judge=None, engine="trl"), tmp_path)
    recipe = tmp_path / "recipe.toml"
    steps = [shlex.split(step.words) for step in find_pipeline(paper).steps]
    arms = [word for words in steps if words[0] == "train" for word in words if word.startswith("paper=")]
    turns = {
        (data.prompt, data.prefill, data.chat)
        for data in (run_settings(recipe, ["model.name=m", "data.train=t", arm]).data for arm in arms)
    }
    asked = run_settings(recipe, ["model.name=m", "data.train=t"], AskSettings).data
    assert turns == {(asked.prompt, "", False)}


def test_a_dry_run_bounds_the_judges_requests_and_dollars(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ["--train", "train.jsonl", "--held-out", "held.jsonl", "--judge", "http://localhost:1/v1#m"]
    prices = ["judge.price_in=1", "judge.price_out=1", "train.prompts_per_step=1", "train.micro_batch_size=8"]
    assert main(["reproduce", "truthrl", "--full", *given, "--output", "out", "--dry-run", *prices]) == 0
    out = capfd.readouterr().out
    assert "# eval base: 3 answers; the judge: at most 3 requests" in out
    assert "# probe: 768 answers; the judge: at most 768 requests" in out
    assert "# binary: 3 steps; 24 answers; calls: 24 of the judge, at most; tokens: " in out
    assert "cost: $0." in out


def test_a_value_that_is_lost_is_asked_before_anything_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [word for name in ("warm", "train", "held-out") for word in (f"--{name}", "file.jsonl")]
    words = ["reproduce", "factreason", "--full", *given, "--judge", "http://localhost:1/v1#m"]
    words += ["--output", str(tmp_path / "out")]
    assert main(words) == 2
    assert "and train.beta=…: it has a KL penalty" in capfd.readouterr().err
    assert main([*words, "--dry-run", "train.beta=0.001", "verifier.web=http://localhost:1"]) == 0
    out, err = capfd.readouterr()
    assert "To be given" not in err
    steps = [
        line for line in out.splitlines() if line.startswith(("factrl tune", "factrl train", "factrl eval"))
    ]
    assert all("verifier.web=http://localhost:1" in line for line in steps)  # each of them verifies
    assert all(("train.beta" in line) == line.startswith("factrl train") for line in steps)
    assert main(["reproduce", "klcf", "--full", "--output", "out", "--dry-run"]) == 0
    assert "train.beta" not in capfd.readouterr().err  # its step says it
    assert main(["reproduce", "fspo", "--full", "--output", "out", "--dry-run"]) == 0
    assert "and verifier.judge=…: what judges sentences" in capfd.readouterr().err


def test_at_full_scale_the_retrieval_setting_shows_the_documents_of_the_rows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [word for name in ("train", "held-out", "judge") for word in (f"--{name}", "file.jsonl")]
    out = str(tmp_path / "out")
    assert main(["reproduce", "truthrl:retrieval", "--full", *given, "--output", out, "--only", "sft"]) == 2
    assert "file.jsonl" in capfd.readouterr().err
    assert "{evidence}" in (tmp_path / "out" / "recipe.toml").read_text("utf-8")
    assert main(["reproduce", "truthrl:retrieve", "--output", out]) == 2
    assert "did you mean 'truthrl:retrieval'?" in capfd.readouterr().err


def test_verl_trains_with_rewards_and_its_last_checkpoint_is_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["reproduce", "truthrl", "--verl", "a=b", "--output", out, "--dry-run"]) == 2
    words = ["reproduce", "truthrl", "--engine", "verl", "--output", out, "--dry-run"]
    assert main([*words, "--verl-python", str(tmp_path / "python")]) == 2
    assert "there is no such program" in capfd.readouterr().err
    assert main(words) == 0
    lines = capfd.readouterr().out.splitlines()
    verbs = {line.split()[1] for line in lines if line.endswith("--engine verl")}
    assert verbs == {"train"}
    assert all(line.endswith("--engine verl") for line in lines if line.startswith("factrl train"))
    assert model_in(tmp_path) == tmp_path / "model"
    for step in (9, 10):
        (tmp_path / f"checkpoints/global_step_{step}/actor/huggingface").mkdir(parents=True)
    assert model_in(tmp_path).parts[-3] == "global_step_10"


def test_every_small_recipe_is_one_that_verl_can_train(tmp_path: Path) -> None:
    for name in (name for name in paper_names() if declared(name, "PIPELINE")):
        told = Namespace(paper=name, full=False, judge=None, engine="verl")
        folder = tmp_path / name
        folder.mkdir()
        write_recipe(find_pipeline(name), told, folder)
        words = ["model.name=m", "data.train=q.jsonl", "judge.url=http://localhost:1/v1#m"]
        assert refusals(run_settings(folder / "recipe.toml", words)) == []


def test_papers_with_a_pipeline_print_commands_and_what_the_judge_is_asked(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each row with a published number is there, each variant exists, and both scales can be printed."""
    names = [name for name in paper_names() if declared(name, "PIPELINE")]
    assert {"truthrl", "knowrl", "fspo", "factreason", "klcf"} <= set(names)
    for name in [*names, "truthrl:retrieval"]:
        pipeline = find_pipeline(name)
        for scale in ("--small", "--full"):
            assert main(["reproduce", name, scale, "--output", "out", "--dry-run"]) == 0
            lines = capfd.readouterr().out.splitlines()
            steps = [line for line in lines if line.startswith("# ")]
            commands = [line for line in lines if line.startswith("factrl ")]
            for about, command in zip(steps, commands, strict=True):
                judged = scale == "--full" and "judge" in pipeline.asks
                if not judged or command.split()[1] in ("probe", "eval"):
                    assert ("the judge: " in about) == judged
        rows = {stage.row for stage in pipeline.steps} - {"", "base"}
        assert rows >= {*pipeline.published}
    assert not (folder / "out").exists()


def test_a_paper_without_one_says_which_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "robust", "--output", "out"]) == 2
    assert "'robust' declares no PIPELINE (there are: " in capsys.readouterr().err
