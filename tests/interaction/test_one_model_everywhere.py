"""One way from a reference to a model and from a catalog to a list: the provider path, the agent path and the lists of
both scopes agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.agents import AgentPeer
from support.peers import TRANSPORTS, Peer, open_peer
from support.sdk import sessions_of
from support.wire import JSON, ask, envelope, new_id

from makai.catalog import models as catalog
from makai.core import model as core
from makai.core.model import Model
from makai.protocols.makai import agent, agent_payloads, payloads, server
from makai.protocols.makai.agent_payloads import AGENT_SERVER_PAYLOADS
from makai.protocols.makai.payloads import SERVER_PAYLOADS
from makai.providers.runtime import ModelRuntime
from makai.server.makai_connection import MakaiServer
from makai.transports.memory import memory_pair

ECHO = "scripted/scripted@echo"


@pytest.fixture(params=TRANSPORTS)
async def peer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Peer]:
    async with open_peer(str(request.param), {"MAKAI_HOME": str(tmp_path / "home")}) as opened:
        yield opened


async def models_asked(peer: Peer, ref: str) -> list[tuple[str, str, str]]:
    """Who answers to this reference on each path: a stream, a whole answer, a run."""
    said = {"messages": [{"role": "user", "content": "Hi"}]}
    asked = []
    for kind in ("stream_request", "complete_request"):
        result = (await peer.ask(ask(kind, payload={"model_ref": ref, "context": said})))[-1]
        assert result["type"] == "result", result
        asked.append(tuple(result["payload"][name] for name in ("provider", "api", "model")))
    agent = AgentPeer(peer)
    await agent.start(model_ref=ref)
    result = (await agent.run("Hi"))[-1]
    assert result["type"] == "agent_result", result
    return [*asked, tuple(result["payload"][name] for name in ("provider_id", "api", "model_id"))]


@pytest.mark.req("MK-MODEL-024")
async def test_one_reference_works_unchanged_on_every_path(peer: Peer) -> None:
    frames = await peer.ask(envelope("models_request", {"provider_id": "scripted"}), "models_response")
    listed = [(model["model_ref"], model["model_id"]) for model in frames[-1]["payload"]["models"]]
    assert ECHO in dict(listed)
    for ref, model_id in listed:
        if model_id in ("echo", "demo"):  # the third needs a scenario
            assert await models_asked(peer, ref) == [("scripted", "scripted", model_id)] * 3


@pytest.mark.req("MK-MODEL-025")
async def test_replacing_the_resolver_replaces_the_model_of_every_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ModelRuntime({"MAKAI_HOME": str(tmp_path / "home")}) as runtime, sessions_of(runtime) as sessions:
        resolve = runtime.resolver.resolve
        seen: list[str] = []

        def fake(text: str) -> Model:
            seen.append(text)
            return resolve("scripted/scripted@demo")

        monkeypatch.setattr(runtime.resolver, "resolve", fake)
        ours, theirs = memory_pair()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(MakaiServer(runtime, sessions=sessions.get).serve(theirs))
            assert await models_asked(Peer(ours), "any/scripted@thing") == [("scripted", "scripted", "demo")] * 3
            await ours.close()
        assert len(seen) >= 3


@pytest.mark.req("MK-MODEL-026")
def test_both_protocols_list_models_with_the_same_classes() -> None:
    """The agent side has no types of its own for them: what it sends is what the provider side sends."""
    (listed,) = SERVER_PAYLOADS["models_response"]
    assert listed is catalog.ModelsResponse
    assert "models_response" not in AGENT_SERVER_PAYLOADS
    classes: dict[str, type] = {
        "ModelsResponse": catalog.ModelsResponse,
        "ModelDescriptor": catalog.ModelDescriptor,
        "ModelCapability": core.ModelCapability,
    }
    for module in (payloads, agent_payloads, agent, server):
        for name in classes.keys() & vars(module).keys():
            assert vars(module)[name] is classes[name]
    fields = {field.name: field.type for field in msgspec.structs.fields(catalog.ModelsResponse)}
    assert fields["models"] == tuple[catalog.ModelDescriptor, ...]
    kinds = {field.name: field.type for field in msgspec.structs.fields(catalog.ModelDescriptor)}
    assert kinds["capabilities"] == tuple[core.ModelCapability, ...]


@pytest.mark.req("MK-MODEL-027", "MK-MODEL-003")
async def test_both_scopes_answer_with_the_same_typed_list(peer: Peer) -> None:
    filters: list[JSON] = [{}, {"provider_id": "scripted"}, {"model_id": "echo"}, {"include_login_required": False}]
    session: Any = {"stream_id": None, "session_id": new_id()}
    for asked in filters:
        payloads_heard = []
        for scope in ({}, {**session, "session_id": new_id()}):
            request = envelope("models_request", asked, **scope)
            ack, response = await peer.ask(request, "models_response")
            assert (ack["type"], response["in_reply_to"]) == ("ack", request["message_id"])
            payloads_heard.append(response["payload"])
        provider, agent = payloads_heard
        assert provider.keys() == agent.keys() == {"models", "fetched_at_ms", "cache_max_age_ms"}
        assert {**provider, "fetched_at_ms": 0} == {**agent, "fetched_at_ms": 0}
        assert all(isinstance(listed["fetched_at_ms"], int) for listed in payloads_heard)
        assert {model["source"] for model in provider["models"]} <= {"dynamic", "static_fallback"}
        assert provider["models"]
