"""Atomic claims by rule: no model, no download, the same every time.

"Marie Curie, a Polish physicist, was born in Warsaw in 1867 and died in Passy." says that she was a Polish
physicist, was born in Warsaw, was born in 1867 and died in Passy.  Subjects are repeated, pronouns replaced
by what they stand for, and every claim points to the words that say it.

The rules never add to what is said.  Where they are not sure (conditions, "either … or", reported speech,
verbs they do not know, other languages) a sentence stays one claim.  A claim may say less than its sentence:
"In 1903 she won and left" does not say when she left.
"""

from __future__ import annotations

import re

from factrl.extract import verbs
from factrl.extract.marks import mark
from factrl.extract.pronouns import Mentions, mention
from factrl.extract.reader import Reader
from factrl.extract.statements import statements
from factrl.extract.tokens import Token, tokens
from factrl.extract.words import IMPERATIVES, word_set
from factrl.types import Claim


class ClauseClaims:
    """Rule-made atomic claims.

    Attributes:
        identity: changes with whatever changes the claims.
    """

    identity = "clauses/1"

    def __call__(self, text: str, question: str = "", topic: str = "") -> list[Claim]:
        """The claims of `text` in order, marked by `factrl.extract.marks.mark`.

        Args:
            text: what is judged.
            question: what it answers; without a topic, the only name in it is the topic when the question is
                about it ("Who was Marie Curie?"), and else somebody a "she" may mean.
            topic: what a pronoun stands for when nothing in the text fits.
        """
        mentions = Mentions(topic) if topic else _asked_about(question)
        claims: list[Claim] = []
        for statement in statements(text):
            mentions.now = statement.sentence
            for draft in Reader(statement, mentions).drafts():
                span = statement.span(draft.start, draft.end)
                claims.append(Claim(draft.words, *span, statement.sentence))
        return mark(claims, question)


def _asked_about(question: str) -> Mentions:
    """What is known before the text begins, from its question alone."""
    name = named(question)
    if name and re.search(_ABOUT + re.escape(name), question, re.IGNORECASE):
        return Mentions(name)
    mentions = Mentions()
    person = mention(tokens(name), name)
    if person.named and person.person is not False and (" " in name or person.form):
        person.person = True
        mentions.add(person)
    return mentions


_ABOUT = (
    r"\b(?:is|was|are|were|did|does|do|has|have|had|about|describe|explain|on"
    r"|(?:bio|biography|life|history|profile|summary|story) of) (?:the )?"
)


def named(question: str) -> str:
    """The name in a question when there is exactly one, else an empty string."""
    names: set[str] = set()
    run: list[Token] = []
    for number, token in enumerate([*tokens(question), None]):
        small = (
            token is not None and run and token.lower in ("of", "de", "van", "von", "the", "da", "al", "bin")
        )
        opener = number == 0 and token is not None and (token.lower in _ASKING or token.lower in IMPERATIVES)
        if token is not None and not opener and ((token.cap and token.lower not in _ASKING) or small):
            run.append(token)
            continue
        while run and not run[-1].cap:
            run.pop()
        if run:
            names.add(question[run[0].start : run[-1].end].removesuffix("'s").removesuffix("’s"))
        run = []
    return names.pop() if len(names) == 1 else ""


_ASKING = verbs.AUXILIARY | word_set(
    """
    who whom whose what when where which why how in on at for the a an please question answer i
    """
)
