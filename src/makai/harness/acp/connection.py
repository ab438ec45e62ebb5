"""The connection to an agent's process: lines over its standard input and output, JSON-RPC for those that speak ACP.

Agents write other things to their output as well: such lines are kept with its standard error and skipped, up to a
bound. When the process ends, breaks the framing or does not read, everything that waits fails with one `AgentFailed`
that shows the last lines of its standard error (ACP-CLIENT-010). The owner calls `close` on every path: nothing of the
agent is left afterwards.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from makai.aio.cancellation import RunOnce
from makai.aio.child_process import ChildProcess, OversizedLine
from makai.aio.json_rpc_calls import JsonRpcCalls, RpcHandler
from makai.core.errors import NO_RESULT, AgentFailed, ParseError, TransportError
from makai.core.visible_text import shown
from makai.tools.launching import launcher
from makai.wire import strict_json
from makai.wire.json_repair import carried

MAX_OTHER_LINES: Final = 1_000
"""So many lines in a row that are no messages, and it is no agent."""
MAX_MALFORMED: Final = 100
MAX_UNWRITTEN_BYTES: Final = 64 * 1024 * 1024
MAX_WORDS_LINES: Final = 12
MAX_WORDS_LENGTH: Final = 2_000
_EXIT_GRACE_S: Final = 1.0
_TERM_GRACE_S: Final = 1.0
_TAKEN_EXACTLY: Final = re.compile(rb'"method"\s*:\s*"(?:fs/write_text_file|terminal/create)"')
"""What these name and write must not be mended: a file would hold, or be called, something else than was asked for."""
_any = msgspec.json.Decoder()


class AgentTransport(Protocol):
    """The process of an agent; `ChildProcess` is one."""

    @property
    def exit_code(self) -> int | None: ...
    @property
    def stderr_tail(self) -> str: ...
    def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]: ...
    def note(self, line: bytes) -> None: ...
    async def write(self, data: bytes) -> None: ...
    async def wait_for_errors(self, seconds: float) -> None: ...
    async def stop(self, *, grace_s: float = 0.0, term_grace_s: float = 0.0) -> int: ...


async def start_process(argv: Sequence[str], env: dict[str, str], cwd: str) -> AgentTransport:
    """Start an agent's program as a supervised child, in a process group of its own."""
    try:
        return await ChildProcess.start(argv, env=env, cwd=cwd, launcher=launcher())
    except OSError as error:
        raise AgentFailed(f"`{argv[0]}` could not be started: {error.strerror}.") from None


