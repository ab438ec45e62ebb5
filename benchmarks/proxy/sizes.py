"""How many bytes a recorded answer has on the wire, in either encoding, plain and compressed.

In: answers recorded from llama.cpp's server: the short ones of the tests, and three of ordinary length in
`recordings`. Out: one `Sizes` per answer. Every answer goes through the adapter of its API and through the protocol's
server as it would in `makai serve`; only sockets are missing.

Run as `python -m proxy.sizes`; prints JSON.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from makai.core.messages import UserMessage
from makai.core.model import Model
from makai.core.request import Context
from makai.core.stream_events import Done, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from makai.protocols.makai.commands import OpenStream
from makai.protocols.makai.server import ServerConnection
from makai.providers.base import ProviderRequest
from makai.providers.parts import Parts
from makai.providers.registry import builtin_api

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent.parent / "tests" / "fixtures"
APIS = {"anthropic": "anthropic-messages", "chat": "openai-completions", "responses": "openai-responses"}
NOW_MS = 1_760_000_000_000
EMPTY_BLOCK = b"\x00\x00\xff\xff"


@dataclass(frozen=True)
class Sizes:
    """One recorded answer: everything the server sends for it, from ack to result."""

    group: str
    name: str
    events: int
    deltas: int
    text_bytes: int
    full: int
    full_deflated: int
    proxy: int
    proxy_deflated: int
    most_beyond_text: int
    """The largest proxy delta, without the text it carries."""


def recordings() -> dict[str, list[Path]]:
    """Every recorded stream, by group."""
    return {
        "short": sorted(FIXTURES.glob("llama_server*/*_stream.raw.txt")),
        "ordinary": sorted((HERE / "recordings").glob("*_stream.raw.txt")),
    }


def events_of(recording: Path) -> list[StreamEvent]:
    """The answer as the adapter of its API tells it."""
    api = builtin_api(APIS[recording.name.split("_")[0]])
    model = Model(id="smollm2-135m", api=api.id, provider="llama.cpp", base_url="http://127.0.0.1:8080/v1")
    parts = Parts(model, NOW_MS)
    parts.start()
    context = Context(messages=(UserMessage(content="Hello"),))
    decoder = api.decoder(ProviderRequest(model=model, context=context), parts)
    _, _, body = recording.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    decoder.feed(body)
    decoder.close()
    events = parts.take()
    if not isinstance(events[-1], Done):
        raise RuntimeError(f"{recording.name} is not a complete answer: {events[-1]!r}"[:300])
    return events


def frames_of(events: Sequence[StreamEvent], encoding: str) -> list[bytes]:
    """What the server sends for these events."""
    connection = ServerConnection(clock=lambda: NOW_MS)
    request = {
        "type": "stream_request",
        "stream_id": str(uuid.UUID(int=1)),
        "message_id": str(uuid.UUID(int=2)),
        "sequence": 1,
        "timestamp": NOW_MS,
        "version": 1,
        "encoding": encoding,
        "payload": {"model_ref": "llama.cpp/openai-completions@m", "context": {"messages": [_MESSAGE]}},
    }
    (command,) = connection.receive(json.dumps(request).encode(), 0.0)
    assert isinstance(command, OpenStream)
    connection.accept(command.stream_id)
    for event in events:
        connection.event(command.stream_id, event)
    return connection.take()


_MESSAGE = {"role": "user", "content": "Hello"}


def deflated(frames: Sequence[bytes]) -> int:
    """Bytes with permessage-deflate on every message, the window kept from one to the next (RFC 7692)."""
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    return sum(
        len((compressor.compress(frame) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(EMPTY_BLOCK))
        for frame in frames
    )


def sizes_of(group: str, recording: Path) -> Sizes:
    """One recorded answer, measured."""
    events = events_of(recording)
    full, proxy = frames_of(events, "full"), frames_of(events, "proxy")
    delta_frames = [frame for frame in proxy if json.loads(frame)["type"].endswith("_delta")]
    texts = [event.delta for event in events if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta)]
    beyond = [len(frame) - len(text.encode()) for frame, text in zip(delta_frames, texts, strict=True)]
    return Sizes(
        group=group,
        name=f"{recording.parent.name}/{recording.name.removesuffix('.raw.txt')}",
        events=len(events),
        deltas=len(texts),
        text_bytes=sum(len(text.encode()) for text in texts),
        full=sum(map(len, full)),
        full_deflated=deflated(full),
        proxy=sum(map(len, proxy)),
        proxy_deflated=deflated(proxy),
        most_beyond_text=max(beyond, default=0),
    )


if __name__ == "__main__":
    counted = [sizes_of(group, recording) for group, paths in recordings().items() for recording in paths]
    print(json.dumps([asdict(sizes) for sizes in counted]))
