"""The server: HTTP in, JSON out. It checks who asks and whether a request can be taken on; workers do the rest.

POST /v1/predict, embed, fill-mask, generate, answer, tag, explain, attention, annotate, the calls that served kinds
declare, and those of other APIs (clients/); GET /v1/models, /health, /ready, /metrics, /openapi.json, and what other
packages add by entry points in the group `osbert.server.states`: functions of the application and its Service.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import osbert
from osbert.extensions import extensions
from osbert.reports.attention_page import BROWSER
from osbert.server.access import HostCheck, Hosts, Keys
from osbert.server.call_table import all_calls, path_of
from osbert.server.calls import schemas
from osbert.server.calls.models import kinds
from osbert.server.calls.schemas import Refusal
from osbert.server.intake import Intake
from osbert.server.limits import ServerLimits
from osbert.server.metrics import ServerMetrics
from osbert.server.pool import PendingRequest, WorkerPool

PAGE = Path(__file__).parent / "page"
"""The folder with the files of the browser page."""
REFUSALS = {
    400: "The request is no valid HTTP.",
    401: "An API key is needed, or the one given is wrong.",
    403: "The request comes from another site's page.",
    404: "There is no such model or path.",
    408: "The request's header did not come in time.",
    413: "The request is too large; the field says what of it.",
    415: "The request is not JSON.",
    421: "The request is for a server of another name.",
    422: "The request cannot be understood or fulfilled; the field says where.",
    429: "Too many requests wait; Retry-After says for how many seconds.",
    503: "The server is about to stop, or a model cannot be loaded again, or several workers died over the request.",
    504: "The request's time was over before it was answered.",
}
STOPPING = "The server is about to stop."
GONE = 499
"""Status that the metrics count if the client has left. No client ever receives it."""
SETTLING = 0.5
"""Seconds for which a stopping server still answers new requests, with 503, before it closes its socket."""
PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Served suffixes and their types. The system's own table may differ, and browsers run no scripts of other types."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: the page loads only its own files, calls only its own server, and cannot be framed."""


class SlicedResponse(Response):
    """A JSON response whose body is sent in slices: behind each, the client has to take what was sent so far.

    So a large body is not copied as a whole, and other clients have their turn meanwhile.
    """

    def __init__(self, slices: Sequence[bytes], status: int, headers: Mapping[str, str]) -> None:
        size = str(sum(map(len, slices)))
        super().__init__(None, status, {**headers, "content-length": size}, media_type="application/json")
        self.slices = slices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for number, body in enumerate(self.slices, 1):
            await send({"type": "http.response.body", "body": body, "more_body": number < len(self.slices)})


