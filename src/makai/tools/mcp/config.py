"""Which MCP servers there are (`mcpServers`, the JSON that Claude, Cursor and others share), and how they run.

One entry that cannot be used does not cost the other servers: the reason is kept for each. Nothing is read or started.

    {"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "some-server"], "env": {"TOKEN": "${FILES_TOKEN}"}, "cwd": "/srv"},
        "issues": {"type": "http", "url": "https://mcp.example/", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

A program runs in the session's sandbox, which has no network and cannot write `.git`; `"network": true` and
`"git": true` in its entry open them, and people see that when they trust the entry and when it starts. A package
runner such as npx also needs a folder to write: `"env": {"npm_config_cache": "/tmp/npm"}`, or `UV_CACHE_DIR` for uvx.
Keys of other programs (`autoApprove`, `alwaysAllow`, ...) grant nothing here; they are named in `ignored_keys`.

Tools are called `mcp__server__tool`. A server's name holds no `__`, so that the rule `mcp__a__*` can never match a tool
of another server; a tool's name depends on nothing but itself, so that it does not change when others come or go.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import msgspec

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret
from makai.core.session_events import McpServer as ClientServer
from makai.tools.commands import Confine
from makai.tools.permissions.confinement import EVERY_ADDRESS
from makai.tools.sandbox.guard import FileGuard

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${NAME}`, `${env:NAME}` as Cursor writes it, and `${NAME:-what to use without it}`."""
_Expand: TypeAlias = Callable[[str, str], str]
_HTTP_TYPES: Final = ("http", "streamable-http", "streamableHttp", "streamable_http", "sse")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110 section 5.6.2."""

_LAUNCHERS: Final = frozenset(["npx", "bunx", "pnpx", "uvx", "pipx", "uv", "node", "bun", "deno", "python", "python3"])
_NOT_STARTED: Final = re.compile(r"^$|^-|^run$|[\s=]|://")
"""An argument of a launcher that names no package, script or module: an option, code, a setting, a URL."""


class StdioServer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Normalised: what stands in `mcp__name__tool`."""
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, Secret] = {}
    cwd: str | None = None
    opened: Confinement = SESSION_SANDBOX
    """What its entry asks for beyond the session's sandbox: the network, the git repository."""
    is_clients: bool = False
    """The client of the session gave it."""
    ignored_keys: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """For people: the program, and what it starts where it is known to start others. Other arguments may hold
        secrets."""
        if Path(self.command).name not in _LAUNCHERS:
            return self.command
        started = next((one for one in self.args if not _NOT_STARTED.search(one)), "")
        return f"{self.command} {started}".rstrip()

    @property
    def identity(self) -> str:
        """Changes when another program would be run, so that approvals of its tools do not pass on to it."""
        opened = (", network" if self.opened.network else "") + (", git" if self.opened.git else "")
        return _digest(f"stdio{opened}", self.command, *self.args)


class HttpServer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    transport: Literal["http", "sse"] = "http"
    url: str
    headers: Mapping[str, Secret] = {}
    ignored_keys: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """For people: the URL without user, query and fragment, which may hold secrets."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def identity(self) -> str:
        return _digest(self.transport, self.address)


McpServer: TypeAlias = StdioServer | HttpServer


class McpConfig(msgspec.Struct, frozen=True, kw_only=True):
    servers: tuple[McpServer, ...] = ()
    problems: Mapping[str, str] = {}
    """By normalised server name: why the entry cannot be used."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    type: str | None = None
    command: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    network: bool = False
    git: bool = False
    url: str | None = None
    headers: dict[str, str] = {}
    disabled: bool = False


class _File(msgspec.Struct, frozen=True):
    servers: dict[str, msgspec.Raw] = msgspec.field(name="mcpServers")


_FILE: Final = msgspec.json.Decoder(_File)
_ENTRY: Final = msgspec.json.Decoder(_Entry)
_KEYS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse_mcp_config(text: str | bytes, environ: Mapping[str, str] | None, where: str = "mcp.json") -> McpConfig:
    """Read the file's text. `InvalidRequest` when it is no `mcpServers` file at all. Without `environ` everything stays
    as it is written, for people who read it: such a server cannot be started."""
    marked = "\ufeff" if isinstance(text, str) else b"\xef\xbb\xbf"  # some editors mark UTF-8
    try:
        entries = _FILE.decode(text.removeprefix(marked)).servers  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = 'It must look like {"mcpServers": {"name": {"command": "..."}}}.'
        raise InvalidRequest(f"{where} is not usable: {error}.", hint=hint) from None
    names = server_names(tuple(entries))
    servers: list[McpServer] = []
    problems: dict[str, str] = {}
    for written, raw in entries.items():
        try:
            if (server := _server(names[written], raw, environ)) is not None:
                servers.append(server)
        except InvalidRequest as error:
            problems[names[written]] = f"{where}: {written!r}: {error}"
    return McpConfig(servers=tuple(servers), problems=problems)


