"""What the messages of an `agent_message` add to the conversation of a session."""

from __future__ import annotations

import pytest
from support.messages import call, result

from makai.core.content import Audio, ContentPart, Image, Text, Thinking, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, UserMessage
from makai.protocols.makai.given_history import MAX_MESSAGES, added_messages, given_messages
from makai.protocols.makai.payloads import ChatMessage

pytestmark = pytest.mark.req("MK-AGENT-016", "MK-AGENT-022")

PICTURE = Image(data="AAAA", mime_type="image/png")
SOUND = Audio(data="AAAA", mime_type="audio/wav")


def user(content: str | tuple[ContentPart, ...]) -> ChatMessage:
    return ChatMessage(role="user", content=content)


def said(text: str, stop_reason: str = "end_turn") -> AssistantMessage:
    return AssistantMessage(content=(Text(text=text),), stop_reason=stop_reason)  # type: ignore[arg-type]


ONE, TWO, THREE = (UserMessage(content=text) for text in ("one", "two", "three"))
FIRST, SECOND = said("First."), said("Second.")
LOOKED = AssistantMessage(content=(Text(text="Let me look."), call("c1", "look", '{"at": 1}')), stop_reason="tool_use")
SEEN = result("c1", "look", "Water.")
LOG: tuple[Message, ...] = (ONE, LOOKED, SEEN, FIRST)


@pytest.mark.parametrize(
    "chat",
    [
        [],
        [user("one"), ChatMessage(role="tool", content="x", tool_call_id="c1")],
        [user((ToolResult(tool_call_id="c1", tool_name="look", content="x"),))],
        [user((Thinking(thinking="x"),))],
        [ChatMessage(role="assistant", content=(PICTURE,))],
        [ChatMessage(role="tool", content="x")],
        [user("one")] * (MAX_MESSAGES + 1),
    ],
    ids=range(7),
)
def test_what_is_no_conversation_is_an_invalid_request(chat: list[ChatMessage]) -> None:
    with pytest.raises(InvalidRequest):
        given_messages(chat)


@pytest.mark.parametrize(
    ("given", "logged", "added"),
    [
        ((ONE, FIRST, TWO), (), (ONE, FIRST, TWO)),
        ((TWO, THREE), LOG, (TWO, THREE)),
        ((ONE, FIRST, TWO), LOG, (TWO,)),
        ((*LOG, TWO), LOG, (TWO,)),
        ((*LOG, TWO, SECOND, THREE), LOG, (TWO, SECOND, THREE)),
        ((ONE, said("Let me look. First."), TWO), LOG, (TWO,)),
        ((ONE, said("\nFirst.\n"), TWO), LOG, (TWO,)),
        ((ONE, FIRST), LOG, ()),
        ((ONE,), (ONE,), ()),
        ((ONE,), (ONE, LOOKED, SEEN), ()),
        ((ONE, TWO), (ONE,), (TWO,)),
        ((ONE,), (ONE, FIRST), (ONE,)),
        ((ONE, FIRST, TWO), (ONE, FIRST, TWO), ()),
        ((ONE, FIRST, TWO), (ONE, FIRST, TWO, said("Seco", "aborted")), (TWO,)),
        ((ONE, FIRST, TWO, said("Seco"), THREE), (ONE, FIRST, TWO, said("Seco", "aborted")), (THREE,)),
        ((ONE, FIRST, THREE), (ONE, said("Fir", "error"), FIRST), (THREE,)),
        ((SystemMessage(content="Be kind."), ONE), (SystemMessage(content="Be kind."),), (ONE,)),
        ((ONE, FIRST, TWO), (ONE, FIRST, TWO, SECOND), (TWO,)),
        ((ONE, FIRST, TWO), (ONE, FIRST, TWO, LOOKED, SEEN, SECOND), (TWO,)),
    ],
    ids=range(19),
)
def test_words_are_added_and_a_whole_conversation_adds_what_it_has_beyond_the_log(
    given: tuple[Message, ...], logged: tuple[Message, ...], added: tuple[Message, ...]
) -> None:
    assert added_messages(given, logged) == added


@pytest.mark.parametrize(
    ("given", "logged", "says"),
    [
        ((ONE, said("Something else."), TWO), LOG, "messages[1]"),
        ((TWO, FIRST, THREE), LOG, "messages[0]"),
        ((FIRST, TWO), LOG, "messages[0]"),
        ((ONE, FIRST), (*LOG, TWO, SECOND), "ends before"),
        ((ONE, FIRST, TWO), (*LOG, TWO, SECOND, THREE), "ends before"),
        ((ONE, AssistantMessage(content=(call("c1", "look", '{"at": 2}'),)), SEEN, FIRST, TWO), LOG, "messages[1]"),
        ((ONE, LOOKED, result("c1", "look", "Sand."), FIRST, TWO), LOG, "messages[2]"),
        ((UserMessage(content=(Text(text="one"), PICTURE)), FIRST, TWO), LOG, "messages[0]"),
        ((SystemMessage(content="Be kind."), ONE, FIRST, TWO), LOG, "messages[0]"),
    ],
    ids=range(9),
)
def test_a_conversation_that_does_not_agree_with_the_log_is_an_invalid_request(
    given: tuple[Message, ...], logged: tuple[Message, ...], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says.replace("[", r"\[")):
        added_messages(given, logged)


def test_pictures_and_sounds_of_a_user_are_compared_too() -> None:
    shown = UserMessage(content=(Text(text="What is it?"), PICTURE, SOUND))
    assert added_messages((shown, FIRST, TWO), (shown, FIRST)) == (TWO,)


@pytest.mark.parametrize("words", ["", "a"])
def test_a_hostile_history_is_compared_in_bounded_time(words: str) -> None:
    """Each of these messages may be anywhere in the log: without a bound that takes minutes."""
    logged = (AssistantMessage(content=()),) * MAX_MESSAGES
    given = (AssistantMessage(content=(Text(text=words),)),) * MAX_MESSAGES

    with pytest.raises(InvalidRequest, match="cannot be compared"):
        added_messages(given, (*logged, FIRST))
