"""A policy cannot make itself masked: what its own text causes is floored, what our side causes is masked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import Barrier
from time import sleep
from typing import Any

import pytest

import fault_server as fs
from factrl.errors import PolicyFault, Unscored
from factrl.llm import FakeLLM
from factrl.llm.background import wait_for
from factrl.llm.judging import OWN, ROUNDS, judged, judged_here
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.rewards.checklist import Checklist
from factrl.rewards.grading import Grader, reasoning_judge
from factrl.rewards.preference import SelfReference, rating_judge
from factrl.train.search import SearchEnvironment
from factrl.types import Example, Passage
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.claims.llm import _MANY, LLMClaims
from factrl.verifier.judges import LLMJudge
from factrl.verifier.judges.llm import _SEALED
from factrl.verifier.search import Given, WebSearch
from fault_server import FaultServer, Handler, answers, completion, says, sometimes

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
    """The data of a call; none of a ping."""
    return json.loads(prompt.split("\n")[-2]) if "\n" in prompt else {}


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
    words = {
        "given_answer": "given",
        "reasoning": "precise",
        "accepted_answers": "correct",
        "checked_answer": "consistent",
        "reply": "offers",
    }
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
    return lambda *script, **more: OpenAICompatible(serve(*script).url, "m", **{**limits, **more})


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
    ("klcf:factscore", in_answer, 0.0),
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


# ---------------------------------------------------------------- every way to refuse


def without_text(**message: Any) -> Callable[[Handler], None]:
    """A completion whose message has no content, but this."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, **message},
        "finish_reason": "stop",
    }
    return answers(200, completion(choices=[choice]))


BLOCKED = b"<html><head><title>Request blocked</title></head><body>Reference: 18.2f</body></html>"
WAYS: dict[str, Callable[[Handler], None]] = {
    **{str(code): answers(code, {"error": {"message": "blocked"}}) for code in (*range(400, 432), 451, 499)},
    **{str(code): answers(code, b"oops") for code in (500, 501, 502, 503, 504, 520, 529)},
    **{
        str(code): answers(code, b"", location="https://waf.example/blocked")
        for code in (301, 302, 303, 307, 308)
    },
    "429 soon": answers(429, {}, retry_after="0"),
    "429 much later": answers(429, {}, retry_after="0.01"),
    "a block page": answers(200, BLOCKED),
    "a block page of 403": answers(403, BLOCKED),
    "an empty body": answers(200, b""),
    "204": answers(204, b""),
    "an error in a 200": answers(200, {"error": {"code": "content_policy_violation", "message": "no"}}),
    "an error as a word": answers(200, {"error": "content_policy_violation"}),
    "an error in the choice": answers(
        200, completion(choices=[{"error": {"message": "no"}, "finish_reason": "error"}])
    ),
    "no choices": answers(200, completion(choices=[])),
    "choices that are null": answers(200, completion(choices=None)),
    "a choice without a message": answers(200, completion(choices=[{}])),
    "filtered without content": answers(200, completion(None, "content_filter")),  # type: ignore[arg-type]
    "filtered in the middle": says("VERDICT: corr", "content_filter"),
    "filtered, in another word": says("", "SAFETY"),
    "cut": says("VERDICT: corr", "length"),
    "content that is null": without_text(),
    "content that is a number": without_text(content=7),
    "content without parts": without_text(content=[]),
    "a refusal": without_text(refusal="I can't help with that."),
    "a refusal as a part": without_text(content=[{"type": "refusal", "refusal": "No."}]),
    "thoughts alone": without_text(reasoning_content="hm"),
    "a call of a tool": without_text(tool_calls=[{"type": "function"}]),
    "nothing": says(""),
    "words": says("I can't help with that."),
    "other words": says("Let us talk about something else."),
    "a text cut in its JSON": answers(200, json.dumps(completion()).encode()[:-9]),
    "another encoding": answers(200, b"x", content_encoding="br"),
    "a reset": fs.reset,
    "a body that ends early": fs.short,
    "no HTTP": fs.garbage,
}
"""How a server can refuse: every failure that the client knows, but those that take time."""
SLOW = {"no answer": fs.hang, "a byte now and then": fs.drip}
TEXT = f"{BORN}Bronia was abhorrent."
ASKED: dict[str, tuple[str, Callable[[str], str], str]] = {
    "extraction": ("knowrl", tagged, "sentences"),
    "judge": ("knowrl", tagged, "claims"),
    "checklist": ("klcf:table-2-row", in_answer, "items"),
    "rating": ("klcf:table-2-row", in_answer, "answer"),
    "preference": ("factreason", in_answer, "given_answer"),
    "reasoning": ("truthrl:reasoning-multiplicative", lambda text: f"{text} \\boxed{{Warsaw}}", "reasoning"),
    "grade": ("truthrl", lambda text: f"\\boxed{{A town that is {text.split()[-1]}}}", "accepted_answers"),
}
"""What is asked about a text: by which paper, where the text stands, and what the data of the call has."""


