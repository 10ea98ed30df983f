"""A client for any server that speaks OpenAI's `chat/completions`: its requests, and how replies are read.

Deadlines, retries and limits are those of `factrl.llm.client`.  Callers may be threads (`complete`) or
coroutines of any event loop (`acomplete`).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from factrl.errors import ConfigError, LLMError, SetupError
from factrl.llm import LLM, Message, Reply
from factrl.llm.background import SingleFlight, on_background, wait_for
from factrl.llm.bodies import Failure, Unreadable, excerpt, message_of
from factrl.llm.client import CallState, JSONClient, checked_url
from factrl.llm.limits import Limits
from factrl.llm.spending import BYTES_PER_TOKEN, Meter, Price

OPENAI_URL = "https://api.openai.com/v1"
SPEC_EXAMPLE = "http://localhost:8000/v1#model-name"
_SPECS = f"{SPEC_EXAMPLE} or openai/gpt-4o-mini"
_CHAT = "/chat/completions"
_PING: tuple[Message, ...] = ({"role": "user", "content": "Answer with the word ok."},)
_PING_TOKENS = 16
_TEMPLATE = 1024  # tokens that a chat template may add to what was sent
_UNFINISHED = ("length", "content_filter", "abort")  # ends after which more would have come
_ENDS = {
    word: end
    for end, words in {
        "stop": "stop eos eos_token end_turn stop_sequence complete completed",
        "length": "length max_tokens model_length max_output_tokens",
        "content_filter": "content_filter content_filtered safety prohibited_content",
    }.items()
    for word in words.split()
}
"""Words of servers for the ends of a reply, in small letters; no word is one for `stop`."""
_LOG = logging.getLogger("factrl")


class OpenAICompatible:
    """An `LLM` behind an OpenAI-compatible URL: vLLM, SGLang, llama.cpp, Ollama, OpenAI, …

    Args:
        base_url: the address up to, not including, `/chat/completions`.
        model: the model's name; None asks the server, which must then serve exactly one.
        api_key: sent as a bearer token; never shown in a repr, a log or an error.
        key_variable: the environment variable to name when the server refuses the key.
        price: US dollars per million tokens of prompt and of reply.
        max_cost_usd: US dollars that may be spent in all; needs `price`.
        retry_cut: ask again, for twice the tokens, when a reply was cut off; off where replies are samples.
        limits: `timeout_attempt`, `max_concurrency`, … of `factrl.llm.limits.Limits`.

    Attributes:
        usage: what was sent so far, and what it cost.

    Raises:
        ConfigError: a value that cannot work.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        key_variable: str = "FACTRL_JUDGE_API_KEY",
        price: Price | None = None,
        max_cost_usd: float | None = None,
        retry_cut: bool = True,
        **limits: Any,
    ) -> None:
        self.base_url = checked_url(base_url, key_variable, SPEC_EXAMPLE)
        self.model = model
        named = f"{model or 'the model'} at {self.base_url}"
        self.usage = Meter(max_cost_usd=max_cost_usd, price=price, model=named)
        self._http = JSONClient(self.base_url, api_key, key_variable=key_variable, usage=self.usage, **limits)
        self._http.ping = self._ping
        self._retry_cut = retry_cut
        self._looking: SingleFlight[str] = SingleFlight()
        self._refused: set[str] = set()  # fields that the server takes no request with

    def __repr__(self) -> str:
        return f"OpenAICompatible({self.base_url!r}, model={self.model!r})"

    @property
    def identity(self) -> str:
        """Which model answers: address and name.  Complete once the model is known."""
        return f"{self.base_url}#{self.model or ''}"

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The model's reply; see `factrl.llm.LLM`.

        Raises:
            LLMError: with the cause `connection`, `timeout`, `http_429`, `http_5xx` or `bad_body` when the
                attempts or the time ran out; at once with `auth`, `context_length`, `redirect`, `budget` or
                `http_<status>`; `truncated` when twice `max_tokens` were not enough either, with what was
                written so far as `facts["text"]`; `breaker_open` when the server stayed down for longer
                than `pause`.
            ConfigError: no model was named and the server does not serve exactly one.
        """
        request = {"temperature": temperature, "max_tokens": max_tokens, **sampling}
        return wait_for(self._complete(messages, request, self._http.limits))

    async def acomplete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """`complete` for coroutines, whichever event loop they run on."""
        request = {"temperature": temperature, "max_tokens": max_tokens, **sampling}
        return await on_background(self._complete(messages, request, self._http.limits))

    async def find_model(self, call: CallState | None = None) -> str:
        """The name of the model, asked for when none was given.

        Raises:
            LLMError: as `complete`.
            ConfigError: the server does not serve exactly one.
        """
        if self.model is None:
            lookup = call or CallState(self._http.limits)
            self.model = await on_background(self._looking.once("", lambda: self._look(lookup)))
            lookup.attempts = lookup.requests = 0  # it is another question than the caller's
        return self.model

    async def _look(self, call: CallState) -> str:
        return await self._http.ask("GET", "/models", None, self._only_model, call=call)

    async def _complete(self, messages: Sequence[Message], request: dict[str, Any], limits: Limits) -> Reply:
        call = self._http.call(limits)
        model = await self.find_model(call)
        request = {"model": model, "messages": [dict(m) for m in messages], **request}
        reply = await self._ask(request, call)
        if reply.finish_reason == "length" and self._retry_cut and call.attempts < limits.max_attempts:
            try:
                reply = await self._ask({**request, "max_tokens": 2 * request["max_tokens"]}, call)
                request["max_tokens"] *= 2
            except LLMError as error:
                if error.cause != "context_length":  # else the reply stays cut, as there is no room for more
                    raise
        if reply.finish_reason in _UNFINISHED:
            cut = f"cut its reply off ({reply.finish_reason}, at most {request['max_tokens']} tokens)"
            failure = Failure("truncated", cut, status=200, request_id=reply.request_id)
            error = self._http.error(failure, call)
            error.facts = {**error.facts, "text": reply.text}
            raise error
        return replace(reply, attempts=call.requests, elapsed=call.elapsed())

    async def _ask(self, request: dict[str, Any], call: CallState) -> Reply:
        """One reply; a field that the server refuses is left out or renamed, and that is remembered."""
        read = partial(self._read, request)
        tokens = _prompt_tokens(request) + request["max_tokens"]
        while True:
            sent = self._accepted(request)
            try:
                return await self._http.ask("POST", _CHAT, sent, read, call=call, tokens=tokens)
            except LLMError as error:
                field = error.facts.get("field")
                # Servers that take no temperature sample at 1; a request for another one is not sampled so.
                may_go = field == "max_tokens" or request["temperature"] in (0.0, 1.0)
                if field not in sent or not may_go:
                    raise
                if field not in self._refused:
                    instead = (
                        "max_completion_tokens is sent instead" if field == "max_tokens" else "it is left out"
                    )
                    _LOG.warning("%s takes no %s; %s from now on", self.base_url, field, instead)
                self._refused.add(field)

    def _accepted(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request without the fields that the server has refused."""
        sent = {name: value for name, value in request.items() if name not in self._refused}
        if "max_tokens" in self._refused:
            sent["max_completion_tokens"] = request["max_tokens"]
        return sent

    def _ping(self) -> tuple[str, str, Any, Callable[[Any], Any]] | None:
        """The tiny question of `preflight`; None where the model's name is still to be found out."""
        if self.model is None:
            return None
        ping = {"model": self.model, "messages": _PING, "temperature": 0.0, "max_tokens": _PING_TOKENS}
        return "POST", _CHAT, self._accepted(ping), partial(self._read, ping)

    def _read(self, request: Mapping[str, Any], document: Any) -> Reply:
        """The reply that a document holds, whose tokens are counted whatever it holds."""
        tokens_in, tokens_out = _tokens(document, request)
        paid_in, paid_out = tokens_in or 0, tokens_out or 0
        try:
            text, reason = _content(document)
            paid_in = _prompt_tokens(request) if tokens_in is None else tokens_in
            paid_out = len(text.encode()) // BYTES_PER_TOKEN if tokens_out is None else tokens_out
        finally:  # what cannot be read is paid for all the same
            self.usage.tokens_in += paid_in
            self.usage.tokens_out += paid_out
        model, name = (document.get(key) for key in ("model", "id"))
        return Reply(
            text,
            finish_reason=reason,
            model=excerpt(model) if isinstance(model, str) else "",
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            request_id=excerpt(name) if isinstance(name, str) else "",
        )

    def _only_model(self, document: Any) -> str:
        try:
            names = [excerpt(str(entry["id"])) for entry in document["data"]]
        except (KeyError, TypeError):
            raise Unreadable("answered something other than a list of models") from None
        if len(names) != 1:
            serves = f"serves {len(names)} models ({', '.join(names[:5])})" if names else "serves no model"
            example = f"{self.base_url}#{names[0] if names else 'model-name'}"
            raise ConfigError(f"{self.base_url} {serves}; name the one to use, like {example}")
        return names[0]


