"""The bytes a model API would send, encoded once.

In: an API ("openai" or "anthropic") and how many events go into one write. Out: the HTTP head, the opening events,
deltas as ready-made HTTP chunks, the closing events. Pure; knows no socket and no clock.

Every stream says the same 2,000 words over and over. Its first delta is special: its text is the moment at which it
was written (`stamp`), so a client on the same machine can tell how late it saw it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DISTINCT_WORDS = 2_000
MODEL_ID = "bench-model"
STAMP_PREFIX = "@"

_ID = "chatcmpl-9f8e7d6c5b4a39281706f5e4d3c2b1a0"


@dataclass(frozen=True)
class Traffic:
    """One API's answer in pieces. `writes[i]` holds `events_per_write` deltas as one HTTP chunk."""

    opening: bytes
    deltas: tuple[bytes, ...]
    writes: tuple[bytes, ...]
    events_per_write: int
    stamped: Callable[[int], bytes]
    """The first delta, as an event without its HTTP chunk frame, for a time in nanoseconds."""
    closing: bytes


def words() -> tuple[str, ...]:
    """Word-sized deltas as a tokenizer cuts them: mostly a space and two to four letters."""
    chosen = random.Random(20)
    letters = "etaoinshrdlucmfwypvbgkq"
    return tuple(" " + "".join(chosen.choices(letters, k=chosen.choice((2, 3, 3, 4)))) for _ in range(DISTINCT_WORDS))


def stamp_of(text: str) -> int:
    """When upstream wrote its first delta, in nanoseconds of the monotonic clock."""
    return int(text.removeprefix(STAMP_PREFIX))


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of HTTP chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def traffic(api: str, events_per_write: int) -> Traffic:
    """The answer of `api`, cut into writes of that many deltas."""
    opening, delta, closing = _OPENAI if api == "openai" else _ANTHROPIC
    deltas = tuple(delta(word) for word in words())
    return Traffic(
        opening=chunk(opening),
        deltas=deltas,
        writes=tuple(
            chunk(b"".join(deltas[start : start + events_per_write]))
            for start in range(0, DISTINCT_WORDS, events_per_write)
        ),
        events_per_write=events_per_write,
        stamped=lambda now: delta(f"{STAMP_PREFIX}{now}"),
        closing=chunk(closing) + LAST_CHUNK,
    )


def _openai_event(choices: list[dict[str, Any]], **more: Any) -> bytes:
    body = {
        "id": _ID,
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": MODEL_ID,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _openai_choice(delta: dict[str, Any], finish_reason: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]


def _openai_delta(text: str) -> bytes:
    return _openai_event(_openai_choice({"content": text}), usage=None)


def _anthropic_event(name: str, **fields: Any) -> bytes:
    body = json.dumps({"type": name, **fields}, separators=(",", ":")).encode()
    return b"event: " + name.encode() + b"\ndata: " + body + b"\n\n"


def _anthropic_delta(text: str) -> bytes:
    return _anthropic_event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


_OPENAI = (
    _openai_event(_openai_choice({"role": "assistant", "content": "", "refusal": None}), usage=None),
    _openai_delta,
    _openai_event(_openai_choice({}, "stop"), usage=None)
    + _openai_event(
        [],
        usage={
            "prompt_tokens": 12,
            "completion_tokens": 2_000,
            "total_tokens": 2_012,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
    )
    + b"data: [DONE]\n\n",
)

_ANTHROPIC = (
    _anthropic_event(
        "message_start",
        message={
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
            "type": "message",
            "role": "assistant",
            "model": MODEL_ID,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 12,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 4,
                "output_tokens": 1,
            },
        },
    )
    + _anthropic_event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + _anthropic_event("ping"),
    _anthropic_delta,
    _anthropic_event("content_block_stop", index=0)
    + _anthropic_event(
        "message_delta",
        delta={"stop_reason": "end_turn", "stop_sequence": None},
        usage={"output_tokens": 2_000},
    )
    + _anthropic_event("message_stop"),
)
