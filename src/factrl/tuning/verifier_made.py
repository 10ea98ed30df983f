"""Rows made without people: from passages, whose own clauses are claims, and from questions with passages.

Of each claim there are rows of all classes.  Where a swap replaced one value by another, half of the time the
evidence is edited instead: then the swapped claim is the supported one, so that no word of a claim says by
itself what its label is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from factrl.extract import ClauseClaims
from factrl.judges.overlap import Piece, compare, pieces_of
from factrl.judges.own import premise
from factrl.tuning.verifier_rows import Label, Pair
from factrl.tuning.verifier_statements import quoted, statement, yes_and_no
from factrl.tuning.verifier_swaps import Names, Swap, edited, names_in, negated, swaps
from factrl.types import Claim, Passage

CLAIMS_PER_PASSAGE = 2
_SHORT, _LONG = 5, 40  # words of a claim
_SAID_AGAIN = 0.9  # share of a claim's words in the rest of a passage from which on it may say the same


@dataclass(frozen=True, slots=True)
class Document:
    """A passage that claims are made from."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its right answer, what else is offered as one, and passages that hold the answer.

    Attributes:
        wrong: a wrong answer that somebody wrote; None where there is none.
    """

    id: str
    question: str
    answers: Sequence[str]
    passages: Sequence[Passage]
    wrong: str | None = None


def from_documents(documents: Sequence[Document], source: str, chars: int, seed: int) -> Iterator[Pair]:
    """Rows of passages, in their order: for each of up to `CLAIMS_PER_PASSAGE` claims one of each class."""
    names = Names(f"{document.title}. {document.text}" for document in documents)
    extract = ClauseClaims()
    for document in documents:
        stream = random.Random(f"{seed} {source} {document.id}")
        usable = usable_claims(extract(document.text, topic=document.title))
        for number, claim in enumerate(stream.sample(usable, min(CLAIMS_PER_PASSAGE, len(usable)))):
            around = _around(document, claim.start, claim.end)
            made = _rows_of(claim.text, around, document.title, names, chars, stream)
            for kind, (label, evidence, text) in made.items():
                id_ = f"{source}-{document.id}-{number}-{kind.replace(' ', '-')}"
                yield Pair(id_, evidence, text, label, f"{source} {document.id}", source, kind)


def usable_claims(found: Iterable[Claim]) -> list[Claim]:
    """The claims that name something and are neither a scrap nor a list."""
    return [
        claim
        for claim in found
        if not claim.skip and _SHORT <= len(claim.text.split()) <= _LONG and names_in(claim.text)
    ]


def _around(document: Document, start: int, end: int) -> tuple[str, str, str]:
    """The passage before the sentences that a claim is from, these, and the passage after them."""
    text = document.text
    held = [piece for piece in pieces_of([Passage(text)]) if piece.start < end and piece.end > start]
    if not held:
        return "", text, ""
    return text[: held[0].start], text[held[0].start : held[-1].end], text[held[-1].end :]


def _rows_of(
    claim: str, around: tuple[str, str, str], title: str, names: Names, chars: int, stream: random.Random
) -> dict[str, tuple[Label, str, str]]:
    """By kind: label, evidence and claim."""
    before, own, after = around
    whole = before + own + after

    def shown(said: str, text: str) -> str:
        return premise(said, pieces_of([Passage(text, title)]), chars)

    rows: dict[str, tuple[Label, str, str]] = {}
    made = swaps(claim, f"{title} {whole}", names, stream)
    swap = stream.choice([*made.values()]) if made else None
    changed = _changed(swap, claim, around) if swap is not None and stream.random() < 0.5 else None
    if swap is None:
        rows["copy"] = ("supported", shown(claim, whole), claim)
    elif changed is None:
        rows["copy"] = ("supported", shown(claim, whole), claim)
        rows[swap.kind] = (swap.label, shown(swap.claim, whole), swap.claim)
    else:
        rows[f"{swap.kind} in evidence"] = ("supported", shown(swap.claim, changed), swap.claim)
        rows[swap.kind] = (swap.label, shown(claim, changed), claim)
    rest = pieces_of([Passage(before + after, title)])
    if rest and compare(claim, rest).covered < _SAID_AGAIN:
        asked = claim if swap is None or stream.random() < 0.5 else swap.claim
        rows["left out"] = ("unknown", premise(asked, rest, chars), asked)
    return rows


def _changed(swap: Swap, claim: str, around: tuple[str, str, str]) -> str | None:
    """The passage after which the swapped claim is true and the original one is not."""
    before, own, after = around
    if swap.kind == "negation":
        told = negated(own)
        denied = re.search(r"\w+ not \w+", swap.claim)
        return f"{before}{told}{after}" if told and denied and denied[0] in told else None
    return edited(before + own + after, swap)


def from_questions(asked: Sequence[Asked], source: str, chars: int, seed: int) -> Iterator[Pair]:
    """Rows of questions, in their order: the right answer, a wrong one, and the right one left out."""
    pool: dict[tuple[str, int], list[str]] = {}
    for one in asked:
        pool.setdefault(_shape(one.answers[0]), []).append(one.answers[0])
    for one in asked:
        stream = random.Random(f"{seed} {source} {one.id}")
        pieces = pieces_of(one.passages)
        right = statement(one.question, one.answers[0])
        if right is None and (stream.random() < 0.6 or len(one.question.split()) > 30):
            continue
        for kind, label, said, some in _answered(one, right, pieces, pool, stream):
            shown = premise(said, some, chars)
            id_ = f"{source}-{one.id}-{kind.replace(' ', '-')}"
            yield Pair(id_, shown, said, label, f"{source} {one.question}", source, kind)


def from_yes_or_no(
    asked: Iterable[tuple[str, str, bool, Sequence[Passage]]], source: str, chars: int, seed: int
) -> Iterator[Pair]:
    """Rows of questions of yes or no: half of the time what a yes says, else what a no does.

    Args:
        asked: id, question, whether the answer is yes, and passages that say so.
    """
    for id_, question, yes, passages in asked:
        pieces = pieces_of(passages)
        said = yes_and_no(question, " ".join(piece.text for piece in pieces))
        if said is not None:
            denied = random.Random(f"{seed} {source} {id_}").random() < 0.5
            claim = said[denied]
            label: Label = "refuted" if yes == denied else "supported"
            shown = premise(claim, pieces, chars)
            yield Pair(f"{source}-{id_}", shown, claim, label, f"{source} {id_}", source)


def _answered(
    one: Asked,
    right: str | None,
    pieces: Sequence[Piece],
    pool: Mapping[tuple[str, int], Sequence[str]],
    stream: random.Random,
) -> Iterator[tuple[str, Label, str, Sequence[Piece]]]:
    """Kind, label, claim and evidence of each row of a question."""

    def said(answer: str) -> str:
        return (statement(one.question, answer) if right else None) or quoted(one.question, answer)

    yield "answer", "supported", said(one.answers[0]), pieces
    wrong = _wrong(one, pieces, pool, stream)
    if wrong is not None:
        yield "wrong answer", "refuted", said(wrong), pieces
    if one.wrong is not None and len(one.wrong.split()) <= _LONG and stream.random() < 1 / 3:
        text = one.wrong if len(one.wrong.split()) > 4 else said(one.wrong)
        yield "made-up answer", "unsupported", text.rstrip("."), pieces
    held = {answer.lower() for answer in one.answers}
    rest = [piece for piece in pieces if not any(answer in piece.text.lower() for answer in held)]
    title_says = any(answer in piece.title.lower() for answer in held for piece in rest)
    if rest and len(rest) < len(pieces) and not title_says:
        yield "left out", "unknown", said(one.answers[0]), rest


def _wrong(
    one: Asked, pieces: Sequence[Piece], pool: Mapping[tuple[str, int], Sequence[str]], stream: random.Random
) -> str | None:
    """Another answer of the same shape: of the passages half of the time, or else of another question."""
    asked = one.question.lower()
    right = {answer.lower() for answer in one.answers}

    def usable(other: str) -> bool:
        low = other.lower()
        return low not in asked and not any(low in answer or answer in low for answer in right)

    shape = _shape(one.answers[0])
    here = [name[0] for piece in pieces for name in names_in(piece.text)]
    here += [year for piece in pieces for year in re.findall(r"\b(?:1\d{3}|20\d\d)\b", piece.text)]
    near = sorted({name for name in here if _shape(name) == shape and usable(name)})
    far = pool.get(shape, ())
    if near and (stream.random() < 0.5 or len(far) < 5):
        return stream.choice(near)
    for _ in range(10):
        other = stream.choice(far) if far else None
        if other is not None and usable(other):
            return other
    return None


def _shape(answer: str) -> tuple[str, int]:
    """What kind of answer it looks like, and its length in words."""
    if re.search(r"\d", answer):
        kind = "year" if re.fullmatch(r"1\d{3}|20\d\d", answer) else "number"
    else:
        kind = "name" if answer[:1].isupper() else "word"
    return kind, min(len(answer.split()), 4)


def by_sentence(
    pairs: Iterable[tuple[Pair, Sequence[Piece], Sequence[str], Sequence[str]]], chars: int
) -> Iterator[Pair]:
    """Rows of summaries sentence by sentence, where it is known which sentence is wrong.

    Args:
        pairs: a row of a whole summary, its evidence, its sentences and those of the summary that is right.
            Of a supported summary every sentence is; of an edited one the only changed sentence is not, and
            one with several changed sentences makes no row.
    """
    for pair, pieces, said, right in pairs:
        chosen = list(said) if pair.label == "supported" else [one for one in said if one not in right]
        if pair.label != "supported" and len(chosen) != 1:
            continue
        for number, text in enumerate(chosen):
            yield replace(pair, id=f"{pair.id}-s{number}", claim=text, evidence=premise(text, pieces, chars))
