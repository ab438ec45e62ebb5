"""Anthropic Messages, the answer: server-sent events, or one JSON document, become parts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from makai.core.messages import StopReason
from makai.core.usage import Usage, token_count
from makai.providers.base import END_MARK, AnswerDecoder, ProviderRequest, arguments_json
from makai.providers.parts import Parts
from makai.wire.sse import SSEDecoder

STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end_turn",
    "pause_turn": "end_turn",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "refusal": "refusal",
}


class _Block(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    stop_reason: str | None = None
    usage: Any = None
    content: list[_Block] | None = None


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    """Parts that only some events have stay raw: an event we do not know must not fail for its fields."""

    type: str | None = None
    index: int | None = None
    delta: _Delta | None = None
    message: msgspec.Raw = msgspec.Raw()
    content_block: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_block = msgspec.json.Decoder(_Block | None).decode
_decode_message = msgspec.json.Decoder(_Message | None).decode
_decode_any = msgspec.json.Decoder().decode
_UNDECODABLE = (ValueError, RecursionError)
"""`msgspec.DecodeError` and `UnicodeDecodeError` are both `ValueError`."""
_TEXT, _THINKING, _TOOL = range(3)
_NO_ERROR: Final = frozenset({b"null", b'""', b"{}", b"[]", b"false"})
"""What gateways write into `error` while there is none."""


class MessagesDecoder(AnswerDecoder):
    """Reads one answer. A block's key is its index and its kind, so that a confused server cannot mix blocks up."""

    def __init__(self, request: ProviderRequest, parts: Parts) -> None:
        super().__init__(request, parts)
        self._sse = SSEDecoder()
        self._index = -1
        self._signatures: dict[int, str] = {}
        self._given_input: dict[int, str] = {}
        self._response_id: str | None = None
        self._stop_reason: str | None = None
        self._handlers: dict[str | None, Callable[[_Event], None]] = {
            "content_block_delta": self._on_delta,
            "content_block_start": self._on_block_start,
            "content_block_stop": lambda event: self._stop_block(self._index if event.index is None else event.index),
            "message_start": self._on_message_start,
            "message_delta": self._on_message_delta,
            "message_stop": lambda event: self._finish(),
            "ping": lambda event: self._parts.keepalive(),
        }

    def feed(self, data: bytes) -> None:
        parts = self._parts
        for payload in self._sse.feed_data(data):
            if parts.finished:
                return
            try:
                event = _decode_event(payload)
                delta = event.delta
                if event.error and bytes(event.error) not in _NO_ERROR:
                    self._fail(_decode_any(payload))
                elif delta is not None and delta.type == "text_delta" and event.type == "content_block_delta":
                    # Nearly every event is this one, so it costs no call of a handler or of `_key`.
                    parts.text(3 * (self._index if event.index is None else event.index), delta.text or "")
                elif handler := self._handlers.get(event.type):
                    handler(event)
            except _UNDECODABLE as error:
                if payload != END_MARK:
                    raise self._malformed(error) from error

    def whole(self, body: bytes) -> None:
        try:
            event = _decode_event(body)
            if event.error and bytes(event.error) not in _NO_ERROR:
                self._fail(_decode_any(body))
                return
            message = _decode_message(body) or _Message()
            for index, block in enumerate(message.content or ()):
                self._start_block(index, block)
                self._stop_block(index)
        except _UNDECODABLE as error:
            raise self._malformed(error) from error
        self._response_id = message.id
        self._stop_reason = message.stop_reason
        self._count(message.usage)
        if message.type == "message":
            self._finish()

    def close(self) -> None:
        """The body ended; an answer is complete once its stop reason is known."""
        if self._stop_reason is not None:
            self._finish()

    def _finish(self) -> None:
        for index in list(self._given_input):  # their ends did not come
            self._stop_block(index)
        self._end(self._stop_reason or "end_turn", STOP_REASONS, self._response_id)

    def _on_delta(self, event: _Event) -> None:
        delta = event.delta
        if delta is None:
            return
        # llama.cpp leaves out the index at times: it means the block that began last.
        index = self._index if event.index is None else event.index
        if delta.type == "input_json_delta":
            self._parts.arguments(_key(index, _TOOL), delta.partial_json or "")
        elif delta.type == "thinking_delta":
            self._parts.thinking(_key(index, _THINKING), delta.thinking or "")
        elif delta.type == "signature_delta":
            self._sign(index, delta.signature or "")

    def _sign(self, index: int, piece: str) -> None:
        if piece and self._parts.is_open(_key(index, _THINKING)):
            self._signatures[index] = self._signatures.get(index, "") + piece
            self._parts.sign(_key(index, _THINKING), self._signatures[index])

    def _on_block_start(self, event: _Event) -> None:
        self._index = self._index + 1 if event.index is None else event.index
        if event.content_block and (block := _decode_block(event.content_block)):
            self._start_block(self._index, block)

    def _start_block(self, index: int, block: _Block) -> None:
        self._stop_block(index)
        parts = self._parts
        match block.type:
            case "text":
                parts.text(_key(index, _TEXT), block.text or "")
            case "thinking":
                parts.open_thinking(_key(index, _THINKING))
                if block.thinking:
                    parts.thinking(_key(index, _THINKING), block.thinking)
                self._sign(index, block.signature or "")
            case "redacted_thinking":
                parts.open_thinking(_key(index, _THINKING))
                parts.sign(_key(index, _THINKING), block.data or "")
                parts.end(_key(index, _THINKING), redacted=True)
            case "tool_use":
                parts.tool(_key(index, _TOOL), block.id, block.name or "")
                # Normally `{}` here and the arguments as deltas; some servers give them at once.
                given = arguments_json(block.input)
                if given not in ("", "{}"):
                    self._given_input[index] = given

    def _stop_block(self, index: int) -> None:
        parts = self._parts
        given = self._given_input.pop(index, None)
        if given is not None and not parts.written(_key(index, _TOOL)):
            parts.arguments(_key(index, _TOOL), given)
        self._signatures.pop(index, None)
        parts.end(_key(index, _TEXT))
        parts.end(_key(index, _THINKING))
        parts.end(_key(index, _TOOL))

    def _on_message_start(self, event: _Event) -> None:
        if event.message and (message := _decode_message(event.message)):
            self._response_id = message.id
            self._count(message.usage)

    def _on_message_delta(self, event: _Event) -> None:
        if event.delta and event.delta.stop_reason:
            self._stop_reason = event.delta.stop_reason
        if event.usage:
            self._count(_decode_any(event.usage))

    def _count(self, usage: Any) -> None:
        """ "The token counts shown in the usage field of the message_delta event are cumulative." """
        before = self._parts.usage
        self._parts.usage = Usage(
            input=max(before.input, token_count(usage, "input_tokens")),
            output=max(before.output, token_count(usage, "output_tokens")),
            cache_read=max(before.cache_read, token_count(usage, "cache_read_input_tokens")),
            cache_write=max(before.cache_write, token_count(usage, "cache_creation_input_tokens")),
            reasoning=max(before.reasoning, token_count(usage, "output_tokens_details", "thinking_tokens")),
        )


def _key(index: int, kind: int) -> int:
    return 3 * index + kind
