"""`makai top`: what it shows, what its keys do, and the routes that have the same figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.serving import serving
from support.tokens import bearer, make_token

from makai.cli.top_view import TopView, keys_in, top_lines
from makai.core.usage import Usage
from makai.server.activity import Activity
from makai.sessions.log.base import SessionSummary
from makai.sessions.log.nodes import Node

NOW = 1_794_975_684_000
RUNNING = SessionSummary(
    session_id="aaaaaaaa-1",
    title="Fix the\x1b[31m tests",
    model_ref="anthropic/claude",
    status="running",
    updated_ms=NOW - 1_000,
    events=500,
    usage=Usage(input=20_000, output=400, cost_usd=0.25),
)
WAITING = SessionSummary(
    session_id="bbbbbbbb-2",
    title="Deploy",
    model_ref="openai/gpt",
    status="awaiting_approval",
    updated_ms=NOW - 7_200_000,
    pending_approvals=1,
    usage=Usage(input=5, output=6, cost_usd=12.5),
)
DONE = SessionSummary(session_id="cccccccc-3", harness="acp:gemini", status="finished", updated_ms=NOW - 60_000)
NODES = (
    Node(node_id="1", name="alpha", address="10.0.0.1:8719", labels=("alpha",), started_ms=NOW - 3_600_000),
    Node(node_id="2", name="beta", address="10.0.0.2:8719", started_ms=NOW - 60_000, draining=True),
)
ACTIVITY = Activity(
    now_ms=NOW, sessions=(RUNNING, DONE, WAITING), nodes=NODES, today=Usage(input=1_500_000, output=2, cost_usd=3.0)
)


def shown(view: TopView, width: int = 100, height: int = 12) -> list[str]:
    return top_lines(view, width, height)


def pressed(*keys: str) -> TopView:
    view = TopView(activity=ACTIVITY)
    for key in keys:
        assert view.press(key)
    return view


def test_the_picture_has_sessions_agents_cost_and_nodes() -> None:
    view = TopView()
    view.take(
        msgspec.structs.replace(ACTIVITY, now_ms=NOW - 2_000, sessions=(msgspec.structs.replace(RUNNING, events=400),))
    )
    view.take(ACTIVITY)
    first, *rest = shown(view)
    assert first.endswith("   3 sessions, 2 active   today $3.0000, 1.5M tokens")
    assert rest == [
        "1 approval waiting; answer with `makai sessions list --waiting`",
        "node alpha   10.0.0.1:8719   up 1 h   labels alpha",
        "node beta   10.0.0.2:8719   up 1 min   labels -   draining",
        "",
        "ID        STATUS         AGENT             TOKENS     COST  EV/S  CHANGED    TITLE",
        "aaaaaaaa  running        anthropic/claude   20.4k  $0.2500    50  just now   Fix the\\x1b[31m tests",
        "cccccccc  finished       gemini                 0        -     -  1 min ago  (no title)",
        "bbbbbbbb  waits for you  openai/gpt            11   $12.50     -  2 h ago    Deploy",
        "",
        "",
        "sorted by changed   q quit   s sort   r reverse   a active only   / filter   arrows scroll",
    ]


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ("", "acb"),
        ("s", "bac"),  # cost
        ("ss", "abc"),  # tokens
        ("sr", "cab"),
        ("ssss", "bac"),  # status
        ("a", "ab"),
        ("/gem\r", "c"),
        ("/Deplox\x7fy", "b"),
        ("/deploy\x1b", "acb"),
        ("/deploy\r\x1b", "acb"),
        ("/nothing\r", ""),
    ],
)
def test_keys_change_the_order_and_what_is_shown(keys: str, order: str) -> None:
    assert "".join(session.session_id[0] for session in pressed(*keys).sessions()) == order


def test_keys_of_a_terminal_are_told_apart_and_q_leaves() -> None:
    assert list(keys_in("s\x1b[B\x1bOAö\x1b")) == ["s", "\x1b[B", "\x1bOA", "ö", "\x1b"]
    assert pressed("\x1b[B", "\x1b[B", "\x1b[B", "\x1b[B", "\x1b[A").first == 1
    assert not TopView().press("q")
    assert pressed("/", "q").filter == "q"  # a letter of the filter


@pytest.mark.parametrize("height", [1, 5, 8, 9, 40])
@pytest.mark.parametrize("width", [10, 40, 200])
def test_the_picture_fits_into_every_terminal(width: int, height: int) -> None:
    lines = shown(pressed("\x1b[B"), width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width


async def test_the_routes_have_the_same_figures_for_a_token_that_only_observes(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.\nusage: input=3 output=4") as site:
        session_id = await site.talked()
        _, token = await make_token(site.sessions, "observe")
        headers = bearer(token)
        status, found = await site.ask("GET", "/api/activity?limit=5", headers=headers)
        nodes = await site.ask("GET", "/api/nodes", headers=headers)
        refused = await site.ask("GET", "/api/activity?limit=0", headers=headers)
    assert status == 200
    activity = msgspec.convert(found, Activity)
    [session] = activity.sessions
    assert (session.session_id, session.status, session.usage.output) == (session_id, "finished", 4)
    assert nodes == (200, {"nodes": found["nodes"]})
    assert len(found["nodes"]) == 1
    assert refused[0] == 400
