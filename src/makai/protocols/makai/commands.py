"""What a server connection asks of its shell, which answers by calling the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from makai.catalog.models import ModelsRequest
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.protocols.makai.auth import AuthCommand
from makai.protocols.makai.envelope import Scope

if TYPE_CHECKING:  # a server that only answers a `ping` loads nothing of agents
    from makai.protocols.makai.agent_payloads import AgentRequest, ToolResultMessage
    from makai.protocols.makai.tool_payloads import ExecutionMessage, ToolRegister


class OpenStream(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a model. Answer with `accept` or `refuse`, then `event` until the terminal one."""

    stream_id: str
    model: str | Model
    context: Context
    options: StreamOptions


class CancelStream(msgspec.Struct, frozen=True):
    """The stream was aborted: cancel its upstream request at once. Nothing more will be sent for it."""

    stream_id: str


class ListModels(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with `models` or `refuse`."""

    scope: Scope
    request: ModelsRequest


class EndConnection(msgspec.Struct, frozen=True):
    """The client said goodbye: cancel its streams and close."""


class AskSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request about a session. It is answered by naming its `message_id` to `AgentScopes`."""

    session_id: str
    message_id: str
    request: AgentRequest


class AnswerTool(msgspec.Struct, frozen=True, kw_only=True):
    """The client carried out a tool; the call waited for this, and it is acked already."""

    session_id: str
    result: ToolResultMessage


class RegisterTools(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with `ToolServerScopes.registered` or `refuse`."""

    server_id: str
    message_id: str
    request: ToolRegister


class UnregisterTools(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with `ToolServerScopes.unregistered`."""

    server_id: str
    message_id: str


class TakeExecution(msgspec.Struct, frozen=True, kw_only=True):
    """The client said something about an execution that waits for it; it is acked already."""

    server_id: str
    said: ExecutionMessage


AgentCommand: TypeAlias = AskSession | AnswerTool
ToolServerCommand: TypeAlias = RegisterTools | UnregisterTools | TakeExecution
StreamCommand: TypeAlias = OpenStream | CancelStream | ListModels
Command: TypeAlias = StreamCommand | EndConnection | AuthCommand | AgentCommand | ToolServerCommand
