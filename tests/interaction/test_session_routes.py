"""Sessions over REST, on a real socket: what the routes do, and what they refuse."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from support.minicodex_client import BOTH
from support.serving import BEARER, Site, serving
from support.tokens import bearer, make_token
from support.transports import TOKEN

from makai.core.version import __version__
from makai.protocols.makai.envelope import log_id_of
from makai.server.demo import TITLE
from makai.sessions.commands import SetTitle
from makai.sessions.requests import CreateSession, GetState, ListSessions, ReadEvents, RunCommand

HELLO = "say: Hello to you.\nusage: input=5 output=4"
WRITES = 'tool: shell {"command": "echo done >> made"}\n---\nsay: It is written.'


async def all_pages(site: Site, path: str, before: str) -> list[Any]:
    """Every page of a list, of which a field says what the next one comes before."""
    pages: list[Any] = []
    more = ""
    while not pages or pages[-1][before] is not None:
        status, page = await site.ask("GET", path + more)
        assert status == 200
        pages.append(page)
        more = f"&before={page[before]}"
    return pages


async def test_a_session_is_made_listed_shown_and_deleted(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        body = {"model_ref": "scripted/scenario", "mode": "plan", "cwd": str(project), "title": "My words"}
        status, made = await site.ask("POST", "/api/sessions", body)
        assert status == 201
        session_id = made["session_id"]
        status, shown = await site.ask("GET", f"/api/sessions/{session_id}")
        assert status == 200
        assert shown == {
            "session_id": session_id, "title": "My words", "model_ref": "scripted/scenario", "mode": "plan",
            "harness": "native", "cwd": str(project), "status": "idle", "created_ms": shown["created_ms"],
            "updated_ms": shown["updated_ms"], "events": 1, "usage": shown["usage"], "pending_approvals": 0,
            "archived": False, "made_by": "", "damaged": False,
        }  # fmt: skip
        assert await site.ask("GET", "/api/sessions") == (200, {"sessions": [shown], "next_before": None})
        assert await site.ask("DELETE", f"/api/sessions/{session_id}") == (204, "")
        assert await site.ask("GET", "/api/sessions") == (200, {"sessions": [], "next_before": None})
        assert (await site.ask("GET", f"/api/sessions/{session_id}"))[0] == 404
        assert (await site.ask("DELETE", f"/api/sessions/{session_id}"))[0] == 404


@pytest.mark.parametrize("name", ["run 1", "a/b?c#d", "100%", "Füße", "s-1", "\u2603" * 60])
async def test_a_session_that_a_program_named_is_reached_by_its_name(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path, HELLO) as site:
        made = CreateSession(model_ref="scripted/scenario", session_id=log_id_of(name))
        session_id = await site.sessions.dispatch(made)
        address = f"/api/sessions/{quote(name, safe='')}"
        status, shown = await site.ask("GET", address)
        assert (status, shown["session_id"]) == (200, session_id)
        for part in ("/transcript", "/export", "/diff", "/restore"):
            by_id = await site.ask("GET", f"/api/sessions/{session_id}{part}")
            assert await site.ask("GET", address + part) == by_id
        client = await site.client(quote(name, safe=""))
        assert client.of_type("welcome")[0]["session_state"]["session_id"] == session_id
        assert await client.ask("send", text="hi") == "accepted"
        await client.until("turn_done")
        await client.close()
        assert (await site.ask("POST", f"{address}/fork", {}))[0] == 201
        assert (await site.ask("DELETE", address))[0] == 204
        assert (await site.ask("GET", address))[0] == 404


@pytest.mark.parametrize("name", ["%00", "%ED%A0%80", "%FF", "x" * 300, "other"])
async def test_a_name_of_no_session_is_refused_and_the_next_request_works(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.session()
        for method in ("GET", "DELETE"):
            assert (await site.ask(method, f"/api/sessions/{name}"))[0] in (400, 404)
        assert (await site.ask("GET", f"/api/sessions/{session_id}"))[0] == 200


async def test_a_field_of_a_new_session_that_is_null_counts_as_absent(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        names = ("mode", "sandbox", "cwd", "title", "harness", "tool_servers", "demo")
        status, made = await site.ask(
            "POST", "/api/sessions", {"model_ref": "scripted/scenario", **dict.fromkeys(names)}
        )
        assert status == 201
        _, shown = await site.ask("GET", f"/api/sessions/{made['session_id']}")

    assert (shown["title"], shown["harness"]) == ("", "native")


async def test_the_list_is_paged_without_loss_even_among_sessions_of_one_millisecond(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        made = await asyncio.gather(*(site.session() for _ in range(12)))
        for limit in (1, 2, 5, 100):
            pages = await all_pages(site, f"/api/sessions?limit={limit}", "next_before")
            assert sorted(shown["session_id"] for page in pages for shown in page["sessions"]) == sorted(made)


async def test_the_list_can_be_searched(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        ids = [await site.session() for _ in range(3)]
        for session_id, title in zip(ids, ("Fix the parser", "Fix the lexer", "Ärger"), strict=True):
            await site.sessions.dispatch(RunCommand(session_id, SetTitle(now=0, title=title)))
        found_by = {"fix": ids[:2], "LEXER fix": ids[1:2], "ärg": ids[2:], "nothing": [], "": ids}
        for words, expected in found_by.items():
            async with site.http.get(f"{site.url}/api/sessions", params={"q": words}, headers=BEARER) as response:
                found = await response.json()
            assert {shown["session_id"] for shown in found["sessions"]} == set(expected), words


async def test_the_effort_of_a_session_is_changed_and_clients_are_told(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.session()
        client = await site.client(session_id, *BOTH)
        address = f"/api/sessions/{session_id}/effort"
        assert await site.ask("POST", address, {"effort": "high"}) == (204, "")
        told = await client.until("terms_changed")
        changed = (await site.sessions.dispatch(GetState(session_id))).terms
        assert await site.ask("POST", address, {"effort": None}) == (204, "")
        reset = (await site.sessions.dispatch(GetState(session_id))).terms
        assert (await site.ask("POST", address, {"effort": "more"}))[0] == 400

    assert told[-1]["reasoning_effort"] == "high"
    assert (changed.reasoning_effort, reset) == ("high", msgspec.structs.replace(changed, reasoning_effort=None))


async def test_an_archived_session_leaves_the_list_until_it_is_brought_back(tmp_path: Path) -> None:
    async def listed(query: str = "") -> list[str]:
        status, found = await site.ask("GET", f"/api/sessions{query}")
        assert status == 200
        return [shown["session_id"] for shown in found["sessions"]]

    async with serving(tmp_path, HELLO) as site:
        kept, archived = await site.session(), await site.session()
        address = f"/api/sessions/{archived}"
        assert await site.ask("POST", f"{address}/archive", {"archived": True}) == (204, "")
        assert (await site.ask("GET", address))[1]["archived"] is True
        assert (await listed(), await listed("?archived=only")) == ([kept], [archived])
        assert set(await listed("?archived=with")) == {kept, archived}
        assert (await site.ask("GET", "/api/sessions?archived=maybe"))[0] == 400
        assert (await site.ask("POST", f"{address}/archive", {}))[0] == 400

        client = await site.client(archived, *BOTH)
        assert await client.ask("send", text="hi") == "accepted"
        await client.until("turn_done")
        assert [frame["archived"] for frame in client.of_type("session_archived")] == [False]
        await client.close()
        assert set(await listed()) == {kept, archived}


async def test_a_session_is_renamed(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        address = f"/api/sessions/{await site.session()}"
        assert await site.ask("POST", f"{address}/title", {"title": "Tea & biscuits"}) == (204, "")
        assert (await site.ask("GET", address))[1]["title"] == "Tea & biscuits"
        assert (await site.ask("POST", f"{address}/title", {"title": "x" * 501}))[0] == 400
        assert (await site.ask("POST", f"{address}/title", {"titel": "x"}))[0] == 400
        assert (await site.ask("POST", "/api/sessions/none/title", {"title": "x"}))[0] == 404


async def test_info_harnesses_and_approvals(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, WRITES) as site:
        status, info = await site.ask("GET", "/api/info")
        assert status == 200
        caller = {"scope": "admin", "token": "server", "session_id": None}
        settings = {"version", "default_model_ref", "default_cwd", "default_sandbox", "default_mode", "home_has_models"}
        settings |= {"demo", "default_agent"}
        assert {name: info.pop(name) for name in caller} == caller
        assert set(info) == settings
        assert info["version"] == __version__
        native = {"name": "native", "title": "makai", "available": True, "install": ""}
        can = [
            "find its session again after a restart",
            "take messages while it works",
            "ask before it acts",
            "use your MCP servers",
            "take a thinking level",
            "promise answers of a JSON Schema",
        ]
        shown = native | {"can": can, "cannot": ["show its sub-agents"]}
        assert await site.ask("GET", "/api/harnesses") == (200, {"harnesses": [shown]})
        assert await site.ask("GET", "/api/approvals") == (200, {"pending": []})
        session_id = await site.session(cwd=project)
        client = await site.client(session_id, *BOTH)
        await client.ask("send", text="write")
        asked = (await client.until("approval_pending"))[-1]
        status, approvals = await site.ask("GET", "/api/approvals")
        assert (status, [(one["session_id"], one["call_id"], one["tool_key"]) for one in approvals["pending"]]) == (
            200, [(session_id, asked["call_id"], "shell")],
        )  # fmt: skip
        await client.ask("deny", call_id=asked["call_id"])
        await client.until_over()
        assert await site.ask("GET", "/api/approvals") == (200, {"pending": []})


async def test_a_demo_session_says_that_it_is_scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with serving(tmp_path, HELLO) as site:
        status, made = await site.ask("POST", "/api/sessions", {"demo": True})
        assert status == 201
        _, shown = await site.ask("GET", f"/api/sessions/{made['session_id']}")
        assert (shown["title"], shown["mode"]) == (TITLE, "ask")
        assert Path(shown["cwd"]).is_relative_to(tmp_path / "cache")
        assert sorted(os.listdir(shown["cwd"])) == ["README.md", "greet.py", "test_greet.py"]


async def test_where_the_settings_say_read_only_a_prompt_token_begins_no_session_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with serving(tmp_path, HELLO) as site:
        (tmp_path / "makai-home" / "config.toml").write_text('sandbox = "read-only"\n')
        prompt, approve = [bearer((await make_token(site.sessions, scope))[1]) for scope in ("prompt", "approve")]
        for wide in ({"sandbox": "workspace-write"}, {"demo": True}):
            assert [(await site.ask("POST", "/api/sessions", wide, headers=one))[0] for one in (prompt, approve)] == [
                403,
                201,
            ], wide
        status, made = await site.ask("POST", "/api/sessions", {}, headers=prompt)
        assert status == 201
        assert (await site.sessions.dispatch(GetState(made["session_id"]))).terms.sandbox == "read-only"


async def test_pages_of_the_transcript_are_the_items_of_the_snapshot(tmp_path: Path) -> None:
    async with serving(tmp_path, "think: Hm.\nsay: Hello to you.") as site:
        session_id = await site.talked(*(f"message {number}" for number in range(15)))
        client = await site.connect(session_id, *BOTH)
        shown = (await client.hello())["transcript"]
        for limit in (1, 7, 1000):
            pages = await all_pages(site, f"/api/sessions/{session_id}/transcript?limit={limit}", "before")
            assert all(len(page["items"]) <= limit for page in pages)
            assert [item for page in reversed(pages) for item in page["items"]] == shown


async def test_a_fork_goes_on_from_any_event_and_leaves_its_origin_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: One.\n---\nsay: Two.") as site:
        session_id = await site.talked("first", "second")
        origin = await site.sessions.dispatch(GetState(session_id))
        client = await site.client(session_id)
        first_end = next(
            item["event_id"]
            for item in (await site.ask("GET", f"/api/sessions/{session_id}/transcript"))[1]["items"]
            if item["type"] == "assistant_text"
        )
        for body, texts in (({}, ["One.", "Two."]), ({"at": first_end}, ["One."]), ({"at": 1}, [])):
            status, made = await site.ask("POST", f"/api/sessions/{session_id}/fork", body)
            assert status == 201
            fork = await site.client(made["session_id"])
            await fork.ask("send", text="and?")
            heard = await fork.until_over()
            answer = [frame["text"] for frame in heard if frame["type"] == "assistant_text"]
            assert answer == [["One.", "Two.", "Two."][len(texts)]]
        assert await site.sessions.dispatch(GetState(session_id)) == origin
        assert await client.ask("ping") == "accepted"
        for at in (0, -1, origin.last_event_id + 1):
            assert (await site.ask("POST", f"/api/sessions/{session_id}/fork", {"at": at}))[0] == 400
        assert (await site.ask("POST", "/api/sessions/unknown/fork", {}))[0] == 404


async def test_exports_hold_what_was_said_and_the_whole_log(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.talked("What is it?")
        for form, kind in (("md", "text/markdown"), ("jsonl", "application/jsonl")):
            url = f"{site.url}/api/sessions/{session_id}/export?format={form}"
            async with site.http.get(url, headers=BEARER) as response:
                text = await response.text()
                assert (response.status, response.content_type) == (200, kind)
                assert response.headers["Content-Disposition"] == f'attachment; filename="makai-{session_id}.{form}"'
            if form == "md":
                assert "What is it?" in text
                assert "Hello to you." in text
            else:
                logged = [record.line for record in await site.sessions.dispatch(ReadEvents(session_id))]
                assert list(map(msgspec.json.decode, text.splitlines())) == list(map(msgspec.json.decode, logged))
        assert (await site.ask("GET", f"/api/sessions/{session_id}/export?format=pdf"))[0] == 400
        assert (await site.ask("GET", "/api/sessions/unknown/export"))[0] == 404


async def test_a_running_session_can_be_deleted_and_leaves_nothing_running(tmp_path: Path, project: Path) -> None:
    scenario = f'tool: shell {{"command": "touch {project}/begun; sleep 600"}}'
    async with serving(tmp_path, scenario) as site:
        session_id = await site.session(cwd=project, mode="never_ask")
        client = await site.client(session_id, *BOTH)
        await client.ask("send", text="sleep")
        await client.until("tool_started")
        async with asyncio.timeout(60):
            assert (await site.ask("DELETE", f"/api/sessions/{session_id}"))[0] == 204
        assert await client.closed() == 4404
        assert await site.sessions.dispatch(ListSessions()) == []


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense", b"[]", b'"x"', b"5", b"\xff\xfe", b'{"color": "red"}', b'{"model_ref": 5}', b'{"mode": "godlike"}',
        b'{"cwd": "/does/not/exist"}', b'{"cwd": "relative"}', b'{"harness": "unknown"}', b'{"demo": "yes"}',
        b'{"title": "' + b"x" * 300_000 + b'"}', b"[" * 100_000, b'{"title": "\\ud800"}',
    ],
    ids=lambda raw: raw[:24].decode("latin-1"),
)  # fmt: skip
async def test_a_body_that_cannot_be_meant_is_400_and_makes_no_session(tmp_path: Path, raw: bytes) -> None:
    async with serving(tmp_path, HELLO) as site:
        status, answer = await site.ask("POST", "/api/sessions", raw=raw)
        assert status == 400
        assert set(answer["error"]) <= {"code", "message", "hint"}
        assert answer["error"]["code"] == "invalid_request"
        assert await site.sessions.dispatch(ListSessions()) == []


async def test_a_body_may_come_in_pieces(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        body = msgspec.json.encode({"model_ref": "scripted/scenario", "cwd": str(project)}) + b" " * 20_000
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = (
            f"POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAuthorization: Bearer {TOKEN.reveal()}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        for piece in (head.encode(), body[:10], body[10:15_000], body[15_000:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)  # each piece its own packet
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
        assert answer.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("path", ["", "/fork", "/export", "/transcript"])
@pytest.mark.parametrize(
    "session_id", ["unknown", "00000000-0000-4000-8000-000000000000", "%00", "a'b--", "..", "x" * 2000]
)
async def test_a_session_that_does_not_exist_is_404(tmp_path: Path, path: str, session_id: str) -> None:
    async with serving(tmp_path, HELLO) as site:
        status, _ = await site.ask("POST" if path == "/fork" else "GET", f"/api/sessions/{session_id}{path}")
        assert status == 404


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=1e3", "limit=²", "before=x", "before=-5",
                                   "before=" + "9" * 40, "limit=", "limit=1.5", "limit=0x10"])  # fmt: skip
async def test_numbers_that_are_none_are_400(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.talked()
        for path in ("/api/sessions", f"/api/sessions/{session_id}/transcript"):
            status, answer = await site.ask("GET", f"{path}?{query}")
            assert (status, answer["error"]["code"]) == (400, "invalid_request"), path


async def test_numbers_beyond_every_session_are_harmless(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.talked()
        for query in ("limit=999999", "before=999999999999999", "before=0", "before=1", "limit=1"):
            for path in ("/api/sessions", f"/api/sessions/{session_id}/transcript"):
                assert (await site.ask("GET", f"{path}?{query}"))[0] == 200
        _, page = await site.ask("GET", f"/api/sessions/{session_id}/transcript?before=1")
        assert page == {"items": [], "before": None}
