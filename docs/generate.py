"""Writes what the documentation takes from the code, the tables of `docs/papers/`; the site has `cli_page`.

    python docs/generate.py

A table stands between `<!-- begin: KIND PAPER -->` and `<!-- end -->`; whatever is there is replaced.  The
text around it is written by hand.  `tests/docs/test_docs_generated.py` fails when a page is not what
this writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

from factrl.cli import all_parsers
from factrl.cli.show import differences, knob_help, shown
from factrl.papers import load_paper, load_reward, paper_names, split_spec
from factrl.runs import recipe_of
from factrl.stress.payoffs import OUTCOMES, payoffs
from factrl.studies import load_study, study_names
from factrl.types import Result

DOCS = Path(__file__).parent
WIDTH = "88"
MEASURED = ("truthrl", "knowrl", "klcf", "fspo", "factreason")
"""Papers whose reward was trained in a study that `docs/results.md` has."""
_BLOCK = re.compile(r"(<!-- begin: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.S)
_CLI = """# The command line

Made from the parsers themselves when the site is built. Exit codes: 0 done; 1 a check failed; 2
something must be changed first; 3 too much could not be graded; 130 interrupted. Results go to stdout,
everything else to stderr.
"""


def cli_page() -> str:
    """The page of the command line: the help of every verb."""
    with patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1"}):
        parser, verbs = all_parsers()
        parts = [_CLI, *_help("factrl", parser.format_help())]
        for name, verb in verbs.items():
            parts += _help(f"factrl {name}", verb.format_help())
    return "\n".join(parts)


def _help(name: str, text: str) -> list[str]:
    return [f"## {name}\n", f"```text\n{text.strip()}\n```\n"]


def filled(page: str) -> str:
    """A page with its tables as the code has them now."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{_TABLES[found[2]](found[3])}\n{found[4]}", page)


def index(_: str) -> str:
    """Every paper: its idea, its variants, where it is trained, and whether that was measured."""
    studies = {name: load_study(name) for name in study_names()}
    rows = []
    for paper in paper_names():
        idea = load_paper(paper).about.partition("\n")[0]
        in_rows = [
            _code(f"study {name}")
            for name, study in studies.items()
            if paper in {split_spec(row.reward)[0] for row in study.rows.values()}
        ]
        folder = recipe_of(paper).parent
        full = [f"[its pipeline](../../src/factrl/recipes/{paper}/)"] if (folder / "run.sh").is_file() else []
        variants = ", ".join(map(_code, load_paper(paper).variants))
        studied = ", ".join([*in_rows, *full]) or "none"
        measured = "[135M on a GPU](../results.md#does-training-work)" if paper in MEASURED else "not yet"
        rows.append((f"[{paper}]({paper}.md)", idea, variants, studied, measured))
    return _table(("paper", "its idea", "variants", "where it is trained", "trained and measured"), rows)


def variants(name: str) -> str:
    """What of each variant differs from the first."""
    paper, rows = load_paper(name), []
    for variant in paper.variants:
        told = ", ".join(map(_code, differences(paper, variant))) or "the main setting"
        rows.append((_code(f"{name}:{variant}"), told))
    return _table(("variant", "what differs"), rows)


def pays(spec: str) -> str:
    """What a right, an abstaining, a wrong and a broken answer earn: `factrl show`."""
    found = payoffs(load_reward(spec))
    head = ("outcome", *(payoff.when or "it pays" for payoff in found))
    rows = [(outcome, *(_paid(payoff.results[outcome]) for payoff in found)) for outcome in OUTCOMES]
    return _table(head, rows)


def _paid(result: Result) -> str:
    if result.value is None:
        return f"masked: `{result.cause}`"
    terms = [f"{name} {value:g}" for name, value in result.terms.items() if value]
    parts = f" = {' + '.join(terms)}" if len(result.terms) > 1 and terms else ""
    return f"**{result.value:g}**{parts}" + (f", floored: `{result.cause}`" if result.cause else "")


def knobs(spec: str) -> str:
    """The knobs of a reward with their defaults."""
    reward = load_reward(spec)
    help_of = knob_help(reward, load_paper(split_spec(spec)[0]))
    rows = [
        (
            _code(f"reward.{name}"),
            _code(shown(value)) if value is not None else "yours to give",
            help_of.get(name, ""),
        )
        for name, value in reward.knobs.items()
    ]
    return _table(("knob", "default", "what it does"), rows)


_TABLES: Mapping[str, Callable[[str], str]] = {
    "index": index,
    "variants": variants,
    "pays": pays,
    "knobs": knobs,
}


def _code(text: str) -> str:
    return f"`{text}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def pages() -> Mapping[Path, str]:
    """Every page that this writes, as it should be."""
    return {path: filled(path.read_text("utf-8")) for path in sorted((DOCS / "papers").glob("*.md"))}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
