"""How `factrl stress` ends where some was not graded, and which rewards its journal gives again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from factrl.cli import stress as verb
from factrl.errors import ConfigError, TooManyMasked
from factrl.lab.hacks import oracle_setup, run_battery
from stressing import run

FEW = ("--policies", "D01", "--questions", "1", "--paraphrases", "1")
OWN = "from factrl import reward\n@reward\ndef mine(example, completion):\n    return {'a': 1.0}\n"


@pytest.mark.parametrize(
    ("verdicts", "strict", "code"),
    [
        (("held", "held"), False, 0),
        (("held", "masked"), False, 3),
        (("known", "masked"), False, 3),
        (("known", "masked"), True, 1),
        (("broken", "masked"), False, 1),
    ],
)
def test_what_was_not_graded_is_no_pass(verdicts: tuple[str, ...], strict: bool, code: int) -> None:
    outcome = run_battery(replace(oracle_setup("truthrl"), questions=1, ways=1), ["D01", "D07"])
    ladder = [replace(step, verdict="held") for step in outcome.ladder]
    found = [replace(one, verdict=verdict) for one, verdict in zip(outcome.findings, verdicts, strict=True)]
    assert verb._ending(replace(outcome, ladder=ladder, findings=found), strict=strict) == code


def test_nothing_graded_is_an_error() -> None:
    outcome = run_battery(replace(oracle_setup("truthrl"), questions=1, ways=1), ["D01"])
    ladder = [replace(step, verdict="masked") for step in outcome.ladder]
    found = [replace(one, verdict="masked") for one in outcome.findings]
    with pytest.raises(TooManyMasked):
        verb._ending(replace(outcome, ladder=ladder, findings=found), strict=False)


def test_a_journal_is_of_one_source_and_of_one_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, rows = tmp_path / "own.py", str(tmp_path / "rows.jsonl")
    own.write_text(OWN, encoding="utf-8")
    words = (f"{own}:mine", "--form", "boxed", "--length", "short", *FEW, "--output", rows)
    ended = run(*words)
    assert run(*words) == ended
    for other in ("verifier.k=2", "judge.reward_model=some/model"):
        with pytest.raises(ConfigError, match=r"rows\.jsonl"):
            run(*words, other)
    monkeypatch.setattr(verb, "__version__", "0.0.0")
    with pytest.raises(ConfigError, match=r"rows\.jsonl"):
        run(*words)
    monkeypatch.undo()
    own.write_text(OWN.replace("1.0", "2.0"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rows\.jsonl"):
        run(*words)
