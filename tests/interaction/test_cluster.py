"""Any node serves any client: sessions of one node are used at another one, and survive the loss of their owner."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.cluster import KEY, cluster, free_port
from support.live_sessions import Desk, desk, refused, scripted_models, whole_log
from support.postgres import shared_server
from support.tokens import make_token

from makai.cli.terminal.chat_session import ChatSession
from makai.core import session_events as ev
from makai.core.access import token_id_of
from makai.core.content import Resource, Text
from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.core.session_files import FoundPaths, Mentioned
from makai.harness.base import ToolAnswer, ToolRequest
from makai.providers.runtime import ModelRuntime
from makai.server.cluster_sessions import ClusterSessions
from makai.server.token_book import TokenBook
from makai.sessions.requests import CreateSession, FindFiles, HasFolder, ListSessions, ReadMentioned, RevokeToken
from makai.sessions.service import Sessions
from makai.tools.attachments import AttachedContent

OTHER_KEY = "another key, which is as long as that one"
ASKS = 'tool: shell {"command": "touch made"}\n---\nsay: Done.'
CALLS_A_TOOL = "tool: look {}\n---\nsay: Seen."
LOOK = ToolDefinition(name="look", description="Looks.", parameters_schema_json='{"type":"object"}')
SLOW = "pace: 20ms\nrepeat: 50 word"


def sql(database: str, statement: str) -> str:
    return shared_server().sql(statement, database.rpartition("/")[2])


async def until_released(node: ClusterSessions, session_id: str) -> None:
    for _ in range(600):
        if await node.store.owner(session_id) is None:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the session still has an owner")


def terminal(sessions: Sessions, models: ModelRuntime, label: str) -> ChatSession:
    """A chat on a machine of the cluster with this label."""
    wanted = CreateSession(model_ref="m")
    return ChatSession(
        sessions, models, wanted, lambda _: None, me="t", finished_length=len, run_terms=ev.RunTerms(), labels=(label,)
    )


async def look(request: ToolRequest) -> ToolAnswer:
    return ToolAnswer(content=(Text(text="a tree"),))


async def test_a_session_of_one_node_is_prompted_approved_and_followed_at_another(
    tmp_path: Path, database: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with cluster(tmp_path, database, ASKS) as nodes:
        first, second = await nodes.start("a"), await nodes.start("b")
        there = await desk(first, cwd=work)
        here = Desk(second, there.session_id)
        await here.send("Go.")
        await here.approve((await here.until_asked()).call_id)
        assert isinstance(await here.until_settled(), ev.RunFinished)
        await there.until_settled()

        owner = await second.store.owner(here.session_id)
        assert owner is not None
        assert owner.name == "a"
        assert (work / "made").exists()
        assert here.seen == there.seen == await whole_log(second, here.session_id)
        listed = await second.dispatch(ListSessions())
        assert [summary.session_id for summary in listed] == [here.session_id]


async def test_the_session_of_a_node_that_ends_is_resumed_by_another_and_its_follower_notices_only_a_pause(
    tmp_path: Path, database: str
) -> None:
    async with cluster(tmp_path, database, SLOW) as nodes:
        first, second = await nodes.start("a"), await nodes.start("b")
        here = Desk(second, (await desk(first)).session_id)
        await here.send("Go.")
        await here.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await first.close()
        assert isinstance(await here.until_settled(), ev.RunFinished)

        owner = await second.store.owner(here.session_id)
        assert owner is not None
        assert owner.name == "b"
        assert [type(event) for event in here.events(ev.RunFinished)] == [ev.RunFinished]
        assert [logged.event_id for logged in here.seen] == list(range(1, len(here.seen) + 1))
        assert here.seen == await whole_log(second, here.session_id)
        assert not await first.is_ready()
        assert await second.is_ready()


async def test_a_node_that_lost_its_lease_stops_its_runs_and_the_session_continues_elsewhere(
    tmp_path: Path, database: str
) -> None:
    async with cluster(tmp_path, database, SLOW) as nodes:
        first, second = await nodes.start("a"), await nodes.start("b")
        there = await desk(first)
        await there.send("Go.")
        await there.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        sql(database, "UPDATE node SET expires_at = clock_timestamp() - interval '1 s' WHERE name = 'a'")
        assert isinstance(await there.until_settled(), ev.RunFinished)
        assert there.seen == await whole_log(second, there.session_id)
        assert [logged.event_id for logged in there.seen] == list(range(1, len(there.seen) + 1))


async def test_a_client_uses_its_tools_in_a_session_of_another_node(tmp_path: Path, database: str) -> None:
    async with cluster(tmp_path, database, CALLS_A_TOOL) as nodes:
        first, second = await nodes.start("a"), await nodes.start("b")
        here = Desk(second, (await desk(first, terms=ev.SessionTerms(tools=(LOOK,)))).session_id)
        await second.register_executor(here.session_id, look)
        assert isinstance(await here.run("Look."), ev.RunFinished)
        assert [finished.content for finished in here.events(ev.ToolFinished)] == [(Text(text="a tree"),)]


@pytest.mark.parametrize("way", ["unreachable", "another key"])
async def test_a_live_owner_without_a_link_is_followed_and_asked_through_the_store(
    tmp_path: Path, database: str, way: str
) -> None:
    """Another key is refused by TLS, and cannot read what waits in the store either."""
    async with cluster(tmp_path, database) as nodes:
        first = await nodes.start("a", advertise=f"127.0.0.1:{free_port()}" if way == "unreachable" else "")
        second = await nodes.start("b", key=KEY if way == "unreachable" else OTHER_KEY)
        there = await desk(first)
        here = Desk(second, there.session_id)
        await here.until(lambda logged: isinstance(logged.event, ev.SessionCreated))
        sender = {"unreachable": here, "another key": there}[way]
        await sender.send("Go.", client_msg_id="1")
        await here.until_settled()
        owner = await second.store.owner(here.session_id)
        assert owner is not None
        assert owner.name == "a"
        assert sql(database, "SELECT count(*) FROM relayed_request") == "0"


async def test_a_node_with_another_key_cannot_ask_for_anything(tmp_path: Path, database: str) -> None:
    async with cluster(tmp_path, database) as nodes:
        first, second = await nodes.start("a"), await nodes.start("b", key=OTHER_KEY)
        here = Desk(second, (await desk(first)).session_id)
        with pytest.raises(InvalidRequest) as refusal:
            await here.send("Go.")
        assert str(refusal.value) == (
            "The node that has the session has another cluster key. Give all nodes the same cluster key."
        )
        assert [logged.event_id for logged in await whole_log(first, here.session_id)] == [1]


async def test_a_session_whose_folder_is_elsewhere_can_be_read_and_nothing_runs_in_it(
    tmp_path: Path, database: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with cluster(tmp_path, database, SLOW) as nodes:
        first, second = await nodes.start("a", labels=("one",)), await nodes.start("b", labels=("two",))
        here = Desk(second, (await desk(first, cwd=work)).session_id)
        await here.send("Go.")
        await here.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await first.close()
        ended = await here.until_settled()
        assert isinstance(ended, ev.RunFailed)
        assert ended.code == "interrupted"
        with refused("BAD_ARGUMENT", match=f"The folder {work} of this session is on one, which is not running now"):
            await here.send("Go on.")
        for looks_into_it in (FindFiles(here.session_id), ReadMentioned(here.session_id, "@made")):
            with refused("BAD_ARGUMENT", match=f"The folder {work} of this session is on one, which is not running"):
                await second.dispatch(looks_into_it)
        assert here.seen == await whole_log(second, here.session_id)

        third = await nodes.start("c", labels=("one",))
        await until_released(second, here.session_id)
        await here.send("Go on.")
        await here.until_settled()
        owner = await second.store.owner(here.session_id)
        assert owner is not None
        assert owner.node_id == third.store.node.node_id


async def test_a_token_that_is_revoked_at_one_node_counts_at_no_other(tmp_path: Path, database: str) -> None:
    async with cluster(tmp_path, database) as nodes:
        first, second = await nodes.start("a"), await nodes.start("b")
        _, token = await make_token(first, "prompt")

        async def sessions_there() -> Sessions:
            return second

        book = TokenBook(sessions_there)
        await book.refresh(token.reveal())
        assert book.find(token.reveal()) is not None
        assert await first.dispatch(RevokeToken(str(token_id_of(token.reveal()))))
        while book.find(token.reveal()) is not None:  # the test has a deadline
            await book.refresh(token.reveal())
            await asyncio.sleep(0.05)
        await book.close()


async def test_files_of_a_session_are_found_and_read_by_the_node_that_has_the_folder(
    tmp_path: Path, database: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("notes.txt", "kept.txt"):
        work.joinpath(name).write_text(f"text of {name}", encoding="utf-8")
    async with cluster(tmp_path, database) as nodes:
        first, second = await nodes.start("a", labels=("one",)), await nodes.start("b", labels=("two",))
        session_id = (await desk(first, cwd=work)).session_id
        with tmp_path.joinpath("a", "config.toml").open("a", encoding="utf-8") as config:
            config.write('[permissions]\ndeny = ["Read(./kept.txt)"]\n')  # a rule of the owner's machine alone

        assert [await second.dispatch(HasFolder(session_id, (label,))) for label in ("one", "two")] == [True, False]
        assert await second.dispatch(FindFiles(session_id, "txt")) == FoundPaths(paths=("notes.txt",))
        text, notes = (
            "See @notes.txt and @kept.txt",
            Resource(uri=(work / "notes.txt").as_uri(), text="text of notes.txt"),
        )
        refusal = "kept.txt is not attached: the agent may read it only when you allow it."
        mentioned = await second.dispatch(ReadMentioned(session_id, text))
        assert mentioned == Mentioned(files=(notes,), notices=(refusal,))

        async with scripted_models(tmp_path, "say: Hi.") as models:
            here, there = (terminal(second, models, label) for label in ("one", "two"))
            await here.open(session_id)
            await there.open(session_id)
            assert (here.has_folder, there.has_folder) == (True, False)
            assert await there.find_files("txt") == FoundPaths(paths=("notes.txt",))
            assert await there.attached(text, {}) == AttachedContent(
                content=(Text(text=text), notes), notices=(refusal,)
            )
