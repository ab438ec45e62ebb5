"""`config.toml`: the user's settings for every command; `docs/configuration.md` shows one. Pure; an error names the
line or key that is wrong, and unknown keys are refused: a misspelt setting must not be ignored. A project may set only
`[permissions]` and the settings of `core.settings` but `agent`, in its `.makai/config.toml`, once its folder is
trusted."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.secret import MASK
from makai.core.session_terms import SandboxLevel
from makai.core.settings import SettingsLayer, check_layer

NotifyKind: TypeAlias = Literal["bell", "desktop", "none"]
ConfigT = TypeVar("ConfigT", "Config", "ProjectConfig")


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
    needs_key: bool | None = None
    """None: a server with a `key_variable` or a `login` needs a key, another one does not."""
    login: LoginConfig | None = None

    @property
    def is_keyed(self) -> bool:
        if self.needs_key is not None:
            return self.needs_key or self.login is not None
        return bool(self.key_variable) or self.login is not None


class PermissionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rules about tool calls: `Bash(git log:*)`, `Read(src/**)`, `WebFetch(domain:example.com)`, `mcp__server__*`."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The longer way to write `sandbox = "read-only"`, in the user's own file."""

    level: SandboxLevel = "workspace-write"


class RetriesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long runs keep asking a provider."""

    max_seconds: Annotated[int, msgspec.Meta(ge=0, le=86_400)] | None = None
    """For one that limits the rate or is overloaded; 0: it is not asked again. None: ten minutes."""


STORE_VARIABLE: Final = "MAKAI_STORE_URL"
"""Wins over `[store] url`, and keeps a password out of the file."""


MAX_SHARDS: Final = 64

ShardName: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,32}$")]


def shard_variable(name: str) -> str:
    """The variable that wins over the address of a shard."""
    return f"MAKAI_STORE_SHARD_{name.replace('-', '_').upper()}_URL"


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where sessions are stored."""

    url: str = "sqlite"
    """`sqlite` is a file in MAKAI_HOME; `postgres://…` is a database that several machines can share."""
    shards: Annotated[dict[ShardName, str], msgspec.Meta(max_length=MAX_SHARDS)] = {}
    """Databases that hold the sessions when one is too small, by names that never change. `url` then holds everything
    else."""

    def __repr__(self) -> str:
        url = self.url if self.url == "sqlite" else MASK  # it may have a password
        return f"StoreConfig(url={url}{''.join(f', {name}={MASK}' for name in self.shards)})"


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """This machine as a node, when several share a store in PostgreSQL."""

    name: str = ""
    """Empty: the name of the host."""
    listen: str = ""
    """`host:port` on which other nodes connect."""
    advertise: str = ""
    """`host:port` that other nodes connect to; empty: that of `listen`."""
    labels: tuple[str, ...] = ()
    """Which folders this machine has; nodes with a label in common have the same ones. Empty: the name."""
    key_file: str = ""
    """The file with the cluster's key; empty: the variable MAKAI_CLUSTER_KEY holds it."""
    lease_seconds: Annotated[float, msgspec.Meta(ge=1, le=300)] = 6
    """How long other nodes wait for this one before they take its sessions over."""


class ObservabilityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a server tells the tools of its operator. Only the user's own file may set it."""

    otlp_endpoint: str = ""
    """The address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`; empty: traces are sent only when
    OTEL_EXPORTER_OTLP_ENDPOINT is set."""
    service_name: str = "makai"
    capture_content: bool = False
    """Whether traces hold what people, models and tools said."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An agent that speaks the Agent Client Protocol, for `makai -a NAME`. Only the user's own file may name one."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """The program and its arguments."""
    title: str = ""
    env: tuple[str, ...] = ()
    """The variables of yours that it may see, beside those that every program needs."""
    auth: dict[str, str] = {}
    """Variable -> the login method of the agent to use when that variable is set."""
    reports_cost: bool = False
    """Whether it says what it costs in US dollars while it works; a budget is refused otherwise."""
    login: str = ""
    """What to do when it wants a login."""


class Config(SettingsLayer, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    sandbox: SandboxLevel | SandboxConfig | None = None  # type: ignore[assignment]
    providers: dict[str, ProviderConfig] = {}
    agents: dict[str, AgentConfig] = {}
    permissions: PermissionsConfig = PermissionsConfig()
    store: StoreConfig = StoreConfig()
    cluster: ClusterConfig = ClusterConfig()
    retries: RetriesConfig = RetriesConfig()
    observability: ObservabilityConfig = ObservabilityConfig()
    notify: NotifyKind = "bell"
    """How the terminal calls you back when it needs an answer or a long run ends, while you look elsewhere."""
    status_line: str = ""
    """What stands below the prompt, such as "{model} · {branch} · {cost}"; empty is the usual line."""

    @property
    def settings(self) -> SettingsLayer:
        level = self.sandbox.level if isinstance(self.sandbox, SandboxConfig) else self.sandbox
        return _layer_of(self, level)


class ProjectConfig(SettingsLayer, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a trusted project may settle for sessions in it."""

    permissions: PermissionsConfig = PermissionsConfig()

    @property
    def settings(self) -> SettingsLayer:
        return _layer_of(self, self.sandbox)


