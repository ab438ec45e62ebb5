"""The line of the chat: what is taken out of it, and a queued message that is taken back into it."""

from __future__ import annotations

import pytest
from prompt_toolkit.buffer import Buffer

from makai.cli.terminal.composer import Composer, TypedMessage
from makai.cli.terminal.menu import Choice, Picker
from makai.core.content import Image

PICTURE = Image(data="AAAA", mime_type="image/png")


@pytest.fixture
def buffer() -> Buffer:
    return Buffer(multiline=True)


@pytest.fixture
def composer(buffer: Buffer) -> Composer:
    composer = Composer(buffer, lambda text: [Choice(value="model", label="/model")], lambda: None)
    buffer.on_text_changed += lambda _: composer.typed()
    return composer


def test_a_message_that_was_taken_back_is_sent_again_as_it_was(composer: Composer, buffer: Buffer) -> None:
    draft = TypedMessage(text="look at [image]", pictures={"[image]": PICTURE}, was_queued=True)
    composer.take_back(draft)

    assert (composer.is_taken_back, composer.is_empty) == (True, False)
    assert composer.take() == draft
    assert (composer.is_taken_back, composer.is_empty) == (False, True)
    composer.restore(draft)  # it could not be sent
    assert composer.take() == draft
    buffer.insert_text("another")
    assert composer.take() == TypedMessage(text="another")


def test_what_was_typed_meanwhile_stays_behind_the_message(composer: Composer, buffer: Buffer) -> None:
    buffer.insert_text("and more")
    composer.take_back(TypedMessage(text="first", was_queued=True))

    assert composer.take() == TypedMessage(text="first\nand more", was_queued=True)


@pytest.mark.parametrize("how", ["clear", "delete"])
def test_a_line_that_was_emptied_holds_nothing_of_the_message(composer: Composer, buffer: Buffer, how: str) -> None:
    composer.take_back(TypedMessage(text="[image]", pictures={"[image]": PICTURE}, was_queued=True))
    composer.clear() if how == "clear" else buffer.delete_before_cursor(len("[image]"))
    buffer.insert_text("new")

    assert not composer.is_taken_back
    assert composer.take() == TypedMessage(text="new")


@pytest.mark.parametrize(("typed", "chosen"), [("loc", "local/a"), ("", "openai/b")])
def test_what_was_typed_before_a_picker_opened_filters_it(
    composer: Composer, buffer: Buffer, typed: str, chosen: str
) -> None:
    found: list[str] = []
    choices = [Choice(value=name, label=name) for name in ("acme/c", "openai/b", "local/a")]
    buffer.insert_text(typed)
    composer.pick(Picker("Model", choices, "openai/b"), found.append)

    assert (buffer.text, composer.enter(), found, buffer.text) == (typed, True, [chosen], "")


def test_no_menu_opens_over_a_message_that_was_taken_back(composer: Composer) -> None:
    composer.take_back(TypedMessage(text="/model", was_queued=True))
    assert (composer.is_choosing, composer.enter()) == (False, False)


def test_bytes_without_a_character_are_read_as_utf_8_or_marked(composer: Composer, buffer: Buffer) -> None:
    typed = (
        "漢字 caf\u00e9".encode().decode("ascii", "surrogateescape")
        + " or caf"
        + b"\xe9".decode("ascii", "surrogateescape")
    )
    buffer.insert_text(typed)

    assert composer.take() == TypedMessage(text="漢字 café or caf\ufffd")
    assert buffer.history.get_strings() == ["漢字 café or caf\ufffd"]
