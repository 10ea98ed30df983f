"""What the documentation shows works: its programs run, its commands parse, its output is what is printed.

Blocks of a page run in order, in one folder and one namespace:

- a block with `title="FILE"` is that file, and pytest runs a `test_….py`;
- `python` runs.  One that names a server or a trainer is compiled, and its calls of `fx.…` are held against
  the signatures;
- `console` runs each `$ factrl …` and compares what follows; `…` stands for anything;
- every other line that starts with `factrl` is parsed, and so is `factrl …` in running text.

`<!-- test: model -->` before a block runs it where the local judge is, `<!-- test: without torch -->` where
torch is not.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import factrl as fx
from factrl.cli import _parse, all_parsers, main
from factrl.errors import ConfigError, SetupError
from factrl.evals.ask import EvalSettings
from factrl.papers import load_reward
from factrl.runs.config import settable
from factrl.runs.settings import RunSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "notebook").glob("*.md"))]
_LINK = re.compile(r"\]\(([^()\s#]+)(?:#([\w-]+))?\)")
_FENCE = re.compile(
    r"(?:^<!-- test: ([a-z ]+) -->\n)?^```(\w*)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^```$", re.M | re.S
)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)((?: {4}.*\n|\n(?= {4}))+)", re.M)
_INLINE = re.compile(r"`(factrl [a-z][^`]*)`", re.S)
_PAID = re.compile(r"p=\d\.\d\d")  # a judge's probability, which differs a little between machines


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, the file that it is, what it needs, and where it stands."""

    kind: str
    text: str
    line: int
    title: str = ""
    needs: str = ""


def blocks(page: str) -> list[Block]:
    """The fenced blocks in order, and the indented ones."""
    found = [
        Block(m[2], m[4], page[: m.start()].count("\n") + 1, m[3] or "", m[1] or "")
        for m in _FENCE.finditer(page)
    ]
    rest = _FENCE.sub("\n", page)
    return [
        *found,
        *(Block("indented", re.sub(r"^ {4}", "", m[1], flags=re.M), 0) for m in _INDENTED.finditer(rest)),
    ]


def commands(text: str) -> Iterator[str]:
    """The factrl commands of a shell block, each on one line and without what only a shell reads."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        words = re.sub(r"^\$ ", "", line.strip())
        words = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", words)
        if re.match(r"factrl [a-z-]", words):
            yield re.sub(r"\s(?:#|>|\|)\s.*| #.*", "", words)


def parse(command: str) -> None:
    """Refuse what the command line would refuse: verb, options, settings.

    Raises:
        SetupError: as `factrl` would print it.
    """
    words = shlex.split(command.replace("…", ""))[1:]
    for word in words:
        if word.startswith("recipes/") and not (ROOT / word).exists():
            raise ConfigError(f"there is no {word}")
    parser, verbs = all_parsers()
    try:
        args = _parse(parser, verbs, words)
    except SystemExit:
        return
    paper = next((word for word in words if is_reward(word)), "")
    knobs = [f"reward.{name}" for name in load_reward(paper).knobs] if paper else []
    known = {*settable(EvalSettings), *settable(RunSettings), *knobs, *tune_settings()}
    known |= {key.rpartition(".")[2] for key in known}
    told = [
        *(getattr(args, "settings", None) or []),
        *(w for w in getattr(args, "words", None) or [] if "=" in w),
    ]
    for word in told:
        key, equals, _ = word.partition("=")
        if (
            equals
            and key not in known
            and not key.startswith(("data.columns.", "demo.", "reward." if not paper else "?"))
        ):
            raise ConfigError(f"{key} is no setting")


def is_reward(word: str) -> bool:
    """Whether a word names a paper's reward."""
    return word.partition(":")[0] in fx.paper_names()


def tune_settings() -> set[str]:
    """What `factrl tune` can be told beside the others."""
    from factrl.train.tuning.settings import TuneSettings

    return {*settable(TuneSettings)}


