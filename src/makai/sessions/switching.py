"""Hands a session to another agent: what it takes over, and what is dropped, in words for people. Pure."""

from __future__ import annotations

import msgspec

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.harness.base import SelectiveHarness, SessionHarness
from makai.harness.registry import NATIVE
from makai.sessions.commands import SetHarness
from makai.sessions.state import SessionState


def switched(state: SessionState, wanted: SetHarness, harness: SessionHarness) -> SetHarness:
    """The command with the terms that fit the new agent, `harness`. Agents with instructions and tools of their own
    (`SelectiveHarness`) take neither from a client. `InvalidRequest` when the new agent could not run at all."""
    terms, dropped, not_taken = state.terms, list[str](), frozenset[str]()
    has_own_prompt = isinstance(harness, SelectiveHarness)
    if isinstance(harness, SelectiveHarness):
        # The default sandbox, which no one chose, did hold for makai's own tools.
        held = state.harness == NATIVE and terms.builtin_tools and terms.sandbox == "workspace-write"
        not_taken = frozenset(harness.not_taken(msgspec.structs.replace(terms, sandbox="read-only") if held else terms))
    if "max_usd" in not_taken:
        raise InvalidRequest(
            f"{wanted.harness} does not say what it costs: the budget of {terms.max_usd:g} USD cannot be kept.",
            hint="Remove the budget first (/budget none).",
        )
    if has_own_prompt and terms.system is not None:
        dropped.append("the system prompt of the session: the agent has its own")
        terms = msgspec.structs.replace(terms, system=None)
    if has_own_prompt and (names := [*(tool.name for tool in terms.tools), *terms.tool_servers]):
        dropped.append(f"tools of a client: {', '.join(names)}")
        terms = msgspec.structs.replace(terms, tools=(), tool_servers=())
    if terms.agent_options_json not in ("", "{}"):
        dropped.append("settings that only the agent before knows")
    # Neither settings nor sessions of one agent mean anything to another.
    terms = msgspec.structs.replace(terms, agent_options_json="", agent_session_id="")
    dropped += _not_taken(terms, not_taken)
    if state.agent is not None:
        dropped.append(f"what {state.agent.agent or state.harness} remembers beside the transcript")
    if state.agent_mode:
        dropped.append(f"the agent's mode {state.agent_mode}")
    capabilities = harness.capabilities
    if state.model_ref and state.model_ref != wanted.model_ref and not capabilities.needs_model:
        dropped.append(f"the model {state.model_ref}: the agent uses its own, or the one you choose")
    if has_own_prompt and state.grants:
        dropped.append("permissions for this session: the agent asks by its own rules")
    for kind, had, has in (
        ("pictures", state.capabilities.images, capabilities.images),
        ("audio", state.capabilities.audio, capabilities.audio),
        ("compaction by makai", state.capabilities.compact, capabilities.compact),
        ("continuing a run after a restart", state.capabilities.resume, capabilities.resume),
    ):
        if had and not has:
            dropped.append(kind)
    return msgspec.structs.replace(wanted, capabilities=capabilities, terms=terms, dropped=tuple(dropped))


def _not_taken(terms: ev.SessionTerms, names: frozenset[str]) -> list[str]:
    """Settings that stay in the terms, for an agent that takes them."""
    servers = ", ".join(server.name for server in terms.mcp_servers)
    words = {
        "system_append": "instructions that were added to the agent's own",
        "reasoning_effort": f"the reasoning effort {terms.reasoning_effort}",
        "mcp_servers": f"MCP servers: {servers}",
        "sandbox": f"the sandbox {terms.sandbox}: makai does not confine the agent",
    }
    return [text for name, text in words.items() if name in names]
