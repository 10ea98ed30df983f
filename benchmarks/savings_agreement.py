"""What savings of the verification engine cost: real judges on claims that people labelled.

`savings.py` prints these tables.  Streaming and judging equal claims with equal evidence once leave every
verdict as it is, because the same questions are asked.

    shared evidence      the documents of Factcheck-GPT, whose annotators were shown up to five passages for
                         every claim.  Apart, a claim is judged by its own.  Shared, the claims of a document
                         are dealt into two texts that answer one question, and the engine searches as it
                         does in training: for the sentences of the longer text, and for those of the other
                         that nothing found so far covers.
    claims of one call   a language model that writes its verdicts, one to ten claims of a document in a
                         call, one passage each (the annotators' stance towards that passage).
    one extraction call  a language model that writes the claims of a text, in a call for each sentence and in
                         one for all; the judge in this process reads them beside the text's evidence.  A
                         sentence is called wrong when one of its claims is not supported.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from verifier import balanced, cell, load, resampled, sample
from workload import key_of

from factrl.llm import Message, Reply
from factrl.llm.background import wait_for
from factrl.llm.local.llama import LlamaModel, shared_model
from factrl.llm.store import Store
from factrl.runs.rows import read_rows
from factrl.types import Claim, Passage, Verdict
from factrl.verifier import Report, Verifier
from factrl.verifier.claims import Extractor, SentenceClaims
from factrl.verifier.claims.llm import LLMClaims
from factrl.verifier.judges import Judge, LLMJudge, LocalJudge, WeakJudge

T = TypeVar("T")
SHOWN = 450  # characters of a passage that the writing judge sees, because every word costs time here


def agreement(data: Path, claims: int) -> Iterator[str]:
    """The tables, in Markdown; `claims` of them by the model in this process."""
    documents = read(data)
    arms: list[tuple[str, Judge, Sequence[Document]]] = [("weak", WeakJudge(), documents)]
    if claims:
        # Those with a refuted claim first: few are refuted.
        ordered = sorted(documents, key=lambda document: all(document.supported))
        arms.append(("local", LocalJudge(), _first(ordered, claims, lambda document: len(document.claims))))
    lines = [
        "| shared evidence, judge | claims | searches, apart → shared | agreement | same verdict |",
        "|---|--:|--:|--:|--:|",
    ]
    yield "\n".join([*lines, *(shared_row(*arm) for arm in arms)]) + "\n"
    if claims:
        yield "\n".join(in_one_call(data, claims)) + "\n"
        yield "\n".join(extracted(data, claims)) + "\n"


# -- Shared evidence ----------------------------------------------------------------------------------


@dataclass
class Document:
    """The labelled claims of one answer, and what people were shown for each."""

    question: str
    claims: list[str] = field(default_factory=list)
    supported: list[bool] = field(default_factory=list)
    passages: dict[str, list[Passage]] = field(default_factory=dict)


def read(data: Path) -> list[Document]:
    """Factcheck-GPT's documents with at least four claims that have a label and evidence."""
    evidence: dict[tuple[str, str], list[Passage]] = defaultdict(list)
    for row in _rows(data / "factcheck_gpt" / "stance.jsonl"):
        evidence[row["group_id"], row["claim"]] += [Passage(e["text"], e["title"]) for e in row["evidence"]]
    found: dict[str, Document] = {}
    for row in _rows(data / "factcheck_gpt" / "claims.jsonl"):
        name, claim = row["group_id"], row["claim"]
        document = found.setdefault(name, Document(name))
        shown = evidence.get((name, claim))
        if shown and row["label"] in ("supported", "refuted") and key_of(claim) not in document.passages:
            document.claims.append(claim)
            document.supported.append(row["label"] == "supported")
            document.passages[key_of(claim)] = shown
    return [document for document in found.values() if len(document.claims) >= 4]


