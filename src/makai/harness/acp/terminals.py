"""Serves terminals to a driven agent: terminal/create, output, wait_for_exit, kill and release (ACP-TERM-002 to 007).

A terminal is a command of the session's shell tool: judged like one, and run in the session's sandbox. What is judged
and shown is the line that bash runs, including the variables that the agent sets, so the two cannot differ.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import shlex
import signal
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from makai.aio.cancellation import consume_exception
from makai.core.errors import InvalidRequest
from makai.core.session_events import Notice
from makai.harness.acp.files import check_absolute
from makai.harness.acp.served_calls import ServedCalls
from makai.tools.base import CallDescription, parsed, text_outcome
from makai.tools.commands import TERMINAL_ENVIRONMENT
from makai.tools.ports import RunningCommand
from makai.tools.shell import ShellArguments, ShellTool
from makai.wire import json_rpc
from makai.wire.acp.client_calls import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    TerminalExit,
    TerminalOutput,
    TerminalRequest,
)
from makai.wire.acp.common import Empty, NameValue
from makai.wire.json_rpc_errors import RpcError

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""Of one terminal, also when the agent allows more."""
MAX_TERMINALS: Final = 32
_MAX_EXPECTED: Final = 100
_MAX_RELEASED: Final = 32
_MAX_RELEASED_BYTES: Final = 64 * 1024
_END_S: Final = 15.0
"""A command and all it started are gone sooner, unless the kernel does not let them go."""
_SIGNAL_NAMES: Final = {each.value: each.name for each in signal.Signals}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HARMLESS_VARIABLES: Final = frozenset(
    {"CI", "CLAUDECODE", "COLUMNS", "FORCE_COLOR", "GEMINI_CLI", "LANG", "LINES", "NO_COLOR", "TERM"}
)
"""They change how a command prints, not what it does, so rules about the command hold with them."""
_BASH: Final = frozenset({"bash", "/bin/bash", "/usr/bin/bash"})
_NO_STARTUP_FILES: Final = frozenset({"--noprofile", "--norc"})


class OutputTail:
    """The end of an output as UTF-8 of at most `limit` bytes, cut between characters (ACP-TERM-006, ACP-TERM-007)."""

    def __init__(self, limit: int) -> None:
        self.truncated = False
        self._limit = limit
        self._kept = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, chunk: bytes, *, final: bool = False) -> None:
        self._kept += self._decoder.decode(chunk, final).encode()
        excess = len(self._kept) - self._limit
        if excess <= 0:
            return
        while excess < len(self._kept) and self._kept[excess] & 0xC0 == 0x80:
            excess += 1
        del self._kept[:excess]
        self.truncated = True

    def text(self) -> str:
        return self._kept.decode()


class _Terminal:
    """A command that runs or has run. Its task reads the output and ends the command on every path."""

    def __init__(self, command: RunningCommand, limit: int, calls: ServedCalls, terminal_id: str) -> None:
        self._command = command
        self._calls = calls
        self._output = OutputTail(limit)
        self._exit: TerminalExit | None = None
        self._following = asyncio.create_task(self._follow(), name=f"terminal {terminal_id}")
        self._following.add_done_callback(consume_exception)

    def output(self) -> TerminalOutput:
        return TerminalOutput(output=self._output.text(), truncated=self._output.truncated, exit_status=self._exit)

    async def wait(self) -> TerminalExit:
        """How the command ended, for any number of waiters."""
        await asyncio.wait({self._following})
        assert self._exit is not None
        return self._exit

    async def end(self) -> None:
        """End the command, and return when it has ended."""
        self._command.kill()
        await asyncio.wait({self._following}, timeout=_END_S)
        if not self._following.done():
            self._following.cancel()
            await asyncio.wait({self._following}, timeout=_END_S)

    async def _follow(self) -> None:
        notices: tuple[Notice, ...] = ()
        code = -signal.SIGKILL
        try:
            while chunk := await self._command.read():
                self._output.add(chunk)
            await self._command.wait()
        finally:
            try:
                code = await self._command.stop()
                notices = self._command.take_notices()
            finally:
                told = "".join(f"[{notice.message}]\n" for notice in notices)
                self._output.add(told.encode(), final=True)
                self._exit = exit_status(code)
        for notice in notices:
            await self._calls.notify(notice)


