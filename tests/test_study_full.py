"""`factrl study NAME --full`: a pipeline of `[full]`, run step by step, gone on with, and its table."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import main
from factrl.evals.folder import Output
from factrl.evals.metrics import Number
from factrl.job import read_job
from factrl.papers import load_reward
from factrl.papers.klcf import factscore
from factrl.papers.truthrl import VARIANT_SETTINGS
from factrl.prepare import FEW_SHOT
from factrl.studies import FILES, FullSettings, load_study, study_names
from factrl.studies.full import Command, FullTable, Pipeline, model_in, read_table
from factrl.train.tuning.settings import read_tuning_job

OWN = """
title = "made up"

[full]
model = "a/large-model"
source = "nobody's numbers"
evaluate = "eval {held_out} --output {out}/evaluations/{row}"
notes = ["It is made up."]

[full.asks]
train = "questions of yours"
held_out = "questions to evaluate on"

[full.recipe.data]
prompt = "{question}"

[full.steps]
base = "prepare convert {train} --to trl --output {out}/base.jsonl"
mine = "prepare convert {base} --to verl --output {out}/mine.jsonl"

[full.rows]
mine = { accuracy = 10.0, hallucination = 0.5 }

[full.variants.longer]
notes = ["A variant."]
[full.variants.longer.recipe.train]
steps = 3
"""
TRAIN = "train --config {recipe} --model {start} --data {base} paper=truthrl:binry"
ROWS = (
    ("rome", "Rome"),
    ("oslo", "I don't know."),
    ("lima", "Paris"),
)
SETTINGS = (
    *("verifier.index=wiki", "verifier.judge=weak", "train.beta=0.001"),
    "judge.preference_model=http://localhost:2/v1#base",
)
PAPERS = ("truthrl", "knowrl", "fspo", "factreason", "klcf")
FULL = [name for name in study_names() if load_study(name).full.steps]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(OWN, encoding="utf-8")
    for name in ("train", "held"):
        rows = [
            {"id": name, "question": f"Which city is {name}?", "answers": [name], "completion": said}
            for name, said in ROWS
        ]
        write(tmp_path / f"{name}.jsonl", *rows)
    return tmp_path


def study(*words: str, name: str = "own.toml") -> int:
    given = ("--train", "train.jsonl", "--held-out", "held.jsonl")
    return main(["study", name, "--full", *given, "--output", "out", *words])


def dry(name: str, *words: str) -> int:
    return main(["study", name, "--full", "--output", "out", "--dry-run", *words])


def evaluated(folder: Path, sets: Mapping[str, Mapping[str, Number]]) -> None:
    """Write what `factrl eval` writes: of each set of questions its numbers."""
    numbers = {name: {"numbers": {m: asdict(one) for m, one in of.items()}} for name, of in sets.items()}
    Output(folder, {}, numbers, {}).write()


def test_every_step_runs_once_and_the_table_says_what_came_of_it(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert study("--only", "base") == 0
    assert "[1/4] base: factrl prepare convert" in capfd.readouterr().err
    assert not (folder / "out" / "mine.jsonl").exists()
    for words, message in (
        (["--judge", "http://h/v1#m"], "was begun with other settings"),
        (["--train", "held.jsonl"], "and would now be"),
    ):
        assert study(*words) == 2
        assert message in capfd.readouterr().err
    assert study() == 0
    steps = (folder / "out" / "steps.jsonl").read_text("utf-8")
    table = (folder / "out" / "table.md").read_text("utf-8")
    assert "| base | 33.3 [" in table
    assert "+0.0 (+10.0) ≠ | +0.0 | +0.0 (+0.5) = |" in table  # half a point is no change
    assert "The 2 difficult questions" in table  # both rows get the first of the three right
    assert "| mine | 0.0 | 50.0 | 50.0 |" in table
    assert "No row's interval is apart from base's" in table
    assert "nobody's numbers" in table
    assert "It is made up." in table
    assert "`factrl prepare convert train.jsonl --to trl --output out/base.jsonl`" in table
    assert capfd.readouterr().out.rstrip() == table.rstrip()

    assert study() == 0  # nothing is left to do
    assert (folder / "out" / "steps.jsonl").read_text("utf-8") == steps
    assert "[" not in capfd.readouterr().err


def test_a_variant_is_the_pipeline_with_what_it_has_otherwise(folder: Path) -> None:
    assert study("--only", "base", name="own.toml:longer") == 0
    recipe = (folder / "out" / "recipe.toml").read_text("utf-8")
    assert "steps = 3" in recipe
    assert 'prompt = "{question}"' in recipe
    full = load_study("truthrl").full
    assert full.recipe["data"] == VARIANT_SETTINGS["retrieval"]["data"]  # the paper's main setting
    assert full.variant("no-retrieval").recipe["data"] == {}


def test_a_row_is_evaluated_on_each_set_of_the_papers_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dry("knowrl") == 0
    out = capfd.readouterr().out
    assert (
        "# eval base: 6,000 answers; the judge" in out
    )  # five samples of 300 questions of each of four sets
    words = shlex.split(next(line for line in out.splitlines() if line.startswith("factrl eval")))
    sets = words[2 : words.index("--samples")]
    full = load_study("knowrl").full
    metrics = [key.rpartition(":")[2] for key in full.columns.values()]
    for row, value in (("base", 0.75), ("paper", 0.5)):
        numbers = dict.fromkeys(metrics, Number(value, 0.0, 1.0, 8))
        evaluated(tmp_path / "evaluations" / row, dict.fromkeys(sets, numbers))
    full = full.model_copy(update={"steps": {"base": "", "paper": "train"}})
    lines = [*read_table(full, [tmp_path]).lines()]
    assert [*full.columns][2:] == ["ChineseSimpleQA", "GPQA", "AIME 2025"]
    assert lines[2] == ["", "-25.0 (-20.3) =", "-25.0", "-25.0 (-10.0) =", "-25.0 (-4.0) =", "-25.0 (+3.3) ≠"]


def test_fspos_seven_benchmarks_and_the_true_steps_are_one_table_at_temperature_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dry("fspo", "--held-out", "my-own.jsonl", "--judge", "http://h/v1#m") == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("factrl eval")]
    words = shlex.split(lines[0])
    assert all("--reasoning" in line and "sampling.temperature=1.0" in line for line in lines)
    full, sets = load_study("fspo").full, words[2 : words.index("--reasoning")]
    assert sets.pop() == "my-own.jsonl"
    assert sets == [key.rpartition(":")[0] for key in full.columns.values()][:-1]
    assert [*full.columns] == [
        *("GSM8K", "MATH-500", "AIME24", "AIME25", "TruthfulQA", "HaluEval-QA", "HalluQA", "true steps")
    ]
    for row, value in (("base", 0.25), ("fspo", 0.5)):
        number = Number(value, 0.0, 1.0, 8)
        own = {"my-own": {"accuracy": number, "true_steps": number}}
        evaluated(tmp_path / "evaluations" / row, {**{one: {"accuracy": number} for one in sets}, **own})
    full = full.model_copy(update={"steps": {"base": "", "fspo": "train"}})
    changes = [*read_table(full, [tmp_path]).lines()][2][1:]
    assert changes[-1] == "+25.0"
    assert [one for one in changes if "(" in one] == [
        f"+25.0 ({told:+.1f}) =" for told in full.rows["fspo"].values()
    ]


def test_several_held_out_files_are_one_table_with_their_mean_and_each(folder: Path) -> None:
    rows = [{"id": "rome", "question": "Which city is it?", "answers": ["rome"], "completion": "Rome"}]
    (folder / "easy.jsonl").write_text(json.dumps(rows[0]), "utf-8")
    assert study("--held-out", "easy.jsonl") == 0
    table = (folder / "out" / "table.md").read_text("utf-8")
    parts = [line.split(" [")[0] for line in table.splitlines() if line.startswith(("| **", "| base"))]
    assert parts[:6] == [
        *("| **mean of 2 sets** |  |  |  |  |", "| base | 66.7"),
        *("| **held** |  |  |  |  |", "| base | 33.3"),
        *("| **easy** |  |  |  |  |", "| base | 100.0"),
    ]
    assert table.count("(+10.0)") == 1  # the paper's number is of the mean
    assert "`factrl eval held.jsonl easy.jsonl --output out/evaluations/mine`" in table


def test_a_mean_of_sets_counts_each_alike_and_its_interval_is_theirs(tmp_path: Path) -> None:
    limits = {"large": Number(0.2, 0.16, 0.23, 900), "small": Number(0.6, 0.57, 0.64, 9)}
    for row in ("base", "mine"):
        evaluated(tmp_path / "evaluations" / row, {name: {"accuracy": one} for name, one in limits.items()})
    full = FullSettings(
        model="m",
        steps={"base": "", "mine": "train"},
        asks={"held_out": "questions"},
        rows={"mine": {}},
        columns={"mean": "accuracy", "one": "small:accuracy", "none": "ece"},
    )
    table = read_table(full, [tmp_path])
    assert next(iter(table.lines())) == ["base", "40.0 [37.5, 42.5]", "60.0 [57.0, 64.0]", "–"]
    assert {name: next(iter(one.lines()))[1:] for name, one in table.sets.items()} == {
        "large": ["20.0 [16.0, 23.0]", "–", "–"],
        "small": ["60.0 [57.0, 64.0]", "–", "–"],
    }


def test_further_judges_and_models_are_parts_of_the_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TruthRL's Tables 6 and 7: each judge of the same trained models, each backbone in a folder."""
    ran = list[Command]()

    def run(commands: Sequence[Command], *_: Any, **__: Any) -> list[dict[str, Any]]:
        for at, command in enumerate(commands):
            if command.name.startswith("eval"):
                evaluated(command.output, {"held": {"accuracy": Number(at / 100, 0.0, 1.0, 8)}})
        ran.extend(commands)
        return []

    monkeypatch.setattr("factrl.cli.study.run", run)
    (folder / "own.toml").write_text(
        OWN.replace("{held_out} --output", "{held_out} --model {trained} --output")
    )
    judges = [word for name in "xy" for word in ("--judge", f"http://h/v1#{name}")]
    assert study(*judges, "--model", "a/small", "--model", "a/large") == 0
    assert [command.name for command in ran[:6]] == [
        *("base", "eval base", "eval base by judge 2"),
        *("mine", "eval mine", "eval mine by judge 2"),
    ]
    assert ran[5].words == (
        *ran[4].words[:-1],
        "out/small/judge-2/evaluations/mine",
        "judge.url=http://h/v1#y",
    )
    for model in ("small", "large"):
        assert 'url = "http://h/v1#x"' in (folder / "out" / model / "recipe.toml").read_text("utf-8")
    table = (folder / "out" / "table.md").read_text("utf-8").splitlines()
    assert [line[2:].split(" [")[0] for line in table if line.startswith(("| **", "| base", "| mine"))] == [
        *("**small, judged by http://h/v1#x** |  |  |  |  |", "base | 1.0", "mine | 4.0"),
        *("**small, judged by http://h/v1#y** |  |  |  |  |", "base | 2.0", "mine | 5.0"),
        *("**large, judged by http://h/v1#x** |  |  |  |  |", "base | 1.0", "mine | 4.0"),
        *("**large, judged by http://h/v1#y** |  |  |  |  |", "base | 2.0", "mine | 5.0"),
    ]


