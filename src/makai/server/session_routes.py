"""Sessions over plain HTTP: `/api/sessions…`, `/api/approvals`, `/api/harnesses`, `/api/info`. Their events are
followed over `/ws`. The guard has checked the requests before."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from makai.catalog.model_ref import ref_of
from makai.catalog.model_settings import model_for
from makai.core.access import Caller
from makai.core.errors import InvalidRequest, MakaiError, SessionRefused
from makai.core.model import ReasoningEffort
from makai.core.session_events import DecodedMode, HasPermissionMode, SandboxLevel, SessionTerms
from makai.core.version import __version__
from makai.harness.abilities import abilities
from makai.harness.acp.known_agents import OfferedAgent
from makai.harness.registry import NATIVE, harness_id_of
from makai.protocols.minicodex.pages import MAX_PAGE_ITEMS, PAGE_ITEMS, TranscriptReader
from makai.protocols.minicodex.view import page
from makai.server.backend import Backend
from makai.server.demo import make_demo
from makai.server.http_json import answer, answering, read_body
from makai.server.scopes import ScopedSessions, check, check_all_sessions
from makai.server.session_names import session_id_of
from makai.server.session_views import read_transcript
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.export import jsonl, markdown
from makai.sessions.log.base import ArchivedFilter, PendingApproval, Record, SessionFilter, SessionSummary
from makai.sessions.service import Sessions
from makai.transports.http_guard import caller_of

if TYPE_CHECKING:
    from makai.server.session_source import SettingsOf

MAX_BODY: Final = 256 * 1024
MAX_LISTED: Final = 500
_SEARCHED: Final = 5_000
"""How many sessions a search looks through."""
_MAX_PER_MS: Final = 100
"""Sessions that were used in the same millisecond are on one page, at most so many more than its limit."""
OpenSessions = Callable[[], Awaitable[Sessions]]


class NewBody(HasPermissionMode, frozen=True, forbid_unknown_fields=True):
    model_ref: str | None = None
    mode: DecodedMode | None = None
    sandbox: SandboxLevel | None = None
    cwd: str | None = None
    title: str = ""
    harness: str | None = None
    """None: the user's default agent, or makai's own with a model as `PROVIDER/MODEL`."""
    reasoning_effort: ReasoningEffort | None = None
    tool_servers: tuple[str, ...] = ()
    demo: bool = False


class ForkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: int | None = None
    before: int | None = None
    model_ref: str | None = None


class ArchiveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    archived: bool


class EffortBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: ReasoningEffort | None
    """None: as the model does by itself."""


class TitleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str


class SessionRoutes:
    def __init__(
        self,
        sessions: OpenSessions,
        backend: Backend,
        settings: SettingsOf,
        agents: Callable[[], Sequence[OfferedAgent]] = tuple,
    ) -> None:
        self._sessions = sessions
        self._backend = backend
        self._settings = settings
        self._agents = agents

    def add_to(self, app: web.Application) -> None:
        for method, path, handler in (
            ("GET", "/api/info", self._info),
            ("GET", "/api/sessions", self._list),
            ("POST", "/api/sessions", self._create),
            ("GET", "/api/sessions/{id}", self._show),
            ("DELETE", "/api/sessions/{id}", self._delete),
            ("POST", "/api/sessions/{id}/fork", self._fork),
            ("POST", "/api/sessions/{id}/archive", self._archive),
            ("POST", "/api/sessions/{id}/title", self._rename),
            ("POST", "/api/sessions/{id}/effort", self._set_effort),
            ("GET", "/api/sessions/{id}/export", self._export),
            ("GET", "/api/sessions/{id}/transcript", self._transcript),
            ("GET", "/api/sessions/{id}/restore", self._preview_restore),
            ("GET", "/api/sessions/{id}/diff", self._diff),
            ("GET", "/api/approvals", self._approvals),
            ("GET", "/api/harnesses", self._harnesses),
        ):
            app.router.add_route(method, path, answering(handler))

    async def _open(self, request: web.Request) -> Sessions:
        return ScopedSessions(await self._sessions(), caller_of(request), self._settings)

    async def _session(self, request: web.Request) -> tuple[Sessions, str]:
        """The sessions, and the id of the one that the address names."""
        sessions = await self._open(request)
        return sessions, await session_id_of(sessions, request.match_info["id"])

    async def new_session(self, caller: Caller) -> req.CreateSession:
        """The session of a client that names no settings."""
        return await self._wanted(NewBody(), caller)

    async def _info(self, request: web.Request) -> web.Response:
        caller = caller_of(request)
        settings = await self._settings(os.getcwd(), caller)
        try:
            default: str | None = ref_of(model_for(self._backend, settings))
        except MakaiError:
            default = None
        return answer(
            {
                "version": __version__,
                "default_model_ref": default,
                "default_cwd": os.getcwd(),
                "default_sandbox": settings.sandbox,
                "default_mode": settings.mode,
                "default_agent": harness_id_of(settings.agent),
                "home_has_models": default is not None,
                "demo": True,
                "scope": caller.scope,
                "token": caller.name,
                "session_id": caller.session_id,
            }
        )

    async def _list(self, request: web.Request) -> web.Response:
        limit = number_in(request, "limit", 100, least=1, most=MAX_LISTED)
        before = number_in(request, "before", 0) or None
        words = request.query.get("q", "").casefold().split()
        wanted = SessionFilter(
            limit=_SEARCHED if words else limit + _MAX_PER_MS,
            updated_before_ms=before,
            archived=archived_filter(request),
        )
        sessions = await self._open(request)
        found = await sessions.dispatch(req.ListSessions(wanted))
        if words:
            found = [summary for summary in found if _has(summary, words)]
        shown = _page(found, limit)
        next_before = shown[-1].updated_ms if len(found) > len(shown) else None
        return answer({"sessions": [_shown(summary) for summary in shown], "next_before": next_before})

    async def _create(self, request: web.Request) -> web.Response:
        body = await read_body(request, NewBody, MAX_BODY)
        if body.demo:  # its settings are the server's own, in a folder that it makes
            caller = caller_of(request)
            check_all_sessions(caller, "a demo")
            if (await self._settings(os.getcwd(), caller)).sandbox == "read-only":
                check(caller, "approve", "a demo, which writes,")
            return answer({"session_id": await (await self._sessions()).dispatch(make_demo(os.environ))}, 201)
        wanted = await self._wanted(body, caller_of(request))
        return answer({"session_id": await (await self._open(request)).dispatch(wanted)}, 201)

    async def _show(self, request: web.Request) -> web.Response:
        return answer(_shown(await self._summary(request)))

    async def _delete(self, request: web.Request) -> web.Response:
        sessions, session_id = await self._session(request)
        if not await sessions.dispatch(req.DeleteSession(session_id)):
            raise SessionRefused("UNKNOWN_SESSION", "There is no such session.")
        return web.Response(status=204)

    async def _fork(self, request: web.Request) -> web.Response:
        body = await read_body(request, ForkBody, MAX_BODY)
        sessions, origin = await self._session(request)
        wanted = req.ForkSession(origin=origin, at=body.at, before=body.before, model_ref=body.model_ref)
        return answer({"session_id": await sessions.dispatch(wanted)}, 201)

    async def _archive(self, request: web.Request) -> web.Response:
        body = await read_body(request, ArchiveBody, MAX_BODY)
        return await self._command(request, cmd.Archive(now=0, archived=body.archived))

    async def _rename(self, request: web.Request) -> web.Response:
        body = await read_body(request, TitleBody, MAX_BODY)
        return await self._command(request, cmd.SetTitle(now=0, title=body.title))

    async def _set_effort(self, request: web.Request) -> web.Response:
        """How much the model reasons from the next run on."""
        body = await read_body(request, EffortBody, MAX_BODY)
        sessions, session_id = await self._session(request)
        terms = (await sessions.dispatch(req.GetState(session_id))).terms
        changed = msgspec.structs.replace(terms, reasoning_effort=body.effort)
        return await self._command(request, cmd.SetTerms(now=0, terms=changed))

    async def _command(self, request: web.Request, command: cmd.UserCommand) -> web.Response:
        sessions, session_id = await self._session(request)
        await sessions.dispatch(req.RunCommand(session_id, command))
        return web.Response(status=204)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        form = request.query.get("format", "md")
        if form not in ("md", "jsonl"):
            raise InvalidRequest("format is md or jsonl.")
        summary = await self._summary(request)
        sessions = await self._open(request)
        name = f"makai-{summary.session_id}.{form}"
        kind = "text/markdown; charset=utf-8" if form == "md" else "application/jsonl"
        headers = {"Content-Type": kind, "Content-Disposition": f'attachment; filename="{_file_name(name)}"'}
        if form == "md":
            records = [record async for record in _records(sessions, summary.session_id)]
            return web.Response(text=markdown(summary, records), headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        async for record in _records(sessions, summary.session_id):
            await response.write(b"".join(jsonl([record])))
        await response.write_eof()
        return response

    async def _transcript(self, request: web.Request) -> web.Response:
        summary = await self._summary(request)
        before = number_in(request, "before", summary.events + 1, most=summary.events + 1)
        limit = number_in(request, "limit", PAGE_ITEMS, least=1, most=MAX_PAGE_ITEMS)
        reader = TranscriptReader(max(before, 1), limit)
        await read_transcript(await self._open(request), summary.session_id, reader)
        return web.Response(body=page(reader), content_type="application/json")

    async def _preview_restore(self, request: web.Request) -> web.Response:
        direction = request.query.get("direction", "undo")
        if direction not in ("undo", "redo"):
            raise InvalidRequest("direction is undo or redo.")
        count, to = number_in(request, "count", 1, least=1), number_in(request, "to", 0) or None
        sessions, session_id = await self._session(request)
        wanted = req.PreviewRestore(
            session_id,
            "undo" if direction == "undo" else "redo",
            count,
            to,
            paths=tuple(request.query.getall("path", ())),
            with_diffs=request.query.get("diffs") == "1",
        )
        return answer(msgspec.to_builtins(await sessions.dispatch(wanted)))

    async def _diff(self, request: web.Request) -> web.Response:
        sessions, session_id = await self._session(request)
        found = await sessions.dispatch(req.GetSessionDiff(session_id))
        return answer({"files": msgspec.to_builtins(found)})

    async def _approvals(self, request: web.Request) -> web.Response:
        def shown(asked: PendingApproval) -> dict[str, Any]:
            call = asked.request
            named = {"session_id": asked.session_id, "call_id": call.call_id, "title": call.title}
            return {**named, "tool_key": call.name, "event_id": asked.event_id, "ts": asked.ts}

        pending = await (await self._open(request)).dispatch(req.ListApprovals())
        return answer({"pending": [shown(asked) for asked in pending]})

    async def _harnesses(self, request: web.Request) -> web.Response:
        found = await asyncio.to_thread(self._agents)
        rows = [(NATIVE, "makai", True, ""), *((a.harness, a.title, bool(a.program), a.install) for a in found)]
        shown = [
            {"name": name, "title": title, "available": is_there, "install": install}
            | msgspec.to_builtins(abilities(name))
            for name, title, is_there, install in rows
        ]
        return answer({"harnesses": shown})

    async def _summary(self, request: web.Request) -> SessionSummary:
        sessions, session_id = await self._session(request)
        summary = await sessions.dispatch(req.GetSession(session_id))
        if summary is None:
            raise SessionRefused("UNKNOWN_SESSION", "There is no such session.")
        return summary

    async def _wanted(self, body: NewBody, caller: Caller) -> req.CreateSession:
        cwd = body.cwd or os.getcwd()
        settings = await self._settings(cwd, caller)
        model_ref = body.model_ref or ""
        harness = body.harness or harness_id_of(settings.agent_for(None, body.model_ref))
        if harness == NATIVE and "/" not in model_ref:  # other agents bring their own models
            model_ref = ref_of(model_for(self._backend, settings, model_ref))
        return req.CreateSession(
            model_ref=model_ref,
            mode=body.mode or settings.mode,
            harness=harness,
            cwd=cwd,
            title=body.title,
            terms=SessionTerms(
                builtin_tools=True,
                sandbox=body.sandbox or settings.sandbox,
                tool_servers=body.tool_servers,
                reasoning_effort=body.reasoning_effort or settings.effort,
            ),
        )


def number_in(request: web.Request, name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
    """A number of the query, cut to `most`."""
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 15 or int(text) < least:
        raise InvalidRequest(f"{name} is a whole number from {least} on.")
    return int(text) if most is None else min(int(text), most)


def archived_filter(request: web.Request) -> ArchivedFilter:
    """Whether archived sessions are shown; without them unless the request says otherwise."""
    match request.query.get("archived", "without"):
        case "without" | "only" | "with" as wanted:
            return wanted
    raise InvalidRequest("archived is without, only or with.")


async def _records(sessions: Sessions, session_id: str) -> AsyncIterator[Record]:
    after = 0
    while page_of_log := await sessions.dispatch(req.ReadEvents(session_id, after)):
        for record in page_of_log:
            yield record
        after = page_of_log[-1].event_id


def _shown(summary: SessionSummary) -> dict[str, Any]:
    """Every field, also defaults: the page does not know them."""
    return {name: getattr(summary, name) for name in summary.__struct_fields__}


def _page(found: list[SessionSummary], limit: int) -> list[SessionSummary]:
    """The first of them; all sessions of one millisecond are on the same page."""
    end = limit
    while end < len(found) and found[end].updated_ms == found[end - 1].updated_ms:
        end += 1
    return found[:end]


def _has(summary: SessionSummary, words: list[str]) -> bool:
    text = f"{summary.title} {summary.cwd or ''} {summary.model_ref}".casefold()
    return all(word in text for word in words)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
