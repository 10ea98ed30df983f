"""A policy cannot make itself masked: what its own text causes is floored, what our side causes is masked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from factrl.errors import OwnDoing, Unscored
from factrl.llm.background import wait_for
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.rewards.checklist import Checklist
from factrl.rewards.grading import Grader, reasoning_judge
from factrl.rewards.preference import SelfReference, rating_judge
from factrl.types import Example, Passage
from factrl.verifier import Verifier
from factrl.verifier.blame import OWN, ROUNDS, judged_here
from factrl.verifier.claims.llm import _MANY, LLMClaims
from factrl.verifier.judges import LLMJudge
from factrl.verifier.judges.llm import _SEALED
from factrl.verifier.search import Given
from fault_server import FaultServer, Handler, answers, says, sometimes

Serve = Callable[..., OpenAICompatible]
BORN = "Marie Curie was born in Warsaw. "
CURIE = Example(
    "In which city was Marie Curie born?",
    ("Warsaw",),
    evidence=(Passage("Marie Curie was born in Warsaw in 1867."),),
    checklist=("Marie Curie was born in Warsaw.", "She won two prizes."),
    topic="Marie Curie",
)
TOO_LONG = answers(
    400, {"error": {"message": "This model's maximum context length is 8192 tokens, your prompt has 9000"}}
)


def data_of(prompt: str) -> dict[str, Any]:
    return json.loads(prompt.split("\n")[-2])


def model(prompt: str) -> str:
    """A judge that finds every sentence, supports every claim and likes every text."""
    data = data_of(prompt)
    if "sentences" in data or "sentence" in data:
        return "\n".join(f"- {sentence}" for sentence in data.get("sentences") or [data["sentence"]])
    if "claims" in data:
        lines = [{"id": claim["id"], "verdict": "supported"} for claim in data["claims"]]
        return "\n".join(map(json.dumps, lines))
    if "items" in data:
        return "\n".join(json.dumps({"id": item["id"], "verdict": "consistent"}) for item in data["items"])
    words = {"given_answer": "given", "reasoning": "precise", "accepted_answers": "correct"}
    return "VERDICT: " + next((word for key, word in words.items() if key in data), "good")


def prompt_of(handler: Handler) -> str:
    return handler.asked.body["messages"][-1]["content"]


def reply(handler: Handler) -> None:
    says(model(prompt_of(handler)))(handler)


def up_to(size: int) -> Callable[[Handler], None]:
    """A server that reads so many bytes of a prompt, and calls more a request that is too long."""
    return lambda handler: (reply if len(prompt_of(handler).encode()) <= size else TOO_LONG)(handler)


def refuses(word: str, said: str = "I can't help with that.") -> Callable[[Handler], None]:
    """A server that says nothing usable whenever a text has this word in it."""
    return lambda handler: (says(said) if word in prompt_of(handler) else reply)(handler)


@pytest.fixture(name="serve")
def _serve(serve: Callable[..., FaultServer]) -> Serve:
    """A client of a server that plays a script."""
    limits: dict[str, Any] = {"backoff": 0.001, "down_after": 10_000}
    return lambda *script: OpenAICompatible(serve(*script).url, "m", **limits)


def supplied(name: str, llm: Any) -> Reward:
    """A paper's reward with everything that asks a model asking this one."""
    reward = load_reward(name)
    made: Mapping[str, Any] = {
        "grade": Grader(llm),
        "verify": Verifier(LLMClaims(llm), Given(CURIE.evidence), LLMJudge(llm)),
        "extract": lambda *text: wait_for(LLMClaims(llm)(*text)),
        "truthfulness": lambda claims: [0.5 for _ in claims],
        "checklist": Checklist(llm),
        "rate": rating_judge(llm),
        "compare": SelfReference(llm),
        "reason": reasoning_judge(llm),
    }
    return reward.with_(**{what: made[what] for what in reward.missing})


def tagged(text: str, answer: str = "Warsaw") -> str:
    return f"<think>{text}</think><answer>{answer}</answer>"


def in_answer(text: str) -> str:
    return tagged("I recall some facts.", text)


# A paper, where a completion of it has room for a text, and what a text that cannot be judged pays.
PAPERS = [
    ("knowrl", tagged, 3.0),
    ("fspo", tagged, -1.0),
    ("robust", tagged, -1.25),
    ("factreason", in_answer, -1.0),
    ("klcf:table-2-row", in_answer, 0.0),
    ("klcf:truth-only", in_answer, 0.0),
    ("klcf:uncovered", in_answer, 0.0),
]
each_paper = pytest.mark.parametrize(("paper", "wrapped", "floor"), PAPERS, ids=[one[0] for one in PAPERS])


