"""Talk of what is not known: what a text names beside it, and texts that decline in words of their own.

A word is new when it is neither grammar nor talk of what is not known (`refusals.toml`) nor in the
question.  A name is a new word with a capital, and so are a date, a number and a quotation.

A text that declines in words of its own is found by what it lacks: somebody denies something of himself or of
what he was given, nothing is guessed and nothing is named, and most of the words are talk of what is not
known, grammar or the question's.  No pattern here repeats anything without bound.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from factrl.text import bytes_of, clean, unwrap_latex
from factrl.text.answers import MONTHS, unaccented

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

SPELLINGS = {
    **{"can't": "cannot", "cant": "cannot", "won't": "will not", "dont": "do not", "didnt": "did not"},
    **{"doesnt": "does not", "isnt": "is not", "couldnt": "could not", "im": "i am", "i'm": "i am"},
    **{"i've": "i have", "i'd": "i would", "i'll": "i will", "it's": "it is", "that's": "that is"},
    **{"there's": "there is", "we're": "we are", "we've": "we have", "idk": "i do not know"},
    **{"dunno": "do not know", "isn't": "is not", "ain't": "is not", "i-i": "i"},
}
"""What contractions are spelt out as."""

Phrases = tuple[str, ...]
Words = frozenset[str]


@dataclass(frozen=True, slots=True)
class Refusals:
    """The tables of `refusals.toml`, which says what each one is for."""

    phrases: dict[str, Phrases]  # each ends in a space, so that whole words match
    bare: Words  # what declines as the complete clause, or before a question word ("No idea who")
    spaceless: dict[str, Phrases]  # of scripts without spaces
    words: dict[str, Words]
    grammar: Words  # small words of six languages
    talk: Words  # words of talk about what is not known
    stems: Words  # beginnings of such words
    sources: Words  # where people are sent to look, and who made the model
    chinese: re.Pattern[str]  # what such talk is made of
    japanese: re.Pattern[str]


@cache
def refusals() -> Refusals:
    """The tables, read once."""
    raw = tomllib.loads((Path(__file__).parent / "refusals.toml").read_text(encoding="utf-8"))
    words = {name: frozenset(text.split()) for name, text in raw["words"].items()}
    lists = {name: text.split() for name, text in raw["talk"].items()}
    talk = [*lists["english"], *lists["european"]]
    scripts = (sorted(lists[name], key=len, reverse=True) for name in ("chinese", "japanese"))
    chinese, japanese = (re.compile("|".join(map(re.escape, variants))) for variants in scripts)
    phrases = {name: tuple(f"{phrase} " for phrase in _split(text)) for name, text in raw["phrases"].items()}
    negations = ("does not", "do not", "did not")
    phrases["silent"] += tuple(f"{no} {verb} " for no in negations for verb in sorted(words["saying"]))
    words["clause_words"] |= words["contrasts"]
    return Refusals(
        phrases,
        frozenset(phrase.strip() for phrase in phrases["bare"]),
        {name: _split(text) for name, text in raw["spaceless"].items()},
        words,
        frozenset(lists["grammar"]),
        frozenset(word for word in talk if not word.endswith("-")),
        frozenset(word[:-1] for word in talk if word.endswith("-")),
        frozenset(lists["sources"]),
        chinese,
        japanese,
    )


def _split(text: str) -> Phrases:
    return tuple(" ".join(phrase.split()) for phrase in text.split("|"))


# -- What a text names

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


# -- Texts that decline in words of their own

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
        query_words: of the question, by `words_of`.
        strict: no word of a text up to `BARE` characters may be new.
    """
    said = visible(text)
    folded = _AS_A_MODEL.sub(" ", said.casefold())
    denies = any(_DENIES.search(part) and _SPEAKS.search(part) for part in sentences(folded))
    if not denies or guessed(folded, query_words):
        return False
    if strict and len(text) <= BARE and not _CHOICES.isdisjoint(words_in(folded)):
        return False
    short = bytes_of(text) < _LONG
    total, new, ends, bare = _counted(folded, query_words)
    if (bare and len(text) <= BARE) or (short and (total < 2 or ends)):
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
        query_words: the question's words (`words_of`).
        strict: any new word is a candidate; otherwise names, dates, numbers and quotations are.
    """
    if not strict:
        return not first_name(visible(text), query_words)
    # What a question offers is an answer to it, and so are yes and no.
    words = words_in(visible(text).casefold())
    return _CHOICES.isdisjoint(words) and all(
        not unexplained(word, frozenset()) if SCRIPT.match(word) else is_known(word) for word in words
    )
