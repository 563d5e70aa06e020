"""Host and Origin: by which names a server is asked, and by whose pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.cli import main
from osbert.server.access import Hosts, Keys
from osbert.server.calls.schemas import Refusal
from osbert.server.serve import Address

APP = "https://app.example.org"
DEFAULT = Address(keys=Keys()).hosts
NAMED = Address(
    host="::", names=("Models.example.org", "gpu-box"), origins=("https://app.example.org",), keys=Keys()
).hosts


def refused(hosts: Hosts, host: str | None, origin: str | None = None) -> int:
    """Return the status of the refusal, 0 where there is none."""
    try:
        hosts.check(host, origin)
    except Refusal as refusal:
        assert refusal.field == {421: "Host", 403: "Origin"}[refusal.status]
        return refusal.status
    return 0


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (None, 0),
        *((host, 0) for host in ("localhost", "LOCALHOST:8000", "localhost.:1", "127.0.0.1:8000", "[::1]:80", "[::1]")),
        *((host, 0) for host in ("10.1.2.3", "10.1.2.3:80", "[fe80::1]:8000")),  # an address is nobody's name
        *((host, 421) for host in ("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io")),
        *((host, 421) for host in ("", ":8000", "a@localhost", "localhost/", "localhost:80:80", "[localhost]", "::1")),
        *((host, 421) for host in ("localhost evil.example", "localhost\tx", "127.1", "2130706433", "*")),
    ],
)  # fmt: skip
def test_hosts(host: str | None, expected: int) -> None:
    assert refused(DEFAULT, host) == expected


def test_names_that_were_given() -> None:
    for host in ("models.example.org", "MODELS.example.org.:443", "gpu-box:8000", "localhost", "10.0.0.1"):
        assert refused(NAMED, host) == 0
    assert refused(NAMED, "example.org") == refused(NAMED, "x.models.example.org") == 421
    assert refused(Hosts(names=("*",)), "anything.example") == 0
    assert refused(Hosts(names=("*",)), "anything.example:80", "http://anything.example") == 0  # its own page
    assert refused(Hosts(names=("*",)), "anything.example", "http://localhost:3000") == 0
    for origin in ("https://evil.example", "null", "http://*"):
        assert refused(Hosts(names=("*",)), "anything.example", origin) == 403
    assert refused(Address(host="gpu-box", keys=Keys()).hosts, "gpu-box:8000") == 0


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("localhost:8000", "http://localhost:8000", 0),
        ("localhost:8000", "http://127.0.0.1:3000", 0),
        ("10.1.2.3:8000", "http://10.1.2.3:8000", 0),  # the page of this server
        ("10.1.2.3:8000", "http://10.1.2.3:9000", 403),
        ("localhost:8000", "http://6.6.6.6", 403),
        ("localhost:8000", "https://evil.example", 403),
        ("localhost:8000", "null", 403),
        ("localhost:8000", "", 403),
        ("localhost:8000", "file://localhost", 403),
        ("localhost:8000", "http://localhost.evil.example", 403),
        ("localhost:8000", "http://localhost@evil.example", 403),
        (None, "https://evil.example", 403),
    ],
)
def test_origins(host: str | None, origin: str, expected: int) -> None:
    assert refused(DEFAULT, host, origin) == expected


def test_origins_that_were_given() -> None:
    for origin in ("https://app.example.org", "https://models.example.org", "http://gpu-box:1"):
        assert refused(NAMED, "localhost", origin) == 0
    assert refused(NAMED, "localhost", "http://app.example.org") == 403
    assert refused(Hosts(origins=("*",)), "localhost", "https://evil.example") == 0
    proxied = Hosts(names=("models.example.org",))
    assert refused(proxied, "models.example.org", "https://models.example.org") == 0


@given(st.text(), st.text())
def test_no_header_breaks_it(host: str, origin: str) -> None:
    assert refused(DEFAULT, host, origin) in (0, 403, 421)


def test_the_server_refuses_them_on_every_path(start: Callable[..., Any], runs: dict[str, Path]) -> None:
    serving = start(str(runs["classifier"]), "--host-names", "models.example.org", "--cors", "https://app.example.org")
    for path in ("/", "/page.js", "/health", "/ready", "/metrics", "/openapi.json", "/v1/models", "/nothing"):
        answer = serving.client.get(path, headers={"host": "evil.example"})
        assert answer.status_code == 421 and answer.json()["error"]["field"] == "Host"
        answer = serving.client.get(path, headers={"origin": "https://evil.example"})
        assert answer.status_code == 403 and answer.json()["error"]["field"] == "Origin"
        assert "access-control-allow-origin" not in answer.headers
    asked = {"json": {"texts": ["a film"]}}
    for headers in ({"host": "models.example.org"}, {"origin": "https://app.example.org"}, {"origin": serving.url}):
        assert serving.client.post("/v1/predict", headers=headers, **asked).status_code == 200
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    for origin, expected in (("https://app.example.org", 200), ("https://evil.example", 403)):
        answer = serving.client.options("/v1/predict", headers={"origin": origin, **preflight})
        assert answer.status_code == expected


@pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "a b", ""])
def test_names_that_no_request_can_have(name: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(runs["pairs"]), "--host-names", name]) == 1
    assert f"--host-names {name}: " in capsys.readouterr().err
