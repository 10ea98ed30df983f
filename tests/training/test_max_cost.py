"""A run that stops before its judge costs too much, and goes on when it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny import small_run

from factrl.cli import main
from factrl.llm.spending import read_account
from factrl.rewards.grading import OFFER_PROMPT
from factrl.runs.folder import read_metrics
from factrl.train.callbacks import last_checkpoint
from fault_server import FaultServer, Handler, answers, completion

FEW = [
    "reward.answer=text",
    "data.prompt={question}",
    *small_run(save_steps=100),
    "verifier.cache=false",
    "judge.price_in=1000000",  # dollars for a million tokens: a call of 1 + 1 tokens costs 3 dollars
    "judge.price_out=2000000",
]
VERDICT = "It names somebody else.\nVERDICT: incorrect"
USAGE = {"prompt_tokens": 1, "completion_tokens": 1}


def reply(handler: Handler) -> None:
    """Every text offers an answer, a wrong one."""
    asked = str(handler.asked.body["messages"][0]["content"])
    said = "VERDICT: offers" if asked.startswith(OFFER_PROMPT[:80]) else VERDICT
    answers(200, completion(said, usage=USAGE))(handler)


@pytest.fixture
def judge() -> Iterator[FaultServer]:
    server = FaultServer(reply)
    yield server
    server.close()


@pytest.fixture
def train(
    tiny_model: Path, questions: Path, judge: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    words = ["--model", str(tiny_model), "--data", str(questions), "--judge", f"{judge.url}#judge", *FEW]
    return lambda *more: main(["train", "truthrl", *words, *more])


def only_run() -> Path:
    (run,) = Path("runs").iterdir()
    return run


def test_a_run_stops_before_its_cap_and_goes_on_when_it_is_raised(
    train: Callable[..., int], judge: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step costs at most 8 calls of $3, two for each text, so $80 hold two steps or more."""
    assert train("--steps", "7", "run.max_cost=80") == 4
    err, run = capsys.readouterr().err, only_run()
    account = read_account(run)
    assert len(judge.requests) == account.total.calls
    spent, step = account.total.cost((1e6, 2e6)), account.dearest.cost((1e6, 2e6))
    assert spent <= 80 < spent + step
    checkpoint = last_checkpoint(run / "checkpoints")
    assert checkpoint is not None
    done = checkpoint[1]
    assert 2 <= done < 7
    assert [row["step"] for row in read_metrics(run) if "reward" in row] == list(range(1, done + 1))
    assert all(not row.get("masked/budget") for row in read_metrics(run))
    assert f"factrl: step {done}: the judge has cost ${spent:.4g} of run.max_cost = $80" in err
    assert f"factrl train --resume {run} run.max_cost=MORE" in err
    assert "Traceback" not in err

    asked = len(judge.requests)
    assert main(["train", "--resume", str(run)]) == 2
    assert "to go on, raise it: run.max_cost=MORE" in capsys.readouterr().err
    assert len(judge.requests) == asked

    assert main(["train", "--resume", str(run), "run.max_cost=1000"]) == 0
    assert [row["step"] for row in read_metrics(run) if "reward" in row] == list(range(1, 8))
    assert read_account(run).total.calls == len(judge.requests) > asked


def test_a_cap_below_one_step_is_held_by_the_client(
    train: Callable[..., int], judge: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in flight is paid for; what is not asked any more is masked, and the run stops."""
    assert train("--steps", "20", "run.max_cost=3.5", "judge.max_concurrency=1") == 4
    assert len(judge.requests) == 2  # the question whether it is there, and one verdict: 6 dollars
    metrics = [row for row in read_metrics(only_run()) if "reward" in row]
    assert len(metrics) == 1
    assert metrics[0]["masked/budget"] > 0
    assert "a checkpoint was saved" in capsys.readouterr().err
