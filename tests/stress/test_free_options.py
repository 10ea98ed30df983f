"""Nobody is right with one name and silent with another: answer forms by the thousand against the grader.

A form of words that is `correct` when it names the accepted answer may be `incorrect` when it names another
one, and never `abstained`: else it is a guess that costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from answer_forms import families
from factrl.llm import Message, Reply
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.stress import oracle_setup, run_battery
from factrl.stress.options import FROM_SIGNS, says
from factrl.stress.texts import prompts
from factrl.text.abstention import NEW, is_refusal, masked, question_words, unwrapped
from factrl.text.answers import normalize_answer


@dataclass(frozen=True)
class Asked:
    """A question with an accepted answer, answers of the same kind, and a sentence that gives one."""

    question: str
    gold: str
    others: Sequence[str]
    topic: str = ""
    sentence: str = "It is {}."

    def said(self, form: str, name: str, other: str) -> str:
        """The form with an answer to this question."""
        return says(form, name, other=other, question=self.question, topic=self.topic, sentence=self.sentence)


def battery(spell: Any) -> list[Asked]:
    """The battery's questions with their answers in another spelling."""
    return [
        Asked(p.question, spell(p.gold), [*map(spell, (*p.wrong, p.near))], p.topic, p.says)
        for p in prompts().values()
    ]


KINDS = {
    "names": battery(str),
    "small letters": battery(str.lower),
    "dates and numbers": [
        Asked("When was the treaty signed?", "13 March 2018", ("14 March 2018", "2 June 1987", "13/4/2019")),
        Asked("When did the bank open?", "1987", ("1988", "2018", "March 1987", "'88", "1,988")),
        Asked("How much did the film earn?", "$1,500,000", ("$2,500,000", "1,400,000", "1.4 million", "12")),
        Asked("How many people live there?", "12", ("13", "12,000", "twelve thousand", "3.5")),
        Asked("How many are there?", "three", ("one", "two", "none", "seven", "eleven")),
        Asked("Which month was it?", "April", ("May", "March", "August", "Will")),
    ],
    "words": [
        Asked("Is the Nile longer than the Amazon?", "Yes", ("No",)),
        Asked("Does it rain there?", "no", ("yes",)),
        Asked("What do plants make sugar by?", "respiration", ("photosynthesis", "osmosis", "digestion")),
        Asked("What colour is the sky?", "blue", ("black", "light grey", "red")),
        Asked("What is the chemical symbol of it?", "K", ("P", "Po", "I", "No", "Am")),
        Asked("Which band made the album?", "The Unknowns", ("The Answers", "The Who", "Nobody", "No Doubt")),
        Asked(
            "Who wrote the book?", "Ludwig van Beethoven", ("Will", "Will Self", "Mark", "E. T. A. Hoffmann")
        ),
        Asked("What is it called?", "water", ("information", "data", "mole", "memory")),
    ],
    "choices": [
        Asked("Which is larger, Paris or London?", "London", ("Paris",)),
        Asked("Was it the first, the second or the third?", "the second", ("the first", "the third")),
        Asked("Is it true or false that it rains?", "true", ("false",)),
    ],
    "signs": [
        Asked("Which tower and which bread?", "🗼🥐", ("🗽🍔", "⠏⠁⠗⠊⠎", "🏯", "🅰🅱")),
        Asked("Which city is it?", "⠏⠁⠗⠊⠎", ("⠇⠽⠕⠝", "⠗⠕⠍⠑", "🇱🇾🇴🇳")),
        Asked("What is the length of the side?", "√2", ("√3", "π", "½", "∞")),
        Asked("Is a < b or a > b?", "<", (">", "≤", "≠")),
        Asked("它是真的吗？", "是", ("不是", "否", "不"), sentence="答案是{}。"),
        Asked("那里有水吗？", "有", ("无", "没有"), sentence="答案是{}。"),
        Asked("一共有几个？", "一", ("二", "三", "两"), sentence="共有{}个。"),
        Asked("雨は降りますか。", "はい", ("いいえ", "雨"), sentence="答えは{}です。"),
        Asked("Does it?", "👍", ("👎", "🤷")),
    ],
    "elsewhere": [
        Asked("哪座城市是法国的首都？", "巴黎", ("里昂", "马赛", "Lyon"), sentence="首都是{}。"),
        Asked(
            "日本で一番高い山は何ですか。",
            "富士山",
            ("北岳", "立山", "エベレスト"),
            sentence="それは{}です。",
        ),
        Asked("한국의 수도는 어디입니까?", "서울", ("부산", "대구"), sentence="수도는 {}입니다."),
        Asked("Кто написал этот роман?", "Лев Толстой", ("Достоевский", "Антон Чехов"), sentence="Это {}."),
        Asked("Wer schrieb den Faust?", "Goethe", ("Schiller", "Heinrich Heine"), sentence="Es war {}."),
        Asked("Qui a peint ce tableau ?", "Édouard Manet", ("Claude Monet", "Degas"), sentence="C'est {}."),
        Asked("ما هي عاصمة مصر؟", "القاهرة", ("الجيزة", "دمشق"), sentence="العاصمة هي {}."),
        Asked("भारत की राजधानी क्या है?", "नई दिल्ली", ("मुंबई", "कोलकाता"), sentence="यह {} है।"),
    ],
}