def refusing(way: Callable[[Handler], None], key: str) -> Callable[[Handler], None]:
    """A server that refuses one kind of call in this way, wherever the text has a word in it."""
    return lambda handler: (
        way if "abhorrent" in prompt_of(handler) and key in data_of(prompt_of(handler)) else reply
    )(handler)


@pytest.mark.parametrize("asked", ASKED)
def test_no_way_of_refusing_masks_a_text_and_none_that_meets_all_floors_it(asked: str) -> None:
    paper, wrapped, key = ASKED[asked]
    refused, innocent = wrapped(TEXT), wrapped(TEXT.replace("abhorrent", "kind"))
    wrong: dict[str, Any] = {}
    with FaultServer(reply) as server:
        reward = supplied(paper, OpenAICompatible(server.url, "m", backoff=0.001, down_after=10**6))
        honest = reward(CURIE, innocent).value or 0.0
        for name in [*WAYS][[*ASKED].index(asked) % 3 :: 3]:  # so two kinds of call or three meet each way
            way = WAYS[name]
            server.play(refusing(way, key))
            found = reward(CURIE, refused)
            if found.value is None or found.value >= honest or reward(CURIE, innocent).value != honest:
                wrong[f"{name} for these words"] = found
            server.play(way)
            if (found := reward(CURIE, refused)).state != "masked":
                wrong[f"{name} for all"] = found
    assert not wrong


@pytest.mark.parametrize("way", ["words", "403", "500"])
@pytest.mark.parametrize("asked", ASKED)
def test_no_two_judges_share_a_control(serve: Serve, asked: str, way: str) -> None:
    """One that is down floors no text of another's, nor masks it."""
    paper, wrapped, key = ASKED[asked]
    both, met = Barrier(2), set[int]()

    def behaves(handler: Handler, how: Callable[[Handler], None]) -> None:
        if "Vehm" in prompt_of(handler) and key in data_of(prompt_of(handler)) and id(how) not in met:
            met.add(id(how))  # the first control of each is under way until the other's is too
            both.wait(0.5)
        how(handler)

    refuses_some, is_down = (refusing(WAYS[way], key), lambda handler: WAYS[way](handler))
    some, none = (serve(lambda handler, how=how: behaves(handler, how)) for how in (refuses_some, is_down))
    texts = (TEXT, TEXT.replace("abhorrent", "kind"))
    with ThreadPoolExecutor(2) as pool:
        guilty, innocent = pool.map(
            lambda llm, text: supplied(paper, llm)(CURIE, wrapped(text)), (some, none), texts
        )
    honest = supplied(paper, serve(reply))(CURIE, wrapped(texts[1])).value
    assert innocent.state == "masked"
    assert guilty.value is not None
    assert guilty.value < (honest or 0.0)


