"""Prompts that MCP servers offer to people, as a chat lists and runs them."""

from __future__ import annotations

from typing import Final

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.visible_text import one_line

MAX_DESCRIPTION: Final = 200


class ServerPromptArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    required: bool = False


class ServerPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything but `server` is what the server says: show it by `one_line` only."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[ServerPromptArgument, ...] = ()

    @property
    def ref(self) -> str:
        return f"{self.server}/{self.name}"

    def usage(self) -> str:
        """How it is called, on one line: `docs/summary topic=… [length=…]`."""
        words = (f"{each.name}=…" if each.required else f"[{each.name}=…]" for each in self.arguments)
        return one_line(" ".join((self.ref, *words)), MAX_DESCRIPTION)

    def check(self, given: dict[str, str]) -> None:
        """Raise `InvalidRequest` when arguments are missing or unknown."""
        known = {each.name for each in self.arguments}
        missing = [each.name for each in self.arguments if each.required and each.name not in given]
        if missing or given.keys() - known:
            problem = f"{missing[0]} is missing" if missing else f"it has no {sorted(given.keys() - known)[0]}"
            raise InvalidRequest(f"{one_line(self.ref)}: {one_line(problem)}.", hint=f"Write /prompts {self.usage()}")
