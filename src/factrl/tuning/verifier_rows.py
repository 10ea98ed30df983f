"""Rows to train a verifier on: evidence, a claim, and what the evidence says of the claim.

A row's evidence is what the judge will be shown: the sentences of its passages that bear on the claim, up to
a number of characters (`factrl.judges.own.premise`).  Rows of one document are in one part, and a document
that shares words with an evaluation set is not learnt from (`Seen`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from factrl.errors import DataError
from factrl.extract.marks import normalised
from factrl.rows import read_rows
from factrl.tuning.verifier_swaps import Label
from factrl.whole_file import whole_file

Part = Literal["train", "calibrate", "report"]
PARTS: tuple[Part, ...] = ("train", "calibrate", "report")
LABELS: tuple[Label, ...] = ("supported", "refuted", "unknown", "unsupported")
RUN = 10  # words in a row that two texts share by no accident
_SAME: Mapping[str, Label] = {
    **{label: label for label in LABELS},
    "not_enough_info": "unknown",
    "partially_supported": "unsupported",
}
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Pair:
    """One labelled row.

    Attributes:
        id: unique among all rows.
        evidence: what the model reads beside the claim.
        label: `unsupported` is refuted or unknown, without saying which.
        group: the document; all its rows are in one part.
        source: the data set.
        kind: how the claim was made or is wrong, such as `number`; empty when people wrote it.
        human: people gave the label.
        part: what the row is for.
    """

    id: str
    evidence: str
    claim: str
    label: Label
    group: str
    source: str
    kind: str = ""
    human: bool = False
    part: Part = "train"

    @property
    def words(self) -> str:
        """What it says, for finding the same again."""
        return f"{normalised(self.claim)}\n{normalised(self.evidence)}"


def label_of(word: object) -> Label | None:
    """The label of a data set as one of ours; None for one that is neither for nor against."""
    return _SAME.get(str(word).strip().lower())


def part_of(group: str, seed: int, shares: Mapping[Part, float]) -> Part:
    """The part of a document, by a hash of its name and the seed.

    Args:
        shares: of the documents, for `calibrate` and `report`; the rest is learnt from.
    """
    drawn = int.from_bytes(hashlib.sha256(f"{seed}\n{group}".encode()).digest()[:6], "big") / 2**48
    for part in ("report", "calibrate"):
        if drawn < shares.get(part, 0.0):
            return part
        drawn -= shares.get(part, 0.0)
    return "train"


class Seen:
    """The runs of `RUN` words of evaluation texts, and their short claims whole.

    Attributes:
        texts: how many texts of each set went in.
    """

    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self._of: dict[int, str] = {}

    def add(self, name: str, texts: Iterable[str]) -> None:
        """Add texts of an evaluation set."""
        for text in texts:
            self.texts[name] += 1
            for run in _runs(text):
                self._of.setdefault(run, name)

    def where(self, texts: Iterable[str]) -> str | None:
        """An evaluation set that one of the texts shares a run of words with."""
        for text in texts:
            for run in _runs(text):
                if run in self._of:
                    return self._of[run]
        return None


def _runs(text: str) -> Iterator[int]:
    """Hashes of all runs of `RUN` words; of a text of 5 to `RUN` words, the hash of the whole."""
    words = _WORD.findall(text.lower())
    if len(words) < 5:
        return
    for start in range(max(len(words) - RUN, 0) + 1):
        yield hash(tuple(words[start : start + RUN]))


def without_seen(
    pairs: Sequence[Pair], seen: Seen
) -> tuple[list[Pair], dict[str, dict[str, int]], dict[str, int]]:
    """The pairs but those to learn from or calibrate on whose document shares words with an evaluation set.

    Returns:
        The pairs that stay; how many documents of each source were left out, by evaluation set; and how many
        documents each source had.
    """
    texts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pair in pairs:
        if pair.part != "report":
            texts[pair.source, pair.group] |= {pair.evidence, pair.claim}
    left_out: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    gone: set[tuple[str, str]] = set()
    for (source, group), some in texts.items():
        name = seen.where(some)
        if name is not None:
            gone.add((source, group))
            left_out[source][name] += 1
    kept = [pair for pair in pairs if pair.part == "report" or (pair.source, pair.group) not in gone]
    return kept, {name: dict(of) for name, of in left_out.items()}, Counter(source for source, _ in texts)


def mixed(pairs: Sequence[Pair], weights: Mapping[str, float], limit: int | None, seed: int) -> list[Pair]:
    """Rows to learn from: each source by its weight, the labels of each as even as its rows allow.

    Args:
        weights: by source, 1 where a source is not named; 0 leaves a source out.
        limit: rows in all.  A source that has fewer than its share gives all it has, once.
        seed: of the draw and of the order.
    """
    by: dict[str, dict[str, list[Pair]]] = defaultdict(lambda: defaultdict(list))
    for pair in sorted(pairs, key=lambda pair: hashlib.sha256(f"{seed}\n{pair.id}".encode()).digest()):
        if pair.part == "train" and weights.get(pair.source, 1.0) > 0:
            by[pair.source][pair.label].append(pair)
    even = {source: _even(labels) for source, labels in by.items()}
    quota = _quotas({source: len(rows) for source, rows in even.items()}, weights, limit)
    chosen = [pair for source, rows in even.items() for pair in rows[: quota[source]]]
    return sorted(chosen, key=lambda pair: hashlib.sha256(f"order {seed}\n{pair.id}".encode()).digest())


def _even(labels: Mapping[str, Sequence[Pair]]) -> list[Pair]:
    """Two of five rows supported, the others as evenly as they last; what is left over is dropped."""
    others = _in_turns([rows for label, rows in sorted(labels.items()) if label != "supported"])
    supported = labels.get("supported", ())
    if not others or not supported:
        return list(supported) or others
    share = min(len(supported) / 2, len(others) / 3)
    told = [(n / 2, pair) for n, pair in enumerate(supported[: max(round(2 * share), 1)])]
    told += [(n / 3, pair) for n, pair in enumerate(others[: max(round(3 * share), 1)])]
    return [pair for _, pair in sorted(told, key=lambda one: one[0])]


def _in_turns(rows: Sequence[Sequence[Pair]]) -> list[Pair]:
    longest = max(map(len, rows), default=0)
    return [some[n] for n in range(longest) for some in rows if n < len(some)]


def _quotas(has: Mapping[str, int], weights: Mapping[str, float], limit: int | None) -> dict[str, int]:
    """Rows of each source; what one lacks of its share goes to the others."""
    if limit is None or limit >= sum(has.values()):
        return dict(has)
    quota: dict[str, int] = {}
    left, open_ = limit, dict(has)
    while open_:
        total = sum(weights.get(source, 1.0) for source in open_)
        share = {source: left * weights.get(source, 1.0) / total for source in open_}
        short = [source for source in open_ if open_[source] <= share[source]]
        if not short:
            return quota | {source: round(share[source]) for source in open_}
        for source in short:
            quota[source] = open_.pop(source)
            left -= quota[source]
    return quota


def write_pairs(pairs: Iterable[Pair], path: Path) -> None:
    """As JSON Lines, gzipped, the same bytes for the same rows; a reader finds a whole file or none."""
    with (
        whole_file(path) as unfinished,
        unfinished.open("wb") as out,
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as file,
    ):
        for pair in pairs:
            file.write(json.dumps(asdict(pair), ensure_ascii=False).encode("utf-8", "replace") + b"\n")


def read_pairs(files: Sequence[str], seed: int, shares: Mapping[Part, float]) -> list[Pair]:
    """Rows of files: what `write_pairs` wrote, or any with `claim`, `evidence` (a text) and `label`.

    A row that does not say its `part` is put into one by its `group` (or `group_id`).

    Raises:
        DataError: a row lacks a column, or its label is unknown.
    """
    pairs: list[Pair] = []
    for file in files:
        for number, row in enumerate(read_rows(file), start=1):
            pairs.append(_pair(row, f"{file}, row {number}", Path(file).stem.partition(".")[0], seed, shares))
    twice = [id_ for id_, count in Counter(pair.id for pair in pairs).items() if count > 1]
    if twice:
        raise DataError(f"{', '.join(files)}: {len(twice)} ids stand twice, such as {twice[0]!r}")
    return pairs


def _pair(row: Mapping[str, Any], where: str, source: str, seed: int, shares: Mapping[Part, float]) -> Pair:
    claim, evidence, label = row.get("claim"), row.get("evidence"), label_of(row.get("label"))
    if not isinstance(claim, str) or not isinstance(evidence, str) or not claim.strip():
        raise DataError(f"{where} has no `claim` and `evidence` that are texts")
    if label is None:
        raise DataError(f"{where}: label {row.get('label')!r} is none of {', '.join(_SAME)}")
    group = str(row.get("group") or row.get("group_id") or where)
    found = Pair(
        str(row.get("id") or where),
        evidence,
        claim,
        label,
        group,
        str(row.get("source") or source),
        str(row.get("kind") or ""),
        bool(row.get("human", False)),
    )
    part = row.get("part") or part_of(group, seed, shares)
    if part not in PARTS:
        raise DataError(f"{where}: part {part!r} is none of {', '.join(PARTS)}")
    return replace(found, part=part)
