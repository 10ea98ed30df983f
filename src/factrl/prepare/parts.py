"""Opening what `factrl prepare klcf` works with, and saying what it was."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factrl import __version__
from factrl.errors import ConfigError
from factrl.llm import preflight
from factrl.llm.writers import open_writer
from factrl.rewards.resources import Supplier
from factrl.runs.settings import LOCAL, AskSettings, VerifierSettings
from factrl.train.plan import open_judge
from factrl.types import Example
from factrl.verifier.search.index import NAME as MANIFEST

from .asking import pace_of
from .importance import Importance
from .klcf import Parts

WORKERS = 16  # questions that are checked at once by a server; each of them keeps several calls in flight


def open_parts(settings: AskSettings, examples: Sequence[Example]) -> Parts:
    """The writer, the verifier and the judge that the settings name; a server is asked one tiny question.

    Raises:
        SetupError: what the user must change.
    """
    told = settings.verifier
    bare = [] if told.docs or told.index or told.web else [e for e in examples if not e.evidence]
    if bare:
        raise ConfigError(
            f"{len(bare)} of {len(examples)} questions come without evidence, and nothing says where to "
            "search: verifier.index=FOLDER (made by factrl index), verifier.docs=FILE or verifier.web=URL"
        )
    judge = open_judge(settings.judge)
    served = judge is not None and settings.judge.url != LOCAL
    if judge is not None and served:
        preflight(judge)
    supplier = Supplier(judge, settings.judge, settings.verifier)
    verifier = supplier.verify()
    return Parts(
        open_writer(settings),
        verifier,
        None if judge is None else Importance(judge, verifier.store),
        min(WORKERS, settings.judge.max_concurrency) if served else 1,
        pace_of(settings),
    )


def head_of(settings: AskSettings, parts: Parts) -> dict[str, Any]:
    """What decides every row: the head of the journal."""
    verifier, sampling = parts.verifier, settings.sampling
    extract = getattr(verifier.extract, "identity", None) or type(verifier.extract).__name__
    return {
        "job": "prepare klcf",
        "model": parts.writer.identity,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": settings.run.seed,
        "prompt": settings.data.prompt,
        "extractor": extract,
        "judge": verifier.judge.identity,
        "weak": verifier.judge.weak,
        "evidence": evidence_of(settings.verifier),
        "passages": verifier.k,
        "max_claims": verifier.max_claims,
        "importance": None if parts.importance is None else parts.importance.identity,
    }


def about_of(settings: AskSettings, head: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What `about.json` says beside the counts."""
    told = settings.verifier.model_dump(mode="json", exclude_none=True)
    samples = settings.sampling.num_samples
    return {"factrl": __version__, **head, "num_samples": samples, "verifier": told, **more}


def evidence_of(told: VerifierSettings) -> dict[str, Any]:
    """A fingerprint of what claims are held against; which folder or file it is does not matter."""
    if told.index is not None:
        return {"index": _sha256(Path(told.index).expanduser() / MANIFEST)}
    if told.docs:
        return {"docs": [_sha256(Path(name).expanduser()) for name in told.docs]}
    return {"web": told.web} if told.web else {"of": "the questions"}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
