"""What other packages add is found in plain folders as importlib.metadata finds it."""

from __future__ import annotations

import sys
from importlib.metadata import DistributionFinder, entry_points
from pathlib import Path

import pytest

from osbert.extensions import extensions


class Finder(DistributionFinder):
    """A finder with distributions of its own, so that importlib.metadata reads all."""

    def find_spec(self, *_: object) -> None:
        return None

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> list:  # noqa: B008
        return []


def install(site: Path, information: str, points: str) -> None:
    (site / information).mkdir(parents=True)
    (site / information / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (site / information / "entry_points.txt").write_text(points)


def test_groups_are_those_of_the_metadata() -> None:
    for group in ("osbert.verbs", "osbert.api", "osbert.models.families", "osbert.objectives"):
        expected = {point.name: point.value for point in entry_points(group=group)}
        assert {name: extension.value for name, extension in extensions(group).items()} == expected
    assert not extensions("osbert.nothing")


@pytest.mark.parametrize("information", ["other-1.0.dist-info", "other.egg-info"])
@pytest.mark.parametrize("own_finder", [False, True])
def test_another_package_is_found_when_the_path_changes(
    information: str, own_finder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = "[console_scripts]\nother = other:main\n\n[osbert.tasks]\n# a comment\njoin=os.path:join [extra]\n"
    install(tmp_path / "site", information, points)
    assert "join" not in extensions("osbert.tasks")
    if own_finder:
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert extensions("osbert.tasks")["join"].load() is __import__("os").path.join


def test_the_first_distribution_of_a_name_hides_later_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for site, value in (("later", "os:sep"), ("first", "os:linesep")):
        install(tmp_path / site, "other-1.0.dist-info", f"[osbert.tasks]\n{site} = {value}\n")
        monkeypatch.syspath_prepend(tmp_path / site)
    assert "first" in extensions("osbert.tasks") and "later" not in extensions("osbert.tasks")
