"""The page: static files, the same for everyone, and the cookie it trades its token for. What the files show comes
through routes that need the token."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from makai.core.secret import Secret
from makai.transports.guard import COOKIE_NAME, PAGE_FILES, TRADE_PATH, page_cookie
from makai.transports.http_guard import caller_of

FOLDER: Final = Path(__file__).parent / "page"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FRAME: Final = "assets/diagram-frame.html"
"""The document that draws diagrams. Its origin is unique, so it reaches neither the page nor the cookie, and it may
load nothing. Its script is part of it; a policy of its own in the document allows that one alone, by its hash."""
_FRAME_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": (
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
}
_ONE_YEAR_S: Final = 365 * 24 * 3600
_KINDS: Final = {".webmanifest": "application/manifest+json", ".js": "text/javascript"}
"""Types that some machines know by another name, or not at all."""
_COOKIE_S: Final = 90 * 24 * 3600
_MISSING: Final = (
    "makai is running, but this installation has no page: it was built without npm. Install Node.js 20.19 or newer, "
    "then run `make run` in a checkout, or `pip install .` there again. The command line works without the page."
)


def add_page(app: web.Application, token: Secret, *, is_tls: bool, folder: Path = FOLDER) -> None:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}

    async def index(request: web.Request) -> web.StreamResponse:
        if "index.html" not in files:
            return web.Response(text=_MISSING, status=503, headers=HEADERS)
        return _named("index.html", "no-cache")

    async def named(request: web.Request) -> web.StreamResponse:
        # The service worker decides what is kept, so a browser asks for it again each time.
        name = request.path.removeprefix("/")
        return _named(name, "no-cache" if name == "sw.js" else "max-age=3600")

    async def asset(request: web.Request) -> web.StreamResponse:
        name = f"assets/{request.match_info['name']}"
        if name == _FRAME:
            return _named(name, "no-cache", _FRAME_HEADERS)
        # The other names change with their content, so browsers may keep them for good.
        return _named(name, f"max-age={_ONE_YEAR_S}, immutable")

    def _named(name: str, caching: str, headers: Mapping[str, str] = HEADERS) -> web.StreamResponse:
        if name not in files:
            raise web.HTTPNotFound(headers=HEADERS)
        kind = _KINDS.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        return web.FileResponse(files[name], headers={**headers, "Cache-Control": caching, "Content-Type": kind})

    async def trade(request: web.Request) -> web.Response:
        """The guard has seen the token in the request's Authorization header, or a ticket that stands for it."""
        response = web.Response(status=204, headers={"Cache-Control": "no-store"})
        response.set_cookie(
            COOKIE_NAME,
            page_cookie(token, caller_of(request).token_id).reveal(),
            max_age=_COOKIE_S,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=is_tls,
        )
        return response

    app.router.add_get("/", index)
    for name in PAGE_FILES:
        app.router.add_get(f"/{name}", named)
    app.router.add_get("/assets/{name}", asset)
    app.router.add_post(TRADE_PATH, trade)
