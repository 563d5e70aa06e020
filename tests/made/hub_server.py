"""A hub on localhost: model repositories over HTTP as huggingface_hub fetches them, with the faults of a real one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import huggingface_hub.constants
import huggingface_hub.file_download
import pytest


def commit_of(name: str) -> str:
    """Return the commit of a repository's revision main."""
    return hashlib.sha1(name.encode()).hexdigest()


@dataclass
class Hub:
    """A hub that is running. Fill `repositories`: by name, the files of each.

    `tokens` may read those in `gated`. `cut`: after how many bytes the answer with a file breaks off, once for each
    number in the list. `nonsense`: what is answered in place of every listing.
    `etag` and `commit`: what is answered about every file in their place, a commit also about a file that is missing.
    `unknown`: the code of the answer where there is no such repository. `requests`: method, path and range.
    """

    address: str = ""
    repositories: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    cut: dict[str, list[int]] = field(default_factory=dict)
    status: int = 0
    nonsense: bytes = b""
    unknown: str = "RepoNotFound"
    without_commit: bool = False
    etag: str = ""
    commit: str = ""
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def revisions(self, name: str) -> dict[str, str]:
        """Return the commits of a repository by their branches."""
        return {"main": commit_of(name), **self.branches.get(name, {})}

    def fetched(self) -> list[str]:
        """Return the files whose contents were asked for, in their order."""
        return [path.partition("/resolve/")[2].partition("/")[2] for method, path, _ in self.asked("/resolve/", "GET")]

    def asked(self, part: str = "", method: str = "") -> list[tuple[str, str, str]]:
        """Return the requests for a model whose path has a part."""
        return [one for one in self.requests if part in one[1] and method in one[0] and "agent-harnesses" not in one[1]]


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """Run an empty hub on a free port of localhost."""
    hub = Hub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def hub_on_localhost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Run an empty hub, which huggingface_hub takes for its own, with an empty cache and in an empty folder."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    constants = huggingface_hub.constants
    with serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        waiting = SimpleNamespace(sleep=lambda seconds: None)  # between the attempts of a download
        monkeypatch.setattr(huggingface_hub.file_download, "time", waiting)
        yield hub


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder as a repository has them, and some that are never fetched."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    strange = ("README.md", "modeling_tiny.py", "tf_model.h5", "flax_model.msgpack", "onnx/model.onnx")
    return files | dict.fromkeys(strange, b"never wanted")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        if hub.status:
            self.answer(b"down for repairs", hub.status)
        elif self.token == "expired":
            self.fail(401, "", "Invalid credentials in Authorization header")
        elif path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            self.listing(name, revision or "main")
        elif "/resolve/" in path:
            name, _, rest = path[1:].partition("/resolve/")
            revision, _, file = rest.partition("/")
            self.file(name, revision, file)
        else:
            self.fail(404, "", "there is no such page")

    def listing(self, name: str, revision: str) -> None:
        if self.hub.nonsense:
            self.answer(self.hub.nonsense, 200, {"Content-Type": "application/json"})
        elif commit := self.commit(name, revision):
            files = [{"rfilename": file, "size": len(content)} for file, content in self.hub.repositories[name].items()]
            listing = {"id": name, "modelId": name, "sha": commit, "siblings": files}
            self.answer(json.dumps(listing).encode(), 200, {"Content-Type": "application/json"})

    def file(self, name: str, revision: str, file: str) -> None:
        if not (commit := self.commit(name, revision)):
            return
        if name in self.hub.gated and self.token not in self.hub.tokens:
            self.fail(403 if self.token else 401, "GatedRepo", f"Access to model {name} is restricted.")
            return
        if (content := self.hub.repositories[name].get(file)) is None:
            self.fail(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": self.hub.commit or commit})
            return
        etag = self.hub.etag or f'"{hashlib.sha256(content).hexdigest()}"'
        headers = {"ETag": etag, "Accept-Ranges": "bytes"}
        if not self.hub.without_commit:
            headers["X-Repo-Commit"] = self.hub.commit or commit
        if start := int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]):
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        cut = self.hub.cut.get(file, [])
        stop = cut.pop(0) if cut and self.command == "GET" else 0
        self.answer(content[start:], 206 if start else 200, headers, stop=stop)

    def commit(self, name: str, revision: str) -> str:
        """Return the commit of a revision; "" if it is not there, which has then been answered."""
        if name not in self.hub.repositories:
            self.fail(401, self.hub.unknown, "Invalid username or password.")  # as the real one does without a token
            return ""
        revisions = self.hub.revisions(name)
        commit = revision if revision in revisions.values() else revisions.get(revision, "")
        if not commit:
            self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def fail(self, status: int, code: str, message: str, others: Mapping[str, str] | None = None) -> None:
        headers = {**(others or {}), "X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self.answer(json.dumps({"error": message}).encode(), status, headers)

    def answer(self, body: bytes, status: int, headers: Mapping[str, str] | None = None, *, stop: int = 0) -> None:
        """Answer with a body; with `stop` the connection ends after so many bytes of it."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:stop] if stop else body)
        if stop:
            self.close_connection = True
