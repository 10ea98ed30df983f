"""Reading what a judge wrote: strictly, in linear time, and never by guessing.

A verdict is a word from a closed set that stands where a verdict stands.  A reply that cannot be read that
way holds no verdict: none is made up from a substring ("Unsupported" holds "supported"), from a position or
from the absence of a word.  Of a reasoning model's reply only what follows `</think>` is read.

`read_verdict` reads one word of a closed set, `read_verdicts` the verdicts on several claims, each by itself,
and `records_by_id` those on several items, all or none.  `read_true_false` and `read_supported` read the
replies to FActScore's and VeriScore's questions about one claim, and say where they differ from the released
parsers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from factrl.errors import Unscored
from factrl.text.abstention import abstention_score
from factrl.types import VerdictLabel

MAX_REPLY = 65_536
"""Characters of a reply that is read; a longer one holds no verdict."""

_WORDS: Mapping[str, VerdictLabel] = {"supported": "supported", "refuted": "refuted", "unknown": "unknown"}
_DECORATION = " \t*_`#.\"'"

# A string, closed or ended by its line so that a stray quotation mark costs one line, or a bracket.  Nothing
# after the repetition can fail, so no string is read twice; a line may end in a lone backslash.
_JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*\\?"?|[{}\[\]]')


class ReadVerdict(NamedTuple):
    """A judge's verdict on one claim, and the words of the evidence that it gave for it."""

    label: VerdictLabel
    quote: str = ""


# What servers leave around a reply: a code fence, and tokens that end a turn.
_OPENS = re.compile(r"(?:```|~~~)[\w-]{0,20}[ \t]{0,20}\n")
_ENDS = re.compile(r"(?:<\|[\w ]{1,40}\|>|</s>|<(?:eos|end_of_turn)>|(?:^|\n)[ \t]{0,20}(?:```|~~~))\Z")

# How a judge declines that has given no verdict; the learnt score misses a refusal with its reasons.
_DECLINES = re.compile(
    r"(?:i['’]?m |i am )?(?:very )?sorry\b|i (?:can(?:no|['’]|\b)t?|won['’]?t|am unable)\b", re.I
)
_REFUSES = 0.95  # score: a reply that cannot be read is more often a verdict in other words than a refusal


# -- A word on the last line -------------------------------------------------------------------------

# `factrl.llm.quoting` breaks whatever this can match, so that quoted policy text is never read as a verdict.
_WORD = r"verdict[*`]{0,2}:[ *`]{0,4}([a-z_]+)"
_VERDICT = re.compile(_WORD, re.I | re.A)
_VERDICT_LINE = re.compile(rf"(?:^|[.!?][\"')*`]{{0,2}} {{1,3}})[*`]{{0,4}}{_WORD}[.*`]{{0,4}}$", re.I | re.A)
_LAST = 120  # characters of the last line that are looked at


def read_verdict(reply: str, words: Collection[str]) -> str:
    """The verdict of a judge's reply: one of `words`.

    The last line that is not empty must be `VERDICT: word`, alone or after the end of a sentence; case, bold,
    backticks and a final period do not matter.  Every other verdict in the reply must be the same.  Nothing
    is guessed from letters, from parts of words or from free text.  Of a reasoning model's reply only what
    follows `</think>` is read.

    Args:
        words: the verdicts that exist, in lower case.

    Raises:
        Unscored: `judge_unreadable`.

    >>> read_verdict("It names another town.\\nVERDICT: incorrect", ("correct", "incorrect"))
    'incorrect'
    """
    text = bare(reply.rpartition("</think>")[2])
    last = text.rpartition("\n")[2].strip()
    verdict_line = _VERDICT_LINE.search(last if len(last) <= _LAST else "…" + last[-_LAST:])
    word = verdict_line[1].lower() if verdict_line else ""
    verdicts = {other.lower() for other in _VERDICT.findall(text)}
    if word in words and verdicts == {word}:
        return word
    if len(verdicts) > 1:
        problem = f"the judge's reply holds several verdicts: {', '.join(sorted(verdicts))[:200]}"
    else:
        choice = "|".join(words)
        problem = f"the judge's reply does not end with 'VERDICT: {choice}' but with {last[-200:]!r}"
    raise _unreadable(problem)


# -- Several claims -----------------------------------------------------------------------------------


