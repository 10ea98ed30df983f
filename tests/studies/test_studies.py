"""What a study measures and how it is declared; training is in tests/training/test_studies.py."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from commands import write
from factrl.cli import main
from factrl.errors import ConfigError, DataError
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.runs.data import load_examples
from factrl.studies import StartSettings, add_row, load_study, row_reward, study_names
from factrl.studies.measure import COLUMNS, change, lines, measure, over_seeds, value
from factrl.studies.picture import write_picture
from factrl.studies.table import TableFacts
from factrl.studies.world import (
    ABSTENTION,
    PARTS,
    PREFILLS,
    World,
    open_world,
    split,
    tagged,
    target,
    with_checklist,
)
from factrl.text.html import chart_style
from factrl.types import Completion, TrainingState
from factrl.verifier import Verifier
from factrl.verifier.judges import Table, TableJudge
from factrl.verifier.judges.table import sentence

TABLE = Table(
    [
        (f"Town {n}", relation, (value,))
        for n in range(40)
        for relation, value in (("country", f"Land {n % 4}"), ("continent", "Asia"), ("river", f"River {n}"))
    ]
)
JUDGE = TableJudge(TABLE)
VERIFIER = Verifier(JUDGE.extract, JUDGE, JUDGE, own_subject=False)


def test_every_study_loads_and_names_rewards_that_there_are() -> None:
    for name in study_names():
        for gpu in (False, True):
            study = load_study(name, gpu=gpu)
            assert study.rows["random"].reward == "random"
            for row in study.rows.values():
                if row.reward != "random":
                    load_reward(row.reward).with_(**row.knobs)


_PAYS = [
    f"{name}/{row}"
    for name in study_names()
    for row, one in load_study(name).rows.items()
    if one.reward not in ("random", "intuitor")
]
_PAYS_REASONING = {"fspo/mean", "fspo/fspo", "knowrl/no-refusal", "knowrl/knowrl", "later/robust"}


@pytest.mark.parametrize("row", _PAYS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_is_false_in_the_starts_form_costs_under_every_reward(row: str, count: int) -> None:
    name, _, row_name = row.partition("/")
    study, world = load_study(name), split(TABLE, 0)
    bare = row_reward(study.rows[row_name])
    assert bare is not None
    reward = TableFacts(JUDGE, VERIFIER, Grader()).supply(bare)
    asked = world.examples(study.task, "train")[:1]
    if study.rows[row_name].checklist:
        asked = with_checklist(asked, {asked[0].topic: TABLE.statements(asked[0].topic)})

    def pay(value: str = "", answer: str = "") -> float:
        stated = TABLE.statements(asked[0].topic)[:count]
        text = " ".join(sentence(replace(one, value=value or one.value)) for one in stated)
        answer = answer or (text if study.task == "profile" else asked[0].answers[0])
        completion = Completion(PREFILLS[study.task] + tagged(text, answer), certainty=1.0)
        if study.task == "short":
            completion = Completion(answer)
        completion.group, completion.course = (completion, completion), TrainingState((), stalled=0)
        result = reward(asked[0], completion)
        assert result.value is not None
        return result.value

    if study.task == "profile" or row in _PAYS_REASONING:
        assert pay() > pay(value="Atlantis")
    if study.task != "profile":
        assert pay() > pay(answer="Atlantis")


@pytest.mark.parametrize(
    ("name", "words", "named"),
    [
        ("knowlr", (), "did you mean 'knowrl'"),
        ("knowrl", ("train.setps=3",), "setps"),
        ("nowhere.toml", (), "is not there"),
        ("shared", (), "no study 'shared'"),
    ],
)
def test_mistakes_are_one_line(name: str, words: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_study(name, words)


def test_a_reward_of_ones_own_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(
        "import factrl as fx\n\n\n@fx.reward\ndef sure(example, completion):\n    return {'x': 1.0}\n"
    )
    spec = f"{tmp_path / 'my.py'}:sure"
    study = add_row(load_study("knowrl"), spec)
    assert study.rows["my-sure"].reward == spec
    with pytest.raises(ConfigError, match="already"):
        add_row(study, spec)


def test_a_part_without_a_question_is_refused() -> None:
    rows = [(f"Town {n}", "river", (f"River {n}",)) for n in range(40)]
    with pytest.raises(DataError, match="the column `several`"):
        split(Table(rows, several={"river"}), seed=0)


def test_entities_are_split_once_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    world = split(TABLE, seed=3)
    parts = [set(world.parts[part]) for part in ("warm", "train", "test")]
    assert sum(map(len, parts)) == 40
    assert not parts[0] & parts[1]
    assert not parts[1] & parts[2]
    world.save(tmp_path / "world.json")
    again = World.read(tmp_path / "world.json")
    assert (again.table.facts, again.parts) == (TABLE.facts, world.parts)
    assert len(world.examples("reasoned", "test")) == 3 * len(parts[2])
    assert all(one.evidence[0].title == one.topic for one in world.examples("profile", "train"))
    with pytest.raises(DataError, match="at least 20"):
        split(Table([("A", "b", ("c",))]), 0)


def test_what_the_warm_start_teaches_is_true_and_in_form() -> None:
    import random

    world, draw = split(TABLE, 0), random.Random(0)
    for task in ("profile", "reasoned", "short"):
        asked = world.examples(task, "warm")[:12]
        texts = [target(task, one, TABLE, draw, 0.0) for one in asked]
        for one in measure(task, asked, texts, VERIFIER, Grader(), TABLE):
            assert one.true == one.claims
            assert not one.malformed
            assert task == "profile" or one.right == 1
    declined = target("reasoned", world.examples("reasoned", "warm")[0], TABLE, draw, 1.0)
    assert f"<answer>{ABSTENTION}</answer>" in declined


def measured(*texts: str, task: Any = "profile") -> list[dict[str, Any]]:
    world = split(TABLE, 0)
    asked = world.examples(task, "test")[: len(texts)]
    full = [
        text.replace("LAND", TABLE.facts[one.topic]["country"][0][0])
        for text, one in zip(texts, asked, strict=True)
    ]
    rows = measure(task, asked, full, VERIFIER, Grader(), TABLE)
    return [asdict(row) for row in rows]


def test_profiles_are_counted() -> None:
    rows = measured(
        tagged("I recall.", "Its country is LAND. Its continent is Asia. Its river is Nile."),
        tagged("I recall.", "Its country is LAND. It is pretty."),
        "no tags at all",
    )
    found = {name: value(rows, column) for name, column in COLUMNS["profile"].items()}
    shown = {name: one and round(one.value, 1) for name, one in found.items()}
    assert shown == {
        "precision": 60.0,  # 3 of 5 claims
        "recall": 33.3,  # 3 of 9 facts
        "true sentences": 1.0,
        "claims": 1.7,
        "malformed": 33.3,
    }


def test_reasoning_is_counted_apart_from_the_answer() -> None:
    rows = measured(
        tagged("Its country is LAND. Its continent is Africa.", ABSTENTION),
        "Its country is LAND.</think> and then nothing",
        task="reasoned",
    )
    assert [(row["right"], row["declined"], row["wrong"], row["malformed"]) for row in rows] == [
        (0, 1, 0, 0),
        (0, 0, 1, 1),
    ]
    assert [(row["claims"], row["true"], row["false"]) for row in rows] == [(2, 1, 1), (0, 0, 0)]


def test_changes_are_paired_and_seeds_have_students_interval() -> None:
    before = measured(tagged("x", "Its continent is Africa."), tagged("x", "Its continent is Asia."))
    after = measured(tagged("x", "Its continent is Asia."), tagged("x", "Its continent is Asia."))
    moved = change(before, after, COLUMNS["profile"]["precision"])
    assert moved is not None
    assert moved.value == 50.0
    three = over_seeds([1.0, 2.0, 3.0])
    assert three.value == 2.0
    assert round(three.high - 2.0, 2) == 2.48
    results = {seed: {"start-profile": {"greedy": before}, "s/r": {"greedy": after}} for seed in (0, 1)}
    table = lines(results, "s", "profile", ["r", "not run"])
    assert [line[0] for line in table] == ["start", "r"]
    assert table[1][1].startswith("100.0 (+50.0")
    results[1].pop("s/r")
    assert lines(results, "s", "profile", ["r"])[1][0] == "r (1 of 2 seeds)"


def test_facts_with_periods_are_counted_once() -> None:
    rows = [(f"Dr. A. B. {n}", r, ("St. Louis",)) for n in range(20) for r in ("city", "home")]
    table = Table(rows)
    judge, [example, *_] = TableJudge(table), split(table, 0).examples("profile", "test")
    verifier = Verifier(judge.extract, judge, judge, own_subject=False)
    text = tagged("I recall.", "Its city is St. Louis. Its home is St. Louis.")
    [one] = measure("profile", [example], [text], verifier, Grader(), table)
    assert (one.facts, one.stated, one.true) == (2, 2, 2)


ROWS = """title = "t"
task = "short"
[rows.mine]
"""


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"title = ", "is not valid TOML"),
        ("title = 'é'".encode("latin-1"), "is not UTF-8 text"),
        (b'title = "t"\ntask = ["short"]\n[rows.a]\nreward = "truthrl"\n', "task"),
        (f"{ROWS}reward = 'truthrl:tenary'".encode(), "ternary"),
        (f"{ROWS}reward = 'truthrl'\ntrain = {{ stepz = 3 }}".encode(), "train: unknown key stepz"),
        (f"{ROWS}reward = 'truthrl'\ntrain = {{ steps = 'x' }}".encode(), "train: steps = 'x'"),
        (f"{ROWS}reward = 'truthrl'\nknobs = {{ wrong = 'x' }}".encode(), "knobs.wrong = 'x'"),
        (f"{ROWS}reward = 'truthrl:reasoning-additive'".encode(), "needs reason"),
        (f"{ROWS}reward = 'truthrl'\n[rows.start]\nreward = 'fspo'".encode(), "the name is that of a start"),
        (f"{ROWS}reward = 'truthrl'\n[rows.'a/b']\nreward = 'fspo'".encode(), "up to 60 letters"),
        (f"{ROWS}reward = 'random'\nknobs = {{ x = 1 }}".encode(), "a random reward has no knobs"),
        (f"{ROWS}reward = 'truthrl'\n[calibrate]\nright = 9".encode(), "calibrate.right = 9 of"),
    ],
)
def test_a_file_with_a_mistake_is_refused_when_it_is_read(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=named):
        load_study(str(path))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["thruthrl"], "did you mean"),
        ([""], "is empty"),
        (["nofile.py:x"], "nofile.py"),
        (["--only", "truthrl/nope"], "is no step"),
        (["table=none.csv"], "cannot be read"),
        (["table="], "cannot be read"),
        (["--seeds", "5-3"], "at least 5"),
        (["train.stepz=1"], "stepz"),
    ],
)
def test_a_dry_run_finds_what_a_run_would(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "truthrl", "--output", str(tmp_path / "out"), "--dry-run", *words]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") <= 2


def test_nothing_of_somebody_elses_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "table.md").write_text("my own notes")
    for place in ("out", "out/table.md"):
        assert main(["study", "truthrl", "--output", str(tmp_path / place), "--dry-run"]) == 2
    assert (tmp_path / "out" / "table.md").read_text() == "my own notes"
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "study.svg").write_text("my picture")
    assert main(["study", "truthrl", "--output", str(tmp_path / "two"), "--dry-run"]) == 2
    assert "study.svg exists" in capsys.readouterr().err


def test_the_world_is_written_as_files(tmp_path: Path) -> None:
    rows = [
        f"{e},{r},{v[0]}" for e, facts in TABLE.facts.items() for r, values in facts.items() for v in values
    ]
    (tmp_path / "facts.csv").write_text("\n".join(["entity,relation,value", *rows, "Town 1,twin,A|B"]))
    table = Table.read(tmp_path / "facts.csv")
    (tmp_path / "again.csv").write_bytes(table.to_csv())
    assert Table.read(tmp_path / "again.csv").facts == table.facts
    world, asked = open_world(tmp_path / "facts.csv", 0), dict[str, Any]()
    for before, task in (("", "reasoned"), ("profiles-", "profile")):
        for part in PARTS:
            rows = world.rows(cast(Any, task), part, 0, decline=StartSettings().decline)
            file = write(tmp_path / f"{before}{part}.jsonl", *rows)
            asked[file.stem] = load_examples(str(file), require_answers=False)
    assert [len({one.topic for one in asked[part]}) for part in ("warm", "train", "test")] == [10, 18, 12]
    assert len({one.topic for part in ("warm", "train", "test") for one in asked[part]}) == 40
    assert all(one.checklist and one.evidence for one in asked["profiles-train"])
    assert all(one.answers and one.question.endswith("?") for one in asked["train"])
    taught = [one.meta["reasoned"] for one in (*asked["warm"], *asked["profiles-warm"])]
    assert all(text.startswith("<think>") and text.endswith("</answer>") for text in taught)
    declined = sum(ABSTENTION in text for text in taught)
    assert 0 < declined < 0.4 * len(asked["warm"])


def test_the_picture_has_a_bar_for_every_row_and_replaces_its_own_alone(tmp_path: Path) -> None:
    study = load_study("knowrl")
    rows = measured(
        tagged("Its country is LAND. Its river is Nile.", "Asia"), tagged("", ABSTENTION), task="reasoned"
    )
    held = {"greedy": rows, "sampled": rows}
    results = {0: {"start-reasoned": held, "knowrl/knowrl": held, "knowrl/random": held}}
    path = tmp_path / "study.svg"
    for _ in range(2):
        write_picture({"knowrl": study, "klcf": load_study("klcf")}, results, path)
    root = ET.fromstring(path.read_text("utf-8"))  # noqa: S314 - our own
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("knowrl") == words.count("random") == words.count("start") == 2  # answers and steps
    assert "KLCF" not in " ".join(map(str, words))
    colours = {one.get("fill") or one.get("color") for one in root.iter()} - {None}
    assert colours <= {*re.findall(r"#\w{6}", chart_style())}  # of the style sheet
    bars = root.iter("{http://www.w3.org/2000/svg}rect")
    assert all(bar.get("fill") or bar.get("color") for bar in bars)  # also where nobody reads style sheets
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        write_picture({"knowrl": study}, results, path)
