"""Models that answer outside of training, opened by name."""

from __future__ import annotations

from factrl.errors import ConfigError, MissingExtra
from factrl.llm import connect, preflight
from factrl.llm.writers import ServerWriter, Writer
from factrl.runs.settings import LOCAL, RunSettings


def open_writer(settings: RunSettings) -> Writer:
    """The model that `model.name` names: a server's address, `local`, or a policy to load in this process.

    A server gets one tiny request first, which shows that it answers and what its model is called.  Some
    servers truncate the token distribution by default (llama.cpp `min_p` and `top_k`, vLLM as the model's
    `generation_config.json` says): in `local` that is off, elsewhere it depends on how the server is started.

    Raises:
        SetupError: what the user must change.
        MissingExtra: a policy in this process, without the extra `train`.
    """
    name, limit = settings.model.name, settings.train.max_completion_length
    check_no_search(settings)
    if name == LOCAL:
        from factrl.llm.local.llama import shared_model

        return ServerWriter(shared_model(), settings.data, limit, workers=1, whole={"top_k": 0, "min_p": 0.0})
    if name.startswith(("http://", "https://")):
        limits = settings.judge.model_dump(include={"timeout_attempt", "timeout_call", "max_attempts"})
        workers = settings.judge.max_concurrency
        llm = connect(name, role="policy", retry_cut=False, max_concurrency=workers, **limits)
        preflight(llm)
        return ServerWriter(llm, settings.data, limit, workers)
    try:
        from .vllm_writing import VLLMWriter, takes_vllm  # need torch, which a server's client does not
        from .writing import PolicyWriter
    except ModuleNotFoundError as error:
        package = (error.name or "factrl").partition(".")[0]
        if package == "factrl":
            raise
        raise MissingExtra(package, "train") from error
    return VLLMWriter(settings) if takes_vllm(settings) else PolicyWriter.load(settings)


def check_no_search(settings: RunSettings) -> None:
    """Refuse to ask a policy that searches: what it learnt with a search, it is not asked without.

    Raises:
        ConfigError: `search.index` is set.
    """
    if settings.search.index is not None:
        raise ConfigError(
            "search.index is for training: a policy searches in TRL's trainer, and answers to held-out "
            "questions are written without; leave data.eval out there, and search.index elsewhere"
        )
