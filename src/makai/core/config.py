"""`config.toml`: the user's settings for every command; `docs/configuration.md` shows one. Pure; an error names the
line or key that is wrong, and unknown keys are refused: a misspelt setting must not be ignored. A project may set only
`[permissions]`, in its `.makai/config.toml` and once its folder is trusted."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.session_events import SandboxLevel

ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)


class LoginConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How to log in at an OAuth 2 or OpenID Connect server: its issuer, or its endpoints one by one."""

    client_id: str
    issuer: str | None = None
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    client_secret: str | None = None
    """Only for clients that were registered with one; public clients have none."""
    scopes: tuple[str, ...] = ()
    flow: Literal["authorization_code", "device_code"] = "authorization_code"
    redirect_port: int = 0
    """0 is any free port; some servers want the registered one."""
    send_as: str = "Authorization"
    """The header that carries the token: `Authorization` (as a bearer token), or another name for the bare token."""


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A provider of the user's own: a company gateway, a self-hosted server."""

    base_url: str
    api: str = "openai-completions"
    name: str = ""
    default_model: str = ""
    models: tuple[str, ...] = ()
    """Model ids to list when the server has no listing of its own."""
    key_variable: str = ""
    """The environment variable that holds its API key."""
    needs_key: bool = True
    login: LoginConfig | None = None


class PermissionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rules about tool calls: `Bash(git log:*)`, `Read(src/**)`, `WebFetch(domain:example.com)`, `mcp__server__*`."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What commands of new sessions can do. Only the user's own file may say so: a project could widen it."""

    level: SandboxLevel = "workspace-write"


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where sessions are stored."""

    url: str = "sqlite"
    """`sqlite` is a file in MAKAI_HOME, the only store of this version."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    providers: dict[str, ProviderConfig] = {}
    permissions: PermissionsConfig = PermissionsConfig()
    sandbox: SandboxConfig = SandboxConfig()
    store: StoreConfig = StoreConfig()


class ProjectConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a trusted project may settle for sessions in it."""

    permissions: PermissionsConfig = PermissionsConfig()


def parse_config(text: str, where: str = "config.toml") -> Config:
    return _parsed(text, where, Config)


def parse_project_config(text: str, where: str = ".makai/config.toml") -> ProjectConfig:
    return _parsed(text, where, ProjectConfig)


def _parsed(text: str, where: str, shape: type[ConfigT]) -> ConfigT:
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(text), shape)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{where} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise InvalidRequest(
            f"{where}: {error}", hint="See schema/config.json for what may be written there."
        ) from error