@pytest.mark.parametrize("asked", ["extraction", "judge", "grade"])
@pytest.mark.parametrize("way", SLOW)
def test_a_text_that_makes_a_server_hang_is_floored(serve: Serve, asked: str, way: str) -> None:
    paper, wrapped, key = ASKED[asked]
    reward = supplied(paper, serve(refusing(SLOW[way], key), timeout_attempt=0.3, max_attempts=2))
    honest = supplied(paper, serve(reply))(CURIE, wrapped(TEXT.replace("abhorrent", "kind"))).value
    refused = reward(CURIE, wrapped(TEXT))
    assert refused.value is not None
    assert refused.value < (honest or 0.0)
    assert (
        supplied(paper, serve(SLOW[way], timeout_attempt=0.1, max_attempts=2))(CURIE, wrapped(TEXT)).state
        == "masked"
    )


@pytest.mark.parametrize("way", ["500", "403", "a block page", "a reset"])
def test_many_texts_that_a_server_refuses_are_no_server_that_is_down(way: str) -> None:
    paper, _, key = ASKED["grade"]
    texts = [f"\\boxed{{Town {n} {'kind' if n % 4 else 'abhorrent'}}}" for n in range(24)]
    texts += [text.replace("kind", "abhorrent") for text in texts]
    with FaultServer(refusing(WAYS[way], key)) as server:
        llm = OpenAICompatible(server.url, "m", backoff=0.001, probe_every=0.05, pause=20.0)
        found = supplied(paper, llm).batch([CURIE] * len(texts), texts)
        assert {
            (text.count("abhorrent"), result.value) for text, result in zip(texts, found, strict=True)
        } == {
            (0, 1.0),
            (1, -1.0),
        }
        server.play(WAYS[way])  # and what then meets everyone is an outage
        down = supplied(paper, OpenAICompatible(server.url, "m", backoff=0.001, probe_every=0.01, pause=0.2))
        assert {result.state for result in down.batch([CURIE] * 24, texts[:24])} == {"masked"}


def results(handler: Handler) -> None:
    answers(200, {"organic": [{"snippet": BORN, "title": "Marie Curie", "link": "https://x.example"}]})(
        handler
    )


@pytest.mark.parametrize("share", [False, True], ids=["claim by claim", "shared"])
def test_no_search_that_is_refused_masks_a_text(share: bool) -> None:
    wrong: dict[str, Any] = {}
    with FaultServer(results) as server:
        limits: dict[str, Any] = {"backoff": 0.001, "down_after": 10**6}
        search = WebSearch(server.url, "key", **limits)
        judge = LLMJudge(FakeLLM(lambda messages: model(messages[-1]["content"])))
        verify = Verifier(SentenceClaims(), search, judge, share=share)
        for name in [*WAYS][::3] if share else WAYS:
            way = WAYS[name]
            if name.startswith(
                ("words", "other words", "nothing", "cut", "filtered", "thoughts", "a call", "content")
            ):
                continue  # what only a model says

            def refuses_words(handler: Handler, way: Callable[[Handler], None] = way) -> None:
                (way if "abhorrent" in handler.asked.body["q"] else results)(handler)

            server.play(refuses_words)
            found = {c.claim.text: c.verdict.label for c in verify(TEXT, CURIE.question).checks if c.verdict}
            if found != {
                BORN.strip(): "supported",
                "Bronia was abhorrent.": "unknown",
            }:
                wrong[name] = found
            episode = SearchEnvironment(search)
            episode.search("abhorrent")
            if episode.failed is not None:
                wrong[f"{name}, by the policy itself"] = episode.failed
            server.play(way)
            found = verify(TEXT, CURIE.question)
            if found.counts["unjudged"] != 2:
                wrong[f"{name} for all"] = found.counts
    assert not wrong


# ---------------------------------------------------------------- claims


