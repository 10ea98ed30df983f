"""The same rewards over HTTP, for any trainer: `factrl serve`; `factrl.rewards.remote` is the other end."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Annotated, Any

import anyio
import anyio.to_thread
import uvicorn
from fastapi import FastAPI, HTTPException, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic_core import to_jsonable_python

from factrl import __version__
from factrl.errors import ConfigError, DataError, FactrlError, RewardBug, nearest
from factrl.job import REWARD_ALONE, Job, open_judge, read_job
from factrl.llm import LLM, preflight
from factrl.llm.bodies import BROKEN, FAULT
from factrl.rewards import Reward
from factrl.rewards.needs import Supplier, outside_training, supply
from factrl.rewards.remote import TOKEN
from factrl.runs.data import label_example, to_example
from factrl.runs.settings import AskSettings
from factrl.text.escape import visible
from factrl.text.messages import completion_of, last_message, reasoning_of, text_of, with_reasoning
from factrl.types import Completion, Example, Passage
from factrl.verifier import Verifier

from .gate import BUSY, CONCURRENCY, IDLE_SECONDS, Gate, is_loopback  # noqa: F401  for `factrl serve`
from .page import CheckPage
from .schema import (
    NeMoGymRequest,
    OpenRLHFReply,
    OpenRLHFRequest,
    ScoreReply,
    ScoreRequest,
    VerifyRequest,
)

_LOG = logging.getLogger("factrl")
SETTINGS = "FACTRL_SERVE"  # the variable with which `factrl serve` configures its workers; holds no key
WORKING = 8  # requests that are worked on at the same time
READY_SECONDS = 10.0  # how long the result of a readiness check is kept
_ECHO = 400  # characters of an error
_MASKED = "a sample could not be graded, and OpenRLHF has no word for that; try again"
_PROBE = Passage("Paris is the capital of France.")


Name = Annotated[str, Path(max_length=256)]


def read_jobs(options: Mapping[str, Any]) -> dict[str, Job]:
    """The job of every reward that is served, by its name on the wire; of the verifier alone, by "".

    Args:
        options: `rewards`, a list of specs; `config`, a recipe or None; `overrides`, a list of `key=value`.

    Raises:
        ConfigError: what the user must change.
    """
    jobs: dict[str, Job] = {}
    for spec in options["rewards"]:
        if spec in jobs:
            raise ConfigError(f"the reward {spec!r} is named twice")
        jobs[spec] = read_job(options["config"], [*options["overrides"], *REWARD_ALONE, f"paper={spec}"])
        if why := outside_training(jobs[spec].checked()):
            raise ConfigError(f"the reward {spec!r} cannot be served: {why}")
    if not jobs:  # the page alone
        jobs[""] = read_job(options["config"], [*options["overrides"], *REWARD_ALONE], AskSettings)
    return jobs


def open_service(options: Mapping[str, Any]) -> Service:
    """Open judge and verifier, and supply the rewards.

    Args:
        options: as for `read_jobs`; `verify`, whether texts are verified also when no reward does;
            `page`, whether there is a page for it.

    Raises:
        SetupError: what the user must change.
    """
    judges: dict[str, Any] = {}
    verifiers: dict[str, Any] = {}
    rewards: dict[str, Reward] = {}
    for name, job in read_jobs(options).items():
        settings = job.settings
        judge_key = settings.judge.model_dump_json()
        if judge_key not in judges:
            judges[judge_key] = open_judge(settings.judge)
        supplier = Supplier(judges[judge_key], settings.judge, settings.verifier)
        checked = settings.verifier.model_dump_json() + judge_key
        reward = job.reward if name else None
        if checked not in verifiers and (reward is None or "verify" in reward.missing or options["verify"]):
            verifiers[checked] = supplier.verify()
        if reward is not None:
            if "verify" in reward.missing:  # rewards with equal settings share a verifier
                reward = reward.with_(verify=verifiers[checked])
            rewards[name] = supply(reward, supplier=supplier)
    judge = next((judge for judge in judges.values() if judge is not None), None)
    verifier = next(iter(verifiers.values()), None)
    return Service(rewards, judge, verifier, page=options["page"])


class Service:
    """The rewards of a server; the methods that routes name block the calling thread.

    Args:
        rewards: name on the wire -> reward, its resources supplied.
        judge: the language model among the resources, if there is one.
        verifier: for `/v1/verify`, if there is one.
        page: whether a browser gets a page to check texts with it.
    """

    def __init__(
        self,
        rewards: Mapping[str, Reward],
        judge: LLM | None,
        verifier: Verifier | None,
        *,
        page: bool = False,
    ) -> None:
        self.rewards, self._judge, self._verifier = rewards, judge, verifier
        self.page = CheckPage(verifier) if page and verifier is not None else None
        self._ready: tuple[float, str] = (float("-inf"), "")
        self._health_thread = anyio.CapacityLimiter(1)  # so that requests under way cannot delay it

    def score(self, request: ScoreRequest) -> Any:
        """Score completions.  What could not be graded is `masked` and has no value."""
        reward = self._reward(request.reward)
        examples = [sample.example.example() for sample in request.samples]
        _check(reward, examples)
        results = reward.batch(examples, [sample.text() for sample in request.samples])
        return JSONResponse(to_jsonable_python({"reward": request.reward, "results": results}))

    def verify(self, request: VerifyRequest) -> Any:
        """The claims of a text with evidence and verdicts, as `factrl verify --json` prints them."""
        if self._verifier is None:
            why = "this server verifies nothing; start it with a reward that does, or with --verify"
            raise HTTPException(404, why)
        evidence = request.evidence
        passages = None if evidence is None else [Passage(p.text, p.title, p.source) for p in evidence]
        report = self._verifier(request.text, request.question, topic=request.topic, evidence=passages)
        return JSONResponse(report.to_json())

    def openrlhf(self, reward: Name, request: OpenRLHFRequest) -> Any:
        """OpenRLHF's `--reward.remote_url`.  A batch with a sample that could not be graded is refused with
        503, because a number in its place would be learned from; what was graded is not paid for again."""
        scorer = self._reward(reward)
        if not len(request.query) == len(request.prompts) == len(request.labels):
            raise DataError(
                f"query, prompts and labels have {len(request.query)}, {len(request.prompts)} and "
                f"{len(request.labels)} entries; they belong together one by one"
            )
        rows = zip(request.query, request.prompts, request.labels, strict=True)
        pairs = [_openrlhf_sample(*row) for row in rows]
        examples, texts = [example for example, _ in pairs], [text for _, text in pairs]
        _check(scorer, examples)
        results = scorer.batch(examples, texts)
        values = [result.value for result in results if result.value is not None]
        if len(values) < len(results):
            causes = Counter(result.cause or "" for result in results if result.value is None)
            why = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
            raise HTTPException(503, f"{_MASKED} ({why} of {len(results)})", {"Retry-After": str(BUSY)})
        terms = sorted({term for result in results for term in result.terms})
        logs = {term: [result.terms.get(term, 0.0) for result in results] for term in terms}
        logs["floored"] = [float(result.state == "floored") for result in results]
        return JSONResponse({"rewards": values, "scores": values, "extra_logs": logs})

    def seed_session(self, reward: Name, request: NeMoGymRequest) -> Any:
        """NeMo Gym's start of a rollout, for which nothing has to be kept."""
        self._reward(reward)
        return JSONResponse({})

    def nemo_gym(self, reward: Name, request: NeMoGymRequest) -> Any:
        """NeMo Gym's `/verify`: what was posted, with its `reward`; null and marked as masked where it could
        not be graded."""
        scorer, row = self._reward(reward), request.model_extra or {}
        example = to_example({"question": _question(request.responses_create_params), **row})
        _check(scorer, [example])
        result = scorer(example, _completion(request.response))
        terms = {f"term_{term}": value for term, value in result.terms.items()}
        reply = {**request.model_dump(), **terms, "reward": result.value}
        reply |= {"state": result.state, "cause": result.cause}
        if result.value is None:  # a number in its place would count in the baseline of its group
            config = reply.get("instance_config") or {}
            reply |= {"_ng_failure_class": "judge_failed", "instance_config": {**config, "mask_sample": True}}
        return JSONResponse(to_jsonable_python(reply))

    async def live(self) -> Any:
        """The process answers."""
        return JSONResponse({"status": "live"})

    async def ready(self, request: Request) -> Any:
        """A verdict can be had: one tiny question was asked within the last ten seconds.  Why not is told to
        clients with the token alone, because it names the judge."""
        why = await anyio.to_thread.run_sync(self._not_ready, limiter=self._health_thread)
        status, trusted = "not ready" if why else "ready", not request.scope.get("factrl.anonymous")
        return JSONResponse({"status": status, "detail": why if trusted else ""}, 503 if why else 200)

    def _not_ready(self) -> str:
        """Why judge or verifier do not answer, empty when they do; asks at most once in ten seconds."""
        when, why = self._ready
        if time.monotonic() - when > READY_SECONDS:
            why = self._try()
            self._ready = (time.monotonic(), why)
        return why

    def _try(self) -> str:
        try:
            if self._judge is not None:
                preflight(self._judge, timeout=5.0, max_attempts=1)
            if self._verifier is not None:
                report = self._verifier("Paris is the capital of France.", evidence=[_PROBE])
                if report.failure or report.counts["unjudged"]:
                    return str(report.failure or "the verifier's judge gave no verdict")
        except FactrlError as error:
            return str(error)
        return ""

    def _reward(self, name: str) -> Reward:
        if name not in self.rewards:
            raise HTTPException(
                404,
                f"this server has no reward {name[:80]!r}{nearest(name, self.rewards)} "
                f"(it has: {', '.join(self.rewards)})",
            )
        return self.rewards[name]


