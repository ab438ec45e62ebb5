"""OpenAI Responses, the answer: events and items become parts. Pure. Servers differ in what they stream and all repeat
the whole item at its end, so deltas are taken as they come and each item's end adds what they did not bring. The
reasoning item, which goes back with the next request, is defined here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from makai.core.messages import StopReason
from makai.core.usage import Usage, token_count
from makai.providers.base import END_MARK, AnswerDecoder, ProviderRequest, arguments_json
from makai.providers.parts import Parts
from makai.wire.sse import SSEDecoder

T = TypeVar("T")

_NOTHING = msgspec.Raw(b"{}")
_NULL = msgspec.Raw(b"null")


class _Content(msgspec.Struct, gc=False, omit_defaults=True):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class ReplayedReasoning(msgspec.Struct, gc=False, omit_defaults=True, tag_field="type", tag="reasoning"):
    """A reasoning item as it goes back to the model that made it."""

    summary: list[_Content]
    id: str | None = None
    encrypted_content: str | None = None
    content: list[_Content] | None = None


class _Item(msgspec.Struct, gc=False):
    id: str | None = None
    phase: str | None = None
    content: list[_Content] | None = None
    summary: list[_Content] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = _NULL


class _ItemHead(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: Any = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    """Every event in one shape: a delta has the first six fields and is decoded without looking further."""

    type: str = ""
    delta: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    arguments: msgspec.Raw = _NULL
    text: str | None = None
    refusal: str | None = None
    item: msgspec.Raw = _NOTHING
    response: msgspec.Raw = _NOTHING
    message: str | None = None
    error: Any = None


class _EventHead(msgspec.Struct, gc=False):
    type: str = ""


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_event_head = msgspec.json.Decoder(_EventHead).decode
_decode_item = msgspec.json.Decoder(_Item).decode
_decode_item_head = msgspec.json.Decoder(_ItemHead).decode
_decode_response = msgspec.json.Decoder(_Response).decode
_decode_reasoning = msgspec.json.Decoder(ReplayedReasoning).decode

STOP_REASONS: Final[dict[str, StopReason]] = {
    "completed": "end_turn",
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_READ_ITEMS = ("message", "reasoning", "function_call")


class _Block:
    """One output item while it arrives; `key` names it in `Parts`."""

    __slots__ = ("ended", "key", "kind", "part", "phase")

    def __init__(self, key: int, kind: str) -> None:
        self.key = key
        self.kind = kind
        self.part = 0
        """Which of its pieces is being written: text and reasoning text count up from 0."""
        self.phase: str | None = None
        self.ended = False


class ResponsesDecoder(AnswerDecoder):
    """Reads one answer: SSE events, or one whole response object."""

    __slots__ = ("_blocks", "_by_name", "_handlers", "_refused", "_response_id", "_sse")

    def __init__(self, request: ProviderRequest, parts: Parts) -> None:
        super().__init__(request, parts)
        self._sse = SSEDecoder()
        self._blocks: list[_Block] = []
        self._by_name: dict[int | str | None, _Block] = {}
        self._refused = False
        self._response_id: str | None = None
        self._handlers: dict[str, Callable[[_Event], None]] = {
            "response.output_text.delta": self._on_text,
            "response.output_text.done": self._on_text_done,
            "response.refusal.delta": self._on_refusal,
            "response.refusal.done": self._on_refusal_done,
            "response.reasoning_summary_text.delta": lambda event: self._think(event, event.summary_index or 0),
            # Counted apart from the summary (-1, -2, …), should a server send both.
            "response.reasoning_text.delta": lambda event: self._think(event, -1 - (event.content_index or 0)),
            "response.function_call_arguments.delta": self._on_arguments,
            "response.function_call_arguments.done": self._on_arguments_done,
            "response.output_item.added": self._on_item_added,
            "response.output_item.done": self._on_item_done,
            "response.created": self._on_created,
            "response.completed": self._on_terminal,
            "response.incomplete": self._on_terminal,
            "response.failed": self._on_terminal,
        }

    def feed(self, data: bytes) -> None:
        handlers = self._handlers
        for payload in self._sse.feed_data(data):
            if self._parts.finished:
                return
            event = self._event(payload)
            handler = handlers.get(event.type)
            if handler is not None:
                handler(event)
            else:
                self._on_other(event, payload)

    def whole(self, body: bytes) -> None:
        response = self._decoded(_decode_response, body)
        if response.error:
            self._fail_with(body)
        else:
            self._finish(response.status or (None if response.output is None else "completed"), response)

    def close(self) -> None:
        """Nothing to do: an answer is complete with its terminal event and with nothing less."""

    def _event(self, payload: bytes) -> _Event:
        try:
            return _decode_event(payload)
        except msgspec.ValidationError:
            if payload == END_MARK:
                return _Event()
            # Events we do not read may have any shape; one that we do read may not.
            head = self._decoded(_decode_event_head, payload)
            if head.type in self._handlers:
                return self._decoded(_decode_event, payload)
            return _Event(type=head.type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._decoded(_decode_event, payload)

    def _decoded(self, decode: Callable[[bytes | msgspec.Raw], T], payload: bytes | msgspec.Raw) -> T:
        try:
            return decode(_NOTHING if payload == _NULL else payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._malformed(error, "valid JSON of the Responses API") from error

    def _block(self, event: _Event, kind: str) -> _Block:
        """By position, else by id (llama.cpp gives no positions), else the latest; and a new one where none fits."""
        name = event.item_id if event.output_index is None else event.output_index
        block = self._by_name.get(name)
        if block is not None and block.kind == kind:
            return block
        latest = self._blocks[-1] if self._blocks else None
        if latest is not None and latest.kind == kind and not latest.ended:
            return latest
        return self._new_block(kind, name)

    def _new_block(self, kind: str, *names: int | str | None) -> _Block:
        block = _Block(len(self._blocks), kind)
        self._blocks.append(block)
        for name in names:
            if name is not None:
                self._by_name[name] = block
        return block

    def _on_text(self, event: _Event) -> None:
        block = self._block(event, "message")
        if event.content_index is not None and event.content_index != block.part:
            self._next_text(block, event.content_index)
        if event.delta:
            self._parts.text(block.key, event.delta)

    def _on_refusal(self, event: _Event) -> None:
        self._refused = True
        self._on_text(event)

    def _on_text_done(self, event: _Event) -> None:
        """The whole text of a piece, of which all, some or nothing came as deltas."""
        block = self._block(event, "message")
        part = block.part if event.content_index is None else event.content_index
        if block.ended or part < block.part:
            return
        if part > block.part:
            self._next_text(block, part)
        if missing := self._missing(block, event.text or event.refusal):
            self._parts.text(block.key, missing)

    def _on_refusal_done(self, event: _Event) -> None:
        self._refused = True
        self._on_text_done(event)

    def _think(self, event: _Event, part: int) -> None:
        block = self._block(event, "reasoning")
        delta = event.delta
        if not delta:
            return
        if part != block.part:
            block.part = part
            if self._parts.is_open(block.key):
                delta = "\n\n" + delta
        self._parts.thinking(block.key, delta)

    def _on_arguments(self, event: _Event) -> None:
        self._parts.arguments(self._block(event, "function_call").key, event.delta or "")

    def _on_arguments_done(self, event: _Event) -> None:
        block = self._block(event, "function_call")
        self._parts.arguments(block.key, self._missing_arguments(block, event.arguments))

    def _on_item_added(self, event: _Event) -> None:
        head = self._decoded(_decode_item_head, event.item)
        block = self._new_block(head.type or "", event.output_index, head.id)
        if block.kind in _READ_ITEMS:
            item = self._decoded(_decode_item, event.item)
            block.phase = item.phase
            if block.kind == "function_call" and item.name:
                self._parts.tool(block.key, item.call_id or item.id, item.name)

    def _on_item_done(self, event: _Event) -> None:
        head = self._decoded(_decode_item_head, event.item)
        if head.type in _READ_ITEMS:
            if event.output_index is None and event.item_id is None:
                event.item_id = head.id
            self._complete(self._block(event, head.type), self._decoded(_decode_item, event.item))

    def _on_created(self, event: _Event) -> None:
        self._response_id = self._decoded(_decode_response, event.response).id

    def _on_terminal(self, event: _Event) -> None:
        self._finish(event.type.removeprefix("response."), self._decoded(_decode_response, event.response))

    def _on_other(self, event: _Event, payload: bytes) -> None:
        if event.type == "keepalive":
            self._parts.keepalive()
        elif event.type == "error" or event.error or (event.message and not event.type.startswith("response.")):
            self._fail(self._decoded(msgspec.json.decode, payload))

    def _complete(self, block: _Block, item: _Item) -> None:
        if block.ended:
            return
        if block.kind == "message":
            self._complete_message(block, item)
        elif block.kind == "reasoning":
            self._complete_reasoning(block, item)
        else:
            self._complete_call(block, item)
        block.ended = True

    def _complete_message(self, block: _Block, item: _Item) -> None:
        block.phase = item.phase or block.phase
        for index, content in enumerate(item.content or ()):
            self._refused = self._refused or content.type == "refusal"
            if index < block.part:
                continue
            if index > block.part:
                self._next_text(block, index)
            if missing := self._missing(block, content.text or content.refusal):
                self._parts.text(block.key, missing)
        self._end_text(block)

    def _complete_reasoning(self, block: _Block, item: _Item) -> None:
        parts = self._parts
        texts = [piece.text for piece in item.summary or item.content or () if piece.text]
        if missing := self._missing(block, "\n\n".join(texts)):
            parts.thinking(block.key, missing)
        signature = _reasoning_signature(item)
        withheld = signature is not None and not parts.is_open(block.key)
        if withheld:
            parts.open_thinking(block.key)
        if signature is not None:
            parts.sign(block.key, signature)
        parts.end(block.key, redacted=withheld)

    def _complete_call(self, block: _Block, item: _Item) -> None:
        parts = self._parts
        if not parts.is_open(block.key):
            parts.tool(block.key, item.call_id or item.id, item.name or "")
        parts.arguments(block.key, self._missing_arguments(block, item.arguments))
        parts.end(block.key)

    def _missing(self, block: _Block, whole: str | None) -> str:
        """The rest of a text of which a part was streamed; what was streamed counts when the two disagree."""
        written = self._parts.written(block.key)
        return whole[len(written) :] if whole and whole.startswith(written) else ""

    def _missing_arguments(self, block: _Block, whole: msgspec.Raw) -> str:
        return self._missing(block, self._decoded(arguments_json, whole))

    def _next_text(self, block: _Block, part: int) -> None:
        self._end_text(block)
        block.part = part

    def _end_text(self, block: _Block) -> None:
        if block.phase and self._parts.is_open(block.key):
            self._parts.sign(block.key, block.phase)
        self._parts.end(block.key)

    def _finish(self, status: str | None, response: _Response) -> None:
        parts = self._parts
        if response.usage is not None:
            parts.usage = _usage(response.usage)
        if response.status in ("failed", "cancelled"):
            status = response.status  # whatever the event is called
        if status in ("failed", "cancelled"):
            said = response.error or {"message": f"the answer was {status} and the reason not given"}
            self._fail({"error": said})
        elif status in ("completed", "incomplete"):
            self._complete_rest(response.output or [])
            self._end(self._end_reason(status, response), STOP_REASONS, response.id or self._response_id)

    def _complete_rest(self, output: list[msgspec.Raw]) -> None:
        """Items whose end, or of which anything, was not streamed. Both lists are in order of output."""
        for position, raw in enumerate(output):
            head = self._decoded(_decode_item_head, raw)
            known = position < len(self._blocks)
            block = self._blocks[position] if known else self._new_block(head.type or "")
            if block.kind == head.type and block.kind in _READ_ITEMS:
                self._complete(block, self._decoded(_decode_item, raw))

    def _end_reason(self, status: str, response: _Response) -> str:
        """The status, unless something says more: an answer that does not call itself completed is none."""
        details = response.incomplete_details
        if self._refused:
            return "content_filter"
        return (details.reason if details else None) or response.status or status


def _reasoning_signature(item: _Item) -> str | None:
    """What goes back to the model: the item with its encrypted content, or with its open text (llama.cpp). Never both
    ("content: array too long", says OpenAI), and never the bare id: nothing is stored under it."""
    summary = item.summary or []
    if item.encrypted_content:
        kept = ReplayedReasoning(summary=summary, id=item.id, encrypted_content=item.encrypted_content)
    elif item.content:
        kept = ReplayedReasoning(summary=summary, id=item.id, content=item.content)
    else:
        return None
    return msgspec.json.encode(kept).decode()


def replayed_reasoning(signature: str | None) -> ReplayedReasoning | None:
    """The item again, from the signature its thinking block was given; None when there is none."""
    if signature is None:
        return None
    try:
        return _decode_reasoning(signature)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _usage(usage: Any) -> Usage:
    """OpenAI counts cached tokens inside the input and reasoning inside the output."""
    read = token_count(usage, "input_tokens_details", "cached_tokens")
    written = token_count(usage, "input_tokens_details", "cache_write_tokens")
    return Usage(
        input=max(0, token_count(usage, "input_tokens") - read - written),
        output=token_count(usage, "output_tokens"),
        cache_read=read,
        cache_write=written,
        reasoning=token_count(usage, "output_tokens_details", "reasoning_tokens"),
    )
