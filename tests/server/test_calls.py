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
from osbert.tasks.kinds.rerank import Rerank


@pytest.mark.lab
def test_requests_and_answers_are_described_as_before() -> None:
    pool: Any = SimpleNamespace(edges=[])
    service: Any = SimpleNamespace(pool=pool, calls=all_calls([]), refusal=None)
    described = application(service, hosts=Hosts(names=(), origins=())).openapi()
    described.pop("info")  # the version
    described["components"]["schemas"]["Model"]["properties"]["kind"]["enum"].sort()
    assert described == json.loads((Path(__file__).parent / "openapi.json").read_text(encoding="utf-8"))


def references(description: Any) -> set[str]:
    """Return the targets of all references within a description."""
    if isinstance(description, list):
        return set().union(*map(references, description))
    if not isinstance(description, dict):
        return set()
    target = description.get("$ref")
    return references([*description.values()]) | ({target} if isinstance(target, str) else set())


def test_every_reference_of_the_description_has_a_target() -> None:
    """Generators of clients refuse the whole description otherwise."""
    service: Any = SimpleNamespace(pool=SimpleNamespace(edges=[]), calls=all_calls([Rerank.edge]), refusal=None)
    described = application(service, hosts=Hosts(names=(), origins=())).openapi()
    targets = references(described)
    assert any("$defs" in target for target in targets)  # a document of a request may be an object
    for target in targets:
        element: Any = described
        for key in target.removeprefix("#/").split("/"):
            element = element[key.replace("~1", "/")]
