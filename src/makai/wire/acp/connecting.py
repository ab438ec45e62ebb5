"""Messages before the first session: versions, capabilities, logins."""

from __future__ import annotations

from typing import Final

from makai.wire.acp.common import Empty, Implementation, Wire

PROTOCOL_VERSION: Final = 1
TERMINAL_SANDBOX: Final = "makai.terminal_sandbox"
"""In `_meta` of a client's capabilities: the sandbox of makai in which the client's terminals run every command."""


class FileSystemCapabilities(Wire, frozen=True, kw_only=True):
    read_text_file: bool = False
    write_text_file: bool = False


class BooleanOptions(Wire, frozen=True, kw_only=True):
    boolean: Empty | None = None


class ClientSessionCapabilities(Wire, frozen=True, kw_only=True):
    compaction: Empty | None = None
    config_options: BooleanOptions | None = None
    notices: Empty | None = None


class ClientAuthCapabilities(Wire, frozen=True, kw_only=True):
    terminal: bool = False


class ElicitationCapabilities(Wire, frozen=True, kw_only=True):
    form: Empty | None = None
    url: Empty | None = None


class AcpClientCapabilities(Wire, frozen=True, kw_only=True):
    """What the agent may ask of its client. What is left out is not offered (ACP-INIT-005)."""

    fs: FileSystemCapabilities = FileSystemCapabilities()
    terminal: bool = False
    session: ClientSessionCapabilities | None = None
    auth: ClientAuthCapabilities = ClientAuthCapabilities()
    elicitation: ElicitationCapabilities | None = None


class InitializeRequest(Wire, frozen=True, kw_only=True):
    protocol_version: int
    client_capabilities: AcpClientCapabilities = AcpClientCapabilities()
    client_info: Implementation | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.protocol_version <= 65535:
            raise ValueError("`protocolVersion` must be from 0 to 65535")


class PromptCapabilities(Wire, frozen=True, kw_only=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(Wire, frozen=True, kw_only=True):
    http: bool = False
    sse: bool = False


class SessionCapabilities(Wire, frozen=True, kw_only=True):
    list: Empty | None = None
    delete: Empty | None = None
    additional_directories: Empty | None = None
    resume: Empty | None = None
    close: Empty | None = None
    fork: Empty | None = None
    """Unstable."""


class AgentAuthCapabilities(Wire, frozen=True, kw_only=True):
    logout: Empty | None = None


class AgentCapabilities(Wire, frozen=True, kw_only=True):
    load_session: bool = False
    prompt_capabilities: PromptCapabilities = PromptCapabilities()
    mcp_capabilities: McpCapabilities = McpCapabilities()
    session_capabilities: SessionCapabilities = SessionCapabilities()
    auth: AgentAuthCapabilities = AgentAuthCapabilities()


class AuthMethod(Wire, frozen=True, kw_only=True):
    """A login. One of type "terminal" is done by running the agent's program with `args` in a terminal; any other by
    `authenticate`."""

    id: str
    name: str
    description: str | None = None
    type: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class InitializeResponse(Wire, frozen=True, kw_only=True):
    protocol_version: int
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    auth_methods: tuple[AuthMethod, ...] = ()
    agent_info: Implementation | None = None


class AuthenticateRequest(Wire, frozen=True, kw_only=True):
    method_id: str


class LogoutRequest(Wire, frozen=True, kw_only=True):
    pass
