"""recipes/factreason: what its scripts write, from files in the released forms and a server by script."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import VERISCORE, load, script

import fault_server as fs
from commands import read, write
from factrl.runs import RECIPES
from factrl.runs.config import read_toml

HERE = RECIPES / "factreason"


def sample(text: str, supported: int, others: int, tokens: int, **more: Any) -> dict[str, Any]:
    counts = {"supported": supported, "refuted": 0, "unknown": others, "unjudged": 0}
    row: dict[str, Any] = {
        "id": "q1",
        "question": "Tell me of Lima.",
        "cause": None,
        "floored": None,
        "tokens": tokens,
        "completion": f"<think>{text}</think><answer>{text}</answer>",
    }
    return {**row, "marks": {"claims": counts}, **more}


def rows_of(folder: Path, how: str, *samples: dict[str, Any]) -> list[dict[str, Any]]:
    write(folder / "samples.jsonl", *samples)
    (folder / f"{how}.jsonl").unlink(missing_ok=True)
    script(HERE / "pairs.py", how, str(folder), "--output", str(folder / f"{how}.jsonl"))
    return read(folder / f"{how}.jsonl")


def test_sft_learns_the_most_precise_sample_that_keeps_the_form(tmp_path: Path) -> None:
    none = ("silent", 0, 0, 9)
    (row,) = rows_of(
        tmp_path, "best",
        sample("poor", 1, 3, 90), sample("good", 3, 1, 90), sample("as good", 3, 1, 90), sample(*none),
        sample("best", 9, 0, 90, completion="no form"), sample("lost", 9, 0, 90, cause="timeout"),
    )  # fmt: skip
    assert row["answers"] == ["<think>good</think><answer>good</answer>"]
    with pytest.raises(SystemExit, match="no row can be learnt from"):
        rows_of(tmp_path, "best", sample(*none))


def test_dpo_takes_the_largest_margin_among_pairs_of_like_length(tmp_path: Path) -> None:
    alike = [
        sample("a", 8, 2, 100),
        sample("b", 7, 3, 100),
        sample("c", 6, 4, 110),
        sample("long", 0, 9, 200),
    ]
    (row,) = rows_of(tmp_path, "margin", *alike)
    # .8 over 0 differs most, and lengths differ too much; .8 over .7 is no more than .1 apart
    assert (row["chosen"][7], row["rejected"][7], row["why"]) == ("a", "c", "0.8 over 0.6")
    with pytest.raises(SystemExit, match="no row can be learnt from"):
        rows_of(tmp_path, "margin", *alike[:2])


def test_new_prompts_are_none_that_was_there_before(folder: Path, serve: Any) -> None:
    write("objects.jsonl", {"prompt": "Tell me of Lima."})
    files = dict.fromkeys(("longfact", "fava", "alpacafact", "factory"), "objects.jsonl")
    write("people.jsonl", {"prompt": "Question: Tell me a bio of Ada.", "meta": {"entity": "Ada"}})
    write("tier_1.jsonl", {"prompt": "What is a port?"})
    files |= {"biography": "people.jsonl", "factbench": "tier_1.jsonl"}
    words = [word for name, file in files.items() for word in (f"--{name}", file)]
    script(HERE / "data.py", "sets", *words, "--output", "data")
    assert [row["question"] for row in read("data/eval/biography.jsonl")] == ["Tell me a bio of Ada."]

    said = iter(["<new_prompt>tell me of LIMA</new_prompt>", "none", "<new_prompt>Prompt 3?</new_prompt>"])
    numbers = iter(range(100))
    reply = fs.replies(lambda content: next(said, f"<new_prompt>What is city {next(numbers)}?</new_prompt>"))
    server = serve(reply)
    write("factual.jsonl", {"prompt": "Tell me of Lima."}, *({"prompt": f"Prompt {n}?"} for n in range(5)))
    talks = [[{"role": "user", "content": f"hi {n}"}, {"role": "assistant"}] for n in range(5)]
    write("chat.jsonl", *({"conversation": talk} for talk in talks))
    words = ["--longfact", "factual.jsonl", "--wildchat", "chat.jsonl", "--count", "7"]
    for _ in range(2):  # the second time nobody is asked
        script(HERE / "data.py", "prompts", *words, "--model", f"{server.url}#m", "--output", "data")
        made = [row["question"] for name in ("sft", "rl") for row in read(f"data/{name}.jsonl")]
        assert len(read("data/sft.jsonl")) == 3
        assert len(made) == len({*made}) == 7
        assert all(re.fullmatch(r"What is city \d+\?", one) for one in made)
        asked = len(server.requests)
        shown = server.requests[0].body["messages"][-1]["content"]
        assert "Tell me of Lima." not in shown  # it is in a test set
        assert shown.count("<prompt>") == 1 + 2 + 4
    assert len(server.requests) == asked


def test_veriscores_own_program_examines_the_answer_block(
    folder: Path, serve: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"of Lima": "<think>HM HM</think><answer>A B c</answer>", "of Oslo": "none", "of Rome": "a"}
    reply = fs.replies(lambda content: next((text for of, text in texts.items() if of in content), "ok"))
    server = serve(reply)
    places = [{"id": place, "question": f"Tell me of {place}."} for place in ("Lima", "Oslo", "Rome")]
    write("towns.jsonl", *places)
    (folder / "clone" / "veriscore").mkdir(parents=True)
    (folder / "clone" / "veriscore" / "veriscore.py").write_text(VERISCORE)
    monkeypatch.setenv("SERPER_API_KEY", "k")
    words = ["towns.jsonl", "--model", f"{server.url}#m", "--veriscore", "clone", "--output", "out/base"]
    for again in (False, True):
        if again:  # as if it had been killed before the last line
            Path("out/base").rename("out/base.tmp")
        script(HERE / "veriscore.py", *words, "--python", sys.executable, "data.prompt={question}")
        asked = len(server.requests)
    numbers = json.loads(Path("out/base/results.json").read_text())["benchmarks"]["towns"]["numbers"]
    # 2 of 3, none, 0 of 1
    assert numbers["precision"]["value"] == pytest.approx(2 / 9)
    assert [numbers[name]["value"] for name in ("detail", "unsupported")] == pytest.approx([2 / 3, 2 / 3])
    assert (folder / "clone" / "calls").read_text() == "k"  # once
    assert asked <= len(places) + 2  # and two tiny first questions
    assert "towns: {'precision'" in capsys.readouterr().out


def test_samples_are_asked_for_with_two_examples_and_the_model_without(tmp_path: Path) -> None:
    prompts = [read_toml(HERE / name)["data"]["prompt"] for name in ("two_shot.toml", "recipe.toml")]
    assert [prompt.format(question="Why?").count("Request: ") for prompt in prompts] == [3, 1]
    assert load(HERE / "veriscore.py").EXTRACTOR != load(HERE / "veriscore.py").VERIFIER
    table = read_toml(HERE / "table.toml")["row"]
    assert json.dumps(table).count('"set": "average"') == 12