def _layer_of(config: SettingsLayer, sandbox: SandboxLevel | None) -> SettingsLayer:
    return SettingsLayer(
        agent=config.agent,
        model=config.model,
        mode=config.mode,
        effort=config.effort,
        theme=config.theme,
        sandbox=sandbox,
        aliases=config.aliases,
    )


def parse_config(text: str, where: str = "config.toml") -> Config:
    return _parsed(text, where, Config)


def parse_project_config(text: str, where: str = ".makai/config.toml") -> ProjectConfig:
    config = _parsed(text, where, ProjectConfig)
    if config.agent is not None:
        hint = "An agent is a program, so only your own file names one: `makai config set agent NAME`."
        raise InvalidRequest(f"{place_of(text, ['agent'], where)}: a project cannot choose the agent.", hint=hint)
    return config


def _parsed(text: str, where: str, shape: type[ConfigT]) -> ConfigT:
    import tomllib

    text = text.removeprefix("\ufeff")  # some editors mark UTF-8
    try:
        config = msgspec.convert(tomllib.loads(text), shape)
    except tomllib.TOMLDecodeError as error:
        hint = 'Correct the line, for example with `makai config edit`. Texts stand in quotes: model = "sonnet".'
        raise InvalidRequest(f"{where} is not valid TOML: {error}", hint=hint) from error
    except msgspec.ValidationError as error:
        raise _mistake(text, where, str(error), shape) from error
    check_layer(config.settings, where)
    return config


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")


def _mistake(text: str, where: str, error: str, shape: type[ConfigT]) -> InvalidRequest:
    """The error of a value with its line, and with the values or keys that are possible."""
    from makai.core.config_forms import expected_form  # only an error pays for this import

    unknown, path = _UNKNOWN.match(error), _PATH.search(error)
    keys = [key for key in _named_entry(path[1] if path else "", text, shape).split(".") if key]
    if unknown:
        keys.append(unknown[1])
    hint = "docs/configuration.md and schema/config.json say what may be written there."
    if (form := expected_form(keys, shape)) and not unknown:
        hint = f"{'.'.join(keys)} {form}"
    elif unknown and len(keys) == 1:
        hint = f"{_did_you_mean(keys[0], shape.__struct_fields__)}{hint}"
    return InvalidRequest(f"{place_of(text, keys, where)}: {error}", hint=hint)


def _named_entry(path: str, text: str, shape: type[ConfigT]) -> str:
    """The path with the name of the wrong entry, which msgspec writes as `[...]`, as in `aliases[...]`."""
    import tomllib

    table, entry, rest = path.partition("[...]")
    entries = tomllib.loads(text).get(table) if entry else None
    for name, value in entries.items() if isinstance(entries, dict) else ():
        try:
            msgspec.convert({table: {name: value}}, shape)
        except msgspec.ValidationError:
            return re.sub(r"\[[^\]]*\]", "", f"{table}.{name}{rest}")
    return re.sub(r"\[[^\]]*\]", "", path)


def _did_you_mean(name: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # only an error pays for this import

    close = get_close_matches(name, known, n=2)
    return f"Did you mean {' or '.join(close)}? " if close else ""


def place_of(text: str, keys: list[str], where: str) -> str:
    """The file and, if it is found, the line on which a key is written."""
    line = line_of(text, keys)
    return f"{where}, line {line}" if line else where


def line_of(text: str, keys: list[str]) -> int | None:
    """The line on which a key is written: the last of its path that is found. None when none is."""
    found, table = None, ""
    wanted = ".".join(keys)
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]*?)\s*\]", line):
            table = header[1].replace('"', "").replace("'", "") + "."
            written = table[:-1]
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            written = table + key[1].replace('"', "").replace("'", "")
        else:
            continue
        if written == wanted:
            return number
        if found is None and (wanted.startswith(f"{written}.") or written.startswith(f"{wanted}.")):
            found = number
    return found
