"""What the engine benchmark verifies: real responses, what they claim, and the pages that speak of it.

Two shapes of work, both read from the public data in the folder that `FACTRL_DATA` names:

- `separate(n)`: VeriScore's own sample record and n - 1 biographies by ChatGPT, InstructGPT and PerplexityAI,
  in the order of the file, with the facts and labels that people gave them (FActScore).  No two are the same.
- `grouped(prompts, size)`: a training step, as a policy makes it: `size` samples of one model for each prompt
  (the GPT-3 biographies of wiki_bio_gpt3_hallucination; the prompts with the longest).  So the answers share
  names and dates as samples do, and claims repeat within a group about as often.  Nobody labelled
  the claims of these samples: `rule_made` makes them, and three in five are said to be true.

What a search finds are sentences about the same person: of the reference and of the samples that are left
over, or of the three models' answers.  Not a quality benchmark: the stub answers with the labels, whatever
the judge is shown.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factrl.runs.rows import read_lines, read_rows
from factrl.text.sentences import sentences

Fact = tuple[str, bool]
_CITED = re.compile(r"\[ ?\d+\]")  # quoted in a prompt it has a space inside
_PRONOUN = re.compile(r"^(He|She|They)(?= )")
_OWNER = re.compile(r"^(His|Her|Their)(?= )")
_PART = re.compile(r"[,;:]\s+(?:and )?| and | which | who | where ")
_BRACKETS = re.compile(r" ?\([^()]*\)")
_LIVED = re.compile(r"\(([^()–-]*\d{4}) ?[–-] ?([^()–-]*\d{4})\)")
_OPENINGS = ("In", "in", "At", "On", "After", "During", "Before", "From", "With", "As", "Following")
_VERB = (
    r"(?:is|was|were|has|had|[a-z]+ed|became|began|fought|held|led|left|made|sat|spent|took|went|won|wrote)"
)
_DOING = re.compile(
    rf"(?:also |later )?{_VERB}(?: (?:also|born|best known|later|\w+ed))*"
    r"(?: (?:a|an|the|his|her|as|for|in))?(?= )"
)
_SUBJECT = re.compile(rf"^(?:[A-Z][\w.-]+|[Hh]e|[Ss]he|[Tt]hey|[Ii]t) (?=(?:also |later )?{_VERB})")
_ADVERBIAL = re.compile(r" (?=(?:in|at|from|with|by|on|during|after|before|until|as|for) )")
_MOST_CLAIMS = 8
_SETS = ("factscore_human", "veriscore_pipeline", "wikibio_hallucination")


@dataclass(frozen=True)
class Response:
    """One response and what it says, sentence by sentence: `(sentence, ((claim, is it true), …))`."""

    text: str
    question: str
    topic: str
    sentences: tuple[tuple[str, tuple[Fact, ...]], ...]

    @property
    def claims(self) -> list[str]:
        """Every claim of the response, in order."""
        return [claim for _, facts in self.sentences for claim, _ in facts]


class Workload:
    """The responses of one benchmark run."""

    def __init__(self, folder: Path) -> None:
        rows = _rows(folder / "factscore_human" / "responses.jsonl")
        self._by_topic: dict[str, list[Response]] = defaultdict(list)
        for row in rows:
            if row["annotated"]:
                self._by_topic[_plain(row["topic"])].append(_biography(row))
        self._sample = _veriscore_sample(_rows(folder / "veriscore_pipeline" / "pipeline_sample.jsonl")[0])
        self._web = [
            {key: result[key] for key in ("title", "link", "snippet") if result.get(key)}
            for row in _rows(folder / "veriscore_pipeline" / "search_cache.jsonl")
            for result in row["results"]
        ]
        samples = list(read_rows(str(folder / "wikibio_hallucination" / "passages.jsonl.gz")))
        samples.sort(key=lambda row: -sum(map(len, row["gpt3_samples"])))
        self._samples = [(re.split(r" \(| was | is ", row["response"])[0], row) for row in samples]

    def separate(self, count: int) -> list[Response]:
        """`count` different responses; the first is VeriScore's own sample."""
        people = [one for group in self._by_topic.values() if len(group) == 3 for one in group]
        return [self._sample, *people[: count - 1]]

    def grouped(self, prompts: int, size: int) -> list[Response]:
        """`prompts` groups of `size` samples for the same prompt, group after group."""
        rows = self._samples[:prompts]
        return [_sampled(topic, text) for topic, row in rows for text in row["gpt3_samples"][:size]]

    def warm_up(self) -> Response:
        """One response that belongs to no other set: connections and imports are paid on it."""
        return next(group[0] for group in self._by_topic.values() if len(group) == 1)

    def table(self, responses: Sequence[Response]) -> dict[str, Any]:
        """What the stub has to know to answer for `responses`; JSON values."""
        pages: dict[str, dict[str, None]] = defaultdict(dict)
        judged = {one.text for one in responses}
        for topic, row in self._samples:
            for text in (row["reference"], *row["gpt3_samples"]):
                if text.strip() not in judged:
                    pages[topic].update(dict.fromkeys(_parts(text)))
        for group in (*self._by_topic.values(), [self._sample]):
            for one in group:
                pages[one.topic].update(dict.fromkeys(said for said, _ in one.sentences))
        topics = {one.topic for one in responses}
        return {
            "responses": [
                {"text": one.text, "topic": one.topic, "sentences": one.sentences} for one in responses
            ],
            "pages": {topic: list(said) for topic, said in pages.items() if topic in topics},
            "web": self._web,
        }


