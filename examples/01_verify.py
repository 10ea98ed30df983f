"""Check a text against a source: its claims, a verdict for each, and the sentence it rests on.

    pip install '.[local]'
    python examples/01_verify.py

No server and no key.  The judge is a 1.5B model in this process (`factrl doctor --get
Qwen2.5-Coder-1.5B-Instruct`); where it is not, overlap of words and numbers stands in, and says so.
"""

import factrl as fx

SOURCE = (
    "Marie Curie was a physicist and chemist. She was born in Warsaw, in what was then the Kingdom of "
    "Poland, on 7 November 1867. In 1903 she shared the Nobel Prize in Physics, and in 1911 she received "
    "the Nobel Prize in Chemistry."
)
TEXT = "Marie Curie was born in Warsaw in 1868. She won the Nobel Prize in Chemistry."
MARKS = {"supported": "+", "refuted": "x", "unsure": "~", "unknown": "?", "unjudged": "!"}


def main() -> None:
    verifier = fx.open_verifier("local")
    evidence = [fx.Passage(SOURCE, title="Marie Curie")]
    report = verifier(TEXT, "Who was Marie Curie?", evidence=evidence)
    for check in report.checks:
        if check.verdict is not None:
            print(f"{MARKS[check.shown]} {check.claim.text}")
            print(f"    {check.shown}: {check.quote or 'no sentence of the source speaks of it'}")
    print(f"{report.counts['supported']} of {report.claims} claims are supported")
    if report.weak:
        print("no model judged: these verdicts come from overlap of words and numbers alone")


if __name__ == "__main__":
    main()
