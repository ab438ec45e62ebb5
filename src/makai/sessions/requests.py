"""The operations of the session contract as values. Each operation is one `Request` subclass. Its class statement names
the type of its answer (`Request[Receipt]`) and says whether it may be repeated after its owner died: a `Query` always,
any other request only when `is_repeatable`. To add an operation, define its class here and write its handler in
`owner.OwnedSessions`; the wire decoder, the answer's decoder and the failover rules follow from the definition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Generic, Literal, Self, TypeVar, assert_never, get_args
from uuid import uuid4

import msgspec

from makai.core.access import TokenScope
from makai.core.errors import SessionRefused
from makai.core.secret import Secret
from makai.core.server_prompts import ServerPrompt
from makai.core.session_events import DecodedMode, FileDiff, HasPermissionMode, RestoreDirection, SessionTerms
from makai.core.session_files import FoundPaths, Mentioned
from makai.core.settings import SettingsLayer
from makai.sessions import commands as cmd
from makai.sessions.index import base as index
from makai.sessions.log import base
from makai.sessions.log.nodes import Node
from makai.sessions.state import SessionState

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Request(msgspec.Struct, Generic[AnswerT_co], frozen=True, omit_defaults=True, tag_field="type", tag=_snake_case):
    """One operation. `AnswerT_co` is the type of its answer; failures are raised as `MakaiError`."""

    @property
    def is_repeatable(self) -> bool:
        """Whether asking again does no harm when the owner died and may have carried out the first attempt."""
        return False

    def with_id(self) -> Self:
        """The request with the ids that must be the same in every attempt."""
        return self

    def answer_of_first_attempt(self, refusal: SessionRefused) -> AnswerT_co | None:
        """The answer, when this refusal of a repeated request proves that the first attempt was carried out."""
        return None


class Query(Request[AnswerT_co], frozen=True):
    """A request that only reads."""

    @property
    def is_repeatable(self) -> bool:
        return True


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A command was carried out, and its events are durable."""

    last: int
    """The number of the last event of the command, or of one that was committed with it."""
    run_id: str | None = None
    """The run that the command started or changed, else the active one, if any."""


class _NewSession(Request[str], frozen=True, kw_only=True):
    """Base of requests that begin a session and return its id."""

    session_id: str | None = None
    """A new id when not given; one that exists is refused with SESSION_EXISTS."""

    @property
    def is_repeatable(self) -> bool:
        return self.session_id is None

    def with_id(self) -> Self:
        return self if self.session_id is not None else msgspec.structs.replace(self, session_id=str(uuid4()))

    def answer_of_first_attempt(self, refusal: SessionRefused) -> str | None:
        return self.session_id if refusal.code == "SESSION_EXISTS" else None


class CreateSession(_NewSession, HasPermissionMode, frozen=True, kw_only=True):
    model_ref: str
    mode: DecodedMode = "ask"
    harness: str = "native"
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    """Folders the built-in tools may touch; only `cwd` when empty."""
    title: str = ""
    terms: SessionTerms = SessionTerms()
    made_by: str = ""
    """As in `session_created`. A fork has none: a person wanted it."""


class ForkSession(_NewSession, HasPermissionMode, frozen=True, kw_only=True):
    """Begin a session that continues the conversation of another one. None keeps the origin's value."""

    origin: str
    at: int | None = None
    """The last event of the origin that counts; its last one when not given."""
    before: int | None = None
    """The event of a message, in place of `at`: the fork ends before it, and without the run that it began."""
    model_ref: str | None = None
    mode: DecodedMode | None = None
    cwd: str | None = None
    roots: tuple[str, ...] | None = None
    title: str | None = None
    terms: SessionTerms | None = None


class RunCommand(Request[Receipt], frozen=True):
    """Carry out a command; the answer comes after its events are durable. Raises `SessionRefused`."""

    session_id: str
    command: cmd.UserCommand
    environ: dict[str, Secret] = {}
    """Variables of the caller for the run that the command starts: keys, addresses and proxies. They win over those of
    the owner's process, live in its memory until the run ends or the caller's connection does, and are in no log. A
    run that another process resumes is without them. `session_router` adds those of an attached process."""
    inherited: tuple[str, ...] = ()
    """The names in `environ` that `session_router` added. Blocklists hold for them, not for what a caller chose."""

    @property
    def is_repeatable(self) -> bool:
        """A call is decided once, a run aborted or retried once and an input withdrawn once, so the repetition is
        refused if the first attempt counted. Other commands could apply twice, hit the next run, or undo a change that
        another client made in between."""
        match self.command:
            case cmd.Send(client_msg_id=client_msg_id):
                return client_msg_id is not None
            case cmd.ApproveCall() | cmd.DenyCall() | cmd.WithdrawInput() | cmd.RetryRun():
                return True
            case cmd.Abort(run_id=run_id):
                return run_id is not None
            case cmd.SetMode() | cmd.SetModel() | cmd.SetHarness() | cmd.SetTitle() | cmd.SetTerms():
                return False
            case cmd.Compact() | cmd.Archive() | cmd.Close() | cmd.RestoreFiles():
                return False
            case _:
                assert_never(self.command)


class FileRestorePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What would become of one file."""

    path: str
    kind: Literal["create", "change", "remove", "keep"]
    added: int = 0
    """Lines."""
    removed: int = 0
    refusal: str = ""
    """Why it cannot be restored; then nothing is."""


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an undo or a redo would do now."""

    direction: RestoreDirection
    message: int
    """The event of the message whose changes, and those after it, are undone."""
    text: str
    """The beginning of the message."""
    files: tuple[FileRestorePlan, ...]
    notes: tuple[str, ...] = ()
    """What is not undone, such as the changes of commands."""
    plan_id: str = ""
    """For `commands.RestoreFiles`: exactly this is carried out."""
    diffs: tuple[FileDiff, ...] = ()
    """What would change in each file, when they were asked for; without those that are too much to show."""

    @property
    def is_refused(self) -> bool:
        return any(file.refusal for file in self.files)


class PreviewRestore(Query[RestorePlan], frozen=True):
    """What `commands.RestoreFiles` would do. Raises `SessionRefused` when there is nothing to undo or redo."""

    session_id: str
    direction: RestoreDirection = "undo"
    count: int = 1
    to: int | None = None
    paths: tuple[str, ...] = ()
    """As in `commands.RestoreFiles`."""
    with_diffs: bool = False


class GetSessionDiff(Query[list[FileDiff]], frozen=True):
    """The files that tools of the session changed, each from before its first change to after its last; what was undone
    does not count. An empty `new_text` may be a removed file."""

    session_id: str


class ReadEvents(Query[list[base.Record]], frozen=True):
    """A page of the log, at most `limit` events above `after`. Does not load or recover the session."""

    session_id: str
    after: int = 0
    limit: int = base.BATCH_EVENTS
    deltas: bool = True


class GetState(Query[SessionState], frozen=True):
    """The engine's state of a session; raises `SessionRefused` UNKNOWN_SESSION."""

    session_id: str


class ListSessions(Query[list[base.SessionSummary]], frozen=True):
    """Sessions, the newest first."""

    filter: base.SessionFilter = base.NEWEST


class GetSession(Query[base.SessionSummary | None], frozen=True):
    session_id: str


class SearchSessions(Query[index.SearchAnswer], frozen=True, kw_only=True):
    """Sessions in which something was said or done, the newest and best first. `query` is what a person typed:
    `index.search_text`."""

    query: str
    limit: int = 20
    archived: base.ArchivedFilter = "without"
    cwd: str | None = None
    """Only sessions of this very folder."""
    session_id: str | None = None
    """Only this session."""
    wait_s: float = 0.0
    """How long to wait for an index that still catches up with the log."""


class GetUsage(Query[index.UsageAnswer], frozen=True, kw_only=True):
    """Tokens and costs of runs that ended in the last `days` days, today included, by day, model, agent and folder."""

    days: int = 30
    tz_minutes: int = 0
    """What the caller's time is ahead of UTC: days begin at its midnight."""
    session_id: str | None = None
    """Only this session."""
    wait_s: float = 0.0


class ListNodes(Query[list[Node]], frozen=True):
    """The live nodes of the cluster; the one process that owns the sessions, where there is no cluster."""


class ListPrompts(Query[list[ServerPrompt]], frozen=True):
    """The prompts of the session's MCP servers that are up. Starts the servers, and gives them a moment."""

    session_id: str
    awaited: tuple[str, ...] | None = None
    """The names of the servers that are given the moment; None for all."""


class GetPrompt(Query[str], frozen=True):
    """The text of a prompt of an MCP server, with these arguments filled in."""

    session_id: str
    server: str
    name: str
    arguments: dict[str, str] = {}


class CommandSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slash command that was written as a file."""

    name: str
    description: str = ""
    argument_hint: str = ""


class ListCommands(Query[list[CommandSummary]], frozen=True):
    """The slash commands that the user wrote as files, and those of the session's folder when it is trusted."""

    session_id: str


class ExpandCommand(Query[str | None], frozen=True):
    """The message of such a command, with the words after its name filled in; None when there is no such command."""

    session_id: str
    name: str
    argument: str = ""


