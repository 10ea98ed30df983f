"""The made-up people: who is told how often, and oracles that are exact under unchanged rewards."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from factrl.lab import ABSTENTION, make_world, supplied
from factrl.lab.people import _VALUES, TIERS, People
from factrl.types import Example


@pytest.fixture(scope="module")
def world() -> People:
    return People(per_tier=12)


@pytest.fixture(scope="module")
def example(world: People) -> Example:
    return world.test[0]


def test_a_world_needs_no_torch() -> None:
    code = "import sys, factrl.lab.people, factrl.lab; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["people", "steps", "longform"])
def test_a_world_is_its_seed_and_says_only_what_its_model_can_write(name: str) -> None:
    one, same, other = make_world(name, 0), make_world(name, 0), make_world(name, 1)
    told = [*one.pretraining()]
    assert told == [*same.pretraining()] != [*other.pretraining()]
    assert {e.topic for e in one.train}.isdisjoint(e.topic for e in one.test)
    said = {word for pair in told for text in pair for word in text.split()}
    asked = {word for e in (*one.train, *one.test) for word in e.question.split()}
    assert said | asked <= {*one.words}
    assert len(one.words) == len({*one.words})
    assert max(len(text.split()) for _, text in told) < one.max_new_tokens


def test_people_are_held_out_and_not_facts(world: People) -> None:
    trained, tested = ({e.topic for e in part} for part in (world.train, world.test))
    assert not trained & tested
    assert trained | tested == {*world.facts}
    assert Counter(e.meta["tier"] for e in world.test) == dict.fromkeys(TIERS, 4 * 4)
    assert Counter(e.meta["tier"] for e in world.train) == dict.fromkeys(TIERS, 8 * 4 * 2)
    assert len({e.id for e in (*world.train, *world.test)}) == len(world.train) + len(world.test)


def test_tiers_are_told_as_often_as_they_say(world: People) -> None:
    told: dict[str, Counter[str]] = {}
    for question, answer in world.pretraining():
        told.setdefault(question, Counter())[answer] += 1
    for example in (*world.train, *world.test):
        answers = told.get(example.question, Counter())
        abstained = answers.pop(ABSTENTION, 0)
        if example.meta["tier"] == "known":
            assert 25 - abstained == answers[example.answers[0]] == answers.total()
        elif example.meta["tier"] == "half":
            assert answers.total() + abstained in (12, 13)
        else:
            assert not answers
    half = [e for e in world.train if e.meta["tier"] == "half"]
    right = sum(told[e.question][e.answers[0]] for e in half) / sum(told[e.question].total() for e in half)
    assert 0.5 < right < 0.7  # 20 to 60 % of them say something else
    answers = Counter(answer for _, answer in world.pretraining())
    assert 0.03 < answers[ABSTENTION] / answers.total() < 0.05


@pytest.mark.parametrize("form", ["boxed", "tags", "text"])
@pytest.mark.parametrize("words", ["Oakford", ABSTENTION, "", "Oakford bacon"])
def test_words_are_found_where_they_stand(world: People, example: Example, form: str, words: str) -> None:
    wrapped = world.wrap(example, words, form)  # pyright: ignore[reportArgumentType]
    assert len(wrapped.starts) == len(words.split())
    for word, start in zip(words.split(), wrapped.starts, strict=True):
        assert wrapped.text.startswith(word, start)


@pytest.mark.parametrize(
    ("spec", "right", "abstained", "wrong"),
    [
        ("truthrl:ternary", 1, 0, -1),
        ("truthrl:binary", 1, -1, -1),
        ("truthrl:reasoning-multiplicative", 2, 0, -1),
        ("knowrl", 1 + 2 + 1, 1 + 1 + 0, 1 - 1 + 0),
        ("knowrl:no-refusal", 4, 0, 0),
        ("knowrl:format", 1, 1, 1),
        ("knowrl:format+fact", 2, 1, 1),
        ("knowrl:format+correct", 3, 2, 0),
        ("fspo:outcome+fact", 2, 0, -1),
    ],
)
def test_rewards_run_unchanged(
    world: People, example: Example, spec: str, right: float, abstained: float, wrong: float
) -> None:
    reward = supplied(world, spec)
    other = next(value for value in _VALUES["city"] if value != example.answers[0])
    form = "boxed" if spec.startswith("truthrl") else "tags"
    results = [
        reward(example, world.wrap(example, words, form).text)
        for words in (example.answers[0], ABSTENTION, other)
    ]
    assert [result.state for result in results] == ["scored"] * 3
    assert [result.value for result in results] == pytest.approx([right, abstained, wrong])


def test_the_credit_of_a_sentence_is_that_of_its_answer(world: People, example: Example) -> None:
    reward = supplied(world, "fspo")
    for words, sign in ((example.answers[0], 1), ("bacon", -1)):
        wrapped = world.wrap(example, words, "tags")
        (span,) = reward(example, wrapped.text).spans
        assert span.start <= wrapped.starts[0] < span.end
        assert span.sign == sign


def test_measures(world: People, example: Example) -> None:
    measured = world.measure([(example, example.answers[0]), (example, ABSTENTION), (example, "bacon")] * 2)
    for of in ("", "known/"):
        assert measured[f"{of}accuracy"] == measured[f"{of}abstention"] == pytest.approx(1 / 3)
        assert measured[f"{of}hallucination"] == pytest.approx(1 / 3)
        assert measured[f"{of}truthfulness"] == pytest.approx(0)
