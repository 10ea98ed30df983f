"""Reports as other people's programs read them: SARIF 2.1.0 for code scanning, JUnit's XML for CI servers.

A text is a pair: the path of its file, "" where it is from no file, and its report.  SARIF (OASIS, 2.1.0) has
a result for every claim that is not supported.  JUnit has no standard: this is what Jenkins and GitLab read,
with a case for every claim.  In both, a sentence that is a mere hedge stands for a claim.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import factrl
from factrl.text import encodable
from factrl.text.escape import one_line, visible

from .report import KINDS, Check, Report

_RULES: Mapping[str, tuple[str, str]] = {
    "refuted": ("error", "The evidence says otherwise."),
    "unsure": ("warning", "The evidence does not decide for sure."),
    "unknown": ("warning", "The evidence does not say."),
    "unjudged": ("warning", "It could not be judged."),
    "hedge": ("note", "The sentence commits to nothing."),
}
"""What is shown of a claim that is not supported -> SARIF's level, and the rule in words."""
_LONGEST = 200  # characters of a case's name


def to_sarif(texts: Sequence[tuple[str, Report]]) -> dict[str, Any]:
    """SARIF 2.1.0, as JSON values.

    Lines end at "\\n" or "\\r\\n", columns are code points, both from 1.  The address of a file is relative
    to the working directory where it is in it; a text from no file is kept whole.  A notification says how
    each text ended, and `executionSuccessful` is false where one could not be checked.
    """
    artifacts = [
        {"location": {"uri": _uri(path)}} if path else {"contents": {"text": encodable(report.text)}}
        for path, report in texts
    ]
    places = [{"index": number, **one.get("location", {})} for number, one in enumerate(artifacts)]
    results, notifications = [], []
    for place, (_, report) in zip(places, texts, strict=True):
        failed = _failed(report)
        notifications.append(
            {
                "level": "error" if failed else "note" if report.claims and not report.weak else "warning",
                "message": {"text": "; ".join(report.summary())},
                "locations": [{"physicalLocation": {"artifactLocation": place}}],
            }
        )
        starts = _line_starts(report.text)
        for check in _counted(report):
            kind = _kind(check)
            if kind != "supported":
                region = _region(starts, check, len(report.text))
                physical = {"artifactLocation": place, **({"region": region} if region else {})}
                results.append(
                    {
                        "ruleId": kind,
                        "level": _RULES[kind][0],
                        "message": {"text": _message(check).replace("](", "] (")},  # else a link
                        "locations": [{"physicalLocation": physical}],
                    }
                )
    rules = [
        {"id": kind, "shortDescription": {"text": words}, "defaultConfiguration": {"level": level}}
        for kind, (level, words) in _RULES.items()
    ]
    run = {
        "tool": {"driver": {"name": "factrl", "version": factrl.__version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not any(_failed(report) for _, report in texts),
                "toolExecutionNotifications": notifications,
            }
        ],
        "artifacts": artifacts,
        "results": results,
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


def to_junit(texts: Sequence[tuple[str, Report]], *, strict: bool = False) -> str:
    """XML 1.0 in ASCII: a suite for every text, in it a case for every claim.

    Refuted is a failure, without a verdict an error.  Unsure, unknown and a hedge are skipped, a failure
    under `strict`.  A text without a claim has one case, which ends as unsure does, and one that could not be
    checked has one that is an error.  Characters that XML does not allow are written out, as `⟨U+0000⟩`.
    """
    root = ET.Element("testsuites", name="factrl verify")
    totals: Counter[str] = Counter()
    for path, report in texts:
        suite = ET.SubElement(root, "testsuite", name=visible(path) or "text")
        seen: Counter[str] = Counter()
        starts = _line_starts(report.text)
        for name, kind, message, check in _cases(report):
            short = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
            seen[short] += 1  # of cases with one name GitLab shows the first
            case = ET.SubElement(
                suite,
                "testcase",
                name=short if seen[short] == 1 else f"{short} ({seen[short]})",
                classname=suite.attrib["name"],
            )
            region = _region(starts, check, len(report.text)) if check else {}
            if path and region:
                case.attrib.update(file=suite.attrib["name"], line=str(region["startLine"]))
            if kind != "supported":
                outcome = {"refuted": "failure", "unjudged": "error"}.get(kind)
                outcome = outcome or ("failure" if strict else "skipped")
                ET.SubElement(case, outcome, type=kind, message=message)
        ET.SubElement(suite, "system-out").text = visible(str(report))
        counts = Counter(outcome.tag for case in suite for outcome in case)
        counts["testcase"] = len(suite) - 1
        _count(suite, counts, report.seconds)
        totals += counts
    _count(root, totals, sum(report.seconds for _, report in texts))
    ET.indent(root)
    return ET.tostring(root, encoding="us-ascii", xml_declaration=True).decode("ascii")


def _cases(report: Report) -> Iterator[tuple[str, str, str, Check | None]]:
    """The name, the kind, the message and the claim of every case of a text."""
    counted = _counted(report)
    for check in counted:
        yield one_line(check.claim.text), _kind(check), _message(check), check
    if not counted:
        kind = "unjudged" if _failed(report) else "no_claim"
        yield "the text", kind, "; ".join(report.summary()), None


def _count(element: ET.Element, counts: Mapping[str, int], seconds: float) -> None:
    tags = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for name, tag in tags.items():
        element.set(name, str(counts.get(tag, 0)))
    element.set("time", f"{seconds:.3f}")


def _failed(report: Report) -> bool:
    """Whether the command ends with "it could not be checked"."""
    return report.failure is not None or report.floored is not None or report.is_unjudged


def _counted(report: Report) -> list[Check]:
    return [check for check in report.checks if check.verdict is not None or check.hedged]


def _kind(check: Check) -> str:
    return "hedge" if check.hedged else check.shown


def _message(check: Check) -> str:
    verdict = check.verdict
    if verdict is None:
        return f"a mere hedge: {one_line(check.claim.text)}"
    p = f" (p={verdict.p:.2f})" if verdict.p is not None else ""
    because = f" ({one_line(verdict.cause)})" if verdict.cause else ""
    sentence = f"{KINDS[check.shown][1]}{p}{because}: {one_line(check.claim.text)}"
    where = f" ({one_line(check.quoted_from)})" if check.quoted_from else ""
    return f"{sentence} Evidence{where}: “{one_line(check.quote)}”" if check.quote else sentence


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _region(starts: Sequence[int], check: Check, length: int) -> dict[str, int]:
    """Where the claim's sentence is, its end exclusive; empty where it is not in the text."""
    start, end = check.claim.start, min(check.claim.end, length)
    if start >= end:
        return {}
    first, last = (bisect_right(starts, place) - 1 for place in (start, end))
    return {
        "startLine": first + 1,
        "startColumn": start - starts[first] + 1,
        "endLine": last + 1,
        "endColumn": end - starts[last] + 1,
    }


def _uri(path: str) -> str:
    whole = Path(os.path.abspath(path))
    if whole.is_relative_to(Path.cwd()):
        return quote(os.fsencode(whole.relative_to(Path.cwd()).as_posix()))
    return whole.as_uri()
