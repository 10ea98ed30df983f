"""The outcome as words, as JSON, and as one page of HTML in the house style."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factrl.evals.report import facts_list, html_page
from factrl.lab.hacks.attacks import Attack
from factrl.lab.hacks.options import HONESTY, in_words
from factrl.lab.hacks.order import Finding
from factrl.lab.hacks.policies import RUNGS
from factrl.lab.hacks.run import Outcome
from factrl.text.escape import markup, one_line

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
    setup = outcome.setup
    facts = {
        "reward": setup.spec,
        "reads": f"{setup.form}, {setup.length} answers",
        "judges": setup.judges,
        "texts": f"{setup.questions} questions x {setup.ways}",
    }
    title = f"36 hacks against {setup.spec}"
    body = [
        f'<p class="eyebrow">factrl stress</p><h1>{markup(title)}</h1>{facts_list(facts)}',
        f"<section><h2>{markup(summary(outcome))}</h2>{_honest(outcome)}{_table(outcome.ladder)}</section>",
        f"<section><h2>The policies</h2>{_table(outcome.findings)}</section>",
        f"<section><h2>Free options</h2>{_table(outcome.options)}</section>" if outcome.options else "",
        _texts("Broken", "This is news: no list has it.", outcome.of("broken")),
        _texts("Known", "A faithful recipe keeps what its paper pays.", outcome.of("known")),
        _attacks(attacks),
        "<footer><p>Margins are shares of know - wrong. Held means: on the mean and on 95 % of the questions,"
        " with 95 % of the texts graded. A masked text has no reward and never counts as held.</p></footer>",
    ]
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html_page(title, body), encoding="utf-8")
    return path


def _honest(outcome: Outcome) -> str:
    told = (f"{rung} {_number(outcome.cells[rung].mean)}" for rung in RUNGS)
    return f"<p>Honest answers earn: {markup(', '.join(told))}.</p>"


def _table(found: Sequence[Finding]) -> str:
    head = "".join(f"<th>{markup(name)}</th>" for name in HEAD)
    rows = []
    for each in found:
        first, *others = row_of(each)
        cells = "".join(f"<td>{markup(text)}</td>" for text in others[:-1])
        tone = _TONES.get(each.verdict, "none")
        cells += f'<td class="{tone}">{markup(others[-1])}</td>'
        rows.append(f'<tr><th scope="row">{markup(first)}</th>{cells}</tr>')
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _texts(title: str, about: str, found: Sequence[Finding]) -> str:
    if not found:
        return ""
    items = "".join(
        f"<dt>{markup(f.id)} {markup(f.name)}{markup(f': {f.why}' if f.why else '')}</dt>"
        f"<dd><pre>{markup(f.text[:_SHOWN])}</pre></dd>"
        for f in found
    )
    return f'<section><h2>{title}: {len(found)}</h2><p>{about}</p><dl class="long">{items}</dl></section>'


def _attacks(attacks: Sequence[Attack]) -> str:
    if not attacks:
        return ""
    best = [attack for attack in attacks if attack.beats]
    items = "".join(
        f"<dt>{markup(a.id)}: {_number(a.mean)}, must not beat {a.ceiling} {_number(a.bound)}</dt>"
        f"<dd><pre>{markup(a.text[:_SHOWN])}</pre></dd>"
        for a in best[:10]
    )
    told = f"{len(best)} of {len(attacks)} candidates beat their ceiling."
    return f'<section><h2>Search</h2><p>{told}</p><dl class="long">{items}</dl></section>'


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
