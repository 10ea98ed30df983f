"""Made-up worlds in which every fact is known, and how often the model has read it.

A world is a model of the question, not of language: its numbers say which way a reward pushes and where it
stops, never how far a real model goes.  `World` is what the loop asks of one; the plainest is
`factrl.lab.people`.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from factrl.errors import ConfigError
from factrl.papers import Form, load_reward
from factrl.rewards import Reward
from factrl.text.abstention import abstains
from factrl.types import Claim, Example, Finding, Passage, Verdict
from factrl.verifier.report import Check, Report

ABSTENTION = "I don't know"
ORACLE = "fact table"  # who judges in a world
TURN = "|"  # ends each turn of a transcript but the last; the policy's and a tool's take turns
TIERS = ("known", "half", "unknown")  # how often the pretraining text tells of a person
Direction = Literal["up", "down", "none"]


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of the world, as a table shows it.

    Attributes:
        metric: its name in `World.measure`, and in the table unless it has a `title`.
        scale: what it is multiplied by: 100 makes points of a share.
        least: the smallest change that is called up or down, after scaling.
    """

    metric: str
    title: str = ""
    scale: float = 100.0
    least: float = 2.0

    @property
    def name(self) -> str:
        return self.title or self.metric.replace("/", ": ")


OUTCOMES = tuple(map(Column, ("accuracy", "abstention", "hallucination", "truthfulness")))


def direction_of(change: float, least: float) -> Direction:
    """`up` or `down` for a change of at least `least`."""
    if abs(change) < least:
        return "none"
    return "up" if change > 0 else "down"


Rows = Sequence[tuple[Example, str]]
"""Questions with their completions."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What a reward sees of a completion.

    Attributes:
        text: the model's words with whatever the form puts around them or says once more.
        starts: for each word that the model wrote, the character of `text` at which it stands; the credit
            that a reward gives to that character is the word's; -1 for words that it does not see.
        shown: the passages that the policy has seen, as `Completion.shown`.
    """

    text: str
    starts: tuple[int, ...]
    shown: tuple[Passage, ...] | None = None


class World(ABC):
    """What the lab asks of a world; what is not abstract suits one that asks its question in one way and
    takes the first turn for the answer.

    Texts are words and signs with single blanks between them, one token each: a text is split at blanks and
    joined by them.  Nothing here depends on a model, and no world imports torch.

    Attributes:
        words: the whole vocabulary, without the marks for padding and end.
        train, test: questions; nobody is asked about in both.  `meta["tier"]` is one of `TIERS`; `ook` is
            None, for the model itself says what is out of its knowledge (the probe of `factrl.lab.arms`).
        max_new_tokens: of one turn, its end included.
        ways: in which its questions can be asked, besides the usual one.
        about, columns: what its tables ask and show.
        steps, seeds: of its tables, unless the command line says otherwise.
    """

    name: str
    words: Sequence[str]
    train: Sequence[Example]
    test: Sequence[Example]
    max_new_tokens: int
    ways: Sequence[str] = ()
    about: str
    columns: tuple[Column, ...]
    steps: int = 48
    seeds: int = 1

    @abstractmethod
    def __init__(self, seed: int = 0) -> None: ...

    def asked(self, way: str) -> World:  # for worlds that have ways
        """The world with its questions asked in one of its `ways`."""
        return self

    def prompt(self, example: Example) -> str:
        """What the model reads before its first turn."""
        return example.question

    def reply(self, example: Example, said: str) -> str | None:  # for worlds with a tool
        """What a tool says to the last turn of a transcript; None where the completion ends with it."""
        return None

    @abstractmethod
    def pretraining(self) -> Iterable[tuple[str, str]]:
        """Prompts and completions of one epoch, shuffled; the same ones each time."""

    @abstractmethod
    def resources(self) -> Mapping[str, Any]:
        """Exact oracles from the fact table, under the names by which rewards ask for resources."""

    @abstractmethod
    def wrap(self, example: Example, completion: str, form: Form) -> Wrapped:
        """A completion in the form that a reward reads: in a box, between tags, or as it is."""

    @abstractmethod
    def measure(self, completions: Rows) -> Mapping[str, float]:
        """Shares in [0, 1] by name, and the same by tier as `known/accuracy`."""


