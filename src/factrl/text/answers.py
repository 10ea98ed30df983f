"""Compares short answers by equality, and finds answers without content before a judge sees them.

Equality accepts only what is certainly the same answer, since a policy exploits whatever is accepted too
easily.  It compares whole answers, never substrings or overlaps: two answers are one where they are the same
amount, the same date, or the same words with the same signs.  What it does not accept may still be right; a
judge decides that.
"""

from __future__ import annotations

import html
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from factrl.text import MAX_PAYLOAD, clean, unwrap_latex
from factrl.text.words import (
    CARDINALS,
    IDLE,
    ORDINALS,
    ROMAN,
    STOP_STEMS,
    TOKEN,
    UMLAUTS,
    Amount,
    Reading,
    canonical,
    fold,
    plain_letters,
    read,
    stems,
    unit_of,
)

MASTER_KEYS = frozenset(
    {
        # The keys of "One Token to Fool LLM-as-a-Judge" (arXiv 2507.08794) that hold a word.
        *("thought process", "let's solve this problem step by step", "solution", "解"),
        *("かいせつ", "respuesta"),
        # Announcements of an answer that does not follow, as policies write them.
        *("answer", "the answer", "my answer", "final answer", "the answer is", "the final answer is"),
        *("here is the answer", "here is the solution", "the solution", "explanation", "reasoning", "step 1"),
        *("let's think step by step", "let us think step by step", "let's think about this step by step"),
        *("to solve this problem", "let me think", "let's begin", "let's start", "thinking process"),
        *("答案", "答案是", "答", "解答", "解説", "答え", "réponse", "la réponse", "antwort", "lösung"),
        *("respuesta final", "solución", "risposta", "soluzione", "resposta", "solução", "ответ", "решение"),
        *("정답", "الجواب", "odpověď", "řešení"),
    }
)
"""Texts without content that model judges often accept, in the form that `is_contentless` compares."""

