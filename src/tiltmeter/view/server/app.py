"""The ASGI application: checks each request, finds its route, and answers with the right headers."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import logging
import re
import secrets
import time
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

import tiltmeter.view.screens
from tiltmeter.errors import TiltmeterError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.payloads.encode import encode
from tiltmeter.view.payloads.people import Failure
from tiltmeter.view.server.access import (
    HEADERS,
    LARGEST_BODY,
    LONGEST_QUERY,
    Person,
    RequestError,
    read_json,
)
from tiltmeter.view.server.routes import ROUTES, Route
from tiltmeter.view.server.state import ApiRequest, ServerState

DEADLINE_SECONDS = 60.0
BODY_SECONDS = 10.0  # otherwise an unauthorized client could hold connections for ever
LABEL_THREADS = 2
SMALL_BODY = 1000  # bytes up to which a body is not compressed
STATIC = Path(tiltmeter.view.__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
UNBUILT_PAGE = "The page is not built: run `make page`, or install tiltmeter from a wheel.\n"

_HASHED = re.compile(r"-[A-Za-z0-9_-]{8}\.[a-z0-9]+$")  # as vite.config.ts names what it builds
_log = logging.getLogger("tiltmeter.view.server")


@dataclass(frozen=True)
class Asset:
    """A file of the page, as it is sent."""

    plain: bytes
    packed: bytes
    type: str
    cache: str


def assets(folder: Path = STATIC) -> dict[str, Asset]:
    """The page's files by URL path, read once at start: no request can name a file."""
    by_address = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.suffix not in TYPES or not path.is_file() or path.is_symlink():
            continue
        address = f"/{path.relative_to(folder).as_posix()}"
        plain = path.read_bytes()
        hashed = path.suffix != ".html" and _HASHED.search(path.name)
        cache = "public, max-age=31536000, immutable" if hashed else "no-store"
        packed = gzip.compress(plain, 9, mtime=0)
        by_address["/" if address == "/index.html" else address] = Asset(plain, packed, TYPES[path.suffix], cache)
    if "/" not in by_address:
        by_address["/"] = Asset(UNBUILT_PAGE.encode(), gzip.compress(UNBUILT_PAGE.encode()), TYPES[".txt"], "no-store")
    return by_address


