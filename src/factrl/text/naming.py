"""What a text names: the words of it that its question did not give and that talk of ignorance does not need.

A word is new when it is neither grammar nor talk of what is not known (`refusals.toml`) nor in the
question.  A name is a new word with a capital, and so are a date, a number and a quotation.  No pattern here
repeats anything without bound.
"""

from __future__ import annotations

import re
from functools import lru_cache

from factrl.text.answers import MONTHS, unaccented
from factrl.text.refusals import refusals

_LONGEST = 24  # letters of a stem
SHORT_RUN = 6
"""Characters of a run without spaces in which none may be new, as a name of two may be all."""
# What follows is an answer, whatever it says.
_ANSWERS = re.compile(
    r"\b(?:answer|antwort|lösung|réponse|respuesta|risposta|resposta)(?: (?:is|was|ist|war|est|es|è|é)\b|:)"
)
LINE, DASH = "¶", "‖"
"""A line end and a dash, which survive cleaning as signs of one character and push no text over a cap."""

# A date beside one of these is the model's and no answer.
_CUTOFF = (
    *("cutoff", "cut-off", "knowledge", "trained", "training", "updat", "my data", "wissen", "stand"),
    *("aktualisier", "connaissances", "entraîn", "mes données", "mise à jour", "conocimiento", "mis datos"),
    *("entren", "actualiz", "conoscenze", "addestr", "aggiorn", "i miei dati", "conhecimento", "treina"),
    *("atualiz", "meus dados", "截止", "截至", "训练", "知识", "学習", "データ", "更新"),
)
_IS = frozenset(
    {
        *("is", "was", "are", "were", "be", "been", "it's", "ist", "war", "sind", "waren", "est", "sont"),
        *("était", "es", "era", "son", "è", "é", "são"),
    }
)
TOKEN = re.compile(r"\d[\d.,/:]*|[^\W\d_](?:[^\W\d_]|['-](?=[^\W\d_]))*|_+")
_ELIDED = re.compile(
    r"\b(?:l|d|n|m|j|s|t|c|qu|un|dell|all|nell|dall|sull|quest|jusqu|lorsqu|puisqu)'(?=\w)", re.I
)
_CONTRACTED = re.compile(r"(?:'(?:s|ve|d|ll|re|m)|n't)\b", re.I)
_CANNOT = re.compile(r"\bcan't\b", re.I)
_CITED = re.compile(r"(?<=\S)\[\d{1,2}(?:, ?\d{1,2}){0,5}\]|\b\d{1,2}[.)](?= )")
SCRIPT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_QUOTATION = re.compile(r"\"[^\"]{1,200}\"|(?<!\w)'[^']{1,80}'(?!\w)|[「『《][^」』》]{1,80}[」』》]")
_YEAR = re.compile(r"(?:19|20)\d\d\b")
_KANA = re.compile(r"[\u3040-\u30ff]")
_GERMAN = frozenset(
    ("ich", "nicht", "der", "die", "das", "kein", "keine", "keinen", "ist", "und", "zu", "leider", "mir")
)
_NOUN_COMES = re.compile(
    r"(?:.*(?:e|en|er|es|em)|.?.?ein|ihr|und|oder|als|ohne|per|zum|zur|im|am|vom|beim|das|ans|ins)"
)
_ITEM = re.compile(rf"{LINE} ?(?:[-•·#]+|\d{{1,2}}[.)]) ?")


@lru_cache(maxsize=256)
def words_of(question: str) -> frozenset[str]:
    """The words and numbers of a question as they are compared, and its pairs of characters without case."""
    text = unaccented(question)
    words = {word[:5] for word in map(str.strip, TOKEN.findall(text)) for word in (word, *word.split("-"))}
    pairs = {run[i : i + 2] for run in SCRIPT.findall(text) for i in range(len(run) - 1)}
    return frozenset(words | pairs)


def words_in(text: str) -> list[str]:
    """The words of a text without elided articles and contracted verbs: `l'autrice` is one word."""
    return TOKEN.findall(_CONTRACTED.sub(" ", _CANNOT.sub("cannot", _ELIDED.sub(" ", text))))


