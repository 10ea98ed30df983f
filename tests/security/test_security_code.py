"""What the package's own code may do: nothing goes online or is uploaded; ruff (S) sees to others."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "factrl"
SOURCES = {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}

UPLOADS = {
    *("push_to_hub", "upload_file", "upload_folder", "upload_large_folder", "create_repo", "create_commit"),
    *("HfApi", "log_artifact", "save_to_hub"),
}


@cache
def parsed(source: str) -> list[ast.AST]:
    """Every node."""
    return list(ast.walk(ast.parse(source)))


def in_full(node: ast.expr) -> str:
    """`a.b.c` of an attribute of a name; of anything else the attributes alone."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def names_of(source: str) -> dict[str, str]:
    """What each imported name stands for, in full."""
    names: dict[str, str] = {}
    for node in parsed(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def calls(source: str) -> list[tuple[str, ast.Call]]:
    """Every call with the full name of what is called."""
    names, called = names_of(source), []
    for node in parsed(source):
        if isinstance(node, ast.Call):
            first, dot, rest = in_full(node.func).partition(".")
            called.append((names.get(first, first) + dot + rest, node))
    return called


def begins(name: str, listed: set[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in listed)


# What can open a connection, and where.  A page that a search engine names is fetched nowhere.
NOT_USED = (
    *("requests", "httpx", "urllib3", "ftplib", "smtplib", "telnetlib", "websockets", "openai", "webbrowser"),
)
ONLINE = {
    "aiohttp": {"llm/client.py", "llm/bodies.py"},
    # client.py: the proxy's settings alone
    "urllib.request": {"llm/client.py"},
    "http.client": {"llm/local/llama.py"},  # llama.py: its own port on loopback
    "socket": {"runs/disk.py", "cli/serve.py"},  # the host's name; whether a port can be had
    "huggingface_hub": {"llm/models.py", "train/hub.py"},
    **{name: set[str]() for name in NOT_USED},
}


def test_only_these_files_can_go_online() -> None:
    files: dict[str, set[str]] = {name: set() for name in ONLINE}
    for path, source in SOURCES.items():
        for name in names_in_full(source):
            for module in ONLINE:
                if begins(name, {module}):
                    files[module].add(path)
    assert {name: sorted(paths - ONLINE[name]) for name, paths in files.items() if paths - ONLINE[name]} == {}
    assert files["aiohttp"] == ONLINE["aiohttp"], "the scan sees them"
    loads = {
        path for path, source in SOURCES.items() for name, _ in calls(source) if name.endswith("load_dataset")
    }
    assert loads == {"runs/rows.py"}


def names_in_full(source: str) -> Iterator[str]:
    for node in parsed(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def test_nothing_is_uploaded() -> None:
    uploads = {
        path: name
        for path, source in SOURCES.items()
        for name, call in calls(source)
        if name.rpartition(".")[2] in UPLOADS or any(option.arg == "push_to_hub" for option in call.keywords)
    }
    assert uploads == {}


IMPORTING = """
import sys
seen = []
ALARMING = {"pickle.find_class", "os.system", "subprocess.Popen", "socket.connect", "socket.getaddrinfo"}
sys.addaudithook(lambda event, _: seen.append(event) if event in ALARMING else None)
import importlib, pkgutil, factrl
SKIPPED = ("train", "bridges", "studies.engine", "local", "__main__")
for module in pkgutil.walk_packages(factrl.__path__, "factrl."):
    if not module.name.removeprefix("factrl.").startswith(SKIPPED):
        try:
            importlib.import_module(module.name)
        except ImportError:  # of an extra
            continue
found = sorted(set(seen))
import pickle
pickle.loads(pickle.dumps(pkgutil.walk_packages))
print(found, sorted(set(seen)))
"""


def test_importing_unpickles_nothing_and_starts_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "[] ['pickle.find_class']", "and the hook sees what it looks for"
