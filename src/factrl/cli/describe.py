"""`factrl describe`: what a reward pays, measured on a right, an abstaining, a wrong and a broken answer.

The numbers come from calling the reward, not from reading its knobs, with judges that say what we want to
know about: the answer is what it is, and everything else that the reward has checked (reasoning, claims,
preference) comes out well in one column and badly in another.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from factrl.errors import RewardBug
from factrl.papers import load_paper, load_reward, rewards_of, split_spec
from factrl.rewards import Reward
from factrl.rewards.resources import RESOURCES, Truth
from factrl.text.escape import one_line
from factrl.train.plan import REWARD_ALONE, run_settings
from factrl.types import Completion, Example, Passage, Result

from .options import Verbs, add_settings, add_verb
from .terminal import say, show_rows

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
        """What of `correct > abstained > wrong >= malformed` does not hold."""
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

    Raises:
        ConfigError: a knob without which the reward does not work.
        RewardBug: the reward needs what the probes do not have.
    """
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


def scripted(reward: Reward, *, good: bool = True) -> Reward:
    """A reward with the scripted judges, by which it pays for any text.

    >>> pay = scripted(load_reward("factreason:fact-only"))
    >>> pay(PROBE, "<think>Hm.</think><answer>She was born in Warsaw.</answer>").value  # one claim of one
    0.5

    Args:
        good: whether they find what speaks neither of Warsaw nor of Paris good.
    """
    others = () if good else [form.format(_RIGHT) for form in _FORMS]
    truth = Truth(_is_right, good, others, PROBE.evidence)
    rows = {name: RESOURCES[name] for name in reward.resources if name in RESOURCES}
    return reward.with_(**{name: row.stand_in(truth) for name, row in rows.items()})


def knob_help(reward: Reward, module: ModuleType) -> dict[str, str]:
    """What the docstrings say about the knobs; the reward's own comes before that of its siblings."""
    helps: dict[str, str] = {}
    for other in (reward, *rewards_of(module).values()):
        for name, text in _args_of(inspect.getdoc(other.fn) or "").items():
            helps.setdefault(name, text)
    return {name: helps[name] for name in reward.knobs if name in helps}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "describe",
        _describe,
        about="say what a reward pays for right, abstaining, wrong and broken answers, and what it needs",
        example="examples:\n  factrl describe truthrl:binary\n  factrl describe truthrl reward.wrong=-3",
    )
    parser.add_argument("paper", metavar="SPEC", help="truthrl, truthrl:binary or my.py:reward")
    add_settings(parser, "knobs, e.g. reward.wrong=-3")


def _describe(args: argparse.Namespace) -> int:
    settings = run_settings(None, [f"paper={args.paper}", *REWARD_ALONE, *args.settings])
    reward = load_reward(args.paper).with_(**settings.reward)
    why_not, paid = "", []
    unknown = [name for name in reward.missing if name not in RESOURCES]
    if unknown:
        why_not = f"what it pays depends on {' and '.join(unknown)}, which nothing here can stand in for"
    else:
        try:
            paid = payoffs(reward)
        except RewardBug as error:
            why_not = f"what it pays could not be found out: {one_line(str(error))}"
    about = " ".join((inspect.getdoc(reward.fn) or "").partition("\n\n")[0].split())
    say(f"{args.paper}: {about}" if about else args.paper)
    if why_not:
        say(f"\n{why_not}")
    else:
        _show_payoffs(paid)
    helps = knob_help(reward, load_paper(split_spec(args.paper)[0]))
    if reward.knobs:
        show_rows(
            ("knob", "value", ""),
            [(k, shown(v), helps.get(k, "")) for k, v in reward.knobs.items()],
            lines=False,
        )
    needs = [
        (name, RESOURCES[name].source if name in RESOURCES else "Python alone: .with_()")
        for name in reward.missing
    ]
    if needs:
        show_rows(("it needs", "which comes from"), needs, lines=False)
    return 0


def _show_payoffs(paid: Sequence[Payoff]) -> None:
    rows = [(name, *(_cell(payoff.results[name]) for payoff in paid)) for name in OUTCOMES]
    show_rows(("it pays", *(payoff.when for payoff in paid)), rows, lines=False)
    if len(paid) > 1:
        say("\nall else: claims, reasoning, preference; scripted judges find all of it good, or all bad")
    facts = paid[0].results[OUTCOMES[0]].facts
    if given := [f"{name} {facts[name]:g}" for name in ("confidence", "threshold") if facts.get(name)]:
        say(f"\nall of it at {' and '.join(given)}")
    say("")
    for payoff in paid:
        above, order = payoff.answering_pays_above, "correct > abstained > wrong >= malformed"
        if above is None:
            first = "a right answer pays no more than a wrong one"
        elif not 0 < above < 1:
            first = "answering always pays" if above <= 0 else "answering never pays more than abstaining"
        else:
            first = f"answering pays above {above:.0%} confidence"
        broken = f"does not hold: {', '.join(payoff.broken)}" if payoff.broken else "holds"
        for line in (first, f"{order} {broken}"):
            say(f"{payoff.when}: {line}" if payoff.when else line)


def _cell(result: Result) -> str:
    if result.value is None:
        return f"masked ({result.cause})"
    terms = " + ".join(f"{name} {value:g}" for name, value in result.terms.items())
    return f"{result.value:g} = {terms}" + (f" (floored: {result.cause})" if result.cause else "")


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
    said = text.casefold()  # an index gets its names in small letters
    return True if _RIGHT.casefold() in said else False if _WRONG.casefold() in said else None


def shown(value: Any) -> str:
    """A value as a recipe has it; nothing for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=repr)


def _args_of(docstring: str) -> dict[str, str]:
    """`name, other: help` entries of the section `Args:`; deeper lines go on with the entry above."""
    _, _, section = docstring.partition("\nArgs:\n")
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in section.split("\n"):
        match = re.fullmatch(r" {4}(\w+(?:, \w+)*): (.*)", line)
        if match:
            names = match[1].split(", ")
            entries |= dict.fromkeys(names, match[2])
        elif line.startswith("     ") and names:
            entries |= dict.fromkeys(names, f"{entries[names[0]]} {line.strip()}")
        else:
            break
    return entries
