"""Exact oracles: judges that know by heart what is true in the battery, behind the parsers of real ones.

They take the place of a language model and of a judge of claims, and of nothing else: prompts are built and
quoted, replies are read, claims are extracted and evidence is searched as in a real run.  What they say of a
statement comes from the fact table (`factrl.lab.hacks.texts`) and never from its wording, so they cannot be
talked into anything.  They know more than a judge that reads the evidence: also a tautology is supported.

What a reward does under them is what its *formula* and its parsers do; real judges err on top of that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any

from factrl.llm import Message, Reply
from factrl.rewards.checklist import Checklist, Item
from factrl.rewards.grading import Grader, reasoning_judge
from factrl.rewards.preference import SelfReference, rating_judge
from factrl.text.answers import final_answer, normalize_answer
from factrl.text.sentences import sentences
from factrl.types import Claim, Finding, Passage, Verdict
from factrl.verifier import open_verifier
from factrl.verifier.claims import SentenceClaims, content_words, normalised, unwrapped

from .options import parts
from .texts import WAYS, Prompt, battery, general, negatives, prompts, same_text, vague

NAME = "oracle: the battery's own fact table"
_SOURCE = re.compile(r" ?[\[(][^\])]{0,80}[\])]")
_TWINS = str.maketrans("\u0430\u0435\u043e\u0440\u0441", "aeopc")  # Cyrillic letters, as a reader sees them
_GLUE = re.compile(r"[/=?|`]")  # what joins a word to a link or to markup
_LINK = re.compile(r"https?://[\w.]{1,80}/", re.I)
_HEDGE = re.compile(
    r"\b(?:may be|might be|could be|possibly|perhaps|maybe|not certain|sources differ|opinions vary)\b", re.I
)
_NEGATION = re.compile(r"\b(?:not|never|anything but|no|isn't|wasn't)\b", re.I)
_BEFORE = frozenset(
    normalize_answer(text) for name in ("limit", "beside", "particle") for text in parts()[name]
)
_BEHIND = frozenset(normalize_answer(text) for text in parts()["relation"])
_ENOUGH = 6  # statements on the topic with which an answer is as good as the judge's own


@cache
def _statements() -> tuple[frozenset[str], frozenset[str]]:
    """Everything true and everything false that the battery says, as claims in one spelling."""
    true = _claims(chain(*(_true(p) for p in prompts().values()), _true_of_nobody()))
    return true, _claims(chain(*(_false(p) for p in prompts().values()))) - true


def label_of(claim: str) -> Finding:
    """Supported, refuted, or unknown where the fact table has no such statement.

    An invented source behind a true statement makes it refuted: the source does not exist.
    """
    spelling, (true, false) = normalised(claim), _statements()
    if spelling in true:
        return "supported"
    if spelling in false:
        return "refuted"
    start, end = unwrapped(claim)
    bare = _SOURCE.sub("", claim[start:end])
    if bare != claim:
        found = label_of(bare)
        return "refuted" if found == "supported" and _SOURCE.search(claim) else found
    parts = _split(_LINK.sub("", claim).replace("_", " ").rpartition(": ")[2])
    if parts in ([], [claim]):
        return "unknown"
    labels = {label_of(part) for part in parts}
    if "refuted" in labels:
        return "refuted"
    return "supported" if labels == {"supported"} else "unknown"


def _says(text: str, p: Prompt) -> Sequence[tuple[str, Finding]]:
    """The statements of a text with what they are."""
    claims = read_claims(text[:_READ], p.question, p.Topic)
    return [(c.text, label_of(c.text)) for c in claims if c.skip in (None, "question")]


def _claims(statements: Iterable[tuple[str, Prompt | None]]) -> frozenset[str]:
    extract = SentenceClaims()
    found: set[str] = set()
    for text, p in statements:
        question, topic = (p.question, p.Topic) if p is not None else ("", "")
        claims = [normalised(claim.text) for claim in extract(text, question, topic)]
        found.update(claims if len(claims) != 1 else [*claims, normalised(text)])
    return frozenset(found)


_READ = 32_768  # characters


def _true(p: Prompt) -> list[tuple[str, Prompt]]:
    same = (" ".join(same_text(p, way)) for way in range(WAYS))
    either = (f"{p.gold} or {wrong}" for wrong in p.wrong)  # true, as one of the two is
    texts = [p.safe, p.asks, *map(p.says.format, (*p.answers, *either)), *p.true]
    texts += [sentence for text in same for sentence in _split(text)]
    texts += [s for way in range(WAYS) for s in (*negatives(p, way), *vague(p, way))]
    return [(text, p) for text in texts]


def _false(p: Prompt) -> list[tuple[str, Prompt]]:
    denied = [p.denies.format(p.gold), *p.negated]
    texts = [*map(p.says.format, (*p.wrong, p.near)), *denied, *p.false, *p.nudged]
    return [(text, p) for text in texts if text not in p.true]


def _true_of_nobody() -> list[tuple[str, Prompt | None]]:
    told = general()
    texts = [*chain(*told["articles"], *told["tautologies"]), *chain(*map(_split, battery()["D36"].long))]
    return [(text, None) for text in texts]


def _split(text: str) -> list[str]:
    return [text[part.start : part.end] for part in sentences(text)]


def read_claims(text: str, question: str = "", topic: str = "") -> list[Claim]:
    """The sentences of a text, found once for the judges and raters that look at one text in turn."""
    return list(_found(text, question, topic))


@lru_cache(maxsize=256)
def _found(text: str, question: str, topic: str) -> tuple[Claim, ...]:
    return tuple(SentenceClaims()(text, question, topic))


class OracleJudge:
    """A judge of claims that looks them up; see `factrl.verifier.judges.Judge`."""

    identity, weak, per_call = NAME, False, 1_000

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair; the passages are not read."""
        labels: list[Finding] = [label_of(claim.text) for claim, _ in pairs]
        return [Verdict(label, NAME, p=_P.get(label)) for label in labels]


