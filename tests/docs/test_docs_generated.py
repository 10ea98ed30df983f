"""What the documentation takes from the code is what the code says now, and the site can be built."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from factrl.papers import load_paper, paper_names

ROOT = Path(__file__).parents[2]
PAPERS = sorted(page for page in (ROOT / "docs" / "papers").glob("*.md") if page.stem != "index")
ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """`docs/generate.py`, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_as_generated(generate: ModuleType) -> None:
    for path, text in generate.pages().items():
        written = path.read_text("utf-8")
        assert written == text, f"{path.relative_to(ROOT)} is out of date; run: python docs/generate.py"


def test_the_site_has_the_help_of_every_verb(generate: ModuleType) -> None:
    page = generate.cli_page()
    assert "## factrl verify\n" in page
    assert "--docs FILE" in page


def test_a_table_follows_the_code(generate: ModuleType) -> None:
    page = "a\n<!-- begin: knobs truthrl -->\n| old |\n<!-- end -->\nb\n"
    filled = generate.filled(page)
    assert "old" not in filled
    assert "| `reward.wrong` | `-1.0` |" in filled
    assert filled.startswith("a\n<!-- begin: knobs truthrl -->\n\n| knob |")
    assert filled.endswith("\n<!-- end -->\nb\n")
    assert generate.filled(filled) == filled


def test_a_variant_that_differs_in_settings_alone_says_which(generate: ModuleType) -> None:
    rows = dict(re.findall(r"\| `knowrl:(\S+)` \| (.*) \|", generate.variants("knowrl")))
    assert "`train.steps=500`" in rows["dapo"]
    assert rows["paper"] == "the main setting"


def test_every_paper_has_a_page_that_names_its_terms_and_variants() -> None:
    assert [page.stem for page in PAPERS] == list(paper_names())
    for page in PAPERS:
        text, paper = page.read_text("utf-8"), load_paper(page.stem)
        assert set(re.findall(r"`rewards/(\w+)/mean`", text)) == {*paper.terms}, page.stem
        assert all(f"`{page.stem}:{name}`" in text for name in paper.variants), page.stem
        for kind in ("pays", "knobs", "variants"):
            assert f"<!-- begin: {kind} {page.stem}" in text


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    pages = {"cli.md"} | {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(re.findall(r"([\w/]+\.md)$", menu, re.M))


def test_the_site_is_built_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    import subprocess

    command = [sys.executable, "-m", "mkdocs", "build", "-d", str(tmp_path)]  # -q counts no warnings
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAPERS) + 10
    assert [page.name for page in pages if ELSEWHERE.search(page.read_text("utf-8"))] == []
