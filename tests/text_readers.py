"""Every public function that reads text of others, called with one string; `test_linear_time.py` times them.

`unlisted` finds the functions that are missing here, so a new one is timed or excused with a reason.
"""

from __future__ import annotations

import ast
import asyncio
import io
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import factrl
from factrl import (
    Example,
    Grader,
    Verifier,
    abstention,
    answers,
    escape,
    guards,
    ignorance,
    measures,
    mentions,
    naming,
    preference,
    quoting,
    retractions,
    small_judge,
    text,
)
from factrl.bench import choice, outcomes, prompts, readers, reasoning, shortqa
from factrl.bodies import excerpt
from factrl.card_head import shown
from factrl.checklist import Checklist, JudgedChecklist, read_checklist
from factrl.cove import read_questions
from factrl.data import render_prompt
from factrl.detect import reading
from factrl.errors import Unscored
from factrl.extract import ClauseClaims, LLMClaims, SentenceClaims, marks, replies, statements, tokens
from factrl.extract.attribution import unwrapped
from factrl.extract.clauses import named
from factrl.extract.lives import life_dates
from factrl.extract.spans import Places
from factrl.grading import read_verdict
from factrl.judges import LLMJudge, overlap
from factrl.judges import replies as verdicts
from factrl.judges.weak import WeakJudge
from factrl.llm import FakeLLM
from factrl.prepare import contamination, importance, sampling
from factrl.prepare import prompts as new_prompts
from factrl.resources import written_certainty
from factrl.search import given, passages, pool, web, wikipedia
from factrl.search import words as search_words
from factrl.sentences import sentences
from factrl.server.service import _without_ending
from factrl.stress import oracle_setup
from factrl.stress.prompts import example_of
from factrl.stress.prompts import prompts as stress_prompts
from factrl.truthfulness import shown_claim
from factrl.types import Claim, Completion, Passage
from factrl.verifier.marked import Mark, marked
from factrl.words import fold, read, stem

Reader = Callable[[str], object]
PACKAGE = Path(factrl.__file__).parent
QUESTION = "Where was Marie Curie born?"
FACT = "Marie Curie was born in Warsaw in 1867."
EXTRACT = ClauseClaims()
CHOICES = readers.with_choices(Example(QUESTION), ["Ulm", "Bern"], [1, 0])


def _judged(raw: str) -> object:
    return asyncio.run(LLMJudge(FakeLLM(lambda _: raw)).judge([(Claim(FACT, 0, 9), [Passage(FACT)])]))


def _judging(raw: str) -> object:
    """The claim and the evidence come from others, too."""
    return asyncio.run(LLMJudge(FakeLLM(lambda _: "?")).judge([(Claim(raw, 0, 9), [Passage(raw)])]))


def _extracted(raw: str) -> object:
    return asyncio.run(LLMClaims(FakeLLM(lambda _: raw))(FACT))


def _pieces(raw: str) -> list[overlap.Piece]:
    return overlap.pieces_of([Passage(raw)])


def _claims(raw: str) -> list[Claim]:
    """The claims that a text of many lines makes; extracting them is timed elsewhere."""
    lines = raw.splitlines() if "\n" in raw else re.findall(".{1,24}", raw, re.DOTALL)
    return [Claim(line, 0, 1) for line in lines]


def _placed(raw: str) -> object:
    units = [
        statements.Statement(claim.text, tuple(range(len(claim.text))), 0, 1, n, "prose")
        for n, claim in enumerate(_claims(raw))
    ]
    places = Places(units)
    return [places.claim(unit.text) for unit in units]


def _given(raw: str) -> object:
    return given.Given([Passage(raw)]).search(raw)


def _pool(do: Callable[[pool.EvidencePool, str], object], raw: str) -> object:
    found = pool.EvidencePool()
    found.add([Passage(raw), Passage(FACT)])
    return do(found, raw)


def _dump(raw: str) -> object:
    said = f"<text>{escape.markup(raw)}</text>"
    page = f"<mediawiki><page><title>A</title><ns>0</ns><revision>{said}</revision></page></mediawiki>"
    return list(wikipedia.read_dump(io.BytesIO(page.encode("utf-8", "replace")), Path("dump.xml")))


@cache
def _setup(spec: str) -> Any:
    return oracle_setup(spec)


CURIE = example_of(stress_prompts()["curie"])


def _rewarded(spec: str, raw: str, before: str = "", after: str = "") -> object:
    return _setup(spec).reward(CURIE, Completion(f"{before}{raw}{after}"))


