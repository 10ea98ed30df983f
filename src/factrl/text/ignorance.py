"""Texts that decline in words of their own, found by what they lack.

Somebody denies something of himself or of what he was given, nothing is guessed and nothing is named, and
most of the words are talk of what is not known, grammar or the question's.
"""

from __future__ import annotations

import re

from factrl.text import clean, unwrap_latex
from factrl.text.naming import (
    DASH,
    LINE,
    SCRIPT,
    SHORT_RUN,
    first_name,
    is_grammar,
    is_known,
    is_new,
    sentences,
    unexplained,
    words_in,
)

BARE = 200
"""Characters of the longest text that is read strictly."""
_LONG = 120  # bytes from which on a text is long
# Shares of new words, chosen on texts written for it (docs/history.md).
_MOST_NEW, _MOST_NEW_SHORT = 0.55, 0.34
_FEW = 4  # words of a sentence whose first word is taken for a name
_BARE_CLAUSE = 1  # new words that are a clause of their own
_REACH = 60  # characters after a phrase of guessing

# Something is not so.
_DENIES = re.compile(
    r"\b(?:not|no|none|nothing|nobody|never|neither|nor|without|cannot|unable|lacks?|beyond|outside|unknown"
    r"|unclear|declin\w+|stumped|foggiest|blank|pass|nicht|kein\w*|weder|ohne|unbekannt|ne|pas|aucun\w*|rien"
    r"|sans|inconnu\w*|ignore|sin|ningun\w*|ningún|desconozco|ni|nada|non|nessun\w*|senza|né|nulla|não"
    r"|nenhum\w*|sem|nem|desconheço)\b|n't\b|\bn'|[不没無无未]|ません|ない|なく"
)
# Somebody speaks of himself or of what he was given.
_SPEAKS = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|my|me|supplied|provided|retrieved|search results?|documents?|passages?|article"
    r"|the question|unable to|text\w*|sources?|answer|ich|mir|mich|mein\w*|dokument\w*|frage|ahnung|je|me|mes"
    r"|moi|idée|moyen|yo|mi|puedo|tengo|sé|conozco|encuentro|dispongo|logré|pude|documentos?|pregunta|ni idea"
    r"|manera|modo|io|mio|mia|ho|posso|so|riesco|trovo|saprei|documenti|domanda|testo|brano|eu|meu|minha"
    r"|tenho|sei|consigo|encontrei|consegui|lamento|pergunta|trecho|ideia)\b|\bj'|\bm'"
    r"|[我私]|申し訳|恐れ入|お(?:答え|調べ|手元|教え)|文書|資料|文档|资料|这题|文中|本文"
)
_GUESSES = re.compile(
    r"\b(?:comes? to mind|feels? right|best guess|my guess|i'd (?:say|go|put|bet|circle|begin|wager)|land on"
    r"|presumably|i suppose|appears to have|seems to have been|rumou?r\w*|anything but|other than|nothing but"
    r"|if not|better \w+ than|ahead of|tested positive|leaves only|pointed to|then no|then yes|say no|say yes"
    r"|no, it|yes, it|the answer is|vermutlich|wahrscheinlich|ich (?:tippe|vermute|schätze)|würde ich"
    r"|probablement|sans doute|je (?:dirais|parie|penche)|probablemente|diría|apostaría|probabilmente|direi"
    r"|scommett\w+|provavelmente|diria|apostaria|chutaria)\b|可能是|应该是|大概|也许|或许|我猜|估计|多半"
    r"|莫非|难道|说不定|たぶん|おそらく|恐らく|と思います|ではないでしょうか|かもしれません|あえて|強いて"
)
# What a model says before it answers.
_AS_A_MODEL = re.compile(
    r"\bas an? (?:ai|large|language)[^.!?¶]{0,60}personal (?:opinion|belie|preference|emotion|experience"
    r"|feeling)[^.!?¶]{0,200}[.!?¶]"
)
_CHOICES = frozenset(
    {
        *("yes", "no", "true", "false", "both", "neither", "none", "nobody", "nothing", "everything"),
        *("one", "first", "second", "third", "left", "right"),
    }
)
_CLAUSE = re.compile(rf"[.!?;:,。、，；()\[\]{LINE}{DASH}]| - | but ")


