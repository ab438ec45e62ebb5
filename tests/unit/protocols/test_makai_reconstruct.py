import msgspec
import pytest
from hypothesis import given
from support.answers import answers
from support.profiles import examples
from support.streams import model, new_parts
from support.wire import Server, ask

from makai.core.content import Text
from makai.core.errors import ParseError
from makai.core.messages import AssistantMessage
from makai.core.stream_events import Done, StreamEvent
from makai.core.usage import Usage
from makai.protocols.makai.reconstruct import Reconstructor


def both_encodings(events: list[StreamEvent]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
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
    assert rebuilt.apply("hologram_delta", b"{}") is None
    assert rebuilt.message == before


@pytest.mark.parametrize("payload", [b"{", b"{}", b'{"content_index":"0","delta":"x"}', b"[]"])
def test_a_malformed_event_is_one_clear_error(payload: bytes) -> None:
    with pytest.raises(ParseError, match="text_delta"):
        Reconstructor("m", 7).apply("text_delta", payload)


@pytest.mark.req("MK-PROV-029")
def test_proxy_encoding_saves_more_than_half_of_the_bytes() -> None:
    parts = new_parts(model("x"))
    parts.start()
    for word in ("word " * 400).split(" ")[:-1]:
        parts.text(0, word + " ")
    parts.done("end_turn")
    full, proxy = both_encodings(parts.take())
    sizes = [sum(len(msgspec.json.encode(frame)) for frame in frames) for frames in (full, proxy)]
    assert sizes[1] < 0.5 * sizes[0]
