"""What mkdocs does besides: pages that live at the top of the repository, and links out of `docs/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[1]
_TOP = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"(!?)\[([^][]*)\]\(([^()\s]+)\)")


def on_files(files: Files, *, config: Any) -> Files:
    """README, CONTRIBUTING and CHANGELOG become pages of the site."""
    for page, source in _TOP.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(text: str, *, page: Any, **_: Any) -> str:
    """Links as they are right on the site; a link to a file that is no page becomes its name."""
    return _LINK.sub(lambda link: _on_site(link, page.file.src_uri), text)


def _on_site(link: re.Match[str], page: str) -> str:
    image, words, target = link.groups()
    if "://" in target or target.startswith("#"):
        return link[0]
    start = ROOT if page in _TOP else (ROOT / "docs" / page).parent
    name, hash_, anchor = target.partition("#")
    found = (start / name).resolve()
    for site, top in _TOP.items():
        if found == ROOT / top:
            found = ROOT / "docs" / site
    if not found.is_relative_to(ROOT / "docs"):
        return words
    up = "../" * page.count("/")
    return f"{image}[{words}]({up}{found.relative_to(ROOT / 'docs').as_posix()}{hash_}{anchor})"