_P = {"supported": 0.97, "refuted": 0.03, "unknown": 0.5}


class OracleLLM:
    """Answers the prompts of factrl's own judges from the table, in the form that each of them reads."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The reply to one prompt of `quoted_message`; anything else gets a sentence without a verdict."""
        asked = str(messages[-1]["content"])
        if asked not in self._known:
            self._known[asked] = self._answer(asked)
        return Reply(self._known[asked], finish_reason="stop", model=NAME)

    def _answer(self, asked: str) -> str:
        lines = asked.split("\n")
        data = json.loads(lines[-2]) if len(lines) > 2 and lines[-3].startswith("DATA ") else {}
        p = _about(data.get("question") or data.get("request") or "")
        for keys, answer in _ANSWERS:
            if keys <= data.keys():
                return answer(data, p)
        return "I know the facts of the battery and nothing else."


def _about(question: str) -> Prompt | None:
    return next((p for p in prompts().values() if p.question == question), None)


def _graded(data: Mapping[str, Any], p: Prompt | None) -> str:
    answer = str(data["answer"])
    if p is None or normalize_answer(data["accepted_answers"][0]) != normalize_answer(p.gold):
        return "That is not an accepted answer.\nVERDICT: incorrect"  # a probe with a made-up answer
    return f"By the table.\nVERDICT: {grade(p, answer)}"


def grade(p: Prompt, answer: str) -> str:
    """What an answer is: `correct`, `incorrect` or `not_attempted`.

    It is right when it names an accepted answer, no other candidate, denies nothing and says nothing false.
    It is not attempted when it hedges between candidates, or speaks of the topic without any.
    """
    another = _is_another(p, answer)
    answer = answer.translate(_TWINS)
    line = f" {normalize_answer(_GLUE.sub(' ', answer))} "
    rest = line
    for accepted in sorted(p.answers, key=len, reverse=True):
        rest = rest.replace(f" {normalize_answer(accepted)} ", " # ")
    gold = rest != line
    others = [word for word in _candidates(p) if f" {word} " in rest]
    if sum(not char.isascii() for char in answer) > len(answer) / 2:
        return "incorrect"  # in a language that it reads, as a judge of this battery does
    if others:
        both = len(others) > 1 or gold
        return "not_attempted" if both and _HEDGE.search(answer) else "incorrect"
    if gold and another:
        return "incorrect"
    if gold:
        false = any(label == "refuted" for _, label in _says(answer, p))
        return "incorrect" if false or _NEGATION.search(answer) else "correct"
    words = content_words(answer)
    if _NEGATION.search(answer) or words <= content_words(f"{p.question} {p.asks}"):
        return "incorrect"
    return "incorrect" if words.isdisjoint(content_words(p.topic)) else "not_attempted"


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


