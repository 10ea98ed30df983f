"""Short answers: one spelling, equality by rule, and the gate that stands before any judge.

The rules only ever accept what is certainly the same answer, since a policy looks for whatever is accepted
too easily: equality of the whole answer, never a substring, an overlap or a list that contains it.  What
they do not accept may still be right, and is for a judge to say.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from factrl.text import MAX_PAYLOAD, clean, few_marks, unwrap_latex

MASTER_KEYS = frozenset(
    {
        # The keys of "One Token to Fool LLM-as-a-Judge" (arXiv 2507.08794) that hold a word.
        *("thought process", "let's solve this problem step by step", "solution", "解"),
        *("かいせつ", "respuesta"),
        # Announcements of an answer that never comes, as policies write them.
        *("answer", "the answer", "my answer", "final answer", "the answer is", "the final answer is", "n/a"),
        *("here is the answer", "here is the solution", "the solution", "explanation", "reasoning", "step 1"),
        *("let's think step by step", "let us think step by step", "let's think about this step by step"),
        *("to solve this problem", "let me think", "let's begin", "let's start", "thinking process"),
        *("答案", "答案是", "答", "解答", "解説", "答え", "réponse", "la réponse", "antwort", "lösung"),
        *("respuesta final", "solución", "risposta", "soluzione", "resposta", "solução", "ответ", "решение"),
        *("정답", "الجواب", "odpověď", "řešení"),
    }
)
"""Texts without content that model judges credit all the same, in the form `is_contentless` compares."""

MAX_ANSWER = 1_024
"""Characters of the longest answer that the rules compare; a longer one equals nothing."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_released(text: str) -> str:
    """TruthRL's released normalisation: lower case, no ASCII punctuation, no English articles, one space.

    It works on the raw text, so a curly apostrophe stays (arXiv 2509.25760, code; the order is SQuAD's).
    Reads `MAX_PAYLOAD` characters.
    """
    text = text[:MAX_PAYLOAD].lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def normalize_answer(text: str) -> str:
    """SQuAD's normalisation of the cleaned text, so that typography makes no difference."""
    return normalize_released(clean(text))


# -- Numbers and dates

_MAX_NUMBER = 64
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Every quantifier is bounded, and so is the text it sees.
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d{1,3}(?:,\d{3}){1,9}|\d{1,3}(?: \d{3}){1,9}|\d{0,64})(?P<part>\.\d{1,64})?"
    r"(?:e(?P<exponent>[+-]?\d{1,3})| ?[x×*] ?10\^(?P<power>[+-]?\d{1,3}))?"
    rf"(?: ?(?P<scale>{'|'.join(SCALES)}))?",
    re.IGNORECASE,
)
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
MONTH_NUMBERS = {name[:size]: i for i, name in enumerate(MONTHS, 1) for size in (3, len(name))} | {"sept": 9}
_DATE_FILLERS = frozenset({"st", "nd", "rd", "th", "of", "the"})
_DATE_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\s,.]")
_SLASHED_DATE = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4})")


def parse_number(text: str) -> Decimal | None:
    """The value of a text that is one plain number, exactly; None for everything else.

    Understood: a sign, decimals with a point, thousands in groups of three after `,` or a space, `1e6`,
    `3 x 10^8`, `1.5 million`, and the decimal digits of every script (`٣` is 3); `-0` is 0.  Refused:
    percentages and every other unit, fractions (`10/10`, `½`), a comma that groups no three digits
    (`1,5`), NaN, infinity, values beyond 1e308 and texts over 64 characters.
    """
    text = "".join(str(unicodedata.decimal(char, char)) for char in clean(text)[: _MAX_NUMBER + 1])
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_NUMBER else None
    if match is None or not (match["whole"] or match["part"]):
        return None
    digits = match["whole"].replace(",", "").replace(" ", "") + (match["part"] or "")
    exponent = int(match["exponent"] or match["power"] or 0) + SCALES.get((match["scale"] or "").lower(), 0)
    # Built as text, because arithmetic would round to 28 digits.
    value = Decimal(f"{match['sign']}{digits}e{exponent}")
    if not value:
        return Decimal(0)
    return value if abs(value.adjusted()) <= 307 else None


def _quantity(text: str) -> tuple[Decimal, bool] | None:
    """The number and whether it is a percentage."""
    text = text.removesuffix(".")
    for spelling in (" per cent", " percent", " %"):
        text = text[: -len(spelling)] + "%" if text.endswith(spelling) else text
    number = parse_number(text.removesuffix("%"))
    return None if number is None else (number, text.endswith("%"))


