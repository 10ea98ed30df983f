"""What the routes do, without HTTP: scoring with back-pressure, checking, being ready."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from typing import Any

from factrl import __version__
from factrl.errors import ConfigError, DataError, FactrlError, nearest
from factrl.llm import LLM, preflight
from factrl.llm.store import Store, digest
from factrl.rewards import Reward
from factrl.runs.data import to_example
from factrl.types import Completion, Example, Passage
from factrl.verifier import Verifier

from .ledger import Ledger
from .schema import OpenRLHFRequest, ScoreReply, ScoreRequest, VerifyRequest, WireResult

BATCHES = 8  # requests that are worked on at the same time
IN_FLIGHT = 8192  # samples that may be scored or wait for it; with more, clients are told to come back
READY_SECONDS = 10.0  # how long a verdict about being ready holds
CLOSE_SECONDS = 5.0  # that work under way is given when the server stops
_STOPPING = "the server is stopping; come back in a few seconds"
_ECHO = 400  # characters of an error, which may quote what was sent
_PROBE = Passage("Paris is the capital of France.")
# The end of a turn in the words of chat templates, reversed: matched from the end it takes one pass.
_ENDING = re.compile(r"(?:\s*(?:>\|[^<>|]{1,40}\|<|>s/<|>soe<|>nrut_fo_dne<))+\s*")


class TooMuch(Exception):
    """So many samples wait that another request is turned away."""


class Unknown(Exception):
    """A request names something that this server does not have."""


class Unusable(Exception):
    """A sample lacks what its reward needs."""

    def __str__(self) -> str:
        return super().__str__()[:_ECHO]


class Service:
    """The rewards of a server.

    Args:
        rewards: name on the wire -> reward, its resources supplied.
        judge: the language model among the resources, if there is one.
        verifier: for `/v1/verify`; None when no verifier was asked for.
        store: where answers are kept by idempotency key.
        told: whatever else decides an answer, such as settings; JSON values.
    """

    def __init__(
        self,
        rewards: Mapping[str, Reward],
        judge: LLM | None,
        verifier: Verifier | None,
        store: Store,
        *,
        told: Mapping[str, Any] | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self.rewards, self._judge, self._verifier = rewards, judge, verifier
        knobs = {name: [reward.name, dict(reward.knobs)] for name, reward in rewards.items()}
        model = getattr(judge, "identity", None)
        scope = {"rewards": knobs, "judge": model, "version": __version__, "told": dict(told or {})}
        self._ledger = Ledger(store, json.loads(json.dumps(scope, default=repr)))
        self._pool = ThreadPoolExecutor(BATCHES, thread_name_prefix="factrl-serve")
        self._jobs: set[Future[Any]] = set()
        self._most, self._waiting, self._mutex = in_flight, 0, threading.Lock()
        self._ready: tuple[float, str] = (float("-inf"), "")
        self._ready_mutex = threading.Lock()

    def score(self, request: ScoreRequest, key: str) -> dict[str, Any]:
        """Score the samples of a request, or repeat the answer that its key was given before.

        Raises:
            Unknown: no such reward.
            Unusable: an example lacks what the reward needs, or what its resources need.
            TooMuch: come back later.
            ledger.OtherBody: the key belongs to another request.
        """
        reward = self._reward(request.reward)
        examples = [sample.example.example() for sample in request.samples]
        texts = [sample.text() for sample in request.samples]
        _check(reward, examples)

        def work() -> dict[str, Any]:
            results = reward.batch(examples, texts)
            reply = ScoreReply(reward=request.reward, results=[WireResult.of(result) for result in results])
            return reply.model_dump(mode="json")

        body = digest({"body": request.model_dump(mode="json")}) if key else ""
        return self._admitted(len(texts), lambda: dict(self._ledger.once(key, body, work, _all_graded)))

    def openrlhf(self, name: str, request: OpenRLHFRequest) -> dict[str, Any] | None:
        """Rewards in OpenRLHF's shape; None when a sample could not be graded, for which it has no word.

        Raises:
            Unknown, Unusable, TooMuch: as `score`.
        """
        reward = self._reward(name)
        if not len(request.query) == len(request.prompts) == len(request.labels):
            raise Unusable(
                f"query, prompts and labels have {len(request.query)}, {len(request.prompts)} and "
                f"{len(request.labels)} entries; they belong together one by one"
            )
        pairs = [
            _openrlhf_sample(query, prompt, label)
            for query, prompt, label in zip(request.query, request.prompts, request.labels, strict=True)
        ]
        examples, texts = [example for example, _ in pairs], [text for _, text in pairs]
        _check(reward, examples)
        results = self._admitted(len(texts), lambda: reward.batch(examples, texts))
        values = [result.value for result in results if result.value is not None]
        if len(values) < len(results):
            return None
        terms = sorted({term for result in results for term in result.terms})
        logs = {term: [result.terms.get(term, 0.0) for result in results] for term in terms}
        floored = [float(result.state == "floored") for result in results]
        return {"rewards": values, "scores": values, "extra_logs": {**logs, "floored": floored}}

    def verify(self, request: VerifyRequest) -> dict[str, Any]:
        """The claims of a text with their verdicts.

        Raises:
            Unknown: the server was started without a verifier.
            Unusable: there is no evidence, and nowhere to search.
            TooMuch: come back later.
        """
        verifier = self._verifier
        if verifier is None:
            raise Unknown("this server verifies nothing; start it with a reward that does, or with --verify")
        evidence = request.evidence
        passages = None if evidence is None else [Passage(p.text, p.title, p.source) for p in evidence]

        def work() -> dict[str, Any]:
            return verifier(request.text, request.question, topic=request.topic, evidence=passages).to_json()

        return self._admitted(1, work)

    def not_ready(self) -> str:
        """Why no verdict can be had now, empty when one can: asks the judge, at most once in ten seconds."""
        with self._ready_mutex:
            when, why = self._ready
            if time.monotonic() - when > READY_SECONDS:
                why = self._try()
                self._ready = (time.monotonic(), why)
            return why

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Turn away what waits, and give what is being worked on some seconds to finish."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._mutex:
            under_way = {job for job in self._jobs if not job.cancelled()}  # `wait` waits for those for ever
        wait_for_all(under_way, timeout=seconds)

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
            raise Unknown(
                f"this server has no reward {name[:80]!r}{nearest(name, self.rewards)} "
                f"(it has: {', '.join(self.rewards)})"
            )
        return self.rewards[name]

    def _admitted(self, samples: int, work: Callable[[], Any]) -> Any:
        """Run work on one of the service's threads, unless too much waits already."""
        with self._mutex:
            if self._waiting and self._waiting + samples > self._most:
                raise TooMuch(f"{self._waiting} samples wait here; come back in a few seconds")
            try:
                job = self._pool.submit(work)
            except RuntimeError:
                raise TooMuch(_STOPPING) from None
            self._jobs.add(job)
            self._waiting += samples
        try:
            return job.result()
        except CancelledError:
            raise TooMuch(_STOPPING) from None
        except (ConfigError, DataError) as error:  # such as a text without evidence where nothing is searched
            raise Unusable(str(error)) from None
        finally:
            with self._mutex:
                self._jobs.discard(job)
                self._waiting -= samples


