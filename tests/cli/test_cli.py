"""The command line: what every verb prints, and the one line that every mistake gets."""

from __future__ import annotations

import json
import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from commands import process, write
from factrl import cli
from factrl.cli import main, options, study
from factrl.cli.show import knob_help
from factrl.errors import OverBudget, SetupError, TooManyMasked
from factrl.evals.ask import EvalSettings
from factrl.job import read_job
from factrl.papers import load_paper, load_reward, paper_names, settings_of
from factrl.runs.config import dump_toml, settable
from factrl.runs.settings import RunSettings
from factrl.train.plan import Plan, make_plan
from fault_server import FaultServer, answers, closed_port, says

VERBS = {
    *("demo", "verify", "index", "train", "tune", "report", "eval", "ask"),
    *("prepare", "stress", "study", "serve", "show", "doctor"),
}
KINDS = {"klcf", "retrieve", "convert"}
SMALL = ["--model", "m", "train.prompts_per_step=1"]
ROWS: list[dict[str, Any]] = [
    {"id": "1", "question": "Capital of Peru?", "answers": ["Lima"], "completion": "Lima"},
    {"id": "2", "question": "Capital of Chile?", "answers": ["Santiago"], "completion": "I don't know"},
    {"id": "3", "question": "Capital of Norway?", "answers": ["Oslo"], "completion": "Bergen"},
    {"id": "4", "question": "Capital of Japan?", "answers": ["Tokyo"], "completion": None},
]
OWN = """
from factrl import Example, reward

@reward
def short(example, completion):
    return {"short": float(len(completion) < 9)}
"""


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    write("questions.jsonl", *ROWS)
    write("bare.jsonl", {"id": "1", "question": "Capital of Peru?", "answers": []})
    Path("good.toml").write_text(
        'paper = "truthrl"\n[model]\nname = "m"\n[data]\ntrain = "questions.jsonl"\n'
    )
    Path("typo.toml").write_text(
        'paper = "truthrl"\n[model]\nname = "m"\n[data]\ntrain = "q"\n[train]\nstesp = 3\n'
    )
    Path("own.py").write_text(OWN)
    Path("out").mkdir()


# Mistakes

MISTAKES: list[tuple[str, str]] = [
    # one of each kind; what docs/troubleshooting.md shows, settings, data and papers have tests of their own
    ("train good.toml reward.abstian=1", "'abstain'"),
    ("train typo.toml", "'train.steps'"),
    ("train --config knowrl.toml", "'recipes/knowrl/recipe.toml'"),
    ("train --config small/truthlr", "'small/truthrl'"),
    ("train god.toml", "'good.toml'"),
    ("train good.toml --config typo.toml", "two recipes"),
    ("train good.toml paper=truthrl:reasoning-additive", "needs a judge"),
    ("train good.toml --data bare.jsonl", "row 1 (id 1)"),
    ("train --resume outt", "'out'"),
    ("train truthrl --resume out", "leave out 'truthrl'"),
    ("train threshold --model m --data questions.jsonl", "`threshold`"),
    ("eval questions.jsonl grade.column=completoin", "'completion'"),
    ("eval questions.jsonl --judge {closed}#m", "{closed}"),
    ("eval questions.jsonl --model m", "--output FOLDER"),
    ("eval questions.jsonl data.limit=3", "--model"),
    ("eval questions.jsonl reward.wrong=3", "--paper"),
    ("eval questions.jsonl --paper truthrl --output s", ".jsonl"),
    ("eval questions.jsonl --paper truthrl --output ./questions.jsonl", "questions.jsonl exists"),
    ("show truthrl reward.verifier=zzz", "'zzz'"),
    ("show truthrl --settings", "--settings"),
    ("prepare klcf questions.jsonl --model {closed}#m --output k", "without evidence"),
    ("prepare retrieve questions.jsonl --output o.jsonl --withhold half", "'half'"),
    ("prepare retrieve questions.jsonl --output o.jsonl --distractors=-1", "'-1'"),
    ("prepare retrieve questions.jsonl --output o.csv", ".jsonl"),
    ("prepare retrieve questions.jsonl --index nowhere --output o.jsonl", "nowhere"),
    ("help verifi", "'verify'"),
    ("prepare klfc", "'klcf'"),
    ("prepare", "klcf, retrieve"),
    ("train truthrl --modle m", "'--model'"),
    ("train good.toml --model", "--model"),
    ("eval", "FILE"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_gets_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    before = sorted(folder.rglob("*"))
    closed = closed_port()
    assert main([word.format(closed=closed) if "{closed}" in word else word for word in line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("factrl: ")
    assert err.count("\n") == 1
    assert message.replace("{closed}", closed) in err
    assert sorted(path for path in folder.rglob("*") if "__pycache__" not in str(path)) == before


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["eval", "x.jsonl", "--judge", ""], "--judge"),
        (["train", "truthrl", "--model="], "--model"),
        (["verify", "a text", "--docs", "d.txt", " "], "--docs"),
        (["eval", ""], "FILE"),
    ],
)
def test_an_empty_value_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], name: str) -> None:
    assert main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert name in line
    assert "empty" in line


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["train", "good.toml", "train.prompts_per_step=1"], "train"),
        (["eval", "questions.jsonl", "--model", "m", "--output", "x"], "train"),
        (["demo"], "demo"),
    ],
)
def test_an_extra_that_is_not_installed(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    extra: str,
) -> None:
    # With all of the extra missing, the first package that is looked for is the one that is named.
    with mock.patch.dict(sys.modules, dict.fromkeys(("torch", "transformers", "datasets", "peft", "trl"))):
        for name in [
            name for name in sys.modules if name.startswith(("factrl.train.", "factrl.studies.engine"))
        ]:
            del sys.modules[name]
        assert main(words) == 2
    assert (
        capsys.readouterr().err
        == f"factrl: torch is not installed; run: pip install '.[{extra}]' in a clone of factrl\n"
    )
    assert not (folder / "runs").exists()


