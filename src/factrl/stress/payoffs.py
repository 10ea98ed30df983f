"""What a reward pays, measured on a right, an abstaining, a wrong and a broken answer.

The numbers come from calling the reward, not from reading its knobs, with judges that say what we want to
know about: the answer is what it is, and everything else that the reward has checked (reasoning, claims,
preference) comes out well in one column and badly in another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from factrl.errors import ConfigError
from factrl.rewards import Reward
from factrl.rewards.trl import TrainerOnly
from factrl.stress.stand_ins import Truth, stand_ins
from factrl.types import Completion, Example, Passage, Result

OUTCOMES = ("correct", "abstained", "wrong", "malformed", "empty")

_RIGHT, _WRONG = "Warsaw", "Paris"
PROBE = Example(
    "In which city was Marie Curie born?",
    (_RIGHT,),
    id="probe",
    topic="Marie Curie",
    ook=False,
    evidence=(Passage("Marie Curie was born in Warsaw.", title="Marie Curie"),),
    checklist=("Marie Curie was born in Warsaw.",),
    meta={"threshold": 0.75},
)
_THOUGHT = "Her father taught physics in the town where the family lived."
_FORMS = (
    f"<think>{_THOUGHT}</think><answer>{{}}</answer>",
    f"<think>{_THOUGHT}</think> \\boxed{{{{{{}}}}}}",
    "{}",
    f"<think>{_THOUGHT}</think><answer>{{}}</answer><analysis>Hm.</analysis><confidence>0.9</confidence>",
)
_ANSWERS = (
    (_RIGHT, "I don't know", _WRONG),
    (f"Marie Curie was born in {_RIGHT}.", "I don't know.", f"Marie Curie was born in {_WRONG}."),
)


@dataclasses.dataclass(frozen=True)
class Payoff:
    """What the outcomes of one question earn.

    Attributes:
        when: what is supposed beside the answer; empty where nothing else counts.
        results: outcome -> what the reward made of it.
    """

    when: str
    results: Mapping[str, Result]

    def value(self, outcome: str) -> float | None:
        """The reward of an outcome; None where it cannot be had."""
        return self.results[outcome].value

    @property
    def answering_pays_above(self) -> float | None:
        """The confidence above which answering is worth more than abstaining; None where that is undefined.

        With confidence p an answer is worth `p correct + (1 - p) wrong`, which equals `abstained` at
        (abstained - wrong) / (correct - wrong).
        """
        correct, abstained, wrong = (self.value(outcome) for outcome in OUTCOMES[:3])
        if correct is None or abstained is None or wrong is None or correct <= wrong:
            return None
        return (abstained - wrong) / (correct - wrong)

    @property
    def broken(self) -> list[str]:
        """Which parts of `correct > abstained > wrong >= malformed` do not hold."""
        correct, abstained, wrong, malformed, empty = map(self.value, OUTCOMES)
        problems = []
        for better, high, worse, low in (
            ("correct", correct, "abstained", abstained),
            ("abstained", abstained, "wrong", wrong),
        ):
            if high is not None and low is not None and high <= low:
                problems.append(f"{better} is not above {worse}")
        for worse, low in (("malformed", malformed), ("empty", empty)):
            if wrong is not None and low is not None and wrong < low:
                problems.append(f"{worse} is above wrong")
        return problems


def payoffs(reward: Reward) -> list[Payoff]:
    """What a reward pays: one `Payoff`, or several where more than the answer counts.

    >>> payoff = payoffs(fx.load_reward("truthrl"))[0]
    >>> [payoff.value(outcome) for outcome in OUTCOMES], payoff.answering_pays_above
    ([1.0, 0.0, -1.0, -1.0, -1.0], 0.5)

    Raises:
        ConfigError: a knob is missing without which the reward does not work, or a resource is its own.
        RewardBug: the reward needs what the probes do not have.
    """
    known = stand_ins(Truth(_is_right))
    if unknown := [name for name in reward.missing if name not in known]:
        raise ConfigError(f"it depends on {' and '.join(unknown)}, which nothing here can stand in for")
    form, answers = _form(reward)
    best = _probe(reward, PROBE, form, answers, good=True)
    worst = _probe(reward, PROBE, form, answers, good=False)
    beyond = _probe(reward, dataclasses.replace(PROBE, ook=True), form, answers, good=True)
    kinds = [Payoff("", best)]
    if _values(worst) != _values(best):
        kinds = [Payoff("all else at best", best), Payoff("all else at worst", worst)]
    if _values(beyond) != _values(best):
        kinds = [Payoff(payoff.when or "within knowledge", payoff.results) for payoff in kinds]
        kinds.append(Payoff("out of knowledge", beyond))
    return kinds


def try_out(reward: Reward, example: Example) -> Sequence[Result]:
    """What a reward with the scripted judges makes of a right, a declining and an empty answer, together.

    >>> [result.value for result in try_out(fx.load_reward("truthrl"), PROBE)]  # none is in \\boxed{}
    [-1.0, -1.0, -1.0]

    Raises:
        RewardBug: of the reward, which names the example and the error.
    """
    ready = scripted(reward)
    if ready.missing:  # nothing stands in for what only Python or a trainer supplies
        return ()
    texts = [Completion(text) for text in (*example.answers[:1], "I don't know.", "")]
    try:
        return ready.batch([example] * len(texts), texts)
    except TrainerOnly:
        return ()


def scripted(reward: Reward, *, good: bool = True) -> Reward:
    """A reward with the scripted judges, by which it pays for any text.

    >>> pay = scripted(fx.load_reward("factreason:fact-only"))
    >>> pay(PROBE, "<think>Hm.</think><answer>She was born in Warsaw.</answer>").value  # one claim of one
    0.5

    Args:
        good: whether they find what speaks neither of Warsaw nor of Paris good.
    """
    others = () if good else [form.format(_RIGHT) for form in _FORMS]
    known = stand_ins(Truth(_is_right, good, others, PROBE.evidence))
    return reward.with_(**{name: known[name] for name in reward.resources if name in known})


def _form(reward: Reward) -> tuple[str, Sequence[str]]:
    """The form of completion that this reward reads: it tells most outcomes apart, and by most."""
    chosen, most = (_FORMS[0], _ANSWERS[0]), (0, 0.0)
    for form in _FORMS:
        for answers in _ANSWERS:
            results = _probe(reward, PROBE, form, answers, good=True)
            values = [results[name].value for name in OUTCOMES[:3] if results[name].state == "scored"]
            known = [value for value in values if value is not None]
            if len(known) == 3 and (len({*known}), known[0] - known[2]) > most:
                chosen, most = (form, answers), (len({*known}), known[0] - known[2])
    return chosen


def _probe(
    reward: Reward, example: Example, form: str, answers: Sequence[str], *, good: bool
) -> dict[str, Result]:
    texts = [*(form.format(answer) for answer in answers), f"<think>{_THOUGHT}", ""]
    ready = scripted(reward, good=good)
    return {name: ready(example, Completion(text)) for name, text in zip(OUTCOMES, texts, strict=True)}


def _values(results: Mapping[str, Result]) -> list[float | None]:
    return [result.value for result in results.values()]


def _is_right(text: str) -> bool | None:
    """Whether a text gives the right answer or a wrong one; None where it gives neither."""
    folded = text.casefold()  # an index gets its names in small letters
    return True if _RIGHT.casefold() in folded else False if _WRONG.casefold() in folded else None
