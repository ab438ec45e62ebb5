"""The tool `shell`: runs a command, shows its output as it comes, leaves nothing running."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from makai.core.confinement import Confinement
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.programs import find_program
from makai.core.session_events import Notice
from makai.tools.base import Arguments, ArgumentsTool, CallDescription, ToolContext, ToolOutcome, definition
from makai.tools.commands import child_environment
from makai.tools.edit import FileBases, base_of
from makai.tools.file_errors import printable
from makai.tools.permissions.confinement import suffix_of
from makai.tools.permissions.looking import LookingCalls, looking_environment
from makai.tools.ports import CommandRequest, CommandRunner, FileSystem, RunningCommand
from makai.tools.scratch import KEPT_BYTES, MAX_SPILLED_BYTES, CappedOutput
from makai.tools.workspace import Place

_End: TypeAlias = Literal["finished", "timed out", "too long"]
_MAX_COMMAND_BYTES = 128_000
"""The kernel's limit for one argument is 128 KiB."""
_MAX_TITLE = 100
_PROGRESS_EVERY_S = 1.0
_NEWEST_BYTES = 2_000
_LAST_OUTPUT_S = 1.0


HOW_TO_ASK: Final = (
    "When a command fails because of that, call shell again with what it needs, and no more: network for its hosts, "
    "git for a commit, write_folders for another folder, no_sandbox only when nothing else helps. The user is asked."
)
_MAX_REASON: Final = 500
_MAX_ASKED: Final = 100


class ShellArguments(Arguments, frozen=True, kw_only=True):
    command: Annotated[str, msgspec.Meta(min_length=1, description="The command line, for bash.")]
    directory: Annotated[str, msgspec.Meta(description="Where to run it; the session's folder by default.")] = "."
    timeout_s: Annotated[
        float, msgspec.Meta(gt=0, le=3600, description="After how many seconds it is ended, with all it started.")
    ] = 120.0
    network: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            max_length=_MAX_ASKED,
            description='Ask for network to these hosts, such as ["example.org", "*.example.com"]; ["*"] for all.',
        ),
    ] = ()
    git: Annotated[
        bool, msgspec.Meta(description="Ask to write .git, as a commit does. Hooks and configuration stay read-only.")
    ] = False
    write_folders: Annotated[
        tuple[str, ...],
        msgspec.Meta(max_length=_MAX_ASKED, description="Ask to write these folders outside of the session's."),
    ] = ()
    no_sandbox: Annotated[
        bool, msgspec.Meta(description="Ask to run it without the sandbox, as docker needs. The last resort.")
    ] = False
    reason: Annotated[
        str, msgspec.Meta(max_length=_MAX_REASON, description="Why it needs what it asks for; the user reads it.")
    ] = ""

    @property
    def wanted(self) -> Confinement:
        """What the model asks for beyond the session's sandbox."""
        return Confinement(network=self.network, git=self.git, folders=self.write_folders, unsandboxed=self.no_sandbox)

    def __post_init__(self) -> None:
        try:
            length = len(self.command.encode("utf-8"))
        except UnicodeEncodeError:
            raise InvalidRequest("The command has half of a surrogate pair.") from None
        if "\0" in self.command:
            raise InvalidRequest("The command contains a NUL character.")
        if length > _MAX_COMMAND_BYTES:
            too_long = f"The command is longer than {_MAX_COMMAND_BYTES:,} bytes."
            raise InvalidRequest(too_long, hint="Write it to a file and run that.")


