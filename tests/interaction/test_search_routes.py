"""Search and usage over REST, on a real socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from support.live_sessions import Desk
from support.serving import Site, serving
from support.tokens import bearer, make_token

from makai.sessions.requests import ForkSession

HELLO = "say: Hello to you.\nusage: input=5 output=4"


async def search(site: Site, query: str, more: str = "", **options: Any) -> list[Any]:
    """The hits, once the index has everything."""
    async with asyncio.timeout(30):
        while True:
            status, found = await site.ask("GET", f"/api/search?q={quote(query)}{more}", **options)
            assert status == 200, found
            if found["complete"]:
                return list(found["hits"])


async def talked(site: Site, *texts: str) -> str:
    session_id = await site.session()
    for text in texts:
        await Desk(site.sessions, session_id, 0).run(text)
    return session_id


async def test_a_search_answers_with_sessions_and_marked_snippets(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await talked(site, "😀 Which kettle is blue?")
        hits = await search(site, "kettle blu")
        _, shown = await site.ask("GET", f"/api/sessions/{session_id}")
    same = ("session_id", "title", "cwd", "harness", "model_ref", "updated_ms", "archived")
    title = {"event_id": 6, "kind": "title", "text": "😀 Which kettle is blue?", "marks": [[9, 15], [19, 22]]}
    assert hits == [
        {**{name: shown[name] for name in same}, "matches": [title, {**title, "event_id": 4, "kind": "user"}]}
    ]


async def test_a_search_leaves_out_what_is_archived_or_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        kept, archived, deleted = [await talked(site, f"xylophonist {name}") for name in ("a", "b", "c")]
        await site.ask("POST", f"/api/sessions/{archived}/archive", {"archived": True})
        assert {hit["session_id"] for hit in await search(site, "xylophonist")} == {kept, deleted}
        assert [hit["session_id"] for hit in await search(site, "xylophonist", "&archived=only")] == [archived]
        await site.ask("DELETE", f"/api/sessions/{deleted}")
        found = await search(site, "xylophonist", "&archived=with&limit=5")
        assert {hit["session_id"] for hit in found} == {kept, archived}
        for session_id in (kept, archived):
            await site.ask("DELETE", f"/api/sessions/{session_id}")
        home = tmp_path / "makai-home"
        assert b"xylophonist" not in b"".join(path.read_bytes() for path in home.glob("search.db*"))


async def test_a_token_of_one_session_finds_and_counts_only_there(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        one, _ = await talked(site, "tea", "more"), await talked(site, "tea")
        headers = bearer((await make_token(site.sessions, "observe", session_id=one))[1])
        assert [hit["session_id"] for hit in await search(site, "tea", headers=headers)] == [one]
        assert len(await search(site, "tea")) == 2
        _, own = await site.ask("GET", "/api/usage", headers=headers)
        _, both = await site.ask("GET", "/api/usage")
    assert [sum(row["runs"] for row in found["rows"]) for found in (own, both)] == [2, 3]


async def test_usage_counts_what_a_fork_copied_once(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        origin = await talked(site, "tea")
        fork = await site.sessions.dispatch(ForkSession(origin=origin))
        await Desk(site.sessions, fork, 0).until_settled()
        await Desk(site.sessions, fork, (await site.ask("GET", f"/api/sessions/{fork}"))[1]["events"]).run("more")
        await search(site, "tea")
        status, found = await site.ask("GET", "/api/usage?days=1&tz_minutes=-90")
    (row,) = found.pop("rows")
    assert (status, found, len(row.pop("day"))) == (200, {"complete": True}, 10)
    counts = {"runs": 2, "input": 10, "output": 8, "cache_read": 0, "cache_write": 0, "cost_usd": row["cost_usd"]}
    assert row == {"model_ref": "scripted/scenario", "harness": "native", "cwd": None, **counts}


@pytest.mark.parametrize(
    "path",
    ["/api/search?q=a&limit=0", "/api/search?q=a&archived=x", "/api/usage?days=x", "/api/usage?tz_minutes=9999"],
)
async def test_a_request_that_makes_no_sense_says_why(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, HELLO) as site:
        status, said = await site.ask("GET", path)
    assert (status, set(said["error"])) == (400, {"code", "message"})


async def test_a_query_is_nothing_but_words(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        await talked(site, "tea")
        for query in ('"', "tea AND", "tea OR (", "NEAR(tea", "title:tea*", "\x00tea", "' OR 1=1", "*", "tea " * 500):
            assert msgspec.convert(await search(site, query), list[dict[str, object]]) is not None
