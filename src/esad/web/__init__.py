"""What the review page and the scoring service share: a local server, its guard, one shape of errors.

Importing it without the extra `web` says what to install.
"""

from esad.core.machine import require

for _module in ("fastapi", "httptools", "jinja2", "uvicorn"):
    require(_module, extra="web")
