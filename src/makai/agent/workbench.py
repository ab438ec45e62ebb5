"""Everything a native session works with: tools, the sandbox around them, MCP servers, written rules, the prompt.

Read are `config.toml` and `mcp.json` in `MAKAI_HOME`, and, when it is trusted, `.makai/config.toml` (only
`[permissions]`) and `.mcp.json` in the session's folder: servers once, rules again for every run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

import msgspec

from makai.agent.project_trust import PROJECT_CONFIG, PROJECT_SERVERS, is_as_trusted, project_bytes
from makai.agent.prompt import system_prompt
from makai.agent.server_notices import ServerNotices, opened_notices
from makai.core.config import PermissionsConfig, parse_config, parse_project_config, place_of
from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import InvalidRequest
from makai.core.server_prompts import ServerPrompt
from makai.core.session_events import Notice, SandboxLevel
from makai.tools.base import Tool
from makai.tools.commands import LocalCommands
from makai.tools.edit import EditTool, WriteTool
from makai.tools.fetch import FetchTool
from makai.tools.file_errors import FileMissing
from makai.tools.files import ListTool, ReadTool
from makai.tools.mcp.config import Launch, McpConfig, StdioServer, parse_mcp_config, renamed
from makai.tools.mcp.manager import McpManager, ServerStatus
from makai.tools.permissions.confinement import EVERY_ADDRESS, named_hosts
from makai.tools.permissions.looking import LookingCalls
from makai.tools.permissions.rules import AnyCall, PermissionRules, ShellCall, denied_paths, parse_rule, parse_rules
from makai.tools.plan import PlanTool
from makai.tools.ports import CommandRunner, FileSystem
from makai.tools.sandbox.detect import Detection, detect
from makai.tools.sandbox.guard import TOO_LARGE, TOO_LARGE_CODE, FileGuard
from makai.tools.sandbox.opening import resolved
from makai.tools.sandbox.policy import SandboxPolicy, credentials_of, is_beneath, not_to_be_made, session_policy
from makai.tools.scratch import Scratch, open_scratch, remove_old_scratch
from makai.tools.search import GlobTool, GrepTool
from makai.tools.shell import HOW_TO_ASK, ShellTool
from makai.tools.workspace import Workspace

if TYPE_CHECKING:
    from makai.tools.editor_files import EditorBuffers
    from makai.tools.editor_terminals import EditorTerminals

    class Editor(EditorBuffers, EditorTerminals, Protocol):
        """The editor of a session."""


_PROMPTS_WAIT_S: Final = 10.0
_WHAT_COMMANDS_MAY: Final[Mapping[SandboxLevel, str]] = {
    "read-only": f"Commands can read files, but write nothing but temporary files, and have no network. {HOW_TO_ASK}",
    "workspace-write": "Commands can write only beneath the session's folders, but not in .git, and have no network. "
    f"{HOW_TO_ASK}",
    "full-access": "",
}


class WorkbenchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a session works with, as its log says."""

    session_id: str
    cwd: str
    """Absolute. Always a folder that tools may use, and the one that relative paths and rules start from."""
    roots: tuple[str, ...] = ()
    """Further folders that tools may use."""
    sandbox: SandboxLevel = "workspace-write"
    makai_home: Path
    trusted: bool = False
    """Whether a person said that what the project's files settle may count."""
    trusted_files: Mapping[str, str] = {}
    """Path -> digest of the files whose content that person trusted."""
    environ: Mapping[str, str]
    client_servers: McpConfig = McpConfig()
    """The MCP servers that the client of the session gave."""
    only_servers: frozenset[str] | None = None
    """Start no other MCP servers than these; None for all that are configured."""