READERS: dict[str, Reader] = {
    "abstention.abstains": abstention.abstains,
    "abstention.asserted": abstention.asserted,
    "abstention.stance": lambda raw: abstention.stance(raw, raw[:200], strict=True),
    "abstention.stance (question)": lambda raw: abstention.stance("I do not know who it is. " * 9, raw),
    "ignorance.visible": ignorance.visible,
    "ignorance.declines_in_own_words": lambda raw: ignorance.declines_in_own_words(
        raw, frozenset({"who"}), strict=False
    ),
    "ignorance.guessed": lambda raw: ignorance.guessed(raw, frozenset()),
    "ignorance.names_nothing": lambda raw: ignorance.names_nothing(raw, frozenset(), strict=True),
    "naming.words_of": naming.words_of,
    "naming.words_in": naming.words_in,
    "naming.is_new": lambda raw: naming.is_new(raw, frozenset()),
    "naming.is_asked": lambda raw: naming.is_asked(raw, frozenset()),
    "naming.is_known": naming.is_known,
    "naming.is_grammar": naming.is_grammar,
    "naming.says_nothing": lambda raw: naming.says_nothing(raw, frozenset()),
    "naming.unexplained": lambda raw: naming.unexplained(raw, frozenset()),
    "naming.first_name": lambda raw: naming.first_name(raw, frozenset()),
    "naming.sentences": naming.sentences,
    "retractions.given": lambda raw: retractions.given(raw, frozenset()),
    "retractions.lists_candidates": lambda raw: retractions.lists_candidates(raw, frozenset()),
    "measures.same_amount": lambda raw: measures.same_amount("How many?", raw, ["12"]),
    "answers.equals": lambda raw: answers.equals(raw, ["Paris"]),
    "abstention.abstains_released": abstention.abstains_released,
    "abstention.says_invalid_question": abstention.says_invalid_question,
    "answers.normalize_released": answers.normalize_released,
    "answers.normalize_answer": answers.normalize_answer,
    "answers.parse_number": answers.parse_number,
    "answers.unaccented": answers.unaccented,
    "answers.same_answer": lambda raw: answers.same_answer(raw, "Paris") or answers.same_answer("Paris", raw),
    "answers.matches": lambda raw: answers.matches(raw, ["Paris", "12,5"]) or answers.matches("Paris", [raw]),
    "answers.final_answer": answers.final_answer,
    "answers.is_contentless": answers.is_contentless,
    "bench.choice.by_letter": lambda raw: choice.by_letter(CHOICES, raw),
    "bench.choice.chosen": lambda raw: choice.chosen(raw, ["Ulm", "Bern"]),
    "bench.outcomes.closer_to_true": lambda raw: outcomes.closer_to_true(raw, [FACT], ["No."]),
    "bench.prompts.continued": prompts.continued,
    "bench.prompts.final_part": prompts.final_part,
    "bench.prompts.stated_confidence": prompts.stated_confidence,
    "bench.readers.plain_choice": readers.plain_choice,
    "bench.readers.truthful_qa_choice": readers.truthful_qa_choice,
    "bench.reasoning.final_result": lambda raw: (
        reasoning.final_result(raw, number=True),
        reasoning.final_result(raw, number=False),
    ),
    "bench.reasoning.is_number": reasoning.is_number,
    "bench.shortqa.find_answer": lambda raw: [
        shortqa.find_answer(raw, form) for form in ("text", "boxed", "answer")
    ],
    "bodies.excerpt": excerpt,
    "card_head.shown": shown,
    "checklist.Checklist.__call__": lambda raw: Checklist(FakeLLM(lambda _: raw))(QUESTION, raw, [FACT]),
    "checklist.JudgedChecklist.__call__": lambda raw: JudgedChecklist(WeakJudge())(
        QUESTION, raw, [FACT, "She won two prizes."]
    ),
    "checklist.read_checklist": lambda raw: read_checklist(raw, ["4b1e", "c07a"]),
    "cove.read_questions": read_questions,
    "data.render_prompt": lambda raw: render_prompt(
        Example(raw, evidence=(Passage(raw),)), "{question} {evidence}"
    ),
    "detect.reading.read": lambda raw: reading.read(CURIE, raw, _setup("truthrl").reward(CURIE, "x")),
    "detect.reading.split": reading.split,
    "detect.reading.has_invisible": reading.has_invisible,
    "escape.visible": escape.visible,
    "escape.one_line": escape.one_line,
    "escape.markup": escape.markup,
    "escape.markdown": escape.markdown,
    "escape.attribute": escape.attribute,
    "escape.linked": escape.linked,
    "escape.cell": escape.cell,
    "extract.attribution.unwrapped": unwrapped,
    "extract.clauses.ClauseClaims.__call__": lambda raw: EXTRACT(raw, QUESTION, "Marie Curie"),
    "extract.clauses.named": named,
    "extract.lives.life_dates": life_dates,
    "extract.llm.LLMClaims.__call__": _extracted,
    "extract.marks.normalised": marks.normalised,
    "extract.marks.content_words": marks.content_words,
    "extract.marks.mark": lambda raw: marks.mark(_claims(raw), raw),
    "extract.marks.why_not": marks.why_not,
    "extract.marks.speaks_of_itself": marks.speaks_of_itself,
    "extract.replies.read_facts": replies.read_facts,
    "extract.spans.Places.claim": _placed,
    "extract.statements.statements": statements.statements,
    "extract.tokens.tokens": tokens.tokens,
    "extract.whole.SentenceClaims.__call__": SentenceClaims(),
    "grading.Grader.__call__": lambda raw: Grader(FakeLLM(lambda _: raw))(QUESTION, raw, ["Paris"]),
    "grading.read_verdict": lambda raw: read_verdict(raw, ["correct", "incorrect"]),
    "guards.coverage": lambda raw: guards.coverage(raw, [Claim(FACT, 0, 9)]),
    "guards.relevant": lambda raw: guards.relevant(Claim(raw, 0, 9), raw),
    "guards.repeats": lambda raw: guards.repeats(_claims(raw), QUESTION),
    "guards.contradictions": lambda raw: guards.contradictions(_claims(raw)),
    "guards.WholeText.__call__": guards.WholeText(),
    "judges.llm.LLMJudge.judge (reply)": _judged,
    "judges.llm.LLMJudge.judge": _judging,
    "judges.weak.WeakJudge.judge": lambda raw: WeakJudge().judge([(Claim(raw, 0, 1), [Passage(raw)])] * 2),
    "judges.overlap.words_of": overlap.words_of,
    "judges.overlap.pieces_of": _pieces,
    "judges.overlap.best_pieces": lambda raw: overlap.best_pieces(raw, _pieces(raw), 400),
    "judges.overlap.nearest_pieces": lambda raw: overlap.nearest_pieces(raw, _pieces(raw), 4),
    "judges.overlap.compare": lambda raw: overlap.compare(raw, _pieces(raw)),
    "judges.overlap.quote_of": lambda raw: overlap.quote_of(raw, [Passage(raw)]),
    "judges.replies.read_verdicts": lambda raw: verdicts.read_verdicts(raw, ["a", "b"]),
    "judges.replies.json_records": lambda raw: list(verdicts.json_records(raw)),
    "judges.replies.read_true_false": verdicts.read_true_false,
    "judges.replies.read_supported": verdicts.read_supported,
    "judges.replies.after_thinking": verdicts.after_thinking,
    "judges.replies.no_verdict": verdicts.no_verdict,
    "judges.replies.item_ids": lambda raw: verdicts.item_ids([*dict.fromkeys(raw.split())]),
    "mentions.mentions": lambda raw: mentions.mentions("Where?", raw, ["Paris"]),
    "mentions.mentions (question)": lambda raw: mentions.mentions(raw, "In Rome", ["Paris"]),
    "mentions.mentions (answers)": lambda raw: mentions.mentions("Where?", "In Rome", [raw]),
    "prepare.contamination.normalised": contamination.normalised,
    "prepare.importance.read_choices": lambda raw: importance.read_choices(raw, ["a", "b"]),
    "prepare.prompts.read_new_prompt": new_prompts.read_new_prompt,
    "prepare.sampling.answer_part": lambda raw: sampling.answer_part(Completion(raw)),
    "preference.guarded": lambda raw: preference.guarded(lambda *_: 0.9, QUESTION, raw),
    "prepare.contamination.Sieve.found_in": contamination.Sieve({QUESTION: "a"}).found_in,
    "prepare.importance.Importance.choose": lambda raw: importance.Importance(FakeLLM(lambda _: raw)).choose(
        raw, [FACT, raw]
    ),
    "quoting.broken": quoting.broken.__wrapped__,
    "quoting.forges": quoting.forges,
    "resources.written_certainty": lambda raw: written_certainty(Completion(raw)),
    "search.given.Given.search": _given,
    "search.passages.cut": passages.cut,
    "search.pool.EvidencePool.top": partial(_pool, lambda found, raw: found.top(raw)),
    "search.pool.EvidencePool.covers": partial(_pool, lambda found, raw: found.covers(raw)),
    "search.pool.EvidencePool.coverage": partial(_pool, lambda found, raw: found.coverage(raw)),
    "search.web.without_secrets": web.without_secrets,
    "search.wikipedia.plain_text": wikipedia.plain_text,
    "search.wikipedia.read_dump": _dump,
    "search.words.words": search_words.words,
    "search.words.title_key": search_words.title_key,
    "sentences.sentences": sentences,
    "server.service (endings)": _without_ending,
    "small_judge.names_no_answer": lambda raw: small_judge.names_no_answer(QUESTION, raw, ["Paris"]),
    "small_judge.ask_briefly": lambda raw: small_judge.ask_briefly(
        FakeLLM(lambda _: raw), raw, raw, ["Paris"]
    ),
    "text.think_answer": text.think_answer,
    "text.tag": lambda raw: (text.tag(raw, "answer", "first"), text.tag(raw, "answer")),
    "text.boxed": lambda raw: (text.boxed(raw), text.boxed(raw, "first")),
    "text.boxed_released": text.boxed_released,
    "text.few_marks": text.few_marks,
    "text.unwrap_latex": text.unwrap_latex,
    "text.clean": text.clean,
    "truthfulness.shown_claim": shown_claim,
    "verifier.Verifier.__call__": lambda raw: Verifier(EXTRACT, None, WeakJudge())(raw, evidence=[raw, FACT]),
    "verifier.marked.marked": lambda raw: marked(
        raw, [Mark(n, n + 9, "supported", n, "#") for n in range(0, len(raw), 9)]
    ),
    "words.fold": fold,
    "words.read": read,
    "words.stem": stem,
    **{
        f"papers.{name} ({spec})": partial(_rewarded, spec)
        for name, spec in {
            "factreason.factreason": "factreason",
            "fspo.fspo": "fspo",
            "fspo.fspo_outcome": "fspo:outcome",
            "fspo.fspo_released": "fspo:code",
            "klcf.klcf": "klcf",
            "knowrl.knowrl": "knowrl",
            "robust.robust": "robust",
            "truthrl.truthrl": "truthrl",
        }.items()
    },
    "papers.knowrl.knowrl (code)": partial(_rewarded, "knowrl:code"),
    **{
        f"papers.{spec}.{spec} (in tags)": partial(
            _rewarded, spec, before="<think>Hm.</think><answer>", after="</answer>"
        )
        for spec in ("factreason", "fspo", "klcf", "knowrl", "robust")
    },
}

