"""The contract of tests/contract.py on the routes of `factrl serve`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from contract import ANSWERS, QUESTION, completions, contract, differences, worth

from factrl import remote
from factrl.server import Service
from serving import PARIS, Running

TEXTS = completions()
ROW = {"question": QUESTION, "answers": list(ANSWERS)}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    running = Running(Service({"contract": contract}, None, None))
    yield running
    running.stop()


def test_the_completions_are_of_every_kind() -> None:
    states = [contract(PARIS.__class__(QUESTION, ANSWERS), text).state for text in TEXTS]
    assert len(set(TEXTS)) == len(TEXTS) == 500
    assert {state: states.count(state) > 20 for state in states} == dict.fromkeys(
        ("scored", "masked", "floored"), True
    )


def test_the_client_of_the_server_gives_what_the_reward_does(server: Running) -> None:
    assert not differences(worth(TEXTS, remote(server.url, "contract")), TEXTS)


def test_openrlhf_gets_each_number_and_a_refusal_for_none(server: Running) -> None:
    rewards: list[float | None] = []
    for text in TEXTS:
        body = {"query": [f"{QUESTION}\n{text}"], "prompts": [f"{QUESTION}\n"], "labels": [json.dumps(ROW)]}
        status, answer = server.ask("/v1/openrlhf/contract", body)
        assert status in (200, 503)
        rewards.append(answer["rewards"][0] if status == 200 else None)
    assert not differences(rewards, TEXTS)
