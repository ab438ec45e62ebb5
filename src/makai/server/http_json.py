"""JSON over plain HTTP for the REST routes: bounded bodies in, answers out, errors as answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from makai.aio.http_body import read_http_body
from makai.core.errors import InvalidRequest, MakaiError, ParseError, SessionRefused
from makai.core.sanitize import sanitize
from makai.protocols.makai.payloads import read_payload
from makai.protocols.makai.projection import wire_code
from makai.transports.http_guard import BODY_DEADLINE_S
from makai.wire import strict_json

_STATUS: Final = {
    "UNKNOWN_SESSION": 404,
    "SESSION_EXISTS": 409,
    "BUSY": 409,
    "APPROVAL_CONFLICT": 409,
    "forbidden": 403,
    "auth_required": 424,
    "overloaded": 429,
    "internal_error": 500,
    "provider_error": 502,
    "storage_unavailable": 503,
}
"""HTTP status of an error code; every other code is the caller's fault."""

_SENT: Final = re.compile(r" '.*'(?= - at |$)|(?<=unknown field) `.*`(?= - at |$)", re.DOTALL)
"""What of a body msgspec repeats in its messages: it may be a secret in the wrong place."""

BodyT = TypeVar("BodyT", bound=msgspec.Struct)


def answer(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=_encoded(value),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # the name of a file that is not UTF-8, which JSON cannot carry
        return msgspec.json.encode(sanitize(value))


def answering(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except MakaiError as error:
            return answer_error(error)

    return handle


def answer_error(error: MakaiError) -> web.Response:
    code = error.code if isinstance(error, SessionRefused) else wire_code(error.code)
    said = {"code": code, "message": error.message} | ({"hint": error.hint} if error.hint else {})
    return answer({"error": said}, _STATUS.get(code, 400))


async def read_body(request: web.Request, kind: type[BodyT], max_bytes: int) -> BodyT:
    """The JSON of a request's body; an optional field that is null counts as absent."""
    try:
        body = await read_http_body(request.content, max_bytes, BODY_DEADLINE_S)
        if body.is_cut:
            raise InvalidRequest(f"The body exceeds {max_bytes} bytes.")
        data = body.complete() or b"{}"
        return read_payload(strict_json.decode(data, max_bytes=max_bytes), kind)
    except TimeoutError:
        raise InvalidRequest(f"The body took longer than {BODY_DEADLINE_S:g} s.") from None
    except (ParseError, msgspec.DecodeError, ValueError) as error:
        raise InvalidRequest(f"The body cannot be read: {_without_sent(str(error), kind)}") from None


def _without_sent(why: str, kind: type[msgspec.Struct]) -> str:
    """An error of msgspec without what was sent; which fields there are stands in for the name of an unknown one."""
    said = _SENT.sub("", why)
    known = ", ".join(f"`{name}`" for name in kind.__struct_encode_fields__)
    return f"{said}. The fields are {known}." if "unknown field" in said else said
