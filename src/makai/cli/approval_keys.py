"""The keys that answer an approval, the same in the chat and in `makai run`; `web/src/lib/approval_keys.ts` is their
copy for the browser.

A question offers only what it can do: without a rule there is nothing to allow for the session or always. Where it
offers several rules, a digit chooses the one that `s` and `a` then save. Faces that read whole lines take an answer
only when the line is that answer and nothing else: "also look at …" is no permission.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from makai.cli.line_reader import ESCAPE, LineReader
from makai.cli.terminal.approval_focus import READY_AFTER_S
from makai.core.confinement import OfferedGrant
from makai.core.session_events import ApprovalRequested, GrantScope
from makai.core.visible_text import exact_line

GRANT_KEYS: Final[dict[str, GrantScope]] = {"y": "once", "s": "session", "a": "always"}
DENY_KEY: Final = "n"
REASON_KEY: Final = "e"
"""Only in the chat, which has a line to type a reason on."""
VIEW_KEY: Final = "v"
MAX_WIDTHS: Final = 9
"""One digit chooses."""

Answer: TypeAlias = GrantScope | Literal["deny", "stop", "view"] | int
"""A number chooses a rule and answers nothing yet."""
KeyHelp: TypeAlias = tuple[str, str]
"""A key and what it does."""

_WORDS: Final[dict[str, Answer]] = {
    **GRANT_KEYS,
    **{"yes": "once", "session": "session", "always": "always"},
    **{DENY_KEY: "deny", "no": "deny", ESCAPE: "stop", "esc": "stop", VIEW_KEY: "view"},
}


class Widths(msgspec.Struct, frozen=True):
    """The rules that a wider approval may save, and which of them is chosen."""

    offered: tuple[OfferedGrant, ...]
    at: int = 0
    agents_own: str = ""
    """What another agent calls its own wider permission, which it keeps itself; there is no rule then."""

    @classmethod
    def of(cls, asked: ApprovalRequested) -> Widths:
        offered = asked.grants[:MAX_WIDTHS]
        rules = [grant.rule for grant in offered]
        if asked.grant in rules:
            return cls(offered, rules.index(asked.grant))
        if asked.grant:
            return cls((OfferedGrant(rule=asked.grant, label=""),))
        return cls((), agents_own=next((each.label for each in asked.options if each.kind == "allow_always"), ""))

    @property
    def chosen(self) -> OfferedGrant | None:
        return self.offered[self.at] if self.offered else None

    @property
    def rule(self) -> str:
        return "" if self.chosen is None else self.chosen.rule

    def choose(self, number: int) -> Widths:
        """With the rule of this number, counted from 1."""
        return Widths(self.offered, number - 1)

    def scopes(self) -> tuple[GrantScope, ...]:
        if self.chosen is None:
            return ("once", "session") if self.agents_own else ("once",)
        return ("once", "session") if self.chosen.session_only else ("once", "session", "always")


def key_lines(widths: Widths, *, is_long: bool, with_reason: bool = False) -> list[list[KeyHelp]]:
    """The keys that a question offers, line by line."""
    short = [("y", "allow once"), (DENY_KEY, "deny"), ("Esc", "deny and stop")]
    short += [(REASON_KEY, "deny with a reason")] if with_reason else []
    short += [(VIEW_KEY, "view all lines")] if is_long else []
    rule, scopes = exact_line(widths.rule or widths.agents_own), widths.scopes()
    lines = [short]
    lines += [[("s", f"allow for this session: {rule}")]] if "session" in scopes else []
    lines += [[("a", f"allow always: {rule}")]] if "always" in scopes else []
    if len(widths.offered) > 1:
        others = [(number, grant) for number, grant in enumerate(widths.offered, 1) if number - 1 != widths.at]
        lines += [
            [(str(number), f"or choose {exact_line(grant.label)}: {exact_line(grant.rule)}")]
            for number, grant in others
        ]
    return lines


def offered_keys(widths: Widths, *, is_long: bool) -> str:
    """The keys that answer a question of the chat."""
    lines = key_lines(widths, is_long=is_long, with_reason=True)
    return "".join(key for line in lines for key, _ in line if key != "Esc")


def key_text(keys: list[KeyHelp]) -> str:
    return "  ".join(f"{key} {what}" for key, what in keys)


def answer_in(line: str, widths: Widths, *, is_long: bool) -> Answer | None:
    """The answer that a typed line is; None when it is none, or one that the question does not offer."""
    typed = line.strip(" \t").lower()
    if len(widths.offered) > 1 and typed in map(str, range(1, len(widths.offered) + 1)):
        return int(typed)
    answer = _WORDS.get(typed)
    match answer:
        case "session" | "always" if answer not in widths.scopes():
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