def test_truthrls_baselines_sample_their_models_and_iterative_dpo_goes_on_from_dpo(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dry("truthrl") == 0
    out = capfd.readouterr().out
    assert "# rft: 64,000 answers" in out  # 64 of each of 1,000 questions
    lines = [line for line in out.splitlines() if line.startswith("factrl tune dpo")]
    started = [line.partition("--model ")[2].split()[0] for line in lines]
    names = ["dpo", *(f"iterative-dpo-{n}" for n in range(1, 5))]
    assert all(f"# {name}: 32,000 answers" in out for name in names)
    assert started[1:] == [f"out/runs/{name}/model" for name in names[:-1]]
    assert [line.partition("--output out/runs/")[2].split()[0] for line in lines] == names
    assert all(line.startswith("factrl tune dpo out/probed.jsonl") for line in lines)
    assert not any("--probe" in line for line in lines)  # whose samples are those of the start


def test_what_a_row_has_no_number_of_is_a_dash_and_no_change() -> None:
    known = {"value": 50.0, "low": 40.0, "high": 60.0}
    rows = {"base": [{"accuracy": known}], "sure": [{"accuracy": known, "ece": known}]}
    assert list(FullTable(["accuracy", "ece"], {"sure": {"ece": -5.0}}, rows, {}).lines()) == [
        ["base", "50.0 [40.0, 60.0]", "–"],
        ["sure", "50.0 [40.0, 60.0]", "50.0 [40.0, 60.0]"],
        ["", "+0.0", ""],
    ]
    seeds = [{"accuracy": {"value": value, "low": value, "high": value}} for value in (50.0, 60.0)]
    table = FullTable(["accuracy"], {}, {"base": seeds[:1] * 2, "two": seeds}, {})
    assert list(table.lines()) == [["base", "50.0 ± 0.0"], ["two", "55.0 ± 7.1"], ["", "+5.0"]]


def test_an_effect_is_a_row_whose_interval_is_apart_from_bases() -> None:
    def between(low: float, high: float) -> list[dict[str, dict[str, float]]]:
        return [{"accuracy": {"value": (low + high) / 2, "low": low, "high": high}}]

    rows = {"base": between(10, 20), "near": between(19, 30)}
    assert not FullTable(["accuracy"], {}, rows, {}).tells_apart()
    rows["apart"] = between(21, 30)
    assert FullTable(["accuracy"], {}, rows, {}).tells_apart()


def test_a_step_that_fails_is_said_and_the_same_command_goes_on(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = (folder / "held.jsonl").read_text("utf-8")
    (folder / "held.jsonl").write_text(whole.replace("completion", "said"), "utf-8")
    assert study() == 2
    assert "the step 'eval base' ended with exit code 2" in capfd.readouterr().err
    (folder / "held.jsonl").write_text(whole, "utf-8")
    assert study() == 0
    assert "base: factrl prepare" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "mien"], "--only 'mien' is no step; did you mean 'mine'?"),
        (["--claims", "held.jsonl"], "--claims held.jsonl: no step of own.toml reads it"),
        (["--gpu"], "--gpu is an option of the small world; leave --full out"),
        (["--small"], "--small: not allowed with argument --full"),
        (["--held-out", "far/held.jsonl"], "two of --held-out held.jsonl, far/held.jsonl have one name"),
        (["--model", "a/m", "--model", "b/m"], "two of --model a/m, b/m have one name"),
        (["--verl", "a=b"], "--verl and --verl-python need --engine verl"),
        (["--engine", "verl", "--verl-python", "no/python"], "there is no such program"),
        (["sampling.top_p=0.9"], "sampling.top_p=0.9: how a step samples and tunes stands in [full.steps]"),
        (["tune.beta=0.2"], "tune.beta=0.2: how a step samples and tunes stands in [full.steps]"),
    ],
)
def test_what_does_not_fit_is_one_error(
    folder: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert study(*words) == 2
    assert message in capfd.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("truthrl", ["--judge", "http://h/v1#m"], "--judge is an option of --full, the paper's own scale"),
        ("truthrl", ["--held-out", "held.jsonl"], "--held-out is an option of --full"),
        ("truthrl", ["--engine", "trl"], "--engine is an option of --full"),
        ("truthrl", ["--model", "a", "--model", "b"], "--model a, b: the small world starts from one"),
        ("rlcr", [], "rlcr has no rows on the small world; give --full"),
        ("own.toml", [], "own.toml has no rows on the small world"),
        ("truthrl:no-retrieve", ["--full"], "did you mean 'no-retrieval'?"),
        ("truthlr", ["--full"], "did you mean 'truthrl'?"),
        ("all", ["--full"], "`all` is of the small world"),
        ("small.toml", ["--full"], "small.toml has no [full]"),
        ("truthrl", ["full.model='m'"], "what stands in [full] is set in the file alone"),
    ],
)
def test_the_scales_are_told_apart(
    folder: Path, capfd: pytest.CaptureFixture[str], name: str, words: list[str], message: str
) -> None:
    Path("small.toml").write_text("title = 't'\ntask = 'short'\n[rows.random]\nreward = 'random'\n")
    assert main(["study", name, "--output", "out", "--dry-run", *words]) == 2
    said = capfd.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{base}", "{bse}", "full.steps.mine: {bse} is no file of the user's, and no step before it"),
        ("{out}/base", "{out/base", "full.steps.base: "),
        ('held_out = "q', 'warm = "q', "full.asks.held_out is missing"),
        ('held_out = "q', 'warm = "q', "full.asks.warm: no step uses it"),
        ("\nmine = {", "\nmien = {", "full.rows.mien is no step"),
        ("accuracy", "acuracy", "full.rows.mine.acuracy is no column"),
        ('model = "a/large-model"', "", "full.model is required"),
        ('base = "', 'start = "', "full.steps needs base"),
        (
            "prepare convert {base}",
            "prepare covert {base}",
            "the step 'mine': factrl prepare has no kind 'covert'",
        ),
        ("--to verl", "--to verl --x", "the step 'mine': unknown option '--x'"),
        ("\nprompt =", "\npromt =", "the step 'eval base': [full.recipe]: unknown key data.promt"),
        (
            "prepare convert {base} --to verl",
            TRAIN,
            "the step 'mine': paper 'truthrl' has no variant 'binry'",
        ),
        ("source =", "sorce =", "unknown key full.sorce; did you mean 'full.source'?"),
        ("recipe.train]\nsteps = 3", "rows.mine]\nspeed = 3", "full.variants.longer: "),
    ],
)
def test_a_mistake_in_the_file_is_found_before_anything_runs(
    folder: Path, capfd: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    assert OWN.count(old) >= 1
    (folder / "own.toml").write_text(OWN.replace(old, new, 1), encoding="utf-8")
    assert study() == 2
    assert message in capfd.readouterr().err
    assert not (folder / "out").exists()


def test_the_pages_file_is_one(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[1] / "docs" / "studies.md").read_text("utf-8")
    Path("mine.toml").write_text(page.partition('title="mine.toml"\n')[2].partition("```")[0], "utf-8")
    Path("my.py").write_text("import factrl\n@factrl.reward\ndef reward(e, c):\n    return {'x': 1.0}\n")
    assert dry("mine.toml") == 0
    assert [line.split()[1] for line in capfd.readouterr().out.splitlines() if line[0] != "#"] == [
        *("eval", "tune", "eval", "train", "eval")
    ]


def test_a_dry_run_prints_commands_and_asks(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert dry("own.toml", "--seeds", "2") == 0
    out, err = capfd.readouterr()
    assert "factrl prepare convert TRAIN --to trl --output out/seed-1/base.jsonl" in out
    assert "--train: questions of yours\nand --held-out: questions to evaluate on" in err
    assert not (folder / "out").exists()
    assert main(["study", "own.toml", "--full", "--output", "out", "--train", "train.jsonl"]) == 2
    assert "own.toml --full needs --held-out: questions to evaluate on" in capfd.readouterr().err


def test_a_value_that_is_lost_is_asked_before_anything_runs(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--warm", "warm.jsonl", "--judge", "http://localhost:1/v1#m"]
    assert study(*words, name="factreason") == 2
    assert "and train.beta=…: it has a KL penalty" in capfd.readouterr().err
    words += [
        "train.prompts_per_step=2",
        "--dry-run",
        "train.beta=0.001",
        "verifier.web=http://localhost:1",
        SETTINGS[-1],
    ]
    assert study(*words, name="factreason") == 0
    out, err = capfd.readouterr()
    assert "To be given" not in err
    steps = [
        line for line in out.splitlines() if line.startswith(("factrl tune", "factrl train", "factrl eval"))
    ]
    assert all("verifier.web=http://localhost:1" in line for line in steps)  # each of them verifies
    trained = [line for line in steps if not line.startswith("factrl eval")]
    assert ["warm.jsonl" in line for line in trained] == ["sft-seed" in line for line in trained]
    assert all(("train.jsonl" in line) != ("sft-seed" in line) for line in trained)  # other prompts
    compare = {"paper=factreason:detail-0.1", "paper=factreason:detail-0.01", "paper=factreason:paper"}
    assert all((SETTINGS[-1] in line) == bool(compare & {*line.split()}) for line in steps)
    evaluated = [line for line in steps if line not in trained]
    assert all(" --baseline out/evaluations/base" in line for line in evaluated)
    assert all(("train.beta" in line) == line.startswith("factrl train") for line in steps)
    assert dry("klcf") == 0
    assert "train.beta" not in capfd.readouterr().err  # its step says it
    assert dry("fspo") == 0
    assert "and verifier.judge=…: what judges sentences" in capfd.readouterr().err
    assert dry("fspo", "verifier.judge=weak") == 0  # which judges the true steps of an evaluation too
    evaluated = [line for line in capfd.readouterr().out.splitlines() if line.startswith("factrl eval")]
    assert all("verifier.judge=weak" in line for line in evaluated)


def test_a_setting_that_no_step_reads_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert dry("truthrl", "verifier.index=wiki", "judge.max_attempts=2") == 2
    assert capfd.readouterr().err.endswith("factrl: verifier.index=wiki: no step reads it\n")
    full = f"{OWN.partition('[full.recipe')[0]}[full.recipe]\npaper = 'truthrl'\n"
    steps = (
        "judge = { reward_model = 'm' }\n[full.steps]\nbase = ''\nsft = 'tune sft {train} --config {recipe}"
    )
    Path("own.toml").write_text(f"{full}{steps} --model {{base}} --evaluate {{held_out}}'\n", "utf-8")
    assert dry("own.toml") == 2
    assert "[full.recipe] judge.reward_model: no step reads it" in capfd.readouterr().err
    Path("own.toml").write_text(Path("own.toml").read_text("utf-8").replace("reward_model", "max_attempts"))
    Path("own.toml").write_text(Path("own.toml").read_text("utf-8").replace("'m'", "2"))
    assert dry("own.toml", "judge.timeout_call=200") == 0
    assert "judge.timeout_call=200" in capfd.readouterr().out


ANSWERED = {"question": "Which city is rome?", "answers": "Rome", "title": "Rome"}
REASONED = {**ANSWERED, "reasoned": "<think>It is.</think><answer>Rome</answer>"}
SHARED = {"conversations": [{"from": "human", "value": "Rome?"}, {"from": "gpt", "value": "Rome."}]}


@pytest.mark.parametrize(
    ("warm", "train", "message"),
    [
        (REASONED, ANSWERED, "the step 'sft': train.jsonl has no column 'reasoned'"),
        (SHARED, REASONED, "the step 'cold-start': warm.jsonl has no column 'reasoned'"),
        (REASONED, {**REASONED, "question": ""}, "the step 'sft': train.jsonl: no question in 1 of 1 rows"),
        (REASONED, None, "the step 'sft': train.jsonl has no rows"),
        (None, REASONED, "the step 'cold-start': warm.jsonl has no rows"),
        (
            REASONED,
            REASONED,
            "the step 'truthrl': train.jsonl: 1 of 1 questions can be used, fewer than the 8",
        ),
        (
            {"q": "Rome?", "reasoned": "Rome."},
            REASONED,
            "the step 'cold-start': warm.jsonl has no column for the question; columns: q, reasoned; say "
            "which one it is with data.columns.question=...; in a study, rename the column in the file",
        ),
    ],
)
@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_every_steps_rows_are_read_before_the_first_step(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    warm: Any,
    train: Any,
    message: str,
    words: tuple[str, ...],
) -> None:
    for name, row in (("warm", warm), ("train", train)):
        (folder / f"{name}.jsonl").write_text("" if row is None else json.dumps(row) + "\n", "utf-8")
    given = ["--warm", "warm.jsonl", "--train", "train.jsonl", "--judge", "http://localhost:1/v1#m"]
    given += ["--output", "out", "verifier.index=wiki", *words]
    assert main(["study", "knowrl", "--full", *given]) == 2
    assert message in capfd.readouterr().err
    assert not (folder / "out").exists()


def test_a_file_that_is_not_there_is_refused_and_a_step_alone_reads_its_own(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ["study", "knowrl", "--full", "--output", "out", "--judge", "http://localhost:1/v1#m"]
    given += [
        "verifier.index=wiki",
        "train.prompts_per_step=1",
        "train.micro_batch_size=10",
        "--warm",
        "warm.jsonl",
        "--train",
    ]
    (folder / "warm.jsonl").write_text(json.dumps(REASONED), "utf-8")
    assert main([*given, "there.jsonl"]) == 2
    assert "the step 'sft': there.jsonl does not exist" in capfd.readouterr().err
    assert main([*given, "train.jsonl", "--dry-run", "--only", "format"]) == 0  # which reads no reasoned
    out = capfd.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line[0] != "#"] == ["train"]


@pytest.mark.parametrize(
    "word", ["paper=fspo:outcome", "model.name=m", "data.train=x.jsonl", "run.dir=x", "dir = x", "seed=3"]
)
def test_what_makes_a_row_that_row_is_no_setting_of_the_users(
    folder: Path, capfd: pytest.CaptureFixture[str], word: str
) -> None:
    assert dry("fspo", "verifier.judge=weak", word) == 2
    key = word.partition("=")[0].strip()
    assert re.search(
        rf"^factrl: (run\.)?{key}=.*: the steps set it themselves$", capfd.readouterr().err, re.M
    )


def test_a_setting_of_the_users_leaves_the_rows_that_set_it(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dry("fspo", "verifier.judge=weak", "train.loss_type=dapo") == 0
    trained = [line for line in capfd.readouterr().out.splitlines() if line.startswith("factrl train")]
    assert all(("=dapo" in line) != ("=reinforce++" in line) for line in trained)


def test_a_policy_is_evaluated_with_the_prompt_and_the_length_that_it_is_trained_with(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("train.max_completion_length=99", "data.system=Be brief.", "train.beta=0.5")
    assert dry("truthrl", *words) == 0
    lines = capfd.readouterr().out.splitlines()
    for verb, count in (("train", 3), ("eval", 2)):
        steps = [line for line in lines if line.startswith(f"factrl {verb} ")]
        assert steps
        assert {sum(word.split("=")[0] in line for word in words) for line in steps} == {count}


def test_a_setting_may_be_short_and_spaced(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = ("train.beta=0.001", "verifier.web=http://localhost:1", "judge.preference_model=http://h/v1#b")
    short = ("beta = 0.001", "web= http://localhost:1", "preference_model =http://h/v1#b")
    written = list[str]()
    for words in (whole, short):
        assert dry("factreason", *words) == 0
        out, err = capfd.readouterr()
        assert "train.beta" not in err
        assert "verifier.web" not in err
        written.append(out)
    assert written[0] == written[1]
    assert dry("factreason", "beta") == 2
    assert "'beta' is not key=value" in capfd.readouterr().err


def test_a_user_gives_what_a_step_reads_and_what_is_lost_of_training_alone(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dry("knowrl", "verifier.index=wiki") == 0
    steps = [step.splitlines() for step in re.split("^# ", capfd.readouterr().out, flags=re.M)[1:]]
    found = [about.partition(":")[0] for about, _, command in steps if "verifier.index=wiki" in command]
    assert found == ["dpo", "facttune-fs", "format+fact", "no-refusal", "paper"]
    assert steps[1] == [
        "cold-start",
        "## paper = knowrl, data.system = Think the user's question through betwee…, model.lora_rank = 256, "
        "model.lora_alpha = 512, model.lora_target_modules = ['q_proj', 'v_proj'], train.epochs = 4.0, "
        "train.prompts_per_step = 16, train.learning_rate = 0.0001, train.lr_scheduler_type = cosine, "
        "train.warmup_steps = 0.1, train.max_completion_length = 1024, form = answer",
        steps[1][2],
    ]
    train = "train --config {recipe} --model {base} --data {train}"
    text = OWN.partition("[full.recipe")[0] + "[full.recipe]\npaper = 'factreason'\n[full.steps]\nbase = ''\n"
    seed = "s = 'tune sft-seed {train} --config {recipe} --model {base}'\n"
    for steps, asked in ((seed, False), (f"{seed}t = '{train}'\n", True)):
        Path("own.toml").write_text(text + steps, "utf-8")
        assert dry("own.toml", "--judge", "http://localhost:1/v1#m", "--train", "train.jsonl") == 0
        assert ("train.beta=…" in capfd.readouterr().err) == asked


def test_verl_trains_with_rewards_and_its_last_checkpoint_is_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dry("truthrl", "--engine", "verl", "--verl", "a=b") == 0
    lines = capfd.readouterr().out.splitlines()
    verbs = {line.split()[1] for line in lines if line.endswith("--engine verl --verl a=b")}
    assert verbs == {"train"}
    assert all(line.endswith("--engine verl --verl a=b") for line in lines if line.startswith("factrl train"))
    assert model_in(tmp_path) == tmp_path / "model"
    for step in (9, 10):
        (tmp_path / f"checkpoints/global_step_{step}/actor/huggingface").mkdir(parents=True)
    assert model_in(tmp_path).parts[-3] == "global_step_10"


@pytest.mark.parametrize("name", [*FULL, "truthrl:no-retrieval", "knowrl:skywork"])
def test_every_pipeline_prints_its_commands_and_what_the_judge_is_asked(
    folder: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    full = load_study(name.partition(":")[0]).full
    assert dry(name) == 0
    out, err = capfd.readouterr()
    lines = out.splitlines()
    steps = [line for line in lines if line.startswith("# ")]
    commands = [line for line in lines if line.startswith("factrl ")]
    rows = [step for step in full.steps if full.is_evaluated(step)]
    assert len(steps) == len(commands) == len([*filter(None, full.steps.values())]) + len(rows)
    for about, command in zip(steps, commands, strict=True):
        if "judge" not in full.asks or command.split()[1] in ("probe", "eval"):
            assert ("the judge: " in about) == ("judge" in full.asks)
    # With all that it asks for, nothing is asked, and every step takes the user's settings.
    files = [ask.replace("_", "-") for ask in full.asks if ask in FILES]
    given = [word for file in files for word in (f"--{file}", f"my-{file}.jsonl")]
    given += ["--judge", "http://localhost:1/v1#m"] if "judge" in full.asks else []
    given += [word for word in SETTINGS if f"{word.partition('=')[0]}=" in err.replace(" or ", "=")]
    assert dry(name, *given) == 0
    assert "To be given" not in capfd.readouterr().err
    assert not (folder / "out").exists()


def test_the_five_papers_have_both_scales() -> None:
    assert {*PAPERS} <= {*FULL}
    assert all(load_study(name).rows for name in PAPERS)


def test_klcfs_base_has_worked_examples_and_a_win_rate_is_against_it(tmp_path: Path) -> None:
    """What its stages have of the paper is in tests/stages.toml."""
    pipeline = Pipeline(load_study("klcf").full, {"warm": ["ten.jsonl"]}, judge="http://localhost:1/v1#m")
    recipe = str(pipeline.write_recipe(tmp_path))
    steps = {one.name: one.words for one in pipeline.commands(tmp_path, 0)}
    base = steps["base"]
    assert base[base.index("--demonstrations") + 1] == "ten.jsonl"
    asked = ["data.train=-", "model.name=m", *(word for word in base if "=" in word)]
    assert read_job(recipe, asked).settings.data.prompt == FEW_SHOT
    for words in [words for words in steps.values() if words[0] == "eval"]:
        assert words[words.index("--baseline") + 1] == str(tmp_path / "evaluations" / "base")
    [ranked] = [word for word in steps["grpo-factscore"] if word.startswith("paper=")]
    assert load_reward(ranked.removeprefix("paper=")) is factscore
    words = [word for word in steps["dpo-klc"] if "=" in word]
    given = ["tune.method=dpo", "tune.rule=klc", "model.name=m", "data.train=q"]
    told = read_tuning_job(recipe, [*given, *words]).settings
    assert told.reward["alpha"] == 0.4  # or the step would stop for want of weights


def test_knowrls_rows_are_what_the_paper_compares(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Zero-shot is the model untrained; R1's answers are preferred; facts are the reasoning's."""
    assert main(["study", "knowrl", "--full", "--output", str(tmp_path / "out"), "--dry-run"]) == 0
    parts = re.split("^# ", capfd.readouterr().out, flags=re.M)[1:]
    steps = {part.splitlines()[0].partition(":")[0]: part.splitlines()[-1] for part in parts}
    model, started = "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "runs/cold-start/model"
    assert f"--model {model}" in steps["eval base"]
    assert f"--model {model}" in steps["cold-start"]
    for row in load_study("knowrl").full.rows:
        assert started in steps[row], row
    assert "tune.chosen=reasoned" in steps["dpo"]
    assert "tune.claims_of=reasoning" in steps["facttune-fs"]
    assert "paper=knowrl:truthrl" in steps["truthrl"]
