"""Claims with known labels, to tune a model on: read from files, made binary, split by document.

Rows are those of `factrl prepare klcf` (`claim`, `label`, `question`, `group_id`) or of any set with `claim`,
`label`, `group_id` and, where there is some, `evidence`.  Claims of one document resemble each other, so a
document is either learnt from or held out, never both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from factrl.errors import DataError
from factrl.llm.quoting import broken
from factrl.rewards.truthfulness import shown_claim
from factrl.runs.rows import read_rows
from factrl.verifier.claims.marks import normalised

POSITIVE, NEGATIVE = ("supported",), ("refuted", "unsupported")
_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("true", "1", "1.0"), "supported"),
    **dict.fromkeys(("false", "0", "0.0"), "refuted"),
}


class Grouped(Protocol):
    """Anything that is from a file, about a document, and says something."""

    @property
    def group(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def words(self) -> str: ...


G = TypeVar("G", bound=Grouped)


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim and whether it is true, or supported by its evidence.

    Attributes:
        id: unique among all files.
        claim: as a truthfulness model is shown it.
        evidence: its passages as one text; empty where the model sees the claim alone.
        group: the document or question it is from.
        source: its file.
    """

    id: str
    claim: str
    evidence: str
    true: bool
    group: str
    source: str

    @property
    def words(self) -> str:
        """What it says, for finding the same again."""
        return f"{normalised(self.claim)}\n{normalised(self.evidence)}"


@dataclass(frozen=True)
class Split(Generic[G]):
    """Rows to learn from, to calibrate on and to report on; no document is in two of them.

    Attributes:
        left_out: rows of the last two whose words stand in another part or twice in their own.
    """

    train: Sequence[G]
    calibrate: Sequence[G]
    report: Sequence[G]
    left_out: int


def load_claims(
    files: Sequence[str],
    *,
    with_evidence: bool = False,
    positive: Sequence[str] = POSITIVE,
    negative: Sequence[str] = NEGATIVE,
) -> tuple[list[LabelledClaim], Counter[str]]:
    """The claims of all files whose label is one of the two classes.

    Args:
        with_evidence: keep the evidence, and leave out claims without.
        positive, negative: labels of the two classes, in any case; `true`, 1 and `false`, 0 stand for
            supported and refuted, here as in the rows.

    Returns:
        The claims in the order of the files, and how many rows were left out, by reason.

    Raises:
        DataError: a row without a claim or a label, a label of both classes, or files without two classes.
    """
    true, false = ({_label(word) for word in words} for words in (positive, negative))
    if both := true & false:
        raise DataError(
            f"data.positive={list(positive)} and data.negative={list(negative)} both mean {', '.join(both)}"
        )
    claims: list[LabelledClaim] = []
    left_out: Counter[str] = Counter()
    for source in names_of(files):
        for number, row in enumerate(read_rows(source), start=1):
            claim, label = row.get("claim"), row.get("label")
            if not isinstance(claim, str) or not claim.strip() or "label" not in row:
                raise DataError(f"{source}, row {number} has no `claim` with a `label`")
            word = _label(label)
            evidence = passages_of(row.get("evidence")) if with_evidence else ""
            if word not in true | false:
                left_out[f"label {word}"] += 1
            elif with_evidence and not evidence:
                left_out["without evidence"] += 1
            else:
                id_ = f"{source}:{number}"
                group = group_of(row, id_)
                claims.append(LabelledClaim(id_, shown_claim(claim), evidence, word in true, group, source))
    if len({claim.true for claim in claims}) < 2:
        told = ", ".join(f"{count} {why}" for why, count in left_out.most_common()) or "none left out"
        raise DataError(
            f"{', '.join(map(str, files))}: {len(claims)} claims of one class at most ({told}); two are "
            f"needed: data.positive={list(positive)} and data.negative={list(negative)}"
        )
    return claims, left_out


def _label(value: object) -> str:
    word = str(value).strip().lower()
    return _WORDS.get(word, word)


def split_by_group(rows: Sequence[G], held_out: float, calibrate: float, seed: int) -> Split[G]:
    """Each file's documents, in an order drawn from `seed`, into the three parts.

    A document that is in two files is in the part that the first of them puts it into.

    Args:
        held_out: share of each file's documents that is not learnt from.
        calibrate: share of those that the temperature is fitted on.

    Raises:
        DataError: a part would be empty.
    """
    part: dict[str, int] = {}
    for source in dict.fromkeys(row.source for row in rows):
        groups = {row.group for row in rows if row.source == source} - part.keys()
        order = sorted(groups, key=lambda group: hashlib.sha256(f"{seed}\n{group}".encode()).digest())
        held = round(len(order) * held_out)
        fitted = round(held * calibrate)
        part |= {group: 1 if n < fitted else 2 if n < held else 0 for n, group in enumerate(order)}
    parts: list[list[G]] = [[], [], []]
    seen: set[str] = {row.words for row in rows if part[row.group] == 0}
    left_out = 0
    for row in rows:
        number = part[row.group]
        if number and row.words in seen:
            left_out += 1
            continue
        seen.add(row.words)
        parts[number].append(row)
    if not all(part for part, share in zip(parts, (1.0, calibrate, 1.0), strict=True) if share):
        count = len({row.group for row in rows})
        raise DataError(
            f"{count} documents ({len(rows)} rows) do not make three parts with data.held_out = {held_out:g} "
            f"and data.calibrate = {calibrate:g}; give more rows, or a `group_id` of its own to each document"
        )
    return Split(*parts, left_out=left_out)


def drawn(rows: Sequence[G], limit: int | None, seed: int) -> list[G]:
    """At most `limit` of the rows, in their order; which ones depends on the seed and their words."""
    if limit is None:
        return list(rows)
    told = [hashlib.sha256(f"{seed}\n{row.words}\n{n}".encode()).digest() for n, row in enumerate(rows)]
    kept = {*sorted(range(len(rows)), key=told.__getitem__)[:limit]}
    return [row for number, row in enumerate(rows) if number in kept]


def names_of(files: Sequence[str]) -> list[str]:
    """The files, each once.

    Raises:
        DataError: there are none.
    """
    if not files:
        raise DataError("no file of rows is named; give at least one, e.g. rows.jsonl")
    return [*dict.fromkeys(map(str, files))]


def group_of(row: Mapping[str, Any], alone: str) -> str:
    """The document that a row is about; one of its own where it does not say."""
    for column in ("group_id", "group", "question", "prompt", "query"):
        value = row.get(column)
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value).strip()
    return alone


def passages_of(value: Any) -> str:
    """Evidence as one text: a text, a list of texts, or of tables with `text` and maybe `title`."""
    cells = value if isinstance(value, (list, tuple)) else [value]
    texts = []
    for cell in cells:
        parts = [cell.get("title"), cell.get("text")] if isinstance(cell, Mapping) else [cell]
        if isinstance(parts[-1], str) and parts[-1].strip():
            texts.append(": ".join(broken(part).strip() for part in parts if isinstance(part, str) and part))
    return " ".join(texts)


def digest_of_rows(parts: Sequence[Sequence[Any]]) -> str:
    """A fingerprint of the rows and of the parts they are in, without the folders of their files."""
    found = hashlib.sha256()
    for part in parts:
        for row in part:
            found.update(repr(row).replace(row.source, Path(row.source).name).encode("utf-8", "replace"))
        found.update(b"--")
    return found.hexdigest()[:16]
