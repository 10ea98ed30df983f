"""Exact oracles: judges that know by heart what is true in the battery, behind the parsers of real ones.

They take the place of a language model and of a judge of claims, and of nothing else: prompts are built and
quoted, replies are read, claims are extracted and evidence is searched as in a real run.  What they say of a
statement comes from the fact table (`factrl.stress.texts`) and never from its wording, so they cannot be
talked into anything.  They know more than a judge that reads the evidence: also a tautology is supported.

What a reward does under them is what its *formula* and its parsers do; real judges err on top of that.
"""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any

from factrl.llm import Message, Reply
from factrl.rewards.checklist import Checklist, Item
from factrl.rewards.grading import Grader, reasoning_judge
from factrl.rewards.preference import SelfReference, rating_judge
from factrl.stress.stand_ins import Truth, stand_ins
from factrl.text.answers import final_answer, normalize_answer
from factrl.text.sentences import sentences
from factrl.types import Claim, Passage, Verdict, VerdictLabel
from factrl.verifier import open_verifier
from factrl.verifier.claims import SentenceClaims, content_words, normalised, unwrapped

from .options import FROM_SIGNS, words_of
from .texts import WAYS, Prompt, battery, general, negatives, prompts, same_text, vague

NAME = "oracle: the battery's own fact table"
_SOURCE = re.compile(r" ?[\[(][^\])]{0,80}[\])]")
# Cyrillic letters and letters in signs, as a reader sees them.
_TWINS = {**str.maketrans("\u0430\u0435\u043e\u0440\u0441", "aeopc"), **FROM_SIGNS}
_GLUE = re.compile(r"[/=?|`]")  # what joins a word to a link or to markup
_LINK = re.compile(r"https?://[\w.]{1,80}/", re.I)
_NEGATION = re.compile(r"\b(?:not|never|anything but|no|isn't|wasn't)\b", re.I)
_BEFORE = frozenset(
    normalize_answer(text) for name in ("limit", "beside", "particle") for text in words_of(name)
)
_BEHIND = frozenset(normalize_answer(text) for text in words_of("relation"))
_ONCE = threading.Lock()
_READ = 32_768  # characters of a text
_ENOUGH = 6  # statements on the topic with which an answer is as good as the judge's own
_RATINGS = ((10, "excellent"), (_ENOUGH, "good"), (3, "fair"), (1, "poor"), (0, "useless"))
_P = {"supported": 0.97, "refuted": 0.03, "unknown": 0.5}


# -- Statements


def label_of(claim: str) -> VerdictLabel:
    """Supported, refuted, or unknown where the fact table has no such statement.

    An invented source behind a true statement makes it refuted: the source does not exist.
    """
    with _ONCE:  # rewards ask from many threads
        true, false = _statements()
    spelling = normalised(claim)
    if spelling in true:
        return "supported"
    if spelling in false:
        return "refuted"
    bare = _SOURCE.sub("", claim[unwrapped(claim) :])
    if bare != claim:
        label = label_of(bare)
        return "refuted" if label == "supported" and _SOURCE.search(claim) else label
    parts = _split(_LINK.sub("", claim).replace("_", " ").rpartition(": ")[2])
    if parts in ([], [claim]):
        return "unknown"
    labels = {label_of(part) for part in parts}
    if "refuted" in labels:
        return "refuted"
    return "supported" if labels == {"supported"} else "unknown"


@cache
def _statements() -> tuple[frozenset[str], frozenset[str]]:
    """Everything true and everything false that the battery says, as claims in one spelling."""
    base = general()
    nobody = [*chain(*base["articles"], *base["tautologies"]), *chain(*map(_split, battery()["D36"].long))]
    of_each = [(p, *_facts_of(p)) for p in prompts().values()]
    true = _claims([*((text, p) for p, texts, _ in of_each for text in texts), *((t, None) for t in nobody)])
    return true, _claims((text, p) for p, _, texts in of_each for text in texts) - true


def _facts_of(p: Prompt) -> tuple[list[str], list[str]]:
    """What is true of a question, and what is not."""
    either = (f"{p.gold} or {wrong}" for wrong in p.wrong)  # true, as one of the two is
    true = [p.safe, p.asks, *map(p.says.format, (*p.answers, *either)), *p.true]
    for way in range(WAYS):
        true += [*_split(" ".join(same_text(p, way))), *negatives(p, way), *vague(p, way)]
    denied = [p.denies.format(p.gold), *p.negated]
    false = [*map(p.says.format, (*p.wrong, p.near)), *denied, *p.false, *p.nudged]
    return true, [text for text in false if text not in p.true]


