"""Chain of verification: a model drafts, asks itself about the draft, answers alone, and writes again.

    python examples/cove.py http://localhost:8000/v1#MODEL questions.jsonl > answers.jsonl
    factrl eval answers.jsonl

Dhuliawala et al. 2023, arXiv:2309.11495, section 3, in the factored form: each question is answered in a
prompt of its own, without the draft, so that it is not copied.  The paper's prompts are few-shot examples for
its own tasks; these are instructions for any question.  It is a baseline of KLCF (recipes/klcf).  A plan
without a readable question has verified nothing: that answer is left out, and said.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import factrl as fx

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


def main(server, file):
    llm, examples = fx.connect(server), fx.load_examples(file)
    with ThreadPoolExecutor(16) as pool:
        for example, answer in zip(
            examples, pool.map(lambda e: cove(llm, e.question), examples), strict=True
        ):
            if answer is None:
                print(f"{example.question}: the plan has no question; left out", file=sys.stderr)
            else:
                row = {"id": example.id, "question": example.question, "answers": example.answers}
                print(json.dumps({**row, "completion": answer}, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
