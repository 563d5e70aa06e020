"""The HTTP server: requests in, answers out, models in processes of their own."""

from __future__ import annotations

import importlib.util

from osbert.errors import UserError

NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def check_libraries() -> None:
    """Raise UserError, with what to install, if a library of the extra `serve` is missing; none is imported."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f'osbert serve needs {", ".join(missing)}: pip install "osbert[serve]"', code="missing-library")
