"""osbert serve under attack: fuzzed and broken requests; five times too many, while workers die and it is told to end.

python benchmarks/serving_faults.py fuzz [--requests 10000]
python benchmarks/serving_faults.py storm [--seconds 60] [--recipe bert-mini]
python benchmarks/serving_faults.py stalls

fuzz: half of the requests are schemathesis's, drawn from /openapi.json, fitting and not; half are broken: flipped
bytes, wrong types, bad UTF-8, deep, huge, no HTTP. There must be no server error, no request without an answer, and
flat memory: at most 20 MB more at the end than at half.
storm: requests come five times as fast as they can be answered; a worker is killed at a quarter and at half of the
time, and SIGTERM comes at three quarters. Every request is to be answered (200) or refused clearly (429, 503, no
connection).
stalls: requests below the size limit that are made to take long, one by one, while /health is asked all the time. No
answer of /health may take more than 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serving_load import Loading, Server, serving
from serving_models import make_bodies, make_kinds, make_run

CALLS = ("predict", "embed", "fill-mask", "answer", "tag")
CLEAR = {"200", "429", "503", "refused", "unsent"}
"""The ends that a request may have in a storm; "unsent": the load itself could not go so fast."""
STALL = 0.1
"""Seconds for which a request may keep /health waiting."""
GROWTH = 20.0
"""MB by which the server's memory may grow over the second half of the fuzzed requests."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fuzz", "storm", "stalls"))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--times", type=float, default=5.0, help="by how much there are too many")
    parser.add_argument("--recipe", default="bert-mini")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if chosen.what == "fuzz":
            return fuzz(Path(name), chosen.requests, chosen.seed)
        if chosen.what == "stalls":
            return stalls(Path(name))
        return storm(Path(name), chosen)


def fuzz(folder: Path, requests: int, seed: int) -> int:
    """Send fuzzed requests to models of every kind; return 1 when one met with a server error, or memory grew."""
    ends: Counter[str] = Counter()
    with serving(make_kinds(folder), "--batch-tokens", "512", "--wait", "0") as server:
        held = [server.kilobytes()]
        for part in range(10):
            count = requests // 20
            ends += drawn(server.url, count, seed=seed * 10 + part)
            ends += asyncio.run(broken(server.url, count, seed=seed * 10 + part))
            held.append(server.kilobytes())
            print(f"{(part + 1) * 2 * count:,} requests: {held[-1] / 1024:.0f} MB", flush=True)
        healthy = server.stop() == 0
    wrong = {end: count for end, count in ends.items() if end.startswith("5") or not end[0].isdigit()}
    growth = (held[-1] - held[5]) / 1024
    print(f"{ends.total():,} requests: {json.dumps(dict(sorted(ends.items())))}")
    print(f"server errors and the like: {wrong or 'none'}; memory over the second half: {growth:+.1f} MB")
    return int(bool(wrong) or not healthy or growth > GROWTH)


