"""The verbs that load a model: what they leave behind, and that their mistakes get one line too."""

from __future__ import annotations

import json
import re
import resource
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import small_run

from factrl.cli import main
from factrl.runs.folder import read_metrics
from factrl.train import model
from fault_server import closed_port

Train = Callable[..., int]
FEW = ["reward.answer=text", *small_run(save_steps=1)]


@pytest.fixture
def train(tiny_model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """`factrl train truthrl` with small settings, in an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> int:
        return main(["train", "truthrl", "--model", str(tiny_model), "--data", str(questions), *FEW, *words])

    return run


def test_a_package_that_is_not_there_is_all_that_is_said(
    train: Train, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("factrl.train.plan.find_spec", lambda name: None if name == "xllamacpp" else name)
    for more in ([], ["--dry-run"]):
        assert train("--judge", "local", *more) == 2
        [line] = capfd.readouterr().err.splitlines()
        assert line.startswith("factrl: xllamacpp is not installed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "./nothing"], "model.name = './nothing': there is no such folder"),
        (["--model", "no-such/model"], "model.name = 'no-such/model' cannot be loaded: "),
        (["--judge", "{closed}#m"], "{closed} could not be reached: "),
        (
            ["train.max_prompt_length=1"],
            "8 of 8 prompts have more than train.max_prompt_length = 1 tokens",
        ),
    ],
)
def test_a_mistake_gets_one_line_and_no_run(
    train: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    closed = closed_port()
    assert train(*[word.format(closed=closed) for word in words]) == 2
    out, err = capfd.readouterr()
    complaints = [line for line in err.splitlines() if line.startswith("factrl: ")]
    assert len(complaints) == 1
    assert message.format(closed=closed) in complaints[0]
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_train_then_eval_then_resume(
    train: Train, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--steps", "2", "--output", "here", "--seed", "1") == 0
    out, err = capsys.readouterr()
    run = Path(out.rstrip("\n"))
    assert run == Path("here")
    assert max(line["step"] for line in read_metrics(run)) == 2

    line = next(line for line in err.splitlines() if line.startswith("evaluate:"))
    words = shlex.split(line.removeprefix("evaluate:").replace("QUESTIONS.jsonl", str(questions)))
    assert main([*words[1:], "--json", "--limit", "5"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(Path("after/results.json").read_text())
    first = document["benchmarks"][questions.stem]
    assert (first["questions"], document["extract"]) == (5, "text")

    assert main(["eval", "after/samples.jsonl", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["benchmarks"]["samples"]["numbers"]
    assert again["accuracy"] == first["numbers"]["accuracy"]

    assert main(["train", "--resume", str(run), "--steps", "3"]) == 0
    assert capsys.readouterr().out == f"{run}\n"
    for more in ([], ["--steps", "3"], []):
        capsys.readouterr()
        before = (run / "model" / "model.safetensors").stat()
        assert main(["train", "--resume", str(run), *more]) == 0
        out, err = capsys.readouterr()
        assert (out, err) == (f"{run}\n", "nothing to do: 3 of 3 steps are done\n")
        assert (run / "model" / "model.safetensors").stat() == before
    assert [line["step"] for line in read_metrics(run) if "reward" in line] == [1, 2, 3]
    assert "steps = 3" in (run / "config.toml").read_text()


def test_a_function_of_trls_form_gets_what_trl_passes(
    tiny_model: Path, questions: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "def f(completions, completion_ids, trainer_state, **columns):\n"
        "    return [trainer_state.global_step + bool(ids) for ids in completion_ids]\n",
        encoding="utf-8",
    )
    words = ["--model", str(tiny_model), "--data", str(questions), *small_run(save_steps=2)]
    run = tmp_path / "run"
    assert main(["train", f"{own}:f", *words, "--steps", "2", "--output", str(run)]) == 0
    assert [line["reward"] for line in read_metrics(run) if "reward" in line] == [1.0, 2.0]


@pytest.mark.parametrize("size", [100, 5_000, 120_000], ids=["folder", "metrics", "checkpoint"])
def test_a_disk_that_fills_up_gets_one_line_and_the_run_goes_on(
    train: Train, capfd: pytest.CaptureFixture[str], size: int
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        assert train("--steps", "2") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    err = capfd.readouterr().err
    assert "Traceback" not in err
    [line] = [line for line in err.split("\n") if line.startswith("factrl: ")]
    assert "runs" in line
    if size > 100:
        assert re.search(r"--output runs/truthrl-\S+ goes on", line), line
    for run in Path("runs").iterdir() if size == 120_000 else ():
        assert main(["train", "--resume", str(run)]) == 0
        assert [line["step"] for line in read_metrics(run) if "reward" in line] == [1, 2]


def test_a_process_of_several_leaves_their_group_while_python_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, threads of the group abort one run in many when it is done (SIGABRT)."""
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr(model.atexit, "register", at_exit.append)
    model.for_command_line()
    group = model.torch.distributed
    group.init_process_group("gloo", init_method=f"file://{tmp_path}/met", rank=0, world_size=1)
    for leave in at_exit:
        leave()
    assert not group.is_initialized()
