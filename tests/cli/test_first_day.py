"""What somebody does on the first day: mistakes that get one clear line, and what is shown in a session."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import factrl as fx
from commands import process, write
from factrl.cli import main
from factrl.cli import train as train_verb
from factrl.errors import ConfigError, nearest
from factrl.runs.progress import Progress
from factrl.runs.rows import refuse_pipe
from factrl.train import plan as planning
from test_progress import Clock, Terminal
from test_progress import time as time

ROW = {"question": "Capital of Peru?", "answers": ["Lima"]}
DRY = ["--model", "m", "--dry-run", "train.prompts_per_step=2"]


pytestmark = pytest.mark.usefixtures("folder")


# -- The command line


def test_help_is_a_verb_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help"], ["--help"]):
        assert main(words) == 0
    first, second = capsys.readouterr().out.split("usage: ")[1:]
    assert first == second
    assert main(["help", "verify"]) == 0
    assert "usage: factrl verify" in capsys.readouterr().out
    assert main(["help", "prepare", "klcf"]) == 0


def test_nobody_is_asked_whether_they_meant_what_they_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    assert nearest("a.jsonl", ["a.jsonl", "b.jsonl"]) == "; did you mean 'b.jsonl'?"
    assert nearest("a.jsonl", ["a.jsonl"]) == ""
    Path("gone.jsonl").symlink_to("nowhere")
    assert main(["train", "truthrl", "--data", "gone.jsonl", *DRY]) == 2
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["two\nlines.jsonl", "two\rlines.jsonl", "\u2028.jsonl", "x\n\nfactrl: all is well"]
)
@pytest.mark.parametrize(
    "verb", ["train truthrl --model m --dry-run --data", "eval", "eval --paper truthrl", "show"]
)
def test_a_name_makes_no_line_of_its_own(verb: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), name]) == 2
    assert capsys.readouterr().err.rstrip("\n").count("\n") == 0


def test_several_problems_keep_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "truthrl", "run.seed=a\nb", "--dry-run"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert sum("run.seed" in line for line in lines) == 1
    assert lines[0].startswith("factrl: ")
    assert all(line.startswith("        ") for line in lines[1:])


LONG = "9" * 5_000_000


@pytest.mark.parametrize(
    "word", [f"run.seed={LONG}", f"--data={LONG}", f"judge.url={LONG}", LONG, f"{LONG}=1"]
)
def test_a_long_value_is_not_printed_whole(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "truthrl", "--model", "m", "--dry-run", word]) == 2
    err = capsys.readouterr().err
    assert len(err) < 5_000
    assert err.startswith("factrl: ")


def test_a_pipe_without_a_writer_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("p.jsonl")
    os.mkfifo("p.toml")
    for words in (
        ["eval", "p.jsonl"],
        ["train", "truthrl", "--data", "p.jsonl", *DRY],
        ["train", "p.toml", *DRY],
    ):
        assert main(words) == 2
        assert "is a named pipe, which may have no writer" in capsys.readouterr().err
    refuse_pipe(Path("/dev/stdin"))


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        ("--version", (1,)),
        ("train nothing", (2,)),
        ("eval rows.jsonl --paper truthrl --output o.jsonl", (0, 1)),
        ("eval rows.jsonl --paper truthrl --output o.jsonl", (0, 1, 2)),
    ],
)
def test_a_closed_descriptor_is_nowhere(words: str, closed: tuple[int, ...]) -> None:
    """And no file gets its number, into which others would write."""
    write("rows.jsonl", {**ROW, "completion": "x"})
    shell = " ".join(f"{number}>&-" for number in closed)
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m factrl {words} {shell}"],
        env={**os.environ, "PYTHONPATH": str(Path(fx.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (2 if words == "train nothing" else 0)
    assert "Traceback" not in done.stdout + done.stderr
    if "--paper" in words:
        assert [json.loads(line)["state"] for line in Path("o.jsonl").read_text().splitlines()] == ["floored"]


def test_ctrl_c_while_the_program_is_read_is_no_traceback() -> None:
    program = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'factrl.cli.train': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "import runpy; sys.argv[1:] = ['train']; runpy.run_module('factrl', run_name='__main__')\n"
    )
    done = process("-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "factrl: interrupted\n")


# -- Questions to train on


@pytest.mark.parametrize(
    ("rows", "pattern"),
    [
        ([ROW, {**ROW, "question": "Capital of Chile?"}], ""),
        ([ROW, ROW], "1 of 1 prompts stand in 2 rows"),
        ([ROW, {**ROW, "answers": ["lima ", "Lima, Peru"]}], "1 of 1 prompts stand in 2 rows"),
        ([ROW, {**ROW, "answers": ["Cusco"]}], "have no accepted answer in common, .*'Lima' .* and 'Cusco'"),
        ([ROW, ROW, {**ROW, "answers": ["Cusco"]}], "1 of 1 prompts stand in 3 rows; the rows of 1 have no"),
    ],
)
def test_questions_that_stand_twice_are_told(
    rows: list[dict[str, Any]], pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("q.jsonl", *rows)
    assert main(["train", "truthrl", "--data", "q.jsonl", *DRY]) == 0
    message = capsys.readouterr().err
    lines = [line for line in message.splitlines() if line.startswith("repeated")]
    assert len(lines) == bool(pattern)
    assert not pattern or re.search(pattern, lines[0])


def test_a_conversation_as_prompt_is_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of Peru?"}]
    write("q.jsonl", *({"prompt": prompt, "answer": name} for name in ("Lima", "Ciudad de los Reyes")))
    assert main(["train", "truthrl", "--data", "q.jsonl", "data.prompt={question}", *DRY]) == 0
    assert "prompt    Capital of Peru?\n" in capsys.readouterr().err


# -- What is not installed


@pytest.mark.parametrize(
    ("recipe", "absent", "message"),
    [
        ("small/truthrl", {"xllamacpp"}, "xllamacpp is not installed; run: pip install '.[local]'"),
        ("small/truthrl", {"gguf"}, "gguf is not installed; run: pip install '.[local]'"),
        ("small/truthrl", set(), ""),
    ],
)
def test_a_dry_run_misses_what_the_run_would(
    recipe: str,
    absent: set[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in (planning, train_verb):
        monkeypatch.setattr(module, "find_spec", lambda name: None if name in absent else name)
    assert main(["train", recipe, "--dry-run"]) == (2 if message else 0)
    assert message in capsys.readouterr().err


def test_without_a_trainer_a_dry_run_plans_for_another_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (planning, train_verb):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert main(["train", "small/truthrl", "--dry-run"]) == 0
    assert "not here  xllamacpp is not installed" in capsys.readouterr().err


# -- Progress


def test_the_time_left_is_known_however_slow_a_unit_is(monkeypatch: pytest.MonkeyPatch, time: Clock) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress("train", 4, stream) as bar:
        time.now += 300  # rich forgets speeds after half a minute
        bar.advance()
        bar._bar.refresh()  # type: ignore[attr-defined]
    assert "15:00 left" in stream.getvalue()
    assert "-:--:--" not in stream.getvalue()


# -- In Python


MISTAKES: dict[str, tuple[Any, str]] = {
    "several texts": (lambda: fx.verify(["a", "b"], docs=["x"]), r"one text, not a list; .*batch\(texts\)"),
    "nothing": (lambda: fx.verify(None), "one text, not a NoneType"),
    "a letter missing": (lambda: fx.verify("a", dcos=["x"]), "no argument 'dcos'; did you mean 'docs'"),
    "a knob missing": (lambda: fx.load_reward("truthrl").with_(wrnog=1), "did you mean 'wrong'"),
    "a name for a reward": (lambda: fx.to_trl("truthrl"), "'truthrl' is no reward"),
}


@pytest.mark.parametrize(("call", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_call_is_told(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_a_completion_is_a_text() -> None:
    with pytest.raises(TypeError, match="not a list"):
        fx.Completion([{"role": "assistant", "content": "x"}])  # type: ignore[arg-type]
