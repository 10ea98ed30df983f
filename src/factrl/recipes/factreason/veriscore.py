"""Evaluation in Learning to Reason for Factuality (arXiv:2508.05618): by VeriScore's own two models.

    pip install veriscore unsloth; git clone https://github.com/Yixiao-Song/VeriScore   # its prompt/ is read
    python veriscore.py data/eval/*.jsonl --model runs/R/model --config recipe.toml --veriscore VeriScore \\
        --output out/eval/grpo

The reward's judge is Llama-3.3-70B-Instruct; here claims are found by SYX/mistral_based_claim_extractor and
judged by SYX/llama3_based_claim_verifier, so that the policy has not learnt what its examiner likes.  Their
program runs them (VeriScore 2.0.3, ten results of Serper, key in SERPER_API_KEY): a file of prompts is a set.

Writes an evaluation that `factrl report` reads: `precision`, the mean share F / T of supported claims, 0
without any, `detail`, the mean F, and `unsupported`, the mean T - F.  Answers and what VeriScore found are
kept in OUTPUT.work: the same command goes on, and a set that is there is not done again.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import factrl as fx
from factrl.evals.metrics import bootstraps
from factrl.evals.samples import Claims, EvalSample
from factrl.job import read_job
from factrl.prepare import answer_part
from factrl.prepare.dataset import write_rows
from factrl.runs.disk import Journal, anything
from factrl.runs.rows import read_lines
from factrl.runs.settings import AskSettings
from factrl.text import think_answer
from factrl.train.answering import open_writer

EXTRACTOR, VERIFIER = "SYX/mistral_based_claim_extractor", "SYX/llama3_based_claim_verifier"
PROGRAM = "-m veriscore.veriscore --label_n 2 --search_res_num 10"  # its own default of results
NUMBERS = {  # name -> what it is, which way is better, and whether it is a share
    "precision": ("supported claims of an answer over all", "higher", True),
    "detail": ("supported claims of an answer", "neither", False),
    "unsupported": ("unsupported claims of an answer", "lower", False),
}
AT_ONCE = 32  # prompts that are answered and kept together


def written(writer, examples, path, **draw):
    """The answer to each prompt, those of `path` not asked for again."""
    with Journal(path, {"model": writer.identity, **draw}) as journal:
        lacking = [example for example in examples if example.id not in journal]
        for start in range(0, len(lacking), AT_ONCE):
            part = lacking[start : start + AT_ONCE]
            for example, (text,) in zip(part, writer.write(part, (0,), **draw), strict=True):
                if isinstance(text, fx.Unscored):
                    raise SystemExit(f"{example.id}: {text}; run the same command again")
                journal.add(
                    example.id, {"text": str(text), "truncated": text.truncated, "tokens": text.tokens}
                )
        return [journal[example.id] for example in examples]


def shown(row):
    """What of an answer is examined: the block, or all but the reasoning where there is none."""
    block = think_answer(row["text"]).answer
    return (
        answer_part(fx.Completion(row["text"], truncated=row["truncated"])) if block is None else block.text
    )


def examined(name, examples, answers, args, work):
    """What VeriScore found of each answer, as it writes it: by the question."""
    folder, found = work / name, work / name / "model_output" / f"verification_{name}_2.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"question": e.question, "response": shown(a), "model": args.model, "prompt_source": name}
        for e, a in zip(examples, answers, strict=True)
        if shown(a)
    ]
    done = folder / "done"
    if rows and not done.exists():
        write_rows(folder / f"{name}.jsonl", rows, anything)
        places = ["--data_dir", folder, "--output_dir", folder, "--cache_dir", work / "cache"]
        models = ["--model_name_extraction", args.extractor, "--model_name_verification", args.verifier]
        own = ["--use_external_extraction_model", "--use_external_verification_model"]
        command = [
            *args.python,
            *shlex.split(PROGRAM),
            *places,
            "--input_file",
            f"{name}.jsonl",
            *models,
            *own,
        ]
        key = os.environ.get("SERPER_KEY_PRIVATE") or os.environ.get("SERPER_API_KEY", "")
        own = {**os.environ, "SERPER_KEY_PRIVATE": key}
        ended = subprocess.run([*map(str, command)], cwd=args.veriscore, env=own, check=False)  # noqa: S603
        whole = [*read_lines(found)] if found.exists() else []
        # Where an answer has no claim it divides by 0 at its very end, when all is written.
        if not whole or (ended.returncode and len(whole) < len(rows)):
            raise SystemExit(f"{name}: VeriScore ended with {ended.returncode}; mend it and run this again")
        done.touch()
    return {row["question"]: row for row in (read_lines(found) if rows else ())}


def claims_of(row):
    """VeriScore's verdicts of one answer; one that it has no row of, it took for a refusal."""
    if row is None:
        return Claims(abstained=True)
    pairs = [(one["claim"], one["verification_result"]) for one in row.get("claim_verification_result") or []]
    judged = tuple((claim, "supported" if said == "supported" else "unknown") for claim, said in pairs)
    supported = [said for _, said in judged].count("supported")
    return Claims(supported=supported, unknown=len(judged) - supported, claims=judged)


