"""`makai acp` under cancels, ends of input and kill -9 at any moment, and what was lost, late or done twice."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from support.acp_peer import AcpPeer, acp_process, choosing, text_of
from support.acp_schema import JSON
from support.orphan_trials import processes_with, unique_mark

STATES = ("asked", "talking", "running a command", "waiting for permission")
SCENARIO = """
when: talking
pace: 1ms
repeat: 1000000 word
---
when: asked
wait: 5s
---
when: running a command
tool: shell {"command": "exec -a MARK sleep 600"}
---
when: waiting for permission
tool: write {"path": "note.txt", "content": "x"}
---
say: Good day.
"""
STEPS = 5
LONG_WORK = (
    "\n---\n".join(
        f'say: Step {number}.\nchunk: 3\ntool: shell {{"command": "echo {number} >> ran.txt; sleep 0.05"}}'
        for number in range(STEPS)
    )
    + "\n---\npace: 1ms\nrepeat: 60 word "
)


class CancelReport(msgspec.Struct, frozen=True):
    cancels: int
    wrong: list[str]
    """Answers that are not `cancelled`, and updates of the turn that came after the answer."""
    slowest_s: float


async def cancelled_prompts(folder: Path, cancels: int, *, seed: int) -> CancelReport:
    """Cancel prompts of one session in every state; each time the session works on."""
    chance = random.Random(seed)
    wrong: list[str] = []
    slowest = 0.0
    mark = unique_mark()
    async with acp_process(folder, SCENARIO.replace("MARK", mark)) as process, AcpPeer(process) as peer:
        session_id = await _opened(peer, folder)
        for number in range(cancels):
            state = STATES[number % len(STATES)]
            before = len(peer.frames)
            request_id = await peer.ask("session/prompt", peer.prompt_params(session_id, state))
            await _reached(peer, state, before)
            await asyncio.sleep(chance.choice((0, 0.002, 0.02)))
            began = time.monotonic()
            await peer.notify("session/cancel", {"sessionId": session_id})
            answer = await peer.answer_to(request_id)
            slowest = max(slowest, time.monotonic() - began)
            if answer.get("result") != {"stopReason": "cancelled"}:
                wrong.append(f"{state}: {answer}")
            position = peer.position_of(answer)
            await peer.call("session/list")  # what came late is here now
            wrong += [f"{state}: {update}" for update in peer.updates(after=position) if _belongs_to_a_turn(update)]
        assert await peer.prompt(session_id, "Hello") == {"stopReason": "end_turn"}
        assert processes_with(mark) == []
    return CancelReport(cancels, wrong, slowest)


class EndReport(msgspec.Struct, frozen=True):
    ends: int
    codes: dict[int, int]
    left: list[str]
    """Processes that were there after the end of the agent."""
    slowest_s: float


async def ended_inputs(folder: Path, ends: int) -> EndReport:
    """Close the input of the agent in every state, and idle; look when it exits and what is left of it."""
    codes = Counter[int]()
    left: list[str] = []
    slowest = 0.0
    for number in range(ends):
        state = ("idle", *STATES)[number % (len(STATES) + 1)]
        home = folder / f"end-{number}"
        home.mkdir()
        mark = unique_mark()
        async with acp_process(home, SCENARIO.replace("MARK", mark)) as process, AcpPeer(process) as peer:
            session_id = await _opened(peer, home)
            if state != "idle":
                await peer.ask("session/prompt", peer.prompt_params(session_id, state))
                await _reached(peer, state, 0)
            children = _descendants(process.process.pid)
            began = time.monotonic()
            process.end_input()
            codes[await process.ended()] += 1
            slowest = max(slowest, time.monotonic() - began)
            left += [f"{state}: {line}" for line in await _left(children, mark)]
    return EndReport(ends, dict(codes), left, slowest)


class KillReport(msgspec.Struct, frozen=True):
    kills: int
    received: int
    """Updates that clients got before the kills."""
    lost: list[str]
    """What a client had got and the replay did not have."""
    ran_twice: int


async def killed_agents(folder: Path, kills: int, *, seed: int) -> KillReport:
    """Kill the agent in the middle of a prompt; the client comes back to another process by session/load."""
    chance = random.Random(seed)
    received, twice = 0, 0
    lost: list[str] = []
    for number in range(kills):
        home = folder / f"kill-{number}"
        home.mkdir()
        session_id, got = await _killed(home, chance.randrange(1, 80))
        received += len(got)
        async with acp_process(home, LONG_WORK) as process, AcpPeer(process) as peer:
            await peer.initialize()
            params = {"sessionId": session_id, "cwd": str(home / "project"), "mcpServers": []}
            loaded = await peer.answer_to(await peer.ask("session/load", params))
            assert "result" in loaded, loaded
            replayed = peer.updates(session_id, before=peer.position_of(loaded))
            lost += [f"kill {number}: {each}" for each in _missing(got, replayed)]
            await _settled(peer, session_id)
        ran = home / "project/ran.txt"
        twice += sum(times > 1 for times in Counter(ran.read_text().split() if ran.exists() else ()).values())
    return KillReport(kills, received, lost, twice)


async def _killed(home: Path, wanted: int) -> tuple[str, list[JSON]]:
    """A session and what its client got before its agent was killed, which is after so many updates."""
    async with acp_process(home, LONG_WORK) as process, AcpPeer(process) as peer:
        session_id = await _opened(peer, home)
        await peer.call("session/set_mode", {"sessionId": session_id, "modeId": "never_ask"})
        request_id = await peer.ask("session/prompt", peer.prompt_params(session_id, "Work."))
        await peer.until(lambda frame: len(peer.updates(session_id)) >= wanted or frame.get("id") == request_id)
        process.process.kill()
        await process.ended()
        await peer.until_gone()
        return session_id, peer.updates(session_id)


async def _opened(peer: AcpPeer, folder: Path) -> str:
    project = folder / "project"
    project.mkdir(exist_ok=True)

    async def permission(params: JSON) -> Any:
        if "note.txt" in str(params):
            await asyncio.Event().wait()
        return choosing("allow_once")(params)

    peer.answers["session/request_permission"] = permission
    await peer.initialize()
    return str((await peer.new_session(project))["sessionId"])


async def _reached(peer: AcpPeer, state: str, before: int) -> None:
    """Wait until a prompt is in this state; `before` counts the frames that came earlier."""

    def here(frame: JSON) -> bool:
        match state:
            case "talking":
                return "agent_message_chunk" in str(frame)
            case "running a command":
                return "in_progress" in str(frame)
            case "waiting for permission":
                return frame.get("method") == "session/request_permission"
            case _:
                return True

    if state != "asked":
        await peer.until(lambda frame: here(frame) and peer.position_of(frame) >= before)


def _belongs_to_a_turn(update: JSON) -> bool:
    kind: str = update["sessionUpdate"]
    return kind.endswith("_chunk") or kind.startswith("tool_call")


def _missing(got: list[JSON], replayed: list[JSON]) -> list[str]:
    """Texts and calls that a client had and the replay does not have."""
    said = {
        kind: (text_of(got, kind), text_of(replayed, kind)) for kind in ("agent_message_chunk", "agent_thought_chunk")
    }
    missing = [f"{kind}: had {had!r}, replayed {has!r}" for kind, (had, has) in said.items() if not has.startswith(had)]
    statuses = {update["toolCallId"]: update.get("status") for update in replayed if "toolCallId" in update}
    for update in (update for update in got if "toolCallId" in update):
        final = update.get("status") if update.get("status") in ("completed", "failed") else None
        if final not in (None, statuses.get(update["toolCallId"])) or update["toolCallId"] not in statuses:
            missing.append(str(update))
    return missing


async def _settled(peer: AcpPeer, session_id: str) -> None:
    """A run that was interrupted continues in the next process; a prompt is taken when it is over."""
    async with asyncio.timeout(60):
        while "error" in (answer := await peer.request("session/prompt", peer.prompt_params(session_id, "And?"))):
            assert answer["error"]["code"] == -32600, answer
            await asyncio.sleep(0.05)


def _descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path("/proc", each, "stat").read_text()
        except OSError:
            continue
        parents[int(each)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


async def _left(children: set[int], mark: str) -> list[str]:
    """Which of these are alive, and which carry the mark; those that just end get a moment."""
    for _ in range(20):
        alive = [f"process {pid}" for pid in children if _is_alive(pid)] + processes_with(mark)
        if not alive:
            return []
        await asyncio.sleep(0.05)
    return alive


def _is_alive(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
