"""A quantised language model in this process, by llama.cpp: chat, and the odds of one-letter answers.

It answers chats like any other `LLM`, and it says how likely each of a few letters is as the next token,
which is how a small model judges best: one number per answer instead of words to be read.  On a CPU the
prompt is what takes time, so a prompt's fixed first part is computed once and its state kept on disk.

It is no server for others: llama.cpp listens on a loopback port with a random key only because its state can
be saved in no other way.  Requests run one by one: on a CPU several at once are no faster.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import json
import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import LLMError, MissingExtra, ModelError, SetupError
from factrl.llm import Message, Reply, models
from factrl.text import encodable

if TYPE_CHECKING:
    import numpy as np

JUDGE = "Qwen2.5-Coder-1.5B-Instruct"
LISTED = 200  # likeliest next tokens that are looked at
STATES_KEPT = 8  # prefixes on disk; one of 500 tokens takes about 15 MB
_PATIENCE = 120.0  # seconds for llama.cpp to read or write a state, on a machine that is busy
WORTH_KEEPING = 64  # tokens of a prefix below which the disk is not worth it
_WAITING = "OMP_WAIT_POLICY"
_ALL_UP_TO = 4  # beyond, half of the cores are usually only hyperthreads, which slow matrix products down


@functools.cache
def shared_model() -> LlamaModel:
    """The judge that factrl downloads, loaded once for all who use it in this process."""
    return LlamaModel()


class LlamaModel:
    """A GGUF model; safe to use from several threads, which wait for each other.

    Args:
        model: a name of `factrl.llm.models.MODELS`, a `.gguf` file, or one on the hub: `org/repo/file.gguf`.
        n_ctx: tokens of prompt and reply together, at most.
        threads: CPU threads; by default all cores up to four, and half of them beyond.

    Attributes:
        name: the model as people call it.
        identity: name and fingerprint of the weights, and llama.cpp's version; belongs into whatever a
            verdict is stored under.

    Raises:
        ModelError: the model is not there, or is no model that llama.cpp can load.
        MissingExtra: xllamacpp is not installed.
    """

    def __init__(self, model: str | Path = JUDGE, *, n_ctx: int = 4096, threads: int | None = None) -> None:
        xllamacpp = _xllamacpp()
        path = _weights(models.get(model))
        self.identity = f"{models.identity(path)} xllamacpp {xllamacpp.__version__}"
        self.name = self.identity.partition("@")[0]
        self.n_ctx = n_ctx
        self._states = _states_folder()
        self._lock = threading.Lock()
        self._held = ""  # the prefix that the slot's state begins with
        self._key = secrets.token_hex(16)
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel = n_ctx, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads or default_threads()
        params.no_extra_bufts = True  # repacked weights: 0.6 GB and 1.5 s more, and prompts are no faster
        params.warmup = params.ui = params.fit_params = False
        params.cache_ram_mib = 0
        params.verbosity = 0
        params.api_keys = [self._key]
        if self._states is not None:
            params.slot_save_path = f"{self._states}{os.sep}"
        try:
            self._server: Any = xllamacpp.Server(params)
        except RuntimeError as error:
            raise ModelError(f"{path} could not be loaded; is it a GGUF model, and whole?") from error
        self._address = self._server.listening_address.removeprefix("http://")
        # An answer through its queue: one that is told to stop before its loop runs would never stop.
        self._ask("/slots", method="GET")

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The model's reply to a chat, by the chat template that its file carries.

        Raises:
            LLMError: the chat is longer than `n_ctx`, the reply than `max_tokens`, or llama.cpp refused.
        """
        started = time.monotonic()
        request = {"messages": [dict(m) for m in messages], "temperature": temperature, **sampling}
        with self._lock:
            self._held = ""
            response = self._server.handle_chat_completions({**request, "max_tokens": max_tokens})
        choice = _choice(response)
        if choice["finish_reason"] == "length":
            cut = f"{self.name} cut its reply off at {max_tokens} tokens"
            raise LLMError("truncated", cut, text=choice["message"]["content"] or "")
        return Reply(
            choice["message"]["content"] or "",
            finish_reason=choice["finish_reason"],
            model=self.name,
            tokens_in=response["usage"]["prompt_tokens"],
            tokens_out=response["usage"]["completion_tokens"],
            elapsed=time.monotonic() - started,
        )

    def letter_logprobs(
        self,
        prefix: str,
        prompts: Sequence[str],
        letters: Sequence[str] = ("A", "B", "C"),
        *,
        suffix: str = "",
    ) -> np.ndarray:
        """How likely each letter is as the first token after `prefix + prompt + suffix`.

        Role tokens count as such in prefix and suffix only: a prompt is plain text and cannot forge one.  The
        parts are tokenised apart, so end the prefix with a line.  Prompts that begin alike are computed next
        to each other and share their beginning: put first what several have in common.  The same call gives
        the same numbers; beside other prompts a probability moves by about 0.01, as sums are split elsewhere.

        Args:
            prefix: the instructions and examples; its state is kept in memory and on disk.
            letters: each one token of this model, as it would follow (`" A"` after a colon).

        Returns:
            Natural logarithms of probabilities over the whole vocabulary, float64 (prompts, letters).  A
            letter that is not among the likeliest 200 tokens gets the last one's.  A prompt that does not
            fit into `n_ctx` has NaN.

        Raises:
            ValueError: a letter is not one token.
            LLMError: llama.cpp failed.
        """
        import numpy as np

        with self._lock:
            ids = [self._letter(letter) for letter in letters]
            first, last = self._tokens(prefix, special=True), self._tokens(suffix, special=True)
            middles = [self._tokens(prompt, special=False) for prompt in prompts]
            odds = np.full((len(prompts), len(letters)), np.nan)
            for row in sorted(range(len(prompts)), key=lambda row: middles[row]):
                whole = [*first, *middles[row], *last]
                if 0 < len(whole) < self.n_ctx:
                    self._hold(first)
                    odds[row] = self._odds(whole, ids)
            return odds

    def tokens(self, text: str) -> int:
        """How many tokens a text is."""
        return len(self._tokens(text, special=False))

    def _letter(self, letter: str) -> int:
        ids = self._tokens(letter, special=False)
        if len(ids) != 1:
            raise ValueError(f"{letter!r} is {len(ids)} tokens for {self.name}; an answer has to be one")
        return ids[0]

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        if not text:
            return []
        request = {"content": encodable(text), "parse_special": special, "add_special": False}
        return self._ask("/tokenize", request)["tokens"]

    def _send(self, tokens: list[int], **options: Any) -> dict[str, Any]:
        """What llama.cpp says to a prompt when it may write one token."""
        request = {"prompt": tokens, "max_tokens": 1, "temperature": 0.0, "logprobs": LISTED, "id_slot": 0}
        return _choice(self._server.handle_completions({**request, **options}))

    def _odds(self, tokens: list[int], ids: list[int]) -> list[float]:
        # It is made to write a letter, because it lists nothing beside half a character.  The list has the
        # model's own probabilities, whatever it is made to write.
        listed = self._send(tokens, logit_bias=[[ids[0], 100.0]])["logprobs"]["content"][0]["top_logprobs"]
        logprobs = {entry["id"]: float(entry["logprob"]) for entry in listed}
        least = min(logprobs.values())
        return [logprobs.get(number, least) for number in ids]

    def _hold(self, prefix: list[int]) -> None:
        """See to it that the slot's state begins with the prefix: it is there, on disk, or computed now."""
        key = hashlib.sha256(json.dumps([self.identity, prefix]).encode()).hexdigest()[:32]
        if self._held == key or len(prefix) < WORTH_KEEPING:
            return
        saved = self._states.glob(f"{key}-*.bin") if self._states else ()
        if not any(self._restored(path, len(prefix)) for path in saved):
            self._send(prefix, cache_prompt=False)  # in one go: the last digits depend on the pieces
            if self._states:
                self._keep(self._states, key)
        self._held = key

    def _restored(self, path: Path, length: int) -> bool:
        """Whether the slot now has the state that this file holds; False for a damaged one."""
        try:
            if path.stem.partition("-")[2] != models.sha256_of(path)[:32]:
                return False
            response = self._ask("/slots/0?action=restore", {"filename": path.name})
            os.utime(path)
        except (LLMError, OSError):  # made by another version, or removed just now
            return False
        return response["n_restored"] == length

    def _keep(self, states: Path, key: str) -> None:
        """Save the slot's state; where that cannot be done, the next process computes it again."""
        made = states / f"{secrets.token_hex(8)}.new"
        try:
            self._ask("/slots/0?action=save", {"filename": made.name})
            made.chmod(0o600)
            made.replace(states / f"{key}-{models.sha256_of(made)[:32]}.bin")
            old = sorted(states.glob("*.bin"), key=lambda path: path.stat().st_mtime)
            for path in old[:-STATES_KEPT]:
                path.unlink(missing_ok=True)
        except (LLMError, OSError):
            made.unlink(missing_ok=True)

    def _ask(self, path: str, request: Any = None, *, method: str = "POST") -> Any:
        """One request to llama.cpp's own port, for what only that offers."""
        connection = http.client.HTTPConnection(self._address, timeout=_PATIENCE)
        try:
            connection.request(method, path, json.dumps(request), {"Authorization": f"Bearer {self._key}"})
            return _checked(json.loads(connection.getresponse().read()))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LLMError("local_model", f"llama.cpp did not answer: {error!r}") from error
        finally:
            connection.close()