class AgentLines:
    """The lines that an agent's process writes, and those that it gets. `close` ends the process on every path."""

    def __init__(
        self,
        title: str,
        protocol: str,
        transport: AgentTransport,
        take: Callable[[bytes], Awaitable[str | None]],
        ended: Callable[[AgentFailed], Awaitable[None]],
    ) -> None:
        """`take` gets each line in order: None for a message, "" for a line that is none, else how the agent broke its
        protocol. While it waits, the agent is not read. `ended` learns once why no further line comes."""
        self._title = title
        self._protocol = protocol
        self._transport = transport
        self._take = take
        self._on_end = ended
        self._outbox: deque[bytes] = deque()
        self._unwritten = 0
        self._has_output = asyncio.Event()
        self._broken = ""
        self.ended = asyncio.Event()
        """Set when no further message comes."""
        self._reading = asyncio.create_task(self._read(), name=f"read from {title}")
        self._writing = asyncio.create_task(self._write_all(), name=f"write to {title}")
        self.close = RunOnce(self._close, f"close {title}")

    def put(self, line: bytes) -> None:
        """Send a line, which ends with a newline. Lines are sent in order, without waiting here."""
        if self._unwritten > MAX_UNWRITTEN_BYTES:
            self._broken = "does not read its input"
            self._outbox.clear()
            return
        self._outbox.append(line)
        self._unwritten += len(line)
        self._has_output.set()

    def failure(self, why: str) -> AgentFailed:
        """An error about the agent; `why` continues a sentence that begins with its name."""
        said = [line for line in shown(self._transport.stderr_tail).splitlines() if line.strip()]
        words = "\n".join(said[-MAX_WORDS_LINES:])[-MAX_WORDS_LENGTH:]
        return AgentFailed(f"{self._title} {why.rstrip('.')}" + (f". It said last:\n{words}" if words else "."))

    async def _close(self) -> None:
        if not self.ended.is_set():  # then the reader ends what is under way itself, in a bounded time
            self._reading.cancel()
        self._writing.cancel()
        await asyncio.wait({self._reading, self._writing})
        if not self.ended.is_set():
            self.ended.set()
            await self._on_end(self.failure("was stopped"))
        await self._transport.stop(grace_s=_EXIT_GRACE_S, term_grace_s=_TERM_GRACE_S)

    async def _read(self) -> None:
        why, code = await self._read_messages(), None
        if not why:
            await self._transport.wait_for_errors(_EXIT_GRACE_S)
            code = self._transport.exit_code
            why = "closed its output" if code is None else f"ended with exit code {code}"
        self.ended.set()  # no further run may use it, also while what it had asked for is being ended
        failure = self.failure(self._broken or why)
        if code == 0 and not self._broken:
            failure.code = NO_RESULT
        await self._on_end(failure)

    async def _read_messages(self) -> str:
        """Take lines until the output ends; how the agent broke its protocol, if it did."""
        others = 0
        async for line in self._transport.lines(strict_json.MAX_BYTES):
            if isinstance(line, OversizedLine):
                return f"sent a message of {line.size} bytes; at most {strict_json.MAX_BYTES} are read"
            broken = await self._take(_mended(line))
            if broken or self._broken:
                return broken or self._broken
            others = others + 1 if broken == "" else 0
            if broken == "":
                self._transport.note(line)
            if others > MAX_OTHER_LINES:
                return f"does not speak {self._protocol}: its output has other lines"
        return ""

    async def _write_all(self) -> None:
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            while self._outbox:
                line = self._outbox.popleft()
                try:
                    await self._transport.write(line)
                except TransportError:
                    return  # its output ends as well, and says why
                self._unwritten -= len(line)


def _mended(line: bytes) -> bytes:
    """The line with text that can be read, or as it is when its request is to be refused instead."""
    readable = carried(line)
    return line if readable is not line and readable != line and _TAKEN_EXACTLY.search(line) else readable


class AgentConnection:
    """JSON-RPC with an agent's process. It is `peer.AgentPeer` for one that speaks the Agent Client Protocol itself."""

    def __init__(
        self,
        title: str,
        transport: AgentTransport,
        handler: RpcHandler,
        room: Callable[[], Awaitable[None]],
        *,
        protocol: str = "the Agent Client Protocol",
        lenient: bool = False,
        on_end: Callable[[AgentFailed], None] = lambda why: None,
    ) -> None:
        """`room` returns when the handler can take further messages: a slow log slows the agent. `lenient` is for
        messages without the `jsonrpc` member. `on_end` learns why no further message comes."""
        self._lines = AgentLines(title, protocol, transport, self._take, self._no_more)
        self._calls = JsonRpcCalls(self._lines.put, handler, lenient=lenient)
        self._marks = (b'"method"', b'"id"') if lenient else (b'"jsonrpc"',)
        self._on_end = on_end
        self._room = room
        self.drift: Mapping[str, int] = {}
        self.ended = self._lines.ended
        self.failure = self._lines.failure
        self.close = self._lines.close

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        try:
            result = await self._calls.request(method, params, seconds=seconds)
            return strict_json.decode_with(_any, bytes(result))
        except ParseError as error:
            raise self.failure(f"answered {method} with something else: {error.message}") from None
        except TransportError as error:
            raise self.failure(f"did not answer {method}: {error.message}") from None

    def notify(self, method: str, params: Any) -> None:
        self._calls.notify(method, params)

    async def _no_more(self, why: AgentFailed) -> None:
        self._on_end(why)
        await self._calls.close(why)

    async def _take(self, line: bytes) -> str | None:
        if not (line.lstrip().startswith(b"{") and any(mark in line for mark in self._marks)):
            return ""
        self._calls.receive(line)
        if self._calls.malformed > MAX_MALFORMED:
            return f"sent {MAX_MALFORMED} malformed messages"
        if b'"id"' in line:
            await asyncio.sleep(0)  # a request begins before the messages that follow it
        await self._room()
        return None
