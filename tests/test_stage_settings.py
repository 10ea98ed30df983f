"""Every stage of every paper's pipeline resolves to what `stages.toml` has of the paper."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ConfigError
from factrl.job import read_job, unread_in_asking, unread_in_training
from factrl.papers import settings_of
from factrl.runs.config import flat
from factrl.runs.settings import AskSettings, DataSettings, RunSettings
from factrl.studies import load_study, study_names
from factrl.studies.full import Pipeline, Stage, stage_of

if sys.version_info < (3, 11):
    import tomli as tomllib  # pyright: ignore[reportMissingImports]
else:
    import tomllib

TABLE: Mapping[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("stages.toml").read_text("utf-8")
)
STUDIES = [
    *(name for name in study_names() if load_study(name).full.steps),
    "truthrl:no-retrieval",
    "knowrl:skywork",
]
ASKED = ("prompt", "system", "prefill", "chat")


def stages(name: str, folder: Path) -> Iterator[tuple[str, Stage]]:
    study, _, variant = name.partition(":")
    full = load_study(study).full
    pipeline = Pipeline(full.variant(variant) if variant else full, judge="http://localhost:1/v1#m")
    file = pipeline.write_recipe(folder)
    for command in pipeline.with_settings(pipeline.commands(Path("out"), 0), file):
        if stage := stage_of(command, file):
            yield command.name, stage
    file.unlink()


def wanted(study: str, step: str) -> dict[str, Any]:
    """What the entries of a step say; `asked` among it."""
    found: dict[str, Any] = {}
    patterns = [one for entry in TABLE.get(study, ()) for one in entry["steps"] if one != "*"]
    if not any(fnmatchcase(step, pattern) for pattern in patterns):
        pytest.fail(f"add the step {step!r} of {study} to tests/stages.toml, with its paper's values")
    for entry in TABLE[study]:
        if any(fnmatchcase(step, pattern) for pattern in entry["steps"]):
            assert entry["source"]
            ours = flat(entry.get("ours", {}))
            assert all(len(told) == 2 and told[1] for told in ours.values()), (step, ours)
            of = {**flat(entry.get("paper", {})), **{key: value for key, (value, _) in ours.items()}}
            of |= {"asked": entry["asked"]} if "asked" in entry else {}
            assert not of.keys() & found.keys(), f"{study}, {step}: twice in stages.toml: {of.keys() & found}"
            found |= of
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_a_stage_has_the_papers_settings(name: str, tmp_path: Path) -> None:
    study, _, variant = name.partition(":")
    for step, stage in stages(name, tmp_path):
        told = wanted(study, step)
        asked = told.pop("asked")
        of = settings_of(asked.partition(":")[0] if variant else asked)["data"] if asked else {}
        data = DataSettings(**{"train": "-", **of})
        if (study, step) not in (("klcf", "truthfulness"), ("klcf", "base")):  # they continue a text
            assert [getattr(stage.settings.data, key) for key in ASKED] == [
                getattr(data, key) for key in ASKED
            ], f"{name}, {step}: the prompt is not {asked or 'the bare question'}'s"
        values = {k: v for k, v in stage.values.items() if k != "paper" and not k.startswith("data.")}
        differ = {
            key: f"{values.get(key, 'not read')!r} for {told.get(key, 'nothing')!r}"
            for key in {**values, **told}
            if values.get(key) != told.get(key)
        }
        assert not differ, f"{name}, {step}: {differ}: mend the step, or tests/stages.toml"


def test_every_entry_is_of_a_step(tmp_path: Path) -> None:
    for study, entries in TABLE.items():
        names = [step for step, _ in stages(study, tmp_path)]
        for pattern in (pattern for entry in entries for pattern in entry["steps"]):
            assert any(fnmatchcase(step, pattern) for step in names), f"{study}: {pattern} is no step"


@pytest.mark.parametrize(
    ("words", "unused", "problem"),
    [
        (["paper=truthrl", "verifier.index=w"], unread_in_training, "verifier.index = 'w' is not used"),
        (
            ["paper=truthrl", "judge.reward_model=m"],
            unread_in_training,
            "judge.reward_model = 'm' is not used",
        ),
        (["paper=truthrl", "lora_alpha=8"], unread_in_training, "model.lora_alpha = 8 is not used"),
        (["paper=intuitor", "judge.url=http://h/v1#m"], unread_in_training, "judge.url = "),
        (["paper=intuitor", "judge.url=http://h/v1#m", "data.eval=q"], unread_in_training, ""),
        (["paper=knowrl", "verifier.index=w"], unread_in_training, ""),
        (["paper=knowrl:format", "verifier.index=w"], unread_in_training, "and this needs no judge"),
        (["paper=knowrl", "verifier.index=w"], unread_in_asking, "verifier.index = 'w' is not used"),
        (["paper=knowrl", "verifier.index=w"], partial(unread_in_asking, long=True), ""),
        (["train.temperature=0.6"], unread_in_asking, "how answers are sampled is [sampling]"),
        (["train.max_completion_length=6"], unread_in_asking, ""),
    ],
)
def test_a_setting_that_a_command_does_not_read_is_refused(
    words: list[str], unused: Any, problem: str
) -> None:
    words = ["model.name=m", "data.train=q", *words]
    kind = RunSettings if unused is unread_in_training else AskSettings
    if not problem:
        read_job(None, words, kind, unused)
        return
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read_job(None, words, kind, unused)