class EventStream(StreamingResponse):
    """Server-sent events.

    `outcome`: the status that their 200 should have been, known at their end. `ended` is called with it when they are
    over, even if the client left before the first one.
    """

    outcome = GONE
    ended: Callable[[int], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.ended(self.outcome)


class HeadAsGet:
    """Middleware that answers HEAD as GET. uvicorn, which knows the method that came, leaves out the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)


@dataclass(kw_only=True)
class Service:
    """The state behind the paths: workers, limits, metrics and keys.

    `stopped`: the time of the signal to stop (time.monotonic), None before.
    """

    pool: WorkerPool
    limits: ServerLimits
    metrics: ServerMetrics
    keys: Keys
    stopped: float | None = None

    def __post_init__(self) -> None:
        """Create the intake for bodies, and the calls of the models that the pool has loaded."""
        self.intake = Intake(self.limits)
        self.calls = all_calls(self.pool.edges)
        self.paths = {path_of(name): call for name, call in self.calls.items()}

    def stop(self) -> None:
        """Refuse further requests, and finish the accepted ones."""
        self.stopped = self.stopped or time.monotonic()

    @property
    def finished(self) -> bool:
        """Whether the server is stopping and has no work left."""
        return self.stopped is not None and not self.pool.pending and time.monotonic() > self.stopped + SETTLING

    async def answer(self, call: str, request: HttpRequest) -> Response:
        """Return the response to a request, also for a refusal, and count it in the metrics: a stream at its end."""
        begin = time.monotonic()

        def count(status: int) -> None:
            self.metrics.request(path_of(call), status, time.monotonic() - begin)

        try:
            response = await self._answer(call, request, begin)
        except Refusal as refusal:
            response = self.refusal(refusal, path_of(call))
        except ClientDisconnect:
            response = Response(status_code=GONE)
        if isinstance(response, EventStream):
            response.ended = count
        else:
            count(response.status_code)
        return response

    async def _answer(self, call: str, request: HttpRequest, begin: float) -> Response:
        self.admit(request)
        deadline = begin + self._seconds(request.headers.get("x-deadline"))
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "Send JSON with the header Content-Type: application/json.")
        if (coding := request.headers.get("content-encoding", "identity").strip().lower()) != "identity":
            raise Refusal(415, f"Send JSON that is not compressed, without Content-Encoding: {coding:.20}.")
        payload = await self.intake.read(self.calls[call].request, request, deadline)
        self._measure(payload)
        self.check_going()  # it may have stopped since the request began to come
        pending = self.pool.submit(call, payload.model_dump(), deadline)
        if getattr(payload, "stream", False):
            return await self._stream(request, pending, deadline)
        gone = asyncio.ensure_future(request.receive())  # the body is whole: what comes now is that the client leaves
        try:
            left = max(deadline - time.monotonic(), 0)
            either: list[asyncio.Future[Any]] = [pending.answer, gone]
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if pending.answer.done():
                status, body = pending.answer.result().status, pending.body
                if status != 200:
                    raise Refusal.of_content(status, json.loads(b"".join(body)))
                return self.response(status, body)
            if gone.done():
                return Response(status_code=GONE)
            raise self.calls[call].too_late()
        finally:
            gone.cancel()
            self.pool.forget(pending)

    async def _stream(self, request: HttpRequest, pending: PendingRequest, deadline: float) -> Response:
        """Return a response that streams an answer as events, or a plain refusal if there is no first part.

        If the client leaves, the response ends and the request is cancelled.
        """
        events = self._events(pending, deadline)
        begun = asyncio.ensure_future(anext(events))
        gone = asyncio.ensure_future(request.receive())  # with beams the first part comes when all is searched
        try:
            await asyncio.wait([begun, gone], return_when=asyncio.FIRST_COMPLETED)
            if not begun.done():
                return Response(status_code=GONE)
            first = begun.result()
        finally:
            gone.cancel()
            begun.cancel()
        # Nothing has been sent yet, so a failure can still have its own HTTP status.
        if pending.answer.done() and not pending.came and (answered := pending.answer.result()).status != 200:
            await events.aclose()
            return self.response(answered.status, pending.body)

        async def every() -> AsyncIterator[bytes]:
            try:
                yield first
                async for event in events:
                    if await request.is_disconnected():  # parts that wait are not sent to nobody
                        return
                    yield event
                stream.outcome = pending.answer.result().status
            except Refusal as refusal:
                stream.outcome = refusal.status
                yield _event(json.dumps(refusal.content(), ensure_ascii=False).encode(), "error")
            except Exception:
                stream.outcome = 500
                raise
            finally:
                await events.aclose()

        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        headers |= {"connection": "close"} if self.stopped is not None else {}
        stream = EventStream(every(), media_type="text/event-stream", headers=headers)
        return stream

    async def _events(self, pending: PendingRequest, deadline: float) -> AsyncGenerator[bytes, None]:
        """Yield the parts of an answer as events, and last the whole answer. Raises Refusal (504) at the deadline."""
        try:
            while True:
                while pending.parts:
                    yield _event(pending.parts.popleft())
                if pending.answer.done():
                    answered = pending.answer.result()
                    yield _event(b"".join(pending.body), "done" if answered.status == 200 else "error")
                    return
                # All parts are sent, and nothing else runs between that check and this line: no news is lost here.
                pending.news.clear()
                try:
                    async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                        await pending.news.wait()
                except TimeoutError:
                    raise self.calls[pending.asking.call].too_late() from None
        finally:
            self.pool.forget(pending)

    def check_key(self, request: HttpRequest) -> None:
        """Raise Refusal (401) if the request has no valid key."""
        if not self.keys.admits(request.headers.get("authorization"), request.headers.get("x-api-key")):
            raise Refusal(401, "This server needs an API key: Authorization: Bearer KEY.")

    def admit(self, request: HttpRequest) -> None:
        """Raise Refusal: 401 without a valid key, 503 if the server is stopping, else as `WorkerPool.admit`."""
        self.check_key(request)
        self.check_going()
        self.pool.admit()

    def check_going(self) -> None:
        """Raise Refusal (503) if the server is stopping."""
        if self.stopped is not None:
            raise Refusal(503, STOPPING, retry_after=1)

    def response(self, status: int, body: Sequence[bytes], headers: Mapping[str, str] | None = None) -> Response:
        """Return a JSON response with a body in slices. A stopping server also closes the connection."""
        closing = {"connection": "close"} if self.stopped is not None else {}
        return SlicedResponse(body, status, {**(headers or {}), **closing})

    def refusal(self, refusal: Refusal, path: str = "") -> Response:
        """Return the JSON response for a refusal, with the headers of its status, in the form of a path's clients."""
        status, content = (
            self.paths[path].refuse(refusal) if path in self.paths else (refusal.status, refusal.content())
        )
        headers = {"retry-after": str(refusal.retry_after)} if refusal.retry_after else {}
        headers |= {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
        return self.response(status, [json.dumps(content, ensure_ascii=False).encode()], headers)

    def _seconds(self, header: str | None) -> float:
        """Return the seconds that a request has: its header X-Deadline, at most the server's deadline.

        Raises Refusal (422) if the header is not a positive number.
        """
        if header is None:
            return self.limits.deadline
        try:
            seconds = float(header)
        except ValueError:
            seconds = math.nan
        # `not >` instead of `<=`: it also refuses NaN.
        if not seconds > 0:
            raise Refusal(422, "X-Deadline must be a number of seconds above 0.", field="X-Deadline")
        return min(seconds, self.limits.deadline)

    def _measure(self, payload: schemas.RequestBody) -> None:
        """Raise Refusal (413) if there are too many texts, or one is too long."""
        field, count = payload.count()
        if count > self.limits.texts:
            raise Refusal(413, f"A request may have at most {self.limits.texts:,} texts, not {count:,}.", field=field)
        for field, text in payload.parts():
            if len(text) > self.limits.characters:
                what = f"A text has at most {self.limits.characters:,} characters, not {len(text):,}."
                raise Refusal(413, what, field=field)


def application(service: Service, *, hosts: Hosts) -> FastAPI:
    """Return the server's application. `hosts`: the host names and origins that it accepts."""
    app = FastAPI(
        title="osbert", version=osbert.__version__, description=__doc__.partition("\n")[0],
        docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    for name, call in service.calls.items():
        # References lead from the top of the description, in which the definitions of a request lie within it.
        request = f"#/paths/{path_of(name).replace('/', '~1')}/post/requestBody/content/application~1json/schema"
        schema = call.request.model_json_schema(ref_template=f"{request}/$defs/{{model}}")
        app.add_api_route(
            path_of(name),
            _endpoint(service, name),
            methods=["POST"],
            summary=(call.request.__doc__ or "").strip(),
            operation_id=name if not name.startswith("/") else f"client{name.replace('/', '_')}",
            responses=describe_responses(call.reply, *REFUSALS, error=call.error),
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema}},
                }
            },
        )
    _add_states(app, service)
    for extension in extensions("osbert.server.states").values():
        extension.load()(app, service)

    async def other(request: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        messages = {404: f"There is no {request.url.path} here.", 405: f"{request.url.path} takes no {request.method}."}
        refusal = Refusal(error.status_code, messages.get(error.status_code, str(error.detail)))
        response = service.refusal(refusal, request.url.path)
        response.headers.update(error.headers or {})
        return response

    async def refuse(request: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return service.refusal(error, request.url.path)

    app.add_exception_handler(HTTPException, other)
    app.add_exception_handler(Refusal, refuse)
    if hosts.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=hosts.origins, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    app.add_middleware(HostCheck, hosts=hosts, refuse=service.refusal)
    app.add_middleware(HeadAsGet)
    app.router.routes.extend([*page_routes(PAGE), *page_routes(BROWSER)])
    return app


def _event(body: bytes, name: str = "") -> bytes:
    """Return JSON as a server-sent event. Only the last event has a name: done or error."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + body + b"\n\n"


def _endpoint(service: Service, call: str) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def endpoint(request: HttpRequest) -> Response:
        return await service.answer(call, request)

    return endpoint


def _add_states(app: FastAPI, service: Service) -> None:
    """Add /v1/models, /health, /ready and /metrics."""

    def respond(content: Mapping[str, Any]) -> Response:
        return service.response(200, [json.dumps(content, ensure_ascii=False).encode()])

    def problem() -> dict[str, str]:
        """Return the problem that keeps a worker from starting, {} if there is none."""
        return {"problem": service.pool.problem} if service.pool.problem else {}

    def list_models() -> list[dict[str, Any]]:
        """Return the models as OpenAI's clients list them."""
        names = [model["name"] for model in service.pool.models]
        return [{"id": name, "object": "model", "created": 0, "owned_by": "osbert"} for name in names]

    listed = schemas.models_schema(dict.fromkeys([*kinds(), *(edge.kind for edge in service.pool.edges)]))

    @app.get("/v1/models", responses=describe_responses(listed, 401, 503))
    async def models(request: HttpRequest) -> Response:
        service.check_key(request)
        return respond({"object": "list", "data": list_models(), "models": service.pool.models})

    @app.get("/v1/models/{name:path}", include_in_schema=False)  # OpenAI's
    async def listed_model(name: str, request: HttpRequest) -> Response:
        service.check_key(request)
        for model in list_models():
            if model["id"] == name:
                return respond(model)
        raise Refusal(404, f"There is no model '{schemas.shorten(name)}' here.", field="model")

    @app.get("/health", responses=describe_responses(schemas.ServerState))
    async def health() -> Response:
        return respond({"status": "alive"} | problem())

    @app.get("/ready", responses=describe_responses(schemas.ServerState, 503))
    async def ready() -> Response:
        service.check_going()
        if not service.pool.ready:
            service.pool.check_loadable()
            raise Refusal(503, "No worker is ready.", retry_after=1)
        return respond({"status": "ready"} | problem())

    @app.get("/metrics", response_class=Response)
    async def metrics(request: HttpRequest) -> Response:
        service.check_key(request)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def describe_responses(reply: Any, *refusals: int, error: Any = schemas.Error) -> dict[int | str, dict[str, Any]]:
    """Return the schemas of a path's responses by status, for /openapi.json."""
    answers: dict[int | str, dict[str, Any]] = {200: {"model": reply}}
    return answers | {status: {"model": error, "description": REFUSALS[status]} for status in refusals}


def page_routes(folder: Path) -> list[Route]:
    """Return a route for each file of a folder with a suffix in TYPES; index.html is at /.

    The few small files are read once, here. No request touches the file system, so none can reach another file.
    """
    routes = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in PAGE_TYPES:
            name = path.relative_to(folder).as_posix()
            content = path.read_bytes()
            routes.append(
                Route("/" if name == "index.html" else f"/{name}", _page_handler(content, PAGE_TYPES[path.suffix]))
            )
    return routes


def _page_handler(content: bytes, kind: str) -> Callable[[HttpRequest], Awaitable[Response]]:
    """Return a handler that sends `content`, or 304 if the browser has it already (same ETag)."""
    headers = {
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "cache-control": "no-cache",  # kept, and asked for each time: what has not changed costs a 304
        "content-security-policy": PAGE_POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }

    async def give(request: HttpRequest) -> Response:
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=f"{kind}; charset=utf-8")

    return give