MAX_ANSWER = 1_024
"""Equality compares answers of up to this many characters; a longer one equals nothing."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """SQuAD's normalisation of the cleaned text: lower case, no ASCII punctuation, no English articles.

    Reads `MAX_PAYLOAD` characters.
    """
    text = clean(text)[:MAX_PAYLOAD].lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


# -- Equality


class _Form(NamedTuple):
    """An answer in the forms that are compared."""

    text: str
    reading: Reading
    words: tuple[tuple[str, ...], ...]  # with hyphens as spaces, and without them
    signs: Counter[str]
    expression: str  # a text without a word of three letters, which is compared sign by sign; else ""


def same_answer(prediction: str, answer: str, question: str = "") -> bool:
    """Whether two short answers are certainly the same one.

    They are where they are one amount ("5,000 kilometres" is "5000 km"), one date ("13 March 2018" is
    "2018-03-13"), or the same words with the same signs.  Case, articles, punctuation between words, accents
    of names, markup of LaTeX and HTML, spaces between initials and the spelling of small numbers ("World War
    II") make no difference.  Every other sign does, and in an expression each does: -5, 50%, $5, C++, n!,
    [0, 1), O-, +44, 3.10.  Numbers must be equal; close is not enough.  A list of candidates is never the
    same as one of them.

        >>> same_answer("J.R.R. Tolkien", "JRR Tolkien"), same_answer("n!", "n")
        (True, False)

    Args:
        question: a unit or currency that it names may be left out or added.
    """
    return _same(_form(prediction), _form(answer), question)


def equals(prediction: str, answers: Iterable[str], question: str = "") -> str | None:
    """The first accepted answer that a prediction equals, as it is written or as `final_answer` reads it.

    >>> equals("It is 8849.", ["8,849 m"], "How many metres high is it?")
    '8,849 m'
    """
    answers = list(answers)
    text = clean(prediction[: MAX_ANSWER + 1])
    longest = max(map(len, answers), default=0)
    if len(text) > min(MAX_ANSWER, 2 * longest + len(question) + _AROUND):  # it says more than an answer
        return next((answer for answer in answers if closed(text, answer, question)), None)
    forms = [_form(spelling) for spelling in dict.fromkeys((text, final_answer(text, question)))]
    for answer in answers:
        accepted = _form(answer)
        if any(_same(form, accepted, question) for form in forms):
            return answer
    return None


_AROUND = 80  # characters of what `final_answer` may take off, besides the question


def _form(text: str) -> _Form:
    """The form of a text; cached, as an accepted answer is compared with every completion of its question."""
    return _formed(text) if len(text) <= MAX_ANSWER else _formed("")


@lru_cache(maxsize=4_096)
def _formed(text: str) -> _Form:
    text = clean(text)
    text = _MINUS.sub("-", without_markup(text)) if len(text) <= MAX_ANSWER else ""
    bare = _respelt(text)
    signs = Counter(char for char in _NUMBER.sub("", bare) if not (char.isalnum() or char in _LIGHT))
    signs["!"] += len(_NOT.findall(bare))
    spoken = [bare.replace("-", " "), _HYPHEN.sub("", bare)] if "-" in bare else [bare]
    words = tuple(dict.fromkeys(_words(one) for one in spoken))
    expression = (
        ""
        if _LONG_WORD.search(bare)
        else _APART.sub("", _ITEMS.sub(";", bare.replace(". ", ""))).replace("′", "'")
    )
    return _Form(text, read(text), words, signs, expression)


_LIGHT = frozenset(" .,;:!?'\"()[]{}/-_¿¡…、。・「」『』《》〈〉【】")
_MINUS = re.compile(r"^(?:minus|negative|[-−–]) ?(?=[\d.])", re.IGNORECASE)
_NOT = re.compile(r"!(?=\w)")  # a sign for "not"
_HYPHEN = re.compile(r"(?<!\d)-|-(?!\d)")  # 1-0 is not 10
_ITEMS = re.compile(r",(?= \d{3}(?!\d))")  # 100, 200 is not 100,200
_APART = re.compile(r"(?<!\d) | (?!\d)")  # a space in an expression, unless it parts two numbers
_LONG_WORD = re.compile(r"[^\W\d_]{3}|[\u0900-\u0dff\u0e00-\u9fff\uac00-\ud7ff]")
_NUMBER = re.compile(r"(?<![\w.,])[-−]?\d[\d.,]*\d|(?<![\w.,])[-−]?\d|\d[\d.,]*")
_LATEX = (
    (re.compile(r"(?<=\d) ?(?=\\[dt]?frac)"), " "),
    (re.compile(r"\\[dt]?frac ?\{([+-]?\w{1,40})\} ?\{(\w{1,40})\}"), r"\1/\2"),
    (re.compile(r"\\[dt]?frac ?\{([^{}]{1,99})\} ?\{([^{}]{1,99})\}"), r"(\1)/(\2)"),
    (re.compile(r"\\[dt]?frac ?(\w) ?(\w)"), r"\1/\2"),
    (re.compile(r"\\sqrt ?\{([^{}]{1,99})\}|\\sqrt ?(\w)"), r"√\1\2"),
    (re.compile(r"\^ ?(?:\\circ(?![a-z])|\{\\circ\})"), "°"),
    (re.compile(r"\^\{([+-]?\d{1,9}|\w)\}"), r"^\1"),
    (re.compile(r"(?<!\d)_\{?(\d{1,9})\}?(?!\d)"), r"\1"),
    (re.compile(r"_\{(\d{1,9})\}"), r"_\1"),  # of a digit: a base or an index, and not one more digit
    (re.compile(r"\\(?:times|cdot)\b"), "×"),
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-z]) ?"), ""),
    (re.compile(r"\\(?:quad|qquad|newline)\b"), " "),
)
_MARKED = (
    (re.compile(r"(?<=\w)\.?~(?=\w)"), " "),
    (re.compile(r"<br ?/?>"), " "),
    (re.compile(r"(?<=\d)<sub>"), "_"),
    (re.compile(r"<(/?)(?:b|i|em|strong|u|span|p|sub|code)>"), ""),
    (re.compile(r"(?<![\w*])(\*{1,3}|`)(?=\S)([^*`]{1,400})(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"""(?<!\w)(["'])(?=\S)([^"']{1,400})(?<=\S)\1(?!\w)"""), r"\2"),
)


def without_markup(text: str) -> str:
    """A text on one line, without the markup of LaTeX, HTML and Markdown and quotation marks around words."""
    text = unwrap_latex(clean(html.unescape(text)))
    for signs, patterns in (("\\^_", _LATEX), ("~<*`\"'", _MARKED)):
        if not set(signs).isdisjoint(text):
            for pattern, plain in patterns:
                text = pattern.sub(plain, text)
    return " ".join(text.split())


# -- One spelling for initials, abbreviations and numerals

_COUNTED = {word: f"{value}" for word, value in CARDINALS.items() if value <= 20} | {
    word: f"{value}th" for word, value in ORDINALS.items() if value <= 20
}
_NTH = re.compile(r"(\d{1,4})(?:st|nd|rd|th)", re.I)
_ABBREVIATED = {
    **{"mt": "mount", "ft": "fort", "jr": "junior", "sr": "senior", "dr": "doctor", "vs": "versus"},
    **{"bce": "bc", "st": "saint", "prof": "professor", "gov": "governor", "sen": "senator"},
}
_INITIALS = re.compile(r"\b([A-Z])(?:\. ?| )(?=[A-Z]\b(?!'))")
_LETTER_DOT = re.compile(r"\b([A-Z]{1,6})\.(?!\w)")
_OPERATORS = frozenset("+*^=<>≤≥×·±→")
_SPACED = re.compile(r"(?<=\w) ?([+*^=<>≤≥×·±→]) ?(?=[\w(√\[-])")
_JOINED = re.compile(r"\d{1,4}(?:st|nd|rd|th)\b|\d[\d.,]*|[^\W\d_]+(?:'[^\W\d_]+)*|\d+")


def _respelt(text: str) -> str:
    """A text with `&` as a word, initials without stops and spaces, and no space beside operators."""
    text = _LETTER_DOT.sub(r"\1", _INITIALS.sub(r"\1", text.replace(" & ", " and ")))
    if not _OPERATORS.isdisjoint(text):
        text = _SPACED.sub(r"\1", text)
    text = re.sub(r"(?<=[A-Z])-(?=\d)", "", text) if "-" in text else text  # F-16
    return text.strip().rstrip(".,;:") if len(text) > 1 else text


def _words(text: str) -> tuple[str, ...]:
    """The words of a text without articles, in one spelling each."""
    tokens = _JOINED.findall(text)
    if not text.isascii() and any(map(is_spaceless, text)):
        return ("".join(tokens),)
    words: list[str] = []
    for place, token in enumerate(tokens):
        low = token.lower()
        last = place + 1 == len(tokens)
        titled = not place and tokens[1:] and tokens[1][0].isupper()  # "A Tale", but not "A minor"
        if not last and (low == "the" or (low in ("a", "an") and (token.islower() or titled))):
            continue
        before = tokens[place - 1] if place else ""
        nth = _NTH.fullmatch(_COUNTED.get(low) or token)
        if nth or token[0].isdigit():
            regnal = nth and before.lower() == "the" and place > 1 and tokens[place - 2][0].isupper()
            words.append(nth[1] if nth and regnal else f"{nth[1]}th" if nth else canonical(token))
            continue
        numeral = ROMAN.get(token.upper() if len(token) > 1 else token, 0) if before[:1].isalpha() else 0
        if low in _ABBREVIATED:
            words.append("street" if low == "st" and last else _ABBREVIATED[low])
        elif numeral and (token.isupper() or token.islower()):
            words.append(str(numeral))
        elif low in _COUNTED:
            words.append(_COUNTED[low])
        else:
            words.append(token.replace("'", ""))
    return tuple(words)


def is_spaceless(char: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or char >= "\U00020000"


def _same(prediction: _Form, answer: _Form, question: str) -> bool:
    if not prediction.text or not answer.text:
        return False
    if prediction.text == answer.text:
        return True
    if prediction.reading.is_date and answer.reading.is_date:  # 3/4/1889 has two readings, and is no date
        days = prediction.reading.dates, answer.reading.dates
        limited = not _LIMITS.isdisjoint(prediction.reading.words)
        return days[0] == days[1] and len(days[0]) == 1 and prediction.signs == answer.signs and not limited
    if closed(prediction.text, answer.text, question):
        return True
    one, other = (_only_amount(form.text, question) for form in (prediction, answer))
    if one is not None and other is not None:
        return one == other
    if prediction.expression and answer.expression:
        return _same_expression(prediction.expression, answer.expression)
    same = prediction.signs == answer.signs and _alike(prediction, answer)
    return same or _reordered(prediction, answer, question)


def _same_expression(one: str, other: str) -> bool:
    """Whether two expressions are the same sign by sign; capitals count, but not in `h2o`, nor first."""
    if one == other or (one[1:] == other[1:] and one[1:].islower() and one[0].lower() == other[0].lower()):
        return True  # the second as a sentence begins: "Ja", "Sí", but not "Co" for "CO"
    small = len(one) > 2 and not one[0].isdigit() and (one.islower() or other.islower())
    return small and one.casefold() == other.casefold() and one.isalnum()


def _alike(one: _Form, other: _Form) -> bool:
    return any(
        len(words) == len(wanted) > 0 and all(_same_word(words, wanted, place) for place in range(len(words)))
        for words in one.words
        for wanted in other.words
    )


def _same_word(words: Sequence[str], wanted: Sequence[str], place: int) -> bool:
    """Whether two words are one; of names the accents do not count, behind a number capitals do: mJ, MJ."""
    word, want = words[place], wanted[place]
    if word == want:
        return True
    if (
        place
        and words[place - 1][0].isdigit()
        and len(word) <= 3
        and (word[0], word[-1]) != (want[0], want[-1])
    ):
        return False
    one, other = word.casefold(), want.casefold()
    named = (word[0].isupper() or want[0].isupper()) and (len(words) > 1 or min(len(word), len(want)) > 3)
    return one == other or (
        named
        and (one.translate(UMLAUTS) == other.translate(UMLAUTS) or _unaccented(one) == _unaccented(other))
    )


def _unaccented(word: str) -> str:
    return plain_letters(word.replace("ё", "е"))


_LISTED = re.compile(r", and |, |; | (?:and|und|et|y|e|и|&) ")
_IN_ORDER = stems("order respectively")


def _reordered(prediction: _Form, answer: _Form, question: str) -> bool:
    """Whether two texts are the same list in another order, or a name and its form "Surname, First name"."""
    order = list if not _IN_ORDER.isdisjoint(read(question).words) else sorted
    one, other = (order(_LISTED.split(form.text.strip(" ."))) for form in (prediction, answer))
    if len(one) == len(other) == 1 or prediction.signs != answer.signs or prediction.reading.amounts:
        return False
    if len(one) == len(other):
        return all(_alike(_form(item), _form(wanted)) for item, wanted in zip(one, other, strict=True))
    named, plain = (prediction, answer) if len(one) > len(other) else (answer, prediction)
    surname, _, names = named.text.partition(", ")
    return len(one) * len(other) == 2 and bool(names) and _alike(_form(f"{names} {surname}"), plain)


# -- Closed answers

CLOSED = stems("yes no true false")
"""Answers of which there are two, as `read` spells them."""
_DENYING = stems("not no never isn't wasn't aren't weren't doesn't don't didn't can't cannot won't false nor")
_LEADING = re.compile(r"\W{0,3}([^\W\d_]{1,5})(?!\w)")


def closed(text: str, answer: str, question: str = "") -> bool:
    """Whether a text is a closed answer (yes, no, true, false, the letter of an option), or begins with one.

    What follows the word, behind punctuation, may only repeat the question: "Yes, it is"; or, behind a
    letter, what the question has there: "D) Lyon".

    >>> closed("Yes, it is.", "yes"), closed("Yes and no.", "yes"), closed("D) Lyon", "D", "C) Nice D) Lyon")
    (True, False, True)
    """
    option = len(answer) == 1 and "A" <= answer <= "H"
    match = _LEADING.match(text)
    if not match or not (option or stems(answer) <= CLOSED) or match[1].casefold() != answer.casefold():
        return False
    behind = text[match.end() :].strip("\"' ")
    if option:
        said, asked = (" ".join(_JOINED.findall(one.casefold())) for one in (text, question))
        return match[1] == answer and (not behind.strip(").:]") or f" {said} " in f" {asked} ")
    if not behind.strip(" .!"):
        return True
    rest = {word for word in read(behind).words if word != "|"}
    denies = not _DENYING.isdisjoint(rest)
    known = rest - _DENYING <= STOP_STEMS | {*read(question).words}
    return behind[0] in ",.;:!" and known and denies == (match[1].casefold() in ("no", "false"))


def contains(text: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer whose words follow each other in a passage, as in DPR (arXiv 2004.04906).

    Case, punctuation, English articles and accents make no difference.  It is for sorting passages, never for
    grading: many passages have "yes" and "one".  Reads `MAX_PAYLOAD` characters.
    """
    passage = f" {_folded(clean(text))} "
    for answer in answers:
        words = _folded(clean(answer)).strip()
        if words and (words if any(map(is_spaceless, words)) else f" {words} ") in passage:
            return answer
    return None


def _folded(text: str) -> str:
    """The words, casefolded, without punctuation, articles and (on Latin letters) accents."""
    words = normalize_answer(text).casefold() or text.casefold()
    if words.isascii():
        return words
    folded = (char for char in plain_letters(fold(words)) if unicodedata.category(char)[0] != "P")
    return ("" if any(map(is_spaceless, words)) else " ").join("".join(folded).split()) or text.casefold()


# -- Amounts

_AMOUNT_SIGNS = frozenset(" -°")  # signs in an amount besides those of the tokens of `read`
_AROUND_AMOUNT = stems("square sq cubic it there has have had is are was were he she they old aged")
_LIMITS = stems(
    "more less fewer than least most over under above below at up to minus plus not never no nor neither"
    " none or half without except other another about around approximately almost nearly"
    " before after until till since by"
)
_UNCLEAR = re.compile(r"!|\d,\d{1,2}(?!\d)")  # 5!; 1,5 may be two numbers


def _only_amount(text: str, question: str) -> Amount | None:
    """The amount of a text that is a number with its unit, or with words of the question; else None.

    The unit that the question asks for is left out, so that it may be said or not.
    """
    return _amount_kept(text, question) if len(question) <= MAX_ANSWER else None


@lru_cache(maxsize=4_096)
def _amount_kept(text: str, question: str) -> Amount | None:
    if _UNCLEAR.search(text) or not _AMOUNT_SIGNS.issuperset(TOKEN.sub("", text)):  # +44, 6'
        return None
    reading, query = read(text), read(question)
    if len(reading.amounts) != 1 or reading.dates:
        return None
    amount = reading.amounts[0]
    known = {word for word in query.words if word not in _LIMITS} | _AROUND_AMOUNT | {amount.word, "|"}
    for word, name in zip(reading.words, reading.spelt, strict=True):
        if word not in known and not (unit_of(name) or (is_spaceless(word[0]) and word in question)):
            return None
    asked = next(filter(None, map(unit_of, query.spelt)), "year" if "old" in query.words else "")
    return Amount(amount.word) if amount.unit == asked else amount


# -- Around the answer

_WRAPPERS = ("**", "__", "``", '""', "''", "「」", "『』", "《》")
_FINAL = "endgültige|richtige|finale?|correcte|bonne|definitiva|correct[ao]|corretta|ostateczna|poprawna"
LABEL = (
    r"(?:(?:(?:so|thus|therefore|hence),? )?(?:the |my )?(?:final |correct |right |short )?"
    r"(?:answer|option|choice)(?:\*\*)?(?:: ?| is:? | would be )"
    rf"|(?:(?:die|meine|la|ma|mi|a|minha|il|mia|moja) )?(?:(?:{_FINAL}) )?"
    rf"(?:respuesta|réponse|antwort|risposta|resposta|ответ|odpowiedź|odpověď|svar)(?: (?:{_FINAL}))?"
    r"(?: ?: ?| (?:ist|lautet|est|es|è|é|to|jest|je|är):? )"
    r"|答案(?:是[:：]?|[:：]) ?|答え[は:：] ?|答[:：] ?)"
)
"""What announces an answer, at the beginning of a sentence."""
_LABELS = re.compile(LABEL, re.IGNORECASE)
# Only verbs in lower case, and "It's" only in a sentence: "It Is Written" and "It's Complicated" are titles.
_OPENERS = re.compile(
    r"(?:(?:[Ii] (?:think|believe|would say)|[Ii]'d say)(?: that)?,? |(?:[Pp]robably|[Mm]aybe|[Pp]erhaps),? "
    r"|(?:[Ii]t|[Tt]his|[Tt]hat|[Hh]e|[Ss]he|[Tt]hey) (?:is|was|are|were) |it's |It's (?=.*\.$))"
)
_COPULA = re.compile(r" (?:is|was|are|were) (?:called |named |known as )?")
_MAX_SUBJECT = 12
_ROOT = 5  # letters: the director is who directed
_ANY_SUBJECT = stems("name number year date total title person place")
_TURNS = frozenset(
    """
    not never no nor neither either or but unlike than who whom whose which that what why how whether if when
    where before after other
    """.split()  # noqa: SIM905
)


def final_answer(text: str, question: str = "") -> str:
    """The answer without a few clear wrappings; if there are none, the cleaned text.

    Removed, from the outside in: LaTeX markup, bold and quotes around the whole, a label (`Answer:`, `The
    final answer is`), an opener (`It is`, `I think`, `Maybe`), one definite subject (`The capital of France
    is Paris`: begins with "The", at most 12 words, all of them of the question, one verb form of "to be"),
    and the final period.  Other sentences stay as they are: "The runner-up was Germany" is not who won.

    >>> final_answer("The final answer is: **Paris**."), final_answer("Paris is the capital of France")
    ('Paris', 'Paris is the capital of France')
    >>> final_answer("The capital of France is Paris.", "What is the capital of France?")
    'Paris'
    """
    text = unwrap_latex(clean(text))
    if text.count("**") % 2 == 0:
        text = text.replace("**", "")
    for _ in range(4):
        before = text
        inner = text[1:-1]
        if inner and text[0] + text[-1] in _WRAPPERS and set(inner).isdisjoint(text[0] + text[-1]):
            text = inner
        for opening in (_LABELS, _OPENERS):
            match = opening.match(text)
            text = (text[match.end() :] if match else text) or text
        # The period of "U.S." belongs to the word.
        ends = text.endswith("。") or (text.endswith(".") and text.rsplit(" ", 1)[-1].count(".") == 1)
        text = _without_subject((text[:-1] if ends else text).strip(), question)
        if text == before:
            break
    return text


def _without_subject(text: str, question: str) -> str:
    if not question or not text.startswith(("The ", "the ")):
        return text
    parts = _COPULA.split(text, maxsplit=2)
    if len(parts) != 2:
        return text
    words = parts[0].lower().split()
    if len(words) > _MAX_SUBJECT or "," in parts[0] or not _TURNS.isdisjoint(words) or not parts[1]:
        return text
    query_roots = tuple(word[:_ROOT] for word in read(question).words if word not in IDLE)
    subject = [word for word in read(parts[0]).words if word not in IDLE | _ANY_SUBJECT]
    same = bool(query_roots) and all(word[:_ROOT].startswith(query_roots) for word in subject)
    return parts[1] if same else text


# Tags, comments and commands that produce no visible text.
_INVISIBLE = re.compile(
    r"<!--[^<>]{0,400}-->|</?[a-z]{1,10} ?/?>"
    r"|\\(?:q?quad|newline|null|relax|[hv]?phantom\{[^{}]{0,400}\}|[hv]space\{[^{}]{0,40}\})"
    r"|\\[,;!: ]|(?<!\w)~(?!\w)",
    re.I,
)


def is_contentless(text: str) -> bool:
    """Whether a text holds nothing a judge could grade: no letter, digit or sign, or only a master key.

    It is a fixed rule, so no text can persuade it.  Call it before any judge, and after `equals`, because a
    word such as "Solution" can be the right answer.  Short answers (`0`, `K`, `C++`, `π`, `中`, `No`, `A`)
    pass.

    >>> is_contentless("**Solution:**"), is_contentless("…"), is_contentless("C++")
    (True, True, False)
    """
    text = clean(_INVISIBLE.sub(" ", html.unescape(text[:MAX_PAYLOAD]))).casefold()
    signs = (char for char in text if not char.isascii() and char != "\ufffd")
    if not any(map(str.isalnum, text)) and all(unicodedata.category(char)[0] != "S" for char in signs):
        return True
    return text.strip(" .:,;!?*_#\"'`-()[]{}<>。、") in MASTER_KEYS
