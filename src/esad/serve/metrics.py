"""What Prometheus can ask for, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16384)


class Metrics:
    """Counters of one service.

    Attributes
    ----------
    routes : set of str
        Paths that are counted each by itself; all others are one.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.routes.add("/score")
    >>> metrics.count_answer("/score", 200, 0.01)
    >>> 'esad_requests_total{route="/score",status="200"} 1.0' in metrics.text().decode()
    True
    """

    def __init__(self) -> None:
        self.routes: set[str] = set()
        self.registry = registry = CollectorRegistry()
        self._requests = Counter("esad_requests", "Requests answered.", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "esad_request_seconds",
            "Time from the first byte to the answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        rows = Counter("esad_rows", "Rows or pictures scored or explained.", ["route"], registry=registry)
        self.scored_rows, self.explained_rows = rows.labels("/score"), rows.labels("/explain")
        self.batch_rows = Histogram("esad_batch_rows", "Rows of a forward pass.", buckets=_SIZES, registry=registry)
        self.batch_requests = Histogram(
            "esad_batch_requests", "Requests merged into a forward pass.", buckets=_SIZES, registry=registry
        )
        self.waiting = Gauge("esad_waiting_rows", "Rows that wait for a forward pass.", registry=registry)
        self._model = Gauge(
            "esad_model_info", "The model being served.", ["version", "method", "file"], registry=registry
        )
        self.reloads = Counter("esad_reloads", "Times a model file was read again.", ["outcome"], registry=registry)
        self.stale = Gauge(
            "esad_model_stale",
            "1 while the model file is gone or not used, and another model serves.",
            registry=registry,
        )

    def count_answer(self, path: str, status: int, seconds: float) -> None:
        """Count an answer; all paths that do not exist count as one route."""
        route = path if path in self.routes else "other"
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def name_model(self, version: str, method: str, file: str) -> None:
        """Set which model is being served."""
        self._model.clear()
        self._model.labels(version, method, file).set(1)

    def text(self) -> bytes:
        """Everything in Prometheus' text form."""
        return generate_latest(self.registry)
