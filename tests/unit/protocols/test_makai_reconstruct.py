"""Proxy encoding: what is rebuilt from it, what it saves, and what full encoding repeats."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from support.answers import answers
from support.profiles import examples
from support.streams import TIMESTAMP, model, new_parts
from support.wire import JSON, Server, ask

from makai.core.content import Text
from makai.core.errors import ParseError
from makai.core.messages import AssistantMessage
from makai.core.stream_events import Done, Keepalive, StreamEvent
from makai.core.usage import Usage
from makai.protocols.makai import projection
from makai.protocols.makai.reconstruct import Reconstructor


def both_encodings(events: list[StreamEvent]) -> tuple[list[JSON], list[JSON]]:
    full, proxy = Server(), Server()
    return full.play(full.open(), events), proxy.play(proxy.open(ask(encoding="proxy")), events)


@pytest.mark.req("MK-PROV-023")
def test_a_new_reconstructor_holds_an_empty_message_of_its_model() -> None:
    assert Reconstructor("m", 7).message == AssistantMessage(content=(), model="m", timestamp=7)


@pytest.mark.req("MK-PROV-024", "MK-PROV-025")
@given(events=answers)
@examples(1000)
def test_what_is_rebuilt_from_proxy_events_equals_full_encoding(events: list[StreamEvent]) -> None:
    full, proxy = both_encodings(events)
    rebuilt = Reconstructor("test-model", 0)
    for said, frame in zip(full[:-1], proxy[:-1], strict=True):
        rebuilt.apply(str(frame["type"]), msgspec.json.encode(frame["payload"]))
        payload = said["payload"]
        assert isinstance(payload, dict)
        if "partial" in payload:
            partial = msgspec.convert(payload["partial"], AssistantMessage)
            assert rebuilt.message.content == partial.content
    if isinstance(events[-1], Done):
        final = rebuilt.result(msgspec.json.encode(proxy[-1]["payload"]))
        assert final == events[-1].message
        assert rebuilt.result(msgspec.json.encode(full[-1]["payload"])) == events[-1].message


@pytest.mark.req("MK-PROV-027")
@pytest.mark.parametrize(("usage", "expected"), [({}, Usage()), ({"usage": {"input": 4}}, Usage(input=4))])
def test_an_error_keeps_the_content_and_takes_usage_only_when_it_is_there(
    usage: dict[str, object], expected: Usage
) -> None:
    rebuilt = Reconstructor("m", 7)
    rebuilt.apply("text_start", b'{"content_index":0}')
    rebuilt.apply("text_delta", b'{"content_index":0,"delta":"Hel"}')
    rebuilt.apply("error", msgspec.json.encode({"reason": "error", "error_message": "boom", **usage}))
    assert rebuilt.message == AssistantMessage(
        content=(Text(text="Hel"),), model="m", timestamp=7, stop_reason="error", usage=expected, error_message="boom"
    )


@pytest.mark.req("MK-PROV-028")
def test_keepalives_and_events_of_the_future_change_nothing() -> None:
    rebuilt = Reconstructor("m", 7)
    rebuilt.apply("text_start", b'{"content_index":0}')
    before = rebuilt.message
    for kind in ("keepalive", "ping"):
        rebuilt.apply(kind, b'{"reason":"error"}')
    for other in (b'{"note":7}', b'{"note":null,"level":"loud"}', b'{"type":"start"}', b"[]"):
        assert rebuilt.apply("keepalive", other) == Keepalive()
    assert rebuilt.apply("hologram_delta", b"{}") is None
    assert rebuilt.message == before


@pytest.mark.parametrize("payload", [b"{", b"{}", b'{"content_index":"0","delta":"x"}', b"[]"])
def test_a_malformed_event_is_one_clear_error(payload: bytes) -> None:
    with pytest.raises(ParseError, match="text_delta"):
        Reconstructor("m", 7).apply("text_delta", payload)


WORDS = ("The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", ".")
COUNTS = (10, 30, 100, 300, 1_000)
DOCUMENT = Path(__file__).parents[3] / "docs" / "protocol" / "makai.md"
TABLE = re.compile(r"<!-- proxy-sizes -->\n(.*?)<!-- /proxy-sizes -->", re.DOTALL)


def sizes(deltas: int) -> tuple[int, int]:
    """Bytes of all events and the result of an answer of so many words, in full and in proxy encoding."""
    parts = new_parts(model("openai-completions", "openai", id="gpt-4o"))
    parts.start()
    for number in range(deltas):
        parts.text(0, WORDS[number % len(WORDS)])
    parts.usage = Usage(input=20, output=deltas)
    parts.done("end_turn")
    full, proxy = both_encodings(parts.take())
    return len(b"".join(map(msgspec.json.encode, full))), len(b"".join(map(msgspec.json.encode, proxy)))


def saved(deltas: int) -> float:
    full, proxy = sizes(deltas)
    return 1 - proxy / full


def test_the_documented_table_of_proxy_sizes_is_what_a_server_sends() -> None:
    """When it fails because the protocol changed, put the table of the failure into the document."""
    rows = [(count, *sizes(count)) for count in COUNTS]
    table = "| deltas | full, bytes | proxy, bytes | saved |\n|---|---|---|---|\n" + "".join(
        f"| {count:,} | {full:,} | {proxy:,} | {1 - proxy / full:.0%} |\n" for count, full, proxy in rows
    )
    documented = TABLE.search(DOCUMENT.read_text(encoding="utf-8"))
    assert documented is not None
    assert documented[1] == table


@pytest.mark.req("MK-PROV-029")
def test_proxy_encoding_saves_more_than_half_of_the_bytes_of_many_small_deltas() -> None:
    assert all(saved(count) > 0.5 for count in (100, 300, 1_000))


@pytest.mark.req("MK-PROV-019")
def test_partial_is_left_out_of_a_very_long_answer_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "MAX_PARTIAL_CHARS", 10)
    parts = new_parts(model("x"))
    parts.start()
    for piece in ("12345", "67890", "more", " and more"):
        parts.text(0, piece)
    parts.done("end_turn")
    full, _ = both_encodings(parts.take())

    deltas = [frame["payload"] for frame in full if frame["type"] == "text_delta"]
    assert ["partial" in payload for payload in deltas] == [True, True, False, False]
    rebuilt = Reconstructor("test-model", TIMESTAMP)
    for frame in full[:-1]:
        rebuilt.apply(str(frame["type"]), msgspec.json.encode(frame["payload"]))
    assert rebuilt.message.text() == "1234567890more and more"
