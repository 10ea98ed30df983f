"""FSPO's reward beyond its worked cases: offsets, missing verdicts, claims smaller than a sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from factrl.errors import ConfigError, DataError
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.rewards.grading import Grader
from factrl.types import Claim, Completion, Example, Passage, Result, Verdict, VerdictLabel
from factrl.verifier import Check, Report, Verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges import NLIJudge
from judging import JudgeBy

BORN = Passage("Ada Reed was born in Ely.")
ELY = Example("Where was Ada Reed born?", ("Ely",), id="ely", evidence=(BORN,))


GONE = Verdict("unjudged", "by words", cause="gone")


def by_words(**labels: VerdictLabel) -> JudgeBy:
    """Says of a claim what its words stand for, or nothing when it has none of them."""
    return JudgeBy(lambda said: next((label for word, label in labels.items() if word in said), GONE))


def lines(text: str, question: str = "", topic: str = "") -> list[Claim]:
    """Claims that are clauses: the parts of a sentence around a comma."""
    del question, topic
    claims: list[Claim] = []
    start = 0
    for number, sentence in enumerate(text.splitlines()):
        for part in sentence.split(", "):
            at = text.index(part, start)
            claims.append(Claim(part, at, at + len(part), number))
        start += len(sentence) + 1
    return claims


def supplied(spec: str = "fspo", judge: JudgeBy | None = None, **knobs: object) -> Reward:
    reward = load_reward(spec).with_(
        verify=Verifier(lines, None, judge or by_words(true="supported")), **knobs
    )
    return reward.with_(grade=Grader()) if "grade" in reward.resources else reward


def think(text: str, answer: str = "Ely") -> str:
    return f"<think>{text}</think><answer>{answer}</answer>"


def signs(result: Result) -> list[int]:
    return [span.sign for span in result.spans]


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("one is true, one is true.", 1),
        ("one is true, one is false.", -1),
        ("one is open, one is true.", 1),
        ("one is open, one is false.", -1),
        ("one is open, two is open.", 0),
    ],
)
def test_a_sentence_of_several_claims(text: str, sign: int) -> None:
    judge = by_words(true="supported", false="refuted", open="unknown")
    result = supplied(judge=judge)(ELY, think(text))
    assert signs(result) == [sign]
    assert result.terms == {"answer": 1, "fact": sign}
    assert result.spans[0].start == 7
    assert result.spans[0].end == 7 + len(text)


def test_an_unjudged_claim_could_refute_its_sentence_unless_another_does() -> None:
    judge = by_words(true="supported", false="refuted")
    assert supplied(judge=judge)(ELY, think("one is true, one is lost.")).cause == "claims_unjudged"
    assert signs(supplied(judge=judge)(ELY, think("one is false, one is lost."))) == [-1]


@pytest.mark.parametrize(
    ("labels", "more", "taken"),
    [
        (("supported", "refuted", "unknown"), {}, True),
        (("unknown", "supported"), {}, False),  # HHEM: consistent or not
        (("supported", "refuted", "unknown"), {"threshold_refuted": None}, False),
        (("unknown", "supported"), {"threshold_refuted": None, "otherwise": "refuted"}, True),  # preset fspo
    ],
)
def test_a_verifier_that_never_refutes_is_refused_as_eq_8_has_three_verdicts(
    labels: tuple[str, ...], more: dict[str, Any], taken: bool
) -> None:
    judge: Any = NLIJudge(SimpleNamespace(identity="hhem", meanings=labels), **more)  # type: ignore[arg-type]
    verifier = Verifier(SentenceClaims(), None, judge)
    if taken:
        load_reward("fspo").with_(verify=verifier)
        return
    with pytest.raises(ConfigError, match=r"nli hhem .*verifier\.preset=fspo"):
        load_reward("fspo:mixed").with_(verify=verifier)


@pytest.mark.parametrize("cause", ["oversize", "unjudgeable", "over_limit", "unread_claim"])
def test_a_step_without_a_verdict_by_its_own_doing_is_no_better_than_a_false_one(cause: str) -> None:
    judge = JudgeBy(lambda _: Verdict("unknown", "by words", cause=cause))
    result = supplied(judge=judge)(ELY, think("one is false."))
    assert (signs(result), result.terms["fact"]) == ([-1], -1.0)


@pytest.mark.parametrize(("steps", "state"), [(39, "masked"), (40, "scored")])
def test_one_missing_verdict_is_borne_when_it_moves_the_mean_by_no_more_than_the_width(
    steps: int, state: str
) -> None:
    text = "\n".join([f"Fact number {number} is true." for number in range(steps - 1)] + ["One is lost."])
    result = supplied("fspo")(ELY, think(text))
    assert result.state == state
    if state == "scored":
        assert signs(result) == [1] * 39 + [0]
        assert result.terms["fact"] == pytest.approx(39 / 40)


def test_spans_of_text_beyond_ascii_are_characters() -> None:
    text = "Ada 🧪 is true.\n她出生于 true。"
    result = supplied()(ELY, Completion(f"{text}</think>\n<answer>Ely</answer>", prefill="Hm. <think>"))
    assert [text[span.start : span.end] for span in result.spans] == text.splitlines()
    assert signs(result) == [1, 1]


def test_a_think_part_that_the_prompt_began_is_judged_from_where_the_policy_went_on() -> None:
    result = supplied()(ELY, Completion(" It is true.</think><answer>Ely</answer>", prefill="<think>First."))
    assert [(span.start, span.end) for span in result.spans] == [(1, 12)]


def test_claims_of_sentences_that_do_not_exist_are_left_out() -> None:
    def verify(text: str, question: str = "", **_: object) -> Report:
        check = Check(Claim(text, 0, len(text), 7), (BORN,), Verdict("refuted", "x"))
        return Report(text, question, (check,))

    assert signs(supplied().with_(verify=verify)(ELY, think("a is true."))) == [0]


def test_questions_without_evidence() -> None:
    bare = Example("Where was Ada Reed born?", ("Ely",), id="bare")
    with pytest.raises(DataError, match=r"reward\.without_evidence=outcome"):
        load_reward("fspo").check_examples([ELY, bare])
    with pytest.raises(DataError, match=r"'Where was Ada Reed born\?' .*fspo"):
        supplied()(bare, think("a is true."))
    for variant in ("mixed", "outcome"):
        load_reward(f"fspo:{variant}").check_examples([ELY, bare])
    with pytest.raises(DataError, match="no accepted answers"):
        load_reward("fspo:outcome").check_examples([Example("Where?", evidence=(BORN,))])
    with pytest.raises(ConfigError, match="without_evidence='skip' is not refuse or outcome"):
        supplied(without_evidence="skip")(bare, think("a is true."))


def test_the_outcome_needs_no_verifier() -> None:
    assert load_reward("fspo:outcome").missing == ()  # Eq. 9: rules decide
    assert load_reward("fspo:outcome").with_(verifier="judge").missing == ("grade",)


@pytest.mark.parametrize("broken", ["{} So be it.", "{}</answer>", "Well: {}", "<think>{}"])
def test_leaving_the_form_never_pays(broken: str) -> None:
    """A wrong answer after refuted steps earned less than the same text with a tag too many."""
    reward = supplied("fspo", by_words(false="refuted"))
    whole = think("one is false.\ntwo is false.", "Krakow")
    assert reward(ELY, whole).value == -1
    assert reward(ELY, broken.format(whole)).value <= reward(ELY, whole).value


@pytest.mark.parametrize(
    ("text", "first", "neutral"),
    [
        ("a is true.\na is true.\na is true.", [1, 1, 1], [1, 0, 0]),
        ("a is true.\nA is  true.\nb is true.", [1, 1, 1], [1, 0, 1]),
        ("a is true, b is true.\na is true, c is true.", [1, 1], [1, 1]),  # it says something new
        ("a is false.\na is false.", [-1, -1], [-1, -1]),  # saying it again makes it no cheaper
        ("a is true.\na is false.\na is true.", [1, -1, 1], [1, -1, 0]),
        ("a is open.\na is open.", [0, 0], [0, 0]),
    ],
)
def test_a_repeat_is_as_the_first_time_or_neutral(text: str, first: list[int], neutral: list[int]) -> None:
    judge = by_words(true="supported", false="refuted", open="unknown")
    for knobs, expected in (({}, first), ({"repeats": "first"}, first), ({"repeats": "neutral"}, neutral)):
        result = supplied(judge=judge, **knobs)(ELY, think(text))
        assert signs(result) == expected
        assert result.terms["fact"] == pytest.approx(sum(expected) / len(expected))
    with pytest.raises(ConfigError, match="repeats='never' is not first or neutral"):
        supplied(repeats="never")(ELY, think(text))


def test_an_extractor_that_marks_repeats_gives_the_same_signs() -> None:
    text = "Ada was born in Ely. She may have moved. Ada was born in Ely."
    for repeats, expected in (("first", [1, 1, 1]), ("neutral", [1, 1, 0])):
        verify = Verifier(SentenceClaims(), None, by_words(Ada="supported", moved="supported"))
        assert signs(supplied(repeats=repeats).with_(verify=verify)(ELY, think(text))) == expected
