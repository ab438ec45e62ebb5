"""An editor that sends mutated frames to `makai acp`, and counts what it is answered."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from support.acp_fuzz import CODES, MutatedFrames, is_odd, must_be_answered
from support.acp_peer import AcpProcess
from support.acp_schema import FrameChecker, SchemaViolation

ANSWER_S = 60.0
BATCH = 50


class HostileClient:
    def __init__(self, process: AcpProcess, project: Path, seed: int) -> None:
        self.answers: Counter[str] = Counter()
        """Kinds of answers: "result", or the code of an error."""
        self.unanswered: list[bytes] = []
        self.wrong: list[str] = []
        """Second answers, undocumented codes, messages of several lines, and frames that the schema does not allow."""
        self.known = [str(project)]
        """Ids and paths that mutated frames use at times."""
        self._process = process
        self._frames = MutatedFrames("agent", seed, lambda: self.known)
        self._checker = FrameChecker("agent")
        self._open: dict[int | str, bytes] = {}
        self._answered: set[int | str] = set()
        self._sound: dict[str, asyncio.Future[Any]] = {}
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read(), name="hostile-client")

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def call(self, method: str, params: Any) -> Any:
        """The result of a request that is not mutated."""
        number = f"sound-{len(self._sound)}"
        answer = self._sound[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        self._checker.received(line)
        await self._send([line])
        async with asyncio.timeout(ANSWER_S):
            return await answer

    async def send_mutated(self, count: int) -> None:
        """Send so many frames; after each batch every request of it must be answered."""
        frames = self._frames.take(count)
        while batch := list(islice(frames, BATCH)):
            await self._send(batch)
            try:
                async with asyncio.timeout(ANSWER_S):
                    while self._open:
                        self._news.clear()
                        await self._news.wait()
            except TimeoutError:
                self.unanswered += self._open.values()
                self._open.clear()

    async def _send(self, lines: Sequence[bytes]) -> None:
        for line in filter(must_be_answered, lines):
            self._checker.received(line)
            self._open[json.loads(line)["id"]] = line
        async with asyncio.timeout(ANSWER_S):
            await self._process.send(lines)

    async def _read(self) -> None:
        while (line := await self._process.receive()) is not None:
            try:
                frame = json.loads(line)
                if "method" in frame or frame["id"] in self._open or frame["id"] in self._sound:
                    self._checker.sent(line)
            except (SchemaViolation, ValueError) as violation:
                self.wrong.append(str(violation))
            else:
                await self._take(frame)
            self._news.set()

    async def _take(self, frame: Any) -> None:
        if "method" in frame:
            if "id" in frame:
                refusal = {"jsonrpc": "2.0", "id": frame["id"], "error": {"code": -32601, "message": "No."}}
                await self._process.send([json.dumps(refusal).encode()])
            return
        number, error = frame["id"], frame.get("error")
        if (waiting := self._sound.get(number)) is not None and not waiting.done():
            waiting.set_result(frame.get("result", error))
            return
        self.answers["result" if error is None else str(error["code"])] += 1
        is_undocumented = error is not None and (error["code"] not in CODES or "\n" in error["message"])
        if is_undocumented or (number in self._answered and not is_odd(number)):
            self.wrong.append(str(frame))
        self._answered.add(number)
        if error is None and "sessionId" in frame["result"]:
            self.known.append(frame["result"]["sessionId"])
        self._open.pop(number, None)