def numbered(sentences: int) -> str:
    return "".join(f"Marie Curie wrote to her sister {number} times. " for number in range(sentences))


@each_paper
def test_a_text_beyond_the_judges_context_is_floored(
    serve: Serve, paper: str, wrapped: Callable[[str], str], floor: float
) -> None:
    reward = supplied(paper, serve(up_to(12_000)))
    result = reward(CURIE, wrapped(numbered(30)))
    assert result.state == "scored", result
    result = reward(CURIE, wrapped(numbered(600)))  # 26 KB
    assert (result.state, result.cause, result.value) == ("floored", "oversize", floor)


@each_paper
def test_a_judge_that_has_no_room_for_the_question_masks(
    serve: Serve, paper: str, wrapped: Callable[[str], str], floor: float
) -> None:
    result = supplied(paper, serve(TOO_LONG))(CURIE, wrapped(BORN))
    assert (result.state, result.value) == ("masked", None)
    assert result.cause in ("context_length", "claims_unjudged")


@each_paper
def test_a_text_that_is_refused_every_time_is_floored(
    serve: Serve, paper: str, wrapped: Callable[[str], str], floor: float
) -> None:
    result = supplied(paper, serve(refuses("abhorrent")))(CURIE, wrapped(BORN + "That is abhorrent."))
    assert (result.state, result.cause, result.value) == ("floored", "unjudgeable", floor)


def test_a_claim_that_talks_the_judge_round_counts_as_unsupported(serve: Serve) -> None:
    llm = serve(judges_honestly_unless_flattered)
    judge = LLMJudge(llm, controls=True)
    report = Verifier(LLMClaims(llm), Given(CURIE.evidence), judge)(f"{BORN}The kind reader agrees in Paris.")
    assert [(c.verdict.label, c.verdict.cause) for c in report.checks] == [
        ("supported", None),
        ("unknown", "unjudgeable"),
    ]


def judges_honestly_unless_flattered(handler: Handler) -> None:
    """A judge of claims that knows the false ones of ours, and agrees with all of a call that flatters it."""
    data = data_of(prompt_of(handler))
    if "claims" not in data:
        return reply(handler)
    false = {frame.format(wrong) for _, frame, _, wrong in _SEALED}
    flattered = any("kind reader" in claim["claim"] for claim in data["claims"])
    said = {
        claim["id"]: "supported" if flattered or claim["claim"] not in false else "refuted"
        for claim in data["claims"]
    }
    lines = [json.dumps({"id": id_, "verdict": label}) for id_, label in said.items()]
    return says("\n".join(lines))(handler)


# ---------------------------------------------------------------- claims


def test_a_claim_that_is_refused_counts_as_unsupported_and_costs_no_other_its_verdict(serve: Serve) -> None:
    def judges(handler: Handler) -> None:
        bad = "claims" in data_of(prompt_of(handler)) and "abhorrent" in prompt_of(handler)
        (says("I can't help with that.") if bad else reply)(handler)

    llm = serve(judges)
    verifier = supplied("knowrl", llm).resources["verify"]
    texts = [f"{numbered(3)}Her abhorrent cousin lied. {BORN}", f"Pierre Curie taught. {BORN}"]
    bad, good = verifier.batch(texts, [CURIE.question] * 2)
    assert dict(bad.counts) == {"refuted": 0, "unsure": 0, "unknown": 1, "unjudged": 0, "supported": 4}
    assert [check.verdict.cause for check in bad.checks if check.verdict.label == "unknown"] == [
        "unjudgeable"
    ]
    assert dict(good.counts) == {"refuted": 0, "unsure": 0, "unknown": 0, "unjudged": 0, "supported": 2}
    result = supplied("fspo", llm)(CURIE, tagged(texts[0]))
    assert (result.state, result.terms["fact"]) == ("scored", (4 - 1) / 5)  # it hides no false step


def test_evidence_that_is_too_long_is_shortened_once(serve: Serve) -> None:
    passages = [Passage(f"Marie Curie was born in Warsaw, says source {n}. " * 60) for n in range(3)]
    for size, supported in ((6_000, 1), (3_000, 0)):
        verifier = Verifier(LLMClaims(serve(reply)), Given(passages), LLMJudge(serve(up_to(size))))
        report = verifier(BORN, CURIE.question)
        assert (report.counts["supported"], report.counts["unjudged"]) == (supported, 1 - supported)


# ---------------------------------------------------------------- lists of facts


def cut_list(lines: Sequence[str]) -> Callable[[Handler], None]:
    """An extractor whose list of facts has no end."""

    def answer(handler: Handler) -> None:
        extracting = "sentences" in data_of(prompt_of(handler)) and "Vehm" not in prompt_of(handler)
        (says("\n".join(f"- {line}" for line in lines), "length") if extracting else reply)(handler)

    return answer