def drawn(url: str, count: int, *, seed: int) -> Counter[str]:
    """Send requests that schemathesis draws from the server's own description, each answer held against it."""
    import requests
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    ends: Counter[str] = Counter()
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    many = settings(
        max_examples=max(count // (len(CALLS) * len(modes)), 1), database=None, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    with requests.Session() as session:
        for call in CALLS:
            for mode in modes:

                def send(case: Any) -> None:
                    answer = case.call(base_url=url, session=session)
                    case.validate_response(answer, checks=checks)
                    ends[str(answer.status_code)] += 1

                seeded(seed)(many(given(case=schema[f"/v1/{call}"]["POST"].as_strategy(generation_mode=mode))(send)))()
    return ends


async def broken(url: str, count: int, *, seed: int) -> Counter[str]:
    """Send requests that no description describes, over sockets, eight at a time."""
    rng = random.Random(seed)
    parts = urlsplit(url)
    ends: Counter[str] = Counter()
    messages = iter([message(rng) for _ in range(count)])

    async def client() -> None:
        for sent in messages:
            ends[await end_of(parts.hostname or "", parts.port or 0, sent)] += 1

    await asyncio.gather(*(client() for _ in range(8)))
    return ends


async def end_of(host: str, port: int, sent: bytes, *, whole: bool = True) -> str:
    """Return the status of the answer to some bytes; "closed" is an answer to what is no HTTP, hence "4closed".

    `whole`: whether the server learns that no more will come; it then takes the client for gone.
    """
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return "refused"
    try:
        writer.write(sent)
        if whole:
            writer.write_eof()
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n")
        return head.split(b" ")[1].decode()
    except TimeoutError:
        return "unanswered"
    except (OSError, EOFError):
        return "4closed"
    finally:
        writer.close()


def message(rng: random.Random) -> bytes:
    """Return a request that is broken in some way, or nearly."""
    maker = rng.choice((flipped, mistyped, odd_text, deep, noise, huge, cut_short, no_http))
    return maker(rng)


def http(rng: random.Random, body: bytes, *, length: int | None = None) -> bytes:
    call = rng.choice(CALLS)
    said = len(body) if length is None else length
    head = f"POST /v1/{call} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {said}\r\n\r\n".encode() + body


def good(rng: random.Random) -> dict[str, Any]:
    """Return a body that some call takes."""
    return rng.choice(
        (
            {"texts": ["a good film", "the actor"], "model": rng.choice(("classify", "tag", "none", None))},
            {"texts": [["a", "b"]], "model": "pairs", "pieces": True},
            {"records": [{"context": "a", "choices": ["b", "c"]}], "model": "choose"},
            {"question": "who", "paragraph": "the actor plays", "n_best": 3},
            {"texts": ["a [MASK] film"], "top": 3},
            {"texts": ["a film"], "pooling": "max", "normalise": True},
        )
    )


def flipped(rng: random.Random) -> bytes:
    body = bytearray(json.dumps(good(rng)).encode())
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return http(rng, bytes(body))


def mistyped(rng: random.Random) -> bytes:
    body = good(rng)
    odd = (None, True, 0, -1, 1e400, 2**70, "", "x", [], [[]], [None], {}, {"a": 1}, [["a", "b", "c"]], [{"": []}])
    for name in rng.sample(list(body), rng.randint(1, len(body))):
        body[name] = rng.choice(odd)
    if rng.random() < 0.3:
        body[rng.choice(("", "a", "model ", "__class__", "texts\0"))] = rng.choice(odd)
    return http(rng, json.dumps(body).encode())


def odd_text(rng: random.Random) -> bytes:
    """Return texts of odd characters: controls, NUL, marks without end, half of a surrogate pair, wrong UTF-8."""
    kinds: tuple[Callable[[], str], ...] = (
        lambda: "".join(chr(rng.randrange(32)) for _ in range(20)),
        lambda: "e" + "\u0301" * rng.randint(1, 2000),
        lambda: "".join(chr(rng.randrange(0x10FFFF)) for _ in range(50)).encode("utf-8", "ignore").decode(),
        lambda: "x" * rng.randint(1, 60_000),
        lambda: "[MASK]" * rng.randint(1, 100) + "\u202e\ufeff\u200d",
        lambda: "中文한국어" * rng.randint(1, 20),
        lambda: " \t\n\u3000" * rng.randint(0, 20),
    )
    text = rng.choice(kinds)()
    fields = rng.choice(({"texts": [text]}, {"question": text, "paragraph": text}, {"texts": [[text, text]]}))
    body = json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return http(rng, rng.choice((body, body.replace(b'["', b'["\xff\xc0\x80'), body.replace(b'["', b'["\\ud800'))))


def deep(rng: random.Random) -> bytes:
    depth = rng.choice((10, 1000, 100_000))
    return http(rng, rng.choice((b"[" * depth, b'{"texts":' + b"[" * depth + b"]" * depth + b"}", b'{"a":' * depth)))


def noise(rng: random.Random) -> bytes:
    return http(rng, rng.randbytes(rng.randint(0, 2000)))


def huge(rng: random.Random) -> bytes:
    texts = rng.choice((["a" * 900_000], ["a b c "] * 100_000, ["film"] * 129, [" ".join("film" for _ in range(9000))]))
    return http(rng, json.dumps({"texts": texts}).encode())


def cut_short(rng: random.Random) -> bytes:
    body = json.dumps(good(rng)).encode()
    return http(rng, body[: rng.randrange(len(body))], length=rng.choice((len(body), 10**6, 10**12)))


def no_http(rng: random.Random) -> bytes:
    lines = (
        b"POST /v1/predict HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/../../etc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01" + rng.randbytes(50),
        rng.randbytes(200),
    )
    return rng.choice(lines)


def storm(folder: Path, chosen: argparse.Namespace) -> int:
    """Send far too many requests, kill workers meanwhile, end the server; return 1 when a request was not answered."""
    run = make_run(folder / "run", chosen.recipe)
    bodies = make_bodies(folder / "bodies", run, None)
    with serving([run]) as server:
        calm = Loading(server.url, bodies, seconds=chosen.seconds / 6).result()
        capacity = calm["ends"]["200"] / calm["seconds"]
        many = chosen.times * capacity
        print(f"{capacity:.0f} requests/s can be answered; now {many:.0f} come, for {chosen.seconds:g} s")
        load = Loading(server.url, bodies, seconds=chosen.seconds, rate=many)
        begin = time.monotonic()
        for share in (0.25, 0.5):
            time.sleep(max(begin + share * chosen.seconds - time.monotonic(), 0))
            killed = kill_a_worker(server)
            print(f"after {time.monotonic() - begin:.1f} s: kill -9 {killed or 'nobody: none is there'}")
        time.sleep(max(begin + 0.75 * chosen.seconds - time.monotonic(), 0))
        print(f"after {time.monotonic() - begin:.1f} s: SIGTERM", flush=True)
        status = server.stop()
        print(f"after {time.monotonic() - begin:.1f} s: the server ended with status {status}")
        found = load.result()
    print(f"{sum(found['ends'].values()):,} requests: {json.dumps(found['ends'])}")
    print(f"answered ones took {found.get('p50', 0):.2f} s at the median, {found.get('p99', 0):.2f} s at p99")
    unclear = {end: count for end, count in found["ends"].items() if end not in CLEAR}
    print(f"neither answered nor refused clearly: {unclear or 'none'}")
    return int(bool(unclear) or status != 0 or not found["ends"].get("200"))


def stalls(folder: Path) -> int:
    """Send slow requests one by one; return 1 when one keeps /health waiting for more than STALL seconds."""
    with serving(make_kinds(folder)) as server:
        parts = urlsplit(server.url)
        worst = {name: longest_wait(parts.hostname or "", parts.port or 0, sent) for name, sent in slow().items()}
        healthy = server.stop() == 0
    for name, (seconds, status) in worst.items():
        print(f"{name:>12}  {status:>8}  /health waited {1000 * seconds:.0f} ms at most")
    return int(not healthy or max(seconds for seconds, _ in worst.values()) > STALL)


def longest_wait(host: str, port: int, sent: bytes) -> tuple[float, str]:
    """Return the longest time that /health took while a request was answered, and how that ended."""

    async def polled() -> tuple[float, str]:
        request = asyncio.ensure_future(end_of(host, port, sent, whole=False))
        waits = []
        while not request.done():
            begin = time.perf_counter()
            await end_of(host, port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", whole=False)
            waits.append(time.perf_counter() - begin)
        return max(waits), await request

    return asyncio.run(polled())


def slow() -> dict[str, bytes]:
    """Return requests of up to a megabyte, by what is slow in them."""
    post = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    size = 990_000

    def filled(begin: bytes, unit: bytes, end: bytes) -> bytes:
        return begin + b",".join([unit] * (size // (len(unit) + 1))) + end

    bodies = {
        "numbers": filled(b'{"texts":[', b"1", b"]}"),
        "objects": filled(b'{"texts":[', b"{}", b"]}"),
        "lists": filled(b'{"texts":[', b"[[]]", b"]}"),
        "records": filled(b'{"records":[', b'{"":[""]}', b"]}"),
        "empty": filled(b'{"texts":[', b'""', b"]}"),
        "exponents": filled(b'{"texts":[', b"1e999999", b"]}"),
        "fields": b"{" + b",".join(b'"%x":1' % one for one in range(100_000)) + b"}",
        "unknown": b"{" + b",".join(b'"%x":1' % one for one in range(20_000)) + b"}",
        "columns": b'{"records":[{' + b",".join(b'"%x":1' % one for one in range(999)) + b"}]}",
        "digits": b'{"top":' + b"9" * size + b"}",
        "deep": b'{"texts":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
        "quotes": b'"' * size,
        "backslashes": b'{"texts":["' + b'\\"' * (size // 2),
        "surrogates": b'{"texts":["' + b"\\ud83d\\ude00" * (size // 12) + b'"]}',
        "long": b'{"texts":["' + b"a" * size + b'"]}',
    }
    made = {name: post + b"Content-Length: %d\r\n\r\n" % len(body) + body for name, body in bodies.items()}
    chunks = b"1\r\n \r\n" * 200_000
    made["chunks"] = post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    made["headers"] = post + b"a:\r\n" * 3_000 + b"Content-Length: 2\r\n\r\n{}"
    return made


def kill_a_worker(server: Server) -> int:
    for worker in server.workers():
        os.kill(worker, signal.SIGKILL)
        return worker
    return 0


if __name__ == "__main__":
    sys.exit(main())