def test_an_old_trl_is_refused_and_a_newer_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "version_of", lambda name: "0.29.1")
    with pytest.raises(SetupError, match=r"trl 0\.29\.1 is installed, and 1\.0 is needed"):
        options.needs_extra("train.online", "train")
    monkeypatch.setattr(options, "version_of", lambda name: "1.99.0")
    monkeypatch.setattr(options.importlib, "import_module", lambda name: name)
    options.needs_extra("train.online", "train")
    assert "trl 1.99.0 is newer than 1.16" in capsys.readouterr().err


# Endings


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt("stopped after step 3"), 130, "stopped after step 3"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (TooManyMasked("step 3: more than 50%"), 3, "step 3: more than 50%"),
        (OverBudget("the judge has cost 5 USD"), 4, "the judge has cost 5 USD"),
    ],
)
def test_endings_have_codes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(study, "find_spec", lambda name: name)
    replace(monkeypatch, "factrl.studies.engine", MODEL="", run_studies=mock.Mock(side_effect=error))
    assert main(["demo", "--output", str(tmp_path)]) == code
    assert capsys.readouterr().err.splitlines()[-1] == f"factrl: {message}"


def test_a_reader_who_leaves_is_no_error() -> None:
    read, wrote = os.pipe()
    os.close(read)
    done = process("-m", "factrl", "show", "--settings", stdout=wrote)
    os.close(wrote)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_terminal_without_the_letters_is_no_error() -> None:
    command = ["-m", "factrl", "show", "truthrl:reasoning-additive"]
    done = process(*command, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u03bb of the additive form" in done.stdout


def replace(monkeypatch: pytest.MonkeyPatch, module: str, **names: object) -> None:
    """Put a module of functions in the place of one that needs torch, and of the one that quietens it."""
    monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**names))  # type: ignore[arg-type]
    quiet = types.SimpleNamespace(for_command_line=lambda: None)
    monkeypatch.setitem(sys.modules, "factrl.train.model", quiet)  # type: ignore[arg-type]


# Help


def test_the_help_of_all_says_of_each_verb_what_its_own_says() -> None:
    _, verbs = cli.all_parsers()
    told = {name: about for group in cli.GROUPS.values() for name, (_, about) in group.items()}
    own = {name: str(parser.description).split("\n\n") for name, parser in verbs.items()}
    for name, about in told.items():
        assert own[name][0] == f"{about[0].upper()}{about[1:]}."
    for name, (_, examples) in own.items():
        assert examples.startswith("examples:\n  ")
        assert len(re.findall(r"^  .*factrl", examples, re.M)) >= 2, name


def test_the_help_of_all_loads_no_verb() -> None:
    done = process(
        "-c", "import sys, factrl.cli as c; c.main(['--help']); sys.stderr.write(str(*[{*sys.modules}]))"
    )
    assert "factrl.cli.terminal" in done.stderr
    assert "factrl.llm" not in done.stderr
    assert "pydantic" not in done.stderr


