"""The server's Prometheus metrics: requests, their time, the queue, the passes, deaths of workers."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128)


class ServerMetrics:
    """The counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "osbert_requests_total", "Requests by path and status; 499: the client went away.", ["path", "status"],
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "osbert_request_seconds", "From a request's arrival to its answer, of a stream to its end.", ["path"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.waiting = Gauge("osbert_queue_requests", "Requests accepted and not answered yet.", registry=registry)
        self.ready = Gauge("osbert_workers_ready", "Workers that have their models loaded.", registry=registry)
        self.deaths = Counter("osbert_worker_deaths_total", "Workers that died and were replaced.", registry=registry)
        self.connections = Gauge("osbert_connections", "Connections that are open.", registry=registry)
        self.cut = Counter(
            "osbert_connections_cut_total", "Connections that were closed because they sent or took nothing.",
            registry=registry,
        )  # fmt: skip
        self.tokens = Histogram(
            "osbert_pass_tokens", "Tokens that were read in one pass.", ["model"], buckets=TOKENS, registry=registry
        )
        self.items = Histogram(
            "osbert_pass_items", "Texts, pairs or records in one pass.", ["model"], buckets=ITEMS, registry=registry
        )
        self.passes = Histogram(
            "osbert_pass_seconds", "How long a pass took.", ["model"], buckets=SECONDS, registry=registry
        )

    def count(self, waiting: Callable[[], int]) -> None:
        """Call `waiting` for the number of queued requests whenever metrics are read."""
        self.waiting.set_function(waiting)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request, and observe its seconds."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def read(self, model: str, *, items: int, tokens: int, seconds: float) -> None:
        """Observe the items, tokens and seconds of a pass."""
        self.items.labels(model).observe(items)
        self.tokens.labels(model).observe(tokens)
        self.passes.labels(model).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self.registry)