def read_verdicts(reply: str, ids: Sequence[str]) -> dict[str, ReadVerdict | Unscored]:
    """The verdict on every claim of a call, matched by its id and never by its place.

    A verdict is a JSON object without further ones inside, such as `{"id": "k3f9", "verdict": "refuted"}`;
    it may stand on a line, in a list, in another object, in a code fence or after a reason.  Order does not
    matter.  A verdict on a claim that was not asked about, or one too many, shows that the judge answers
    something else than it was asked, and rejects the whole reply.  A claim has no verdict when it is not
    mentioned, when its word is not `supported`, `refuted` or `unknown`, or when two of its verdicts differ;
    its `Unscored` has the cause `judge_unreadable` or `judge_refusal`.

    >>> read_verdicts('{"id": "k3", "verdict": "refuted"}', ["k3", "f9"])["k3"].label
    'refuted'
    """
    try:
        records = _by_id(after_thinking(reply))
    except Unscored as error:
        return dict.fromkeys(ids, error)
    unknown = sorted(records.keys() - {*ids})
    if unknown:
        problem = f"the judge's reply is about {unknown[0][:40]!r}, no claim of this call"
        return dict.fromkeys(ids, _unreadable(problem))
    return {id_: _one(id_, records.get(id_, ())) for id_ in ids}


def _by_id(text: str) -> dict[str, list[Mapping[str, Any]]]:
    """The JSON objects with a verdict, by the id that each has.

    Raises:
        Unscored: there is none.
    """
    records: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in json_records(text):
        if "verdict" in record:
            id_ = record.get("id")
            records[id_ if isinstance(id_, str) else json.dumps(id_)].append(record)
    if not records:
        raise no_verdict(text)
    return records


def _one(id_: str, records: Sequence[Mapping[str, Any]]) -> ReadVerdict | Unscored:
    if not records:
        return _unreadable(f"the judge's reply has no verdict on claim {id_!r}")
    words = {_word(record["verdict"]) for record in records}
    if len(words) > 1:
        several = ", ".join(sorted(words))
        return _unreadable(f"the judge's reply holds several verdicts on claim {id_!r}: {several}")
    word = words.pop()
    if word not in _WORDS:
        return _unreadable(f"the judge's verdict on claim {id_!r} is {word!r}, not {'|'.join(_WORDS)}")
    quote = records[-1].get("quote")
    return ReadVerdict(_WORDS[word], quote.strip() if isinstance(quote, str) else "")


def _word(value: Any) -> str:
    return value.strip(_DECORATION).lower()[:40] if isinstance(value, str) else json.dumps(value)[:40]


def json_records(text: str) -> list[Mapping[str, Any]]:
    """The innermost JSON objects of a text, in order; one pass, and no nesting to follow.

    Judges copy quotes with the quotation marks, line ends and backslashes in them.  Where an object in the
    order id, quote, verdict is no JSON for that reason alone, the rest of it is read.  Where one cannot be
    read, other objects of its id are left out: they may be a part of its quote.
    """
    start = -1  # of an object that has no other bracket inside so far
    records: dict[int, Mapping[str, Any]] = {}
    for token in _JSON_TOKEN.finditer(text):
        sign = token[0]
        if sign == "}" and start >= 0 and (record := _loads(text[start : token.end()])) is not None:
            records[start] = record
        if sign in "{}[]":
            start = token.start() if sign == "{" else -1
    starts, unread = [opened.start() for opened in _RECORD.finditer(text)], set[str | None]()
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        keys = Counter(match[1] for match in _KEY.finditer(text, start, end))
        broken = _BROKEN.match(text, start, end)
        if start in records:
            if keys["verdict"] > 1:  # what looked like its end was in its quote
                unread.add(records[start].get("id"))
        elif broken and keys["id"] == keys["verdict"] == 1:
            records[start] = {"id": broken[1], "verdict": broken[2]}
        elif named := _ID.match(text, start, end):
            unread.add(named[1])
        else:  # it may be about any of them
            return []
    return [records[start] for start in sorted(records) if records[start].get("id", "") not in unread]


# A verdict whose quote cannot be read, in the order that is asked for: each key stands there once, as a quote
# that holds another verdict could end with it.
_S = r"\s{0,20}"
_PLAIN = r'"([^"\\\n{}]{0,200})"'
_RECORD = re.compile(rf'\{{(?={_S}"(?:id|verdict|quote)"{_S}:)')
_KEY = re.compile(rf'"(id|verdict)"{_S}:')
_ID = re.compile(rf'\{{{_S}"id"{_S}:{_S}{_PLAIN}')
_BROKEN = re.compile(
    rf'{_ID.pattern}{_S},{_S}"quote"{_S}:{_S}".*"{_S},{_S}"verdict"{_S}:{_S}{_PLAIN}{_S}\}}', re.DOTALL
)


