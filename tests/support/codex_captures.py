"""Recorded conversations with `codex app-server`, cut into turns, and an app-server in memory that replays them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from makai.aio.child_process import OversizedLine
from makai.core.errors import ChannelClosed
from makai.harness.codex.approvals import CodexQuestion, question_of
from makai.harness.codex.translator import CodexTurnEnd, Output, QuestionOver, Translator, error_name
from makai.wire.acp import updates as wire
from makai.wire.acp.common import TextBlock

FOLDER = Path(__file__).resolve().parents[1] / "fixtures/codex"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.jsonl")))
JSON = dict[str, Any]


class CapturedTurn(NamedTuple):
    thread_id: str
    prompt: str
    lines: tuple[JSON, ...]
    """What the server wrote from the request for the turn on, without answers to requests."""
    started: JSON
    """The answer to turn/start."""


def captured_turns(name: str) -> list[CapturedTurn]:
    """The turns of a capture. What the server says between two turns belongs to the one before."""
    turns: list[tuple[JSON, list[JSON], list[JSON]]] = []
    for text in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(text)
        message = entry["msg"]
        if entry["dir"] == "in" and message.get("method") == "turn/start":
            turns.append((message, [], []))
        elif entry["dir"] == "out" and turns:
            request, lines, answers = turns[-1]
            (lines if "method" in message else answers).append(message)
            if message.get("id") == request["id"] and "result" in message:
                turns[-1] = (request, lines, [message["result"]])
    return [
        CapturedTurn(request["params"]["threadId"], request["params"]["input"][0]["text"], tuple(lines), answers[0])
        for request, lines, answers in turns
    ]


def all_turns() -> list[tuple[str, CapturedTurn]]:
    return [(f"{name} {number}", turn) for name in NAMES for number, turn in enumerate(captured_turns(name))]


class ReplayTransport:
    """`harness.acp.connection.AgentTransport`: it answers the handshake, replays lines after turn/start, and ends."""

    def __init__(self, turn: CapturedTurn, lines: Sequence[bytes], *, is_kept: bool = False) -> None:
        """`is_kept` leaves the server running after the last line."""
        self.exit_code: int | None = None
        self.stderr_tail = ""
        self.received: list[JSON] = []
        self._turn = turn
        self._replayed = lines
        self._is_kept = is_kept
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]:
        while (line := await self._lines.get()) is not None:
            yield OversizedLine(len(line), line[:100], line[-100:]) if len(line) > max_bytes else line

    def note(self, line: bytes) -> None:
        self.stderr_tail = (self.stderr_tail + line.decode(errors="replace") + "\n")[-8192:]

    async def write(self, data: bytes) -> None:
        if self.exit_code is not None:
            raise ChannelClosed("It has ended.")
        message = json.loads(data)
        self.received.append(message)
        if "method" not in message or "id" not in message:
            return
        answers: JSON = {
            "initialize": {"userAgent": "x"},
            "account/read": {"account": None, "requiresOpenaiAuth": False},
            "thread/start": {"thread": {"id": self._turn.thread_id}, "model": "scripted"},
            "model/list": {"data": []},
            "turn/start": self._turn.started,
        }
        self._put({"id": message["id"], "result": answers.get(message["method"], {})})
        if message["method"] == "turn/start":
            for line in self._replayed:
                self._lines.put_nowait(line)
            if not self._is_kept:
                self._end(0)

    async def wait_for_errors(self, seconds: float) -> None:
        pass

    async def stop(self, *, grace_s: float = 0.0, term_grace_s: float = 0.0) -> int:
        self._end(0)
        return self.exit_code or 0

    def _put(self, message: JSON) -> None:
        self._lines.put_nowait(json.dumps(message).encode())

    def _end(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            self._lines.put_nowait(None)


def encoded(turn: CapturedTurn) -> list[bytes]:
    return [json.dumps(line).encode() for line in turn.lines]


def begun(turn: CapturedTurn) -> Translator:
    """A translator in the state in which the turn was started."""
    translator = Translator()
    translator.thread_id = turn.thread_id
    translator.begin()
    translator.turn_id = turn.started["turn"]["id"]
    return translator


def outputs(translator: Translator, line: JSON) -> list[Output | CodexQuestion]:
    """What a message of the server becomes."""
    params = msgspec.Raw(json.dumps(line.get("params")).encode())
    if "id" not in line:
        return list(translator.on_notification(line["method"], params))
    question = question_of(line["method"], params, translator.open_items)
    assert isinstance(question, CodexQuestion)
    translator.asks_about(question.call.tool_call_id)
    return [question]


def transcript(found: Sequence[Output | CodexQuestion]) -> list[list[Any]]:
    """Outputs in short form, with the pieces of a text put together."""
    lines: list[list[Any]] = []
    for output in found:
        line = _short(output)
        if line and lines and line[0] == lines[-1][0] and line[0].partition(" ")[0] in ("text", "thought"):
            lines[-1][1] += line[1]
        elif line:
            lines.append(line)
    return lines


def _short(output: Output | CodexQuestion) -> list[Any]:
    match output:
        case wire.AgentMessageChunk(content=TextBlock(text=text), meta=meta):
            return ["text of a sub-agent" if meta else "text", text]
        case wire.AgentThoughtChunk(content=TextBlock(text=text)):
            return ["thought", text]
        case wire.NewToolCall(kind=kind, title=title, status=status):
            return ["call", kind, title, status]
        case wire.ToolCallUpdate(status=status, content=content):
            return ["update", status, "".join(map(_item_text, content or ()))]
        case wire.NoticeUpdate(severity=severity, title=title):
            return ["notice", severity, title]
        case wire.UsageUpdate() | QuestionOver():
            return []
        case CodexTurnEnd(stop_reason, usage, failure):
            return ["end", stop_reason, usage and usage.total_tokens, failure and error_name(failure)]
        case CodexQuestion(call=call):
            return ["question", call.kind, call.title]
        case _:
            return [type(output).__name__]


def _item_text(item: wire.ToolCallContent) -> str:
    match item:
        case wire.ContentItem(content=TextBlock(text=text)):
            return text
        case wire.DiffItem(path=path, old_text=old, new_text=new):
            return f"{path}: {old!r} -> {new!r}"
        case _:
            return type(item).__name__