class Shown:
    """A search that finds for a claim what people were shown for it; nothing for anything else."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = {document.question: document for document in documents}
        self.asked = 0

    async def search(self, query: str, k: int = 5, *, topic: str = "") -> Sequence[Passage]:
        """The passages of this claim of the document `topic`, or of the claim that this is a sentence of."""
        self.asked += 1
        key, passages = key_of(query), self._documents[topic].passages
        whole = next((claim for claim in passages if key == claim or (key and key in claim)), "")
        return passages.get(whole, [])[:k]


def shared_row(name: str, judge: Judge, documents: Sequence[Document]) -> str:
    """Both ways of finding evidence, the same judge."""
    said, asked = {}, {}
    with tempfile.TemporaryDirectory() as place, contextlib.closing(Store(Path(place) / "said.db")) as store:
        for share in (False, True):  # what is the same both times is judged once
            search = Shown(documents)
            told = Verifier(_claims, search, judge, share=share, deadline=3600, store=store)
            said[share], asked[share] = np.array(checked(documents, told)), search.asked
    truth = np.array([label for document in documents for label in document.supported])
    groups = [document.question for document in documents for _ in document.claims]
    apart, shared = (
        cell((balanced(truth, said[share]), resampled(truth, said[share], groups))) for share in (False, True)
    )
    return (
        f"| {name} | {len(truth)} | {asked[False]} → {asked[True]} | {apart} → {shared} | "
        f"{100 * (said[False] == said[True]).mean():.0f} % |"
    )


def checked(documents: Sequence[Document], verifier: Verifier) -> list[bool]:
    """Whether each claim was called supported, in the order of the documents."""
    texts = [["\n".join(document.claims[turn::2]) for turn in (0, 1)] for document in documents]
    questions = [document.question for document in documents for _ in (0, 1)]
    reports = verifier.batch([text for pair in texts for text in pair], questions, topics=questions)
    said: list[bool] = []
    for number, document in enumerate(documents):
        own = [False] * len(document.claims)
        for turn in (0, 1):
            checks = reports[2 * number + turn].checks
            own[turn::2] = [bool(c.verdict and c.verdict.label == "supported") for c in checks]
        said += own
    return said


def _claims(text: str, _question: str = "", _topic: str = "") -> list[Claim]:
    """One claim a line."""
    found, start = [], 0
    for number, line in enumerate(text.split("\n")):
        found.append(Claim(line, start, start + len(line), number))
        start += len(line) + 1
    return found


def _first(documents: Sequence[T], wanted: int, size: Callable[[T], int]) -> list[T]:
    """As many documents as hold so much together."""
    before = itertools.accumulate(map(size, documents), initial=0)
    return [document for document, held in zip(documents, before, strict=False) if held < wanted]


# -- Several claims in a call -------------------------------------------------------------------------


class Counted:
    """A model in this process that counts the tokens which it read and wrote."""

    def __init__(self, model: LlamaModel) -> None:
        self.model, self.tokens = model, 0
        self.identity = model.identity

    def complete(self, messages: Sequence[Message], **how: Any) -> Reply:
        reply = self.model.complete(messages, **how)
        self.tokens += (reply.tokens_in or 0) + (reply.tokens_out or 0)
        return reply


def in_one_call(data: Path, claims: int) -> list[str]:
    """A model that writes its verdicts, with one to ten claims in a call, and the tokens that it reads."""
    items = sorted(sample(load(data, "factcheck_gpt"), claims), key=lambda item: item.group)
    pairs = [(Claim(item.claim, 0, len(item.claim)), item.passages) for item in items]
    truth = np.array([item.supported for item in items])
    groups = [item.group for item in items]
    said: dict[int, list[Verdict]] = {}
    tokens: dict[int, int] = {}
    for count in (1, 2, 5, 10):
        model = Counted(shared_model())
        judge = LLMJudge(model, claims_per_call=count)
        judge.evidence_chars = SHOWN
        said[count] = wait_for(judge.judge(pairs))
        tokens[count] = model.tokens
    lines = ["| claims a call | claims | tokens a claim | agreement | without a verdict | same as alone |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    alone = [verdict.label for verdict in said[1]]
    for count, verdicts in said.items():
        labels = [verdict.label for verdict in verdicts]
        supported = np.array([label == "supported" for label in labels])
        agreed = cell((balanced(truth, supported), resampled(truth, supported, groups)))
        same = np.mean([one == other for one, other in zip(labels, alone, strict=True)])
        lines.append(
            f"| {count} | {len(items)} | {tokens[count] / len(items):.0f} | {agreed} | "
            f"{labels.count('unjudged')} | {100 * same:.0f} % |"
        )
    return lines


# -- One extraction call ------------------------------------------------------------------------------


@dataclass
class Text:
    """A text, what people found right and wrong by where a sentence stands, and what they were shown."""

    question: str
    text: str
    right: dict[tuple[int, int], bool]
    evidence: list[Passage]


def texts(data: Path, name: str) -> list[Text]:
    """Those of Factcheck-GPT, or the biographies of WikiBio hallucinations, in an order drawn once."""
    found = []
    if name == "factcheck_gpt":
        shown: dict[str, dict[str, Passage]] = defaultdict(dict)
        for row in _rows(data / name / "stance.jsonl"):
            shown[row["group_id"]] |= {part["text"]: Passage(part["text"]) for part in row["evidence"]}
        for row in _rows(data / name / "documents.jsonl"):
            labels = [(part["text"], part["sentence_factuality_label"]) for part in row["sentences"]]
            evidence = list(shown[row["group_id"]].values())
            found.append(Text(row["prompt"], row["response"], _places(row["response"], labels), evidence))
    else:
        for row in _rows(data / name / "passages.jsonl.gz"):
            right = [label == "accurate" for label in row["labels"]]
            places = _places(row["response"], list(zip(row["sentences"], right, strict=True)))
            found.append(Text("", row["response"], places, [Passage(row["reference"])]))
    labelled = [text for text in found if text.right and text.evidence]
    return random.Random(0).sample(labelled, len(labelled))


def _places(text: str, labels: Sequence[tuple[str, Any]]) -> dict[tuple[int, int], bool]:
    """Where the sentences stand that are there word for word, and were found right or wrong."""
    places, start = {}, 0
    for sentence, right in labels:
        words = sentence.strip()
        at = text.find(words, start) if words else -1
        if at >= 0:
            start = at + len(words)
            if isinstance(right, bool):
                places[at, start] = right
    return places


def extracted(data: Path, claims: int) -> list[str]:
    """Texts with `claims` sentences of each set, taken apart in each way; agreement where all ways could."""
    lines = [
        "| claims of | set | texts, sentences | claims, tokens a text | agreement | not read |",
        "|---|---|--:|--:|--:|--:|",
    ]
    judge, model = LocalJudge(), Counted(shared_model())
    ways: dict[str, Extractor] = {
        "the sentences themselves": SentenceClaims(),
        "a call for each sentence": LLMClaims(model, "veriscore"),
        "a call for a text": LLMClaims(model, "veriscore_response"),
    }
    for name in ("factcheck_gpt", "wikibio_hallucination"):
        chosen = _first(texts(data, name), claims, lambda text: len(text.right))
        reports: dict[str, list[Report]] = {}
        tokens: dict[str, int] = {}
        for way, extract in ways.items():
            model.tokens = 0
            verifier = Verifier(extract, None, judge, deadline=36_000)
            reports[way] = [verifier(one.text, one.question, evidence=one.evidence) for one in chosen]
            tokens[way] = model.tokens
        read = [n for n in range(len(chosen)) if not any(_unread(each[n]) for each in reports.values())]
        truth = np.array([right for n in read for right in chosen[n].right.values()])
        groups = [str(n) for n in read for _ in chosen[n].right]
        for way, found in reports.items():
            said = np.array([_holds(found[n], place) for n in read for place in chosen[n].right])
            count, cost = sum(report.claims for report in found) / len(found), tokens[way] / len(found)
            agreed = cell((balanced(truth, said), resampled(truth, said, groups)))
            lines.append(
                f"| {way} | {name} | {len(read)}, {len(truth)} | {count:.1f}, {cost:.0f} | {agreed} | "
                f"{sum(map(_unread, found))} |"
            )
    return lines


def _unread(report: Report) -> bool:
    return report.failure is not None or report.floored is not None


def _holds(report: Report, place: tuple[int, int]) -> bool:
    """Whether every claim that stands in this place is supported."""
    start, end = place
    return all(
        check.verdict is None or check.verdict.label == "supported"
        for check in report.checks
        if check.claim.start < end and check.claim.end > start
    )


def _rows(path: Path) -> Iterator[dict]:
    return map(dict, read_rows(str(path)))