def _checked(response: Any) -> Any:
    error = response.get("error") if isinstance(response, dict) else None
    if error:
        cause = "context_length" if error.get("type") == "exceed_context_size_error" else "local_model"
        raise LLMError(cause, f"llama.cpp refused: {error.get('message', error)}")
    return response


def _choice(response: dict[str, Any]) -> dict[str, Any]:
    return _checked(response)["choices"][0]


def _states_folder() -> Path | None:
    """Where prefixes are kept; None where the cache cannot be written to."""
    folder = models.cache_folder() / "prefixes"
    try:
        models.private_folder(folder)
    except OSError:
        return None
    return folder


def _weights(path: Path) -> Path:
    """The GGUF file of what a name led to."""
    files = [path] if path.is_file() else [*path.glob("*.gguf")]
    if len(files) != 1:
        raise ModelError(f"{path} holds {len(files)} .gguf files; name the one to use")
    return files[0]


def _xllamacpp() -> Any:
    """llama.cpp with threads that sleep, and do not spin, until the others are done.

    On two cores with a load of 4, two spinning threads took twice the CPU time of one and longer; two
    sleeping ones took no more CPU than one.  OpenMP reads the variable once, when the library is loaded.
    """
    given = os.environ.get(_WAITING)
    os.environ.setdefault(_WAITING, "passive")
    try:
        import xllamacpp
    except ImportError as error:
        if error.name == "xllamacpp":
            raise MissingExtra("xllamacpp", "local") from error
        remedy = "it needs the system's OpenMP library (apt install libgomp1)"
        raise SetupError(f"xllamacpp is installed but cannot be loaded: {error}; {remedy}") from error
    finally:
        if given is None:
            del os.environ[_WAITING]
    return xllamacpp


def default_threads() -> int:
    """All cores this process may use up to four, and half of them beyond."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores <= _ALL_UP_TO else max(_ALL_UP_TO, cores // 2)