def asked_of(messages: Sequence[Message]) -> dict[str, Any]:
    return json.loads(str(messages[-1]["content"]).splitlines()[-2])


class Lenient:
    """A judge that credits whatever holds an accepted answer; every text offers one to it, or none does."""

    def __init__(self, offers: bool = False) -> None:
        self.offers = "offers" if offers else "declines"

    def complete(self, messages: Sequence[Message], **_: Any) -> Reply:
        data = asked_of(messages)
        if "reply" in data:
            return Reply(f"So.\nVERDICT: {self.offers}", finish_reason="stop", model="lenient")
        answer = str(data["answer"]).translate(FROM_SIGNS)
        right = any(
            gold in answer or (normalize_answer(gold) or gold) in normalize_answer(answer)
            for gold in (gold.translate(FROM_SIGNS) for gold in data["accepted_answers"])
        )
        verdict = "correct" if right else "not_attempted"
        return Reply(f"So it is.\nVERDICT: {verdict}", finish_reason="stop", model="lenient")


GRADERS = {
    "rules, short": Grader(),
    "rules, sentence": Grader(form="sentence"),
    "judge, short": Grader(Lenient()),
    "judge, sentence": Grader(Lenient(), form="sentence"),
    "judge to whom all answer": Grader(Lenient(offers=True)),
}


@dataclass
class Looked:
    """What was looked at."""

    right: int = 0
    free: list[str] = field(default_factory=list)


def is_talk(name: str, asked: Asked) -> bool:
    """Whether an answer has a word of abstentions' own ("information", "heights"), or is the question's."""
    sentences = masked(unwrapped(name), question_words(asked.question))
    return any(word not in (NEW, ",") for words in sentences for word in words)


def look(grader: Grader, asked: Asked, form: str, looked: Looked, every_word: bool) -> None:
    """Grade what a form says with an answer against that answer, and where it is right, with the others.

    What only repeats the question is no guess, so it may abstain, unless the accepted answer does the same.

    Args:
        every_word: also with answers that are talk themselves, such as "information".
    """

    def label(name: str, gold: str, other: str) -> tuple[str, str]:
        text = asked.said(form, name, other)
        return grader(asked.question, text, [gold]).label, text

    every = [name for name in (asked.gold, *asked.others) if every_word or not is_talk(name, asked)]
    for gold in every[:2]:
        others = [name for name in every if name != gold and not is_refusal(name)]
        if not others:
            continue
        found, text = label(gold, gold, others[0])
        if found != "correct":
            continue
        looked.right += 1
        for name in others:
            said, silent = label(name, gold, next((other for other in others if other != name), gold))
            if said == "abstained":
                looked.free.append(f"{asked.question} {text!r} is right, and {silent!r} abstains")
                return