def connect(
    spec: str = "", *, api_key: str | None = None, role: str = "judge", **limits: Any
) -> OpenAICompatible:
    """Open the model server that `spec` names; nothing is sent before the first call.

    `http://localhost:8000/v1#model` is any OpenAI-compatible server; without `#model` the server is
    asked which model it serves.  `openai/gpt-4o-mini` is that model at `OPENAI_BASE_URL`, or at
    OpenAI when that is not set.  `FACTRL_JUDGE_BASE_URL`, `FACTRL_JUDGE_MODEL` and
    `FACTRL_JUDGE_API_KEY` come before what the spec says, and may replace it.

    Args:
        spec: where the model is; may be empty when `FACTRL_JUDGE_BASE_URL` is set.
        api_key: comes before every environment variable.  `OPENAI_API_KEY` is only ever sent to
            `OPENAI_BASE_URL` or to OpenAI.
        role: what the model is for, as in the names of the variables: `FACTRL_POLICY_API_KEY` for `policy`.
        limits: `timeout_attempt`, `max_concurrency`, `rpm`, `tpm`, … of `factrl.llm.limits.Limits`, and
            `price`, `max_cost_usd` of `OpenAICompatible`.

    Raises:
        ConfigError: the spec is not one of these forms.

    >>> connect("http://localhost:8000/v1#judge")
    OpenAICompatible('http://localhost:8000/v1', model='judge')
    """
    home = (os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")
    prefix, spec = f"FACTRL_{role.upper()}", spec.strip()
    url, _, model = spec.partition("#") if spec.startswith(("http://", "https://")) else ("", "", "")
    if spec and not url:
        provider, _, model = spec.partition("/")
        if provider != "openai" or not model.strip():
            raise ConfigError(f"{spec!r} does not name a model server; write it like {_SPECS}")
        url = home
    url = (os.environ.get(f"{prefix}_BASE_URL") or url).rstrip("/")
    model = os.environ.get(f"{prefix}_MODEL") or model.strip()
    if not url:
        raise ConfigError(f"no model server is named; write it like {_SPECS}")
    variable = f"{prefix}_API_KEY"
    if url == home and not os.environ.get(variable):
        variable = "OPENAI_API_KEY"
    key = api_key or os.environ.get(variable)
    return OpenAICompatible(url, model or None, key, key_variable=variable, **limits)


def preflight(llm: LLM, *, timeout: float = 10.0, max_attempts: int = 2) -> None:
    """Ask `llm` one tiny question, so that a run does not start on a server that cannot answer.

    Args:
        timeout: seconds for the whole check.
        max_attempts: requests before it gives up.

    Raises:
        SetupError: one line with the address, what happened and what to do.

    >>> from factrl.llm import FakeLLM
    >>> preflight(FakeLLM([LLMError("auth", "http://localhost:8000/v1 answered 401")]))
    Traceback (most recent call last):
    factrl.errors.SetupError: http://localhost:8000/v1 answered 401; check that key
    """
    from factrl.llm.store import CachedLLM

    while isinstance(llm, CachedLLM):  # a stored reply says nothing about the server
        llm = llm.llm
    try:
        if isinstance(llm, OpenAICompatible):
            short = {"timeout_attempt": timeout, "timeout_call": timeout, "max_attempts": max_attempts}
            request = {"temperature": 0.0, "max_tokens": _PING_TOKENS}
            wait_for(llm._complete(_PING, request, replace(llm._http.limits, **short)))
        else:
            llm.complete(_PING, max_tokens=_PING_TOKENS)
    except LLMError as error:
        if error.cause != "truncated":  # a model that wrote too much is a model that works
            cause = "" if error.cause == "connection" and error.facts.get("status") else error.cause
            remedy = _REMEDIES.get(cause, "check the server's own log")
            raise SetupError(f"{error.detail or error.cause}; {remedy}") from error


_REMEDIES = {
    "connection": "start the server, or check the host and the port",
    "timeout": "it may still be loading its model: wait until it answers, then start again",
    "auth": "check that key",
    "no_text": "a judge has to answer in text",
    "bad_body": "check that the address is that of an OpenAI-compatible server (it often ends in /v1)",
    "http_404": "check the model's name and the address (it often ends in /v1)",
    "http_429": "wait, or use a key with a higher limit",
    "redirect": "use the address it points to",
}


def _content(document: Any) -> tuple[str, str]:
    """Text and end of the first choice, in the forms in which servers give them.

    Text may be in parts, of which thoughts are left out.  A refusal is what the model said.  Where a reply
    ended before its text began, that is empty.

    Raises:
        Failure: no text, and what is there instead.
    """
    choices = document.get("choices") if isinstance(document, Mapping) else None
    if choices == []:
        raise Unreadable("answered with a completion that has no choice")
    choice = choices[0] if isinstance(choices, list) else None
    choice = choice if isinstance(choice, Mapping) else {}
    reason = choice.get("finish_reason")
    word = reason.lower() if isinstance(reason, str) else ""
    if choice.get("error") or word == "error":
        raise Unreadable(f"answered with an error: {message_of(choice.get('error'))}")
    end = _ENDS.get(word, str(reason) if word else "stop")
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise Unreadable("answered something other than a chat completion with text")
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping)]
        texts = [part.get("text") for part in parts if part.get("type") in ("text", "output_text", None)]
        refusal = refusal or next((part["refusal"] for part in parts if part.get("refusal")), None)
        content = "".join(text for text in texts if isinstance(text, str)) or None
    if not content and isinstance(refusal, str) and refusal:
        return refusal, end
    if isinstance(content, str):
        return content, end
    if content is None and end in _UNFINISHED:
        return "", end
    raise _no_text(message, content)


