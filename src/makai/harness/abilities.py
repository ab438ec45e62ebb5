"""What an agent can and cannot do, in words for a person who picks one. Read from the declarations of harnesses."""

from __future__ import annotations

import msgspec

from makai.core.errors import NoProvider
from makai.harness.manifests import harness_declaration


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    can: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()


def abilities(harness: str) -> Abilities:
    """Of a harness by its name or id; nothing is known of other agents before they have started."""
    try:
        declared = harness_declaration(harness)
    except NoProvider:
        return Abilities()
    flags = declared.capabilities
    known = (
        ("find its session again after a restart", flags.supports_session_resume),
        ("take messages while it works", flags.supports_message_injection),
        ("ask before it acts", flags.needs_permission_config),
        ("use your MCP servers", flags.accepts_mcp_server_spec),
        ("take a thinking level", flags.supports_reasoning_effort),
        ("show its sub-agents", flags.emits_subagent_events),
        ("promise answers of a JSON Schema", declared.native_json_mode),
    )
    return Abilities(
        can=tuple(words for words, has in known if has), cannot=tuple(words for words, has in known if not has)
    )