def _server(name: str, raw: msgspec.Raw, environ: Mapping[str, str] | None) -> McpServer | None:
    try:
        entry = _ENTRY.decode(raw)
        ignored = tuple(sorted(_KEYS.decode(raw).keys() - set(_Entry.__struct_fields__)))
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{error}.") from None
    if entry.disabled:
        return None
    if entry.type not in (None, "stdio", *_HTTP_TYPES):
        raise InvalidRequest(f'"type" is {entry.type!r}; "stdio", "http" and "sse" are known.')
    if entry.type is None and entry.command is not None and entry.url is not None:
        raise InvalidRequest('It has both "command" and "url"; only one of them can be meant.')
    expand = functools.partial(_expanded, environ)
    if entry.command is not None and entry.type in (None, "stdio"):
        return _stdio(name, entry, entry.command, expand, ignored)
    if entry.url is not None and entry.type != "stdio":
        return _http(name, entry, entry.url, expand, ignored)
    if entry.type is None:
        raise InvalidRequest('It has neither "command" nor "url".')
    raise InvalidRequest(f'It has no "{"command" if entry.type == "stdio" else "url"}".')


def _stdio(name: str, entry: _Entry, command: str, expand: _Expand, ignored: tuple[str, ...]) -> StdioServer:
    server = StdioServer(
        name=name,
        command=expand("command", command),
        args=tuple(expand(f"args[{index}]", one) for index, one in enumerate(entry.args)),
        env={key: Secret(expand(f"env.{key}", value)) for key, value in entry.env.items()},
        cwd=None if entry.cwd is None else expand("cwd", entry.cwd),
        opened=Confinement(network=(EVERY_ADDRESS,) if entry.network else (), git=entry.git),
        ignored_keys=ignored,
    )
    return _checked_program(server)


def _checked_program(server: StdioServer) -> StdioServer:
    parts = (server.command, *server.args, server.cwd or "", *(secret.reveal() for secret in server.env.values()))
    if any("\0" in part for part in (*parts, *server.env)):
        raise InvalidRequest("A NUL character is in it.")
    if bad := [key for key in server.env if not key or "=" in key]:
        raise InvalidRequest(f"{bad[0]!r} cannot be the name of an environment variable.")
    return server


def _http(name: str, entry: _Entry, url: str, expand: _Expand, ignored: tuple[str, ...]) -> HttpServer:
    headers = {key: Secret(expand(f"headers.{key}", value)) for key, value in entry.headers.items()}
    transport: Literal["http", "sse"] = "sse" if entry.type == "sse" else "http"
    server = HttpServer(name=name, transport=transport, url=expand("url", url), headers=headers, ignored_keys=ignored)
    is_as_written = server.url == url and _VARIABLE.search(url) is not None
    return server if is_as_written else _checked_address(server, url)


def _checked_address(server: HttpServer, written: str) -> HttpServer:
    usable = False
    with suppress(ValueError):
        parts = urlsplit(server.url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    if not usable:
        # Not the expanded one: a secret may be in it.
        raise InvalidRequest(f'"url" is {written!r}, which is no http or https URL.')
    for key, value in server.headers.items():
        if not _HEADER_NAME.fullmatch(key) or any(sign in value.reveal() for sign in "\r\n\0"):
            raise InvalidRequest(f"{key!r} is no header that can be sent.")
    return server


def client_servers(
    wanted: Sequence[ClientServer], values: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]
) -> McpConfig:
    """The servers that the client of a session gave. `values` are the variables and headers of each by its name; a
    server of which one is missing is a problem."""
    names = server_names([server.name for server in wanted])
    servers: list[McpServer] = []
    problems: dict[str, str] = {}
    for server in wanted:
        env, headers = values.get(server.name, ({}, {}))
        lacking = [name for name in server.env_names if name not in env]
        lacking += [name for name in server.header_names if name not in headers]
        try:
            if lacking:
                raise InvalidRequest(f"The value of {lacking[0]} is known only to the editor, which is not connected.")
            servers.append(client_server(names[server.name], server, env, headers))
        except InvalidRequest as error:
            problems[names[server.name]] = str(error)
    return McpConfig(servers=tuple(servers), problems=problems)