class Workbench:
    """The tools of a session. Use it with `async with`; what it needs is looked at when it is entered."""

    def __init__(self, spec: WorkbenchSpec, *, detection: Detection | None = None) -> None:
        """`detection` is the sandbox to use; by default the best one of this machine."""
        self._spec = spec
        self._detection = detection
        self._notices: dict[Notice, None] = {}
        """As a set that keeps its order: the same thing is noticed again with every run."""
        self._taken: set[Notice] = set()
        self._manager: McpManager | None = None
        self._server_notices = ServerNotices()
        self._was_awaited = False
        """Whether a run has given all MCP servers their time to connect."""

    async def __aenter__(self) -> Self:
        """`InvalidRequest` when the folder is missing or the configuration cannot be read."""
        if self._detection is None:
            self._detection = await asyncio.to_thread(detect)
        servers = await asyncio.to_thread(self._open, self._detection)
        if servers.servers or servers.problems:
            launch = Launch(
                environ=self._spec.environ,
                cwd=self._workspace.roots[0].real,
                confined=self._sandbox.confined_server,
                spill_directory=self._scratch.output,
                guard=self._sandbox.guard,
            )
            self._manager = McpManager(servers, launch)
            self._manager.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._manager is not None:
            await self._manager.close()

    async def ready(self, seconds: float, *, servers: Collection[str] | None = None) -> None:
        """Give MCP servers (of these names) so long to connect; the tools of those that take longer join later. Without
        names, only the first call waits: a server that hangs does not delay every run."""
        if self._manager is None:
            return
        if servers is None:
            seconds, self._was_awaited = 0.0 if self._was_awaited else seconds, True
        await self._manager.settled(seconds, names=servers)

    async def wait_for_servers(self, seconds: float, report: Callable[[Notice], Awaitable[None]]) -> None:
        """Wait until every MCP server is up or has failed, but not longer than that; `report` gets the progress."""
        if self._manager is None:
            return

        async def progressed() -> None:
            for notice in self._server_notices.take(self.servers, waits=True):
                await report(notice)

        for notice in self._server_notices.waiting(self.servers, seconds):
            await report(notice)
        await self._manager.settled(seconds, progressed)

    @property
    def command_sandbox(self) -> str:
        """The sandbox that confines commands on this machine; empty when they run without one."""
        is_confined = self._spec.sandbox != "full-access" and self._commands.is_confined
        return self._spec.sandbox if is_confined else ""

    def rules(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> PermissionRules:
        """The rules of the user, of a trusted project and of a run. `InvalidRequest` names one that is unreadable."""
        written = tuple(self._written_permissions())
        rules = parse_rules(
            workspace=self._workspace.roots[0].real,
            allow=(*(rule for config in written for rule in config.allow), *allow),
            ask=(rule for config in written for rule in config.ask),
            deny=(*(rule for config in written for rule in config.deny), *deny),
        )
        unconfined = self._spec.sandbox != "full-access" and not self._commands.is_confined
        roots = self._workspace.roots if self.command_sandbox else ()
        looking_roots = tuple(root.real for root in roots if root.writable)
        return msgspec.structs.replace(rules, asks_every_command=unconfined, looking_roots=looking_roots)

    def tools(self, rules: PermissionRules, editor: Editor | None = None) -> dict[str, Tool]:
        """The tools as they are now, always in the same order."""
        return self.built_in_tools(rules, editor) | self.server_tools()

    def server_tools(self) -> dict[str, Tool]:
        """The tools of the MCP servers that are up now."""
        tools = self._manager.tools() if self._manager is not None else ()
        return {tool.definition.name: tool for tool in tools}

    def built_in_tools(self, rules: PermissionRules, editor: Editor | None = None) -> dict[str, Tool]:
        """They show nothing that the rules forbid to read. With an editor, files are as it has them, and commands that
        a person approved for it run in its terminals."""
        files: FileSystem = self._workspace
        edited: FileSystem = self._workspace
        commands: CommandRunner = self._commands
        if editor is not None:
            from makai.tools.editor_files import EditorFiles
            from makai.tools.editor_terminals import EditorCommands

            files = EditorFiles(self._workspace, editor)
            edited = EditorFiles(self._workspace, editor, for_edits=True)
            commands = EditorCommands(self._commands, self._workspace, editor)
        denied, uneditable = denied_paths(rules, "Read"), denied_paths(rules, "Read", "Edit", "Write")
        tools: list[Tool] = [
            ReadTool(files, denied),
            WriteTool(edited, uneditable),
            EditTool(edited, uneditable),
            ListTool(files, denied),
            GlobTool(self._workspace, denied),
            GrepTool(self._workspace, denied),
            self._shell_tool(files, commands),
            FetchTool(),
            PlanTool(),
        ]
        return {tool.definition.name: tool for tool in tools}

    def shell_tool(self) -> ShellTool:
        """The shell on this machine, for a harness that serves commands to another agent."""
        return self._shell_tool(self._workspace, self._commands)

    def _shell_tool(self, files: FileSystem, commands: CommandRunner) -> ShellTool:
        return ShellTool(
            files,
            commands,
            environ=self._spec.environ,
            spill_directory=self._scratch.output,
            looking=self.looking,
        )

    @property
    def files(self) -> FileSystem:
        """The files of the session, for a harness that serves them to another agent."""
        return self._workspace

    def system_prompt(self) -> str:
        """The prompt of our own agent for this folder. Reads the project's files."""
        home = self._spec.makai_home
        prompt = system_prompt(Path(self._spec.cwd), trusted=self._spec.trusted, hidden=(home,), user_home=home)
        told = "" if self._sandbox.is_missing else _WHAT_COMMANDS_MAY[self._spec.sandbox]
        return f"{prompt}\n\n{told}" if told else prompt

    async def prompts(self, awaited: Collection[str] | None = None) -> list[ServerPrompt]:
        """The prompts of the MCP servers that are up, after giving those of these names a moment; None for all."""
        if self._manager is None:
            return []
        await self._manager.settled(_PROMPTS_WAIT_S, names=awaited)
        return await self._manager.prompts()

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt; a `MakaiError` when there is none or the server refuses."""
        if self._manager is None:
            raise InvalidRequest("This session has no MCP servers.")
        return await self._manager.prompt(server, name, arguments)

    @property
    def servers(self) -> tuple[ServerStatus, ...]:
        return self._manager.statuses() if self._manager is not None else ()

    def server_logs(self) -> dict[str, str]:
        """The last lines that the programs of the connected MCP servers wrote to standard error, by server."""
        return self._manager.logs() if self._manager is not None else {}

    @property
    def notices(self) -> tuple[Notice, ...]:
        return (*self._notices, *self._server_notices.current(self.servers))

    def take_notices(self) -> tuple[Notice, ...]:
        news = tuple(notice for notice in self._notices if notice not in self._taken)
        self._taken.update(news)
        servers = self._server_notices.take(self.servers)
        return (*news, *servers, *(self._sandbox.guard.take_notices() if self._sandbox.guard is not None else ()))

    def _open(self, detection: Detection) -> McpConfig:
        spec = self._spec
        if not os.path.isabs(spec.cwd) or not all(map(os.path.isabs, spec.roots)):
            raise InvalidRequest("The folders of a session must be absolute paths.")
        folders = [Path(folder) for folder in dict.fromkeys((spec.cwd, *spec.roots))]
        hidden = hidden_folders(spec.sandbox, spec.makai_home, spec.environ, folders)
        Workspace(folders, hidden)  # refuse a missing folder before anything is made
        remove_old_scratch(spec.environ, spec.makai_home)
        self._scratch = open_scratch(spec.session_id, spec.environ, spec.makai_home)
        self._workspace = Workspace(folders, hidden, readable=(self._scratch.output,))
        self._sandbox = _Sandbox(
            detection, spec, [root.real for root in self._workspace.roots if root.writable], self._scratch
        )
        self._commands = LocalCommands(
            self._workspace,
            confined=self._sandbox.confined_if_possible,
            is_confined=not self._sandbox.is_missing,
            guard=self._sandbox.guard,
            resolved=self._sandbox.resolved,
            environ=spec.environ,
        )
        self.looking = LookingCalls([root.real for root in self._workspace.roots])
        self._notices.update(dict.fromkeys(_sandbox_notices(detection, spec.sandbox)))
        if self._sandbox.guard is not None and not self._sandbox.guard.look().is_complete:
            self._warn(TOO_LARGE_CODE, TOO_LARGE)
        self.rules()  # refuse a rule that cannot be read
        return self._configured_servers()

    def _written_permissions(self) -> Iterator[PermissionsConfig]:
        """The user's, then the project's."""
        yield _user_permissions(self._spec.makai_home)
        if (text := self._project_text(PROJECT_CONFIG)) is not None:
            yield _checked(parse_project_config(text, PROJECT_CONFIG).permissions, text, PROJECT_CONFIG)

    def _configured_servers(self) -> McpConfig:
        """The user's servers and the project's; of two with one name the user's."""
        path = self._spec.makai_home / "mcp.json"
        user = self._parsed_servers(_text_of(path), str(path))
        project = self._parsed_servers(self._project_text(PROJECT_SERVERS), PROJECT_SERVERS)
        taken = {server.name for server in user.servers} | user.problems.keys()
        for name in sorted(taken.intersection(server.name for server in project.servers)):
            self._warn("mcp_config", f"{PROJECT_SERVERS}: your own mcp.json has a server {name!r} too, which is used.")
        servers = (*user.servers, *(server for server in project.servers if server.name not in taken))
        clients = self._spec.client_servers
        taken |= {server.name for server in project.servers} | project.problems.keys()
        # Rules that were written for a server do not cover another one of that name, so a client's gets its own.
        servers = (*servers, *(renamed(server, taken) for server in clients.servers))
        if (only := self._spec.only_servers) is not None:
            servers = tuple(server for server in servers if server.name in only)
        if self._spec.sandbox != "full-access" and not self._sandbox.is_missing:
            programs = [server for server in servers if isinstance(server, StdioServer)]
            self._server_notices = ServerNotices({server.name for server in programs if not server.opened.network})
            self._notices |= dict.fromkeys(notice for server in programs for notice in opened_notices(server))
        return McpConfig(servers=servers, problems={**clients.problems, **project.problems, **user.problems})

    def _parsed_servers(self, text: str | None, where: str) -> McpConfig:
        try:
            return McpConfig() if text is None else parse_mcp_config(text, self._spec.environ, where)
        except InvalidRequest as error:
            self._warn("mcp_config", str(error))
            return McpConfig()

    def _project_text(self, path: str) -> str | None:
        """A file of the project that settles something, None when there is none or it must not count."""
        if not self._spec.trusted:
            with contextlib.suppress(FileMissing):
                self._workspace.stat(path)
                self._warn("project_not_trusted", f"{path} is ignored until you trust this folder.")
            return None
        data = project_bytes(self._workspace, path)
        if data is not None and not is_as_trusted(path, data, self._spec.trusted_files):
            again = f"Look at it, then trust the folder again: `makai sessions trust --yes {self._spec.cwd}`."
            self._warn("project_changed", f"{path} is new or changed since you trusted it, so it is ignored. {again}")
            return None
        return None if data is None else _decoded(data, path)

    def _warn(self, code: str, message: str) -> None:
        self._notices[Notice(level="warning", code=code, message=message)] = None


class _Sandbox:
    def __init__(self, detection: Detection, spec: WorkbenchSpec, roots: Sequence[str], scratch: Scratch) -> None:
        self._detection = detection
        self._spec = spec
        self._roots = roots
        self._scratch = scratch
        self.guard: FileGuard | None = None
        self._policy()  # a folder that cannot be a session's is refused now
        if spec.sandbox != "full-access" and not self.is_missing:
            # Also read-only: a person may open folders for a command.
            watched = roots if spec.sandbox == "workspace-write" else ()
            not_new = not_to_be_made(_user_home(spec.environ))
            self.guard = FileGuard(watched, scratch.output / "taken", not_new, [str(scratch.temporary)])
            self.guard.look()

    @property
    def is_missing(self) -> bool:
        """Whether children should be confined, and cannot be."""
        return self._spec.sandbox != "full-access" and self._detection.backend is None

    def resolved(self, wanted: Confinement, directory: str) -> Confinement:
        """What a call opens. Nothing where there is no sandbox: it then runs unconfined, and a person is asked."""
        if not wanted.opens or self.is_missing:
            return SESSION_SANDBOX
        return resolved(wanted, directory, self._policy(), _user_home(self._spec.environ))

    @contextmanager
    def confined(
        self,
        argv: Sequence[str],
        opened: Confinement = SESSION_SANDBOX,
        *,
        read_only: bool = False,
        keeps_settings: bool = True,
    ) -> Iterator[Sequence[str]]:
        """Confine a child; `NotSupported` when that is not possible. `keeps_settings` as in `Detection.holding`."""
        policy = self._policy(opened, read_only=read_only)
        if policy.extra_writable[: len(opened.folders)] != opened.folders:
            raise InvalidRequest("A folder that was to be opened leads elsewhere now. Nothing was done.")
        with self._detection.holding(policy, keeps_settings=keeps_settings):
            yield self._detection.wrap(policy, argv)

    def confined_server(
        self, argv: Sequence[str], opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False
    ) -> AbstractContextManager[Sequence[str]]:
        """For an MCP server, with what its entry asks for."""
        opened = self.resolved(opened, self._roots[0])
        return self.confined(argv, opened, read_only=read_only, keeps_settings=False)

    def confined_if_possible(
        self, argv: Sequence[str], opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False
    ) -> AbstractContextManager[Sequence[str]]:
        """Where it is not possible, a person was asked about this very command (see `rules`)."""
        return nullcontext(argv) if self.is_missing else self.confined(argv, opened, read_only=read_only)

    def _policy(self, opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False) -> SandboxPolicy:
        """Made again each time: what has to be protected in the folders may be new."""
        return session_policy(
            "full-access" if opened.unsandboxed else "read-only" if read_only else self._spec.sandbox,
            self._roots,
            makai_home=self._spec.makai_home,
            user_home=_user_home(self._spec.environ),
            network=EVERY_ADDRESS in opened.network,
            hosts=named_hosts(opened),
            private_tmp=self._scratch.temporary,
            guarded=None if self.guard is None else self.guard.read_only,
            own_folders=(self._scratch.output,),
            extra_writable=opened.folders,
            git_folders=opened.git_folders,
        )


def _user_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def hidden_folders(
    sandbox: SandboxLevel, makai_home: Path, environ: Mapping[str, str], folders: Sequence[Path]
) -> tuple[Path, ...]:
    """What file tools must not see in the session's folders: what its commands do not see either."""
    if sandbox == "full-access":
        return (makai_home,)
    roots = [os.path.realpath(folder) for folder in folders]
    found = ((path, os.path.realpath(path)) for path in credentials_of(_user_home(environ)))
    inside = (path for path, real in found if any(is_beneath(real, root) and real != root for root in roots))
    return (makai_home, *inside)


def _sandbox_notices(detection: Detection, level: SandboxLevel) -> list[Notice]:
    if level == "full-access":
        return []
    if detection.backend is None:
        message = (
            f"No sandbox works here ({'; '.join(detection.problems)}). You are asked about every command, and it then "
            "runs unconfined; MCP servers that are programs are not started. Install bubblewrap, or choose full-access."
        )
        return [Notice(level="warning", code="sandbox_missing", message=message)]
    if not detection.problems:
        return []
    return [Notice(level="info", code="sandbox_weaker", message=f"Commands are confined by {detection.describe()}.")]


def user_rules(makai_home: Path, allow: Sequence[str], deny: Sequence[str]) -> PermissionRules:
    """The rules of the user and of a run, for a session without built-in tools. `InvalidRequest` as in `rules`."""
    written = _user_permissions(makai_home)
    return parse_rules(workspace="/", allow=(*written.allow, *allow), ask=written.ask, deny=(*written.deny, *deny))


def _user_permissions(makai_home: Path) -> PermissionsConfig:
    path = makai_home / "config.toml"
    text = _text_of(path)
    return PermissionsConfig() if text is None else _checked(parse_config(text, str(path)).permissions, text, str(path))


def _checked(permissions: PermissionsConfig, text: str, where: str) -> PermissionsConfig:
    """The permissions; `InvalidRequest` with the file and the line of the list when a rule cannot be read."""
    for name in ("allow", "ask", "deny"):
        try:
            for rule in getattr(permissions, name):
                _check_rule(rule, allows=name == "allow")
        except InvalidRequest as error:
            place = place_of(text, ["permissions", name], where)
            raise InvalidRequest(f"{place}: {error.message}", hint=error.hint) from None
    return permissions


def _check_rule(text: str, *, allows: bool) -> None:
    rule = parse_rule(text)
    if allows and isinstance(rule, AnyCall | ShellCall) and rule.opened.unsandboxed:
        message = f"the rule {text!r} would let commands run without a sandbox, which no file can allow."
        raise InvalidRequest(message, hint="You are asked about such a command each time.")


def _text_of(path: Path) -> str | None:
    """A file of the user's own, None when there is none."""
    try:
        return _decoded(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from None


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{where} is not UTF-8: {error.reason} at byte {error.start:,}.") from None
