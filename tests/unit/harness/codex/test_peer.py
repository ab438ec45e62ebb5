"""Codex's app-server as an agent of ACP: every recorded turn, cut anywhere and damaged at random, settles once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest
from support.codex_captures import CapturedTurn, ReplayTransport, all_turns, encoded
from support.machine import RecordMeasure

from makai.core import session_events as ev
from makai.core.errors import AgentFailed, MakaiError
from makai.harness.acp.connection import AgentTransport
from makai.harness.acp.peer import AgentLaunch
from makai.harness.acp.updates_to_facts import FactMapper
from makai.harness.acp.version_probe import ProbedVersion
from makai.harness.codex.peer import CodexPeer
from makai.wire.acp import client_calls, connecting, sessions, updates
from makai.wire.acp.common import TextBlock

TURNS = all_turns()
WITHIN_S = 6.0
DAMAGED = 1_000


class Listener:
    """`peer.AgentClient`: a client that allows everything, and makes facts of what it hears."""

    def __init__(self) -> None:
        self.facts: list[ev.SessionEvent] = []
        self.asked = 0
        self._mapper = FactMapper(lambda vendor_id: f"{vendor_id}-{len(self.facts)}")

    def on_process(self, process: AgentTransport) -> None:
        pass

    def on_session_update(self, session_id: str, update: updates.SessionUpdate) -> None:
        self.facts += self._mapper.facts(update)

    async def on_permission(
        self, request: client_calls.RequestPermissionRequest
    ) -> client_calls.RequestPermissionResponse:
        self.asked += 1
        asked = self._mapper.question(request.tool_call)
        self.facts += asked.facts
        asked.call.status = "asked"
        self.facts += self._mapper.decided(asked.call, approved=True)
        return client_calls.RequestPermissionResponse(outcome=client_calls.SelectedOutcome(option_id="once"))

    async def room(self) -> None:
        pass

    def end(self) -> None:
        self.facts += self._mapper.end()


async def replayed(turn: CapturedTurn, lines: Sequence[bytes], **extra: Any) -> tuple[Any, Listener, ReplayTransport]:
    """How the prompt was answered, or the error that it ended with."""
    transport, listener = ReplayTransport(turn, lines, **extra), Listener()
    peer = CodexPeer("Codex", AgentLaunch(cwd="/"), ProbedVersion("0.166.0", ""), transport, listener)
    answer: Any
    try:
        async with asyncio.timeout(WITHIN_S):
            await peer.request("initialize", connecting.InitializeRequest(protocol_version=1))
            opened = await peer.request("session/new", sessions.NewSessionRequest(cwd="/", mcp_servers=()))
            params = sessions.PromptRequest(session_id=opened["sessionId"], prompt=(TextBlock(text="x"),))
            answer = await peer.request("session/prompt", params)
    except MakaiError as error:
        answer = error
    finally:
        await peer.close()
    listener.end()
    return answer, listener, transport


def broken_laws(facts: Sequence[ev.SessionEvent]) -> list[str]:
    """What is wrong with the facts of a run."""
    wrong: list[str] = []
    called: set[str] = set()
    begun: set[str] = set()
    over: set[str] = set()
    said: dict[int, str] = {}
    for fact in facts:
        match fact:
            case ev.ToolCalled(call_id=call_id):
                wrong += ["called twice"] if call_id in called else []
                called.add(call_id)
            case ev.ToolStarted(call_id=call_id):
                wrong += ["started at a wrong time"] if call_id in begun | over or call_id not in called else []
                begun.add(call_id)
            case ev.ToolFinished(call_id=call_id):
                wrong += ["finished at a wrong time"] if call_id in over or call_id not in called else []
                over.add(call_id)
            case (
                ev.AssistantTextDelta(content_index=index, delta=delta)
                | ev.ReasoningDelta(content_index=index, delta=delta)
            ):
                said[index] = said.get(index, "") + delta
            case ev.AssistantText(content_index=index, text=text) | ev.Reasoning(content_index=index, text=text):
                wrong += ["text differs from its deltas"] if said.pop(index, None) != text else []
            case _:
                pass
    return [*wrong, *(["open calls"] if called != over else []), *(["open text"] if said else [])]


@pytest.mark.parametrize(("name", "turn"), TURNS, ids=[name for name, _ in TURNS])
async def test_a_recorded_turn_settles_while_codex_runs(name: str, turn: CapturedTurn) -> None:
    has_end = any(
        line["method"] == "turn/completed" for line in turn.lines if line["params"].get("threadId") == turn.thread_id
    )
    answer, listener, transport = await replayed(turn, encoded(turn), is_kept=has_end)
    failed = "[[error" in turn.prompt or not has_end
    assert isinstance(answer, MakaiError) is failed, answer
    assert broken_laws(listener.facts) == []
    questions = [line["id"] for line in turn.lines if "id" in line]
    replies = [message["id"] for message in transport.received if "method" not in message]
    assert (listener.asked, replies) == (len(questions), questions)


@pytest.mark.parametrize(("name", "turn"), TURNS, ids=[name for name, _ in TURNS])
async def test_a_codex_that_ends_at_any_line_or_in_it_settles_the_prompt_once(name: str, turn: CapturedTurn) -> None:
    lines = encoded(turn)
    for length in range(len(lines) + 1):
        for rest in ([], [line[: len(line) // 2] for line in lines[length : length + 1]]):
            answer, listener, _ = await replayed(turn, [*lines[:length], *rest])
            assert isinstance(answer, dict | MakaiError), length
            assert broken_laws(listener.facts) == [], length
    answer, _, _ = await replayed(turn, lines[: len(lines) // 3])
    assert isinstance(answer, AgentFailed)


def damaged(lines: Sequence[bytes], dice: random.Random) -> list[bytes]:
    """The lines with up to five mistakes: left out, repeated, moved, cut, or with other bytes or values in them."""
    found = list(lines)
    for _ in range(dice.randint(1, 5)):
        place = dice.randrange(len(found))
        line = found[place]
        match dice.randrange(8):
            case 0 if len(found) > 1:
                del found[place]
            case 1:
                found.insert(dice.randrange(len(found)), line)
            case 2:
                found.insert(dice.randrange(len(found)), found.pop(place))
            case 3:
                found[place] = line[: dice.randrange(len(line) + 1)]
            case 4:
                at = dice.randrange(max(len(line), 1))
                found[place] = line[:at] + dice.randbytes(3) + line[at + 3 :]
            case 5:
                words = [b'"completed"', b'"id"', b'"itemId"', b'"inProgress"', b'"threadId"', b"null", b'"delta"']
                found[place] = line.replace(
                    dice.choice(words), dice.choice([b"null", b"7", b'""', b"[]", b'"x"', b"{}"])
                )
            case 6:
                found[place] = line.replace(b'"type": "', b'"type": "new', dice.randrange(1, 3))
            case _:
                noise = [
                    b"Segmentation fault",
                    b"{}",
                    b"[]",
                    b'{"id": 3}',
                    b'{"id": 2, "result": 1}',
                    b"\xff\xfe",
                    b"null",
                ]
                found.insert(place, dice.choice(noise))
    return found


async def test_a_thousand_damaged_conversations_settle_once_and_keep_the_law(record_measure: RecordMeasure) -> None:
    slowest = 0.0
    for seed in range(DAMAGED):
        dice = random.Random(seed)
        _, turn = TURNS[seed % len(TURNS)]
        lines = damaged(encoded(turn), dice)
        began = time.monotonic()
        answer, listener, _ = await replayed(turn, lines)
        slowest = max(slowest, time.monotonic() - began)
        assert isinstance(answer, dict | MakaiError), seed
        assert broken_laws(listener.facts) == [], seed
    record_measure(f"codex: {DAMAGED} damaged conversations, the slowest", f"{WITHIN_S:g} s", f"{slowest:.3f} s")
