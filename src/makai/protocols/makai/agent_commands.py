"""What the agent side of a connection asks of its shell.

Apart from `agent`, so that a server that only has to answer a `ping` loads nothing of agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from makai.protocols.makai.agent_payloads import AgentRequest, ToolResultMessage


class AskSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request about a session. It is answered by naming its `message_id` to `AgentScopes`."""

    session_id: str
    message_id: str
    request: AgentRequest


class AnswerTool(msgspec.Struct, frozen=True, kw_only=True):
    """The client carried out a tool; the call waited for this, and it is acked already."""

    session_id: str
    result: ToolResultMessage


AgentCommand: TypeAlias = AskSession | AnswerTool

AGENT_REQUESTS: Final = frozenset(
    {
        "agent_start",
        "agent_message",
        "agent_stop",
        "agent_status",
        "tool_list",
        "tool_result",
        "permission_response",
    }
)
"""The envelope types that belong to agents; `agent_payloads` has their payloads."""