def visible(text: str) -> str:
    """A text without markup and quotation marks around the whole; line ends and dashes are single signs."""
    text = unwrap_latex(clean(text.replace("\n", LINE).replace("—", DASH)))
    text = text.replace("*", "").replace("`", "").strip(f" {LINE}{DASH}")
    whole = len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1] if whole else text


def declines_in_own_words(text: str, query_words: frozenset[str], *, strict: bool) -> bool:
    """Whether a text denies, speaks of its writer or sources, guesses nothing and names nothing.

    Args:
        query_words: the question's words (`factrl.text.naming.words_of`).
        strict: no word of a text up to `BARE` characters may be new.
    """
    said = visible(text)
    folded = _AS_A_MODEL.sub(" ", said.casefold())
    denies = any(_DENIES.search(part) and _SPEAKS.search(part) for part in sentences(folded))
    if not denies or guessed(folded, query_words):
        return False
    if strict and len(text) <= BARE and not _CHOICES.isdisjoint(words_in(folded)):
        return False
    short = len(text.encode("utf-8", "replace")) < _LONG
    total, new, ends, bare = _counted(folded, query_words)
    if (bare and len(text) <= BARE) or (short and (total < 2 or ends)) or _stands_alone(said, query_words):
        return False
    most = 0.0 if strict and len(text) <= BARE else _MOST_NEW_SHORT if short else _MOST_NEW
    return new <= most * total and not first_name(said, query_words, few=BARE if short else _FEW)


def _counted(folded: str, query_words: frozenset[str]) -> tuple[int, int, bool, bool]:
    """The words beside grammar, how many are new, and whether a clause ends in a new one or is only one.

    Two characters of a script without spaces count as a word.
    """
    total = new = 0
    any_ends = bare = False
    for clause in _CLAUSE.split(folded):
        ends = False
        before = (total, new)
        for word in words_in(clause):
            if SCRIPT.match(word):
                rest = len(unexplained(word, query_words))
                whole = len(word) <= SHORT_RUN and rest > 0  # a name of two may have one character of talk
                total, new = total + len(word) // 2, new + max(rest // 2, whole)
                ends = ends or whole or rest > 1
            elif not word[0].isdigit() and not is_grammar(word):
                ends = is_new(word, query_words)
                total, new = total + 1, new + ends
        any_ends = any_ends or ends
        bare = bare or 0 < total - before[0] == new - before[1] <= _BARE_CLAUSE
    return total, new, any_ends, bare


def _stands_alone(said: str, query_words: frozenset[str]) -> bool:
    """Whether a clause is nothing but a new word with a capital."""
    clauses = (words_in(clause) for clause in _CLAUSE.split(said))
    alone = (words[0] for words in clauses if len(words) == 1)
    return any(word[0].isupper() and is_new(word.casefold(), query_words) for word in alone)


def guessed(folded: str, query_words: frozenset[str]) -> str:
    """The first new word after a phrase of guessing in a casefolded text; empty without one."""
    for guess in _GUESSES.finditer(folded):
        for word in words_in(folded[guess.end() : guess.end() + _REACH]):
            if unexplained(word, query_words) if SCRIPT.match(word) else is_new(word, query_words):
                return word
    return ""


def names_nothing(text: str, query_words: frozenset[str], *, strict: bool) -> bool:
    """Whether a text names no candidate answer.

    Args:
        query_words: the question's words (`factrl.text.naming.words_of`).
        strict: any new word is a candidate; otherwise names, dates, numbers and quotations are.
    """
    if not strict:
        return not first_name(visible(text), query_words)
    # What a question offers is an answer to it, and so are yes and no.
    words = words_in(visible(text).casefold())
    return _CHOICES.isdisjoint(words) and all(
        not unexplained(word, frozenset()) if SCRIPT.match(word) else is_known(word) for word in words
    )
