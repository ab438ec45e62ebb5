"""Which settings of a session or a run an external agent does not take, by its `AgentSpec`. Pure."""

from __future__ import annotations

from typing import Final

from makai.core import session_events as ev
from makai.core.request import StreamOptions
from makai.harness.acp.known_agents import AgentSpec

_OPTIONS: Final = ("temperature", "top_p", "max_tokens", "stop", "reasoning_effort", "json_schema")
_DEFAULTS: Final = StreamOptions()


def ignored_of_run(terms: ev.RunTerms, spec: AgentSpec) -> list[str]:
    given = [name for name in _OPTIONS if getattr(terms.options, name) != getattr(_DEFAULTS, name)]
    given += [name for name in ("max_turns", "max_output_tokens") if getattr(terms, name) is not None]
    given += [name for name in ("allow", "deny") if getattr(terms, name) and not spec.obeys_rules]
    return [name for name in given if name not in _taken(spec)]


def ignored_of_session(terms: ev.SessionTerms, spec: AgentSpec) -> list[str]:
    """The default sandbox is not named: no one chose it, and no external agent is confined by makai."""
    given = {
        "reasoning_effort": terms.reasoning_effort is not None,
        "system_append": bool(terms.system_append),
        "agent_options": terms.agent_options_json not in ("", "{}"),
        "sandbox": terms.sandbox == "read-only",
        "mcp_servers": bool(terms.mcp_servers),
    }
    return [name for name, is_given in given.items() if is_given and name not in _taken(spec)]


def _taken(spec: AgentSpec) -> set[str]:
    names = {"effort": "reasoning_effort", "options_json": "agent_options"}
    return {names.get(name, name) for name in spec.takes} | ({"mcp_servers"} if spec.uses_servers else set())
