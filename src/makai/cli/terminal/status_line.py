"""The line below the prompt, from a template such as "{model} · {branch} · {cost}" (`status_line` in config.toml).

Fields are filled in; nothing is executed. A part between two "·" whose fields are all empty is left out.
"""

from __future__ import annotations

import string
import time
from pathlib import Path
from typing import Final

from makai.cli.session_selection import shown_agent
from makai.cli.terminal.styled_text import Line, Span, line
from makai.cli.terminal.transcript_view import TranscriptView
from makai.cli.terminal.usage_text import all_input, context_share, money, tokens
from makai.core.errors import InvalidRequest
from makai.core.visible_text import one_line

DEFAULT: Final = "{mode} · {sandbox} · {model} · {context} · {cost}"
FIELDS: Final = ("model", "mode", "sandbox", "context", "cost", "tokens", "branch", "folder", "title", "session")
SEPARATOR: Final = "·"
BRANCH_EVERY_S: Final = 2.0
_SANDBOXES: Final = {"read-only": "read-only sandbox", "full-access": "NO SANDBOX"}
"""The usual one is not mentioned."""


class StatusLine:
    def __init__(self, template: str = "") -> None:
        self._parts = [_fields(part) for part in (template or DEFAULT).split(SEPARATOR)]
        self._branch = ""
        self._branch_at = -BRANCH_EVERY_S

    def line(self, view: TranscriptView, session_id: str | None = None) -> Line:
        values = self._values(view, session_id)
        parts = [
            "".join(text + (values[name] if name else "") for text, name in part).strip()
            for part in self._parts
            if not any(name for _, name in part) or any(name and values[name] for _, name in part)
        ]
        return line(Span("  " + one_line(f" {SEPARATOR} ".join(filter(None, parts))), "dim"))

    def _values(self, view: TranscriptView, session_id: str | None) -> dict[str, str]:
        state = view.state
        total = view.usage.total if view.usage is not None else state.usage
        used = all_input(total) + total.output
        return {
            "model": shown_agent(state),
            "mode": state.mode,
            "sandbox": _SANDBOXES.get(state.terms.sandbox, "") if state.terms.builtin_tools else "",
            "context": context_share(view.usage),
            "cost": money(total.cost_usd) if total.cost_usd else "",
            "tokens": f"{tokens(used)} tokens" if used else "",
            "branch": self._current_branch(state.cwd),
            "folder": Path(state.cwd).name if state.cwd else "",
            "title": state.title or "",
            "session": (session_id or "")[:8],
        }

    def _current_branch(self, cwd: str | None) -> str:
        if not any(name == "branch" for part in self._parts for _, name in part):
            return ""
        if (now := time.monotonic()) - self._branch_at >= BRANCH_EVERY_S:
            self._branch, self._branch_at = branch_of(Path(cwd or ".")), now
        return self._branch


def branch_of(folder: Path) -> str:
    """The git branch of a folder, or the beginning of the commit; empty outside of a repository."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_file():  # a worktree
                git = place / git.read_text(errors="replace").removeprefix("gitdir:").strip()
            head = (git / "HEAD").read_text(errors="replace").strip()
        except OSError:
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


def _fields(part: str) -> list[tuple[str, str]]:
    """Pairs of text and the field that follows it; empty when none does."""
    try:
        found = [(text, name or "") for text, name, _, _ in string.Formatter().parse(part)]
    except ValueError as error:
        raise InvalidRequest(f"status_line is no template: {error}.", hint=_hint()) from None
    if unknown := [name for _, name in found if name and name not in FIELDS]:
        raise InvalidRequest(f"status_line has no field {{{one_line(unknown[0])}}}.", hint=_hint())
    return found


def _hint() -> str:
    return f"The fields are {', '.join(f'{{{name}}}' for name in FIELDS)}."
