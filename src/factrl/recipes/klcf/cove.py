"""Chain of verification: a model drafts, asks itself about the draft, answers alone, and writes again.

    python cove.py http://localhost:8000/v1#Qwen/Qwen2.5-14B data/longfact/objects.jsonl --output cove.jsonl
    factrl eval longfact --completions cove.jsonl --output out

Dhuliawala et al. 2023, arXiv:2309.11495, section 3, in the factored form: each question is answered in a
prompt of its own, without the draft, so that it is not copied.  The paper's prompts are few-shot examples for
its own tasks; these are instructions for any question.  It is a row of KLCF's Tables 1 and 3, from the base
model and without training.  A plan without a readable question has verified nothing: that answer is left out,
and said.  Answers are kept as they come; a second call asks for what is missing.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import factrl as fx
from factrl.prepare.dataset import write_rows
from factrl.runs.disk import Journal

PLAN = """Below are a request and a draft of the answer, which may contain mistakes. Write short questions \
that check the facts of the draft, one for each fact, each understood without draft and answer.

Write each question on a line of its own that starts with "- ". If the draft states no fact, write only: none

Request: {request}

Draft: {draft}

Questions:"""
ANSWER = "Answer the question in one short sentence. If you do not know the answer, say so.\n\nQuestion: {}"
REVISE = """Below are a request, a draft of the answer, and questions that were asked about its facts with \
independent answers. Write the final answer. Keep what the answers confirm, correct what they contradict, \
leave out what they leave in doubt, and do not mention the draft or the check.

Request: {request}

Draft: {draft}

Checks:
{checks}

Final answer:"""


def cove(llm, request, most=12):
    """The revised answer; None where the plan cannot be read."""

    def ask(prompt, max_tokens=1024):
        messages = [{"role": "user", "content": prompt}]
        return (
            llm.complete(messages, temperature=0.0, max_tokens=max_tokens)
            .text.rpartition("</think>")[2]
            .strip()
        )

    draft = ask(request)
    plan = ask(PLAN.format(request=request, draft=draft), 256)
    questions = [
        line[2:].strip() for line in plan.split("\n") if line.startswith("- ") and line.rstrip().endswith("?")
    ]
    if not questions:
        return draft if plan.strip(" .-").lower() == "none" else None
    checks = "\n".join(f"- {one} {ask(ANSWER.format(one), 256)}" for one in questions[:most])
    return ask(REVISE.format(request=request, draft=draft, checks=checks))


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="http://host:8000/v1#model")
    parser.add_argument("files", nargs="+", help="questions, each with an id")
    parser.add_argument("--output", required=True)
    args = parser.parse_args(words)
    llm, path = fx.connect(args.server), Path(args.output)
    examples = [e for file in args.files for e in fx.load_examples(file, require_answers=False)]
    rows = []
    about = {"job": "cove", "server": args.server, "prompts": [PLAN, ANSWER, REVISE]}
    with Journal(path.with_suffix(".journal.jsonl"), about) as journal, ThreadPoolExecutor(16) as pool:
        lacking = [example for example in examples if example.id not in journal]
        for example, answer in zip(lacking, pool.map(lambda e: cove(llm, e.question), lacking), strict=True):
            journal.add(example.id, {"completion": answer})
        for example in examples:
            if journal[example.id]["completion"] is None:
                print(f"{example.question}: the plan has no question; left out", file=sys.stderr)
            else:
                rows.append({"id": example.id, "question": example.question, **journal[example.id]})
    if not rows:
        sys.exit(
            f"{path} would have no answer; look at {args.server}, and run this again without the journal"
        )
    write_rows(path, rows)


if __name__ == "__main__":
    try:
        main()
    except fx.FactrlError as error:
        sys.exit(f"cove.py: {error}")
