"""Logins as envelopes over all five transports: what a stranger's client sees of the fixture's login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.peers import TRANSPORTS, Peer, open_peer, open_server
from support.wire import JSON, envelope

PROVIDER = "test-fixture"


@pytest.fixture(params=TRANSPORTS)
async def peer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Peer]:
    async with open_peer(str(request.param), {"MAKAI_HOME": str(tmp_path), "MAKAI_TEST_LOGIN": "1"}) as opened:
        yield opened


class Login:
    def __init__(self, peer: Peer, provider_id: str = PROVIDER) -> None:
        self._peer = peer
        self.start = envelope("auth_login_start", {"provider_id": provider_id})
        self.flow_id = str(self.start["stream_id"])
        self._whose = {"flow_id": self.flow_id, "provider_id": provider_id}
        self._sent = 1

    async def begin(self, until: str) -> list[tuple[str, Any]]:
        return self._own(await self._peer.ask(self.start, until))

    async def send(self, kind: str, payload: JSON, *until: str) -> list[tuple[str, Any]]:
        """A further message of the flow; what the flow says up to a frame of one of these types."""
        self._sent += 1
        message = envelope(kind, {"flow_id": self.flow_id, **payload}, stream_id=self.flow_id, sequence=self._sent)
        return self._own(await self._peer.ask(message, *until))

    async def answer(self, prompt_id: str, text: str, *until: str) -> list[tuple[str, Any]]:
        return await self.send("auth_prompt_response", {"prompt_id": prompt_id, "answer": text}, *until)

    def prompt(self, number: int = 1) -> tuple[str, Any]:
        asked = {"prompt_id": f"prompt-{number}", "message": 'Type "ok" to log in:', "allow_empty": False}
        return "auth_event", {"prompt": self._whose | asked}

    def success(self) -> list[tuple[str, Any]]:
        return [("auth_event", {"success": self._whose}), self.result("success")]

    def error(self, code: str, message: str) -> tuple[str, Any]:
        return "auth_event", {"error": self._whose | {"message": message, "code": code}}

    def result(self, status: str) -> tuple[str, Any]:
        return "auth_login_result", self._whose | {"status": status}

    def _own(self, frames: list[JSON]) -> list[tuple[str, Any]]:
        """Type and payload; acks as such."""
        assert {frame["stream_id"] for frame in frames} == {self.flow_id}
        return [(frame["type"], None if frame["type"] == "ack" else frame["payload"]) for frame in frames]


ACK = ("ack", None)


async def status(peer: Peer) -> JSON:
    frames = await peer.ask(envelope("auth_providers_request"), "auth_providers_response")
    assert [(frame["type"], frame["sequence"]) for frame in frames] == [("ack", 1), ("auth_providers_response", 2)]
    [found] = [one for one in frames[-1]["payload"]["providers"] if one["id"] == PROVIDER]
    assert isinstance(found, dict)
    return found


def listed(status: str, **more: str) -> JSON:
    return {"id": PROVIDER, "name": "Test fixture", "auth_status": status, **more}


@pytest.mark.req(
    "MK-AUTH-001", "MK-AUTH-002", "MK-AUTH-003", "MK-AUTH-008", "MK-AUTH-009", "MK-AUTH-010", "MK-AUTH-021"
)
async def test_a_prompt_holds_the_login_until_its_own_answer_comes(peer: Peer) -> None:
    login = Login(peer)
    assert await status(peer) == listed("login_required")
    assert await login.begin("auth_event") == [ACK, login.prompt()]

    assert await login.answer("prompt-9", "ok", "ack") == [ACK]
    # a query in between is answered, and nothing of the login comes before its answer
    assert await status(peer) == listed("login_in_progress")

    assert await login.answer("prompt-1", "ok", "auth_login_result") == [ACK, *login.success()]
    assert await status(peer) == listed("authenticated")


@pytest.mark.req("MK-AUTH-011", "MK-AUTH-014")
async def test_a_login_can_be_cancelled_at_its_prompt_and_what_comes_later_is_only_acked(peer: Peer) -> None:
    login, other = Login(peer), Login(peer)
    await other.begin("auth_event")  # keeps a connection open that ends with its requests
    await login.begin("auth_event")

    cancelled = login.error("cancelled", "The login was cancelled.")
    assert await login.send("auth_cancel", {}, "auth_login_result") == [ACK, cancelled, login.result("cancelled")]
    assert await login.answer("prompt-1", "ok", "ack", "nack") == [ACK]
    assert await login.send("auth_cancel", {}, "ack", "nack") == [ACK]
    assert await status(peer) == listed("login_in_progress")
    assert await other.answer("prompt-1", "ok", "auth_login_result") == [ACK, *other.success()]


@pytest.mark.req("MK-AUTH-011")
async def test_a_cancel_right_behind_the_start_is_not_lost(peer: Peer) -> None:
    for _ in range(20):
        login = Login(peer)
        cancel = envelope("auth_cancel", {"flow_id": login.flow_id}, stream_id=login.flow_id, sequence=2)
        await peer.say(login.start, cancel)
        frames = await peer.hear_until("auth_login_result")
        assert frames[-1]["payload"] == login.result("cancelled")[1]
        assert frames[-2]["payload"] == login.error("cancelled", "The login was cancelled.")[1]


@pytest.mark.req("MK-AUTH-012", "MK-AUTH-013", "MK-AUTH-021")
async def test_a_login_that_fails_says_why_and_then_that_it_failed(peer: Peer) -> None:
    login, unknown = Login(peer), Login(peer, "unknown")
    await login.begin("auth_event")
    why = 'The answer was not "ok". Try again: `makai auth login test-fixture`'
    failed = [ACK, login.error("auth_required", why), login.result("failed")]
    assert await login.answer("prompt-1", "no", "auth_login_result") == failed
    assert await status(peer) == listed("failed", last_error=why)

    types = [kind for kind, _ in await unknown.begin("auth_login_result")]
    assert types == ["ack", "auth_event", "auth_login_result"]


@pytest.mark.req("MK-AUTH-009")
async def test_an_empty_answer_is_asked_again_and_two_logins_keep_their_prompts_apart(peer: Peer) -> None:
    first, second = Login(peer), Login(peer)
    await first.begin("auth_event")
    await second.begin("auth_event")

    assert await first.answer("prompt-1", "  ", "auth_event") == [ACK, first.prompt(2)]
    assert await second.answer("prompt-1", "ok", "auth_login_result") == [ACK, *second.success()]
    assert await first.answer("prompt-2", "ok", "auth_login_result") == [ACK, *first.success()]


@pytest.mark.req("MK-TRANS-005")
@pytest.mark.parametrize("transport", ["memory", "websocket", "sse", "grpc"])
async def test_a_connection_that_is_dropped_takes_its_login_with_it(transport: str, tmp_path: Path) -> None:
    async with open_server(transport, {"MAKAI_HOME": str(tmp_path), "MAKAI_TEST_LOGIN": "1"}) as connect:
        leaving, staying = await connect(), await connect()
        login = Login(leaving)
        await login.begin("auth_event")
        assert await status(staying) == listed("login_in_progress")
        await leaving.channel.close()
        async with asyncio.timeout(20):
            while await status(staying) == listed("login_in_progress"):
                pass
        assert await status(staying) == listed("login_required")
