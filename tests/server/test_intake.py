"""Bodies within the size limit that would stop the server: refused, or parsed, without one pause to be noticed."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request as HttpRequest

from osbert.server import intake
from osbert.server.calls import schemas
from osbert.server.calls.predict import PredictRequest
from osbert.server.calls.schemas import FAULTS, FIELDS, Refusal
from osbert.server.intake import Intake, exceeds
from osbert.server.limits import ServerLimits

SIZE = 1_000_000
BOUND = 2.0
"""Seconds in which /health answers on any machine; benchmarks/serving_faults.py stalls measures it."""


def filled(begin: str, unit: str, end: str) -> bytes:
    """Return JSON of nearly SIZE bytes."""
    return (begin + ",".join(repeat(unit, (SIZE - 100) // (len(unit) + 1))) + end).encode()


NASTY: dict[str, tuple[bytes, int, str]] = {
    "numbers": (filled('{"texts":[', "1", "]}"), 413, "body"),
    "objects": (filled('{"texts":[', "{}", "]}"), 413, "body"),
    "lists": (filled('{"texts":[', "[[]]", "]}"), 413, "body"),
    "empty": (filled('{"texts":[', '""', "]}"), 413, "body"),
    "records": (filled('{"records":[', '{"":[""]}', "]}"), 413, "body"),
    "fields": (("{" + ",".join(f'"{one:x}":1' for one in range(100_000)) + "}").encode(), 413, "body"),
    "twice": (filled("{", '"texts":1', "}"), 413, "body"),
    "fewer": (b'{"texts":[' + b",".join([b"1"] * 20_000) + b"]}", 422, "texts[0]"),
    "repeated": (("{" + ",".join(f'"{one:x}":1' for one in [*range(19_990), 19_989]) + "}").encode(), 422, "body"),
    "unknown": (("{" + ",".join(f'"{one:x}":1' for one in range(20_000)) + "}").encode(), 422, "body"),
    "columns": (('{"records":[{' + ",".join(f'"{one:x}":1' for one in range(20_000)) + "}]}").encode(), 413, "records"),
    "name": (b'{"texts":["a"],"' + b"n" * (SIZE - 100) + b'":1}', 422, "nnn"),
    "column": (b'{"records":[{"' + b"n" * (SIZE - 100) + b'":1}]}', 422, "records[0].nnn"),
    "digits": (b'{"texts":' + b"9" * (SIZE - 100) + b"}", 422, "body"),
    "exponent": (filled('{"texts":[', "1e999999", "]}"), 413, "body"),
    "deep": (b'{"texts":' + b"[" * (SIZE // 2) + b"]" * (SIZE // 2 - 20) + b"}", 413, "body"),
    "quotes": (b'"' * SIZE, 413, "body"),
    "backslashes": (b'{"texts":["' + b'\\"' * (SIZE // 2 - 10), 422, "body"),
    "surrogates": (b'{"texts":["' + b"\\ud800" * (SIZE // 6 - 10) + b'"]}', 422, "body"),
    "escapes": (b'{"texts":["' + b"\\u0061" * (SIZE // 6 - 10) + b'"]}', 413, "texts[0]"),
}


@pytest.mark.parametrize("name", NASTY)
def test_no_body_is_parsed_that_has_too_many_values_or_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, status, field = NASTY[name]
    most = [0]
    texts = schemas._text

    def counting(*given: Any) -> str:
        most[0] += 1
        return texts(*given)

    monkeypatch.setattr(schemas, "_text", counting)
    if status == 413 and field == "body":
        monkeypatch.setattr(schemas, "parse", lambda *given: pytest.fail("it was parsed"))
    reader = Intake(ServerLimits())
    if name == "escapes":  # as long as many texts: refused by what it is, where texts are measured
        assert len(reader._parse(PredictRequest, bytearray(body)).texts[0]) > ServerLimits().characters  # type: ignore[attr-defined]
        return
    with pytest.raises(Refusal) as refused:
        reader._parse(PredictRequest, bytearray(body))
    assert refused.value.status == status and refused.value.field.startswith(field)
    assert most[0] <= 2 * FIELDS and len(refused.value.message) < 5000 and len(refused.value.field) < 200


def test_a_refusal_names_the_first_fault_of_a_list_and_some_of_a_record() -> None:
    record = {f"c{number}": number for number in range(FIELDS)}
    with pytest.raises(Refusal) as refused:
        schemas.parse(PredictRequest, json.dumps({"texts": [1, 2], "records": [record, 3], "more": 1}).encode())
    named = {part.partition(":")[0] for part in refused.value.message.split("; ")}
    assert "texts[0]" in named and "texts[1]" not in named and len(named) <= FAULTS


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"texts": ["a"], "texts": ["b"]}', "texts"),
        (b'{"texts": ["a"], "te\\u0078ts": ["b"]}', "texts"),
        (b'{"texts": ["a"], "model": "a", "model": "a"}', "model"),
        (b'{"records": [{"text": "a"}, {"column": "a", "column": "b"}]}', "column"),
    ],
)
def test_a_key_that_comes_twice_is_refused_by_its_name(body: bytes, name: str) -> None:
    """The last value would be taken, and a proxy in front may have checked the first."""
    with pytest.raises(Refusal) as refused:
        schemas.parse(PredictRequest, body)
    assert (refused.value.status, refused.value.field) == (422, "body") and f"'{name}'" in refused.value.message


def test_equal_keys_of_several_objects_are_no_fault() -> None:
    body = b'{"records": [{"text": "texts"}, {"text": "text"}], "model": "model"}'
    assert schemas.parse(PredictRequest, body).count() == ("records", 2)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.booleans())
def test_values_are_counted_in_any_json(value: Any, ascii: bool) -> None:
    """The count is that of the values; an empty list counts one more, for what could be in it."""

    def count(one: Any) -> int:
        inner = list(one.values()) if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if inner is None else max(len(inner), 1) + sum(map(count, inner))

    body = json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    expected = count(value)
    assert not exceeds(body, max(expected, 1)) and (expected < 2 or exceeds(body, expected - 1))


def test_what_waits_for_its_parsing_counts_as_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else any number of large bodies could wait there."""
    limits = ServerLimits(queue=2, body=100_000)
    free = threading.Event()
    monkeypatch.setattr(intake, "exceeds", lambda *given: not free.wait(30))
    body = json.dumps({"texts": ["a" * 40_000, "b" * 40_000]}).encode()

    def request() -> HttpRequest:
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            return next(parts)

        return HttpRequest({"type": "http", "headers": []}, receive)

    async def run() -> None:
        reader = Intake(limits)
        deadline = time.monotonic() + 60
        first = [asyncio.ensure_future(reader.read(PredictRequest, request(), deadline)) for _ in range(2)]
        while reader.coming < 2 * len(body):
            await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await reader.read(PredictRequest, request(), deadline)
        assert refused.value.status == 429 and reader.coming == 2 * len(body)
        free.set()
        assert [len(one.texts) for one in await asyncio.gather(*first)] == [2, 2]  # type: ignore[attr-defined]
        assert reader.coming == 0

    asyncio.run(run())


