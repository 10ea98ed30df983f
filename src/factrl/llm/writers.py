"""Models that write answers outside of training: the protocol, and the writer for one behind a server.

`factrl.train.answering.open_writer` opens one by its name; a policy in this process is
`factrl.train.writing.PolicyWriter`.

Every sample has a number, and its text depends on the seed, the question and that number alone, as far as
the model allows: other questions, their order and restarts do not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Protocol

from factrl.errors import ConfigError, LLMError, Unscored
from factrl.llm import LLM, Message
from factrl.runs.data import render_prompt
from factrl.runs.settings import DataSettings
from factrl.text import implied
from factrl.types import Completion, Example

Written = Completion | Unscored
"""What was written, or why nothing was."""


class Writer(Protocol):
    """Anything that writes answers to examples."""

    @property
    def identity(self) -> str:
        """Which model, at which version, asked in which way: its answers are stored under it."""
        ...

    def write(
        self,
        examples: Sequence[Example],
        numbers: Sequence[int] = (0,),
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        on_done: Callable[[], None] = lambda: None,
    ) -> list[list[Written]]:
        """The samples with these numbers, for every example.

        Args:
            numbers: which samples of each example; only `(0,)` with temperature 0, where all are the same.
            temperature: 0 is the most likely answer.
            on_done: called after each example, in this thread.
        """
        ...


class ServerWriter:
    """A `Writer` that asks a language model by chat, one call per sample.

    Args:
        llm: the model; `OpenAICompatible` with `retry_cut=False`, or any other LLM.
        data: how an example becomes a prompt; its prefill is refused, as a chat server cannot begin for the
            model.
        max_tokens: length limit of an answer; what is cut there is `truncated`.
        workers: calls in flight at once.
        whole: fields of a request that turn off what the model's server would cut from the distribution by
            itself, sent with every sample.
    """

    def __init__(
        self,
        llm: LLM,
        data: DataSettings,
        max_tokens: int,
        workers: int = 64,
        whole: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        if data.prefill:
            raise ConfigError(
                f"data.prefill = {data.prefill!r} cannot be given to a model behind a server; leave it out"
            )
        self._llm, self._data, self._max_tokens, self._workers = llm, data, max_tokens, workers
        self._whole = whole

    @property
    def identity(self) -> str:
        """Model, prompt and length limit."""
        digest = digest_of(self._data.system, self._data.prompt, self._max_tokens)
        return f"{getattr(self._llm, 'identity', repr(self._llm))} {digest}"

    def write(
        self,
        examples: Sequence[Example],
        numbers: Sequence[int] = (0,),
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        on_done: Callable[[], None] = lambda: None,
    ) -> list[list[Written]]:
        """See `Writer.write`; a call that fails is an `Unscored` among the texts."""
        check_numbers(numbers, temperature)
        sampling = {} if temperature == 0 else {"top_p": top_p, **self._whole}
        chats = [conversation(example, self._data) for example in examples]

        def one(example: Example, messages: list[Message], number: int) -> Written:
            options = {"seed": seed_of(seed, example.id, number), **sampling} if temperature else {}
            try:
                reply = self._llm.complete(
                    messages, temperature=temperature, max_tokens=self._max_tokens, **options
                )
            except LLMError as error:
                cut = error.facts.get("text") if error.cause == "truncated" else None
                if cut is None:
                    return error
                return Completion(cut, prefill=implied(cut), truncated=True, tokens=self._max_tokens)
            return Completion(reply.text, prefill=implied(reply.text), tokens=reply.tokens_out)

        pool = ThreadPoolExecutor(self._workers)
        try:
            groups = [
                [pool.submit(one, example, messages, number) for number in numbers]
                for example, messages in zip(examples, chats, strict=True)
            ]
            answers = []
            for group in groups:
                answers.append([future.result() for future in group])
                on_done()
            return answers
        finally:
            pool.shutdown(cancel_futures=True)  # what interrupts does not wait for thousands of calls


def conversation(example: Example, data: DataSettings) -> list[Message]:
    """The messages before the completion: the system's, where there is one, and the user's."""
    system: list[Message] = [{"role": "system", "content": data.system}] if data.system else []
    return [*system, {"role": "user", "content": render_prompt(example, data.prompt)}]


def check_numbers(numbers: Sequence[int], temperature: float) -> None:
    """Refuse several samples at temperature 0."""
    if temperature == 0 and tuple(numbers) != (0,):
        raise ConfigError("several samples at temperature 0 are the same sample; raise sampling.temperature")


def seed_of(seed: int, example_id: str, number: int) -> int:
    """A seed below 2**31 for one sample."""
    return int(digest_of(seed, example_id, number)[:8], 16) >> 1


def digest_of(*parts: object) -> str:
    """A short fingerprint of values, by their `repr`."""
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]