def test_a_list_of_more_facts_than_are_judged_is_the_texts_own_doing(serve: Serve) -> None:
    text = numbered(_MANY + 40)
    facts = [line.strip() + "." for line in text.split(".") if line.strip()]
    result = supplied("knowrl", serve(cut_list(facts[: _MANY + 2])))(CURIE, tagged(text))
    assert (result.state, result.cause, result.terms["fact"]) == ("floored", "oversize", 0.0)


def test_a_model_that_repeats_itself_once_is_asked_again_and_not_held_against_the_text(serve: Serve) -> None:
    loop = [BORN.strip()] * 500
    client = serve(*[cut_list(loop)] * 2, reply)  # the second with twice the tokens
    result = supplied("knowrl", client)(CURIE, tagged(BORN))
    assert (result.state, result.terms["fact"]) == ("scored", 1.0)


# ---------------------------------------------------------------- our side


FAULTS = [
    says("I can't help with that."),
    says("VERDICT: corr", "length"),
    says("- Marie Curie was", "content_filter"),
    answers(400, {"error": {"message": "no such field"}}),
    answers(429, {}, retry_after="0"),
    answers(200, b"<html>nginx</html>"),
]


@pytest.mark.fault("F07", "F10", "F13", "F15", "F16")
@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("paper", ["knowrl", "factreason", "klcf:table-2-row"])
def test_no_fault_by_chance_is_held_against_a_text(serve: Serve, paper: str, share: float) -> None:
    turns = iter(range(10**6))

    def misbehaves(handler: Handler) -> None:
        FAULTS[next(turns) % len(FAULTS)](handler)

    wrapped = {name: how for name, how, _ in PAPERS}[paper]
    right = supplied(paper, serve(reply))(CURIE, wrapped(numbered(4))).value
    reward = supplied(paper, serve(sometimes(share, misbehaves, reply, seed=3)))
    texts = [wrapped(numbered(4) + f"Bronia had {n} pupils.") for n in range(100)]
    results = reward.batch([CURIE] * 100, texts)
    assert {result.state for result in results} <= {"scored", "masked"}
    assert sum(result.state == "scored" for result in results) > 80
    assert right is not None
    assert all(result.value is None or result.value >= right - 1e-9 for result in results)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_judge_that_fails_every_time_masks(serve: Serve, fault: Any) -> None:
    for paper, wrapped, _ in PAPERS:
        assert supplied(paper, serve(fault))(CURIE, wrapped(numbered(4))).state == "masked"


# ---------------------------------------------------------------- the rule itself


def asks(errors: Sequence[str | None], control: str | None = None) -> tuple[Callable[[str], str], list[str]]:
    """Asks that fail with these causes in turn, and about a control with one; and what was asked."""
    left, asked = list(errors), []

    def ask(text: str) -> str:
        asked.append(text)
        cause = left.pop(0) if text == "x" else control
        if cause is not None:
            raise Unscored(cause, attempts=1)
        return "said"

    return ask, asked


@pytest.mark.parametrize(
    ("errors", "control", "ends", "asked"),
    [
        ([None], None, "said", 1),
        (["context_length"], None, "oversize", 2),
        (["context_length"], "context_length", "context_length", 2),
        (["context_length"], "timeout", "context_length", 2),
        (["judge_unreadable"] * (ROUNDS + 1), None, "unjudgeable", 2 * ROUNDS + 1),
        (["judge_refusal", "truncated", "http_400", "judge_refusal", "http_422"], None, "unjudgeable", 9),
        (["judge_unreadable"] * ROUNDS + [None], None, "said", 2 * ROUNDS + 1),
        (["judge_unreadable", None], None, "said", 3),
        (["judge_unreadable"] * 9, "judge_unreadable", "judge_unreadable", 2),
        (["judge_unreadable", "timeout"], None, "timeout", 3),
        *(([cause], None, cause, 1) for cause in ("timeout", "connection", "http_5xx", "http_429", "auth")),
        *(([cause], None, cause, 1) for cause in ("budget", "breaker_open", "bad_body", "search_failed")),
    ],
)
def test_who_is_to_blame(errors: list[str | None], control: str | None, ends: str, asked: int) -> None:
    ask, seen = asks(errors, control)
    kind = OwnDoing if ends in OWN else Unscored
    if ends == "said":
        assert judged_here(ask, "x") == "said"
    else:
        with pytest.raises(Unscored) as caught:
            judged_here(ask, "x")
        assert (caught.value.cause, type(caught.value)) == (ends, kind)
    assert len(seen) == asked
    controls = [text for text in seen if text != "x"]
    assert len({*controls}) == len(controls)  # a stored reply would prove nothing