def chunks(body: bytes) -> Iterator[bytes]:
    """Yield a body byte by byte: httpx sends each as a chunk."""
    return (body[place : place + 1] for place in range(len(body)))


def test_nothing_of_the_size_limit_stops_the_server(start: Callable[..., Any], runs: dict[str, Any]) -> None:
    """A loose bound, for any machine; that of 100 ms is measured by benchmarks/serving_faults.py stalls."""
    serving = start(str(runs["classifier"]))
    waits: list[float] = []
    done = threading.Event()

    def poll() -> None:
        with httpx.Client(base_url=serving.url, timeout=60) as client:
            while not done.is_set():
                begin = time.monotonic()
                assert client.get("/health").status_code == 200
                waits.append(time.monotonic() - begin)
                time.sleep(0.005)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        head = {"content-type": "application/json"}
        for name, (body, status, _) in NASTY.items():
            assert serving.client.post("/v1/predict", content=body, headers=head).status_code == status, name
        body = b'{"texts":["' + b"a" * 5_000 + b'"]}'
        answer = serving.client.post("/v1/predict", content=chunks(body), headers=head)
        assert answer.status_code == 200  # aaa... is one unknown piece
    finally:
        done.set()
        poller.join()
    assert len(waits) > 20 and max(waits) < BOUND
