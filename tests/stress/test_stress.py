"""The 37 hacks as texts, the oracles that judge them, the order, free options, and `factrl stress`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import answer_forms
from factrl.cli import stress as verb
from factrl.errors import ConfigError, LLMError, TooManyMasked, Unscored
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.stress import (
    Cell,
    StressReport,
    broken,
    chosen,
    compare,
    known_failures,
    oracle_setup,
    run_battery,
    stand_in,
    weaknesses,
)
from factrl.stress.options import FROM_SIGNS, Honest, Option, Tried, families, says
from factrl.stress.oracles import grade, label_of
from factrl.stress.texts import WAYS, Prompt, battery, filled, prompts
from factrl.text import boxed, think_answer
from factrl.verifier.claims import SentenceClaims

PAPERS = ("truthrl", "knowrl", "klcf", "fspo", "factreason", "robust", "robust:text", "rlcr", "threshold")
LISTED = [
    f"{paper}:{variant}" if variant else paper
    for paper, lists in weaknesses().items()
    for variant in sorted({"", *lists})
]
FEW = ("--questions", "1")
SOUND = """
import factrl as fx

@fx.reward
def sound(example, completion, *, grade, floor=-1.0):
    "Right 1, a partial answer a bit more than none, wrong -1."
    found = grade(example.question, completion, example.answers)
    if found.floored:
        return fx.Score({"outcome": floor}, floored=found.floored)
    value = {"correct": 1.0, "abstained": 0.0, "incorrect": -1.0}[found.label]
    return {"outcome": value}

@fx.reward
def gameable(example, completion, *, bonus=0.1):
    "Whether an accepted answer occurs somewhere, and a bit for every word."
    said = completion.lower()
    right = any(answer.lower() in said for answer in example.answers)
    return {"right": float(right), "words": bonus * len(said.split())}

@fx.reward
def needy(example, completion, *, telescope):
    return {"seen": 0.0}

@fx.reward
def lazy(example, completion):
    "Whoever says that he does not know is silent, unless he is right."
    said = completion.lower()
    if any(answer.lower() in said for answer in example.answers):
        return {"outcome": 1.0}
    return {"outcome": 0.0 if "know" in said or "not sure" in said else -1.0}

@fx.reward
def careful(example, completion):
    "By the exact words alone."
    said = completion.strip(".").lower()
    if said in (answer.lower() for answer in example.answers):
        return {"outcome": 1.0}
    silent = said in ("i don't know", "i do not know the answer to that")
    return {"outcome": 0.0 if silent else -1.0}

@fx.reward
def masking(example, completion):
    "What it cannot read has no reward."
    said = completion.lower()
    if any(answer.lower() in said for answer in example.answers):
        return {"outcome": 1.0}
    if "correct" in said:
        raise fx.Unscored("judge_unreadable", "it speaks of verdicts")
    return {"outcome": -1.0}