def is_new(word: str, query_words: frozenset[str], least: int = 2) -> bool:
    """Whether a word is neither grammar nor talk of what is not known nor the question's.

    Args:
        least: letters of the shortest stem that counts: "verd-" does not make "Verdi" such talk.
    """
    return not (
        is_known(word, least) or word in refusals().sources or is_asked(unaccented(word), query_words)
    )


def is_asked(word: str, query_words: frozenset[str]) -> bool:
    """Whether the question has a word with the same first five letters."""
    return word[:5] in query_words or word.rstrip(".,:/")[:5] in query_words


def is_grammar(word: str) -> bool:
    """Whether a casefolded word is one of grammar's small ones."""
    return word in refusals().grammar


def is_known(word: str, least: int = 2) -> bool:
    """Whether a casefolded word is grammar or talk of what is not known."""
    return is_grammar(word) or _is_talk(word, least)


def _is_talk(word: str, least: int = 2) -> bool:
    stems = refusals().stems
    if word in refusals().talk or word in stems:
        return True
    # A short stem has short endings: "law-" is no beginning of "lawyer".
    sizes = range(min(len(word) - 1, _LONGEST), least - 1, -1)
    return any(word[:size] in stems for size in sizes if size > 4 or len(word) - size < 3)


def says_nothing(clause: str, query_words: frozenset[str]) -> bool:
    """Whether a clause is made of nothing but talk of what is not known, grammar and the question's words."""
    if _ANSWERS.search(clause.casefold()):
        return False
    talk = since = given = 0
    for token in words_in(_CITED.sub(" ", clause)):
        word = token.casefold()
        if SCRIPT.match(word):
            rest = unexplained(word, query_words)
            if len(rest) > (len(word) > SHORT_RUN):
                return False
            talk += 2
        elif is_grammar(word):
            if word in _IS:
                since = given = 0
        elif _is_talk(word):
            talk += 1
            since += 1
        elif word in refusals().sources or is_asked(unaccented(word), query_words):
            given += 1
        else:
            return False
    return talk > 1 and not (given and not since)


def unexplained(word: str, query_words: frozenset[str]) -> str:
    """The characters of a run without spaces that neither the question nor such talk accounts for."""
    kept = [True] * len(word)
    for at in range(len(word) - 1):
        if word[at : at + 2] in query_words:
            kept[at] = kept[at + 1] = False
    rest = "".join(char if keep else " " for char, keep in zip(word, kept, strict=True))
    talk = refusals().japanese if _KANA.search(word) else refusals().chinese
    return "".join(talk.sub(" ", rest).split())


def first_name(text: str, query_words: frozenset[str], few: int = 0) -> str:
    """The first name, date, number or quotation that the question did not give; empty without one.

    Args:
        few: words of a sentence up to which its first word is taken for a name too, if it is new.
    """
    text = _ITEM.sub(LINE, text)
    german = len(_GERMAN.intersection(TOKEN.findall(text.casefold()))) > 1
    return next((name for part in sentences(text) if (name := _named(part, query_words, german, few))), "")


def _named(sentence: str, query_words: frozenset[str], german: bool, few: int) -> str:
    """The first name, date, number or quotation of a sentence that the question did not give.

    The first word has its capital from its place, and German nouns have theirs from grammar: behind an
    article or an adjective, a capital tells nothing.
    """
    sentence = _CITED.sub(" ", sentence)
    for quoted in _QUOTATION.findall(sentence):
        if not all(is_asked(unaccented(word), query_words) for word in words_in(quoted)):
            return quoted
    tokens = words_in(sentence)
    folded = [token.casefold() for token in tokens]
    dated = any(cutoff in sentence.casefold() for cutoff in _CUTOFF)
    for place, (token, word) in enumerate(zip(tokens, folded, strict=True)):
        if word[0].isdigit():
            if not (dated and _YEAR.match(word)) and not is_asked(word, query_words):
                return token
        elif token[0].isupper() and (place or len(tokens) <= few) and is_new(word, query_words, least=5):
            by_grammar = german and place and _NOUN_COMES.fullmatch(folded[place - 1])
            if not (by_grammar or (dated and word in MONTHS)):
                return token
    return ""


def sentences(text: str) -> list[str]:
    """A text cut behind every sign that ends a sentence or a line."""
    return re.split(rf"(?<=[.!?:。{LINE}])", text)
