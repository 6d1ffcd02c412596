"""What a server counts, in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TENTHS = tuple(step / 10 for step in range(1, 11))


class Monitor:
    """Counters of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "icalib_requests", "Requests by path and status.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "icalib_request_seconds",
            "Seconds from a request's headers to its response.",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._unusual = Counter(
            "icalib_unusual_questions",
            "Questions with another number of candidates than the run's validation pools.",
            registry=self._registry,
        )
        self.pending = Gauge("icalib_pending_requests", "Requests that wait for scores.", registry=self._registry)
        self._best = Histogram(
            "icalib_best_probability",
            "Calibrated probability of each question's best candidate.",
            buckets=_TENTHS,
            registry=self._registry,
        )

    def finished(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def scored(self, best_probability: float, *, is_usual: bool) -> None:
        """Count a question that was scored."""
        if not is_usual:
            self._unusual.inc()
        self._best.observe(best_probability)

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self._registry)