def test_a_claim_that_is_refused_counts_as_unsupported_and_costs_no_other_its_verdict(serve: Serve) -> None:
    def judges(handler: Handler) -> None:
        bad = "claims" in data_of(prompt_of(handler)) and "abhorrent" in prompt_of(handler)
        (says("I can't help with that.") if bad else reply)(handler)

    llm = serve(judges)
    verifier = supplied("knowrl", llm).resources["verify"]
    verifier.own_subject = False  # the evidence has none of these numbers
    texts = [f"{numbered(3)}Her abhorrent cousin lied. {BORN}", f"Pierre Curie taught. {BORN}"]
    bad, good = verifier.batch(texts, [CURIE.question] * 2)
    assert dict(bad.counts) == {"refuted": 0, "unsure": 0, "unknown": 1, "unjudged": 0, "supported": 4}
    assert [check.verdict.cause for check in bad.checks if check.verdict.label == "unknown"] == [
        "unjudgeable"
    ]
    assert dict(good.counts) == {"refuted": 0, "unsure": 0, "unknown": 0, "unjudged": 0, "supported": 2}
    fspo = supplied("fspo", llm)
    fspo.resources["verify"].own_subject = False
    result = fspo(CURIE, tagged(texts[0]))
    assert (result.state, result.terms["fact"]) == ("scored", (4 - 1) / 5)  # it hides no false step


def test_evidence_that_is_too_long_is_shortened_once(serve: Serve) -> None:
    passages = [Passage(f"Marie Curie was born in Warsaw, says source {n}. " * 60) for n in range(3)]
    for size, supported in ((6_000, 1), (3_000, 0)):
        verifier = Verifier(
            LLMClaims(serve(reply)), Given(passages), LLMJudge(serve(up_to(size))), own_subject=False
        )
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


FAULTS = [*WAYS.values()]


@pytest.mark.parametrize("paper", ["knowrl", "factreason", "klcf:table-2-row"])
def test_no_fault_by_chance_is_held_against_a_text(serve: Serve, paper: str) -> None:
    def misbehaves() -> Callable[[Handler], None]:
        turns = cycle(FAULTS)
        return sometimes(0.2, lambda handler: next(turns)(handler), reply, seed=3)

    wrapped = {name: how for name, how, _ in PAPERS}[paper]
    right = supplied(paper, serve(reply))(CURIE, wrapped(numbered(4))).value
    texts = [wrapped(numbered(4) + f"Bronia had {n} pupils.") for n in range(100)]
    assert right is not None
    for at_once in (64, 1):
        server = serve(misbehaves(), max_concurrency=at_once)
        results = supplied(paper, server).batch([CURIE] * 100, texts)
        assert {result.state for result in results} <= {"scored", "masked"}
        assert all(result.value is None or result.value >= right - 1e-9 for result in results)
    # At once the threads' order says which requests fail, and one that all texts share masks them all.
    assert sum(result.state == "scored" for result in results) > 80


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_judge_that_fails_every_time_masks(serve: Serve, number: int) -> None:
    paper, wrapped, _ = PAPERS[number % len(PAPERS)]
    assert supplied(paper, serve(FAULTS[number]))(CURIE, wrapped(numbered(4))).state == "masked"


# ---------------------------------------------------------------- the rule itself

OWN_13 = ("unjudgeable", 2 * ROUNDS + 1)


def asks(
    errors: Sequence[str | None], control: str | None = None, attempts: int = 1
) -> tuple[Callable[[str], str], list[str]]:
    """Asks that fail with these causes in turn, and about a control with one; and what was asked."""
    left, asked = list(errors), []

    def ask(text: str) -> str:
        asked.append(text)
        cause = left.pop(0) if text == "x" else control
        if cause is not None:
            raise Unscored(cause, attempts=attempts)
        return "said"

    return ask, asked