class App:
    """The ASGI application. `routes` is the table; there is no other way in."""

    def __init__(
        self, state: ServerState, static: dict[str, Asset] | None = None, routes: tuple[Route, ...] = ROUTES
    ) -> None:
        self.state = state
        self.static = assets() if static is None else static
        self._routes: dict[str, dict[str, Route]] = {}
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, CapacityLimiter] = WeakKeyDictionary()
        for route in routes:
            self._routes.setdefault(route.path, {})[route.method] = route

    def _label_threads(self) -> CapacityLimiter:
        """Of the event loop that asks: a limiter belongs to one."""
        return self._limiters.setdefault(asyncio.get_running_loop(), CapacityLimiter(LABEL_THREADS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # WebSockets are not supported
        request, began = Request(scope, receive), time.perf_counter()
        try:
            response = await self._handle(request)
        except RequestError as error:
            response = error_response(error.status, error.text, error.headers)
        except ClientDisconnect:
            return
        except Exception:  # noqa: BLE001
            # The client gets an id to look for in the log, and no details.
            name = secrets.token_hex(6)
            _log.exception("error %s at %s", name, log_line(request.url.path, 200))
            response = error_response(500, f"something went wrong here; the server's log has it under {name}")
        response.headers.update(HEADERS)
        if (
            request.headers.get("authorization") and "stream" not in request.url.path
        ):  # how long this took here, without the way to the browser
            work = response.headers.get("Server-Timing", "")
            response.headers["Server-Timing"] = f"app;dur={1000 * (time.perf_counter() - began):.1f}{work}"
        await response(scope, receive, send)

    async def _handle(self, request: Request) -> Response:
        path, headers = self._path_here(request.scope["path"]), MutableHeaders(scope=request.scope)
        shell = path in self.static
        self.state.hosts.check(*map(headers.getlist, ("host", "origin", "sec-fetch-site")), shell=shell)
        client = request.client.host if request.client else "socket"
        person = self.state.access.identify(headers, client)
        if not self.state.rate.allows(_who(person) if person else f"from {client}"):
            raise RequestError(429, "more than 100 requests in a second", **{"Retry-After": "1"})
        if shell:
            return self._serve_asset(path, request)
        if not path:
            return Response(status_code=308, headers={"Location": f"{self.state.root}/", "Cache-Control": "no-store"})
        methods = self._routes.get(path)
        if methods is None:
            raise RequestError(404, "no such address")
        if (route := methods.get(request.method)) is None:
            raise RequestError(405, "this address is not asked like that", Allow=", ".join(methods))
        self._authorize(route, person)
        if person and person.by_proxy and route.method == "POST" and not {"origin", "sec-fetch-site"} & set(headers):
            raise RequestError(403, "nothing says which page asks, and another site's could: send Origin")
        params = route.parse_params(await self._read_params(route, request))
        api_request = ApiRequest(self.state, params, person, headers.get("last-event-id", ""))
        if inspect.iscoroutinefunction(route.handler):
            stream_headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return EventStreamResponse(
                await route.handler(api_request), media_type="text/event-stream", headers=stream_headers
            )
        return await self._respond(route, api_request, request, packs=accepts_gzip(headers))

    def _serve_asset(self, path: str, request: Request) -> Response:
        if request.method != "GET":
            raise RequestError(405, "this address is not asked like that", Allow="GET")
        asset = self.static[path]
        headers = {"Cache-Control": asset.cache, "Content-Type": asset.type, "Vary": "Accept-Encoding"}
        if accepts_gzip(request.headers):
            return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(asset.plain, headers=headers)

    def _path_here(self, path: str) -> str:
        """The path below the server's own root, whether or not a proxy has taken that away; "" for the root itself
        without its slash, from which the page's relative addresses would lead elsewhere."""
        root = self.state.root
        return path.removeprefix(root) if root and (path == root or path.startswith(f"{root}/")) else path

    def _authorize(self, route: Route, person: Person | None) -> None:
        """Refuse a client that lacks the role of the route."""
        if route.role == "open":
            return
        access = self.state.access
        if person is None:
            raise RequestError(401, access.refusal(route.role, None))
        if route.role == "control" and "view" in person.roles:
            if not access.control:
                raise RequestError(403, access.refusal(route.role, person))
            if not self.state.control_rate.allows(_who(person)):
                raise RequestError(429, "too many requests to act: wait a second", **{"Retry-After": "1"})
        if route.role not in person.roles:
            raise RequestError(403, access.refusal(route.role, person))

    async def _read_params(self, route: Route, request: Request) -> dict[str, list[Any]]:
        query = request.scope["query_string"]
        if route.method == "GET":
            return _parse_query(query)
        if query:
            raise RequestError(400, "what is sent here goes into the body")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read_body(request)
        except TimeoutError:
            raise RequestError(408, f"the body took longer than {BODY_SECONDS:.0f} s", Connection="close") from None
        return {name: [value] for name, value in (read_json(body) if body else {}).items()}

    async def _respond(self, route: Route, api_request: ApiRequest, request: Request, *, packs: bool) -> Response:
        """Run the handler in a thread; stop waiting when the client disconnects or it takes too long."""
        render = partial(_render_response, route, api_request, packs=packs)
        # Labels are given one after the other: raters who wait for that must not take the threads of pages.
        limiter = self._label_threads() if route.role == "label" else None
        work = asyncio.ensure_future(to_thread.run_sync(render, limiter=limiter))
        disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
        await asyncio.wait({work, disconnect}, timeout=DEADLINE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        client_left = disconnect.done()
        disconnect.cancel()
        if not work.done():
            api_request.cancelled.set()
            work.add_done_callback(lambda done: done.cancelled() or done.exception())  # its result is not needed
            if client_left:
                raise ClientDisconnect
            raise RequestError(504, f"this took longer than {DEADLINE_SECONDS:.0f} s: ask for fewer steps")
        try:
            return work.result()
        except TiltmeterError as error:
            raise RequestError(503, f"this run cannot be read: {log_line(str(error), 300)}") from None


def _who(person: Person) -> str:
    """Whose requests are counted together."""
    return f"{'label' if person.roles == {'label'} else 'view'} {person.name}"


class EventStreamResponse(StreamingResponse):
    """A stream that is closed as soon as the client disconnects."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().__call__(scope, receive, send)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def error_response(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    body = encode(Failure(error=text))
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, media_type="application/json")


def accepts_gzip(headers: Headers) -> bool:
    """
    >>> accepts_gzip(Headers({"accept-encoding": "br, gzip"})), accepts_gzip(Headers({"accept-encoding": "gzip;q=0"}))
    (True, False)
    """
    named = [part.strip() for line in headers.getlist("accept-encoding") for part in line.split(",")]
    return any(re.fullmatch(r"gzip(;\s*q=(1(\.0+)?|0?\.\d*[1-9]\d*))?", part) for part in named)


def _render_response(route: Route, api_request: ApiRequest, *, packs: bool) -> Response:
    """Run in a thread: call the handler and build the response, as JSON or as the report, compressed."""
    began = time.thread_time()
    with api_request.state.run_list.marks.reading(str(api_request.params.get("run", ""))):
        payload = route.handler(api_request)
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if isinstance(payload, str):
        body = payload.encode("utf-8", "surrogatepass")
        headers |= {"Content-Type": TYPES[".html"], "Content-Disposition": 'attachment; filename="report.html"'}
    else:
        body = encode(payload)
        headers["Content-Type"] = "application/json"
    if packs and len(body) > SMALL_BODY:
        body, headers["Content-Encoding"] = gzip.compress(body, 5, mtime=0), "gzip"
    headers["Server-Timing"] = f"cpu;dur={1000 * (time.thread_time() - began):.1f}"
    return Response(body, route.status, headers)


def _parse_query(query: bytes) -> dict[str, list[Any]]:
    if len(query) > LONGEST_QUERY:
        raise RequestError(414, f"the address is longer than {LONGEST_QUERY} characters")
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=128,
        )
    except ValueError:
        raise RequestError(400, "the address cannot be read") from None
    params: dict[str, list[Any]] = {}
    for name, value in pairs:
        params.setdefault(name, []).append(value)
    return params


async def _read_body(request: Request) -> bytes:
    """Read the body, up to the size limit."""
    if "content-encoding" in request.headers:
        raise RequestError(415, "a compressed body is not read here")
    types = request.headers.getlist("content-type")
    if [kind.split(";")[0].strip().lower() for kind in types] not in (["application/json"],):
        raise RequestError(415, "send JSON, and say so: Content-Type: application/json")
    declared_length = request.headers.get("content-length", "0")
    too_large = RequestError(413, f"a body may have {LARGEST_BODY:,} bytes", Connection="close")
    if not declared_length.isdecimal() or int(declared_length) > LARGEST_BODY:
        raise too_large
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise too_large
    return body