def _loads(text: str) -> Mapping[str, Any] | None:
    """A flat JSON object; None for anything else, for NaN and for an object that names a key twice.

    A comma before its end costs nothing.
    """
    text = text[:-1].rstrip().removesuffix(",") + "}"
    try:
        # Numbers stay text: no verdict is one, and turning 5000 digits into one takes quadratic time.
        pairs = json.loads(
            text, object_pairs_hook=list, parse_int=str, parse_float=str, parse_constant=_no_constant
        )
    except ValueError:
        return None
    record = dict(pairs)
    return record if len(record) == len(pairs) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def records_by_id(
    reply: str, ids: Sequence[str], words: Collection[str], what: str
) -> dict[str, dict[str, Any]]:
    """The JSON object of every id in a judge's reply, its `verdict` one of `words`; all of the ids or none.

    >>> records_by_id('{"id": "k3", "verdict": "Keep"}', ["k3"], ("keep", "drop"), "fact")
    {'k3': {'id': 'k3', 'verdict': 'keep'}}

    Args:
        what: what an id stands for, for the errors.

    Raises:
        Unscored: `judge_unreadable` or `judge_refusal`.
    """
    records: dict[str, dict[str, Any]] = {}
    for id_, (record, *more) in _by_id(after_thinking(reply)).items():
        word = record["verdict"]
        word = word.strip().lower() if isinstance(word, str) else word
        if id_ not in ids:
            raise _unreadable(f"the judge's reply is about {id_[:40]!r}, no {what} of this call")
        if more:
            raise _unreadable(f"the judge's reply holds two verdicts on {what} {id_!r}")
        if word not in words:
            wrong = str(record["verdict"])[:40]
            raise _unreadable(f"the judge's reply says of {what} {id_!r} {wrong!r}, not {'|'.join(words)}")
        records[id_] = {**record, "verdict": word}
    if left := [id_ for id_ in ids if id_ not in records]:
        raise _unreadable(f"the judge's reply has no verdict on {what} {left[0]!r}")
    return {id_: records[id_] for id_ in ids}


# -- One claim, in the words of a published prompt ----------------------------------------------------

_TRUE_FALSE: Mapping[str, VerdictLabel] = {"true": "supported", "false": "refuted"}
_SUPPORTED: Mapping[str, VerdictLabel] = {
    "supported": "supported",
    "unsupported": "unknown",
    "inconclusive": "unknown",
    "contradicted": "refuted",
    "refuted": "refuted",
}
# What a negation makes of them; an absent pair says nothing ("not inconclusive").
_NEGATED: Mapping[str, VerdictLabel] = {"true": "refuted", "supported": "unknown"}
_LEAD, _NOT, _SUPPOSED, _GOES_ON = (
    frozenset(words.split())
    for words in (
        "a answer claim conclusion decision fact final hence input is isn it judgement judgment label my "
        "output result s so statement t the therefore this thus verdict was wasn your",
        "cannot neither never nor not",
        "and could if may might or should unless were whether would",
        # What may follow a verdict that opens a sentence: "True because …", but not "True love …".
        "according as based because by given in per since that",
    )
)
_CONTEXT = 48  # characters before a word in which a negation or a condition counts


def read_true_false(reply: str) -> VerdictLabel:
    """The verdict of a reply to FActScore's question "True or False?".

    `True` is `supported` and `False` is `refuted`: the question has no third answer, so what the evidence
    does not say is among the refuted.

    Differences from the released parser (FActScore f28272d, `get_score`):
    - without either word a reply counts as supported there, unless it holds "not", "cannot", "unknown" or
      "information"; so do the empty reply, "Error 503", "Unsupported." and a refusal.  Here these are no
      verdict.
    - with both words the later one counts there, so "False. It would be true if …" is supported and "True,
      not false" is not.  Here the word that opens the reply counts, unless the rest takes it back.
    """
    return _read_word(reply, _TRUE_FALSE)


def read_supported(reply: str) -> VerdictLabel:
    """The verdict of a reply to VeriScore's question, `###Supported.###` and the like.

    `contradicted` is `refuted`; `inconclusive`, `unsupported` and `not supported` are `unknown`, because the
    binary form of the question merges the two.

    Differences from the released parser (VeriScore 7dd3352):
    - there only a reply that begins with the word counts as supported, without its `#` and final period; so
      "**Supported**", "Your decision: ###Supported.###" and a verdict after `</think>` count against the
      claim.  Here they are read.
    - any other reply counts against the claim there: an empty one, an error, a refusal.  Here it is no
      verdict.
    """
    return _read_word(reply, _SUPPORTED)


