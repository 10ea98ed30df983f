"""Reads `factrl verify FILES --docs … --json` and prints what CI servers show beside a line.

factrl verify docs/*.md --docs notes/ --json | python examples/ci/annotate.py             # GitHub's lines
factrl verify docs/*.md --docs notes/ --json | python examples/ci/annotate.py --junit > factrl.xml
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

LEVELS = {"refuted": "error", "unsure": "warning", "unknown": "warning", "unjudged": "warning"}


def claims_of(report: dict[str, Any]) -> Iterator[tuple[int, str, str, str]]:
    """Of every claim that counts its line, its words, what is shown of it, and the sentence that decided."""
    for claim in report["claims"]:
        if verdict := claim["verdict"]:
            line = report["text"].count("\n", 0, claim["start"]) + 1
            quote = verdict["quote"]
            passage = report["passages"][claim["passages"][quote[0]]] if quote else None
            said = (
                f"“{passage['text'][quote[1] : quote[2]]}” ({passage['title']})" if passage and quote else ""
            )
            yield line, claim["text"], claim["shown"], said


def main() -> None:
    """Print a line of GitHub's workflow commands for every claim that is not supported, or JUnit's XML."""
    reports = []
    for line in sys.stdin:
        reports.append(json.loads(line))  # noqa: PERF401
    if "--junit" not in sys.argv:
        for report in reports:
            for line, claim, shown, said in claims_of(report):
                if shown != "supported":
                    message = f"{shown}: {claim} {said}".replace("%", "%25").replace("\n", "%0A")
                    print(f"::{LEVELS[shown]} file={report.get('file', '')},line={line}::{message}")
        return
    root = ET.Element("testsuites", name="factrl verify")
    for report in reports:
        suite = ET.SubElement(root, "testsuite", name=report.get("file", "") or "text")
        for line, claim, shown, said in claims_of(report):
            case = ET.SubElement(suite, "testcase", name=claim, file=report.get("file", ""), line=str(line))
            if shown != "supported":
                tag = {"refuted": "failure", "unjudged": "error"}.get(shown, "skipped")
                ET.SubElement(case, tag, type=shown, message=said)
        suite.set("tests", str(len(suite)))
    print(ET.tostring(root, encoding="unicode"))


if __name__ == "__main__":
    main()