# What takes text and is not timed here, and why.
ELSEWHERE = {
    "what the user writes": "bridges.verl card_head charts cli plots report tuning.settings",
    "a small world of its own": "lab stress",
    "a protocol": "extract.Extractor search.Search rewards.Reward",
    "what others here are given to": "bench.eval_page bench.kept bench.outcomes.score_text "
    "bench.shortqa.GradeAnswer "
    "extract.statements.shown guards.think_and_answer train.judging verifier.presets.verify "
    "search.given.Ranking search.words.query_words papers.intuitor papers.truthrl.truthrl_reasoning",
    "answers of at most 2,000 characters, in a process with a deadline": "bench.reasoning.Mathematician",
    "a model's own limit": "letter_preference local preference.SelfReference",
    "a server is asked": "remote_reward search.web.WebSearch",
    "a query of at most 4,000 characters, to SQLite": "search.bm25 search.index",
    "a digest of it is all": "server.ledger",
    "an own test of its time": "train.credit",
    "a text of factrl's own": "extract.words.word_set",
}
_NAMES = (
    "answer body claim claims completion content document evidence fact gold inside line part prediction "
    "query question raw reply sentence solution_str text title wikitext"
)
TEXTS = frozenset(_NAMES.split())


def public_readers() -> Iterator[str]:
    """The public functions and methods of the package with a parameter that is a text."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text("utf-8")).body:
            inside = [("", node)]
            if isinstance(node, ast.ClassDef):
                inside = [] if node.name.startswith("_") else [(f"{node.name}.", part) for part in node.body]
            for owner, part in inside:
                if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    continue
                named = part.name == "__call__" or not part.name.startswith("_")
                given = (*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs)
                types = {ast.unparse(one.annotation) for one in given if one.annotation and one.arg in TEXTS}
                if named and types & {"str", "str | None", "Completion", "Claim", "Sequence[Claim]"}:
                    yield f"{module}.{owner}{part.name}"


def unlisted() -> list[str]:
    """The public readers that are neither timed nor excused."""
    timed = {name.partition(" (")[0] for name in READERS}
    excused = [name for names in ELSEWHERE.values() for name in names.split()]
    return [
        name
        for name in public_readers()
        if name not in timed and not any(f"{name}.".startswith(f"{one}.") for one in excused)
    ]


def called(reader: Reader) -> Reader:
    """The reader, with its own errors for answers; only its time matters here."""

    def call(raw: str) -> object:
        try:
            return reader(raw)
        except (Unscored, ValueError):
            return None

    return call