def column(at, means):
    return means[:, at]


def evaluated(name, source, writer, settings, args, work):
    """A set's answers with their claims, and what `results.json` says of it."""
    examples = fx.load_examples(source, require_answers=False, limit=args.limit)
    answers = written(writer, examples, work / f"{name}.answers.jsonl", **settings.draw)
    found = examined(name, examples, answers, args, work)
    samples = []
    for example, row in zip(examples, answers, strict=True):
        text = fx.Completion(row["text"], truncated=row["truncated"], tokens=row["tokens"])
        claims = claims_of(found.get(example.question.strip())) if shown(row) else Claims(floored="no_answer")
        samples.append(EvalSample(example, text, None, benchmark=name, claims=claims))
    rows = [(one.claims.supported, one.claims.total) for one in samples]
    values = [[true / max(total, 1), float(true), float(total - true)] for true, total in rows]
    spread = bootstraps(values, {name: partial(column, at) for at, name in enumerate(NUMBERS)})
    numbers = {}
    for name, (told, better, percent) in NUMBERS.items():
        if (one := spread[name]) is not None:
            of = {"n": len(rows), "about": told, "better": better, "percent": percent}
            numbers[name] = {**asdict(one), **of}
    about = {"kind": "long", "about": f"prompts of {source}", "licence": "", "source": source}
    about |= {"model": args.model, "judge": f"{args.extractor} {args.verifier}", "asked_for": "text"}
    about |= {"prompt": settings.data.prompt, "questions": len(examples), "answers": len(samples)}
    return {**about, "masked": {}, "floored": {}, "numbers": numbers, "by": {}}, samples


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="+", help="files of prompts")
    parser.add_argument("--model", required=True)
    parser.add_argument("--config")
    parser.add_argument("--veriscore", required=True, help="folder with VeriScore's prompt/")
    parser.add_argument("--python", type=shlex.split, default=[sys.executable], help="where it is installed")
    parser.add_argument("--extractor", default=EXTRACTOR)
    parser.add_argument("--verifier", default=VERIFIER)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--output", required=True)
    args, settings = parser.parse_known_args(words)
    job = read_job(args.config, ["data.train=-", f"model.name={args.model}", *settings], AskSettings)
    writer, output = open_writer(job.settings), Path(args.output)
    work = output.with_name(f"{output.name}.work").absolute()
    work.mkdir(parents=True, exist_ok=True)
    do = partial(evaluated, writer=writer, settings=job.settings, args=args, work=work)
    made = {Path(source).stem: do(Path(source).stem, source) for source in args.sets}
    benchmarks = {name: row for name, (row, _) in made.items()}
    samples = {name: rows for name, (_, rows) in made.items()}
    about = {"model": args.model, "judge": f"{args.extractor} {args.verifier}", "config": args.config}
    about |= {"sampling": job.settings.sampling.model_dump(), "seed": job.settings.run.seed}
    unfinished = output.with_name(f"{output.name}.tmp")
    unfinished.mkdir(exist_ok=True)
    lines = (one.to_json() for rows in samples.values() for one in rows)
    write_rows(unfinished / "samples.jsonl", lines, anything)
    whole = json.dumps({**about, "benchmarks": benchmarks}, indent=2, ensure_ascii=False)
    (unfinished / "results.json").write_text(whole + "\n", "utf-8")
    unfinished.rename(output)
    for name, row in benchmarks.items():
        said = {key: round(row["numbers"][key]["value"], 4) for key in ("precision", "detail", "unsupported")}
        print(f"{name}: {said}")


if __name__ == "__main__":
    try:
        main()
    except fx.FactrlError as error:
        sys.exit(f"veriscore.py: {error}")
