"""Every page that the package writes, full of what others wrote: nothing of it becomes an element or runs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from browser import PROGRAM, browsing
from test_verify_html import failed, hostile

from factrl.evals.folder import RESULTS, SAMPLES, read_output
from factrl.evals.report import write_eval_page
from factrl.runs.folder import Rollout, Run
from factrl.train.page import write_run_page
from factrl.types import Result, Span
from factrl.verifier.report import page as verified
from pages import PAYLOADS, Page

_SCRIPT = "document.documentElement.dataset.{}=1"
EXTRA = [
    "<svg><script>document.documentElement.dataset.pwned=1</script></svg>",
    "<iframe srcdoc='<script>parent.document.documentElement.dataset.pwned=1</script>'>",
    "<a href=javascript:alert(1) autofocus onfocus=document.documentElement.dataset.pwned=1>",
    "</pre></td></table></main><details open ontoggle=document.documentElement.dataset.pwned=1>",
    "<style>@import'//evil'</style><link rel=stylesheet href=//evil><base href=//evil>",
    "<math><mtext></table><mglyph><style><img src=x onerror=document.documentElement.dataset.pwned=1>",
    "<form action=//evil><input name=q autofocus onfocus=document.documentElement.dataset.pwned=1>",
    "\x9b31m\u2028<meta http-equiv=refresh content='0;url=//evil'>",
]
TEXTS = [text for text in [*PAYLOADS, *EXTRA] if text]
FORBIDDEN = {"script", "iframe", "object", "embed", "base", "form", "img", "link", "math", "a"}


def verify_page(bad: str, folder: Path) -> Path:
    path = folder / "verify.html"
    path.write_text(verified(hostile(bad)), encoding="utf-8")
    return path


def failed_page(bad: str, folder: Path) -> Path:
    path = folder / "failed.html"
    path.write_text(verified(failed(bad)), encoding="utf-8")
    return path


def run_page(bad: str, folder: Path) -> Path:
    plain = bad.encode("utf-8", "replace").decode()
    settings = {"paper": plain, "model": {"name": plain}, "data": {"train": plain}}
    toml = tomli_w.dumps({**settings, "train": {"loss_type": plain, "learning_rate": 1e-5}})
    with Run.create(folder, "run", toml) as run:
        terms = {plain: 1.0, "b": 0.5}
        spans = (Span(0, 1, 1), Span(1, len(plain), -1))
        rows = [
            Rollout(plain, plain, plain, Result("scored", 1.5, terms, spans), 0.7),
            Rollout("q", bad, bad * 9, Result("masked", None, cause=plain, detail=plain), None),
        ]
        run.log(1, {"reward": 0.1, f"rewards/{plain}/mean": 0.1, plain: plain, "reward/masked_frac": 0.5})
        run.write_rollouts(1, rows)
    return write_run_page(run.path)


def number(**changed: Any) -> dict[str, Any]:
    return {
        "value": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 2,
        "about": "",
        "better": "higher",
        "percent": True,
    } | changed


def evaluation(bad: str, folder: Path, label: str) -> Path:
    """A folder as `factrl eval` leaves it, or as somebody else could."""
    folder.mkdir(parents=True)
    plain = bad.encode("utf-8", "replace").decode()
    numbers = {"accuracy": number(about=plain), plain: number(n=plain)}
    row = {"kind": "short", "about": plain, "licence": plain, "source": plain, "model": plain, "judge": plain}
    row |= {
        "asked_for": plain,
        "prompt": plain,
        "prompt_hash": plain,
        "questions": 2,
        "answers": 2,
        "weights": None,
    }
    row |= {"masked": {plain: 1}, "floored": {plain: 1}, "numbers": numbers}
    about = {
        "factrl": plain,
        "model": f"{plain}{label}",
        "judge": plain,
        "seed": plain,
        "sampling": {"num_samples": plain},
    }
    document = {**about, "benchmarks": {plain: row}}
    (folder / RESULTS).write_text(json.dumps(document), encoding="utf-8")
    sample = {"benchmark": plain, "number": 0, "question": plain, "answers": [plain], "completion": plain * 9}
    sample |= {"answer": plain, "how": plain, "why": plain, "detail": plain, "label": label}
    sample |= dict.fromkeys(("cause", "floored", "tokens")) | {"truncated": False, "values": {}, "marks": {}}
    lines = [json.dumps({**sample, "id": f"{plain}{n}"}) for n in range(3)]
    lines.append(json.dumps({**sample, "id": "masked", "label": None, "cause": plain}))
    (folder / SAMPLES).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def eval_page(bad: str, folder: Path) -> Path:
    return write_eval_page(read_output(evaluation(bad, folder / "e", "correct")))


MAKERS = {one.__name__: one for one in (verify_page, failed_page, run_page, eval_page)}
SAME_SHAPE = {"verify_page", "failed_page"}  # lengths alone decide it


def read(path: Path) -> Page:
    """A page; the one picture is written as an element that ends itself."""
    return Page(path.read_text("utf-8").replace('base64,cG5n">', 'base64,cG5n"/>'))


@pytest.mark.parametrize("name", MAKERS)
def test_no_text_adds_an_element_or_an_attribute(name: str, tmp_path: Path) -> None:
    def made(text: str) -> Page:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return read(MAKERS[name](text, folder))

    own = {"verify_page": {"a"}}.get(name, set())
    for text in TEXTS:
        page, benign = made(text), made("x" * len(text))
        assert {tag for tag, _ in page.elements} <= {tag for tag, _ in benign.elements} | {"span"}, text
        if name in SAME_SHAPE:
            assert page.shape() == benign.shape(), text
        assert not {tag for tag, _ in page.elements} & FORBIDDEN - own, text
        assert page.comments == 0
        assert "img" not in {tag for tag, _ in page.elements}
        for tag, attrs in page.elements:
            assert not [key for key in attrs if key.startswith("on") or key in ("srcdoc", "background")], text
            assert re.match(r"#[\w-]+$", attrs.get("href", "#x"))
            assert tag != "meta" or attrs.get("http-equiv", "").lower() in ("", "content-security-policy")
        assert not set("\u202e\u2066\u200b\x1b\x9b\x00\u2028\U000e0041") & set(page.text)
    marks = {attrs["title"] for attrs in made("a\u202eb\u200bc").by_class("mark")}
    assert marks == {"RIGHT-TO-LEFT OVERRIDE", "ZERO WIDTH SPACE"}


@pytest.mark.parametrize("name", MAKERS)
def test_every_page_forbids_scripts_and_addresses(name: str, tmp_path: Path) -> None:
    path = MAKERS[name]("plain", tmp_path)
    page, html = read(path), path.read_text("utf-8")
    [policy] = [a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    style = html.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "script" not in policy
    assert "base-uri 'none'" in policy
    assert "form-action 'none'" in policy
    assert not re.search(r"url\(|@import|https?:|src=\"//", html)
    folder = tmp_path / "again"
    folder.mkdir()
    if name in SAME_SHAPE:  # the others say which folder they are of
        assert MAKERS[name]("plain", folder).read_bytes() == path.read_bytes()


@pytest.mark.skipif(PROGRAM is None, reason="needs chromium")
def test_no_script_runs_in_a_browser_even_without_the_policy(tmp_path: Path) -> None:
    """Pages in one, without the policies that would stop a script: escaping alone has to hold."""
    parts = []
    for name, make in MAKERS.items():
        (tmp_path / name).mkdir()
        html = make(" ".join(TEXTS), tmp_path / name).read_text("utf-8")
        assert "Content-Security-Policy" in html
        parts.append(re.sub(r"<meta http-equiv=[^>]*>|<!doctype html>", "", html))
    control = f"<script>{_SCRIPT.format('runs')}</script>"
    path = tmp_path / "all.html"
    path.write_text("<!doctype html>" + "".join(parts) + control, encoding="utf-8")
    with browsing(tmp_path / "profile") as browser:
        browser.open(path.as_uri())
        html = browser.js("document.documentElement.outerHTML")
    assert 'data-runs="1"' in html, "a script that is none of theirs runs"
    for name in ("verification report", "run report", "evaluation"):
        assert f"factrl {name}" in html
    assert 'data-pwned="' not in html