class HasFolder(Query[bool], frozen=True):
    """Whether the machines with one of these labels have the session's folder. Where there is no cluster, the only
    machine has it."""

    session_id: str
    labels: tuple[str, ...] = ()


class FindFiles(Query[FoundPaths], frozen=True):
    """Files of the session's folder that are probably meant by what was typed after an `@`. Raises `SessionRefused`
    when no running machine has the folder."""

    session_id: str
    prefix: str = ""


class ReadMentioned(Query[Mentioned], frozen=True):
    """The files that a text names with an `@`, as far as tools may read them without asking. Raises as `FindFiles`."""

    session_id: str
    text: str


class ListApprovals(Query[list[base.PendingApproval]], frozen=True):
    """The open approval requests of all sessions."""


class ReleaseAgent(Request[None], frozen=True):
    """End the processes that the agent of a session keeps between runs; the session stays. An active run of an external
    agent fails."""

    session_id: str

    @property
    def is_repeatable(self) -> bool:
        return True


class DeleteSession(Request[bool], frozen=True):
    """Stop and remove a session; False when there was none."""

    session_id: str


class IsTrusted(Query[bool], frozen=True):
    """Whether project files of this folder may configure anything."""

    folder: str


class FolderTrust(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    trusted: bool
    changed: tuple[FileDiff, ...] = ()
    """Project files that count for nothing, since they are new or changed: what was trusted, and what is there now."""
    wanted: tuple[str, ...] = ()
    """All that the project files set and start, in exact lines."""
    digests: dict[str, str] = {}
    """The content that this answer shows, by path: what `SetTrust` needs."""


class GetTrust(Query[FolderTrust], frozen=True):
    """Whether project files of this folder may configure anything, which ones changed since, and what they want."""

    folder: str


class GetProjectSettings(Query[SettingsLayer], frozen=True):
    """What the `.makai/config.toml` of a folder says; nothing when the folder is not trusted or the file has changed
    since. `InvalidRequest` when it cannot be read."""

    folder: str


class ListTrusted(Query[list[base.TrustedFolder]], frozen=True):
    """Folders about which a person decided, by path."""


class SetTrust(Request[bool], frozen=True):
    """A person's decision about a folder and everything beneath it. False when a project file is not as it was shown:
    nothing is decided then, and the person has to be asked again."""

    folder: str
    trusted: bool
    shown: dict[str, str] = {}
    """`FolderTrust.digests` of what the person saw; of no meaning when `trusted` is False."""

    @property
    def is_repeatable(self) -> bool:
        return True


class ListGrants(Query[list[base.StoredGrant]], frozen=True):
    """Saved permissions of one folder, or of all folders, by folder and rule."""

    folder: str | None = None


class RevokeGrant(Request[bool], frozen=True):
    """Remove a saved permission; the next matching call asks again. False when there was none."""

    folder: str
    rule: str


class CheckLog(Query[base.LogReport], frozen=True):
    """Read and verify the whole log; changes nothing."""


class CreateToken(Request[base.StoredToken], frozen=True, kw_only=True):
    """Store a token by the hash of its secret, which stays with the caller that made it. Raises `InvalidRequest`."""

    token_id: str
    name: str
    scope: TokenScope
    digest: str
    expires_ms: int
    session_id: str | None = None
    """The only session that it opens; None for all."""

    @property
    def is_repeatable(self) -> bool:
        return True


class ListTokens(Query[list[base.StoredToken]], frozen=True):
    """All tokens, by the time they were made; also revoked and expired ones, until they are removed."""


class RevokeToken(Request[bool], frozen=True):
    """Let a token count no longer; False when there is none of this id. It stays in the list."""

    token_id: str

    @property
    def is_repeatable(self) -> bool:
        return True


class NoteTokenUse(Request[None], frozen=True):
    """Say that these tokens were used now."""

    token_ids: tuple[str, ...]

    @property
    def is_repeatable(self) -> bool:
        return True


def request_types() -> tuple[type[Request[Any]], ...]:
    """All operations, in the order of their definitions."""
    return tuple(_leaves(Request))


def _leaves(kind: type[Request[Any]]) -> Iterator[type[Request[Any]]]:
    children = kind.__subclasses__()
    if not children:
        yield kind
    for child in children:
        yield from _leaves(child)


@lru_cache(maxsize=128)
def answer_type(kind: type[Request[Any]]) -> Any:
    """The type that a request's class statement declares for its answer."""
    for parent in getattr(kind, "__orig_bases__", ()):
        if arguments := get_args(parent):
            return arguments[0]
    return answer_type(kind.__base__)