def test_help_lists_the_verbs_and_each_fits_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["--help"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert {*re.findall(r"^  (\w+) +", out, re.M)} == VERBS
        assert len(out.splitlines()) <= 23
        assert max(map(len, out.splitlines())) <= 80
    assert main(["prepare", "--help"]) == 0
    assert {*re.findall(r"^  factrl prepare (\w+)  ", capsys.readouterr().out, re.M)} == KINDS
    monkeypatch.setenv("COLUMNS", "100")
    for verb in (*VERBS, *(f"prepare {kind}" for kind in KINDS)):
        assert main([*verb.split(), "--help"]) == 0
        out = capsys.readouterr().out
        assert len(out.splitlines()) <= 40, f"{verb}: one screen"
        assert verb not in ("train", "eval") or "factrl show --settings" in " ".join(out.split())


def test_nothing_here_loads_torch() -> None:
    code = (
        "import sys; from factrl.cli import main; "
        "codes = [main(['show', 'truthrl']), main(['eval', 'questions.jsonl']), "
        "main(['train', 'good.toml', 'train.prompts_per_step=1', '--dry-run'])]; "
        "sys.exit(str(codes) if any(codes) else 'torch' in sys.modules)"
    )
    done = process("-c", code)
    assert (done.returncode, done.stderr.partition("Traceback")[1]) == (0, "")


# train


def test_a_dry_run_prints_what_would_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    options = ["--data", "questions.jsonl", "train.epochs=3", "--model", "m", "train.prompts_per_step=2"]
    assert main(["train", "truthrl:binary", *options, "reward.wrong=-0.5", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    Path("again.toml").write_text(out, encoding="utf-8")
    again = read_job("again.toml", []).settings
    assert (again.paper, again.train.prompts_per_step, again.train.epochs) == ("truthrl:binary", 2, 3)
    assert again.reward == {**load_reward("truthrl:binary").knobs, "wrong": -0.5}
    assert again.data.prompt == settings_of("truthrl")["data"]["prompt"]
    lines = dict(line.split(maxsplit=1) for line in err.splitlines())
    assert lines["questions"] == "4 to train on, 0 to evaluate on"
    assert lines["prompt"].startswith("Answer the question below. ")
    assert lines["steps"] == "6 of 2 questions with 8 completions"
    assert "96 completions" in lines["to"]
    assert lines["judge"].startswith("none: rules alone")
    Path("again.toml").unlink()
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "steps", "completions"),
    [
        ([], 4, 32),
        (["train.epochs=0.3"], 2, 16),  # 1.2 steps: transformers does the second one too
        (["train.prompts_per_step=3"], 1, 24),
        (["train.num_iterations=2", "train.steps=3"], 3, 16),
    ],
)
def test_a_plan_counts(words: list[str], steps: int, completions: int) -> None:
    plan = make_plan(read_job("good.toml", [SMALL[2], *words]))
    assert (plan.steps, plan.completions) == (steps, completions)


@pytest.mark.parametrize(
    "words",
    [
        ["truthrl", "--config", "good.toml"],
        ["good.toml", "paper=truthrl"],
        ["own.py:short", "--config", "good.toml", "paper=truthrl"],
    ],
)
def test_recipe_and_paper_in_any_form(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["train", *words, "--dry-run", *SMALL]) == 0
    assert 'paper = "truthrl"\n' in capsys.readouterr().out


def test_a_small_recipe_is_found_by_name_from_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["small/truthrl"], ["--config", "small/truthrl"]):
        assert main(["train", *words, "--dry-run"]) == 0
        assert "SmolLM2-135M-Instruct" in capsys.readouterr().out
    assert main(["train", "small/truthrl", "--dry-run", "--data", "none.jsonl"]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def trains_nothing(monkeypatch: pytest.MonkeyPatch) -> list[RunSettings]:
    """Replace the training; returns the settings that it will be called with."""
    calls: list[RunSettings] = []

    def train(plan: Plan, tell: object) -> Path:
        calls.append(plan.settings)
        return Path("runs/my run")

    replace(monkeypatch, "factrl.train.online", train=train)
    return calls


def test_train_says_where_the_run_is_and_what_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = trains_nothing(monkeypatch)
    options = ["--judge", "http://localhost:1/v1#j", "--output", "new", "--seed", "5"]
    assert main(["train", "good.toml", *SMALL, *options]) == 0
    out, err = capsys.readouterr()
    assert out == "runs/my run\n"
    assert "factrl eval QUESTIONS.jsonl --model 'runs/my run/model' --config 'runs/my run/config.toml'" in err
    assert "factrl train --resume 'runs/my run'" in err
    assert (calls[0].judge.url, calls[0].run.output, calls[0].run.seed) == (options[1], "new", 5)


def test_resume_takes_the_settings_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = trains_nothing(monkeypatch)
    Path("out/config.toml").write_text(dump_toml(read_job("good.toml", ["run.seed=9", *SMALL[2:]]).settings))
    assert main(["train", "--resume", "out"]) == 0
    assert main(["train", "--resume", "out", "train.steps=20"]) == 0
    assert main(["train", "good.toml", "run.seed=9", *SMALL, "--output", "out"]) == 0
    assert [(c.run.output, c.run.seed, c.train.steps) for c in calls] == [
        ("out", 9, None),
        ("out", 9, 20),
        ("out", 9, None),
    ]
    capsys.readouterr()
    for other in (["--seed", "8"], ["train.learning_rate=0.5"], ["--output", "elsewhere"]):
        assert main(["train", "--resume", "out", *other]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert other[0].strip("-").partition("=")[0] in line
    Path("out/done.json").write_text('{"steps": 20}')
    Path("out/model").mkdir()
    for words in (["--resume", "out"], ["--resume", "out", "--steps", "20"]):
        assert main(["train", *words]) == 0
        assert capsys.readouterr().err == "nothing to do: 20 of 20 steps are done\n"
    assert len(calls) == 3
    Path("out/checkpoints/checkpoint-20").mkdir(parents=True)
    Path("out/checkpoints/checkpoint-20/complete").touch()
    assert main(["train", "--resume", "out", "--steps", "21"]) == 0
    assert len(calls) == 4


# eval


def test_eval_asks_the_judge_and_json_is_all_of_stdout_and_in_the_folder(
    serve: Callable[..., FaultServer], capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(says("ok"), says("Bergen is not Oslo.\nVERDICT: incorrect"))
    assert main(["eval", "questions.jsonl", "--judge", f"{server.url}#j", "--json", "--output", "out/n"]) == 0
    assert len(server.requests) == 2  # the preflight, and the one answer that rules cannot decide
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(Path("out/n/results.json").read_text())
    numbers = document["benchmarks"]["questions"]
    assert (numbers["source"], document["extract"]) == ("questions.jsonl", "text")
    assert f"{server.url}#j" in document["judge"]
    assert numbers["numbers"]["truthfulness"]["value"] == pytest.approx((1 - 1) / 3)
    assert numbers["masked"] == {"no_completion": 1}
    rows = [json.loads(line) for line in Path("out/n/samples.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["1", "2", "3", "4"]
    assert rows[2]["how"] == "judge"


def test_eval_where_nothing_could_be_graded(
    serve: Callable[..., FaultServer], capsys: pytest.CaptureFixture[str]
) -> None:
    write("hard.jsonl", *[{**row, "completion": "Bergen"} for row in ROWS[:2]])
    server = serve(says("ok"), answers(400, {"error": {"message": "gone\x1b[31m"}}))
    assert main(["eval", "hard.jsonl", "--judge", f"{server.url}#j", "--output", "out/n"]) == 3
    out, err = capsys.readouterr()
    assert "http_400 2" in out
    assert "factrl: none of the answers of hard could be graded\n" in err
    assert json.loads(Path("out/n/results.json").read_text())["benchmarks"]["hard"]["masked"] == {
        "http_400": 2
    }
    assert "\x1b" not in out + err


# show


def test_every_knob_is_explained() -> None:
    for name in paper_names():
        for reward in (paper := load_paper(name)).variants.values():
            assert {*knob_help(reward, paper)} == {*reward.knobs}


def test_show_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--settings"]) == 0
    out = capsys.readouterr().out
    lines = dict(re.findall(r"^(\S+): (.+)\n    \S.*$", out, re.M))
    assert {*lines} == {*settable(RunSettings), *settable(EvalSettings)}
    assert lines["train.steps"] == "whole number, default none"
    assert lines["model.name"] == "text, required"
    assert lines["model.lora_target_modules"] == 'text or list, default "all-linear"'
    assert lines["train.bf16"] == 'auto or true or false, default "auto"'