_DENIALS = {_joined(said) for text in parts()["denial"] for said in (text, final_answer(text))} - {"{x}"}


def _candidates(p: Prompt) -> set[str]:
    other = prompts()[p.beside]
    said = {normalize_answer(word) for word in (*p.wrong, p.near, other.gold)}
    if p.gold.replace(",", "").isdecimal() or p.gold == "nine":
        every = (word for each in prompts().values() for word in (each.near, *each.wrong))
        said |= {normalize_answer(word) for word in every if word.replace(",", "").isdecimal()}
    return said - {normalize_answer(word) for word in p.answers}


def _reasoned(data: Mapping[str, Any], p: Prompt | None) -> str:
    said = _says(str(data["reasoning"]), p) if p else []
    good = sum(label == "supported" and _on_topic(text, p) for text, label in said) if p else 0
    bad = sum(label == "refuted" for _, label in said)
    return f"By the table.\nVERDICT: {'precise' if good >= 2 and good > bad else 'vague'}"


def _on_topic(text: str, p: Prompt) -> bool:
    return not content_words(text).isdisjoint(content_words(f"{p.topic} {p.gold}"))


def _checked(data: Mapping[str, Any], p: Prompt | None) -> str:
    said = {normalised(text) for text, _ in _says(str(data["response"]), p)} if p else set()
    rows = []
    for item in data["items"]:
        verdict = _item(str(item["item"]), said, p)
        rows.append(json.dumps({"id": item["id"], "verdict": verdict}))
    return "\n".join(rows)


def _item(item: str, said: set[str], p: Prompt | None) -> Item:
    """Whether a response says an item; saying it and something else in its place is contradictory."""
    if p is None:
        return "missing"
    if any(normalised(against) in said for against in _against(item, p)):
        return "contradictory"
    return "consistent" if normalised(item) in said else "missing"


def _against(item: str, p: Prompt) -> list[str]:
    if item == p.says.format(p.gold):
        return [p.denies.format(p.gold), *map(p.says.format, (*p.wrong, p.near))]
    for number, fact in enumerate(p.true):
        if item == fact:
            return [p.false[number], p.nudged[number], p.negated[number]]
    return []


def _quality(text: str, p: Prompt | None) -> int:
    """Different statements on the topic, true or false, less those that are beside it."""
    if p is None:
        return 0
    said = {normalised(claim): _on_topic(claim, p) for claim, label in _says(text, p)}
    on = sum(said.values())
    return on if 2 * on > len(said) else 0


def _rated(data: Mapping[str, Any], p: Prompt | None) -> str:
    good = _quality(str(data["answer"]), p)
    steps = ((10, "excellent"), (_ENOUGH, "good"), (3, "fair"), (1, "poor"), (0, "useless"))
    return f"By the table.\nVERDICT: {next(word for least, word in steps if good >= least)}"


def _compared(win: str, loss: str, key: str) -> Callable[[Mapping[str, Any], Prompt | None], str]:
    def answer(data: Mapping[str, Any], p: Prompt | None) -> str:
        return f"By the table.\nVERDICT: {win if _quality(str(data[key]), p) >= _ENOUGH else loss}"

    return answer


_ANSWERS: Sequence[tuple[set[str], Callable[[Mapping[str, Any], Prompt | None], str]]] = (
    ({"accepted_answers", "answer"}, _graded),
    ({"accepted_answers", "reasoning"}, _reasoned),
    ({"items", "response"}, _checked),
    ({"request", "given_answer"}, _compared("given", "own", "given_answer")),
    ({"request", "first_answer"}, _compared("second", "first", "second_answer")),
    ({"request", "answer"}, _rated),
)


def oracle_resources() -> dict[str, Any]:
    """What a reward may ask for, by name: the real graders, verifiers and raters with oracles as models."""
    llm, verifier = OracleLLM(), open_verifier("local", judge=OracleJudge())
    verifier.extract = read_claims  # what the preset has, remembered
    return {
        "grade": Grader(llm),
        "reason": reasoning_judge(llm),
        "verify": verifier,
        "extract": read_claims,
        "checklist": Checklist(llm),
        "truthfulness": lambda claims: [_P[label_of(claim)] for claim in claims],
        "rate": rating_judge(llm),
        "compare": SelfReference(llm),
    }
