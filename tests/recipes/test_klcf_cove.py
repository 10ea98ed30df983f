"""`recipes/klcf/cove.py`: chain of verification as a baseline."""

from __future__ import annotations

import runpy

from factrl.llm import FakeLLM
from factrl.runs import RECIPES


def test_cove_checks_a_draft_by_questions_that_do_not_see_it() -> None:
    cove = runpy.run_path(str(RECIPES / "klcf" / "cove.py"))["cove"]
    llm = FakeLLM(
        ["In Paris.", "- Where was she born?\n- In which year?", "In Warsaw.", "In 1867.", "Warsaw."]
    )
    assert cove(llm, "Where was Curie born?") == "Warsaw."
    prompts = [str(messages[0]["content"]) for messages in llm.calls]
    assert "In Paris." not in prompts[2] + prompts[3]
    assert "- Where was she born? In Warsaw." in prompts[4]
    assert cove(FakeLLM(["In Paris.", "none"]), "Where?") == "In Paris."
    assert cove(FakeLLM(["In Paris.", "It is fine."]), "Where?") is None
