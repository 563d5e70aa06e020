"""Two commands on one output, of any two verbs: the second is refused, and the first writes what it writes alone."""

from __future__ import annotations

import importlib.util
import signal
from itertools import product

import pytest
from harness import CHANCE, LONG, Site
from verbs import ENDLESS, FILES, FOLDERS, QUICK, Verbs, exact, suffixes

FEW = 1
"""Pairs of quick verbs that write files, and of those that write folders, in the short form."""


@pytest.fixture(scope="session")  # a worker may come back to this file, when it takes tests of another one
def verbs(whole_site: Site) -> Verbs:
    return Verbs(whole_site)


def pairs(names: dict[str, str]) -> list[tuple[str, str]]:
    usable = [name for name in names if LONG or name in QUICK]
    usable = [name for name in usable if name != "export" or importlib.util.find_spec("onnx")]
    found = [(one, other) for one, other in product(usable, repeat=2) if set(suffixes(one)) & set(suffixes(other))]
    return found if LONG else CHANCE.sample(found, FEW)


@pytest.mark.parametrize("kind", ["files", "folders"])
def test_the_second_of_two_verbs_is_refused(site: Site, verbs: Verbs, kind: str) -> None:
    for first, second in pairs(FILES if kind == "files" else FOLDERS):
        place, flag = verbs.fresh(), verbs.folder / "standing still"
        suffix = min(set(suffixes(first)) & set(suffixes(second)))
        fault = {"kind": "pause", "folder": str(place), "number": 2, "flag": str(flag)}  # 1 is the lock's own file
        holder = verbs.start(verbs.words(first, place / "out", suffix), **fault)
        while not flag.exists():
            assert holder.wait(0.005) is None, f"{first} ended before it wrote"
        before = sorted(path.name for path in place.rglob("*"))
        refused = verbs.start(verbs.words(second, place / "out", suffix)).ended()
        assert refused.status == 1 and f"is in use: process {holder.pid} on " in refused.output, (
            first,
            second,
            refused,
        )
        assert sorted(path.name for path in place.rglob("*")) == before
        if first in ENDLESS:
            holder.signal(signal.SIGKILL)
            flag.unlink()
            holder.ended()
            wrong = False
        else:
            flag.unlink()
            ended = holder.ended()
            assert ended.status == 0 and not list(place.glob(".*")), (first, second, ended)
            wrong = exact(place) != verbs.alone(first)
        site.tally.count(f"two commands on one output: {kind}", wrong=wrong)
        assert not wrong, (first, second)


def test_many_at_once_leave_the_result_of_one(site: Site, verbs: Verbs) -> None:
    for verb in (
        ("train",) if not LONG else ("predict", "embed", "arrays", "submit", "train", "extend", "build", "convert")
    ):
        place = verbs.fresh()
        children = [verbs.start(verbs.words(verb, place / "out")) for _ in range(3)]
        ended = [child.ended() for child in children]
        assert any(one.status == 0 for one in ended) and {one.status for one in ended} <= {0, 1}, (verb, *ended)
        assert not list(place.glob(".*")), verb
        wrong = exact(place) != verbs.alone(verb)
        site.tally.count("three commands on one output at once", wrong=wrong)
        assert not wrong, verb


def test_a_killed_holder_stops_nobody_and_leaves_nothing(site: Site, verbs: Verbs) -> None:
    for verb in ("train",) if not LONG else [name for name in FILES | FOLDERS if name not in ENDLESS]:
        if verb == "export" and not importlib.util.find_spec("onnx"):
            continue
        place, log = verbs.fresh(), verbs.folder / "moments.txt"
        verbs.run(verbs.words(verb, place / "out"), kind="count", folder=str(place), log=str(log))
        exact(place)
        number = CHANCE.randint(2, len(log.read_text().splitlines()))
        log.unlink()
        place = verbs.fresh()
        fault = {"kind": "send", "folder": str(place), "number": number, "signals": [signal.SIGKILL]}
        verbs.run(verbs.words(verb, place / "out"), **fault)
        again = verbs.start(verbs.words(verb, place / "out")).ended()
        done = again.status == 0 or ((place / "out").exists() and "exists already" in again.output)
        assert done and "Traceback" not in again.output, (verb, number, again)
        assert not list(place.glob(".*")), (verb, number)
        wrong = exact(place) != verbs.alone(verb)
        site.tally.count("a command killed while it holds its output", wrong=wrong)
        assert not wrong, (verb, number)


def test_a_flip_in_unfinished_work_is_found_or_does_no_harm(site: Site, verbs: Verbs) -> None:
    """A command is killed, one bit of what it left changes, and it is given again."""
    for verb in ("build",) if not LONG else ("build", "finetune", "pretrain", "embed", "arrays", "glue") * 20:
        place, log = verbs.fresh(), verbs.folder / "moments.txt"
        verbs.run(verbs.words(verb, place / "out"), kind="count", folder=str(place), log=str(log))
        exact(place)
        number = CHANCE.randint(8, len(log.read_text().splitlines()) - 1)
        log.unlink()
        place = verbs.fresh()
        fault = {"kind": "send", "folder": str(place), "number": number, "signals": [signal.SIGKILL]}
        verbs.run(verbs.words(verb, place / "out"), **fault)
        if (place / "out" / "corpus.json").is_file():
            continue  # it had ended: a finished corpus is compared where it is read (tests/corpus/test_damage.py)
        left = [path for path in place.rglob("*") if path.is_file() and path.stat().st_size and "lock" not in path.name]
        (path := CHANCE.choice(left)).write_bytes(flipped(path.read_bytes()))
        again = verbs.start(verbs.words(verb, place / "out")).ended()
        assert again.status in (0, 1) and "Traceback" not in again.output, (verb, number, path, again)
        wrong = again.status == 0 and exact(place) != verbs.alone(verb)
        site.tally.count("a flipped bit in unfinished work", wrong=wrong)
        assert not wrong, (verb, number, path)


def flipped(content: bytes) -> bytes:
    """Return a content with one bit changed."""
    place = CHANCE.randrange(8 * len(content))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)
