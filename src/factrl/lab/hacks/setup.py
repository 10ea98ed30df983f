"""What `factrl stress` tests: a reward with its judges, how its texts are written, and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factrl.errors import ConfigError
from factrl.lab.hacks.forms import Written, write
from factrl.lab.hacks.oracles import NAME, oracle_resources
from factrl.lab.hacks.policies import WAYS
from factrl.lab.hacks.prompts import Prompt, example_of, prompts
from factrl.papers import Form, Length, declared, form_of, length_of, load_reward, split_spec
from factrl.rewards import Reward
from factrl.runs.journal import Journal
from factrl.types import Completion

FORMS = 24  # answer forms of a family


@dataclass(frozen=True)
class Setup:
    """What is tested, and how its texts are written.

    Attributes:
        spec: the reward's name.
        reward: with its resources.
        form, length: what it reads.
        judges: who judged, in words.
        questions, ways: how many of the twenty questions and of the three paraphrases.
        forms, seed: how many answer forms of each family, and the seed of the choice.
    """

    spec: str
    reward: Reward
    form: Form
    length: Length
    judges: str = NAME
    questions: int = 20
    ways: int = WAYS
    forms: int = FORMS
    seed: int = 0

    @property
    def chosen(self) -> Sequence[Prompt]:
        """The questions."""
        return list(prompts().values())[: self.questions]

    def write(self, written: Written) -> str:
        """A completion in the form that the reward reads."""
        return write(written, self.form, self.length)


def oracle_setup(
    spec: str, reward: Reward | None = None, *, form: Form | None = None, length: Length | None = None
) -> Setup:
    """A reward with the battery's oracles for whatever it still lacks.

    Args:
        spec: `truthrl`, `truthrl:binary` or `my_file.py:function`.
        reward: with knobs or resources of your own; by default the one that the spec names.
        form, length: how it reads completions, where the spec does not say.

    Raises:
        ConfigError: as `load_reward`, or a resource for which there is no oracle.
    """
    reward = load_reward(stand_in(spec)[0]) if reward is None else reward
    oracles = oracle_resources()
    unknown = [name for name in reward.missing if name not in oracles]
    if unknown:
        raise ConfigError(
            f"{spec} needs {unknown[0]!r}, for which the battery has no oracle (it has: "
            f"{', '.join(oracles)}); supply it with .with_({unknown[0]}=…), or take --live"
        )
    reward = reward.with_(**{name: oracles[name] for name in reward.missing})
    return Setup(spec, reward, form or form_of(spec, reward), length or length_of(spec, reward))


def stand_in(spec: str) -> tuple[str, str]:
    """The reward that is tried in place of a main one that cannot be, and why; itself where it can be."""
    paper, variant = split_spec(spec)
    other = None if variant else declared(spec, "STAND_IN")
    return (f"{paper}:{other[0]}", other[1]) if other else (spec, "")


def known_failures(spec: str) -> Mapping[str, str]:
    """Id of a policy, family or step of the order -> why it is known to pay; printed, and no news."""
    known: Mapping[str, Mapping[str, str]] = declared(spec, "WEAKNESSES", {})
    return known.get(split_spec(spec)[1], known.get("", {}))


def kept_scores(
    setup: Setup,
    names: Sequence[str],
    examples: Sequence[Prompt],
    texts: Sequence[str],
    journal: Journal | None = None,
) -> list[Mapping[str, Any]]:
    """State, value and cause of each text; what the journal has under its name is not scored again.

    Raises:
        RewardBug: the reward raised something other than `Unscored`.
    """
    rows = {name: journal[name] for name in names if journal is not None and name in journal}
    todo = [number for number, name in enumerate(names) if name not in rows]
    results = score_texts(setup, [examples[number] for number in todo], [texts[number] for number in todo])
    for number, row in zip(todo, results, strict=True):
        rows[names[number]] = row
        if journal is not None and row["state"] != "masked":
            journal.add(names[number], dict(row))
    return [rows[name] for name in names]


def score_texts(setup: Setup, asked: Sequence[Prompt], texts: Sequence[str]) -> list[Mapping[str, Any]]:
    """State, value and cause of each text.

    Raises:
        RewardBug: as `kept_scores`.
    """
    results = setup.reward.batch([example_of(p) for p in asked], [Completion(text) for text in texts])
    return [{"state": r.state, "value": r.value, "cause": r.cause or ""} for r in results]
