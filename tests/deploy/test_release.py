"""tools/release.py: the parts of a release that need no network."""

import importlib.util
import io
import re
import sys
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def release(tmp_path, monkeypatch):
    specification = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "release", module)
    specification.loader.exec_module(module)
    (tmp_path / "src" / "osbert").mkdir(parents=True)
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "src/osbert/__init__.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def packed(names: list[str], seconds: float) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.mtime, member.size, member.uname = seconds, len(name), "somebody"
            archive.addfile(member, io.BytesIO(name.encode()))
    return buffer.getvalue()


def test_sdist_same_each_time(release):
    first = packed(["a/setup.cfg", "a/b.py"], time.time())
    second = packed(["a/b.py", "a/setup.cfg"], 1.5)
    assert first != second
    assert release.same_each_time(first, 1_700_000_000) == release.same_each_time(second, 1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(release.same_each_time(first, 1_700_000_000))) as archive:
        contents = {member.name: archive.extractfile(member).read() for member in archive}
    assert contents == {"a/b.py": b"a/b.py", "a/setup.cfg": b"a/setup.cfg"}


def test_begin(release, tmp_path):
    release.begin("7.0.0")
    assert 'version = "7.0.0"\n' in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    assert "\nversion: 7.0.0\n" in (tmp_path / "CITATION.cff").read_text(encoding="utf-8")
    assert '__version__ = "7.0.0"\n' in (tmp_path / "src/osbert/__init__.py").read_text(encoding="utf-8")
    changelog = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"## \[Unreleased\]\n\n## \[7\.0\.0\] - \d{4}-\d\d-\d\d\n", changelog)
    assert release.section_of_changelog("7.0.0")
    with pytest.raises(SystemExit):
        release.section_of_changelog("7.0.1")
    with pytest.raises(SystemExit):
        release.begin("7")


def test_readme_has_commands(release, monkeypatch):
    monkeypatch.setattr(release, "ROOT", ROOT)
    commands = release.commands_of_readme()
    assert commands[0] == "osbert demo" and len(commands) >= 3
