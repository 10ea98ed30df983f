"""What `factrl verify --json` prints, as CI servers read it: SARIF 2.1.0, or JUnit's XML.

    factrl verify docs/*.md --docs notes/ --strict --json > factrl.json
    python examples/ci/reports.py sarif < factrl.json > factrl.sarif

`--strict` is what fails the build; this only shows why.
"""

import json
import re
import sys
import xml.etree.ElementTree as ET
from urllib.parse import quote

LEVELS = {"refuted": "error", "unsure": "warning", "unknown": "warning", "unjudged": "warning"}
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # not in XML 1.0


def found(report):
    """Each claim of a text: what is shown of it, a sentence about that, and its line."""
    for claim in report["claims"]:
        if claim["shown"]:
            said = " ".join(claim["text"].split())[:200]
            line = report["text"].count("\n", 0, claim["start"]) + 1
            yield claim["shown"], f"{claim['shown']}: {said}", line


def sarif(reports):
    results = [
        {
            "ruleId": shown,
            "level": LEVELS[shown],
            "message": {"text": message.replace("](", "] (")},  # else a link
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(report.get("file", "text"))},
                        "region": {"startLine": line},
                    }
                }
            ],
        }
        for report in reports
        for shown, message, line in found(report)
        if shown in LEVELS
    ]
    driver = {"name": "factrl", "rules": [{"id": shown} for shown in LEVELS]}
    return json.dumps(
        {"version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}, indent=1
    )


def junit(reports):
    root = ET.Element("testsuites", name="factrl verify")
    for report in reports:
        suite = ET.SubElement(root, "testsuite", name=report.get("file", "text"))
        for number, (shown, message, line) in enumerate(found(report), start=1):
            name = f"{number}. {CONTROL.sub('?', message)}"
            case = ET.SubElement(
                suite, "testcase", name=name, file=report.get("file", "text"), line=str(line)
            )
            if shown in LEVELS:
                ET.SubElement(case, "error" if shown == "unjudged" else "failure", type=shown)
    return ET.tostring(root, encoding="unicode")


if __name__ == "__main__":
    read = json.load(sys.stdin)
    print({"sarif": sarif, "junit": junit}[sys.argv[1]](read if isinstance(read, list) else [read]))