def _date(text: str) -> tuple[int, int, int] | None:
    """(year, month, day) of `13 March 2018`, `March 13th, 2018`, `2018-03-13`, `March 2018`; 0 is unsaid."""
    if len(text) > _MAX_NUMBER:
        return None
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        year, month, day = map(int, text.split("-"))
        return year, month, day
    slashed = _SLASHED_DATE.fullmatch(text)
    if slashed:
        day, month, year = int(slashed[1]), int(slashed[3]), int(slashed[4])
        day, month = (month, day) if month > 12 >= day else (day, month)
        # 3/4/1889 may be the third of April or the fourth of March.
        return (year, month, day) if month <= 12 and (day > 12 or day == month) and day <= 31 else None
    tokens = [token for token in _DATE_TOKEN.findall(text.lower()) if token not in _DATE_FILLERS]
    months = [MONTH_NUMBERS[token] for token in tokens if token in MONTH_NUMBERS]
    years = [int(token) for token in tokens if token.isdecimal() and len(token) == 4]
    days = [int(token) for token in tokens if token.isdecimal() and len(token) <= 2]
    if len(months) != 1 or len(years) > 1 or len(days) > 1 or len(tokens) != 1 + len(years) + len(days):
        return None
    if len(tokens) == 1:
        return None
    return (years or [0])[0], months[0], (days or [0])[0]


# -- Equality


class _Form(NamedTuple):
    """An answer in the spellings that are compared."""

    text: str
    quantity: tuple[Decimal, bool] | None
    date: tuple[int, int, int] | None
    words: str
    marks: tuple[Decimal | str, ...]


def _form(text: str) -> _Form:
    text = clean(text)
    if len(text) > MAX_ANSWER:
        text = ""
    return _Form(text, _quantity(text), _date(text), _words(text), _marks(text))


def unaccented(text: str) -> str:
    """The cleaned text, casefolded, without accents and strokes: to look whether texts share a word."""
    letters = unicodedata.normalize("NFD", clean(text).casefold())
    bare = "".join(char for char in letters if not unicodedata.combining(char))
    return unicodedata.normalize("NFC", bare).translate(_LETTERS)


def fold(text: str) -> str:
    """A text in lower case, without the accents of Latin letters."""
    if text.isascii():
        return text.casefold()
    kept: list[str] = []
    latin = False
    for char in unicodedata.normalize("NFD", few_marks(text.casefold())):
        # An accent on a Latin letter is often dropped; が without its mark is another word.
        if unicodedata.combining(char):
            if latin:
                continue
        else:
            latin = char.isascii()
        kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept))


# Letters with a stroke or joined letters, which Unicode does not decompose.
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"}
)


def _words(text: str) -> str:
    """The words, casefolded, without punctuation, articles and (on Latin letters) accents."""
    words = normalize_released(text).casefold() or text.casefold()
    if words.isascii():
        return words
    spaceless = any(map(_spaceless, words))
    letters = (char for char in fold(words) if unicodedata.category(char)[0] != "P")
    folded = "".join(letters).translate(_LETTERS).split()
    return ("" if spaceless else " ").join(folded) or text.casefold()


def _spaceless(char: str) -> bool:
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or char >= "\U00020000"


# What normalising drops although it tells answers apart: -5, 1.5, C++, C#, 50%, $5, 10^2.
_MARK = re.compile(r"-?\d[\d.,]*|[+#%$^<>=~]|!(?=\w)")


def _marks(text: str) -> tuple[Decimal | str, ...]:
    marks: list[Decimal | str] = []
    for match in _MARK.finditer(text):
        mark = match[0].rstrip(".,")
        if mark.startswith("-") and match.start() and text[match.start() - 1].isalnum():
            mark = mark[1:]
        number = parse_number(mark) if mark not in "+#%$^<>=~!" else None
        marks.append(mark if number is None else number)
    return tuple(marks)


def _same(prediction: _Form, answer: _Form) -> bool:
    if not prediction.text or not answer.text:
        return False
    # `K`, `Co`, `US`: so short that case is what tells them from a word; "No" is taken for the word.
    if len(answer.text) <= 2 and answer.text.isalpha() and answer.text not in ("No", answer.text.lower()):
        return prediction.text.replace(".", "").strip(" \"'()[],;:!?") == answer.text
    if prediction.quantity and answer.quantity:
        return prediction.quantity == answer.quantity
    if prediction.date and answer.date:
        return prediction.date == answer.date
    if sorted(prediction.marks, key=str) != sorted(answer.marks, key=str):
        return False
    if prediction.words == answer.words:
        return prediction.marks == answer.marks
    return _reordered(prediction.text, answer.text)


_ITEM = re.compile(r", and |, |; | and | & ")
_PART = re.compile(r"[^\W\d_]{2,}")


def _reordered(prediction: str, answer: str) -> bool:
    """Whether two texts are one list in another order, or one name with the surname first."""
    one, other = (_ITEM.split(text.strip(" .")) for text in (prediction, answer))
    if len(one) == len(other) > 1 and not any(char.isdigit() for char in prediction):
        return sorted(map(_words, one)) == sorted(map(_words, other))
    if len(other) > 1 or len(one) > 2 or " and " in prediction:
        return False
    name, wanted = prediction.replace(",", " ").split(), answer.split()
    plain = all(_PART.fullmatch(part) and part[0].isupper() for part in (*name, *wanted))
    return plain and 1 < len(name) <= 4 and sorted(map(_words, name)) == sorted(map(_words, wanted))