@pytest.mark.parametrize(
    ("errors", "control", "ends", "asked"),
    [
        ([None], None, "said", 1),
        (["context_length"] * (ROUNDS + 1), None, "oversize", 2 * ROUNDS + 1),
        (["context_length", None], None, "said", 3),
        (["context_length"], "context_length", "context_length", 2),
        (["context_length"], "timeout", "context_length", 2),
        (["judge_unreadable"] * (ROUNDS + 1), None, "unjudgeable", 2 * ROUNDS + 1),
        (
            ["judge_refusal", "truncated", "http_400", "auth", "http_403", "no_text", "redirect"],
            None,
            *OWN_13,
        ),
        (["judge_unreadable"] * ROUNDS + [None], None, "said", 2 * ROUNDS + 1),
        (["judge_unreadable", None], None, "said", 3),
        (["judge_unreadable"] * 9, "judge_unreadable", "judge_unreadable", 2),
        (["judge_unreadable", "timeout"] + ["http_403"] * 5, None, *OWN_13),
        *(([cause] * 7, None, *OWN_13) for cause in ("auth", "redirect", "search_failed")),
        *(
            ([cause] * 7, None, "unjudgeable", 14)
            for cause in ("timeout", "connection", "http_5xx", "bad_body")
        ),
        *(([cause, None], None, "said", 3) for cause in ("timeout", "connection", "http_429", "auth")),
        *(([cause], cause, cause, 2) for cause in ("timeout", "connection", "http_5xx", "http_429", "auth")),
        *(([cause], None, cause, 1) for cause in ("budget", "breaker_open", "deadline", "no_evidence")),
        (["auth", "budget"], None, "budget", 3),
    ],
)
def test_who_is_to_blame(errors: list[str | None], control: str | None, ends: str, asked: int) -> None:
    ask, seen = asks(errors, control)
    kind = PolicyFault if ends in OWN else Unscored
    if ends == "said":
        assert judged_here(ask, "x") == "said"
    else:
        with pytest.raises(Unscored) as caught:
            judged_here(ask, "x")
        assert (caught.value.cause, type(caught.value)) == (ends, kind)
    assert len(seen) == asked
    controls = [text for text in seen if text != "x"]
    assert len({*controls}) == len(controls)  # a stored reply would prove nothing


@pytest.mark.parametrize(("cause", "calls"), [("timeout", 2), ("connection", 3), ("http_5xx", 3)])
def test_calls_that_tried_several_times_need_fewer_rounds(cause: str, calls: int) -> None:
    ask, seen = asks([cause] * 9, attempts=4)
    with pytest.raises(PolicyFault):
        judged_here(ask, "x")
    assert [text == "x" for text in seen] == [True, False] * calls  # and a control after each


def test_a_control_is_as_long_as_a_text_to_which_no_answer_came() -> None:
    """A slow server gives none to long texts first, and that is not their doing."""

    def ask(text: str) -> str:
        if len(text) > 1_000:
            raise Unscored("timeout", attempts=4)
        return "said"

    with pytest.raises(Unscored) as caught:
        judged_here(ask, "x" * 5_000)
    assert (caught.value.cause, type(caught.value)) == ("timeout", Unscored)


def test_a_caller_that_is_cancelled_leaves_the_control_to_the_others() -> None:
    async def ask(text: str) -> str:
        if text.startswith("x"):
            raise Unscored("timeout", attempts=4)
        await asyncio.sleep(0.2)
        return "said"

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(judged(ask, f"x{n}", about="Where?")) for n in range(3)]
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        return [type(end) for end in await asyncio.gather(*tasks, return_exceptions=True)]

    assert asyncio.run(main()) == [PolicyFault, asyncio.CancelledError, PolicyFault]


def test_texts_of_one_question_share_the_control_of_a_server_that_is_down() -> None:
    asked: list[str] = []
    everyone = Barrier(8)

    def ask(text: str) -> str:
        asked.append(text)
        if text.startswith("text"):
            everyone.wait(10)
        else:
            sleep(0.5)
        raise Unscored("timeout", attempts=4)

    def outcome(number: int) -> type[Unscored]:
        with pytest.raises(Unscored) as caught:
            judged_here(ask, f"text {number}", about="Where?")
        return type(caught.value)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(outcome, range(8))) == {Unscored}
    assert len(asked) == 8 + 1
