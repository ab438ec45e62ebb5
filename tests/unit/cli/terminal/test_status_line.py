"""The line below the prompt is a template of fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.cli.terminal.status_line import StatusLine, branch_of
from makai.cli.terminal.styled_text import Span
from makai.cli.terminal.transcript_view import TranscriptView
from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.core.usage import Usage


def view_in(folder: str, *, is_used: bool = True) -> TranscriptView:
    view = TranscriptView("me", len)
    total = Usage(input=1_000, output=200, cost_usd=0.5)
    used = ev.UsageReported(total=total, context_tokens=25_000, context_window=200_000)
    facts: list[ev.SessionEvent] = [
        ev.SessionCreated(model_ref="acme/chat@one", cwd=folder),
        *([used] if is_used else []),
    ]
    for number, fact in enumerate(facts, 1):
        view.take(ev.Logged(event_id=number, ts=number, event=fact))
    return view


def shown(template: str, view: TranscriptView) -> str:
    (span,) = StatusLine(template).line(view, "3f2c9a1b77")
    assert span.style == "dim"
    return span.text


def test_the_usual_line_says_mode_model_context_and_cost() -> None:
    assert StatusLine().line(view_in("/w")) == (Span("  ask · acme/one · 12% of context · $0.5000", "dim"),)
    assert StatusLine().line(view_in("/w", is_used=False)) == (Span("  ask · acme/one", "dim"),)


def test_a_template_is_filled_in_and_empty_parts_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "work" / ".git").mkdir(parents=True)
    (tmp_path / "work" / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\x1b\n")
    view = view_in(str(tmp_path / "work"))

    assert shown("{folder}@{branch} · {title} · me {{}} · {tokens} {session}", view) == (
        "  work@feature/x\\x1b · me {} · 1.2k tokens 3f2c9a1b"
    )
    assert shown("on {branch} · {mode}", view_in("/")) == "  ask"


@pytest.mark.parametrize("template", ["{model.name}", "{0}", "{}{nothing}", "{model", "{command!r:>{x}}"])
def test_a_template_with_anything_else_is_refused_with_the_fields_there_are(template: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        StatusLine(template)

    assert refused.value.hint is not None
    assert refused.value.hint.startswith("The fields are {model}, {mode}")


def test_the_branch_is_read_from_a_worktree_and_from_a_detached_head(tmp_path: Path) -> None:
    main = tmp_path / "main" / ".git"
    (main / "worktrees" / "w").mkdir(parents=True)
    (main / "HEAD").write_text("0123456789abcdef\n")
    (main / "worktrees" / "w" / "HEAD").write_text("ref: refs/heads/w\n")
    tree = tmp_path / "tree" / "deep"
    tree.mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {main / 'worktrees' / 'w'}\n")

    assert (branch_of(tree), branch_of(main.parent), branch_of(tmp_path)) == ("w", "01234567", "")