def client_server(name: str, server: ClientServer, env: Mapping[str, str], headers: Mapping[str, str]) -> McpServer:
    """Its user chose it in another program, which gives it the network; files are confined as for every server."""
    if server.transport == "stdio":
        if not server.command:
            raise InvalidRequest(f"The MCP server {server.name!r} has no command.")
        return _checked_program(
            StdioServer(
                name=name,
                command=server.command,
                args=server.args,
                env={key: Secret(env[key]) for key in server.env_names},
                opened=Confinement(network=(EVERY_ADDRESS,)),
                is_clients=True,
            )
        )
    given = {key: Secret(headers[key]) for key in server.header_names}
    return _checked_address(
        HttpServer(name=name, transport=server.transport, url=server.url, headers=given), server.url
    )


def _expanded(environ: Mapping[str, str] | None, field: str, text: str) -> str:
    """The text with its variables put in; a missing one is an error that names it, never an empty text."""
    if environ is None:
        return text

    def value_of(found: re.Match[str]) -> str:
        variable, fallback = found.groups()
        if variable not in environ and fallback is None:
            raise InvalidRequest(f"{field} needs the environment variable {variable}, which is not set.")
        return environ.get(variable) or fallback or ""

    return _VARIABLE.sub(value_of, text)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


_PASSED_ON: Final = ("PATH", "HOME", "LANG")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    environ: Mapping[str, str]
    """Ours. A server sees of it what it cannot run without, and what its own entry gives it."""
    cwd: str
    confined: Confine
    """Starts a server in the sandbox, with what its entry asks for."""
    spill_directory: Path
    """Where answers go that are too long for a model."""
    guard: FileGuard | None = None
    """Looks after protected files around the calls of programs."""

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        return {name: self.environ[name] for name in _PASSED_ON if name in self.environ} | dict(given)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    connect_s: float = 30.0
    """From the connection to a remote server to its first answer."""
    start_s: float = 120.0
    """From the start of a program to its first answer; a package runner may have to download it first."""
    list_s: float = 15.0
    call_s: float = 300.0
    """A call may be silent for so long; every progress notification restarts this clock."""
    longest_call_s: float = 3600.0
    ready_s: float = 10.0
    """How long a call waits for a server that is just starting again."""
    first_retry_s: float = 0.5
    longest_retry_s: float = 30.0
    most_failures: int = 5
    """So many in a row, and a server is left alone until one of its tools is called again."""
    steady_s: float = 60.0
    """A server that lasted so long starts counting its failures at zero."""

    def retry_after(self, failures: int) -> float:
        return float(min(self.first_retry_s * 2.0 ** (failures - 1), self.longest_retry_s))


MAX_NAME: Final = 64
"""What OpenAI and others take for a function's name."""
_MAX_SERVER: Final = 32
_HASH_SIGNS: Final = 8
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]")
_UNDERSCORES: Final = re.compile(r"_{2,}")


def server_names(written: Sequence[str]) -> dict[str, str]:
    """The normalised name of each. One that needs no change keeps it; of others that meet, each gets a hash."""
    wanted = {name: _server_name(name) for name in written}
    count = Counter(wanted.values())
    return {
        name: short if name == short or count[short] == 1 else _hashed(short, name, _MAX_SERVER)
        for name, short in wanted.items()
    }


def renamed(server: McpServer, taken: Collection[str]) -> McpServer:
    """The server under a name that is not taken."""
    if server.name not in taken:
        return server
    return msgspec.structs.replace(server, name=_hashed(server.name, server.identity, _MAX_SERVER))


def tool_name(server: str, tool: str) -> str:
    """The name a model sees; `server` is normalised. A name that had to be changed carries a hash of the original."""
    prefix = f"mcp__{server}__"
    short = _NOT_ALLOWED.sub("_", tool)
    if short == tool and tool and len(prefix) + len(tool) <= MAX_NAME:
        return prefix + tool
    return prefix + _hashed(short, tool, MAX_NAME - len(prefix))


def _server_name(written: str) -> str:
    # A name that begins or ends with "_" would make three underscores in a row, and two readings of them.
    short = _UNDERSCORES.sub("_", _NOT_ALLOWED.sub("_", written)).strip("_")
    if not short or len(short) > _MAX_SERVER:
        return _hashed(short or "server", written, _MAX_SERVER)
    return short


def _hashed(short: str, original: str, longest: int) -> str:
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_SIGNS]
    return f"{short[: longest - _HASH_SIGNS - 1].rstrip('_')}_{digest}".lstrip("_")
