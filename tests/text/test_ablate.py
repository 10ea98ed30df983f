"""`benchmarks/ablate.py` takes every rule by its name and calls its stand-in as the rule is called."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

pytest.importorskip("numpy")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ablate.py"
SPEC = importlib.util.spec_from_file_location("ablate", SCRIPT)
assert SPEC
assert SPEC.loader
ablate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ablate)


@pytest.mark.parametrize("name", ablate.RULES)
def test_a_stand_in_takes_what_its_rule_takes(name: str) -> None:
    module, attribute, instead = ablate.RULES[name]
    own = getattr(module, attribute)
    assert callable(own) == callable(instead)
    if callable(own):
        call = inspect.signature(own).parameters.values()
        named = {one.name: None for one in call if one.kind is one.KEYWORD_ONLY}
        inspect.signature(instead).bind(*(None for _ in range(len(call) - len(named))), **named)


def test_a_rule_is_back_when_it_was_switched_off() -> None:
    module, attribute, instead = ablate.RULES["numbers are said"]
    own = getattr(module, attribute)
    with ablate.without(ablate.RULES["numbers are said"]):
        assert getattr(module, attribute) is instead
    assert getattr(module, attribute) is own
