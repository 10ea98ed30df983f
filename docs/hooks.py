"""What mkdocs does besides: pages that live at the top of the repository, and links out of `docs/`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[1]
_TOP = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"(!?)\[([^][]*)\]\(([^()\s]+)\)")
_IMAGE = re.compile(r"""(<img\s[^>]*?src=")([^"]+)(")""")


def on_files(files: Files, *, config: Any) -> Files:
    """README, CONTRIBUTING and CHANGELOG become pages of the site, and so does the help of every verb."""
    sys.path.insert(0, str(ROOT / "docs"))
    from generate import cli_page  # pyright: ignore[reportMissingImports]

    files.append(File.generated(config, "cli.md", content=cli_page()))
    for page, source in _TOP.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(text: str, *, page: Any, **_: Any) -> str:
    """Links and images as they are right on the site; a link to a file that is no page becomes its name."""
    uri = page.file.src_uri
    text = _IMAGE.sub(lambda tag: f"{tag[1]}{_place(tag[2], uri) or tag[2]}{tag[3]}", text)
    return _LINK.sub(lambda link: _on_site(link, uri), text)


def _on_site(link: re.Match[str], page: str) -> str:
    image, words, target = link.groups()
    place = _place(target, page)
    return words if place is None else f"{image}[{words}]({place})"


def _place(target: str, page: str) -> str | None:
    """What a page calls a file on the site; None where it is not there."""
    if "://" in target or target.startswith("#"):
        return target
    start = ROOT if page in _TOP else (ROOT / "docs" / page).parent
    name, hash_, anchor = target.partition("#")
    found = (start / name).resolve()
    for site, top in _TOP.items():
        if found == ROOT / top:
            found = ROOT / "docs" / site
    if not found.is_relative_to(ROOT / "docs"):
        return None
    up = "../" * page.count("/")
    return f"{up}{found.relative_to(ROOT / 'docs').as_posix()}{hash_}{anchor}"
