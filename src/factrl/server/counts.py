"""What the server tells Prometheus; never any text that was sent to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from factrl.types import Result

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's own variable, read when it is imported


class Counts:
    """The counters of one worker, summed over the workers when they are read."""

    def __init__(self) -> None:
        import prometheus_client as prometheus

        self._prometheus = prometheus
        self._registry = prometheus.CollectorRegistry()
        if os.environ.get(MULTIPROCESS):
            from prometheus_client import multiprocess

            _forget_the_dead(Path(os.environ[MULTIPROCESS]), multiprocess.mark_process_dead)
            multiprocess.MultiProcessCollector(self._registry)
            registry: Any = prometheus.CollectorRegistry()  # its values are in files that the other one reads
        else:
            registry = self._registry
        self.samples = prometheus.Counter(
            "factrl_samples",
            "Samples by what became of them",
            ["reward", "state", "cause"],
            registry=registry,
        )
        self.requests = prometheus.Counter(
            "factrl_requests", "Requests by route and status", ["route", "status"], registry=registry
        )
        self.seconds = prometheus.Histogram(
            "factrl_request_seconds",
            "Seconds from a request's last byte to its answer",
            ["route"],
            registry=registry,
            buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
        )
        self.waiting = prometheus.Gauge(
            "factrl_samples_in_flight",
            "Samples that are being scored or wait for it",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def scored(self, reward: str, results: Sequence[Result]) -> None:
        """Count what became of samples."""
        for result in results:
            self.samples.labels(reward, result.state, result.cause or "").inc()

    def text(self) -> tuple[bytes, str]:
        """All counters in Prometheus' format, and its content type."""
        return self._prometheus.generate_latest(self._registry), self._prometheus.CONTENT_TYPE_LATEST


def _forget_the_dead(folder: Path, forget: Callable[[int], None]) -> None:
    """What a worker that was killed had in flight would be counted for ever; one that starts clears it."""
    for file in folder.glob("gauge_live*_*.db"):
        worker = int(file.stem.rpartition("_")[2])
        try:
            os.kill(worker, 0)
        except (ProcessLookupError, PermissionError):  # gone, or somebody else's by now
            forget(worker)
