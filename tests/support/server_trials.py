"""Servers and connections that are cut off at random moments, and what was lost or done twice."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from makai.sessions.requests import GetState
from support.machine import slack
from support.minicodex_client import BOTH, JSON, Ended, MinicodexClient, logged
from support.orphan_trials import WILD_COMMANDS, processes_with
from support.serve_process import ServeProcess, serve_process
from support.serving import Site, serving

TALK = "think: Let me see.\npace: 1ms\nrepeat: 150 word "
SETTLE_S = 30.0


# ---------------------------------------------------------------- connections that break


class DropReport(msgspec.Struct, frozen=True):
    """What a client that was dropped so often has received."""

    drops: int
    received: int
    gaps: int
    repeated: int
    unlike_the_log: int


async def dropped_connections(folder: Path, drops: int, *, seed: int) -> DropReport:
    """A client is cut off in the middle of frames, before answers, during replays and twice in a row."""
    chance = random.Random(seed)
    received: list[JSON] = []
    async with serving(folder, TALK) as site:
        session_id = await site.session()
        for _ in range(drops):
            client = await site.connect(session_id, *BOTH)
            await _listen_a_while(client, received, chance)
            client.drop()
        client = await site.connect(session_id, *BOTH)
        await client.resume(cursor_of(received))
        while (await site.sessions.dispatch(GetState(session_id))).active_run is not None:
            await client.hear()
        last = (await site.sessions.dispatch(GetState(session_id))).last_event_id
        while cursor_of(received + logged(client.frames)) < last:
            await client.hear()
        received += logged(client.frames)
        log = await replayed(site, session_id, last)
    ids = [frame["event_id"] for frame in received]
    in_log = [frame["event_id"] for frame in log]
    return DropReport(
        drops=drops,
        received=len(received),
        gaps=len(set(in_log) - set(ids)),
        repeated=len(ids) - len(set(ids)),
        unlike_the_log=sum(mine != theirs for mine, theirs in zip(received, log, strict=False)),
    )


async def _listen_a_while(client: MinicodexClient, received: list[JSON], chance: random.Random) -> None:
    """Go on from the cursor, talk when nothing goes on, and stop at any moment."""
    await client.say(
        "resume", last_seen_event_id=cursor_of(received), client_capabilities=list(BOTH), req_id=str(uuid4())
    )
    if chance.random() < 0.5:  # refused when a run goes on
        await client.say("send", text="talk", client_msg_id=str(uuid4()))
    seconds = chance.choice((0.0, 0.001, 0.005, 0.02, 0.05))
    try:
        async with asyncio.timeout(seconds):
            for _ in range(chance.randrange(60)):
                await client.hear()
    except (TimeoutError, Ended):
        pass
    received += logged(client.frames)


async def replayed(site: Site, session_id: str, last: int) -> list[JSON]:
    """Everything, from the first event on, to one who was never there."""
    reader = await site.connect(session_id, *BOTH)
    await reader.resume(0)
    while cursor_of(logged(reader.frames)) < last:
        await reader.hear()
    return logged(reader.frames)


def cursor_of(frames: list[JSON]) -> int:
    return int(frames[-1]["event_id"]) if frames else 0


# ---------------------------------------------------------------- servers that are killed


async def approvals_over_a_kill(folder: Path, rounds: int) -> list[int]:
    """A question is asked, the server is killed, the next one gets the approval; how often the tool of each one ran."""
    ran = []
    scenario = 'tool: shell {"command": "echo ran >> made"}\n---\nsay: Done.'
    async with serve_process(folder, scenario) as server:
        for number in range(rounds):
            project = folder / f"project-{number}"
            project.mkdir()
            session_id = await server.session(project)
            client = await server.connect(session_id, *BOTH)
            await client.hello()
            await client.ask("send", text="make it")
            asked = (await client.until("approval_pending"))[-1]
            await server.kill()
            await server.start()
            again = await server.connect(session_id, *BOTH)
            assert await again.resume(asked["event_id"]) == "accepted"
            assert await again.ask("approve", call_id=asked["call_id"], digest=asked["digest"]) == "accepted"
            await again.until_over()
            assert await again.ask("approve", call_id=asked["call_id"]) == "APPROVAL_CONFLICT"
            await again.close()
            made = project / "made"
            assert made.exists(), again.frames
            ran.append(len(made.read_text(encoding="utf-8").splitlines()))
    return ran


class KillReport(msgspec.Struct, frozen=True):
    """What became of runs whose server was killed in the middle."""

    rounds: int
    unsettled: tuple[str, ...]
    """Runs that did not end, by the last events of their logs."""
    gaps: int
    ran_twice: int
    said_to_have_run_and_did_not: int
    lost: int
    """Events that a client had seen and the log has no more."""
    slowest_recovery_s: float


_STEPS = "\n---\n".join(f'say: Step {n}.\ntool: shell {{"command": "echo step-{n} >> made"}}' for n in range(4))


async def killed_servers(folder: Path, rounds: int, *, seed: int) -> KillReport:
    """Kill -9 at any moment of a run with tools; the next server takes it up by itself."""
    chance = random.Random(seed)
    unsettled: list[str] = []
    gaps = twice = untrue = lost = 0
    slowest = 0.0
    async with serve_process(folder, f"{_STEPS}\n---\nsay: All done.") as server:
        for number in range(rounds):
            project = folder / f"project-{number}"
            project.mkdir()
            session_id = await server.session(project, mode="never_ask")
            client = await server.connect(session_id, *BOTH)
            await client.hello()
            await client.ask("send", text="go")
            await _hear_for(client, chance.uniform(0, 1.2))
            seen = logged(client.frames)
            await server.kill()
            begun = time.monotonic()
            await server.start()
            is_settled = await _settles(server, session_id)
            slowest = max(slowest, time.monotonic() - begun)
            log = await _log(server, session_id)
            if not is_settled:
                unsettled.append(f"round {number}: {log[-5:]}")
            gaps += [event["event_id"] for event in log] != list(range(1, len(log) + 1))
            lost += len(seen) > 0 and seen[-1]["event_id"] > len(log)
            made = project / "made"
            lines = made.read_text(encoding="utf-8").splitlines() if made.exists() else []
            twice += len(lines) - len(set(lines))
            untrue += sum(step not in lines for step in _successes(log))
    return KillReport(rounds, tuple(unsettled), gaps, twice, untrue, lost, slowest)


async def _hear_for(client: MinicodexClient, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                await client.hear()
    except TimeoutError:
        pass


async def _settles(server: ServeProcess, session_id: str) -> bool:
    url = f"{server.url}/api/sessions/{session_id}"
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        async with server.http.get(url, headers=dict(server.headers)) as response:
            found = await response.json()
            assert response.status == 200, found
            if found["status"] not in ("starting", "running", "awaiting_approval", "aborting"):
                return True
        await asyncio.sleep(0.05)
    return False


async def _log(server: ServeProcess, session_id: str) -> list[JSON]:
    url = f"{server.url}/api/sessions/{session_id}/export?format=jsonl"
    async with server.http.get(url, headers=dict(server.headers)) as response:
        return [msgspec.json.decode(line) for line in (await response.text()).splitlines()]


def _successes(log: list[JSON]) -> list[str]:
    """The steps of which the log says that they ran to their end."""
    called: dict[str, Any] = {}
    done = []
    for logged_event in log:
        event = logged_event["event"]
        if event["type"] == "tool_call":
            called[event["call_id"]] = msgspec.json.decode(event["arguments_json"])["command"].split()[1]
        elif event["type"] == "tool_result" and not event.get("is_error"):
            done.append(called[event["call_id"]])
    return done


# ---------------------------------------------------------------- runs that are aborted


class AbortedRuns(msgspec.Struct, frozen=True):
    """What was left of runs that were aborted while their tool did not want to end."""

    runs: int
    left: tuple[str, ...]
    slowest_s: float
    """From the abort to the end of the run."""


async def aborted_sessions(folder: Path, runs: int, *, seed: int) -> AbortedRuns:
    """Abort runs over the WebSocket whose shell commands fork, detach and ignore signals."""
    chance = random.Random(seed)
    mark = f"makai-{uuid4().hex}"
    names = list(WILD_COMMANDS)
    scenario = "\n---\n".join(
        f"when: <{name}>\ntool: shell {msgspec.json.encode({'command': command.replace('MARK', mark)}).decode()}"
        for name, command in WILD_COMMANDS.items()
    )
    left: list[str] = []
    slowest = 0.0
    project = folder / "project"
    project.mkdir()
    async with serving(folder, scenario) as site:
        session_id = await site.session(cwd=project, mode="never_ask")
        client = await site.client(session_id, *BOTH)
        for number in range(runs):
            name = names[number % len(names)]
            assert await client.ask("send", text=f"<{name}>") == "accepted"
            await client.until("tool_started")
            await _hear_for(client, chance.uniform(0, 0.2))
            begun = time.monotonic()
            answer = await client.ask("abort")
            assert answer == "accepted", f"{name}: {answer}"
            await client.until("turn_done")
            slowest = max(slowest, time.monotonic() - begun)
            left += await _left(mark, name, until=begun + slack())
    return AbortedRuns(runs, tuple(left), slowest)


async def _left(mark: str, name: str, until: float) -> list[str]:
    # The process is not our child: poll until it is gone.
    while (found := await asyncio.to_thread(processes_with, mark)) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return [f"{name}: {line[:200]}" for line in found]


# ---------------------------------------------------------------- frames that mean nothing


class FuzzReport(msgspec.Struct, frozen=True):
    frames: int
    codes: tuple[str, ...]
    unanswered: int
    changes: int
    """How often the session was not the same after them."""


_COMMANDS: list[JSON] = [
    {"type": "hello", "v": "1.0.0", "client_capabilities": list(BOTH)},
    {"type": "resume", "last_seen_event_id": 1},
    {"type": "send", "text": "go", "client_msg_id": "m"},
    {"type": "approve", "call_id": "c1", "scope": "once"},
    {"type": "deny", "call_id": "c1"},
    {"type": "abort", "run_id": "00000000-0000-4000-8000-000000000000"},
    {"type": "get_snapshot", "include_transcript_window": True},
    {"type": "ping", "nonce": "n"},
    {"type": "set_mode", "mode": "plan"},
    {"type": "set_model", "model_ref": "a/b@c"},
    {"type": "set_title", "title": "t"},
    {"type": "compact", "instructions": "short"},
    {"type": "undo", "count": 1, "to": None, "plan_id": "p"},
    {"type": "redo", "count": 2},
]
_WRONG: list[Any] = [True, 7, -1, 1.5, 2**70, [], [[[]]], {}, {"a": 1}, "x" * 2000]
_STRINGS = ("v", "req_id", "session_id", "run_id", "ts")
_BROKEN = ("", "{", "nonsense", "[]", "null", "5", '"x"', "\u0000", "{'type': 'ping'}", "[" * 500, '{"type":"ping"')


def invalid_frame(chance: random.Random) -> str:
    """Text that no server may accept, each time for another reason."""
    frame = dict(chance.choice(_COMMANDS))
    match chance.randrange(8):
        case 0:
            return chance.choice(_BROKEN)
        case 1:
            text = msgspec.json.encode(frame).decode()
            return text[: chance.randrange(len(text))]
        case 2:
            frame["type"] = chance.choice(["welcome", "snapshot", "Send", "send ", "", "\u202e", "x" * 300])
        case 3:
            frame["type"] = chance.choice(_WRONG)
        case 4:
            frame[chance.choice(["payload", "color", "Text", "__proto__", "\u0000", "x" * 300])] = chance.choice(_WRONG)
        case 5:
            frame[chance.choice(_STRINGS)] = chance.choice(_WRONG[:-1])
        case 6:
            del frame["type"]
        case _:
            field = chance.choice([name for name in frame if name != "type"])
            wrong = [value for value in _WRONG if type(value) is not type(frame[field])]
            frame[field] = chance.choice(wrong)
            if field == "last_seen_event_id":
                frame[field] = "one"
    return msgspec.json.encode(frame, enc_hook=str).decode()


async def fuzzed_frames(folder: Path, frames: int, *, seed: int) -> FuzzReport:
    """Send frames that mean nothing, one after the other, to a session in which something was said."""
    chance = random.Random(seed)
    codes: set[str] = set()
    unanswered = changes = 0
    async with serving(folder, "say: Hello.") as site:
        session_id = await site.session()
        client = await site.client(session_id, *BOTH)
        await client.ask("send", text="hi")
        await client.until_over()
        before = await site.sessions.dispatch(GetState(session_id)), await _snapshot(client)
        for number in range(frames):
            await client.say_raw(invalid_frame(chance))
            answer = await client.hear()
            if answer["type"] == "error" and "event_id" not in answer:
                codes.add(answer["code"])
            else:
                unanswered += 1
            if number % 500 == 499:
                client.frames.clear()
                changes += (await site.sessions.dispatch(GetState(session_id)), await _snapshot(client)) != before
        changes += (await site.sessions.dispatch(GetState(session_id)), await _snapshot(client)) != before
        assert await client.ask("send", text="hi again") == "accepted"
    return FuzzReport(frames, tuple(sorted(codes)), unanswered, changes)


async def _snapshot(client: MinicodexClient) -> JSON:
    await client.say("get_snapshot")
    return next(frame for frame in await client.until("session_details") if frame["type"] == "snapshot")
