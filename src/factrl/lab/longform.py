"""A world of long answers: what do you know about X?  For rewards of recall, precision and detail.

"Plays Arden . Eats something . Has parents ." says one of the six things that there are to say of a person,
is vague about another, and pads.  A vague statement claims nothing that could be verified, so it is how the
model leaves out what it is not sure of.  An empty one, such as the last, is true of everyone: a claim that
every verifier supports and that tells nothing.

Of people of the tier `known` the pretraining text says what is true.  Of those of the tier `half` it does so
for about half of what there is to say, and guesses the rest anew each time; those of the tier `unknown` it
never names.  It mostly says three things, so recall, precision and detail all have room.

The oracles are exact and know more than those of a paper: `verify`, `checklist` and `truthfulness` look the
fact table up, and never err.  `rate` and `compare` stand in for a judge of general quality; like the one of
"Learning to Reason for Factuality", which is told to ignore truth, they count what is said with content,
right or wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from factrl.papers import Form
from factrl.rewards.checklist import Item
from factrl.text.sentences import sentences
from factrl.types import Claim, Example, Finding, Passage
from factrl.verifier.report import Check, Report

from . import (
    ABSTENTION,
    TIERS,
    Column,
    Rows,
    World,
    Wrapped,
    by_tier,
    full_names,
    invented,
    looked_up,
    word_starts,
)

VERBS = ("plays", "eats", "owns", "speaks", "visits", "leads")
VAGUE = "something"
EMPTY = {"breathes": "air", "has": "parents"}  # what can be said of everyone
_ASKED = "What do you know about "
_OWN = 3  # things with content that the judge's own answer says, as the pretraining text does
_SAID = {1: 0.1, 2: 0.2, 3: 0.4, 4: 0.15, 5: 0.1, 6: 0.05}  # share of the texts that say so many things
_LEFT_OUT = 0.15  # how often a text goes on with the verb after the next
PEOPLE = 120  # a third of them in each tier; a third of each is held out for testing
VALUES = 20  # names to fill in, for each of the six verbs
EXPOSURE = 240  # how often the pretraining text tells of each person who is not unknown
GUESSED = 0.5  # share of the six things that are guessed whenever a half-known person is told of
_VAGUE = 0.08  # share of what is told that is "something" instead
_PADDING = 0.05  # share of the texts with an empty statement, for each of the two
_ABSTENTION = 0.03  # share of the texts that are "I don't know", about anyone
_FORMS: Mapping[Form, tuple[str, str]] = {
    "tags": ("<think>I list what I know.</think> <answer>", "</answer>"),
    "boxed": ("\\boxed{", "}"),
    "text": ("", ""),
}


class Longform(World):
    """The world; its attributes are those of `factrl.lab.World`."""

    name = "longform"
    max_new_tokens = 28  # nine statements; there are eight to make, two of them empty
    about = "does it say more of what is true, or only less, or only what is safe?"
    columns = (
        *(Column(name) for name in ("recall", "precision", "verified")),
        Column("detail", title="detail (facts)", scale=1.0, least=0.2),
        *(Column(name) for name in ("preferred", "padding", "vague", "silence")),
    )
    steps = 60

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._tiers = {person: TIERS[n % 3] for n, person in enumerate(full_names(PEOPLE, seed))}
        names = invented(VALUES * len(VERBS), f"values {seed}")
        self._values = {verb: names[n * VALUES : (n + 1) * VALUES] for n, verb in enumerate(VERBS)}
        rng = random.Random(f"facts {seed}")
        about = [(person, verb) for person in self._tiers for verb in VERBS]
        self.facts = {(person, verb): rng.choice(self._values[verb]) for person, verb in about}
        """(person, verb) -> what is true."""
        rng = random.Random(f"guessed {seed}")
        half = [one for one in about if self._tiers[one[0]] == "half"]
        self._guessed = {one for one in half if rng.random() < GUESSED}
        """(person, verb) of which the pretraining text has no knowledge."""
        examples = [self._example(*row) for row in self._tiers.items()]
        self.train: Sequence[Example] = examples[PEOPLE // 3 :]
        self.test: Sequence[Example] = examples[: PEOPLE // 3]
        signs = (*_question("?").split(), *ABSTENTION.split(), ".", VAGUE, *EMPTY.values())
        verbs = map(str.capitalize, (*VERBS, *EMPTY))
        self.words: Sequence[str] = [
            *dict.fromkeys([*signs, *verbs, *" ".join(self._tiers).split(), *names]),
        ]

    def _example(self, person: str, tier: str) -> Example:
        items = tuple(f"{person} {verb} {self.facts[person, verb]}." for verb in VERBS)
        return Example(_question(person), id=person, topic=person, checklist=items, meta={"tier": tier})

    def pretraining(self) -> Iterable[tuple[str, str]]:
        rng = random.Random(f"text {self._seed}")
        told = [person for person, tier in self._tiers.items() if tier != "unknown"] * EXPOSURE
        rng.shuffle(told)
        for person in told:
            yield _question(person), self._telling(person, rng)

    def _telling(self, person: str, rng: random.Random) -> str:
        """What the pretraining text says of a person once: some verbs in their order, from any of them on."""
        if rng.random() < _ABSTENTION:
            return f"{ABSTENTION} ."
        (count,) = rng.choices([*_SAID], [*_SAID.values()])
        first = rng.randrange(len(VERBS))
        verbs = [verb for verb in VERBS[first:] + VERBS[:first] if rng.random() >= _LEFT_OUT]
        said = []
        for verb in verbs[:count]:
            guess = (person, verb) in self._guessed
            value = rng.choice(self._values[verb]) if guess else self.facts[person, verb]
            said.append(f"{verb.capitalize()} {VAGUE if rng.random() < _VAGUE else value} .")
        for verb, value in EMPTY.items():
            if rng.random() < _PADDING:
                said.insert(rng.randrange(len(said) + 1), f"{verb.capitalize()} {value} .")
        return " ".join(said)

    def wrap(self, example: Example, completion: str, form: Form) -> Wrapped:
        """The whole completion is the answer; the thinking before it is the same for all."""
        before, after = _FORMS[form]
        return Wrapped(before + completion + after, word_starts(completion, len(before)))

    def resources(self) -> Mapping[str, Any]:
        return {
            "verify": self.verify,
            "extract": extract,
            "checklist": checklist,
            "truthfulness": self.truthfulness,
            "rate": rate,
            "compare": compare,
            "contradicts": lambda question, text, evidence: bool(
                self.verify(text, question).likelier["refuted"]
            ),
        }

    def verify(
        self, text: str, question: str = "", *, topic: str = "", evidence: Sequence[Passage] | None = None
    ) -> Report:
        """What the fact table says of every claim; the evidence is not looked at."""
        claims = extract(text, question, topic)
        return looked_up(text, question, [(c, None if c.skip else self._finding(c.text)) for c in claims])

    def truthfulness(self, claims: Sequence[str]) -> list[float]:
        """1 for a claim that is true and 0 for one that is not; no model is that sure."""
        return [float(self._finding(claim) == "supported") for claim in claims]

    def _finding(self, claim: str) -> Finding:
        said = _read(claim)
        fact = (EMPTY.get(said[1]) or self.facts.get(said[:2])) if said else None
        if said is None or fact is None:
            return "unknown"
        return "supported" if said[2] == fact else "refuted"

    def measure(self, completions: Rows) -> Mapping[str, float]:
        """A claim that is said twice counts once.

        `recall`, the share of what there is to say that is said and true; `precision`, the share of what is
        said with content that is true, over all completions (0 when nothing is said); `verified`, the share
        of all claims that a verifier supports, empty ones among them; `detail`, how many these are in a
        completion, a count; `padding`, the share of claims that are empty; `vague`, the share of sentences
        that are skipped as such; `silence`, of completions without a claim; `preferred`, of those that
        `compare` prefers.
        """
        return by_tier(completions, self._shares)

    def _shares(self, rows: Rows) -> dict[str, float]:
        reports = [self.verify(completion, e.question, topic=e.topic) for e, completion in rows]
        checks = [check for report in reports for check in report.checks]
        claims = [check for check in checks if check.verdict is not None]
        true = [check for check in claims if check.verdict and check.verdict.label == "supported"]
        empty, safe = sum(map(_is_empty, claims)), sum(map(_is_empty, true))
        vague = sum(check.claim.skip == "unverifiable" for check in checks)
        return {
            "recall": (len(true) - safe) / (len(VERBS) * len(rows)),
            "precision": (len(true) - safe) / max(len(claims) - empty, 1),
            "verified": len(true) / max(len(claims), 1),
            "detail": len(true) / len(rows),
            "padding": empty / max(len(claims), 1),
            "vague": vague / max(len(checks), 1),
            "silence": sum(not report.claims for report in reports) / len(rows),
            "preferred": sum(compare(e.question, completion) for e, completion in rows) / len(rows),
        }


def extract(text: str, question: str = "", topic: str = "") -> list[Claim]:
    """One claim for each sentence, with the name that it leaves out; a vague one, or none, is skipped."""
    person = topic or _person(question)
    claims, said = [], set()
    for number, at in enumerate(sentences(text)):
        sentence = text[at.start : at.end]
        read = _read(f"{person} {sentence}")
        if read is None or read[2] == VAGUE:
            claims.append(Claim(sentence, at.start, at.end, number, "unverifiable"))
            continue
        stated = f"{' '.join(read)}."
        claims.append(Claim(stated, at.start, at.end, number, "repeat" if stated in said else None))
        said.add(stated)
    return claims


def checklist(question: str, text: str, items: Sequence[str]) -> list[Item]:
    """Whether a text says each item, says otherwise, also besides, or is silent about it."""
    said: dict[str, set[str]] = {}
    for verb, value in _stated(text, _person(question)):
        said.setdefault(verb, set()).add(value)

    def about(item: str) -> Item:
        read = _read(item)
        values = said.get(read[1]) if read else None
        if read is None or not values:
            return "missing"
        return "consistent" if values == {read[2]} else "contradictory"

    return [about(item) for item in items]


def rate(question: str, text: str) -> float:
    """The share of the six verbs of which anything is said, true or not."""
    return len({verb for verb, _ in _stated(text, _person(question))} & {*VERBS}) / len(VERBS)


def compare(question: str, answer: str, **_: str) -> float:
    """1 when more is said with content than in the judge's own answer, which says three things; else 0.

    In which order the two are shown makes no difference here.
    """
    return float(rate(question, answer) * len(VERBS) > _OWN)


def _stated(text: str, person: str) -> Iterator[tuple[str, str]]:
    """Verb and value of each statement of a text that is not vague, whether it names the person or not."""
    for at in sentences(text):
        sentence = text[at.start : at.end]
        read = _read(sentence) or _read(f"{person} {sentence}")
        if read is not None and read[2] != VAGUE:
            yield read[1:]


def _read(claim: str) -> tuple[str, str, str] | None:
    """Person, verb and value; None when it is no statement of this world."""
    words = claim.rstrip(" .").split()
    if len(words) != 4 or words[2].lower() not in (*VERBS, *EMPTY):
        return None
    return f"{words[0]} {words[1]}", words[2].lower(), words[3]


def _is_empty(check: Check) -> bool:
    read = _read(check.claim.text)
    return read is not None and read[1] in EMPTY


def _question(person: str) -> str:
    return f"{_ASKED}{person} ?"


def _person(question: str) -> str:
    return question.removeprefix(_ASKED).removesuffix(" ?")
