"""The methods of the protocol and the types of their parameters, for both sides (ACP-INIT-003)."""

from __future__ import annotations

from typing import Final

from makai.wire.acp import client_calls, connecting, sessions, updates
from makai.wire.acp.common import Wire

AGENT_REQUESTS: Final[dict[str, type[Wire]]] = {
    "initialize": connecting.InitializeRequest,
    "authenticate": connecting.AuthenticateRequest,
    "logout": connecting.LogoutRequest,
    "session/new": sessions.NewSessionRequest,
    "session/load": sessions.LoadSessionRequest,
    "session/resume": sessions.ResumeSessionRequest,
    "session/list": sessions.ListSessionsRequest,
    "session/close": sessions.SessionRequest,
    "session/delete": sessions.SessionRequest,
    "session/set_mode": sessions.SetModeRequest,
    "session/set_model": sessions.SetModelRequest,
    "session/set_config_option": sessions.SetConfigOptionRequest,
    "session/prompt": sessions.PromptRequest,
    "_session/steering": sessions.SteeringRequest,
}
UNSTABLE_AGENT_REQUESTS: Final[dict[str, type[Wire]]] = {"session/fork": sessions.ForkSessionRequest}
AGENT_NOTIFICATIONS: Final[dict[str, type[Wire]]] = {"session/cancel": sessions.SessionRequest}

CLIENT_REQUESTS: Final[dict[str, type[Wire]]] = {
    "session/request_permission": client_calls.RequestPermissionRequest,
    "fs/read_text_file": client_calls.ReadTextFileRequest,
    "fs/write_text_file": client_calls.WriteTextFileRequest,
    "terminal/create": client_calls.CreateTerminalRequest,
    "terminal/output": client_calls.TerminalRequest,
    "terminal/wait_for_exit": client_calls.TerminalRequest,
    "terminal/kill": client_calls.TerminalRequest,
    "terminal/release": client_calls.TerminalRequest,
    "elicitation/create": client_calls.CreateElicitationRequest,
}
CLIENT_NOTIFICATIONS: Final[dict[str, type[Wire]]] = {
    "session/update": updates.ReceivedUpdate,
    "elicitation/complete": client_calls.CompleteElicitation,
}
