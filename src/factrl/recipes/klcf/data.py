"""KLCF's data (arXiv:2509.23765, sections 2.2, 3.1, A.2, B.1): from public files to what run.sh reads.

    python data.py sets --eli5 eli5.jsonl --longfact-gen new1.jsonl --longwiki-gen new2.jsonl \\
        --factscore prompt_entities.jsonl --longfact longfact_objects.jsonl --longwiki longwiki.jsonl \\
        --factory facebook/FACTORY --shots shots.jsonl --output data
    python data.py lessons extractor responses.jsonl --output extractor.jsonl \\
        --teacher http://host:8000/v1#Qwen/Qwen2.5-72B-Instruct

`sets` writes questions.jsonl (7,993 of ELI5, 4,348 and 2,248 new ones made as LongFact's and HalluLens' are,
none of a test set), the four test sets where `factrl eval` looks for them under FACTRL_DATA, and shots.jsonl
and base.toml, which ask a base model after ten worked examples.  Those of the paper are lost, and which ELI5
it took: files are yours.

`lessons` writes the rows that teach the three models which the reward asks, `{question, answers}`: a question
is the whole prompt of factrl's reader of that model, and the answer the reply that it reads.

    extractor            {question, response[, claims]}: 10,187 rows, claims by Qwen2.5-72B-Instruct
    checklist-verifier   {question, response, items[, labels]}: 10,139 rows, labels (consistent,
                         contradictory, missing) by DeepSeek-R1-0528, whose reasoning is left out
    truthfulness         {claim, label}, of `factrl prepare klcf`, which has trebled and drawn them already

A row without its claims or labels is asked of --teacher; one that it cannot answer readably is left out.
"""

import argparse
import json
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import factrl as fx
from factrl.llm.background import wait_for
from factrl.prepare import FEW_SHOT, Sieve, few_shot, normalised, read_demonstrations
from factrl.prepare.dataset import write_rows
from factrl.rewards.checklist import Checklist
from factrl.rewards.truthfulness import TUNED_PROMPT, shown_claim
from factrl.runs.disk import anything
from factrl.runs.rows import read_rows
from factrl.verifier.claims.llm import LLMClaims

SOURCES = {"eli5": 7993, "longfact_gen": 4348, "longwiki_gen": 2248}  # section 3.1
TESTS = {  # Table 7; the names and places that `factrl eval` knows
    "factscore": ("factscore_entities/unlabelled.jsonl", 500),
    "longwiki": ("longwiki/test.jsonl", 250),
    "longfact": ("longfact/objects.jsonl", 250),
    "factory": ("factory_hard/prompts.jsonl", 250),
}
TRUE, FALSE = ("supported", "true", "1"), ("refuted", "false", "0")
COLUMNS = {
    "extractor": ("question", "response"),
    "checklist-verifier": ("question", "response", "items"),
    "truthfulness": ("claim", "label"),
}


def test_rows(name, source, size, draw):
    """The questions of a test set, which ones of a larger one being drawn: the paper does not say."""
    rows = list(read_rows(source, "hard" if name == "factory" else "test"))
    chosen = sorted(draw.sample(range(len(rows)), min(size, len(rows))))
    for number in chosen:
        row = rows[number]
        topic = row.get("entity") or (row.get("meta") or {}).get("entity") or ""
        question = row.get("question") or row.get("prompt") or (f"Tell me a bio of {topic}." if topic else "")
        if not question:
            told = f"has no question, prompt or entity; its columns: {', '.join(row)}"
            raise fx.SetupError(f"{source}, row {number + 1} {told}")
        question = question.removeprefix("Question: ")  # as FActScore asks its own models
        yield {"id": f"{name}-{number}", "question": question, "topic": topic, "answers": []}


def sets(args):
    """Write every file of `args.output`, those that are there again."""
    folder, draw = Path(args.output), random.Random(args.seed)
    for name, (place, size) in TESTS.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        rows = list(test_rows(name, getattr(args, name), size, draw))
        write_rows(folder / place, rows, anything)
        print(f"{place}: {len(rows)} of {size}")
    sieve = Sieve.read([folder / place for place, _ in TESTS.values()])
    kept, seen = [], set()
    for name, size in SOURCES.items():
        examples, _ = sieve.sift(fx.load_examples(getattr(args, name), require_answers=False))
        fresh = {normalised(e.question): e.question for e in examples if normalised(e.question) not in seen}
        seen |= fresh.keys()
        of = [*fresh.values()][:size]
        kept += [{"id": f"{name}-{n}", "question": question, "source": name} for n, question in enumerate(of)]
        print(f"questions.jsonl: {len(of)} of {name}, {size} in the paper")
    write_rows(folder / "questions.jsonl", kept, anything)
    shown = read_demonstrations(args.shots)[:10]
    shots = [{"question": e.question, "answers": [*e.answers]} for e in shown]
    write_rows(folder / "shots.jsonl", shots, anything)
    prompt = few_shot(FEW_SHOT, shown)
    (folder / "base.toml").write_text(f"[data]\nchat = false\nprompt = {json.dumps(prompt)}\n", "utf-8")


