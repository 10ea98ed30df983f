"""What the stub answers: facts and labels of the benchmark's own responses, in each asker's format.

It reads the prompts of the published VeriScore and FActScore packages and factrl's own, looks the sentence or
the claim up in the table that `workload.py` wrote, and answers as a good model would.  Everything is a
look-up of normalised text, because the stub shares two cores with what it measures; a text that is not in the
table (another splitter cut the sentence elsewhere) is matched by its words, and only then cut into clauses.
"""

from __future__ import annotations

import heapq
import json
import re
import zlib
from collections.abc import Iterable
from typing import Any

from workload import is_lucky, key_of, rule_made

NOTHING = "No verifiable claim."
_BREAKDOWN = "Please breakdown the following sentence into independent facts:"
_TRUE = " True or False?\nOutput:"
_GRAM = 4  # words in a row that a stranger must share with a known sentence
_SHARED = 0.7  # of a fact's longer words have to be in the stranger's text
_PARTS = re.compile(r"[^.!?\n]+[.!?]?")
_DATA = re.compile(r"\n\nDATA ([0-9a-f]{16})\n(.*)\nEND \1\s*\Z", re.S)
_QUOTED = 30  # words of a passage that a verdict cites, at most
_RESULTS = 10
_OWN_RESULTS = 5  # of them are about the topic, the others are real results for other claims


class Knowledge:
    """The facts of every known sentence, the label of every known claim, and a web to find them in.

    Args:
        table: as `Workload.table` writes it.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        self._facts: dict[str, list[str]] = {}
        self._true: dict[str, bool] = {}
        self._topic: dict[str, str] = {}
        self._pages = {
            topic: [(said, frozenset(_words(said))) for said in pages]
            for topic, pages in table["pages"].items()
        }
        self._grams: dict[str, set[str]] = {}
        self._web: list[dict[str, Any]] = table["web"]
        for response in table["responses"]:
            topic = response["topic"]
            everything: list[str] = []
            for sentence, facts in response["sentences"]:
                key, claims = key_of(sentence), [claim for claim, _ in facts]
                self._facts.setdefault(key, claims)
                everything += claims
                self._topic.setdefault(key, topic)
                for gram in _grams(sentence):
                    self._grams.setdefault(gram, set()).add(key)
                for claim, true in facts:
                    self._true.setdefault(key_of(claim), true)
                    self._topic.setdefault(key_of(claim), topic)
            self._facts[key_of(response["text"])] = everything

    def facts(self, text: str) -> list[str]:
        """The claims of a sentence or of a whole response."""
        key = key_of(text)
        found = self._facts.get(key)
        if found is None:
            found = self._facts[key] = self._like(text)
        return found

    def is_true(self, claim: str) -> bool:
        """The label of `claim`."""
        true = self._true.get(key_of(claim))
        return is_lucky(claim) if true is None else true

    def search(self, query: str) -> list[dict[str, Any]]:
        """Ten results in Serper's form; no JSON null or boolean, which VeriScore cannot read.

        The first are the sentences about the topic with the most words of the query.
        """
        key, words = key_of(query), set(_words(query))
        topic = self._topic.get(key) or next((name for name in self._pages if name in query), "")
        shared = [(-len(words & bag), number) for number, (_, bag) in enumerate(self._pages.get(topic, ()))]
        own = [
            {
                "title": f"{topic}, biography",
                "link": f"https://example.org/{topic.replace(' ', '_')}/{number}",
                "snippet": self._pages[topic][number][0],
            }
            for _, number in heapq.nsmallest(_OWN_RESULTS, shared)
        ]
        start = zlib.crc32(key.encode())
        rest = [self._web[(start + i) % len(self._web)] for i in range(_RESULTS - len(own))]
        return [{**result, "position": i + 1} for i, result in enumerate([*own, *rest])]

    def _like(self, text: str) -> list[str]:
        """Claims of the known sentences that share words with this one; else its clauses."""
        parts = [part.strip() for part in _PARTS.findall(text) if part.strip()]
        if len(parts) > 1:
            return [claim for part in parts for claim in self.facts(part)]
        here = set(_words(text))
        near = sorted({key for gram in _grams(text) for key in self._grams.get(gram, ())})
        found = [
            claim
            for key in near
            for claim in self._facts[key]
            if (own := {word for word in _words(claim) if len(word) > 3 or word.isdigit()})
            and len(own & here) >= _SHARED * len(own)
        ]
        return list(dict.fromkeys(found)) or ([] if near else rule_made(text))


def reply_to(prompt: str, knowledge: Knowledge) -> tuple[str, str]:
    """What kind of question `prompt` is, and the answer to it."""
    if prompt.endswith("Facts:") and "<SOS>" in prompt:
        _, _, tail = prompt.rpartition("Sentence to be focused on:")
        return "extract", _bullets(knowledge.facts(tail.removesuffix("Facts:")), NOTHING)
    if prompt.endswith("Your decision:"):
        _, _, tail = prompt.rpartition("Claim: ")
        no = "Inconclusive" if "Contradicted" in prompt[:2000] else "Unsupported"
        return "judge", f"###{'Supported' if knowledge.is_true(tail.partition(chr(10))[0]) else no}.###"
    if prompt.startswith(_BREAKDOWN):
        return "extract", _bullets(knowledge.facts(prompt.rpartition(_BREAKDOWN)[2]), NOTHING)
    if prompt.endswith(_TRUE):
        claim = prompt.removesuffix(_TRUE).rpartition("Input: ")[2]
        return "judge", str(knowledge.is_true(claim))
    if data := _DATA.search(prompt, max(0, prompt.rfind("\n\nDATA "))):
        return _factrl(prompt[: data.start()], json.loads(data.group(2)), knowledge)
    return "other", "ok"


def _factrl(asked: str, data: dict[str, Any], knowledge: Knowledge) -> tuple[str, str]:
    """Answers to the prompts of `factrl.verifier.judges` and `factrl.verifier.claims`, told apart by what
    they quote."""
    if "claims" in data:
        texts = {passage["id"]: passage["text"] for passage in data["passages"]}
        return "judge", "\n".join(
            json.dumps(
                {
                    "id": claim["id"],
                    "quote": " ".join(texts[claim["passages"][0]].split()[:_QUOTED]),
                    "verdict": "supported" if knowledge.is_true(claim["claim"]) else "refuted",
                }
            )
            for claim in data["claims"]
        )
    if "claim" in data:
        true = knowledge.is_true(data["claim"])
        if "VERDICT: Supported" in asked:
            return "judge", f"VERDICT: {'Supported' if true else 'Not Supported'}"
        return "judge", f"VERDICT: {true}"
    said = data["sentences"] if "sentences" in data else [data["sentence"]]
    nothing = "NO FACTS" if "NO FACTS" in asked else NOTHING
    return "extract", _bullets((claim for one in said for claim in knowledge.facts(one)), nothing)


def _bullets(claims: Iterable[str], nothing: str) -> str:
    return "\n".join(f"- {claim}" for claim in claims) or nothing


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _grams(text: str) -> set[str]:
    words = _words(text)
    return {" ".join(words[i : i + _GRAM]) for i in range(max(1, len(words) - _GRAM + 1))}
