"""What tuning changed on held-out questions: the same ones answered before and after, greedily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from factrl.evals.metrics import ShortForm, compare, short_form
from factrl.train.tuning.pairs import Sample
from factrl.types import Example, Grade

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Outcome:
    """Graded answers to the same questions, before and after.

    Attributes:
        examples: the questions; those on a false premise are in no number of the summaries.
        before, after: one graded sample per question.
    """

    examples: Sequence[Example]
    before: Sequence[Sample]
    after: Sequence[Sample]

    def table(self) -> Table:
        """For a terminal: each number before and after with its 95 % interval, and the paired difference."""
        from rich.table import Table

        first, last = self._summaries()
        changed = compare(*self._usual())
        table = Table("metric", "before", "after", "paired difference")
        for name in first.metrics:
            cells = [first.metrics[name], last.metrics[name]]
            difference = changed.differences[name]
            table.add_row(
                name.replace("_", " "),
                *("–" if cell is None else str(cell) for cell in cells),
                "–" if difference is None else difference.signed(),
            )
        table.add_section()
        table.add_row("questions", str(first.n), str(last.n), str(changed.n))
        table.add_row("masked", str(first.masked), str(last.masked), str(changed.left_out))
        return table

    def to_json(self) -> dict[str, Any]:
        """Plain data: both summaries, the paired differences and one entry per question."""
        first, last = self._summaries()
        changed = compare(*self._usual())
        odd = [i for i, example in enumerate(self.examples) if example.false_premise]
        premise = {
            when: short_form([_grade(samples[i]) for i in odd]).to_json()
            for when, samples in (("before", self.before), ("after", self.after))
        }
        rows = zip(self.examples, self.before, self.after, strict=True)
        return {
            "before": first.to_json(),
            "after": last.to_json(),
            "differences": {name: d and asdict(d) for name, d in changed.differences.items()},
            "compared": changed.n,
            "left_out": changed.left_out,
            "false_premise": premise if odd else None,
            "rows": [{"id": e.id, "before": _plain(a), "after": _plain(b)} for e, a, b in rows],
        }

    def _summaries(self) -> tuple[ShortForm, ShortForm]:
        first, last = self._usual()
        return short_form(first), short_form(last)

    def _usual(self) -> tuple[list[Grade | None], list[Grade | None]]:
        usual = [i for i, example in enumerate(self.examples) if not example.false_premise]
        return [_grade(self.before[i]) for i in usual], [_grade(self.after[i]) for i in usual]


def _grade(sample: Sample) -> Grade | None:
    return None if sample.label is None else Grade(sample.label, sample.text, "")


def _plain(sample: Sample) -> Mapping[str, Any]:
    return {"completion": sample.text, "label": sample.label, "cause": sample.cause}
