"""Telling "I don't know" from an answer; the two classes exclude each other.

A text is cut into clauses; each one declines, is filler (an apology, a request for details, advice where
to look) or asserts.  A clause declines only if it *begins* by declining, after openers such as "I'm sorry,
but": that is what keeps quotations, titles and negations ("It is not that I don't know") from counting.
It is filler if it begins like one, or if it is made of nothing but grammar, talk of what is not known and
what the question says.  What is not recognised asserts, and a judge can still call it an abstention.

A text whose clauses all decline or fill *declines by its form*, which does not depend on what it names.
It abstains if it also names nothing: a name, a date or a number that the question did not give ("I don't
know; you should check Lyon") makes it an answer, and one that cannot be right.  So whoever can be right
can be wrong: no text is right when it names one thing and an abstention when it names another.

What counts as a name, and texts that decline in words of their own, are in `factrl.text.ignorance`.

The phrases are in `refusals.toml`; no pattern here repeats anything without bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from factrl.text import MAX_PAYLOAD, clean
from factrl.text.answers import final_answer, normalize_answer, normalize_released, unaccented
from factrl.text.ignorance import (
    BARE,
    DASH,
    LINE,
    SCRIPT,
    SPELLINGS,
    declines_in_own_words,
    first_name,
    guessed,
    is_asked,
    is_known,
    refusals,
    says_nothing,
    visible,
    words_in,
    words_of,
)

_MAX_CLAUSES = 256
"""Clauses that are read; the rest of the text counts as asserted."""
_MAX_CLAUSE = 400
"""Characters of the longest clause that can decline."""

_Kind = Literal["declines", "filler", "asserts"]


@cache
def _turn() -> re.Pattern[str]:
    """The space before what a clause that declined goes on to assert."""
    turns = "|".join(map(re.escape, refusals().phrases["turns"]))
    return re.compile(rf" (?=(?:{turns})|(?-i:It is |It was |It's |The answer ))", re.IGNORECASE)


# A sign ends a clause before a space, another sign or a letter of a script without spaces, so "3.5" stays
# whole, and so do initials and titles before a name.
_SEPARATOR = re.compile(
    r"""[.!?;:,](?=[\s"')\].!?;:,]|$|[^\x00-\x7f])(?<!\b[A-Z].)(?<!\bMr.)(?<!\bMs.)(?<!\bDr.)(?<!\bSt.)(?<!\bMrs.)"""
    r"""|[。、।()\[\]¶‖]| --? |ですが|せんが|けど|だが|ないが"""
)
_QUOTED = re.compile(r'"[^"]{1,200}"')
_EDGES = f" .!?;:,。、।()[]-_\"'<>…{LINE}{DASH}"
_SENTENCE_ENDS = f".!?。:{LINE}"


@dataclass(frozen=True, slots=True)
class Stance:
    """What a text does with the question it replies to."""

    declines: bool  # by its form: a clause declines, and none asserts.  Such a text is never a right answer
    names: str  # the first thing that it names although it declines and the question did not
    asserted: str  # what is left once the declining clauses are taken out; the cleaned text if none declines
    brief: bool = False  # a clause of a few words asserts, as an answer does

    @property
    def abstains(self) -> bool:
        """Whether it declines and names nothing."""
        return self.declines and not self.names


# Most texts that are looked at are claims in plain words, and none of these stands in them: no phrase that
# declines can be there without its longest word.  What is spelt in another way is looked at in full.
_PLAIN = re.compile(r"[A-Za-z0-9 .,;:()/&\"!?-]*")


_DECLINING = ("declines", "have", "cannot", "silent", "asks_back", "do_you_mean", "unknown")


@cache
def _cues() -> frozenset[str]:
    known = refusals()
    phrases = [*known.bare, *(phrase for table in _DECLINING for phrase in known.phrases[table])]
    words = (re.findall(r"[a-z0-9]+", phrase.lower()) for phrase in phrases if phrase.isascii())
    longest = {max(sorted(cues), key=len) for cues in words}
    return frozenset({*longest, *SPELLINGS, "can"})  # "can not" is read as "cannot"


# What these say, they say of anything: "They are not available in Europe".
_OF_ANYTHING = re.compile("(?:is|are) (?:not available|unavailable) |is vague |is ambiguous ")
_BRIEF = 5  # words
_SOON = 6  # words from the start of a clause
_BRIEF_RUN = 8  # characters of a run without spaces
# A clause that begins by declining and speaks of doubt denies the doubt: "No tengo dudas de que es Lyon".
_NO_DOUBT = (" doubt", " dud", " zweifel", " doute", " dubb", " dúvid", "疑", "違いない")
# It asks for a text about somebody and not for a name, a date or a number.
_OPEN = re.compile(
    r"\b(?:bio|bios|biograph\w+|tell me about|who is|who was|describe|introduc\w+|summar\w+|overview)\b"
)
# What follows is about somebody else, whom a search has found in place of the one who is asked for.
_OTHERS = re.compile(
    r"\b(?:instead|(?:other|another|different|several) (?:\w+ ){0,3}(?:named|called|with|by)"
    r"|(?:similar|same) (?:\w+ )?names?|different (?:person|individual)"
    r"|the only (?:\w+ )?(?:mention|reference|result|information|person|one)"
    r"|(?:search )?results? (?:\w+ ){0,2}"
    r"(?:is|are|mentions?|provides?|refers?|shows?|includes?|relates?|contains?|about))\b"
)


def stance(text: str, question: str | None = None, *, strict: bool = False) -> Stance:
    """Whether a text declines to answer a question, what it names all the same, and what it asserts.

    Args:
        text: over `MAX_PAYLOAD` characters it never declines.
        question: what it replies to.  None takes the names of declining clauses for the question's ("I
            know nothing about Jane Doe").
        strict: a text of up to 200 characters declines only in phrases that are known, or in words none of
            which is new: what a reward needs, as no name then makes a difference.
    """
    if len(text) > MAX_PAYLOAD:
        return Stance(False, "", clean(text))
    query_words = frozenset("*") if question is None else words_of(question)
    plain = _PLAIN.fullmatch(text) and _cues().isdisjoint(re.findall(r"[a-z0-9]+", text.lower()))
    parts: list[tuple[str, _Kind]] = [(clean(text), "asserts")] if plain else list(_parts(text, query_words))
    declining = [part for part, kind in parts if kind == "declines"]
    if declining and question is None:
        query_words |= words_of(" ".join(declining))
        parts = list(_parts(text, query_words))
    if declining and not any(kind == "asserts" for _, kind in parts):
        said = visible(text)
        return Stance(True, first_name(said, query_words) or guessed(said.casefold(), query_words), "")
    brief = any(kind == "asserts" and _is_brief(part) for part, kind in parts)
    # "Yes. I don't know": next to a phrase that declines, a few words are an answer.
    answers = brief and (strict or bool(declining)) and len(text) <= BARE
    if not answers and declines_in_own_words(text, query_words, strict=strict):
        return Stance(True, "", "")
    if (question is None or _OPEN.search(question.casefold())) and _goes_on_about_others(parts):
        return Stance(True, "", "")
    return Stance(False, "", _kept(parts) if declining else clean(text), brief)


def _is_brief(clause: str) -> bool:
    said = words_in(clause)
    return 0 < len(said) <= _BRIEF and not any(SCRIPT.match(run) and len(run) > _BRIEF_RUN for run in said)


def abstains(text: str, question: str | None = None) -> bool:
    """Whether a text declines to answer, asserts nothing and names nothing that the question did not give.

    "Unknown" as the complete answer abstains, and so does a refusal of another kind ("I can't help with
    that").  "I'm not sure, but I think it's Paris" does not, nor does "invalid question", which is a class
    of its own.  English is covered best; then German, French, Spanish, Italian, Portuguese, Chinese and
    Japanese; the plain phrases of ten more languages are known.  A text over `MAX_PAYLOAD` characters
    never abstains.
    """
    return stance(text, question).abstains


def asserted(text: str, question: str | None = None) -> str:
    """What a text asserts once the declining clauses are taken out; the cleaned text if none declines.

    "I'm not sure, but I think it's Paris." gives "I think it's Paris."; an abstention gives "".
    """
    return stance(text, question).asserted


def _goes_on_about_others(parts: list[tuple[str, _Kind]]) -> bool:
    """Whether a text declines first and then says what was found of somebody else."""
    declined = asserts = False
    said = ""
    for part, kind in parts:
        said += part.casefold()
        declined, asserts = declined or kind == "declines", asserts or kind == "asserts"
        if part.rstrip(' "')[-1:] in _SENTENCE_ENDS:
            if asserts:
                return declined and _OTHERS.search(said) is not None
            said = ""
    return False


def _kept(parts: list[tuple[str, _Kind]]) -> str:
    kept = "".join(part for part, kind in parts if kind == "asserts")
    kept = " ".join(kept.replace(LINE, " ").replace(DASH, " - ").split())
    kept = kept.lstrip("-,:; ").rstrip("-,:;([ ")
    for conjunction in ("but ", "however, ", "though ", "although ", "because ", "and "):
        if kept.lower().startswith(conjunction):
            kept = kept[len(conjunction) :]
    return kept


def abstains_released(text: str) -> bool:
    """TruthRL's released test, one substring: "I do not know" fails it, "I don't know, maybe X" passes.

    arXiv 2509.25760, code: `"i dont know"` in the normalised prediction.
    """
    return "i dont know" in normalize_released(text)


# In the form of `normalize_answer`, which has no articles.
_INVALID = re.compile(
    r"(?:(?:this|it|that) is )?(?:invalid question|not valid question|false premise)|invalid premise"
    r"|(?:this )?question (?:is (?:invalid|not valid|based on false premise)"
    r"|(?:has|contains|rests on) false premise)"
)


def says_invalid_question(text: str) -> bool:
    """Whether the complete answer is that the question is invalid or rests on a false premise.

    The exact counterpart of TruthRL's substring test for "invalid question": a text with an explanation or
    an answer beside it is an answer.
    """
    text = clean(text)
    forms = (text, final_answer(text)) if len(text) <= _MAX_CLAUSE else ()
    return any(_INVALID.fullmatch(normalize_answer(form)) for form in forms)


def _parts(text: str, query_words: frozenset[str]) -> Iterator[tuple[str, _Kind]]:
    """The clauses in order, each with the sign that ends it, and what each does."""
    text = visible(text)
    # A quotation is opaque: it neither declines nor ends a clause.
    masked = _QUOTED.sub(lambda match: '"' + "x" * (len(match[0]) - 2) + '"', text)
    start = 0
    for index, match in enumerate(_SEPARATOR.finditer(masked)):
        if index == _MAX_CLAUSES:
            yield text[start:], "asserts"
            return
        yield from _turned(text, masked, start, match.end(), query_words)
        start = match.end()
    yield from _turned(text, masked, start, len(text), query_words)


def _turned(
    text: str, masked: str, start: int, end: int, query_words: frozenset[str]
) -> Iterator[tuple[str, _Kind]]:
    """One clause, cut where it stops declining: "I don't know but it is Lyon"."""
    while True:
        kind = _kind(masked[start:end], query_words)
        turn = _turn().search(masked, start, end) if kind != "asserts" else None
        if turn is None:
            yield text[start:end], kind
            return
        yield text[start : turn.end()], kind
        start = turn.end()


def _kind(clause: str, query_words: frozenset[str]) -> _Kind:
    if len(clause) > _MAX_CLAUSE:
        return "asserts"
    known = refusals()
    line = whole = _spelt_out(clause.strip(_EDGES))
    while line:
        if line.startswith(known.phrases["not_declining"]):
            return "asserts"
        if _declines(line, query_words) or _asks_back(line):
            start = " ".join(whole.split()[:_SOON])
            return "asserts" if any(doubt in start for doubt in _NO_DOUBT) else "declines"
        if line.startswith(known.phrases["fillers"] + known.spaceless["fillers"]):
            adverbial = line.startswith(known.phrases["adverbial"])
            reports = adverbial and not known.words["finite"].isdisjoint(line.split())
            return "asserts" if reports else "filler"
        openers = known.phrases["openers"] + known.spaceless["openers"]
        if not line.startswith(openers):
            return "filler" if says_nothing(whole, query_words) else "asserts"
        opener = next(opener for opener in openers if line.startswith(opener))
        line = line[len(opener) :].lstrip()
    return "filler"


def _spelt_out(clause: str) -> str:
    """The clause casefolded, without contractions and adverbs, ending in a space unless it is empty."""
    adverbs = refusals().words["adverbs"]
    words: list[str] = []
    for word in clause.casefold().split():
        word = SPELLINGS.get(word, word)
        word = word[:-3] + " not" if word.endswith("n't") else word
        if word not in adverbs:
            words.append(word)
    return " ".join([*words, ""]).replace("can not ", "cannot ")


def _declines(line: str, query_words: frozenset[str]) -> bool:
    known = refusals()
    if line.startswith(known.phrases["declines"]) or line.startswith(known.spaceless["declines"]):
        return True
    bare = line.strip()
    for softener in ("が", "けど", "ね"):
        bare = bare.removesuffix(softener)
    if bare in known.bare or bare.endswith(known.spaceless["declines_at_end"]):
        return True
    words = bare.split()
    for size in (1, 2):
        asks = len(words) > size and words[size] in known.words["question_words"]
        if asks and " ".join(words[:size]) in known.bare:
            return True
    if line.startswith(known.phrases["have"]) and not known.words["information"].isdisjoint(words):
        return True
    cannot = (start for start in known.phrases["cannot"] if line.startswith(start))
    if any(line[len(start) :].split(" ", 1)[0] in known.words["verbs"] for start in cannot):
        return True
    return _is_unknown(line, query_words) or _is_silent(line)


def _asks_back(line: str) -> bool:
    """`Could you clarify`, `Which Springfield do you mean`."""
    phrases = refusals().phrases
    means = any(f" {phrase}" in line for phrase in phrases["do_you_mean"])
    return line.startswith(phrases["asks_back"]) or (line.startswith(("which ", "who ", "what ")) and means)


def _is_unknown(line: str, query_words: frozenset[str]) -> bool:
    """`The exact date is unknown`, but not `John Doe is a person whose name is unknown`."""
    known = refusals()
    clause_words = known.words["clause_words"]
    for predicate in known.phrases["unknown"]:
        subject, matched, tail = line.partition(f" {predicate}")
        if not matched:
            continue
        words = subject.split()
        given = "*" in query_words or all(
            is_known(word) or is_asked(unaccented(word), query_words) for word in words
        )
        named = words[:1] and (
            words[0] in known.words["subjects"] or (given and not _OF_ANYTHING.fullmatch(predicate))
        )
        plain = (named and clause_words.isdisjoint(words[1:])) or not known.words["exact"].isdisjoint(
            words[:2]
        )
        goes_on = tail.split(" ", 1)[0] in known.words["tails"]
        ends = not tail or (goes_on and not tail.startswith(known.phrases["not_tails"]))
        if plain and ends:
            return True
    return False


def _is_silent(line: str) -> bool:
    """`The provided text does not mention it`: a source is the subject."""
    known = refusals()
    sources, contrasts = known.words["sources"], known.words["contrasts"]
    if sources.isdisjoint(line.split()[:8]):
        return False
    subjects = (line.partition(f" {phrase}")[0] for phrase in known.phrases["silent"] if f" {phrase}" in line)
    words = (set(subject.split()) for subject in subjects)
    return any(sources & said and not contrasts & said for said in words)
