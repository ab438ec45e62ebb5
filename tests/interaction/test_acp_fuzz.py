"""Mutated frames of ACP to either side: each request is answered with a documented code, nothing else is lost, and the
side that was sent them continues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.acp_fuzz import MutatedFrames
from support.acp_hostile_agent import MARK, HostileTransport, Tally
from support.acp_hostile_client import HostileClient
from support.acp_lab import AcpLab
from support.acp_peer import EVERYTHING, AcpPeer, acp_process
from support.machine import RecordMeasure
from support.profiles import FAULTS

from makai.core import session_events as ev
from makai.harness.acp.connection import MAX_MALFORMED

FRAMES = 10_000 if FAULTS else 300
PER_PROMPT = 50


class HostileLab(AcpLab):
    """Sessions whose agent sends mutated frames; it is started again when makai has ended it."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder)
        self.tally = Tally()
        self.tally.known += ["own", str(self.work), str(self.work / "a.txt"), "terminal-1"]
        self.processes: list[HostileTransport] = []
        self._frames = MutatedFrames("client", seed, lambda: self.tally.known).take(FRAMES)

    async def _start(self, argv: Sequence[str], env: dict[str, str], cwd: str) -> HostileTransport:  # type: ignore[override]
        self.processes.append(HostileTransport(self._frames, PER_PROMPT, self.tally))
        return self.processes[-1]


@pytest.mark.proof("E1")
@pytest.mark.req("ACP-INIT-002", "ACP-CLIENT-010")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_makai_survives_the_mutated_frames_of_an_agent(tmp_path: Path, record_measure: RecordMeasure) -> None:
    lab = HostileLab(tmp_path, seed=13)
    failed = 0
    terms = ev.SessionTerms(builtin_tools=True)
    async with lab.session(mode="never_ask", terms=terms) as (_, client):
        while lab.tally.sent < FRAMES:
            ended = await client.run("go on")
            if isinstance(ended, ev.RunFailed):
                failed += 1
                assert (ended.code, f"sent {MAX_MALFORMED} malformed messages" in ended.message) == (
                    "agent_failed",
                    True,
                )
        ended = await client.run("and now nothing odd")
        assert isinstance(ended, ev.RunFinished)
    said = "".join(event.text for event in client.events(ev.AssistantText))
    sent = [mark for process in lab.processes for mark in process.marks]
    heard = MARK.findall(said)
    assert len(set(heard)) == len(heard)
    if failed == 0:
        assert heard == sent
    assert set(heard) <= set(sent)
    assert (lab.tally.unanswered, lab.tally.wrong) == ([], [])
    assert len(lab.processes) == failed + 1
    answers = ", ".join(f"{kind} {count:,}" for kind, count in lab.tally.answers.most_common())
    record_measure(f"{FRAMES:,} mutated frames of an agent", "all requests answered", answers)


@pytest.mark.proof("E1")
@pytest.mark.req("ACP-INIT-002", "ACP-INIT-010", "ACP-SESS-010")
@pytest.mark.scaled
@pytest.mark.timeout(1800)
async def test_makai_survives_the_mutated_frames_of_an_editor(
    tmp_path: Path, project: Path, record_measure: RecordMeasure
) -> None:
    async with acp_process(tmp_path, "say: Good day.") as process:
        client = HostileClient(process, project, seed=17)
        await client.call("initialize", {"protocolVersion": 1, "clientCapabilities": EVERYTHING})
        made = await client.call("session/new", {"cwd": str(project), "mcpServers": []})
        client.known.append(made["sessionId"])
        await client.send_mutated(FRAMES)
        assert (client.unanswered, client.wrong) == ([], [])
        own = await client.call("session/new", {"cwd": str(project), "mcpServers": []})
        prompt = AcpPeer.prompt_params(own["sessionId"], "Hello")
        assert await client.call("session/prompt", prompt) == {"stopReason": "end_turn"}
        assert process.process.returncode is None
        process.end_input()
        assert await process.ended() == 0
        await client.close()
    assert "Traceback" not in process.said()
    answers = ", ".join(f"{kind} {count:,}" for kind, count in client.answers.most_common())
    record_measure(f"{FRAMES:,} mutated frames of an editor", "all requests answered", answers)
