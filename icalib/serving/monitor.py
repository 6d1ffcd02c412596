"""What a server counts, in Prometheus' text format."""

from __future__ import annotations

from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from icalib.serving.drift import Drift, DriftWatch

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_DRIFT = {
    "alarm": "1 if the last window's top scores differ from validation's.",
    "p_value": "p-value of the last window's Kolmogorov-Smirnov test; NaN before.",
    "windows": "Windows that were tested since the start.",
    "alarms": "Windows that raised an alarm since the start.",
    "window_questions": "Questions per window; 0 without a watch.",
    "false_alarm_rate": "Maximum probability of a false alarm per window.",
}


class Monitor:
    """Counters of one server, and the state of its drift watch."""

    def __init__(self, watch: DriftWatch) -> None:
        self._watch, self._registry = watch, CollectorRegistry()
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
        for name, text in _DRIFT.items():
            Gauge(f"icalib_drift_{name}", text, registry=self._registry).set_function(partial(self._drift_value, name))

    def finished(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def scored(self, top_score: float, *, is_usual: bool) -> None:
        """Count a question that was scored, and add it to the drift watch."""
        if not is_usual:
            self._unusual.inc()
        self._watch.add(top_score)

    @property
    def drift(self) -> Drift:
        """What the drift watch has found."""
        return self._watch.state

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self._registry)

    def _drift_value(self, name: str) -> float:
        value = getattr(self.drift, name)
        return float("nan") if value is None else float(value)
