"""An agent that sends mutated frames while it answers a prompt, and counts what makai answers to them."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

from makai.aio.child_process import OversizedLine
from makai.core.errors import ChannelClosed
from support.acp_fuzz import CODES, is_odd, must_be_answered

ANSWER_S = 15.0
MARK = re.compile(r"<(\d+)>")
"""What the agent says between mutated frames, so that the test can see whether something is lost."""


class Tally:
    """What all processes of the agent sent and were answered."""

    def __init__(self) -> None:
        self.sent = 0
        self.answers: Counter[str] = Counter()
        """Kinds of answers: "result", or the code of an error."""
        self.unanswered: list[bytes] = []
        self.answered: set[int | str | None] = set()
        self.wrong: list[Any] = []
        """Second answers, and those with a code that is not documented."""
        self.known: list[str] = []
        """Ids and paths that mutated frames use at times."""


class HostileTransport:
    """`harness.acp.connection.AgentTransport` with the agent at its other end."""

    def __init__(self, frames: Iterator[bytes], per_prompt: int, tally: Tally) -> None:
        self.exit_code: int | None = None
        self.stderr_tail = ""
        self.marks: list[str] = []
        self._frames = frames
        self._per_prompt = per_prompt
        self._tally = tally
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._open: dict[int | str, bytes] = {}
        self._all_answered = asyncio.Event()
        self._prompting: asyncio.Task[None] | None = None

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]:
        while (line := await self._lines.get()) is not None:
            yield line

    def note(self, line: bytes) -> None:
        pass

    async def wait_for_errors(self, seconds: float) -> None:
        pass

    async def stop(self, *, grace_s: float = 0.0, term_grace_s: float = 0.0) -> int:
        if self.exit_code is None:
            self.exit_code = 0
            self._lines.put_nowait(None)
            if self._prompting is not None:
                self._prompting.cancel()
        return 0

    async def write(self, data: bytes) -> None:
        if self.exit_code is not None:
            raise ChannelClosed("It has ended.")
        message = json.loads(data)
        match message:
            case {"method": "session/prompt", "id": number}:
                self._prompting = asyncio.create_task(self._prompt(number))
            case {"method": str(method), "id": number}:
                answers: dict[str, Any] = {
                    "initialize": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}},
                    "session/new": {"sessionId": "own"},
                    "session/load": {},
                }
                self._send({"jsonrpc": "2.0", "id": number, "result": answers.get(method, {})})
            case {"method": _}:
                pass
            case _:
                self._answered(message)

    def _answered(self, message: Any) -> None:
        error, result = message.get("error"), message.get("result")
        number = message["id"]
        is_repeated = number in self._tally.answered and not is_odd(number)
        if is_repeated or (error is not None and (error["code"] not in CODES or "\n" in error["message"])):
            self._tally.wrong.append(message)
        self._tally.answered.add(number)
        self._open.pop(number, None)
        self._tally.answers["result" if error is None else str(error["code"])] += 1
        if isinstance(result, dict) and "terminalId" in result:
            self._tally.known.append(result["terminalId"])
        if not self._open:
            self._all_answered.set()

    async def _prompt(self, number: int) -> None:
        for count in range(self._per_prompt):
            line = next(self._frames, None)
            if line is None:
                break
            self._tally.sent += 1
            if must_be_answered(line):
                self._open[json.loads(line)["id"]] = line
            self._lines.put_nowait(line)
            if count % 5 == 0:
                self._say(f"<{self._tally.sent}>")
        self._all_answered.clear()
        if self._open:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._all_answered.wait()
            except TimeoutError:
                self._tally.unanswered += self._open.values()
        self._send({"jsonrpc": "2.0", "id": number, "result": {"stopReason": "end_turn"}})

    def _say(self, mark: str) -> None:
        self.marks.append(mark[1:-1])
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": mark}}
        self._send({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "own", "update": update}})

    def _send(self, message: Any) -> None:
        self._lines.put_nowait(json.dumps(message).encode())
