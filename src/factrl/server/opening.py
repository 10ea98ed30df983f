"""From what `factrl serve` was told to a service with its rewards, judge and verifier."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, LLMError
from factrl.llm.background import wait_for
from factrl.llm.models import cache_folder
from factrl.llm.store import Store
from factrl.papers import split_spec
from factrl.rewards import Reward
from factrl.rewards.resources import ONLY_IN_TRAINING, Supplier, check_resources, supply
from factrl.runs.settings import RunSettings
from factrl.train.plan import bare_reward, open_judge, run_settings

from .ledger import Ledger
from .service import Service

_LOOK_SECONDS = 5.0  # for a judge to name its model


def read_settings(told: Mapping[str, Any]) -> dict[str, RunSettings]:
    """The settings of every reward that is served, by its name on the wire.

    Args:
        told: `rewards`, a list of specs; `config`, a recipe or None; `overrides`, a list of `key=value`.

    Raises:
        ConfigError: what the user must change.
    """
    found: dict[str, RunSettings] = {}
    for spec in told["rewards"]:
        if spec in found:
            raise ConfigError(f"the reward {spec!r} is named twice")
        needed = ["data.train=none", "model.name=none", f"paper={spec}"]  # neither is used here
        settings = run_settings(told["config"], [*told["overrides"], *needed])
        if "certainty" in bare_reward(settings).missing:
            raise ConfigError(f"the reward {spec!r} cannot be served: {ONLY_IN_TRAINING}")
        found[spec] = settings
    return found


def open_service(told: Mapping[str, Any]) -> Service:
    """Open judge, verifier and store, and supply the rewards.

    Args:
        told: as for `read_settings`, and `verify`: whether texts are verified also when no reward does.

    Raises:
        SetupError: what the user must change.
    """
    judges: dict[str, Any] = {}
    verifiers: dict[str, Any] = {}
    rewards: dict[str, Reward] = {}
    known = read_settings(told)
    for name, settings in known.items():
        asked = settings.judge.model_dump_json()
        if asked not in judges:
            judges[asked] = open_judge(settings.judge)
        supplier = Supplier(judges[asked], settings.judge, settings.verifier)
        reward = bare_reward(settings)
        check_resources(reward)
        if "verify" in reward.missing or told["verify"]:
            checked = settings.verifier.model_dump_json() + asked
            if checked not in verifiers:
                verifiers[checked] = supplier.verify()
            if "verify" in reward.missing:  # rewards that verify alike share what is found
                reward = reward.with_(verify=verifiers[checked])
        rewards[name] = supply(reward, supplier=supplier)
    judge = next((judge for judge in judges.values() if judge is not None), None)
    verifier = next(iter(verifiers.values()), None)
    decides = decides_of(known.values(), judges.values())
    return Service(rewards, judge, verifier, open_answers(), told=decides)


def open_answers() -> Store:
    """The store that all workers keep their answers in.

    Raises:
        ConfigError: it cannot be written, so workers could not share what they answered.
    """
    try:
        path = cache_folder() / "answers.db"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for place in (path, Ledger.locks_of(path)):
            os.close(os.open(place, os.O_CREAT | os.O_RDWR, 0o600))
    except (OSError, RuntimeError) as error:  # the latter of ~ without a home
        raise ConfigError(
            f"the server's answers cannot be kept ({error}); set FACTRL_CACHE to a folder that can be written"
        ) from None
    return Store(path)


def decides_of(settings: Iterable[RunSettings], judges: Iterable[Any]) -> dict[str, Any]:
    """What decides an answer beside the rewards' knobs: all settings, source of one's own, and the models.

    A judge whose model is not named is asked for it.  While that is not known, no answer is given again by
    another process, which may find another model there.
    """
    told = [one.model_dump(mode="json") for one in settings]
    files = {split_spec(one["paper"])[0] for one in told}
    sources = {
        file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files if file.endswith(".py")
    }
    return {"settings": told, "sources": sources, "models": [_model_of(judge) for judge in judges]}


def _model_of(judge: Any) -> str:
    if hasattr(judge, "find_model"):
        try:
            wait_for(asyncio.wait_for(judge.find_model(), _LOOK_SECONDS))
        except (LLMError, asyncio.TimeoutError):
            return f"{judge.identity} {uuid.uuid4().hex}"
    return getattr(judge, "identity", "")
