"""Reaches an agent by the protocol that it speaks. A driver is imported when it is used first.

Drivers import `peer`, never this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from makai.harness.acp.connection import AgentConnection
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.peer import AgentLaunch, AgentPeer, RpcClient, StartTransport


async def connect(
    spec: AgentSpec, launch: AgentLaunch, environ: Mapping[str, str], client: RpcClient, start: StartTransport
) -> AgentPeer:
    env = spec.environment(environ)
    argv = spec.argv(launch.cwd, environ)
    match spec.protocol:
        case "acp":
            transport = await start(argv, env, launch.cwd)
            client.on_process(transport)
            return AgentConnection(spec.title, transport, client, client.room)
        case "antigravity":
            from makai.harness.antigravity.peer import AntigravityPeer

            return AntigravityPeer(spec, launch, argv, env, client)
        case "codex-app-server":
            from makai.harness.codex.peer import start_codex

            return await start_codex(spec, launch, argv, env, client, start)
        case "stub":
            from makai.harness.acp.stub_agent import StubAgent

            return StubAgent(spec.title, launch, env, client)
        case "claude-code":
            from makai.harness.claude_code.peer import ClaudePeer

            return ClaudePeer(spec, launch, argv, env, client, start)
        case "amp":
            from makai.harness.amp.peer import AmpPeer

            return AmpPeer(spec, launch, argv, env, client, start)
