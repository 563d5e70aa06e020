"""The description of the calls: clients are generated from it, so that it stays as it is (openapi.json)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from osbert.server.access import Hosts
from osbert.server.call_table import all_calls
from osbert.server.http import application


@pytest.mark.lab
def test_requests_and_answers_are_described_as_before() -> None:
    pool: Any = SimpleNamespace(edges=[])
    service: Any = SimpleNamespace(pool=pool, calls=all_calls([]), refusal=None)
    described = application(service, hosts=Hosts(names=(), origins=())).openapi()
    described.pop("info")  # the version
    described["components"]["schemas"]["Model"]["properties"]["kind"]["enum"].sort()
    assert described == json.loads((Path(__file__).parent / "openapi.json").read_text(encoding="utf-8"))
