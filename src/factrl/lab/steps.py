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
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from factrl.papers import Form
from factrl.rewards.grading import Grader
from factrl.text import think_answer
from factrl.text.sentences import sentences
from factrl.types import Claim, Example, Finding, Passage, Verdict
from factrl.verifier.report import Check, Report

from . import ORACLE, Wrapped, by_tier, full_names, invented, word_starts

SO = "so"  # ends the steps and begins the answer
PEOPLE = 180  # a third of them held out for testing
COMPANIES, TOWNS, COUNTRIES = 40, 20, 10  # the first of each is the famous one
EXPOSURE = 120  # how often the pretraining text tells of each person
NOISE = {"known": (0.2, 0.6), "half": (0.5, 0.75)}  # least and greatest share of hops with the famous name
RECITED = 0.95  # share of the text that ends with the person's own country, whatever the steps say
TIERS = ("known", "half")


@dataclass(frozen=True)
class Steps:
    """The world; its `name`, `words`, `train` and so on are those of `factrl.lab.World`.

    Every second person is known, and the others are half-known; each has a noise of their own.
    """

    seed: int = 0

    name = "steps"
    max_new_tokens = 24  # three steps and the answer are 19 words

    @cached_property
    def _places(self) -> tuple[list[str], list[str], list[str]]:
        """Companies, towns and countries, the famous one of each first."""
        names = invented(COMPANIES + TOWNS + COUNTRIES, f"places {self.seed}")
        return names[:COMPANIES], names[COMPANIES:-COUNTRIES], names[-COUNTRIES:]

    @cached_property
    def _lies_in(self) -> Mapping[str, str]:
        """Company -> town and town -> country."""
        rng = random.Random(f"places {self.seed}")
        companies, towns, countries = self._places
        inside = {company: rng.choice(towns) for company in companies}
        return inside | {town: rng.choice(countries) for town in towns}

    @cached_property
    def _works_at(self) -> Mapping[str, str]:
        rng = random.Random(f"work {self.seed}")
        return {person: rng.choice(self._places[0]) for person in full_names(PEOPLE, self.seed)}

    @cached_property
    def _noise(self) -> Mapping[str, float]:
        """Share of the hops that have the famous name in the text about a person."""
        rng = random.Random(f"noise {self.seed}")
        people = enumerate(self._works_at)
        return {person: rng.uniform(*NOISE[TIERS[number % 2]]) for number, person in people}

    @cached_property
    def words(self) -> Sequence[str]:
        names = [word for person in self._works_at for word in person.split()]
        asked = _question("someone").split()
        said = f"works at is in . {SO}".split()
        words = (*asked, *said, *names, *(word for kind in self._places for word in kind))
        return [*dict.fromkeys(word for word in words if word != "someone")]

    @cached_property
    def _examples(self) -> Sequence[Example]:
        return [self._example(who, TIERS[n % 2]) for n, who in enumerate(self._works_at)]

    @property
    def train(self) -> Sequence[Example]:
        return self._examples[PEOPLE // 3 :]

    @property
    def test(self) -> Sequence[Example]:
        return self._examples[: PEOPLE // 3]

    def _example(self, person: str, tier: str) -> Example:
        company = self._works_at[person]
        town = self._lies_in[company]
        country = self._lies_in[town]
        facts = _chain(person, company, town, country)
        evidence = Passage(facts, title=person)
        return Example(
            _question(person), (country,), person, person, evidence=(evidence,), meta={"tier": tier}
        )

    def pretraining(self) -> Iterable[tuple[str, str]]:
        rng = random.Random(f"text {self.seed}")
        told = [example for example in self._examples for _ in range(EXPOSURE)]
        rng.shuffle(told)
        for example in told:
            yield example.question, self._telling(example, rng)

    def _telling(self, example: Example, rng: random.Random) -> str:
        """What the pretraining text says once: each hop is right for the name before it or the famous one."""
        famous = [kind[0] for kind in self._places]
        right: Mapping[str, str] = {**self._lies_in, **self._works_at}
        names = [example.topic]
        for hop in range(3):
            noisy = rng.random() < self._noise[example.topic]
            names.append(famous[hop] if noisy else right[names[-1]])
        _, company, town, country = names
        answer = example.answers[0] if rng.random() < RECITED else country
        return f"{_chain(example.topic, company, town, country)} {SO} {answer}"

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

    def measure(self, completions: Sequence[tuple[Example, str]]) -> Mapping[str, float]:
        """Shares, overall and as `known/accuracy` by tier.

        `accuracy`; `entailed` and `contradicted`, of the steps of a completion; `sound`, completions with
        three steps that are all entailed; `lucky`, the right answers among which a step is contradicted or
        unknown; `malformed`, completions without steps or an answer.
        """
        return by_tier(completions, lambda rows: _shares([self._row(*row) for row in rows]))

    def _row(self, example: Example, completion: str) -> tuple[bool, Sequence[Finding]]:
        """Whether the answer is right, and what became of each step; none when it is malformed."""
        blocks = think_answer(self.wrap(example, completion, "tags").text)
        if blocks.think is None or blocks.answer is None:
            return False, []
        report = verify(blocks.think.text, evidence=example.evidence)
        labels: list[Finding] = [check.verdict.label for check in report.checks if check.verdict]
        return blocks.answer.text.strip() in example.answers, labels


def verify(
    text: str, question: str = "", *, topic: str = "", evidence: Sequence[Passage] | None = None
) -> Report:
    """What facts say of the sentences of a text, exactly; a sentence said twice is judged once.

    Args:
        evidence: passages of sentences such as "Arden is in Brone ."; what stands before the last word
            is what a sentence speaks of.
    """
    passages = tuple(evidence or ())
    facts = {}
    for number, passage in enumerate(passages):
        for at in sentences(passage.text):
            head, value = _read(passage.text[at.start : at.end])
            facts[head] = value, (number, at.start, at.end)
    checks, said = [], set()
    for number, at in enumerate(sentences(text)):
        head, value = _read(text[at.start : at.end])
        repeat = "repeat" if (head, value) in said else None
        said.add((head, value))
        claim = Claim(text[at.start : at.end], at.start, at.end, number, repeat)
        if repeat:
            checks.append(Check(claim))
        elif head in facts:
            fact, quote = facts[head]
            label: Finding = "supported" if fact == value else "refuted"
            checks.append(Check(claim, passages, Verdict(label, ORACLE, quote=quote)))
        else:
            checks.append(Check(claim, passages, Verdict("unknown", ORACLE)))
    return Report(text, question, tuple(checks), judge=ORACLE)


def _read(sentence: str) -> tuple[str, str]:
    """What a sentence speaks of, and what it says of it."""
    head, _, value = sentence.rstrip(" .").rpartition(" ")
    return head, value


def _question(person: str) -> str:
    return f"In which country does {person} work ?"


def _chain(person: str, company: str, town: str, country: str) -> str:
    return f"{person} works at {company} . {company} is in {town} . {town} is in {country} ."


def _shares(rows: Sequence[tuple[bool, Sequence[Finding]]]) -> dict[str, float]:
    counts = [Counter(labels) for _, labels in rows]
    steps = [max(counted.total(), 1) for counted in counts]
    sound = [counted["supported"] == counted.total() == 3 for counted in counts]
    right = [not all_right for (correct, _), all_right in zip(rows, sound, strict=True) if correct]
    return {
        "accuracy": fmean(correct for correct, _ in rows),
        "entailed": fmean(c["supported"] / n for c, n in zip(counts, steps, strict=True)),
        "contradicted": fmean(c["refuted"] / n for c, n in zip(counts, steps, strict=True)),
        "sound": fmean(sound),
        "lucky": fmean(right) if right else 0.0,
        "malformed": fmean(not labels for _, labels in rows),
    }