def turns_of(transcript: str) -> list[list[str]]:
    """The words of each turn: the policy's, a tool's, the policy's, …"""
    turns: list[list[str]] = [[]]
    for word in transcript.split():
        if word == TURN:
            turns.append([])
        else:
            turns[-1].append(word)
    return turns


def by_tier(completions: Rows, shares: Callable[[Rows], Mapping[str, float]]) -> dict[str, float]:
    """What `shares` says of all completions, and of those of each tier as `known/accuracy`."""
    rows: dict[str, list[tuple[Example, str]]] = {"": []}
    for example, completion in completions:
        rows[""].append((example, completion))
        rows.setdefault(f"{example.meta['tier']}/", []).append((example, completion))
    return {tier + name: value for tier, some in rows.items() for name, value in shares(some).items()}


def looked_up(text: str, question: str, found: Iterable[tuple[Claim, Finding | None]]) -> Report:
    """The report of a verifier that never errs, from the claims of a text with what they are."""
    checks = [
        Check(claim, verdict=None if label is None else Verdict(label, ORACLE)) for claim, label in found
    ]
    return Report(text, question, tuple(checks), judge=ORACLE, abstained=abstains(text, question))


def worlds() -> Mapping[str, type[World]]:
    """Every world by name."""
    from .longform import Longform
    from .people import Confidence, People
    from .search import Search
    from .steps import Steps

    return {world.name: world for world in (People, Confidence, Search, Steps, Longform)}


def make_world(name: str, seed: int) -> World:
    """The world of this name and seed, as tables have it."""
    return worlds()[name](seed=seed)


def parted(arm: str) -> tuple[str, str]:
    """The reward or method of an arm and the way in which it is asked: `truthrl:binary@given`."""
    spec, _, way = arm.rpartition("@")
    return (spec, way) if spec and way.isalpha() else (arm, "")


def supplied(world: World, arm: str) -> Reward:
    """The reward of an arm with the world's oracles as its resources.

    Raises:
        ConfigError: as `load_reward`, or it asks for something that this world has no oracle for, or in a way
            that this world does not have.
    """
    spec, way = parted(arm)
    if way and way not in world.ways:
        ways = f"the ways {', '.join(world.ways)}" if world.ways else "one way, so leave it out"
        raise ConfigError(f"{arm}: the world {world.name!r} does not ask in the way {way!r}; it has {ways}")
    reward, oracles = load_reward(spec), world.resources()
    for name in reward.missing:
        if name not in oracles:
            raise ConfigError(
                f"the world {world.name!r} has no {name!r}, which {spec} asks for (it has: "
                f"{', '.join(oracles)})"
            )
    return reward.with_(**{name: oracles[name] for name in reward.missing})


def word_starts(words: str, start: int) -> tuple[int, ...]:
    """Where each word of a stretch of text stands, when the stretch begins at `start`."""
    return tuple(start + match.start() for match in re.finditer(r"\S+", words))


# -- Names of people and places that exist nowhere, so that no model has read of them

_STARTS = ("B", "Br", "D", "F", "G", "H", "J", "K", "L", "M", "N", "P", "R", "S", "T", "V", "W", "Z")
_VOWELS = ("a", "e", "i", "o", "u")
_MIDDLES = ("d", "g", "l", "ll", "m", "n", "r", "rd", "st", "v")
_ENDS = ("k", "l", "n", "nd", "r", "s", "th", "x")


def invented(count: int, seed: int | str) -> list[str]:
    """`count` different names of one word and two syllables each; the same ones for the same seed."""
    rng = random.Random(f"names {seed}")
    found: dict[str, None] = {}
    while len(found) < count:
        parts = (_STARTS, _VOWELS, _MIDDLES, _VOWELS, _ENDS)
        found["".join(map(rng.choice, parts))] = None
    return [*found]


def full_names(count: int, seed: int) -> list[str]:
    """`count` different names of two words, in which every word belongs to several people."""
    many = 2 * int(count**0.5)
    first, last = (invented(many, f"{part} {seed}") for part in ("first", "last"))
    every = [f"{one} {other}" for one in first for other in last]
    return random.Random(f"pairs {seed}").sample(every, count)