def data_folder() -> Path:
    """The folder of public data.

    Raises:
        SystemExit: `FACTRL_DATA` does not name one that holds the sets.
    """
    folder = Path(os.environ.get("FACTRL_DATA", ""))
    missing = [name for name in _SETS if not (folder / name).is_dir()]
    if missing:
        raise SystemExit(f"FACTRL_DATA must name the folder of public data; no {missing[0]} in {folder}")
    return folder


def key_of(text: str) -> str:
    """Letters and digits only, lower case: what is left equal by quoting, bullets and sentence splitters."""
    return re.sub(r"\W+", "", _CITED.sub("", text).lower())


def rule_made(sentence: str, topic: str = "") -> list[str]:
    """Claims of a sentence that nobody took apart: each part of each list, once for each of its adverbials.

    A rough imitation of people, who found four in a sentence; what counts here is how many there are, how
    long they are, and that equal sentences make equal ones.
    """
    text = _CITED.sub("", sentence).strip().rstrip(".").removeprefix(topic)
    lived = _LIVED.search(text)
    claims = [f"{topic} was born {lived[1]}.", f"{topic} died {lived[2]}."] if lived else []
    verb, opening = "", ""
    for part in _PART.split(_BRACKETS.sub("", text)):
        said = _SUBJECT.sub("", part.strip())
        if not said or said.split()[0] in _OPENINGS:
            opening = said
            continue
        if found := _DOING.match(said):
            verb = found[0]
        else:
            said = f"{verb} {said}".strip()
        first, *others = _ADVERBIAL.split(said)
        others += [opening] if opening else []
        claims += [f"{topic} {first} {other}." for other in others] or [f"{topic} {first}."]
        opening = ""
    return list(dict.fromkeys(claims))[:_MOST_CLAIMS]


def is_lucky(claim: str) -> bool:
    """Whether a claim that nobody labelled is said to be true: three in five are."""
    return zlib.crc32(key_of(claim).encode()) % 5 < 3


def _rows(path: Path) -> list[dict[str, Any]]:
    return [*read_lines(path)]


def _parts(text: str) -> list[str]:
    return [text[part.start : part.end] for part in sentences(text)]


def _plain(topic: str) -> str:
    return topic.partition(" (")[0].strip()


def _biography(row: dict[str, Any]) -> Response:
    """A FActScore row; the people's facts, else the model's, else the clauses, always with the name in front.

    A fact that the people called irrelevant is true of something, so it counts as supported.
    """
    topic = _plain(row["topic"])
    found = []
    for sentence in row["sentences"]:
        said = _CITED.sub("", sentence["text"])
        facts = [(fact["text"], fact["label"] != "NS") for fact in sentence["human_facts"] or []]
        facts = facts or [(fact, True) for fact in sentence["model_facts"] or rule_made(said, topic)]
        found.append((sentence["text"], tuple((_named(fact, topic), true) for fact, true in facts)))
    question = row["prompt"].removeprefix("Question:").strip()
    return Response(row["response"].strip(), question.replace(row["topic"], topic), topic, tuple(found))


def _named(fact: str, topic: str) -> str:
    return _OWNER.sub(lambda _: f"{topic}'s", _PRONOUN.sub(lambda _: topic, fact))


def _sampled(topic: str, text: str) -> Response:
    """A sample with claims by rule."""
    found = tuple(
        (said, tuple((claim, is_lucky(claim)) for claim in rule_made(said, topic))) for said in _parts(text)
    )
    return Response(text.strip(), f"Tell me a bio of {topic}.", topic, found)


def _veriscore_sample(row: dict[str, Any]) -> Response:
    """VeriScore's own record; a claim of its list belongs to the sentence with which it shares most words."""
    verdicts = {one["claim"]: one["verification_result"] for one in row["meta"]["claim_verification_result"]}
    said = _parts(row["response"])
    facts: list[list[Fact]] = [[] for _ in said]
    bags = [_words(part) for part in said]
    for claim in row["meta"]["all_claim_lst"]:
        words = _words(claim)
        shared = [len(words & bag) / len(words) for bag in bags]
        facts[shared.index(max(shared))].append((claim, verdicts.get(claim) == "supported"))
    found = tuple((text, tuple(own)) for text, own in zip(said, facts, strict=True))
    return Response(row["response"].strip(), row["prompt"], "menstrual cycle", found)


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3 or word.isdigit()}