def same_answer(prediction: str, answer: str) -> bool:
    """Whether two short answers are certainly the same one.

    Same are: equal words after normalising (case, punctuation, English articles, accents of Latin letters,
    spaces in Chinese and Japanese), provided that their numbers, signs and units (`-5`, `1.5`, `50%`, `$5`,
    `C++`) are equal too; plain numbers and percentages of equal value, never close ones; full dates in
    another order.  An answer of one or two letters with a capital (`K`, `Co`) is compared in exact case.
    A list is the same in another order, and so is a name with the surname first ("Austen, Jane").
    A list of candidates is never the same as one of them.
    """
    return _same(_form(prediction), _form(answer))


def equals(prediction: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer that the prediction equals as it is written."""
    return _accepted([prediction], answers)


def matches(prediction: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer that the prediction equals, as written or as `final_answer` reads it."""
    text = clean(prediction)
    return _accepted(dict.fromkeys((text, final_answer(text))), answers) if len(text) <= MAX_ANSWER else None


def contains(text: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer whose words stand side by side in a passage, as in DPR (arXiv 2004.04906).

    Case, punctuation, English articles and accents make no difference.  It is for sorting passages, never for
    grading: "yes" and "one" stand in many.  Reads `MAX_PAYLOAD` characters.
    """
    said = f" {_words(clean(text))} "
    for answer in answers:
        words = _words(clean(answer)).strip()
        if words and (words if any(map(_spaceless, words)) else f" {words} ") in said:
            return answer
    return None


def _accepted(spellings: Iterable[str], answers: Iterable[str]) -> str | None:
    forms = [_form(spelling) for spelling in spellings]
    for answer in answers:
        accepted = _form(answer)
        if any(_same(form, accepted) for form in forms):
            return answer
    return None


# -- Around the answer

_WRAPPERS = ("**", "__", "``", '""', "''", "「」", "『』", "《》")
_LABELS = re.compile(
    r"(?:(?:(?:so|thus|therefore|hence),? )?(?:the |my )?(?:final |correct |right |short )?answer"
    r"(?::| is:?| would be)"
    r"|respuesta:|réponse:|antwort:|risposta:|resposta:|ответ:|答案:|答案是:?|答え:|答:) ?",
    re.IGNORECASE,
)
# Lower-case verbs only, and "It's" only in a sentence: "It Is Written" and "It's Complicated" are titles.
_OPENERS = re.compile(
    r"(?:(?:[Ii] (?:think|believe|would say)|[Ii]'d say)(?: that)?,? |(?:[Pp]robably|[Mm]aybe|[Pp]erhaps),? "
    r"|(?:[Ii]t|[Tt]his|[Tt]hat|[Hh]e|[Ss]he|[Tt]hey) (?:is|was|are|were) |it's |It's (?=.*\.$))"
)
_COPULA = re.compile(r" (?:is|was|are|were) (?:called |named |known as )?")
_MAX_SUBJECT = 12
_TURNS = frozenset(
    {
        *("not", "never", "no", "nor", "neither", "either", "or", "but", "wrong", "false", "incorrect"),
        *("unlike", "than", "who", "whom", "whose", "which", "that", "what", "why", "how", "whether", "if"),
        *("when", "where", "nobody", "hardly", "supposed", "alleged", "least", "only", "except", "besides"),
        *("doubt", "worst", "bad", "opposite", "lacks", "lacking", "missing", "unlikely", "impossible"),
        *("fake", "rejected", "excluded", "other", "previous", "next", "second", "hated", "untrue"),
        "mistaken",
    }
)


def final_answer(text: str) -> str:
    """The bare answer inside the few wrappings that leave no doubt; otherwise the cleaned text.

    Removed, from the outside in: LaTeX markup, bold and quotes around the whole, a label (`Answer:`, `The
    final answer is`), an opener (`It is`, `I think`, `Maybe`), one definite subject (`The capital of France
    is Paris`: begins with "The", at most 12 words, one verb form of "to be", no negation or relative
    clause), and the final period.  It reads no other sentence.
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
        text = _without_subject((text[:-1] if ends else text).strip())
        if text == before:
            break
    return text


def _without_subject(text: str) -> str:
    if not text.startswith(("The ", "the ")):
        return text
    parts = _COPULA.split(text, maxsplit=2)
    if len(parts) != 2:
        return text
    words = parts[0].lower().split()
    plain = len(words) <= _MAX_SUBJECT and "," not in parts[0] and _TURNS.isdisjoint(words)
    return parts[1] if plain and parts[1] else text


def is_contentless(text: str) -> bool:
    """Whether a text holds nothing a judge could grade: no letter, digit or sign, or only a master key.

    Deterministic, so it cannot be argued with; ask it before any judge, and after `matches`, because a word
    such as "Solution" can be the right answer.  Short answers (`0`, `K`, `C++`, `π`, `中`, `No`, `A`) pass.
    """
    text = clean(text).casefold()
    signs = (char for char in text if not char.isascii() and char != "\ufffd")
    if not any(map(str.isalnum, text)) and all(unicodedata.category(char)[0] != "S" for char in signs):
        return True
    return text.strip(" .:,;!?*_#\"'`-()[]{}<>。、") in MASTER_KEYS
