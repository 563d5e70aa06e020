"""One zygote and one site for all faults; each test's tally goes into the report at the end (see tests/conftest.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import CHANCE, SEED, Site, Tally, Zygote

from object_store import server

__all__ = ["server"]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture(scope="session")
def whole_site(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("faults"), zygote, Tally())


@pytest.fixture
def site(whole_site: Site, record_property, request: pytest.FixtureRequest) -> Iterator[Site]:
    whole_site.tally = Tally()
    CHANCE.seed(f"{SEED} {request.node.name}")
    print(f"The same moments again: OSBERT_FAULTS_SEED={SEED} and this test's name")
    yield whole_site
    record_property("faults", whole_site.tally.rows)
