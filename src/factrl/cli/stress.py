"""`factrl stress`: does any of 37 known ways to cheat, or a free option, pay with a reward?"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from factrl.errors import TooManyMasked
from factrl.job import REWARD_ALONE, Job, read_job
from factrl.papers import form_of, length_of, load_reward
from factrl.runs.progress import Progress
from factrl.runs.settings import LOCAL

from .options import (
    Verbs,
    add_option,
    add_options,
    add_settings,
    add_verb,
    as_overrides,
    at_least_one,
    check_judge,
)
from .terminal import say, show_rows, tell

if TYPE_CHECKING:
    from factrl.stress import Finding, Setup, StressReport

HEAD = (
    *("id", "policy", "must not beat", "reward", "ceiling"),
    *("answer", "abstain", "margin", "held on", "verdict"),
)
VERDICTS = ("held", "repaired", "known", "broken", "masked", "n/a")
_SHOWN = 600  # characters of a text


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "stress",
        _stress,
        about="try 37 known ways to cheat on a reward, offline and in seconds",
        example=(
            "examples:\n"
            "  factrl stress truthrl\n"
            "  factrl stress my_reward.py:mine --json\n"
            "  factrl stress robust --judge local --policies D01-D09,F01-F18 --questions 2\n"
            "  factrl stress knowrl --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "held: cheating pays no more than its ceiling; broken: it pays; known: broken, as the paper is;\n"
            "repaired: on the paper's list of failures, and held; masked: too little could be graded\n"
            "exit code: 0 the order holds but for failures that the paper is known to have; 1 it is broken;\n"
            "2 something must be changed first; 3 too little could be graded to say that it holds"
        ),
    )
    parser.add_argument("reward", metavar="REWARD", help="truthrl, truthrl:binary or my.py:reward")
    add_option(parser, "--policies IDS", "only these, e.g. D01,D07-D11,F01")
    add_options(
        parser,
        "config",
        "json",
        judge="a server's URL, or local: the small models in this process; by default oracles judge, exactly "
        "and offline",
    )
    add_option(
        parser, "--questions N", "only the first N of 20 questions, in one wording each", type=at_least_one
    )
    add_option(parser, "--strict", "known failures count as broken")
    add_settings(parser, "any setting of the reward, judge or verifier, e.g. reward.wrong=-2")


def _stress(args: argparse.Namespace) -> int:
    from factrl.stress import chosen, run_battery
    from factrl.stress.texts import HONEST_ANSWERS

    ids = args.policies.split(",") if args.policies else []
    count = len(HONEST_ANSWERS) + sum(map(len, chosen(ids)))
    setup = _setup(args, _job(args))
    with Progress("stress", count) as progress:
        outcome = run_battery(setup, ids, on_done=lambda name: progress.advance(1, name))
    if args.json:
        say(json.dumps(document(outcome), indent=2))
    else:
        _show(outcome)
    return _ending(outcome, strict=args.strict)


def _setup(args: argparse.Namespace, job: Job) -> Setup:
    """The reward with its judges."""
    from factrl.stress import Setup, oracle_setup, stand_in
    from factrl.stress.texts import prompts

    if job.settings.judge.url is None:
        setup = oracle_setup(args.reward, job.reward)
        tell("Oracles judge: they know by heart what is true here. --judge asks a model of yours.")
    else:
        reward, settings = job.supplied, job.settings
        check_judge(job, rules=False)
        claims = settings.verifier.judge or settings.verifier.preset
        who = f"judge {settings.judge.url}, verifier {claims}"
        form, length = form_of(args.reward, reward), length_of(args.reward, reward)
        setup = Setup(args.reward, reward, form, length, judges=who)
    if job.settings.paper != args.reward and (why := stand_in(args.reward)[1]):
        tell(f"{why}.")
    if args.questions is None:
        return setup
    return replace(setup, questions=min(args.questions, len(prompts())), ways=1)


def _job(args: argparse.Namespace) -> Job:
    """The job of the reward, or of what stands in for it, and of its judges."""
    from factrl.stress import stand_in

    paper, other = args.reward, stand_in(args.reward)[0]
    if other != paper and not args.config:
        main, taken = load_reward(paper).knobs, load_reward(other).knobs
        given = {word.partition("=")[0].strip().removeprefix("reward.") for word in args.settings}
        if given.isdisjoint(name for name in main if main[name] != taken[name]):
            paper = other
    judged = [f"verifier.judge={LOCAL}"] if args.judge == LOCAL else []
    return read_job(args.config, [f"paper={paper}", *REWARD_ALONE, *judged, *as_overrides(args)])


def _show(outcome: StressReport) -> None:
    from factrl.stress import line_of

    rows: list[Sequence[str] | None] = []
    for part in (outcome.order, outcome.findings, outcome.options):
        rows += [*map(_row, part), None]
    show_rows(HEAD, rows)
    for finding in outcome.of("known"):
        say(f"known: {finding.id}: {finding.why}; closed by: {finding.guard}")
    for finding in outcome.of("broken"):
        say(f"{line_of(finding)}\n    closed by: {finding.guard}")
    for finding in outcome.of("repaired"):
        say(f"repaired: {finding.id} is on the list of known failures and holds")
    say(_summary(outcome))


def _ending(outcome: StressReport, *, strict: bool) -> int:
    masked: list[Finding] = outcome.of("masked")
    if masked and len(masked) == len(outcome.every) - len(outcome.of("n/a")):
        causes = ", ".join(f"{name} {count}" for name, count in outcome.cells["know"].causes.items())
        raise TooManyMasked(f"nothing could be graded ({causes})")
    if masked:
        tell(f"{len(masked)} comparisons are masked: too little was graded to say that they hold.")
    if outcome.of("broken", *(("known",) if strict else ())):
        return 1
    return 3 if masked else 0


def _row(finding: Finding) -> tuple[str, ...]:
    """One comparison as the columns of `HEAD`."""
    margin = "" if finding.margin is None else f"{finding.margin:+.1%}"
    questions = f"{finding.prompts[0]}/{finding.prompts[1]}" if finding.prompts[1] else ""
    paid = (finding.mean, finding.bound, finding.answer, finding.abstention)
    numbers = ["–" if value is None else f"{value:.3f}" for value in paid]
    masked = f" ({finding.masked[0]} of {finding.masked[1]} masked)" if finding.masked[0] else ""
    return (finding.id, finding.name, finding.ceiling, *numbers, margin, questions, finding.verdict + masked)


def _summary(outcome: StressReport) -> str:
    """One line: how many policies hold, are known, broken, masked."""
    steps = sum(f.verdict in ("held", "repaired") for f in outcome.order)
    parts = []
    for part, what in ((outcome.findings, "policies"), (outcome.options, "families of answer forms")):
        every = Counter(each.verdict for each in part)
        counts = ", ".join(f"{every[verdict]} {verdict}" for verdict in VERDICTS if every[verdict])
        parts += [f"{len(part)} {what}: {counts}"] if part else []
    return "; ".join([*parts, f"{steps} of 4 steps of the honest order hold"])


def document(outcome: StressReport) -> dict[str, Any]:
    """Everything as plain data."""
    from factrl.stress.texts import HONEST_ANSWERS

    setup = outcome.setup
    parts = {"order": outcome.order, "policies": outcome.findings, "free_options": outcome.options}
    return {
        "reward": setup.spec,
        "knobs": dict(setup.reward.knobs),
        "form": setup.form,
        "length": setup.length,
        "judges": setup.judges,
        "questions": setup.questions,
        "paraphrases": setup.ways,
        "honest": {kind: outcome.cells[kind].mean for kind in HONEST_ANSWERS},
        **{
            name: [
                {**asdict(finding), "guard": finding.guard, "text": finding.text[:_SHOWN]} for finding in part
            ]
            for name, part in parts.items()
        },
    }