class AgentTerminals:
    """The terminals of one driven agent."""

    def __init__(self, shell: ShellTool, calls: ServedCalls) -> None:
        self._shell = shell
        self._calls = calls
        self._expected: deque[str] = deque(maxlen=_MAX_EXPECTED)
        self._terminals: dict[str, _Terminal] = {}
        self._released: OrderedDict[str, TerminalOutput] = OrderedDict()
        self._starting = 0
        self._count = 0

    def expect(self, command: str) -> None:
        """A command line that a person approved when the agent asked for permission: it runs once without a second
        question, if it is exactly the one that was shown, in the session's folder."""
        self._expected.append(command)

    async def create(self, request: CreateTerminalRequest) -> CreateTerminalResponse:
        """Start the command, once it is allowed. `args` of none makes `command` a command line for bash."""
        limit = MAX_OUTPUT_BYTES if request.output_byte_limit is None else request.output_byte_limit
        if limit < 0:
            raise RpcError(json_rpc.INVALID_PARAMS, "`outputByteLimit` must not be negative.")
        if request.cwd is not None:
            check_absolute(request.cwd)
        if len(self._terminals) + self._starting >= MAX_TERMINALS:
            raise RpcError(json_rpc.INTERNAL_ERROR, f"{MAX_TERMINALS} terminals are open. Release one of them first.")
        self._count += 1
        terminal_id = f"terminal-{self._count}"
        self._starting += 1
        try:
            await self._start(request, terminal_id, min(limit, MAX_OUTPUT_BYTES))
        except BaseException:
            await self._release(terminal_id)
            raise
        finally:
            self._starting -= 1
        return CreateTerminalResponse(terminal_id=terminal_id)

    async def output(self, request: TerminalRequest) -> TerminalOutput:
        return self._terminal(request).output()

    async def wait_for_exit(self, request: TerminalRequest) -> TerminalExit:
        return await self._terminal(request).wait()

    async def kill(self, request: TerminalRequest) -> Empty:
        """End the command; its output and exit status can still be asked for."""
        await self._terminal(request).end()
        return Empty()

    async def release(self, request: TerminalRequest) -> Empty:
        """End the command if it runs, and forget the terminal."""
        self._terminal(request)
        await self._release(request.terminal_id)
        return Empty()

    def shown(self, terminal_id: str) -> TerminalOutput | None:
        """The output for people, also after the release of the terminal; None when there was no such terminal."""
        terminal = self._terminals.get(terminal_id)
        return self._released.get(terminal_id) if terminal is None else terminal.output()

    async def close(self) -> None:
        """Release all terminals: the agent is gone, or its session is."""
        await asyncio.gather(*(self._release(terminal_id) for terminal_id in tuple(self._terminals)))

    async def _start(self, request: CreateTerminalRequest, terminal_id: str, limit: int) -> None:
        harmless = {each.name: each.value for each in request.env if each.name in _HARMLESS_VARIABLES}
        others = [
            each
            for each in request.env
            if each.name not in _HARMLESS_VARIABLES and TERMINAL_ENVIRONMENT.get(each.name) != each.value
        ]
        arguments = {"command": _exports(others) + command_line(request.command, request.args)}
        if request.cwd is not None:
            arguments["directory"] = request.cwd
        async with self._calls.allowed(self._shell, arguments, self._take_expected) as call:
            if any("\0" in value for value in harmless.values()):
                raise InvalidRequest("A variable contains a NUL character.")
            command = await self._shell.start(parsed(arguments, ShellArguments), call.fact.call_id, harmless)
            self._terminals[terminal_id] = _Terminal(command, limit, self._calls, terminal_id)
            call.outcome = text_outcome("Started in a terminal of the agent.")

    def _take_expected(self, description: CallDescription) -> bool:
        is_elsewhere = [place.path for place in description.locations] != [self._calls.rules.workspace]
        if is_elsewhere or description.subject not in self._expected:
            return False
        self._expected.remove(description.subject)
        return True

    def _terminal(self, request: TerminalRequest) -> _Terminal:
        terminal = self._terminals.get(request.terminal_id)
        if terminal is None:
            raise RpcError(json_rpc.RESOURCE_NOT_FOUND, f"There is no terminal {request.terminal_id[:100]!r}.")
        return terminal

    async def _release(self, terminal_id: str) -> None:
        terminal = self._terminals.pop(terminal_id, None)
        if terminal is None:
            return
        await terminal.end()
        last = terminal.output()
        tail = OutputTail(_MAX_RELEASED_BYTES)
        tail.add(last.output.encode())
        self._released[terminal_id] = TerminalOutput(
            output=tail.text(), truncated=last.truncated or tail.truncated, exit_status=last.exit_status
        )
        while len(self._released) > _MAX_RELEASED:
            self._released.popitem(last=False)


def command_line(command: str, args: Iterable[str]) -> str:
    """The line for bash. Agents send a program with its arguments, or a whole command line: without arguments, or as
    the one argument of `bash -c`. A line is judged and shown as it is, so that it is the one a person has approved."""
    words = tuple(args)
    if command in _BASH and words[-2:-1] == ("-c",) and _NO_STARTUP_FILES.issuperset(words[:-2]):
        return words[-1]
    is_program = bool(words) or ("/" in command and os.path.isfile(command))
    return shlex.join((command, *words)) if is_program else command


def exit_status(code: int) -> TerminalExit:
    """Supervisors, sandboxes and shells say 128 + n for a command that signal n ended."""
    name = _SIGNAL_NAMES.get(-code if code < 0 else code - 128)
    return TerminalExit(exit_code=code) if name is None else TerminalExit(signal=name)


def _exports(variables: Iterable[NameValue]) -> str:
    for each in variables:
        if not _VARIABLE.fullmatch(each.name):
            raise RpcError(json_rpc.INVALID_PARAMS, f"{each.name[:100]!r} is not the name of a variable.")
    return "".join(f"export {each.name}={shlex.quote(each.value)}; " for each in variables)
