"""What a run's judge has cost: kept over sessions, and stopped before a cap."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.errors import ConfigError, DataError
from factrl.job import read_job
from factrl.llm.spending import FILE, Account, Meter, Spending, Spent, judge_meter, read_account

PRICE = (1.0, 2.0)  # dollars for a million tokens
MILLION = 1_000_000


def spend(meter: Meter, tokens_in: int, tokens_out: int = 0) -> None:
    meter.calls += 1
    meter.tokens_in += tokens_in
    meter.tokens_out += tokens_out


def test_the_account_outlives_the_process(tmp_path: Path) -> None:
    meter = Meter()
    spending = Spending(meter, price=PRICE, cap=10)
    spend(meter, MILLION, MILLION)
    spending.note([spending.here()])
    spend(meter, MILLION)
    spending.note([spending.here()])
    spending.save(tmp_path)
    kept = read_account(tmp_path)
    assert kept == Account(Spent(2, 2 * MILLION, MILLION), Spent(1, MILLION, MILLION))

    resumed = Meter()
    later = Spending(resumed, price=PRICE, cap=10, before=kept)
    spend(resumed, MILLION)
    later.note([later.here()])
    assert later.account.total == Spent(3, 3 * MILLION, MILLION)
    assert later.account.dearest == kept.dearest
    assert not later.why_over()


def test_each_process_has_a_share_of_what_is_left() -> None:
    meter = Meter(max_cost_usd=Account().allowance(PRICE, 10.0, 2), price=PRICE)  # $5
    spending = Spending(meter, price=PRICE, cap=10)
    spend(meter, 2 * MILLION)
    spending.note([spending.here(), Spent()])
    spend(meter, 4 * MILLION - 1)  # of $4, half of what is left
    assert meter.no_more_requests() == ""
    spend(meter, 1)
    assert meter.no_more_requests()
    assert Account(Spent(1, 4 * MILLION, 0)).allowance(PRICE, 10.0, 4) == 1.5
    assert Account().allowance(PRICE, None, 1) is Account().allowance(None, 10.0, 1) is None


def test_a_run_stops_before_the_step_that_may_not_fit() -> None:
    spent, step = Spent(9, 6 * MILLION, 0), Spent(1, 3 * MILLION, 0)
    assert Account(spent, step).overdraft(PRICE, 9.0) == ""
    why = Account(spent, step).overdraft(PRICE, 8.9)
    assert why == "the judge has cost $6 of run.max_cost = $8.9, and one more step up to $3"
    assert Account(spent).overdraft(PRICE, 6.0)  # nothing is left, whatever a step costs
    assert Account(spent, step).overdraft(PRICE, None) == ""
    assert Account(spent, step).overdraft(None, 1.0) == ""


def test_a_damaged_account_is_no_zero(tmp_path: Path) -> None:
    assert read_account(tmp_path) == Account()
    (tmp_path / FILE).write_text('{"total": {"calls": 1}}', encoding="utf-8")
    with pytest.raises(DataError, match=r"spent.json cannot be read"):
        read_account(tmp_path)


JUDGE = ["paper=truthrl", "model.name=m", "data.train=q.jsonl", "judge.url=http://localhost:1/v1#m"]
PRICES = ["judge.price_in=1", "judge.price_out=2.0"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([*JUDGE, "run.max_cost=5"], "run.max_cost = 5 needs the judge's prices"),
        ([*JUDGE[:3], "run.max_cost=5"], "run.max_cost = 5 needs a judge that is paid for"),
        ([*JUDGE[:3], "judge.url=local", *PRICES, "run.max_cost=5"], "needs a judge that is paid for"),
        ([*JUDGE, "judge.price_in=1"], "judge.price_in needs judge.price_out"),
    ],
)
def test_a_cap_that_cannot_hold_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.max_cost|judge\.price") as error:
        read_job(None, words)
    assert problem in str(error.value)


def test_a_resumed_run_has_what_is_left(tmp_path: Path) -> None:
    meter = Meter()
    spending = Spending(meter, price=PRICE)
    spend(meter, 4 * MILLION)
    spending.note([spending.here()])
    spending.save(tmp_path)
    words = [*JUDGE, *PRICES, f"run.output={tmp_path}"]
    judge = read_job(None, [*words, "run.max_cost=10"]).judge
    client = judge_meter(judge)
    assert client is not None
    client.tokens_in = 6 * MILLION - 1
    assert client.no_more_requests() == ""
    client.tokens_in += 1
    assert client.no_more_requests()
    with pytest.raises(ConfigError, match=r"has cost \$4 of run.max_cost = \$5.*run.max_cost=MORE"):
        _ = read_job(None, [*words, "run.max_cost=5"]).judge
