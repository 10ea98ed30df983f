"""Takes one statement apart into drafts of claims, by the rules of `subjects`, `predicates` and `facts`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from factrl.extract import verbs
from factrl.extract.attribution import unwrapped
from factrl.extract.facts import Fact, facts_of
from factrl.extract.lives import life_dates
from factrl.extract.predicates import Predicate, chain_at, predicates_of
from factrl.extract.pronouns import FORMS, Mention, Mentions, is_possessive, mention, possessive, role_of
from factrl.extract.statements import Statement
from factrl.extract.subjects import Clause, Range, Subject, after_connectives, clause_at
from factrl.extract.tokens import Token, is_adverb, is_finite, is_name, tokens
from factrl.extract.wording import Wording, capital, is_empty_it, small
from factrl.extract.words import HYPOTHETICAL, NOT_PEOPLE, PREPOSITIONS, SUBORDINATORS

_MAX_TOKENS = 150
"""Words and signs of the longest sentence that is taken apart."""
_DAYS = re.compile(r"[A-Z][a-z]{2,8} \d{1,2}\b|\b\d{1,2} [A-Z][a-z]{2}")
_ENDS = frozenset(".!…。！;,:")


@dataclass(frozen=True, slots=True)
class Draft:
    """A claim in the making: its words, and the stretch of the statement that says it."""

    words: str
    start: int
    end: int


class Reader:
    """Takes one statement apart; `mentions` remembers what is spoken of from one to the next."""

    def __init__(self, statement: Statement, mentions: Mentions) -> None:
        self.statement = statement
        self.text = statement.text
        self.mentions = mentions
        self.start, self.end = unwrapped(self.text)
        self.found = [token for token in tokens(self.text) if token.start >= self.start]
        self.wording = Wording(self.text, self.found, mentions)

    def drafts(self) -> list[Draft]:
        """The claims of the statement, at least one."""
        if self.statement.kind == "row" or not self.found:
            return [self._fragment()]
        if self.text.endswith((":", "：")):
            return [Draft(self.text, 0, len(self.text))]  # it announces, and says nothing yet
        stop = len(self.found)
        while stop > 1 and self.found[stop - 1].text in _ENDS:
            stop -= 1
        verbless = not any(is_finite(self.found, at) for at in range(stop))
        if verbless and self.statement.kind == "item" and self.found[0].lower not in FORMS:
            return [self._fragment()]
        first = self._after_label(stop)
        if verbless or stop - first > _MAX_TOKENS or self._is_open(first, stop):
            return [self._whole(first, stop)]
        found: list[Draft] = []
        for begin, finish in self._segments(first, stop):
            found += self._clauses(begin, finish)
        return found

    # -- What stays whole

    def _fragment(self) -> Draft:
        """A row, or an item without a verb: the line above, or the topic, says what it is about."""
        words = self.text[self.start : self.end]
        if self.statement.kind != "row":
            words = words.rstrip("".join(_ENDS) + " ") or words
        topic = self.mentions.topic
        if self.statement.context:
            words = f"{self.statement.context} {words}"
        elif topic and topic.name.lower() not in words.lower():
            words = f"{topic.name}: {words}"
        return Draft(words, self.start, self.end)

    def _is_open(self, start: int, end: int) -> bool:
        """Conditions, alternatives and questions, whose parts are not said by themselves."""
        words = [token.lower for token in self.found[start:end] if not token.inside]
        if not HYPOTHETICAL.isdisjoint(words) or "?" in words:
            return True
        return "only" in words and "not" in words and "but" in words

    def _whole(self, start: int, end: int) -> Draft:
        """The sentence as it is, with its first pronoun replaced."""
        start = min(after_connectives(self.found, start, end), end - 1)
        first = self.found[start]
        span = first.start, self.found[end - 1].end
        if first.lower in FORMS and not first.inside and not is_empty_it(self.found, start):
            if is_possessive(self.found, start):
                owner = self.mentions.resolve(first.lower)
                words, me = possessive(owner.name, owner.many) if owner else first.text, None
            else:
                words, me = self.wording.subject((start, start + 1))
            return Draft(capital(f"{words} {self.wording.said((start + 1, end), me)}".strip()), *span)
        stop = start
        while stop < end and self.found[stop].cap and not self.found[stop].inside:
            stop += 1
        me = None
        if is_name(self.found[start:stop]):
            me = self.mentions.add(mention(self.found[start:stop]))
        elif self._names_later(start, end):
            return Draft(capital(self.text[span[0] : span[1]]), *span)
        return Draft(capital(self.wording.said((start, end), me)), *span)

    def _names_later(self, start: int, end: int) -> bool:
        """Whether a pronoun may be explained after it: "When he was young, Einstein …"."""
        if self.found[start].lower not in PREPOSITIONS | SUBORDINATORS:
            return False
        commas = (at for at in range(start, end) if self.found[at].text == "," and not self.found[at].inside)
        return any(token.cap for at in commas for token in self.found[at + 1 : min(end, at + 3)])

    def _after_label(self, end: int) -> int:
        """Past "Birth:" when a sentence follows."""
        for at in range(1, min(end - 2, 7)):
            if (
                self.found[at].text == ":"
                and not self.found[at].inside
                and not any(is_finite(self.found, k) for k in range(at))
            ):
                return at + 1 if clause_at(self.found, at + 1, end) is not None else 0
        return 0

    def _segments(self, start: int, end: int) -> list[Range]:
        """The parts between semicolons, when each is a clause."""
        cuts = [at for at in range(start, end) if self.found[at].text == ";" and not self.found[at].inside]
        parts = list(zip([start, *(cut + 1 for cut in cuts)], [*cuts, end], strict=True))
        if len(parts) > 1 and all(clause_at(self.found, *part) is not None for part in parts):
            return parts
        return [(start, end)]

    # -- Clauses

    def _clauses(self, start: int, end: int) -> list[Draft]:
        drafts: list[Draft] = []
        at: int | None = start
        while at is not None and at < end:
            clause = clause_at(self.found, at, end)
            if clause is None or is_empty_it(self.found, clause.subject.span[0]):
                drafts.append(self._whole(at, end))
                break
            spoken = predicates_of(self.found, clause)
            drafts += self._clause(clause, spoken.said)
            at = spoken.rest
        return drafts

    def _clause(self, clause: Clause, said: list[Predicate]) -> list[Draft]:
        span, aside = clause.subject.span, clause.subject.aside
        past = chain_at(self.found, clause.subject.verb, clause.end).past
        be = "was" if past else "is"
        apart = _aside_says(self.found, clause.subject, be) if aside else None
        drafts: list[Draft] = []
        if aside and apart is None and self.wording.joined(self.found[slice(*aside)])[:1].isupper():
            span = span[0], aside[1] + 1  # "Paris, Texas, is": the comma closes what it opened
        words, me = self.wording.subject(span)
        if aside and self.found[aside[0]].lower == "whose":
            begin, stop = aside[0] + 1, aside[1]
            told = f"{possessive(words, me.many)} {self.wording.said((begin, stop), me)}"
            drafts.append(Draft(capital(told), self.found[begin].start, self.found[stop - 1].end))
            apart = Fact("", (), aside)
        lead = ""
        if clause.lead is not None and clause.lead_kind == "participle":
            prefix = "was" if self.found[clause.lead[0]].lower in ("born", "raised", "educated") else be
            drafts += self._predicate(words, me, Predicate(*clause.lead, prefix))
        elif clause.lead is not None:
            lead = capital(self.wording.said(clause.lead, me))
        dates = self._dates(words, span, said)
        drafts += dates
        if isinstance(apart, Predicate):
            drafts += self._predicate(words, me, apart)
        elif apart is not None and apart.parts:
            drafts.append(self._draft(words, me, apart))
        for number, predicate in enumerate(said):
            keep = lead and (number == 0 or clause.lead_kind == "other")
            full = words
            if number == 0 and aside is not None and apart is None and span == clause.subject.span:
                full = f"{words}, {self.wording.said(aside, me)},"  # said once
            elif number == 0 and not dates and aside is None:
                full = self.wording.with_brackets(words, span)
            own = self._predicate(f"{lead}, {full}" if keep else full, me, predicate, plain=words)
            if number == 0:
                begin = self.found[clause.lead[0] if keep and clause.lead else span[0]].start
                own[0] = Draft(own[0].words, min(begin, own[0].start), own[0].end)
            drafts += own
        self.wording.remember(clause, me)
        return drafts

    def _predicate(self, words: str, me: Mention, predicate: Predicate, plain: str = "") -> list[Draft]:
        """The claims of one predicate; `plain` is the subject without its lead, for what is said beside."""
        facts = facts_of(self.found, predicate)
        drafts = [self._draft(words, me, fact) for fact in facts.of_subject]
        if (
            any(role_of(self.found[fact.span[1] - 1].lower) for fact in facts.of_subject)
            and facts.of_subject[0].prefix == ""
        ):
            me.person = True if me.person is None and not me.many else me.person
        for further in facts.more:
            if further.prefix:
                drafts += self._predicate(plain or words, me, further)
                continue
            again = Clause(
                None,
                "none",
                Subject((further.start, further.start), None, further.start, _verb(self.found, further)),
                further.end,
            )
            for part in predicates_of(self.found, again).said:
                drafts += self._predicate(plain or words, me, part)
        for phrase, further in facts.of_others:
            other_words, other = self.wording.subject(phrase)
            drafts += self._predicate(other_words, other, further)
        return drafts

    def _draft(self, words: str, me: Mention, fact: Fact) -> Draft:
        pieces = [words, fact.prefix, *(self.wording.said(part, me) for part in fact.parts)]
        if len(pieces) > 2 and pieces[1] and fact.parts[0][0] == 0:  # "Born in Warsaw, …"
            pieces[2] = small(pieces[2])
        said = " ".join(piece for piece in pieces if piece)
        return Draft(capital(said), self.found[fact.span[0]].start, self.found[fact.span[1] - 1].end)

    def _dates(self, words: str, span: Range, said: list[Predicate]) -> list[Draft]:
        """The birth and death in brackets after a name, when it is the name of a person."""
        bare = [token for token in self.found[span[0] : span[1]] if not token.bracketed]
        group = [token for token in self.found[span[0] : span[1]] if token.bracketed]
        if not group or not is_name(bare) or not NOT_PEOPLE.isdisjoint(token.lower for token in bare):
            return []
        start = group[0].end
        inside = self.text[start : group[-1].start]
        end = said[0].end
        told = self.found[span[1] : end]
        person = any(role_of(token.lower) for token in told) or mention(bare).person
        exact = len(_DAYS.findall(inside)) == 2 and len(bare) > 1  # to the day, as of people and of wars
        person = person or (exact and NOT_PEOPLE.isdisjoint(token.lower for token in told))
        if not (person or inside.lower().startswith(("born", "b."))):
            return []
        return [Draft(capital(f"{words} {told}"), start + a, start + b) for told, a, b in life_dates(inside)]


def _verb(found: Sequence[Token], predicate: Predicate) -> int:
    """The first finite verb of a predicate, which starts with it or with adverbs."""
    at = predicate.start
    while at < predicate.end - 1 and is_adverb(found[at]) and not is_finite(found, at):
        at += 1
    return at


def _aside_says(found: Sequence[Token], subject: Subject, be: str) -> Predicate | Fact | None:
    """What stands between commas after a subject, when it says something of it."""
    if subject.aside is None:
        return None
    start, end = subject.aside
    first = found[start].lower
    phrase = [token for token in found[slice(*subject.span)] if not token.bracketed]
    named_subject = is_name(phrase)
    if not named_subject and any(token.lower in PREPOSITIONS for token in phrase):
        return None  # "The chair of the conference, a meeting of experts, was": it may be said of either
    if first in ("who", "which") and end - start > 2 and is_finite(found, start + 1):
        return Predicate(start + 1, end)
    if first in ("a", "an", "the"):
        return Fact(be, ((start, end),), (start, end))
    verb = start
    while verb < end - 1 and is_adverb(found[verb]):
        verb += 1
    if found[verb].lower in verbs.PASSIVE and found[verb].lower in verbs.PARTICIPLE:
        return Predicate(start, end, "was" if first == "born" else be)
    if not named_subject and is_name(found[start:end]):
        return Fact(be, ((start, end),), (start, end))
    return None
