"""How a claim calls what it speaks of: names for pronouns, a sentence without "also" and without brackets."""

from __future__ import annotations

from collections.abc import Sequence

from factrl.extract import verbs
from factrl.extract.pronouns import FORMS, Mention, Mentions, is_possessive, mention, possessive
from factrl.extract.subjects import Clause, Range
from factrl.extract.tokens import Token, is_name
from factrl.extract.words import DETERMINERS, PREPOSITIONS, SUBJECTS, word_set


class Wording:
    """The words of claims about one statement.

    Args:
        text: the statement's text.
        found: its tokens.
        mentions: what has been spoken of; `remember` adds to it.
    """

    def __init__(self, text: str, found: Sequence[Token], mentions: Mentions) -> None:
        self.text = text
        self.found = found
        self.mentions = mentions

    def subject(self, span: Range) -> tuple[str, Mention]:
        """How to call a subject in a claim, and what it is."""
        phrase = [token for token in self.found[span[0] : span[1]] if not token.bracketed]
        if not phrase:
            return self.text[self.found[span[0]].start : self.found[span[1] - 1].end], Mention("")
        first = phrase[0]
        if len(phrase) == 1 and first.lower in SUBJECTS:
            meant = self.mentions.resolve(first.lower)
            return (meant.name, meant) if meant else (first.text, _unknown(first.lower))
        rest = self.joined(phrase[1:])
        if first.lower in FORMS and len(phrase) > 1 and is_possessive(self.found, span[0]):
            owner = self.mentions.resolve(first.lower)
            words = f"{possessive(owner.name, owner.many) if owner else first.text} {rest}"
            return words, mention(phrase, words)
        if len(phrase) == 1:
            words = self.mentions.full_name(first.text)
        elif first.cap and first.lower.endswith("'s"):
            words = f"{self.mentions.full_name(first.text[:-2])}'s {rest}"
        else:
            words = self.joined(phrase)
            if any(token.lower in FORMS for token in phrase[1:]):
                words = self.said(span, None)
        return words, mention(phrase, words)

    def joined(self, phrase: Sequence[Token]) -> str:
        """The text of tokens, without what stands in brackets between them."""
        pieces: list[str] = []
        for number, token in enumerate(phrase):
            gap = number and (self.text[phrase[number - 1].end : token.start] or "x").isspace()
            spaced = number and " " in self.text[phrase[number - 1].end : token.start]
            pieces.append((" " if gap or spaced else "") + token.text)
        return "".join(pieces)

    def with_brackets(self, words: str, span: Range) -> str:
        """The subject with a bracket that follows it: "NASA (National …)"; it is said once."""
        last = self.found[span[1] - 1]
        if not last.bracketed:
            return words
        start = span[1] - 1
        while start > span[0] and self.found[start - 1].bracketed:
            start -= 1
        return f"{words} {self.text[self.found[start].start : last.end]}"

    def said(self, part: Range, me: Mention | None) -> str:
        """The words of a range without "also", and names for pronouns where nothing beside them says who."""
        pieces: list[str] = []
        named_before = False
        position = self.found[part[0]].start if part[0] < part[1] else 0
        for at in range(*part):
            token = self.found[at]
            word: str | None = None
            if not token.inside:
                named_before = named_before or (token.cap and not token.is_time and at > 0)
                if token.lower == "also":
                    word = ""
                elif token.lower in FORMS and not named_before:
                    word = self._replacement(at, me)
                    named_before = word is not None
            if word is not None:
                pieces += [self.text[position : token.start], word]
                position = token.end
        if part[0] < part[1]:
            pieces.append(self.text[position : self.found[part[1] - 1].end])
        return " ".join("".join(pieces).split()) or self.joined(self.found[slice(*part)])

    def _replacement(self, at: int, me: Mention | None) -> str | None:
        """The name for a pronoun inside a predicate, when the subject cannot be meant."""
        lower = self.found[at].lower
        form = FORMS[lower]
        owned = is_possessive(self.found, at)
        bound = me is not None and me.fits(form)
        if lower == "it" or (bound and (owned or lower in SUBJECTS)):
            return None
        meant = self.mentions.resolve(lower, me)
        if meant is None or (me is not None and meant.name in me.name):
            return None
        return possessive(meant.name, meant.many) if owned else meant.name

    def remember(self, clause: Clause, me: Mention) -> None:
        """The direct object first, then the subject, which is what a pronoun means sooner."""
        verb = clause.subject.verb
        start = verb + 1
        if self.found[verb].lower not in verbs.AUXILIARY and start < clause.end:
            end = start
            while end < clause.end and self.found[end].is_word and not _ends_object(self.found[end]):
                end += 1
            phrase = self.found[start:end]
            if phrase and (is_name(phrase) or (phrase[0].lower in DETERMINERS and len(phrase) > 1)):
                words, thing = self.subject((start, end))
                if words and phrase[0].lower not in FORMS:
                    thing.is_object = True
                    self.mentions.add(thing)
        if me.name:
            if verbs.LEMMA.get(self.found[verb].lower) in _PERSONAL and me.person is None and not me.many:
                me.person = True
            self.mentions.add(me)


# What only people do, as good as always.
_PERSONAL = word_set(
    "write marry study compose paint sing graduate star divorce wed teach emigrate retire resign"
)


def _ends_object(token: Token) -> bool:
    return not token.inside and (
        token.lower in PREPOSITIONS or token.lower in ("and", "or", "but", "that", "who", "which")
    )


def _unknown(pronoun: str) -> Mention:
    """A pronoun that nothing fits stays one."""
    return Mention("", many=pronoun == "they", person=pronoun in ("he", "she") or None, form=FORMS[pronoun])


def is_empty_it(found: Sequence[Token], at: int) -> bool:
    """Whether "it" stands for nothing: "It is known that", "It was in 1900 that"."""
    if found[at].lower != "it":
        return False
    words = [token.lower for token in found[at : at + 12]]
    if len(words) < 3 or words[1] not in verbs.BE | {
        "has",
        "had",
        "took",
        "takes",
        "seems",
        "rained",
        "snowed",
    }:
        return False
    return (
        words[1] in ("took", "takes", "seems", "rained", "snowed")
        or "that" in words[2:]
        or words[2] in _EMPTY
        or words[2:4] == ["not", "until"]
    )


_EMPTY = word_set(
    """
    important possible necessary difficult easy likely clear worth estimated believed unclear common thought
    unlikely hard essential impossible interesting
    """
)


def capital(words: str) -> str:
    """The words as a sentence starts, unless they start with a name like `iPhone`."""
    return words[:1].upper() + words[1:] if words[:1].islower() and not _camel(words) else words


def small(words: str) -> str:
    """The words as they go on inside a sentence."""
    return words[:1].lower() + words[1:]


def _camel(words: str) -> bool:
    """`iPhone`, `eBay`: names that start with a small letter."""
    return len(words) > 1 and words[1].isupper()
