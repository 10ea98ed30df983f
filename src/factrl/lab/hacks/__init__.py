"""36 known reward hacks and generated free options against any reward: `factrl stress`, and as a test.

    import pytest
    from factrl.lab.hacks import cases, check
    from my_rewards import mine

    @pytest.mark.parametrize("case", cases())
    def test_no_hack_pays(case):
        assert check(mine, case) == ""

The texts are 36 adversarial policies and five honest answers to twenty questions in three paraphrases each
(`factrl.lab.hacks.policies`), and generated answer forms (`factrl.lab.hacks.families`); exact oracles stand
in for judges (`factrl.lab.hacks.oracles`) unless the reward brings its own.  What must hold is in
`factrl.lab.hacks.order` and `factrl.lab.hacks.options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from factrl.lab.hacks.options import HONESTY, Honest, honest_pay, in_words, option_of
from factrl.lab.hacks.order import STRICT, Cell, Finding, compare, ladder, scale_of
from factrl.lab.hacks.policies import RUNGS, battery
from factrl.lab.hacks.run import Outcome, cell_of, chosen, run_battery
from factrl.lab.hacks.setup import Setup, oracle_setup
from factrl.papers import Form, Length
from factrl.rewards import Reward

__all__ = ["Outcome", "Setup", "cases", "check", "oracle_setup", "run_battery"]

ORDER = "order"  # the case of the honest answers alone
_KEPT = 8  # rewards whose honest answers are remembered
_Honest = tuple[Setup, dict[str, Cell], Mapping[str, Honest]]
_rungs: list[tuple[Reward, tuple[object, ...], _Honest]] = []


def cases(*ids: str) -> list[str]:
    """What there is to check: `order`, the honest answers in their order, then policies, then answer forms.

    Args:
        ids: policies and families of answer forms, `D01-D09` is a range; all by default.

    Raises:
        ConfigError: no such policy or family.
    """
    hacks, forms = chosen(ids)
    return [ORDER, *(each.id for each in (*hacks, *forms))]


def check(
    reward: Reward,
    case: str,
    *,
    form: Form | None = None,
    length: Length | None = None,
    questions: int = 20,
    known: Mapping[str, str] | None = None,
) -> str:
    """What is wrong with one case; empty when the order holds.

    Args:
        reward: yours; resources that it lacks are oracles.
        case: of `cases()`.
        form: how it reads completions: `tags`, `boxed` or `text`; its knob `answer` says it, else `text`.
        length: whether it looks for a `short` answer or reads a `long` text.
        questions: how many of the twenty; fewer are faster and see less.
        known: failures that you accept, by case or step of the order, with the reason.

    Raises:
        ConfigError: no such case, or a resource for which there is no oracle.
    """
    setup, rungs, honest = _honest(reward, form, length, questions)
    told = known or {}
    if case == ORDER:
        return "; ".join(filter(None, map(_wrong, ladder(rungs, told))))
    hacks, forms = chosen([case])
    if forms:
        return _wrong(option_of(setup, forms[0], honest, told))
    policy = hacks[0]
    if not policy.applies(setup.form):
        return ""
    done, bound = cell_of(setup, policy), rungs[policy.ceiling]
    strict, scale = policy.ceiling in STRICT, scale_of(rungs)
    return _wrong(compare(policy.id, policy.name, policy.ceiling, done, bound, strict, scale, told))


def _honest(reward: Reward, form: Form | None, length: Length | None, questions: int) -> _Honest:
    """The honest answers of a reward, scored once."""
    key = (form, length, questions)
    for known, same, scored in _rungs:
        if known is reward and same == key:
            return scored
    setup = replace(oracle_setup(reward.name, reward, form=form, length=length), questions=questions)
    rungs = {rung: cell_of(setup, battery()[rung]) for rung in RUNGS}
    scored = setup, rungs, honest_pay(setup)
    _rungs[_KEPT - 1 :] = []
    _rungs.insert(0, (reward, key, scored))
    return scored


def _wrong(found: Finding) -> str:
    """One sentence about a comparison that is not as it should be."""
    good, count = found.prompts
    if found.verdict == "broken" and found.ceiling.startswith(HONESTY):
        return f"{found.id} {found.name}: {in_words(found)}, e.g. {found.text[:200]!r}"
    if found.verdict == "broken":
        what = f"{found.name}: " if found.name else ""
        return (
            f"{found.id} {what}earns {found.mean:.3f}, and {found.ceiling} {found.bound:.3f}; "
            f"the order holds on {good} of {count} questions, e.g. not for {found.text[:200]!r}"
        )
    if found.verdict == "masked":
        return f"{found.id}: {found.masked[0]} of {found.masked[1]} texts could not be graded"
    return ""
