"""Turns the pieces that a decoder reads into stream events that keep the law of `core.stream_events`. This is the one
place where a vendor's indexes become `content_index`: blocks open before their deltas and close exactly once, and the
stream ends in one `done` or `error`, whatever the vendor sent. A *key* tells a vendor's blocks apart (an index, an item
id, a name); it means nothing outside a decoder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable

import msgspec

from makai.core import stream_events as ev
from makai.core.content import Text, Thinking, ToolCall
from makai.core.errors import AuthError, MakaiError, ProviderError
from makai.core.fold import Block, BlockKind, MessageFold
from makai.core.messages import AssistantMessage, StopReason
from makai.core.model import Model
from makai.core.sanitize import sanitize, sanitize_json, sanitize_text
from makai.core.stream_events import TextDelta, ThinkingDelta, ToolCallDelta  # looked up once per delta
from makai.core.usage import Usage
from makai.providers.retries import blames_input
from makai.wire import strict_json

_arguments_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def new_tool_call_id() -> str:
    """An id for vendors that give none."""
    return f"call_{uuid.uuid4().hex[:24]}"


def arguments_error(arguments_json: str) -> str | None:
    """Why these arguments are not a JSON object, or None when they are."""
    try:
        _arguments_decoder.decode(arguments_json)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        reason = strict_json.reason_of(error, arguments_json)
        return f"the model wrote arguments that are not a JSON object: {reason}"
    except RecursionError:
        return "the model wrote arguments that are nested too deeply"
    return None


class Parts:
    """One answer being assembled. Decoders push into it; `take` hands over the events made since the last call."""

    __slots__ = ("_events", "_fold", "_model", "_new_id", "_next_index", "_open", "_signatures", "finished", "usage")

    def __init__(self, model: Model, timestamp: int, new_id: Callable[[], str] = new_tool_call_id) -> None:
        self._model = model
        self._new_id = new_id
        self._fold = MessageFold(
            AssistantMessage(content=(), provider=model.provider, api=model.api, model=model.id, timestamp=timestamp)
        )
        self._events: list[ev.StreamEvent] = []
        self._open: dict[Hashable, Block] = {}
        self._signatures: dict[Hashable, str] = {}
        self._next_index = 0
        self.usage = Usage()
        """Set by the decoder whenever the vendor tells; priced when the answer ends."""
        self.finished = False
        """Whether the terminal event was made. Everything pushed afterwards is ignored."""

    @property
    def is_empty(self) -> bool:
        """Whether the vendor has said nothing yet."""
        return self._next_index == 0

    def take(self) -> list[ev.StreamEvent]:
        """The events made since the last call."""
        for block in self._open.values():
            block.settle()
        events, self._events = self._events, []
        return events

    def start(self) -> None:
        """The first event, made before anything is sent upstream."""
        self._events.append(ev.Start(self._fold.message()))

    def keepalive(self) -> None:
        self._events.append(ev.Keepalive())

    def text(self, key: Hashable, delta: str, after: Hashable = None) -> None:
        """More words of a text block; the block opens itself, and then ends the block `after`."""
        block = self._open.get(key)
        if block is None:
            if not delta or self.finished:
                return
            self.end(after)
            block = self._begin(key, "text")
            self._events.append(ev.TextStart(block.index))
        delta = sanitize_text(delta)
        block.append(delta)
        self._events.append(TextDelta(block.index, delta))

    def thinking(self, key: Hashable, delta: str) -> None:
        """More words of a thinking block; the block opens itself."""
        block = self._open.get(key)
        if block is None:
            if not delta or self.finished:
                return
            block = self.open_thinking(key)
        delta = sanitize_text(delta)
        block.append(delta)
        self._events.append(ThinkingDelta(block.index, delta))

    def open_thinking(self, key: Hashable) -> Block:
        """Begin a thinking block that may stay without text (redacted, or signature only)."""
        block = self._begin(key, "thinking")
        self._events.append(ev.ThinkingStart(block.index))
        return block

    def open_text(self, key: Hashable) -> None:
        """Begin a text block that may stay without text (it carries a signature)."""
        self._events.append(ev.TextStart(self._begin(key, "text").index))

    def tool(self, key: Hashable, tool_call_id: str | None, name: str) -> None:
        if self.finished:
            return
        name = sanitize_text(name)
        block = self._begin(key, "toolcall", sanitize_text(tool_call_id or self._new_id()), name)
        self._events.append(ev.ToolCallStart(block.index, block.tool_call_id, name))

    def arguments(self, key: Hashable, delta: str) -> None:
        """More argument JSON of an open tool call."""
        block = self._open.get(key)
        if block is None or not delta:
            return
        delta = sanitize_json(delta)
        block.append(delta)
        self._events.append(ToolCallDelta(block.index, delta))

    def sign(self, key: Hashable, signature: str) -> None:
        """Attach a vendor signature to an open block; it travels with the block's end."""
        self._signatures[key] = sanitize_text(signature)

    def is_open(self, key: Hashable) -> bool:
        return key in self._open

    def written(self, key: Hashable) -> str:
        """What an open block holds so far, for vendors that repeat the whole at its end."""
        block = self._open.get(key)
        return block.text() if block is not None else ""

    def end(self, key: Hashable, *, redacted: bool = False) -> None:
        block = self._open.pop(key, None)
        if block is None:
            return
        signature = self._signatures.pop(key, None)
        if block.kind == "text":
            text = block.text()
            self._fold.end(block.index, Text(text=text, text_signature=signature))
            self._events.append(ev.TextEnd(block.index, signature, text))
        elif block.kind == "thinking":
            text = block.text()
            part = Thinking(thinking=text, thinking_signature=signature, redacted=redacted)
            self._fold.end(block.index, part)
            self._events.append(ev.ThinkingEnd(block.index, signature, redacted, text))
        else:
            self._end_tool(block, signature)

    def end_all(self) -> None:
        for key in list(self._open):
            self.end(key)

    def done(self, reason: StopReason, *, response_id: str | None = None) -> None:
        if self.finished:
            return
        self.end_all()
        # Google and Ollama say "stop" after a tool call; the agent loop needs to know that a tool is wanted.
        if reason == "end_turn" and any(isinstance(part, ToolCall) for part in self._fold.content()):
            reason = "tool_use"
        response_id = None if response_id is None else sanitize_text(response_id)
        message = self._fold.finish(reason, self.usage.priced(self._model.price), response_id=response_id)
        self.finished = True
        self._events.append(ev.Done(reason, message))

    def fail(self, error: MakaiError, reason: StopReason = "error", *, retryable: bool = False) -> None:
        """The answer broke off. Open blocks are left open: their ends never came."""
        if self.finished:
            return
        usage = None if self.usage == Usage() else self.usage.priced(self._model.price)
        said = sanitize_text(error.message)
        message = self._fold.finish(reason, usage or Usage(), error_message=said)
        self._open.clear()
        self.finished = True
        provider_id = error.provider_id if isinstance(error, ProviderError | AuthError) else None
        self._events.append(
            ev.Failed(
                reason="aborted" if reason == "aborted" else "error",
                error_code=error.code,
                error_message=said,
                message=message,
                retry_after_ms=error.retry_after_ms if isinstance(error, ProviderError) else None,
                provider_id=provider_id or self._model.provider,
                hint=sanitize(error.hint),
                usage=usage,
                retryable=retryable,
                blames_input=blames_input(error),
            )
        )

    def _begin(self, key: Hashable, kind: BlockKind, tool_call_id: str = "", name: str = "") -> Block:
        block = self._fold.open(kind, self._next_index, tool_call_id, name)
        self._next_index += 1
        self._open[key] = block
        return block

    def _end_tool(self, block: Block, signature: str | None) -> None:
        arguments_json = block.text()
        if not arguments_json.strip():
            # A tool without parameters: vendors send nothing at all. Said as a delta, so that deltas = arguments.
            rest = "{}"
            arguments_json += rest
            self._events.append(ToolCallDelta(block.index, rest))
        call = ToolCall(
            tool_call_id=block.tool_call_id,
            name=block.name,
            arguments_json=arguments_json,
            thought_signature=signature,
            arguments_error=arguments_error(arguments_json),
        )
        self._fold.end(block.index, call)
        self._events.append(ev.ToolCallEnd(block.index, call))
