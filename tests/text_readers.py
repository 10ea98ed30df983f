"""Public functions that read text of others, called with one string: `test_linear_time.py` times them."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from factrl import Example, Grader, Verifier, prepare, text
from factrl.errors import DataError, Unscored
from factrl.evals import grade as grading_of
from factrl.llm import FakeLLM, quoting
from factrl.llm.bodies import excerpt
from factrl.llm.replies import read_supported, read_true_false, read_verdict, read_verdicts, records_by_id
from factrl.prepare import dataset
from factrl.rewards import grading, guards, mathematics, preference
from factrl.rewards.checklist import Checklist, read_checklist
from factrl.rewards.truthfulness import shown_claim
from factrl.runs.data import render_prompt
from factrl.runs.rows import read_separated
from factrl.stress import oracle_setup
from factrl.stress.texts import example_of
from factrl.stress.texts import prompts as stress_prompts
from factrl.text import abstention, answers, confidence, escape, mentions, reasoning, strip_end_tokens, words
from factrl.text.sentences import sentences
from factrl.train import metrics
from factrl.train.search import SearchEnvironment
from factrl.types import Claim, Completion, Passage
from factrl.verifier import claims, search
from factrl.verifier.claims import SentenceClaims, llm
from factrl.verifier.claims.llm import LLMClaims
from factrl.verifier.judges import LLMJudge, WeakJudge
from factrl.verifier.report import Check, Report, page
from factrl.verifier.search import Given, sources

Reader = Callable[[str], object]
QUESTION = "Where was Marie Curie born?"
FACT = "Marie Curie was born in Warsaw in 1867."
EXTRACT = SentenceClaims()
CHOICES = Example(QUESTION, meta={"choices": ["Ulm", "Bern"], "right": [1, 0]})


def _judged(raw: str) -> object:
    return asyncio.run(LLMJudge(FakeLLM(lambda _: raw)).judge([(Claim(FACT, 0, 9), [Passage(FACT)])]))


def _judging(raw: str) -> object:
    """The claim and the evidence come from others, too."""
    return asyncio.run(LLMJudge(FakeLLM(lambda _: "?")).judge([(Claim(raw, 0, 9), [Passage(raw)])]))


def _extracted(raw: str) -> object:
    return asyncio.run(LLMClaims(FakeLLM(lambda _: raw))(FACT))


def _claims(raw: str) -> list[Claim]:
    """The claims that a text of many lines makes; extracting them is timed elsewhere."""
    lines = raw.splitlines() if "\n" in raw else re.findall(".{1,24}", raw, re.DOTALL)
    return [Claim(line, 0, 1) for line in lines]


def _placed(raw: str) -> object:
    places = llm.Places(raw, claims.statements(raw))
    return [places.claim(claim.text) for claim in _claims(raw)]


def _given(raw: str) -> object:
    return search.Given([Passage(raw)]).search(raw)


@cache
def _setup(spec: str) -> Any:
    return oracle_setup(spec)


CURIE = example_of(stress_prompts()["curie"])


def _rewarded(spec: str, raw: str, before: str = "", after: str = "") -> object:
    return _setup(spec).reward(CURIE, Completion(f"{before}{raw}{after}"))


def _under_a_header(raw: str) -> object:
    """A table with as many rows as its header has words."""
    rows = "| Ann Lee | 1 |\n" * len(raw.split())
    header = " ".join(raw.replace("|", " ").split())
    return Verifier(EXTRACT, None, WeakJudge())(FACT, evidence=[f"| {header} | b |\n|---|---|\n{rows}"])


def _separated(raw: str) -> object:
    """A file whose first line this is."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(" ".join(raw.split()).encode("utf-8", "replace"))
        file.flush()
        try:
            return [*read_separated(Path(file.name))]
        except DataError:
            return None


