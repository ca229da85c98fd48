"""The scoring service: rows or pictures in over HTTP, scores and reasons out. Needs the extra `web`."""

from esad.core.machine import require

for _module in ("fastapi", "prometheus_client", "python_multipart"):
    require(_module, extra="web")