def _check(reward: Reward, examples: Sequence[Example]) -> None:
    reward.check_examples(examples)
    if reward.needs_answers and not all(e.answers or e.false_premise for e in examples):
        raise DataError(f"the reward {reward.name!r} needs accepted answers; fill `answers` of every example")


def _openrlhf_sample(query: str, prompt: str, label: str) -> tuple[Example, Completion]:
    """OpenRLHF's label is one string: accepted answers, or JSON with the columns of an example."""
    if not query.startswith(prompt):
        raise DataError("a query does not begin with its prompt, so where its completion begins is not known")
    text = Completion(query[len(prompt) :])
    try:
        return label_example(prompt, label), text
    except (ConfigError, DataError) as error:
        raise DataError(f"a label cannot be read: {error}") from None


def _question(params: Mapping[str, Any]) -> str:
    """The last thing that the user says in a request of the Responses API."""
    prompt = params.get("input")
    return prompt if isinstance(prompt, str) else text_of(last_message(_items(prompt), "user"))


def _completion(response: Mapping[str, Any] | None) -> Completion:
    """The last message of a response; the reasoning before it stands in `<think>`, as rewards know it."""
    items = _items((response or {}).get("output"))
    messages = [number for number, item in enumerate(items) if item.get("type") == "message"]
    last, before = [-1, -1, *messages][-1], [-1, -1, *messages][-2]
    turn = items[before + 1 : last] if messages else items
    reasoning = [text for item in turn if (text := reasoning_of({"content": [item]}))]
    if not messages and not reasoning:
        raise DataError("response.output has neither a message nor reasoning, so there is nothing to grade")
    text = completion_of(items[last]) if messages else ""
    cut = (response or {}).get("status") == "incomplete"
    return Completion(with_reasoning("\n".join(reasoning), text), truncated=cut)


