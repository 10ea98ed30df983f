"""The routes against their own description: whatever schemathesis makes of it, the answer is as told.

The examples are drawn from a fixed seed; the server behind them is the real one, with rules for a judge.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

pytest.importorskip("uvicorn")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of schemathesis' own dependencies
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import CHECKS, load_all_checks
    from schemathesis.python import asgi

from factrl import Grader, load_reward
from factrl.server import Service, make_api
from factrl.verifier import open_verifier
from serving import steps

ROUTES = {
    "/v1/score": "POST",
    "/v1/verify": "POST",
    "/v1/openrlhf/{reward}": "POST",
    "/v1/nemo_gym/{reward}/seed_session": "POST",
    "/v1/nemo_gym/{reward}/verify": "POST",
    "/health/live": "GET",
    "/health/ready": "GET",
}
EXAMPLES = {"POST": 12, "GET": 3}
# What a schema cannot say, such as lists of the same length, is refused with 422 as well; it has no refusals.
load_all_checks()
UNSAID = [CHECKS.get_one(name) for name in ("positive_data_acceptance", "status_code_conformance")]


@pytest.fixture(scope="module")
def api() -> Any:
    rewards = {"truthrl": load_reward("truthrl").with_(grade=Grader(None)), "steps": steps}
    verifier = open_verifier("local", judge="weak")
    return make_api(Service(rewards, None, verifier))


@pytest.fixture(scope="module")
def schema(api: Any) -> Any:
    return schemathesis.openapi.from_dict(api.openapi())


@pytest.fixture(scope="module")
def client(api: Any) -> Iterator[Any]:
    with asgi.get_client(api) as session:
        yield session


def test_all_routes_are_tested(schema: Any) -> None:
    assert dict.fromkeys(ROUTES) == dict.fromkeys(schema.raw_schema["paths"])


@pytest.mark.security("S33")
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("route", ROUTES)
def test_every_answer_is_as_described(schema: Any, client: Any, route: str, mode: str) -> None:
    operation, statuses = schema[route][ROUTES[route]], set()

    @hypothesis.given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    @hypothesis.settings(
        max_examples=EXAMPLES[ROUTES[route]],
        derandomize=True,
        phases=[hypothesis.Phase.generate],  # to shrink an example takes minutes
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def check(case: Any) -> None:
        if mode == "positive":  # what was made wrong stays so
            _name_a_reward(case)
        statuses.add(
            case.call_and_validate(
                base_url="http://testserver", session=client, excluded_checks=UNSAID
            ).status_code
        )

    if mode == "negative" and ROUTES[route] == "GET":
        pytest.skip("there is nothing to get wrong")
    check()
    assert statuses & {200, 422}


def _name_a_reward(case: Any) -> None:
    """One that exists, or nearly all answers would say that it does not."""
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("reward"), str) and body["reward"]:
        body["reward"] = ("truthrl", "steps")[len(body["reward"]) % 2]
    if "reward" in (case.path_parameters or {}):
        case.path_parameters["reward"] = "steps"
