"""The keys that answer an approval, the same in the chat and in `makai run`; `web/src/lib/approval_keys.ts` is their
copy for the browser.

A question offers only what it can do: without a rule there is nothing to allow for the session or always. Faces that
read whole lines take an answer only when the line is that answer and nothing else: "also look at …" is no permission.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from makai.cli.line_reader import ESCAPE, LineReader
from makai.cli.terminal.approval_focus import READY_AFTER_S
from makai.core.session_events import GrantScope
from makai.core.visible_text import exact

GRANT_KEYS: Final[dict[str, GrantScope]] = {"y": "once", "s": "session", "a": "always"}
DENY_KEY: Final = "n"
REASON_KEY: Final = "e"
"""Only in the chat, which has a line to type a reason on."""
VIEW_KEY: Final = "v"

Answer: TypeAlias = GrantScope | Literal["deny", "stop", "view"]
KeyHelp: TypeAlias = tuple[str, str]
"""A key and what it does."""

_WORDS: Final[dict[str, Answer]] = {
    **GRANT_KEYS,
    **{"yes": "once", "session": "session", "always": "always"},
    **{DENY_KEY: "deny", "no": "deny", ESCAPE: "stop", "esc": "stop", VIEW_KEY: "view"},
}


def key_lines(rule: str, *, is_long: bool, with_reason: bool = False) -> list[list[KeyHelp]]:
    """The keys that a question offers, line by line. `rule` is what a wider approval would save."""
    short = [("y", "allow once"), (DENY_KEY, "deny"), ("Esc", "deny and stop")]
    short += [(REASON_KEY, "deny with a reason")] if with_reason else []
    short += [(VIEW_KEY, "view all lines")] if is_long else []
    if not rule:
        return [short]
    return [short, [("s", f"allow for this session: {exact(rule)}")], [("a", f"allow always: {exact(rule)}")]]


def offered_keys(rule: str, *, is_long: bool) -> str:
    """The letters that answer a question of the chat."""
    return "".join(
        key for line in key_lines(rule, is_long=is_long, with_reason=True) for key, _ in line if key != "Esc"
    )


def key_text(keys: list[KeyHelp]) -> str:
    return "  ".join(f"{key} {what}" for key, what in keys)


def answer_in(line: str, rule: str, *, is_long: bool) -> Answer | None:
    """The answer that a typed line is; None when it is none, or one that the question does not offer."""
    answer = _WORDS.get(line.strip(" \t").lower())
    match answer:
        case "session" | "always" if not rule:
            return None
        case "view" if not is_long:
            return None
        case _:
            return answer


async def discard_typed_ahead(lines: LineReader) -> None:
    """Forget what was typed before the question on the screen could be read."""
    if lines.is_terminal:
        await asyncio.sleep(READY_AFTER_S)
        lines.discard()


async def next_answer(lines: LineReader, prompt: Callable[[], None]) -> str:
    """The next typed line; `ESCAPE` as soon as that key is pressed. The end of the input is a no."""
    line = await lines.next(escape=True, prompt=prompt)
    return DENY_KEY if line is None else line
