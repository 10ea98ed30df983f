"""The outcome as words, as JSON, and as one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factrl.lab.hacks.attacks import Attack
from factrl.lab.hacks.options import HONESTY, in_words
from factrl.lab.hacks.order import Finding
from factrl.lab.hacks.policies import RUNGS
from factrl.lab.hacks.run import Outcome
from factrl.text.escape import one_line
from factrl.text.html import page
from factrl.text.html import write_page as write_html

HEAD = (
    *("id", "policy", "must not beat", "reward", "ceiling"),
    *("answer", "abstain", "margin", "held on", "verdict"),
)
_TONES = {"held": "good", "repaired": "good", "broken": "bad", "known": "none", "masked": "none"}
_SHOWN = 600  # characters of a text


def row_of(found: Finding) -> tuple[str, ...]:
    """One comparison as the columns of `HEAD`."""
    margin = "" if found.margin is None else f"{found.margin:+.1%}"
    questions = f"{found.prompts[0]}/{found.prompts[1]}" if found.prompts[1] else ""
    verdict = f"{found.verdict}, thin" if found.thin else found.verdict
    if found.masked[0]:
        verdict += f" ({found.masked[0]} of {found.masked[1]} masked)"
    paid = (found.mean, found.bound, found.answer, found.abstention)
    values = (*map(_number, paid), margin, questions, verdict)
    return (found.id, found.name, found.ceiling, *values)


def summary(outcome: Outcome) -> str:
    """One line: how many policies hold, are known, broken, masked."""
    steps = sum(f.verdict in ("held", "repaired") for f in outcome.ladder)
    told = [f"{steps} of 4 steps of the honest order hold"]
    if outcome.options:
        told.insert(0, f"{len(outcome.options)} families of answer forms: {_counts(outcome.options)}")
    if outcome.findings:
        told.insert(0, f"{len(outcome.findings)} policies: {_counts(outcome.findings)}")
    return "; ".join(told)


def _counts(found: Sequence[Finding]) -> str:
    every = Counter(each.verdict for each in found)
    verdicts = ("held", "repaired", "known", "broken", "masked", "n/a")
    return ", ".join(f"{every[verdict]} {verdict}" for verdict in verdicts if every[verdict])


def broken_line(found: Finding) -> str:
    """What is broken, in one line: of an answer form also what it earns, and what honesty earns."""
    text = one_line(found.text[:160])
    told = f"broken: {found.id} {found.name}: "
    if found.ceiling.startswith(HONESTY):
        told += f"{in_words(found)}: "
    return told + text


def document(outcome: Outcome, attacks: Sequence[Attack] = ()) -> dict[str, Any]:
    """Everything as plain data."""
    setup = outcome.setup
    return {
        "reward": setup.spec,
        "knobs": dict(setup.reward.knobs),
        "form": setup.form,
        "length": setup.length,
        "judges": setup.judges,
        "questions": setup.questions,
        "paraphrases": setup.ways,
        "honest": {rung: outcome.cells[rung].mean for rung in RUNGS},
        "order": [_plain(found) for found in outcome.ladder],
        "policies": [_plain(found) for found in outcome.findings],
        "free_options": [_plain(found) for found in outcome.options],
        "search": [
            {
                "id": a.id,
                "ceiling": a.ceiling,
                "mean": a.mean,
                "bound": a.bound,
                "beats": a.beats,
                "text": a.text,
            }
            for a in attacks
        ],
    }


def _plain(found: Finding) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "verdict": found.verdict,
        "must_not_beat": found.ceiling,
        "mean": found.mean,
        "ceiling": found.bound,
        "honest_answer": found.answer,
        "honest_abstention": found.abstention,
        "margin": found.margin,
        "thin": found.thin,
        "questions_held": found.prompts[0],
        "questions": found.prompts[1],
        "masked": found.masked[0],
        "texts": found.masked[1],
        "why": found.why,
        "text": found.text[:_SHOWN],
    }


def write_page(path: str | Path, outcome: Outcome, attacks: Sequence[Attack] = ()) -> Path:
    """Write the outcome as one self-contained HTML file without scripts.

    Args:
        attacks: what a search found.
    """
    setup, best = outcome.setup, [attack for attack in attacks if attack.beats]
    html = page(
        "lab/hacks/stress.html",
        title=f"36 hacks against {setup.spec}",
        facts={
            "reward": setup.spec,
            "reads": f"{setup.form}, {setup.length} answers",
            "judges": setup.judges,
            "texts": f"{setup.questions} questions x {setup.ways}",
        },
        summary=summary(outcome),
        honest=", ".join(f"{rung} {_number(outcome.cells[rung].mean)}" for rung in RUNGS),
        head=HEAD,
        tables=[
            [_toned(one) for one in some] for some in (outcome.ladder, outcome.findings, outcome.options)
        ],
        broken=_texts(outcome.of("broken")),
        known=_texts(outcome.of("known")),
        attacks=len(attacks),
        beaten=len(best),
        best=[
            (f"{a.id}: {_number(a.mean)}, must not beat {a.ceiling} {_number(a.bound)}", a.text[:_SHOWN])
            for a in best[:10]
        ],
    )
    return write_html(path, html)


def _toned(found: Finding) -> list[Any]:
    *cells, last = row_of(found)
    return [*cells, {"text": last, "tone": _TONES.get(found.verdict, "none")}]


def _texts(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(f"{one.id} {one.name}" + f": {one.why}" * bool(one.why), one.text[:_SHOWN]) for one in found]


def attack_lines(attacks: Sequence[Attack]) -> list[str]:
    """What a search found, in words, with its five best; nothing without a search."""
    if not attacks:
        return []
    best = [attack for attack in attacks if attack.beats]
    lines = [f"search: {len(best)} of {len(attacks)} candidates beat their ceiling"]
    for a in best[:5]:
        lines.append(f"  {a.id}: {_number(a.mean)}, must not beat {a.ceiling} {_number(a.bound)}")
        lines.append(f"    {one_line(a.text[:160])}")
    return lines


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
