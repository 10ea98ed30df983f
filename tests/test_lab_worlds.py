"""The made-up worlds: who is told how often, oracles that are exact, and what the papers' own rewards pay."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from factrl.errors import ConfigError
from factrl.lab import ABSTENTION, TIERS, TURN, make_world, supplied, turns_of
from factrl.lab.longform import EMPTY, VERBS, Longform, checklist, compare, extract, rate
from factrl.lab.people import LEVELS, VALUES, Confidence, People
from factrl.lab.search import DOCUMENTED, SEARCHES, Search
from factrl.lab.steps import Steps, verify
from factrl.lab.tables import table_of
from factrl.papers import form_of
from factrl.types import Completion, Example, Passage

PEOPLE, STEPS, LONG = People(per_tier=12), Steps(), Longform()
ADA = PEOPLE.test[0]


@pytest.mark.parametrize("name", ["people", "confidence", "steps", "longform", "search"])
def test_a_world_is_its_seed_and_says_only_what_its_model_can_write(name: str) -> None:
    one, same, other = make_world(name, 0), make_world(name, 0), make_world(name, 1)
    told = [*one.pretraining()]
    assert told == [*same.pretraining()] != [*other.pretraining()]
    assert {e.topic for e in one.train}.isdisjoint(e.topic for e in one.test)
    for split in (one.train, one.test):
        tiers = Counter(e.meta["tier"] for e in split)
        assert max(tiers.values()) - min(tiers.values()) <= 1
    said = {word for pair in told for text in pair for word in text.split()}
    asked = {word for e in (*one.train, *one.test) for word in one.prompt(e).split()}
    assert (said - {TURN}) | asked <= {*one.words}
    assert len(one.words) == len({*one.words})
    assert max(len(turn) for _, text in told for turn in turns_of(text)[::2]) < one.max_new_tokens


# People


def test_tiers_are_told_as_often_as_they_say() -> None:
    told: dict[str, Counter[str]] = {}
    for question, answer in PEOPLE.pretraining():
        told.setdefault(question, Counter())[answer] += 1
    for example in (*PEOPLE.train, *PEOPLE.test):
        answers = told.get(example.question, Counter())
        abstained = answers.pop(ABSTENTION, 0)
        if example.meta["tier"] == "known":
            assert 25 - abstained == answers[example.answers[0]] == answers.total()
        elif example.meta["tier"] == "half":
            assert answers.total() + abstained in (12, 13)
        else:
            assert not answers
    half = [e for e in PEOPLE.train if e.meta["tier"] == "half"]
    right = sum(told[e.question][e.answers[0]] for e in half) / sum(told[e.question].total() for e in half)
    assert 0.5 < right < 0.7  # 20 to 60 % of them say something else
    answers = Counter(answer for _, answer in PEOPLE.pretraining())
    assert 0.03 < answers[ABSTENTION] / answers.total() < 0.05


@pytest.mark.parametrize("form", ["boxed", "tags", "text"])
@pytest.mark.parametrize("words", ["Oakford", ABSTENTION, "", "Oakford bacon"])
def test_words_are_found_where_they_stand(form: str, words: str) -> None:
    wrapped = PEOPLE.wrap(ADA, words, form)  # pyright: ignore[reportArgumentType]
    assert len(wrapped.starts) == len(words.split())
    for word, start in zip(words.split(), wrapped.starts, strict=True):
        assert wrapped.text.startswith(word, start)


@pytest.mark.parametrize(
    ("spec", "right", "abstained", "wrong"),
    [
        ("truthrl:ternary", 1, 0, -1),
        ("truthrl:reasoning-multiplicative", 2, 0, -1),
        ("knowrl", 1 + 2 + 1, 1 + 1 + 0, 1 - 1 + 0),
    ],
)
def test_rewards_run_unchanged(spec: str, right: float, abstained: float, wrong: float) -> None:
    reward = supplied(PEOPLE, spec)
    other = next(value for value in VALUES["city"] if value != ADA.answers[0])
    form = "boxed" if spec.startswith("truthrl") else "tags"
    texts = (PEOPLE.wrap(ADA, words, form).text for words in (ADA.answers[0], ABSTENTION, other))
    assert [reward(ADA, text).value for text in texts] == pytest.approx([right, abstained, wrong])


def test_the_credit_of_a_sentence_is_that_of_its_answer() -> None:
    for words, sign in ((ADA.answers[0], 1), ("bacon", -1)):
        wrapped = PEOPLE.wrap(ADA, words, "tags")
        (span,) = supplied(PEOPLE, "fspo")(ADA, wrapped.text).spans
        assert span.start <= wrapped.starts[0] < span.end
        assert span.sign == sign


def test_measures_of_people() -> None:
    measured = PEOPLE.measure([(ADA, ADA.answers[0]), (ADA, ABSTENTION), (ADA, "bacon")] * 2)
    shares = {"accuracy": 1 / 3, "abstention": 1 / 3, "hallucination": 1 / 3, "truthfulness": 0.0}
    assert measured == pytest.approx({of + name: v for of in ("", "known/") for name, v in shares.items()})


# Confidence

SURE = Confidence(per_tier=12)
ASKED = SURE.test[0]


@pytest.mark.parametrize(
    ("spec", "said", "value"),
    [
        ("rlcr", "{right} 90", 1 - 0.1**2),
        ("rlcr", "{right}", -2),  # no confidence
        ("truthrl:ternary", "{right} 10", 1),
        ("truthrl:ternary", "I don't know 70", 0),
        ("threshold:bounded", "bacon 10", -ASKED.meta["threshold"]),
    ],
)
def test_a_confidence_is_for_the_rewards_that_read_one(spec: str, said: str, value: float) -> None:
    reward = supplied(SURE, spec)
    words = said.format(right=ASKED.answers[0])
    wrapped = SURE.wrap(ASKED, words, form_of(spec, reward))
    assert reward(ASKED, wrapped.text).value == pytest.approx(value)
    assert len(wrapped.starts) == len(words.split())


def test_a_question_says_its_threshold_and_an_answer_is_measured_with_its_confidence() -> None:
    at = {e.question.split()[0]: e.meta["threshold"] for e in (*SURE.train, *SURE.test)}
    assert at == {level: int(level) / 100 for level in LEVELS}
    measured = SURE.measure(
        [(ASKED, f"{ASKED.answers[0]} 90"), (ASKED, "bacon 90"), (ASKED, "I don't know 10")]
    )
    assert measured["accuracy"] == pytest.approx(1 / 3)
    assert measured["ece"] == pytest.approx(0.4)  # half of the answers are right
    assert measured["brier"] == pytest.approx((0.1**2 + 0.9**2) / 2)
    assert "ece" not in SURE.measure([(ASKED, "I don't know 10")])
    with pytest.raises(ConfigError, match="reads a confidence, which nobody states in the world 'people'"):
        table_of(["rlcr"], "people")


# Search

LOOKED = Search(people=60)
HAS = {kind: next(e for e in LOOKED.test if e.meta["documents"] == kind) for kind in DOCUMENTED}


def looked_up(example: Example, answer: str, searches: int = 1) -> str:
    """A transcript with so many searches for what is asked, and then an answer; `#` is a passage's number.

    The number is that of the passage that states the answer, or of the first one."""
    said = ""
    for _ in range(searches):
        said = f"{said} search {example.meta['attribute']} of {example.topic}".strip()
        told = LOOKED.reply(example, said)
        assert told is not None
        said += f" {TURN} {told} {TURN}"
    shown = LOOKED.answer(example, said).shown
    number = next((n for n, p in enumerate(shown, 1) if p.text.endswith(answer.split()[0])), 1)
    return f"{said} {answer}".replace("#", str(number))


def test_documents_say_what_their_kind_says() -> None:
    for example in (*LOOKED.train, *LOOKED.test):
        shown = LOOKED.answer(example, looked_up(example, "I don't know")).shown
        about = [p.text.split()[-1] for p in shown if p.title == example.topic]
        right = about.count(example.answers[0])
        kind = example.meta["documents"]
        assert (len(about), right) in {"right": {(1, 1)}, "none": {(0, 0)}, "torn": {(2, 0), (2, 1)}}.get(
            kind, {(1, 0)}
        )
        assert len({p.text for p in shown}) == 2
    assert {e.meta["documents"] for e in LOOKED.test} == {*DOCUMENTED}


def test_a_tool_answers_searches_up_to_a_limit_and_nothing_else() -> None:
    example = HAS["right"]
    spent = looked_up(example, f"search city of {example.topic}", SEARCHES)
    assert LOOKED.reply(example, spent) is None
    assert LOOKED.wrap(example, spent, "boxed").text == ""  # no answer, so a reward floors it
    assert LOOKED.reply(example, "I don't know") is None
    assert LOOKED.reply(example, "") is None
    odd = LOOKED.reply(example, "search search of")  # whatever is searched for, a search shows two passages
    assert odd is not None
    assert len(odd.split()) == 12
    for way in LOOKED.ways:
        assert LOOKED.asked(way).reply(example, f"search city of {example.topic}") is None
    given = LOOKED.asked("given")
    assert given.answer(given.test[0], "I don't know").shown == given.test[0].evidence


@pytest.mark.parametrize(
    ("kind", "answer", "searches", "measured"),
    [
        ("right", "{right} [#]", 1, (1, 1, None, 1)),
        ("right", "{right}", 1, (1, 1, None, 0)),  # nothing is cited
        ("right", "{right} [1] [2]", 1, (1, 1, None, 0)),  # a citation beside it
        ("right", "I don't know", 1, (0, 0, 0, None)),
        ("none", "I don't know", 1, (0, None, 1, None)),
        ("none", "Oakford bacon [1]", 1, (0, None, None, 0)),
    ],
)
def test_measures_of_search(
    kind: str, answer: str, searches: int, measured: tuple[float | None, ...]
) -> None:
    example = HAS[kind]
    text = looked_up(example, answer.format(right=example.answers[0]), searches)
    found = LOOKED.measure([(example, text)])
    names = ("accuracy", "answerable", "precision", "supported")
    expected = dict(zip(names, measured, strict=True))
    assert {n: found.get(n) for n in names} == {**expected, "answerable": expected["answerable"] or 0.0}
    assert found["searches"] == searches


def test_a_reward_reads_the_last_turn_and_what_was_shown() -> None:
    example = HAS["right"]
    text = looked_up(example, f"{example.answers[0]} [#]")
    wrapped = LOOKED.wrap(example, text, "boxed")
    assert wrapped.text[:-2] == f"\\boxed{{{example.answers[0]}}} ["
    assert wrapped.shown is not None
    assert [p.text for p in wrapped.shown if example.answers[0] in p.text] == [
        f"{example.topic} {example.meta['attribute']} {example.answers[0]}"
    ]
    words = [(word, start) for word, start in zip(text.split(), wrapped.starts, strict=True) if start >= 0]
    assert [word for word, _ in words] == text.split()[-2:]
    assert all(wrapped.text.startswith(word, start) for word, start in words)
    for spec, value in (("truthrl:ternary", 1), ("bapo:fixed", 1)):
        reward = supplied(LOOKED, spec)
        said = LOOKED.wrap(example, text, form_of(spec, reward))
        assert reward(example, Completion(said.text)).value == value


# Steps

FACTS = "Mira Volt works at Arden . Arden is in Brone . Brone is in Kalt ."
MIRA = Example(
    "In which country does Mira Volt work ?",
    ("Kalt",),
    topic="Mira Volt",
    evidence=(Passage(FACTS),),
    meta={"tier": "known"},
)
RIGHT = f"{FACTS} so Kalt"
LUCKY = "Mira Volt works at Famor . Famor is in Brone . Brone is in Kalt . so Kalt"  # -1, unknown, +1
WRONG = "Mira Volt works at Arden . Arden is in Famel . Famel is in Fanor . so Fanor"  # +1, -1, unknown


@pytest.mark.parametrize(
    ("completion", "answer", "fact", "signs"),
    [
        (RIGHT, 1.0, 1.0, [1, 1, 1]),
        (LUCKY, 1.0, 0.0, [-1, 0, 1]),
        (WRONG, 0.0, 0.0, [1, -1, 0]),
        ("Mira Volt works at Arden . so Kalt", 1.0, 1.0, [1]),
    ],
)
def test_fspo_pays_and_signs_the_steps(completion: str, answer: float, fact: float, signs: list[int]) -> None:
    wrapped = STEPS.wrap(MIRA, completion, "tags")
    result = supplied(STEPS, "fspo")(MIRA, wrapped.text)
    assert (result.state, dict(result.terms)) == ("scored", {"answer": answer, "fact": fact})
    assert [span.sign for span in result.spans] == signs
    words = list(zip(completion.split(), wrapped.starts, strict=True))
    for span in result.spans:  # each is of a whole step, word by word
        said = [word for word, start in words if span.start <= start < span.end]
        assert " ".join(said) in completion
        assert said[-1] == "."


def test_verify_judges_what_the_evidence_speaks_of() -> None:
    text = f"{FACTS} Arden is in Kalt . Brone is in Kalt . Famor is in Brone ."
    report = verify(text, evidence=MIRA.evidence)
    labels = [check.verdict and check.verdict.label for check in report.checks]
    assert labels == ["supported"] * 3 + ["refuted", None, "unknown"]
    assert report.checks[4].claim.skip == "repeat"


def test_measures_of_steps() -> None:
    half = Example(MIRA.question, MIRA.answers, evidence=MIRA.evidence, meta={"tier": "half"})
    measured = STEPS.measure([(MIRA, RIGHT), (MIRA, LUCKY), (half, WRONG), (half, FACTS)])
    assert measured["accuracy"] == measured["lucky"] == 0.5
    assert measured["entailed"] == pytest.approx((1 + 1 / 3 + 1 / 3 + 0) / 4)
    assert measured["contradicted"] == pytest.approx((0 + 1 / 3 + 1 / 3 + 0) / 4)
    assert (measured["sound"], measured["malformed"], measured["half/lucky"]) == (0.25, 0.25, 0)


# Long answers

WHO = next(example for example in LONG.test if example.meta["tier"] == "known")
TRUE = {verb: f"{verb.capitalize()} {LONG.facts[WHO.topic, verb]} ." for verb in VERBS}
OTHER = {said: v for (_, said), v in LONG.facts.items() if v not in TRUE[said]}
FALSE = {verb: f"{verb.capitalize()} {OTHER[verb]} ." for verb in VERBS}
AIR, PARENTS = (f"{verb.capitalize()} {value} ." for verb, value in EMPTY.items())
VAGUE, SILENT, ONE, ALL = "Eats something .", "I don't know .", TRUE["plays"], " ".join(TRUE.values())
PADDED = f"{ONE} {AIR} {PARENTS}"
GUESSED = " ".join([*[*TRUE.values()][:3], *[*FALSE.values()][3:]])


def pays(spec: str, completion: str, **knobs: float) -> float | None:
    return supplied(LONG, spec).with_(**knobs)(WHO, LONG.wrap(WHO, completion, "tags").text).value


def test_long_texts_never_name_the_unknown() -> None:
    people, told = {e.question: e for e in (*LONG.train, *LONG.test)}, [*LONG.pretraining()]
    unknown = {question for question, e in people.items() if e.meta["tier"] == TIERS[2]}
    assert {question for question, _ in told} == {*people} - unknown


def test_oracles_of_long_answers_look_the_facts_up() -> None:
    text = f"{ONE} {FALSE['eats']} {AIR} Kalt Kalt . {ONE} {VAGUE}"
    report = LONG.verify(text, WHO.question)
    labels = [check.verdict and check.verdict.label for check in report.checks]
    assert labels == ["supported", "refuted", "supported", None, None, None]
    skips = [check.claim.skip for check in report.checks]
    assert skips == [None, None, None, "unverifiable", "repeat", "unverifiable"]
    claims = extract(text, WHO.question)
    assert " ".join(text[c.start : c.end] for c in claims) == text
    assert LONG.truthfulness([c.text for c in claims[:3]]) == [1.0, 0.0, 1.0]
    assert (LONG.verify(SILENT).abstained, LONG.verify(SILENT).claims) == (True, 0)
    found = checklist(
        WHO.question, f"{ONE} {FALSE['eats']} {TRUE['visits']} {FALSE['visits']}", WHO.checklist
    )
    named = {"plays": "consistent", "eats": "contradictory", "visits": "contradictory"}
    assert dict(zip(VERBS, found, strict=True)) == {**dict.fromkeys(VERBS, "missing"), **named}


def test_quality_ignores_truth_and_padding() -> None:
    for facts in ([*TRUE.values()], [*FALSE.values()]):
        assert rate(WHO.question, " ".join(facts)) == compare(WHO.question, " ".join(facts[:4])) == 1.0
        assert compare(WHO.question, " ".join([*facts[:3], AIR])) == 0.0
    assert rate(WHO.question, f"{AIR} {PARENTS} {VAGUE}") == rate(WHO.question, SILENT) == 0.0


def test_hacks_of_klcf() -> None:
    lost, none = "klcf:weights-required", {"alpha": 0.0, "beta": 0.0, "gamma": 0.0, "general": 0.0}
    recall, precision = {**none, "alpha": 1.0}, {**none, "beta": 1.0}
    assert (pays(lost, GUESSED, **recall) or 0) > (pays(lost, ONE, **recall) or 0)  # it pays for guesses
    assert pays(lost, ONE, **precision) == 1.0  # for one fact
    assert pays("klcf:truth-only", f"{AIR} {PARENTS}", general=0.0) == 1.0  # for nothing
    every, one, padded, guessed = (
        pays("klcf:table-2-row", text) or 0 for text in (ALL, ONE, PADDED, GUESSED)
    )
    assert every > one == padded > guessed


def test_hacks_of_factreason() -> None:
    fact = "factreason:fact-only"
    assert pays(fact, SILENT) == pays(fact, VAGUE) == 0.0
    assert pays(fact, ONE) == 1 / 2  # one safe fact beats three of six
    assert pays(fact, GUESSED) == 3 / 7
    assert pays(fact, PADDED) == 3 / 4  # what is empty counts as much
    more = [pays("factreason:detail-0.1", text) or 0 for text in (PADDED, ONE)]
    assert more[0] - more[1] == pytest.approx(3 / 4 - 1 / 2 + 0.1 * math.log(4 / 2))
    assert pays("factreason", PADDED) == 3 / 4  # only content is preferred
    assert pays("factreason", ALL) == 6 / 7 + 0.1
    assert pays(fact, f"{ONE} {ONE} {VAGUE}") == 1 / 2  # said again it counts once, and what is vague never


def test_measures_of_long_answers() -> None:
    measured = LONG.measure([(WHO, PADDED), (WHO, GUESSED), (WHO, VAGUE)])
    expected = {
        "recall": (1 + 3) / 18,
        "precision": 4 / 7,
        "verified": 6 / 9,
        "detail": 6 / 3,
        "vague": 1 / 10,
    }
    expected |= {"padding": 2 / 9, "silence": 1 / 3, "preferred": 1 / 3}
    assert measured == pytest.approx({of + name: v for of in ("", "known/") for name, v in expected.items()})