def asked(read):
    """What a reader asks a model first; None where it asks nothing."""
    llm = fx.FakeLLM(lambda messages: fx.LLMError("only recorded"))
    try:
        read(llm)
    except fx.LLMError:
        return llm.calls[0][-1]["content"]
    return None


def lesson(kind, teacher, row):
    """A prompt and the reply to learn, or in a word or two why there is none."""
    if missing := [name for name in COLUMNS[kind] if name not in row]:
        raise fx.SetupError(f"a row has no {missing[0]}; its columns: {', '.join(row)}")
    question, text = row.get("question") or "", row.get("response") or ""
    if kind == "truthfulness":
        label = str(row["label"]).lower()
        prompt = TUNED_PROMPT.replace("{claim}", shown_claim(row["claim"]), 1)
        return (prompt, str(label in TRUE)) if label in (*TRUE, *FALSE) else f"label {label}"
    try:
        if kind == "extractor":
            reader = partial(extracted, text=text, question=question)
            claims = row["claims"] if "claims" in row else reader(teacher)
            known = [*dict.fromkeys(" ".join(claim.split()) for claim in claims)]
            reply = "\n".join(f"- {claim}" for claim in known) or "No verifiable claim."
        else:
            reader = partial(checked, text=text, question=question, items=row["items"])
            known = [str(label).lower() for label in row.get("labels") or reader(teacher)]
            ids = [one["id"] for one in json.loads((asked(reader) or "\n\n").split("\n")[-2])["items"]]
            # A made-up item, which the reader adds to a text that looks forged, is last and never there.
            words = known + ["missing"] * (len(ids) - len(known))
            pairs = zip(ids, words, strict=True)
            reply = "\n".join(json.dumps({"id": name, "verdict": word}) for name, word in pairs)
        prompt = asked(reader)
        if prompt is None:
            return "nothing in it"
        return (prompt, reply) if reader(fx.FakeLLM([reply])) == known else "its reader reads it otherwise"
    except (fx.Unscored, fx.LLMError, ValueError) as error:
        return type(error).__name__


def extracted(llm, *, text, question):
    """The claims that a model finds, as the reward reads them."""
    found = wait_for(LLMClaims(llm, "veriscore_response")(text, question))
    return [claim.text for claim in found if claim.skip is None]


def checked(llm, *, text, question, items):
    """What a model makes of each item, as the reward reads it."""
    return Checklist(llm)(question, text, items)


def lessons(args):
    """Write the rows of one model, once."""
    if Path(args.output).exists():
        return
    teacher = fx.connect(args.teacher) if args.teacher else None
    with ThreadPoolExecutor(16) as pool:
        made = [*pool.map(partial(lesson, args.kind, teacher), read_rows(args.file))]
    rows = [{"question": one[0], "answers": [one[1]]} for one in made if not isinstance(one, str)]
    print(f"{len(rows)} rows; left out: {dict(Counter(one for one in made if isinstance(one, str)))}")
    if not rows:
        sys.exit(f"{args.file}: no row can be learnt from")
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    write_rows(Path(args.output), rows)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("sets")
    for name in (*SOURCES, *TESTS, "shots"):
        one.add_argument(f"--{name.replace('_', '-')}", required=True, metavar="FILE_OR_HUB_ID")
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(run=sets)
    one = verbs.add_parser("lessons")
    one.add_argument("kind", choices=COLUMNS)
    one.add_argument("file")
    one.add_argument("--teacher", help="http://host:8000/v1#model, for rows without claims or labels")
    one.set_defaults(run=lessons)
    for each in verbs.choices.values():
        each.add_argument("--output", required=True)
    args = parser.parse_args(words)
    args.run(args)


if __name__ == "__main__":
    try:
        main()
    except fx.FactrlError as error:
        sys.exit(f"data.py: {error}")
