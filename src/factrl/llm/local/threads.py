"""How many CPU threads a model in this process takes, and how they wait for each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_ALL_UP_TO = 4  # beyond, half of the cores are usually only hyperthreads, which slow matrix products down


def default_threads() -> int:
    """All cores this process may use up to four, and half of them beyond."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores <= _ALL_UP_TO else max(_ALL_UP_TO, cores // 2)


@contextmanager
def patient_openmp() -> Iterator[None]:
    """While a library with OpenMP is loaded: its threads shall sleep, not spin, until the others are done.

    On two cores with a load of 4, two spinning llama.cpp threads took twice the CPU time of one and longer;
    two sleeping ones took no more CPU than one.  OpenMP reads the variable once, when it is loaded.
    """
    name = "OMP_WAIT_POLICY"
    if name in os.environ:
        yield
        return
    os.environ[name] = "passive"
    try:
        yield
    finally:
        del os.environ[name]