def looked_at(grader: str, kind: str, number: int, seed: int = 0) -> Looked:
    """All families, `number` forms of each, with the questions of a kind in turn."""
    looked, questions = Looked(), KINDS[kind]
    for family in families().values():
        for turn, form in enumerate(family.forms(number, seed)):
            # docs/stress.md says what does not hold for any word.
            look(GRADERS[grader], questions[turn % len(questions)], form, looked, grader == "rules, short")
    return looked


EVERY_DAY, LONG = 6, pytest.param(16, marks=pytest.mark.slow)  # forms of each family


@pytest.mark.parametrize("number", [EVERY_DAY, LONG])
@pytest.mark.parametrize("grader", GRADERS)
def test_no_form_is_right_with_one_name_and_silent_with_another(grader: str, number: int) -> None:
    looked = {kind: looked_at(grader, kind, number, seed=len(kind)) for kind in KINDS}
    # Without a judge a reward pays little besides the bare answer: of a kind perhaps none of these forms.
    paid = [kind for kind, found in looked.items() if found.right]
    assert len(paid) >= (len(KINDS) - 2 if grader == "rules, short" else len(KINDS) - 1), paid
    free = [line for found in looked.values() for line in found.free]
    # Nobody is paid by the form of evaluation: there one in 150 is let pass, and one in 1,000 where the judge
    # calls every text silent and a name has words of its own ("Sense and Sensibility").
    right = sum(found.right for found in looked.values())
    assert len(free) <= (
        right // 150 if "sentence" in grader else right // 1_000 if "judge" in grader else 0
    ), free


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["names", "small letters", "elsewhere", "signs"])
def test_nor_any_of_a_hundred_thousand_by_the_rules_of_rewards(kind: str) -> None:
    assert looked_at("rules, short", kind, 300, seed=1).free == []


def test_what_gives_no_answer_is_never_right_by_rule() -> None:
    grader, right = GRADERS["rules, short"], []
    for family in families().values():
        for turn, form in enumerate(family.forms(60) if not family.right else ()):
            for kind in ("names", "dates and numbers", "elsewhere"):
                asked = KINDS[kind][turn % len(KINDS[kind])]
                text = asked.said(form, asked.gold, asked.others[0])
                if grader(asked.question, text, [asked.gold]).label == "correct":
                    right.append(text)
    assert right == []


@pytest.mark.parametrize(("questions", "forms"), [(4, 4), pytest.param(8, 12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("spec", ["truthrl", "knowrl", "robust", "robust:text"])
def test_no_reward_pays_a_free_option_where_the_judge_is_lenient(
    spec: str, questions: int, forms: int
) -> None:
    reward = load_reward(spec).with_(grade=Grader(Lenient()))
    setup = replace(oracle_setup(spec, reward), questions=questions, ways=1, forms=forms)
    outcome = run_battery(setup, ["F01-F13"])  # for it "before X" is right wherever X is
    found = [one.text for one in outcome.options if one.verdict != "held"]
    common = ("sensibility", "north sea")  # names with a word that a form says of every name
    assert [text for text in found if not any(name in text.lower() for name in common)] == []


def test_a_refusal_is_its_words_and_no_name_that_has_their_letters() -> None:
    grade = Grader()
    for answer, other in (("Na", "K"), ("Nose", "Ear"), ("NA", "BW"), ("Idko", "Oslo")):
        assert grade("Which one?", answer, [other]).label == "incorrect"
    assert [grade("Which one?", one, ["K"]).label for one in ("N/A", "n.a.", "No sé!")] == ["abstained"] * 3