def _all_graded(answer: Mapping[str, Any]) -> bool:
    return all(result["state"] != "masked" for result in answer["results"])


def _check(reward: Reward, examples: Sequence[Example]) -> None:
    try:
        reward.check_examples(examples)
    except DataError as error:
        raise Unusable(str(error)) from None
    if reward.needs_answers and not all(e.answers or e.false_premise for e in examples):
        raise Unusable(f"the reward {reward.name!r} needs accepted answers; fill `answers` of every example")


def _openrlhf_sample(query: str, prompt: str, label: str) -> tuple[Example, Completion]:
    """OpenRLHF's label is one string: an accepted answer, or JSON with the columns of an example."""
    if not query.startswith(prompt):
        raise Unusable("a query does not begin with its prompt, so where its completion begins is not known")
    text = Completion(_without_ending(query[len(prompt) :]))
    try:
        columns = json.loads(label)
    except ValueError:
        columns = None
    except RecursionError:
        raise Unusable("a label cannot be read: it is nested too deeply") from None
    if not isinstance(columns, dict):
        return Example(prompt, (label,) if label else ()), text
    try:
        return to_example({"question": prompt, **columns}), text
    except (ConfigError, DataError) as error:
        raise Unusable(f"a label cannot be read: {error}") from None


def _without_ending(text: str) -> str:
    """Without the special tokens that end a turn, with which OpenRLHF decodes."""
    ending = _ENDING.match(text[::-1])
    return text[: len(text) - ending.end()] if ending else text