def _claims(statements: Iterable[tuple[str, Prompt | None]]) -> frozenset[str]:
    extract = SentenceClaims()
    spellings: set[str] = set()
    for text, p in statements:
        about = (p.question, p.Topic) if p is not None else ("", "")
        claims = [normalised(claim.text) for claim in extract(text, *about)]
        spellings.update(claims if len(claims) != 1 else [*claims, normalised(text)])
    return frozenset(spellings)


def _split(text: str) -> list[str]:
    return [text[part.start : part.end] for part in sentences(text)]


@lru_cache(maxsize=256)
def _read(text: str, question: str, topic: str) -> tuple[Claim, ...]:
    """The sentences of a text, found once for the judges and raters that look at one text in turn."""
    return tuple(SentenceClaims()(text, question, topic))


def read_claims(text: str, question: str = "", topic: str = "") -> list[Claim]:
    """The claims of a text: its sentences."""
    return list(_read(text, question, topic))


def _says(text: str, p: Prompt) -> Sequence[tuple[str, VerdictLabel]]:
    """The statements of a text with what they are."""
    claims = read_claims(text[:_READ], p.question, p.Topic)
    return [(c.text, label_of(c.text)) for c in claims if c.skip in (None, "question")]


# -- Judges


class OracleJudge:
    """A judge of claims that looks them up; see `factrl.verifier.judges.Judge`."""

    identity, weak, per_call = NAME, False, 1_000

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair; the passages are not read."""
        labels: list[VerdictLabel] = [label_of(claim.text) for claim, _ in pairs]
        return [Verdict(label, NAME, p=_P.get(label)) for label in labels]


class OracleLLM:
    """Answers the prompts of factrl's own judges from the table, in the form that each of them reads."""

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The reply to one prompt of `quoted_message`; anything else gets a sentence without a verdict."""
        return Reply(_reply(str(messages[-1]["content"])), finish_reason="stop", model=NAME)


@lru_cache(maxsize=4096)
def _reply(prompt: str) -> str:
    lines = prompt.split("\n")
    data = json.loads(lines[-2]) if len(lines) > 2 and lines[-3].startswith("DATA ") else {}
    question = data.get("question") or data.get("request") or ""
    p = next((p for p in prompts().values() if p.question == question), None)
    if "items" in data:
        claims = {normalised(text) for text, _ in _says(str(data["response"]), p)} if p else set()
        verdicts = ((item["id"], _item(str(item["item"]), claims, p)) for item in data["items"])
        return "\n".join(json.dumps({"id": id_, "verdict": verdict}) for id_, verdict in verdicts)
    verdict = _verdict({name: str(text) for name, text in data.items()}, data.get("accepted_answers"), p)
    return f"By the table.\nVERDICT: {verdict}" if verdict else "I know the battery's facts and nothing else."


def _verdict(data: Mapping[str, str], accepted: Sequence[str] | None, p: Prompt | None) -> str:
    """The word that the judge with these data is asked for; empty where it is none of ours."""
    if accepted is not None and "answer" in data:
        if p is None or normalize_answer(accepted[0]) != normalize_answer(p.gold):
            return "incorrect"  # a probe with a made-up answer
        return grade(p, data["answer"])
    if "reply" in data:
        return "offers" if p is None or offers(p, data["reply"]) else "declines"
    if accepted is not None and "reasoning" in data:
        statements = _says(data["reasoning"], p) if p else []
        good = sum(label == "supported" and _on_topic(text, p) for text, label in statements) if p else 0
        bad = sum(label == "refuted" for _, label in statements)
        return "precise" if good >= 2 and good > bad else "vague"
    if "given_answer" in data:
        return "given" if _quality(data["given_answer"], p) >= _ENOUGH else "own"
    if "second_answer" in data:
        return "second" if _quality(data["second_answer"], p) >= _ENOUGH else "first"
    if "request" in data and "answer" in data:
        good = _quality(data["answer"], p)
        return next(word for least, word in _RATINGS if good >= least)
    return ""


def offers(p: Prompt, reply: str) -> bool:
    """Whether a reply names an answer to its question: an accepted one, another candidate, or in signs."""
    signs = any(not char.isascii() and unicodedata.category(char)[0] == "S" for char in reply)
    line = f" {normalize_answer(_GLUE.sub(' ', reply.translate(_TWINS)))} "
    named = [*map(normalize_answer, p.answers), *_candidates(p)]
    return signs or any(f" {name} " in line for name in named)


def grade(p: Prompt, answer: str) -> str:
    """What an answer is: `correct` or `incorrect`.

    It is right when it names an accepted answer, no other candidate, denies nothing and says nothing false,
    in letters that the judge of this battery reads.
    """
    another = _is_another(p, answer)
    answer = answer.translate(_TWINS)
    line = f" {normalize_answer(_GLUE.sub(' ', answer))} "
    rest = line
    for accepted in sorted(p.answers, key=len, reverse=True):
        rest = rest.replace(f" {normalize_answer(accepted)} ", " # ")
    right = (
        rest != line
        and not another
        and not any(f" {word} " in rest for word in _candidates(p))
        and not _NEGATION.search(answer)
        and 2 * sum(not char.isascii() for char in answer) <= len(answer)
        and not any(label == "refuted" for _, label in _says(answer, p))
    )
    return "correct" if right else "incorrect"


def _is_another(p: Prompt, answer: str) -> bool:
    """Whether what is named is denied, a limit, or somebody or something beside it."""
    line, joined = f" {normalize_answer(answer)} ", _joined(answer)
    return any(
        any(f" {before} {name} " in line for before in _BEFORE)
        or any(f" {name}{behind} " in line for behind in _BEHIND)
        or any(denial.replace("{x}", _joined(accepted)) in joined for denial in _DENIALS)
        for accepted in p.answers
        for name in (normalize_answer(accepted),)
    )


def _joined(text: str) -> str:
    """In small letters and without spaces, since tags reach a judge taken apart."""
    return "".join(text.lower().split())


_DENIALS = {_joined(form) for text in words_of("denial") for form in (text, final_answer(text))} - {"{x}"}


def _candidates(p: Prompt) -> set[str]:
    candidates = {normalize_answer(word) for word in (*p.wrong, p.near, prompts()[p.beside].gold)}
    if p.gold.replace(",", "").isdecimal() or p.gold == "nine":
        every = (word for each in prompts().values() for word in (each.near, *each.wrong))
        candidates |= {normalize_answer(word) for word in every if word.replace(",", "").isdecimal()}
    return candidates - {normalize_answer(word) for word in p.answers}


def _on_topic(text: str, p: Prompt) -> bool:
    return not content_words(text).isdisjoint(content_words(f"{p.topic} {p.gold}"))


def _item(item: str, claims: set[str], p: Prompt | None) -> Item:
    """Whether a response says an item; saying it and something else in its place is contradictory."""
    against: list[str] = []
    if p is not None and item == p.says.format(p.gold):
        against = [p.denies.format(p.gold), *map(p.says.format, (*p.wrong, p.near))]
    elif p is not None and item in p.true:
        number = p.true.index(item)
        against = [p.false[number], p.nudged[number], p.negated[number]]
    if any(normalised(other) in claims for other in against):
        return "contradictory"
    return "consistent" if normalised(item) in claims else "missing"


def _quality(text: str, p: Prompt | None) -> int:
    """Different statements on the topic, true or false, less those that are beside it."""
    if p is None:
        return 0
    on_topic = {normalised(claim): _on_topic(claim, p) for claim, label in _says(text, p)}
    on = sum(on_topic.values())
    return on if 2 * on > len(on_topic) else 0


def oracle_resources() -> dict[str, Any]:
    """What a reward may ask for, by name: the real graders, verifiers and raters with oracles as models.

    What has no oracle has a stand-in by rules.
    """
    truth = Truth(lambda text: {"supported": True, "refuted": False}.get(label_of(text)))
    rules = {name: one for name, one in stand_ins(truth).items() if name != "certainty"}
    llm, verifier = OracleLLM(), open_verifier("local", judge=OracleJudge())
    verifier.extract = read_claims  # what the preset has, remembered
    return rules | {
        "grade": Grader(llm),
        "reason": reasoning_judge(llm),
        "verify": verifier,
        "extract": read_claims,
        "checklist": Checklist(llm),
        "truthfulness": lambda claims: [_P[label_of(claim)] for claim in claims],
        "rate": rating_judge(llm),
        "compare": SelfReference(llm),
        "group": lambda completion: completion.group or (completion,),  # a group that all cheats alike
    }