def check_calls(source: str) -> None:
    """The names that a program takes from factrl exist, and take the keywords that it gives."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fx":
            getattr(fx, node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("fx."):
            called: Any = getattr(fx, ast.unparse(node.func).split(".")[1])
            taken = inspect.signature(called).parameters
            if ast.unparse(node.func).count(".") == 1 and not any(
                p.kind is p.VAR_KEYWORD for p in taken.values()
            ):
                assert {keyword.arg for keyword in node.keywords if keyword.arg} <= {*taken}


def as_pattern(expected: str) -> re.Pattern[str]:
    """What the shown output stands for."""
    lines = [_PAID.sub("p=#", line) for line in expected.rstrip("\n").split("\n")]
    anything = [
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", ".*") + r"\s*\n"
        for line in lines
    ]
    return re.compile("".join(anything))


def run_console(text: str) -> None:
    """Run the commands of a block and compare their output with what is shown."""
    for told in re.split(r"^(?=\$ )", re.sub(r"\\\n\s*", " ", text), flags=re.M)[1:]:
        command, _, expected = told.partition("\n")
        assert command.startswith("$ factrl "), f"only factrl is run: {command}"
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            main(shlex.split(command)[2:])
        printed = _PAID.sub("p=#", shown.getvalue())
        assert as_pattern(expected).fullmatch(printed), f"{command} printed\n{printed}"


def can_run(needs: str) -> bool:
    """Whether what a block needs is here."""
    if needs == "model":
        from factrl.llm import models
        from factrl.llm.local.llama import JUDGE

        return importlib.util.find_spec("xllamacpp") is not None and models.cached(JUDGE) is not None
    if needs == "without torch":
        return importlib.util.find_spec("torch") is None
    assert not needs, f"nothing is known of <!-- test: {needs} -->"
    return True


def each_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@each_page(PAGES)
def test_what_a_page_shows_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("factrl.cli.verify._QUIET", 600.0)  # no word on progress because a machine is slow
    names: dict[str, Any] = {"__name__": "docs"}
    shown = page.read_text("utf-8")
    for block in blocks(shown):
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
            if block.title.startswith("test_"):
                command = [sys.executable, "-m", "pytest", "-q", block.title]
                ran = subprocess.run(command, capture_output=True, text=True)
                assert ran.returncode == ("1 failed in" in shown), ran.stdout  # as the page says
            elif block.kind == "python":
                exec(compile(block.text, block.title, "exec"), {"__name__": block.title})  # noqa: S102
        elif block.kind == "python":
            program = compile("\n" * block.line + block.text, str(page), "exec")
            if re.search("https?://|GRPOTrainer", block.text):
                check_calls(block.text)
            else:
                exec(program, names)  # noqa: S102
        elif block.kind == "console" and can_run(block.needs):
            run_console(block.text)


@each_page(PAGES)
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = page.read_text("utf-8")
    shell = [b.text for b in blocks(text) if b.kind not in ("python", "json", "text", "toml", "console")]
    for command in (command for part in shell for command in commands(part)):
        parse(command)


def test_examples_of_the_help_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for verb in all_parsers()[1].values():
        for command in commands(verb.description or ""):
            parse(command)


@each_page(PAGES)
def test_commands_in_running_text_exist(page: Path) -> None:
    _, verbs = all_parsers()
    text = _FENCE.sub("", page.read_text("utf-8"))
    for command in (" ".join(found.split()) for found in _INLINE.findall(text)):
        verb = next(
            (
                name
                for name in sorted(verbs, key=len, reverse=True)
                if f"{command} ".startswith(f"factrl {name} ")
            ),
            "",
        )
        family = any(name.startswith(command.split()[1] + " ") for name in verbs)
        assert verb or family, f"{page.name}: no such verb in {command!r}"
        known = verbs[verb].format_usage() if verb else ""
        for option in re.findall(r"--[a-z-]+", command):
            assert re.search(rf"{option}\b", known) or not verb, f"{page.name}: {command!r} has no {option}"


@each_page(LINKED)
def test_links_lead_to_what_is_there(page: Path) -> None:
    for target, anchor in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if "://" not in target:
            file = page.parent / target
            assert file.exists(), target
            assert not anchor or anchor in anchors(file.read_text("utf-8")), f"{target}#{anchor}"


def anchors(page: str) -> set[str]:
    """The names of a page's headings in addresses."""
    heads = re.findall(r"^#+ (.+)$", _FENCE.sub("", page), re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


@pytest.mark.parametrize(
    "command",
    [
        "factrl train truthrl --modle x",
        "factrl train truthrl train.lerning_rate=1",
        "factrl train recipes/truthlr.toml",
    ],
)
def test_a_wrong_command_is_found(command: str) -> None:
    with pytest.raises(SetupError):
        parse(command)