class ShellTool(ArgumentsTool[ShellArguments]):
    shape = ShellArguments
    definition = definition(
        "shell",
        "Run a command with bash and get its output (standard output and errors together) and exit code. There is no "
        "standard input. When the command ends, every process it started is ended too, background ones included. Of "
        "long output the beginning and the end are shown; all of it is kept in a file. Prefer read, edit, glob and "
        "grep for work with files. Commands usually run in a sandbox without network and with a read-only .git. "
        f"{HOW_TO_ASK}",
        ShellArguments,
    )

    def __init__(
        self,
        files: FileSystem,
        commands: CommandRunner,
        *,
        environ: Mapping[str, str],
        spill_directory: Path,
        looking: LookingCalls | None = None,
    ) -> None:
        self._files = files
        self._commands = commands
        self._environ = child_environment(environ)
        self._spill_directory = spill_directory
        self._bases = FileBases()
        self._looking = looking or LookingCalls()

    async def _describe(self, wanted: ShellArguments) -> CallDescription:
        place = self._files.place(wanted.directory)
        opened = self._commands.opened(wanted.wanted, place)
        self._bases.keep(wanted, _base(place, opened))
        shown = printable(wanted.command)
        title = shown if len(shown) <= _MAX_TITLE else f"{shown[:_MAX_TITLE]}..."
        title = title if place.shown == "." else f"{title} (in {place.shown})"
        title = f"{title} [{suffix_of(opened) or 'asks for more'}]" if opened.opens else title
        return CallDescription(
            kind="execute", title=title, subject=wanted.command, locations=(place.location,), confinement=opened
        )

    async def start(
        self, wanted: ShellArguments, call_id: str, environ: Mapping[str, str] | None = None
    ) -> RunningCommand:
        """Start the command of a call that was described before, with further variables. The caller ends it."""
        place = self._files.place(wanted.directory)
        opened = self._commands.opened(wanted.wanted, place)
        self._bases.check(wanted, _base(place, opened), place)
        shell = find_program("bash", self._environ["PATH"], self._looking.roots)
        argv = (shell, "--noprofile", "--norc", "-c", wanted.command) if shell else ("/bin/sh", "-c", wanted.command)
        looks = self._looking.take(call_id)
        known = self._environ
        if looks is not None:
            known = looking_environment(known, self._looking.roots, shows_addresses=looks.shows_addresses)
        return await self._commands.start(
            CommandRequest(
                call_id=call_id,
                argv=argv,
                directory=place,
                environ={**known, **(environ or {})},
                read_only=looks is not None,
                confinement=opened,
            )
        )

    async def _run(self, wanted: ShellArguments, context: ToolContext) -> ToolOutcome:
        """Output and exit code; when cancelled, all its processes are gone first."""
        looks = context.call_id in self._looking
        command = await self.start(wanted, context.call_id)
        output = CappedOutput(self._spill_directory)
        try:
            end = await _follow(command, output, _Progress(context), wanted.timeout_s)
            code = await command.stop()
        except BaseException:
            # Only then: the exception is the caller's again once no process is left.
            await command.stop()
            raise
        finally:
            output.close()
        outcome = _outcome(end, code, output, wanted.timeout_s, command.take_notices(), command.notice)
        return msgspec.structs.replace(outcome, only_looked=looks)


def _base(place: Place, opened: Confinement) -> bytes:
    """Stands for the folder of a command and for what it opens, with the paths that links lead to."""
    return base_of(place, msgspec.json.encode(opened))


class _Progress:
    """Output for the people who watch: all of it while it is short, then its newest lines, once in a second. The log
    keeps what is reported, so this is bounded."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown = 0
        self._told_at = 0.0

    def add(self, chunk: bytes, total: int) -> None:
        if self._shown < KEPT_BYTES:
            self._shown += len(chunk)
            if text := self._decoder.decode(chunk[:KEPT_BYTES]):
                self._context.progress(text)
        elif (now := time.monotonic()) - self._told_at >= _PROGRESS_EVERY_S:
            self._told_at = now
            newest = chunk[-_NEWEST_BYTES:].decode("utf-8", "replace")
            lines = newest.partition("\n")[2] if len(chunk) > _NEWEST_BYTES else newest
            self._context.progress(f"\n[{total:,} bytes of output so far, the newest:]\n{lines}")


async def _follow(command: RunningCommand, output: CappedOutput, progress: _Progress, timeout_s: float) -> _End:
    """Take the output until the command ends or must be ended."""
    try:
        async with asyncio.timeout(timeout_s):
            await _copy(command, output, progress)
            if not output.too_long:
                await command.wait()
                return "finished"
        end: _End = "too long"
    except TimeoutError:
        end = "timed out"
    command.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_OUTPUT_S):
            await _copy(command, output, progress)
    return end


async def _copy(command: RunningCommand, output: CappedOutput, progress: _Progress) -> None:
    while not output.too_long and (chunk := await command.read()):
        await output.add(chunk)
        progress.add(chunk, output.total)


def _outcome(
    end: _End, code: int, output: CappedOutput, timeout_s: float, notices: tuple[Notice, ...], refused: str
) -> ToolOutcome:
    match end:
        case "finished":
            note = "" if code == 0 else f"[exit code {code}]"
        case "timed out":
            note = f"[ended after {timeout_s:g} s with all it started; pass a longer timeout_s if it needs one]"
        case "too long":
            note = f"[ended: it wrote more than {MAX_SPILLED_BYTES:,} bytes]"
    text = output.text()
    notes = (text.rstrip("\n"), refused.rstrip("\n"), note, *(f"[{notice.message}]" for notice in notices))
    return ToolOutcome(
        content=(Text(text="\n".join(filter(None, notes)) or "[no output]"),),
        is_error=end != "finished" or code != 0,
        exit_code=code if end == "finished" else None,
        omitted_bytes=output.omitted,
        spill_path=str(output.spill_path) if output.spill_path else None,
        notices=notices,
    )
