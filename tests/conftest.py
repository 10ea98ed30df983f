"""Every test runs without the user's settings and without a network; loopback stays."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from fault_server import FaultServer

USERS_SETTINGS = re.compile(r"(FACTRL|OPENAI|HF)_.*|(HTTP|HTTPS|ALL|NO)_PROXY", re.I)
KEPT = {"FACTRL_DATA", "FACTRL_CACHE", "FACTRL_ROWS", "FACTRL_BF16"}


def pytest_configure() -> None:
    # Before any test module is imported: the Hugging Face libraries read these once, when imported.
    for name in list(os.environ):
        if USERS_SETTINGS.fullmatch(name) and name not in KEPT:
            del os.environ[name]
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("FACTRL_BF16", "0")  # the same numbers on every processor; 1 tries the other
    os.environ.pop("COLUMNS", None)  # of the terminal that pytest's workers were started from
    settings.register_profile("factrl", deadline=None)  # no test is about the clock of a busy machine
    settings.load_profile("factrl")


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's judge said is not kept for another's, whose server may get the same port."""
    from factrl.llm.store import Store
    from factrl.rewards.needs import Supplier

    def store(supplier: Supplier) -> Store | None:
        return Store(tmp_path_factory.mktemp("store") / "verdicts.db") if supplier.verifier.cache else None

    monkeypatch.setattr(Supplier, "_store", store)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def serve() -> Iterator[Callable[..., FaultServer]]:
    """Starts servers that play a script, and stops them."""
    with ExitStack() as stack:
        yield lambda *script, port=0: stack.enter_context(FaultServer(*script, port=port))


@pytest.fixture
def make() -> Iterator[Any]:
    """Starts servers of factrl (`serving.servers`), and stops them."""
    from serving import servers

    with servers() as start:
        yield start


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """Connections and look-ups that would leave this machine fail, and loudly: not as an `OSError`."""
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse_outside(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_outside(self.family, address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is None or _is_here(name):
            return getaddrinfo(host, *args, **kwargs)
        name.encode("idna")  # what no name may be fails here, as it would in the real one
        if name.endswith(".invalid"):  # reserved for tests of names that lead nowhere
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        raise RuntimeError(f"a test looked up {name!r}; tests have no network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
        yield


def _refuse_outside(family: int, address: Any) -> None:
    if family in (socket.AF_INET, socket.AF_INET6) and not _is_here(address[0]):
        raise RuntimeError(f"a test connected to {address[0]!r}; tests have no network")


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