def _no_text(message: Mapping[str, Any], content: Any) -> Failure:
    """The error for a completed reply without text; a server that is well says the same again."""
    if content is None and (message.get("reasoning_content") or message.get("reasoning")):
        fix = "start the server without a reasoning parser, or switch the model's thinking off"
        return Failure("no_text", f"answered in reasoning_content alone, without content: {fix}", retry=False)
    if content is None and (message.get("tool_calls") or message.get("function_call")):
        return Failure("no_text", "answered with a call of a tool instead of text", retry=False)
    return Unreadable("answered something other than a chat completion with text")


def _tokens(document: Any, request: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Of the prompt and of the reply, as the server counts them; no more than there can be.

    A token has a byte at least.  What the reply may hide, such as its reasoning, is within `max_tokens`.
    """
    usage = document.get("usage") if isinstance(document, Mapping) else None
    counts = usage if isinstance(usage, Mapping) else {}
    tokens_in, tokens_out = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))
    if tokens_in is not None and tokens_in > _TEMPLATE:
        tokens_in = min(tokens_in, len(json.dumps(request)) + _TEMPLATE)
    if tokens_out is not None and tokens_out > request["max_tokens"]:
        tokens_out = min(tokens_out, max(request["max_tokens"], len(json.dumps(document.get("choices")))))
    return tokens_in, tokens_out


def _prompt_tokens(request: Mapping[str, Any]) -> int:
    """An estimate, where the server does not count."""
    return len(json.dumps(request["messages"])) // BYTES_PER_TOKEN


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
