"""A browser without a screen, and a server that a test plays: the answers are the test's, the files the page's."""

from __future__ import annotations

import json
import mimetypes
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from osbert.reports.attention_page import BROWSER
from osbert.server.http import PAGE_POLICY

ORIGIN = "http://osbert.test/"
FOLDERS = (Path(str(files("osbert.server"))) / "page", BROWSER)
MODELS: dict[str, dict[str, Any]] = {
    "classify": {"fields": ["text"], "labels": ["negative", "positive"]},
    "pairs": {"kind": "classify", "fields": ["text", "other"], "labels": ["no", "yes"]},
    "multilabel": {"fields": ["text"], "labels": ["art", "war"]},
    "regress": {"fields": ["text", "other"], "range": [1, 5]},
    "tag": {"fields": ["text"], "labels": ["LOC", "PER"]},
    "span": {"fields": ["question", "paragraph"]},
    "choose": {"fields": ["context", "choices"]},
    "pretraining": {"fields": ["text"]},
    "writer": {"fields": ["text"], "explains": False},
    "generate": {"fields": ["answer", "context"], "explains": False},
    "source_writer": {"fields": ["text"], "explains": False},
    "unified": {"kind": "pretraining", "fields": ["text"], "writes": True},
    "encoder": {"fields": ["text"]},
    "sentences": {"kind": "encoder", "fields": ["text"], "by_name": "classes"},
    "entailment": {"kind": "classify", "fields": ["text", "other"], "labels": ["entails", "no"], "by_name": "classes"},
    "types": {"kind": "tag", "fields": ["text"], "labels": ["O", "B-person"], "by_name": "types"},
    "searcher": {
        "kind": "encoder",
        "fields": ["text"],
        "search": {"systems": ["a.npy", "bm25"], "columns": 1, "reranks": False},
    },
    "pair searcher": {
        "kind": "encoder",
        "fields": ["text"],
        "search": {"systems": ["a.npy"], "columns": 2, "reranks": True},
    },
    "longer": {
        "fields": ["first", "second"],
        "call": {
            "call": "compare-lengths",
            "action": "Compare",
            "request": [{"name": name, "type": "text", "about": "A text."} for name in ("first", "second")],
            "answer": [
                {"name": "longer", "type": "text"},
                {"name": "margin", "type": "number"},
                {"name": "chances", "type": "probabilities"},
            ],
        },
    },
    "rerank": {
        "fields": ["query", "documents"],
        "call": {
            "call": "rerank",
            "action": "Rank",
            "request": [{"name": "query", "type": "text"}, {"name": "documents", "type": "texts"}],
            "answer": [{"name": "ranking", "type": "ranking"}, {"name": "truncated", "type": "integer"}],
        },
    },
}
Answer = Callable[[dict[str, Any]], Any]
# A page that shares two cores with the rest of the suite answers late: 5 seconds, playwright's own limit, are too few.
expect.set_options(timeout=20_000)


class Refused(Exception):
    """Raised by an answer of a test: the server refuses."""

    def __init__(self, status: int, message: str, *, field: str = "", after: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.field = field
        self.headers = {"retry-after": after} if after else {}


class Played:
    """The server: `answers` by path, each from the body to the reply; what was asked of it, and of anyone else."""

    def __init__(self, kinds: tuple[str, ...], answers: Mapping[str, Answer]) -> None:
        facts = {"length": 128, "explains": True}
        self.models = [{"name": f"my {kind}", "kind": kind, **facts, **MODELS[kind]} for kind in kinds]
        self.answers = {"v1/models": lambda body: {"models": self.models}, **answers}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str] = []
        self.strays: list[str] = []

    def serve(self, route: Route) -> None:
        """Answer a request of the browser."""
        url = route.request.url
        if not url.startswith(ORIGIN):
            self.strays.append(url)
            route.abort()
            return
        path = urlsplit(url).path.lstrip("/") or "index.html"
        if path in self.answers:
            self._answer(route, path)
        elif found := [folder / path for folder in FOLDERS if (folder / path).is_file()]:
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            policy = {"content-security-policy": PAGE_POLICY}
            route.fulfill(body=found[0].read_bytes(), content_type=f"{kind}; charset=utf-8", headers=policy)
        else:
            route.fulfill(status=404, json={"error": {"message": f"There is no {path}."}})

    def _answer(self, route: Route, path: str) -> None:
        body = json.loads(route.request.post_data or "{}")
        self.keys.append(route.request.headers.get("authorization", ""))
        if path != "v1/models":
            self.asked.append((path, body))
        try:
            answer = self.answers[path](body)
            sent = (
                {"body": answer, "content_type": "text/event-stream"} if isinstance(answer, str) else {"json": answer}
            )
            route.fulfill(**sent)
        except Refused as refused:
            error = {"error": {"message": str(refused), "field": refused.field}}
            route.fulfill(
                status=refused.status, json=error, headers={"content-type": "application/json", **refused.headers}
            )


@pytest.fixture
def refused() -> type[Refused]:
    """Give what an answer raises where the server refuses: refused(status, message, after="seconds")."""
    return Refused


@pytest.fixture
def pick() -> Callable[[Page, str], None]:
    """Give what chooses a model by its name, and waits until the page has turned to it, whose module it fetches."""

    def picked(page: Page, model: str) -> None:
        page.get_by_label("Model").select_option(model)
        expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")

    return picked


BROWSERS: list[tuple[Browser, ExitStack]] = []
"""The browser of the tests of this folder, while they run: empty or one."""


@pytest.fixture
def browser() -> Browser:
    """Give a Chromium; without one the test is skipped, but on CI its absence is a failure."""
    if not BROWSERS:
        found = os.environ.get("OSBERT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
        if not found:
            if os.environ.get("CI") == "true":
                pytest.fail("chromium is missing: apt-get install chromium")
            pytest.skip("needs chromium (apt-get install chromium, or $OSBERT_CHROMIUM with its path); there is none")
        with ExitStack() as opening:
            started = opening.enter_context(sync_playwright()).chromium.launch(
                executable_path=found, args=["--no-sandbox"]
            )
            opening.callback(started.close)
            BROWSERS.append((started, opening.pop_all()))
    return BROWSERS[0][0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser after the last test of this folder in a row.

    Not at the end of the session: while Playwright is there its event loop runs, beside which others cannot run theirs.
    """
    try:
        yield
    finally:
        if BROWSERS and (nextitem is None or nextitem.path.parent != item.path.parent):
            BROWSERS.pop()[1].close()


Opener = Callable[..., tuple[Page, Played]]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opener]:
    """Give a function that opens the page on a played server; in the end nothing may have gone wrong in the browser."""
    opened: list[tuple[Any, Played, list[str]]] = []

    def opener(
        *kinds: str, at: str = "", answers: Mapping[str, Answer] | None = None, **look: Any
    ) -> tuple[Page, Played]:
        context = browser.new_context(accept_downloads=True, **look)
        context.set_default_timeout(20_000)
        server, wrong = Played(kinds, answers or {}), []
        context.route("**/*", server.serve)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda told: wrong.append(told.text) if _is_wrong(told) else None)
        page.goto(ORIGIN + at)
        opened.append((context, server, wrong))
        return page, server

    yield opener
    for context, server, wrong in opened:
        context.close()
        assert not wrong
        assert not server.strays, "the page asked somebody else than its server"


def _is_wrong(told: Any) -> bool:
    """Return whether the browser complains; that the server refused something is no complaint."""
    return told.type in ("error", "warning") and "Failed to load resource" not in told.text