# Called as they are, by their own names.
PLAIN: tuple[Any, ...] = (
    *(
        abstention.abstains,
        abstention.is_refusal,
        reasoning.without_reasoning,
        reasoning.announced,
        abstention.says_invalid_question,
    ),
    *(answers.normalize_answer, words.parse_number, answers.final_answer, answers.is_contentless),
    *(grading_of.continued, grading_of.final_part, confidence.stated_confidence, mathematics.is_number),
    *(excerpt, metrics.split, escape.visible, escape.one_line, escape.markup),
    *(escape.markdown, escape.attribute, escape.linked, llm.read_facts, read_true_false, read_supported),
    prepare.normalised,
    *(quoting.broken.__wrapped__, quoting.forges, sources.cut, search.without_secrets, sentences),
    *(strip_end_tokens, grading.read_letter, text.think_answer, text.opened, text.implied, text.boxed),
    *(text.unwrap_latex, text.clean, shown_claim, words.read),
)
READERS: dict[str, Reader] = {
    **{f"{one.__module__.removeprefix('factrl.')}.{one.__qualname__}": one for one in PLAIN},
    "text.abstention.abstention_score": lambda raw: abstention.abstention_score(raw, raw[:200]),
    "text.abstention.abstention_score (question)": lambda raw: abstention.abstention_score(
        "I do not know who it is. " * 9, raw
    ),
    "text.answers.equals": lambda raw: answers.equals(raw, ["Paris", "12,5", "yes"], "How many euros?"),
    "text.answers.equals (answers)": lambda raw: answers.equals("Paris", [raw]),
    "text.answers.closed": lambda raw: answers.closed(raw, "yes"),
    "text.answers.same_answer": lambda raw: (
        answers.same_answer(raw, "Paris") or answers.same_answer("Paris", raw)
    ),
    "evals.grade.by_letter": lambda raw: grading_of.by_letter(CHOICES, raw),
    "rewards.mathematics.final_result": lambda raw: (
        mathematics.final_result(raw, number=True),
        mathematics.final_result(raw, number=False),
    ),
    "text.reasoning.find_answer": lambda raw: [
        reasoning.find_answer(raw, form) for form in ("text", "boxed", "answer")
    ],
    "rewards.checklist.Checklist.__call__": lambda raw: Checklist(FakeLLM(lambda _: raw))(
        QUESTION, raw, [FACT]
    ),
    "rewards.checklist.read_checklist": lambda raw: read_checklist(raw, ["4b1e", "c07a"]),
    "runs.data.render_prompt": lambda raw: render_prompt(
        Example(raw, evidence=(Passage(raw),)), "{question} {evidence}"
    ),
    "train.metrics.signals": lambda raw: metrics.signals(
        [metrics.ScoredSample(CURIE, raw, _setup("truthrl").reward(CURIE, "x"))]
    ),
    "verifier.claims.SentenceClaims.__call__": lambda raw: EXTRACT(raw, QUESTION, "Marie Curie"),
    "verifier.claims.llm.LLMClaims.__call__": _extracted,
    "verifier.claims.mark": lambda raw: claims.mark(_claims(raw), raw),
    "verifier.claims.llm.Places.claim": _placed,
    "rewards.grading.Grader.__call__": lambda raw: Grader(FakeLLM(lambda _: raw))(QUESTION, raw, ["Paris"]),
    "llm.replies.read_verdict": lambda raw: read_verdict(raw, ["correct", "incorrect"]),
    "llm.replies.records_by_id": lambda raw: records_by_id(raw, ["a", "b"], ["keep"], "fact"),
    "rewards.guards.coverage": lambda raw: guards.coverage(raw, [Claim(FACT, 0, 9)]),
    "rewards.guards.relevant": lambda raw: guards.relevant(Claim(raw, 0, 9), raw),
    "rewards.guards.repeats": lambda raw: guards.repeats(_claims(raw), QUESTION),
    "verifier.judges.llm.LLMJudge.judge (reply)": _judged,
    "verifier.judges.llm.LLMJudge.judge": _judging,
    "verifier.judges.local.WeakJudge.judge": lambda raw: WeakJudge().judge(
        [(Claim(raw, 0, 1), [Passage(raw)])] * 2
    ),
    "llm.replies.read_verdicts": lambda raw: read_verdicts(raw, ["a", "b"]),
    "text.mentions.mentions": lambda raw: mentions.mentions("Where?", raw, ["Paris"]),
    "text.mentions.mentions (question)": lambda raw: mentions.mentions(raw, "In Rome", ["Paris"]),
    "text.mentions.mentions (answers)": lambda raw: mentions.mentions("Where?", "In Rome", [raw]),
    "prepare.dataset.read_choices": lambda raw: dataset.read_choices(raw, ["a", "b"]),
    "prepare.answer_part": lambda raw: prepare.answer_part(Completion(raw)),
    "rewards.preference.guarded": lambda raw: preference.guarded(lambda *_: 0.9, QUESTION, raw),
    "prepare.Sieve.found_in": prepare.Sieve({QUESTION: "a"}).found_in,
    "prepare.dataset.choose": lambda raw: dataset.choose(FakeLLM(lambda _: raw), raw, [FACT, raw]),
    "verifier.search.Given.search": _given,
    "verifier.search.Given.covers": lambda raw: search.Given([raw, FACT]).covers(raw),
    "rewards.grading.names_no_answer": lambda raw: grading.names_no_answer(QUESTION, raw, ["Paris"]),
    "text.answers.contains": lambda raw: (
        answers.contains(raw, ["Paris"]),
        answers.contains("In Rome", [raw]),
    ),
    "text.tag": lambda raw: (text.tag(raw, "answer", "first"), text.tag(raw, "answer")),
    "verifier.Verifier.__call__": lambda raw: Verifier(EXTRACT, None, WeakJudge())(raw, evidence=[raw, FACT]),
    "verifier.Verifier.__call__ (title)": lambda raw: Verifier(EXTRACT, None, WeakJudge())(
        f"{FACT} She won 2 prizes.", evidence=[Passage(FACT, raw)]
    ),
    "verifier.Verifier.__call__ (header)": _under_a_header,
    "runs.rows.read_separated (header)": _separated,
    "verifier.report.page": lambda raw: page(
        Report(raw, checks=tuple(Check(Claim("c", n, n + 9)) for n in range(0, min(len(raw), 4_000), 9)))
    ),
    "train.search.SearchEnvironment.search": lambda raw: SearchEnvironment(
        Given([FACT, raw]), k=2, turns=1
    ).search(raw),
    **{
        f"papers.{name} ({spec})": partial(_rewarded, spec)
        for name, spec in {
            "factreason.factreason": "factreason",
            "fspo.fspo": "fspo",
            "klcf.klcf": "klcf",
            "klcf.factscore": "klcf:factscore",
            "knowrl.knowrl": "knowrl",
            "robust.robust": "robust",
            "rlcr.rlcr": "rlcr",
            "threshold.threshold": "threshold",
            "truthrl.truthrl": "truthrl",
        }.items()
    },
    "papers.rlcr.rlcr (in form)": partial(
        _rewarded,
        "rlcr",
        before="<think>Hm.</think><answer>",
        after="</answer><analysis>Hm.</analysis><confidence>0.9</confidence>",
    ),
    **{
        f"papers.{spec}.{spec} (in tags)": partial(
            _rewarded, spec, before="<think>Hm.</think><answer>", after="</answer>"
        )
        for spec in ("factreason", "fspo", "klcf", "knowrl", "robust")
    },
}


def called(reader: Reader) -> Reader:
    """The reader, with its own errors for answers; only its time matters here."""

    def call(raw: str) -> object:
        try:
            return reader(raw)
        except (Unscored, ValueError):
            return None

    return call