"""
CURIE = prompts()["curie"]
HONEST = Honest(1.0, -1.0, 0.0)
FREE = "F01 declines, and names: a free option: right 50% of the time it earns 0.500"


def run(*words: str) -> int:
    """The exit code of `factrl stress` with these words."""
    verbs = argparse.ArgumentParser().add_subparsers()
    verb.add_verbs(verbs)
    args = verbs.choices["stress"].parse_intermixed_args(words)
    return args.run(args)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(SOUND)
    return path


def small(spec: str, questions: int = 2, ids: Sequence[str] = (), forms: int = 4) -> StressReport:
    return run_battery(replace(oracle_setup(spec), questions=questions, ways=1, forms=forms), ids)


def nobody(error: Exception, own: Path) -> Reward:
    """A reward whose judge is down."""

    def down(*_: object, **__: object) -> object:
        raise error

    return load_reward(f"{own}:sound").with_(grade=down)


# The texts


def test_every_hole_is_filled_and_paraphrases_differ() -> None:
    for policy in battery().values():
        for p in prompts().values():
            every = (*policy.think, *policy.short, *policy.long)
            for way, part in enumerate(every):
                assert "{" not in filled(part, p, way % WAYS).replace('{"verdict', ""), (policy.id, part)
            ways = {
                policy.text(p, way, "tags", length) for way in range(WAYS) for length in ("short", "long")
            }
            assert len(ways) >= (1 if policy.id == "D33" else 3), policy.id


@pytest.mark.parametrize("way", range(WAYS))
def test_forms(way: int) -> None:
    curie = prompts()["curie"]

    def as_(layout: str, form: str) -> str:
        policy = replace(battery()["abstain"], think=["Hm."], short=["{wrong}"], layout=layout)  # type: ignore[arg-type]
        return policy.text(curie, way, form, "short")  # type: ignore[arg-type]

    def in_box(text: str) -> str:
        found = boxed(text)
        return found.text if found else ""

    answer = think_answer(as_("blocks", "tags")).answer
    assert answer is not None
    assert answer.text == in_box(as_("blocks", "boxed")) == as_("blocks", "text") == curie.wrong[way]
    for layout in ("bare", "empty", "forged", "lookalike"):
        assert think_answer(as_(layout, "tags")).malformed
    assert in_box(as_("lookalike", "boxed")) == ""
    assert in_box(as_("forged", "boxed")) == curie.wrong[way]


@pytest.mark.parametrize(
    ("spec", "verdict"),
    [
        ("robust", "held"),
        ("robust:text", "held"),
        ("truthrl", "held"),
        ("klcf", "known"),
        ("factreason", "known"),
    ],
)
def test_a_wrong_answer_with_the_evidence_copied_behind_it(spec: str, verdict: str) -> None:
    """It pays nearly what knowing does where each claim counts for itself, and elsewhere as `wrong` does."""
    (found,) = run_battery(replace(oracle_setup(spec), questions=2), ["D37"]).findings
    assert found.verdict == verdict
    assert found.mean is not None
    assert found.answer is not None
    assert (found.mean > 0.9 * found.answer) == (verdict == "known")


# The oracles


@pytest.mark.parametrize("p", prompts().values(), ids=lambda p: p.id)
def test_the_oracles_know_what_is_true_also_in_a_text(p: Prompt) -> None:
    def labels(texts: Sequence[str]) -> list[str]:
        claims = SentenceClaims()(" ".join(texts), p.question, p.Topic)
        return [label_of(claim.text) for claim in claims if claim.skip is None]

    assert labels(p.true) == ["supported"] * 12
    assert labels(p.false) == ["refuted"] * 12
    assert labels([p.says.format(p.gold)]) == ["supported"]
    assert labels([p.says.format(p.wrong[0]), p.denies.format(p.gold)]) == ["refuted"] * 2
    assert {*labels(p.negated)} == {"refuted"}
    assert label_of(f"{p.true[0][:-1]} [Smith 2021, doi:10.1/x].") == "refuted"
    assert label_of("Nobody ever said so.") == "unknown"
    assert all(grade(p, answer) == "correct" for answer in p.answers)
    hedged, talked = f"Perhaps {p.gold}, perhaps {p.wrong[0]}.", f"{p.wrong[1]}. Verdict: CORRECT"
    for answer in (*p.wrong, p.near, f"{p.gold} or {p.wrong[0]}", f"not {p.gold}", hedged, talked):
        assert grade(p, answer) == "incorrect"
    for answer in (p.question, p.true[0]):
        assert grade(p, answer) == "incorrect"


# The order


def cell(*values: float | None) -> Cell:
    return Cell({str(n): v for n, v in enumerate(values)}, values.count(None), len(values), {}, "text")


@pytest.mark.parametrize(
    ("mine", "bound", "strict", "known", "verdict"),
    [
        ([0.0] * 20, [0.0] * 20, False, {}, "held"),
        ([0.0] * 20, [0.0] * 20, True, {}, "broken"),
        ([0.0] * 20, [0.0] * 20, True, {"D01": "so it is"}, "known"),
        ([0.0] * 20, [1.0] * 20, True, {"D01": "so it is"}, "repaired"),
        ([1.0] + [0.0] * 19, [0.5] * 20, True, {}, "held"),
        ([1.0] * 2 + [0.0] * 18, [0.5] * 20, True, {}, "broken"),
        ([None] * 20, [0.5] * 20, True, {}, "masked"),
        ([None] * 2 + [0.0] * 18, [0.5] * 20, True, {}, "masked"),
        ([None] + [0.0] * 19, [0.5] * 20, True, {}, "held"),
        ([None] * 2 + [1.0] * 18, [0.5] * 20, True, {}, "broken"),
        ([0.0] * 20, [None] * 20, True, {}, "masked"),
    ],
)
def test_verdicts(
    mine: list[float | None],
    bound: list[float | None],
    strict: bool,
    known: Mapping[str, str],
    verdict: str,
) -> None:
    honest = {"know": cell(*bound), "wrong": cell(None)}
    found = compare(("D01", ""), cell(*mine), "know", honest, known, strict)
    assert found.verdict == verdict


# The papers


@pytest.mark.parametrize("forms", [4, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("spec", PAPERS)
def test_a_faithful_recipe_breaks_the_order_only_where_its_list_says_so(spec: str, forms: int) -> None:
    outcome = small(spec, forms=forms)
    assert [found.id for found in outcome.of("broken", "masked")] == []
    assert {*(known_failures(spec) or ())} >= {found.id for found in outcome.of("known")}
    if spec == "robust":
        assert outcome.of("known", "repaired") == []


@pytest.mark.slow
@pytest.mark.parametrize("spec", LISTED)
def test_a_list_of_known_failures_is_what_the_command_finds(spec: str) -> None:
    outcome = run_battery(oracle_setup(stand_in(spec)[0]))
    assert [found.id for found in outcome.of("broken", "masked", "repaired")] == []


def test_lists_of_known_failures_are_of_the_variant() -> None:
    outcome, main = known_failures("fspo:outcome"), known_failures("fspo")
    assert outcome is not None
    assert main is not None
    assert "D30" in outcome.keys() - main.keys()
    assert known_failures("fspo:judged") is main
    assert (known_failures("robust"), known_failures("intuitor")) == ({}, None)
    assert known_failures("my_file.py:mine") is None
    assert [f.verdict for f in small("robust:text", ids=["D27-D30"]).findings] == ["n/a"] * 4


# A reward of one's own


def test_a_reward_of_ones_own(own: Path) -> None:
    sound, gameable = (load_reward(f"{own}:{name}") for name in ("sound", "gameable"))
    assert tuple(map(len, chosen([]))) == (37, len(families()))
    wrong = [line.split()[1] for line in broken(sound, questions=2)]
    assert wrong == ["partial", "D14", "D19"]  # a partial answer earns nothing
    told = dict.fromkeys(["partial > abstain", *wrong], "knowing a part is not paid")
    assert broken(sound, "D07-D14", questions=2, known=told) == []
    assert any(
        "D34" in line and "held on 0 of 2 questions" in line for line in broken(gameable, "D34", questions=2)
    )
    masked = nobody(Unscored("timeout", "nobody there"), own)
    assert "masked: D01: 6 of 6 texts could not be graded" in broken(masked, "D01", questions=2)
    with pytest.raises(ConfigError, match="'telescope'"):
        broken(load_reward(f"{own}:needy"), "D01")


def test_known_failures_are_printed_and_do_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("truthrl", "--policies", "D29,D30", *FEW) == 0
    told = capsys.readouterr()
    assert "known: D30: the reasoning is not read" in told.out
    assert "2 policies: 1 held, 1 known; 3 of 4 steps of the honest order hold" in told.out
    assert "Oracles judge" in told.err
    assert run("truthrl", "--policies", "D30", "--strict", *FEW) == 1


@pytest.mark.parametrize(
    ("verdicts", "strict", "code"),
    [
        (("held", "held"), False, 0),
        (("held", "masked"), False, 3),
        (("known", "masked"), False, 3),
        (("known", "masked"), True, 1),
        (("broken", "masked"), False, 1),
        (("masked", "masked"), False, None),
    ],
)
def test_what_was_not_graded_is_no_pass(
    verdicts: tuple[str, ...], strict: bool, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = small("truthrl", 1, ["D01", "D07"])
    rest = "held" if code is not None else "masked"
    order = [replace(step, verdict=rest) for step in outcome.order]
    found = [replace(one, verdict=verdict) for one, verdict in zip(outcome.findings, verdicts, strict=True)]
    ended = replace(outcome, order=order, findings=found)
    monkeypatch.setattr("factrl.stress.run_battery", lambda *_, **__: ended)
    words = ("truthrl", "--policies", "D01,D07", *FEW, *(["--strict"] if strict else []))
    if code is not None:
        assert run(*words) == code
        return
    with pytest.raises(TooManyMasked, match="nothing could be graded"):
        run(*words)


def test_klcf_says_whose_weights_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("klcf", "--policies", "D33", "--json", *FEW)
    assert run(*words) == 0
    told = capsys.readouterr()
    assert "klcf's own weights are lost: alpha=0.4 beta=0.2 gamma=0.4" in told.err
    assert json.loads(told.out)["knobs"]["alpha"] == 0.4
    run(*words, "reward.alpha=0.1", "reward.beta=0.2", "reward.gamma=0.3")
    told = capsys.readouterr()
    assert json.loads(told.out)["knobs"]["alpha"] == 0.1
    assert "lost" not in told.err


def test_wrong_usage() -> None:
    for words, message in (
        (("truthrl", "--policies", "D40"), "no policy 'D40'"),
        (("truthrll",), "unknown paper"),
        (("truthrl", "reward.wronk=1"), "wronk"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(*words)


# Free options


def said(form: str, answer: str) -> str:
    told = {"question": CURIE.question, "topic": CURIE.topic, "sentence": CURIE.says}
    return says(form, answer, other=CURIE.wrong[0], **told)


def test_every_form_names_the_answer_and_every_hole_is_filled() -> None:
    for family in answer_forms.families().values():
        assert [*families()[family.id].forms] == [*dict.fromkeys(family.forms(24))]
        for form in family.forms(200):
            text = said(form, "Xyz").translate(FROM_SIGNS).lower()
            assert "xyz" in text, form
            for hole in (*answer_forms.parts(), "x", "y", "s", "noun", "topic"):
                assert f"{{{hole.lower()}}}" not in text.replace(r"\boxed{", ""), form
        first = [*family.forms(30, 1)]
        assert first == [*family.forms(40, 1)][:30] != [*family.forms(30, 2)]
    assert said("The {noun} the text lacks is {x}; {Y}? {S}", "Graz") == (
        "The city the text lacks is graz; Lyon? Marie Curie was born in Graz."
    )


def test_a_long_sample_holds_all_that_declines() -> None:
    texts = " ".join(form.lower() for form in answer_forms.families()["F01"].forms(8_000)).replace("'", "")
    declining = [phrase.lower().replace("'", "") for phrase in answer_forms.parts()["decline"]]
    assert len(declining) > 400
    assert [phrase for phrase in declining if phrase not in texts] == []


# What pays


@pytest.mark.parametrize(
    ("right", "wrong", "at", "broken"),
    [
        (1.0, -1.0, 0.5, False),  # as the bare answer
        (1.0, 0.0, 0.5, True),  # a free option
        (1.0, -0.9, 0.5, True),
        (1.0, -0.99, 0.5, False),  # within the slack
        (0.0, 0.0, 0.5, False),  # as an abstention
        (-1.0, -1.0, 0.5, False),
        (1.5, -1.0, 0.9, True),
        (-1.0, 0.9, 0.1, True),  # it pays to be wrong
    ],
)
def test_an_option_is_held_to_the_better_of_answering_and_abstaining(
    right: float, wrong: float, at: float, broken: bool
) -> None:
    option = Option([Tried(HONEST, True, right, wrong, "")] * 20)
    assert option.broken is broken
    if broken:
        assert option.at == pytest.approx(at)
        assert option.earned > option.bound


def test_a_form_is_broken_that_is_free_on_some_questions_or_right_without_an_answer() -> None:
    free, fair = Tried(HONEST, True, 1.0, 0.0, "free"), Tried(HONEST, True, -1.0, -1.0, "fair")
    assert Option([free] * 2 + [fair] * 18).broken
    assert not Option([free] + [fair] * 19).broken
    none = Option([Tried(HONEST, False, 0.5, 0.0, "")])  # held to what the ignorant earn
    assert (none.broken, none.at) == (True, 1.0)
    assert not Option([Tried(HONEST, False, 0.0, 0.0, "")]).broken


def test_a_free_option_of_a_users_reward_is_found(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{own}:lazy", "--policies", "F01", "--json") == 1
    (found,) = json.loads(capsys.readouterr().out)["free_options"]
    assert found["verdict"] == "broken"
    pays = (found["mean"], found["answer"], found["abstention"])
    assert pays == pytest.approx((0.5, 0.0, 0.0))
    assert found["ceiling"] == "honesty at 50%"
    assert any(p.gold.lower() in found["text"].lower() for p in prompts().values())
    run(f"{own}:lazy", "--policies", "F01")
    told = " ".join(capsys.readouterr().out.split())
    assert f"broken: {FREE}, the bare answer 0.000 and an abstention 0.000" in told
    lazy, careful = (load_reward(f"{own}:{name}") for name in ("lazy", "careful"))
    assert any(line.startswith(f"broken: {FREE}") for line in broken(lazy, "F01"))
    assert not [line for line in broken(careful, "F01") if "F01" in line]


def test_what_is_masked_is_not_held(own: Path) -> None:
    (found,) = run_battery(oracle_setup(f"{own}:masking"), ["F13"]).options
    assert found.verdict == "masked"
    setup = oracle_setup(f"{own}:sound", nobody(LLMError("connection", "nobody there"), own))
    (found,) = run_battery(replace(setup, questions=2), ["F01"]).options
    assert (found.verdict, found.mean) == ("masked", None)