def _read_word(reply: str, words: Mapping[str, VerdictLabel]) -> VerdictLabel:
    """The verdict that opens the reply or stands alone on its last line, if nothing else takes it back."""
    text = after_thinking(reply).replace("###", "\n").strip()
    mentions: list[tuple[re.Match[str], VerdictLabel]] = [
        (match, meaning)
        for match in re.finditer(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])", text, re.I)
        if (meaning := _meaning(text, match, words)) is not None
    ]
    end = len(text.rstrip(" *_`\"'.!)]\n"))
    verdict: VerdictLabel | None = next(
        (meaning for match, meaning in mentions if _decides(text, match, end)), None
    )
    if verdict is None:
        raise no_verdict(text)
    # "Not supported: it is contradicted by the first result" takes nothing back.
    back = {meaning for _, meaning in mentions if (meaning == "supported") != (verdict == "supported")}
    if back:
        raise _unreadable(f"the judge's reply says both {verdict} and {sorted(back)[0]}: {text[:200]!r}")
    return verdict


def _meaning(text: str, match: re.Match[str], words: Mapping[str, VerdictLabel]) -> VerdictLabel | None:
    """What a mention of a verdict word says; None when it is supposed, or one of several to choose from."""
    word = match[0].lower()
    before = re.split(r"[.!?;:,\n]", text[max(match.start() - _CONTEXT, 0) : match.start()])[-1]
    near = before.lower().replace("’", "'").replace("*", " ").split()[-3:]
    after = text[match.end() : match.end() + 8].lstrip(" *_`\"'")
    if _SUPPOSED & {*near} or before.rstrip().endswith(("/", "|")):
        return None
    if after.startswith(("/", "|", "?")) or re.match(r"or\b", after):
        return None
    if _NOT & {*near} or any(part.endswith("n't") for part in near):
        return _NEGATED.get(word)
    return words[word]


def _decides(text: str, match: re.Match[str], end: int) -> bool:
    """Whether a mention stands where a verdict stands; `end` is that of the text without its last signs."""
    line = text.rfind("\n", 0, match.start()) + 1
    for start in (0, line):
        before = text[start : match.start()]
        if len(before) > 100 or not {*re.findall(r"[^\W\d_]+", before.lower())} <= _LEAD | _NOT:
            continue
        after = re.match(r"[*_`\"' ]*([^\W\d_]*)", text[match.end() : match.end() + 24])
        follows = after[1].lower() if after else ""
        if start == 0 and (not follows or follows in _GOES_ON):
            return True
        if match.end() >= end:
            return True
    return False


# -- For all -----------------------------------------------------------------------------------------------


def item_ids(items: Sequence[str]) -> list[str]:
    """The id that each item is asked about under, made of its words; equal items have the same."""
    digests = [hashlib.sha256(item.encode("utf-8", "surrogatepass")).hexdigest() for item in items]
    length = next(n for n in range(4, 65) if len({d[:n] for d in digests}) == len({*digests}))
    return [digest[:length] for digest in digests]


def after_thinking(reply: str) -> str:
    """What follows the last `</think>`; nothing when the reply is too long to be one, or still thinks."""
    text = reply.rpartition("</think>")[2] if len(reply) <= MAX_REPLY else ""
    return "" if "<think>" in text else bare(text)


def bare(text: str) -> str:
    """What a model wrote, without a code fence around it and without tokens that end a turn.

    >>> bare("```\\nVERDICT: correct\\n```<|im_end|>")
    'VERDICT: correct'
    """
    text = text.strip()
    for _ in range(16):
        if (match := _ENDS.search(text, max(0, len(text) - 64))) is None:
            break
        text = text[: match.start()].rstrip()
    return text[opened.end() :].strip() if (opened := _OPENS.match(text)) else text


def no_verdict(text: str) -> Unscored:
    """The error for a reply without a verdict: a refusal, or one that cannot be read."""
    if text and (_DECLINES.match(text) or abstention_score(text) >= _REFUSES):
        return Unscored("judge_refusal", f"the judge declines: {text[:200]!r}")
    return _unreadable(f"the judge's reply holds no verdict: {text[:200]!r}")


def _unreadable(problem: str) -> Unscored:
    return Unscored("judge_unreadable", problem)
