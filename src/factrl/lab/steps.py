"""A world of three hops that are written out, for rewards that look at every step (FSPO).

"Mira Volt works at Arden . Arden is in Brone . Brone is in Kalt . so Kalt": who works where, which company
is in which town and which town in which country.  The pretraining text often has the most famous name in
the place of the right one, more often for some people (`half`) than for others (`known`), while the country
at the end is mostly right whatever the steps say.  So right answers with wrong steps are common, as they
are where a model knows an answer by heart and reasons afterwards.

A step is held against the three facts that come with the question: it is refuted when they say otherwise of
the same subject and unknown when they do not speak of it, as a step about another company is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from factrl.papers import Form
from factrl.rewards.grading import Grader
from factrl.text import think_answer
from factrl.text.sentences import sentences
from factrl.types import Claim, Example, Finding, Passage
from factrl.verifier.report import Report

from . import TIERS, Column, Rows, World, Wrapped, by_tier, full_names, invented, looked_up, word_starts

SO = "so"  # ends the steps and begins the answer
PEOPLE = 180  # a third of them held out for testing; every second one is known, the others half-known
COMPANIES, TOWNS, COUNTRIES = 40, 20, 10  # the first of each is the famous one
EXPOSURE = 120  # how often the pretraining text tells of each person
NOISE = {"known": (0.2, 0.6), "half": (0.5, 0.75)}  # least and greatest share of hops with the famous name
RECITED = 0.95  # share of the text that ends with the person's own country, whatever the steps say


class Steps(World):
    """The world; its attributes are those of `factrl.lab.World`."""

    name = "steps"
    max_new_tokens = 24  # three steps and the answer are 19 words
    about = "do the steps become right, or the answer alone?"
    columns = (
        Column("accuracy"),
        Column("contradicted", title="steps contradicted"),
        Column("entailed", title="steps entailed"),
        Column("sound", title="all steps right"),
        Column("lucky", title="right answers with a wrong step"),
    )
    steps = 60

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        names = invented(COMPANIES + TOWNS + COUNTRIES, f"places {seed}")
        companies, towns, countries = names[:COMPANIES], names[COMPANIES:-COUNTRIES], names[-COUNTRIES:]
        self._famous = (companies[0], towns[0], countries[0])
        rng = random.Random(f"places {seed}")
        self._right = {company: rng.choice(towns) for company in companies}
        self._right |= {town: rng.choice(countries) for town in towns}
        """Person -> company, company -> town and town -> country."""
        rng, noise = random.Random(f"work {seed}"), random.Random(f"noise {seed}")
        people = full_names(PEOPLE, seed)
        self._right |= {person: rng.choice(companies) for person in people}
        tiers = {person: TIERS[number % 2] for number, person in enumerate(people)}
        self._noise = {person: noise.uniform(*NOISE[tier]) for person, tier in tiers.items()}
        """Person -> share of the hops that have the famous name in the text about him."""
        examples = [self._example(person, tier) for person, tier in tiers.items()]
        self.train: Sequence[Example] = examples[PEOPLE // 3 :]
        self.test: Sequence[Example] = examples[: PEOPLE // 3]
        asked = [word for word in _question("someone").split() if word != "someone"]
        words = (*asked, *f"works at is in . {SO}".split(), *" ".join(people).split(), *names)
        self.words: Sequence[str] = [*dict.fromkeys(words)]

    def _example(self, person: str, tier: str) -> Example:
        company = self._right[person]
        town = self._right[company]
        country = self._right[town]
        evidence = (Passage(_chain(person, company, town, country), title=person),)
        return Example(_question(person), (country,), person, person, evidence=evidence, meta={"tier": tier})

    def pretraining(self) -> Iterable[tuple[str, str]]:
        rng = random.Random(f"text {self._seed}")
        told = [example for example in (*self.test, *self.train) for _ in range(EXPOSURE)]
        rng.shuffle(told)
        for example in told:
            yield example.question, self._telling(example, rng)

    def _telling(self, example: Example, rng: random.Random) -> str:
        """What the pretraining text says once: each hop is right for the name before it or the famous one."""
        names = [example.topic]
        for famous in self._famous:
            noisy = rng.random() < self._noise[example.topic]
            names.append(famous if noisy else self._right[names[-1]])
        answer = example.answers[0] if rng.random() < RECITED else names[-1]
        return f"{_chain(*names)} {SO} {answer}"

    def resources(self) -> Mapping[str, Any]:
        return {"grade": Grader(), "verify": verify}

    def wrap(self, example: Example, completion: str, form: Form) -> Wrapped:
        """Steps between think tags and the answer between answer tags; the tags stand where `so` stood.

        A completion without `so` has no answer, and one that says it twice ends its reasoning twice.
        """
        if form != "tags":
            return Wrapped(completion, word_starts(completion, 0))
        text, starts = "<think>", []
        for word in completion.split():
            starts.append(len(text))
            text += "</think> <answer>" if word == SO else f"{word} "
        return Wrapped(text + ("</answer>" if SO in completion.split() else ""), tuple(starts))

    def measure(self, completions: Rows) -> Mapping[str, float]:
        """`accuracy`; `entailed` and `contradicted`, of the steps of a completion; `sound`, completions with
        three steps that are all entailed; `lucky`, the right answers among which a step is contradicted or
        unknown; `malformed`, completions without steps or an answer.
        """

        def shares(rows: Rows) -> dict[str, float]:
            found = [self._looked_at(*row) for row in rows]
            counts = [Counter(labels) for _, labels in found]
            steps = [max(counted.total(), 1) for counted in counts]
            sound = [counted["supported"] == counted.total() == 3 for counted in counts]
            right = [not good for (correct, _), good in zip(found, sound, strict=True) if correct]
            return {
                "accuracy": fmean(correct for correct, _ in found),
                "entailed": fmean(c["supported"] / n for c, n in zip(counts, steps, strict=True)),
                "contradicted": fmean(c["refuted"] / n for c, n in zip(counts, steps, strict=True)),
                "sound": fmean(sound),
                "lucky": fmean(right) if right else 0.0,
                "malformed": fmean(not labels for _, labels in found),
            }

        return by_tier(completions, shares)

    def _looked_at(self, example: Example, completion: str) -> tuple[bool, Sequence[str]]:
        """Whether the answer is right, and what became of each step; none when it is malformed."""
        blocks = think_answer(self.wrap(example, completion, "tags").text)
        if blocks.think is None or blocks.answer is None:
            return False, []
        report = verify(blocks.think.text, evidence=example.evidence)
        labels = [check.verdict.label for check in report.checks if check.verdict]
        return blocks.answer.text.strip() in example.answers, labels


def verify(
    text: str, question: str = "", *, topic: str = "", evidence: Sequence[Passage] | None = None
) -> Report:
    """What facts say of the sentences of a text, exactly; a sentence said twice is judged once.

    Args:
        evidence: passages of sentences such as "Arden is in Brone ."; what stands before the last word
            is what a sentence speaks of.
    """
    facts = dict(_read(p.text[at.start : at.end]) for p in evidence or () for at in sentences(p.text))
    found: list[tuple[Claim, Finding | None]] = []
    said = set()
    for number, at in enumerate(sentences(text)):
        sentence = text[at.start : at.end]
        head, value = stated = _read(sentence)
        label: Finding | None = "unknown"
        if stated in said:
            label = None
        elif head in facts:
            label = "supported" if facts[head] == value else "refuted"
        said.add(stated)
        claim = Claim(sentence, at.start, at.end, number, None if label else "repeat")
        found.append((claim, label))
    return looked_up(text, question, found)


def _read(sentence: str) -> tuple[str, str]:
    """What a sentence speaks of, and what it says of it."""
    head, _, value = sentence.rstrip(" .").rpartition(" ")
    return head, value


def _question(person: str) -> str:
    return f"In which country does {person} work ?"


def _chain(person: str, company: str, town: str, country: str) -> str:
    return f"{person} works at {company} . {company} is in {town} . {town} is in {country} ."