def _items(output: Any) -> list[Mapping[str, Any]]:
    return [item for item in output if isinstance(item, Mapping)] if isinstance(output, list) else []


def serve_from_environment() -> Gate:
    """The ASGI application of each worker of `factrl serve`."""
    return Gate(make_api(open_service(json.loads(os.environ[SETTINGS]))), server_token())


def run_announced(where: str, announce: Callable[[], None], options: Mapping[str, Any]) -> int:
    """Serve in this process, and call `announce` once it listens; 2 where it could not start."""

    class Announced(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                announce()

    server = Announced(uvicorn.Config(where, **options))
    with suppress(KeyboardInterrupt):
        server.run()
    return 0 if server.started else 2


def server_token() -> str:
    """What clients must bring, of the environment; empty for none.

    Raises:
        ConfigError: no request could bring it.
    """
    token = os.environ.get(TOKEN, "").strip()
    if any(not "!" <= letter <= "~" for letter in token):
        raise ConfigError(
            f"{TOKEN} holds a space, a line break or a letter beyond ASCII, which no header can bring; take "
            "one such as `openssl rand -hex 32` prints"
        )
    return token


def make_api(service: Service) -> FastAPI:
    """The routes alone, and their OpenAPI description.

    >>> api = make_api(Service({}, judge=None, verifier=None))
    >>> "/v1/score" in api.openapi()["paths"]
    True
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = WORKING  # the others wait
        with nullcontext() if service.page is None else service.page.place():
            yield

    api = FastAPI(
        title="factrl",
        version=__version__,
        summary="Rewards for factuality, and the claims of a text with their verdicts.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would send clients to whatever host they named
    )
    api.post("/v1/score", response_model=ScoreReply)(service.score)
    api.post("/v1/verify", response_model=dict[str, Any])(service.verify)
    api.post("/v1/openrlhf/{reward}", response_model=OpenRLHFReply)(service.openrlhf)
    api.post("/v1/nemo_gym/{reward}/seed_session", response_model=dict[str, Any])(service.seed_session)
    api.post("/v1/nemo_gym/{reward}/verify", response_model=dict[str, Any])(service.nemo_gym)
    for path, answer in (("/health/live", service.live), ("/health/ready", service.ready)):
        api.get(path, response_model=dict[str, Any])(answer)
        api.head(path, include_in_schema=False)(answer)
    if service.page is not None:
        service.page.add_to(api)
    _add_handlers(api)
    return api


def _add_handlers(api: FastAPI) -> None:
    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        problems = [
            {
                "loc": [part[:200] if isinstance(part, str) else part for part in problem["loc"]],
                "msg": problem["msg"][:200],
                "type": problem["type"],
            }
            for problem in error.errors()[:20]
        ]
        return JSONResponse({"detail": problems}, 422)

    @api.exception_handler(ConfigError)
    @api.exception_handler(DataError)
    async def unusable(_: Request, error: Exception) -> JSONResponse:
        message = str(error)[:_ECHO]  # it may quote what was sent
        return JSONResponse({"detail": [{"loc": ["body"], "msg": message, "type": "unusable"}]}, 422)

    @api.exception_handler(RewardBug)
    async def broken(_: Request, error: RewardBug) -> JSONResponse:
        _LOG.error("%s", visible("".join(traceback.format_exception(error)).rstrip()))
        return JSONResponse(
            {"detail": "the reward is broken; the server's log says how"}, 500, {FAULT: BROKEN}
        )
