"""A session that edits, runs tests, commits and installs a package asks three questions; its transcript is in the
documentation, where this test writes it when MAKAI_TEST_WRITES_DOCS is set."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.daily_work import make_project, package_index, results, session, shell, use_backend, work
from support.egress import resolve_to_this_machine
from support.live_sessions import Desk
from support.places import ROOT, folder_outside_tmp

from makai.cli.terminal.markdown_blocks import finished_length
from makai.cli.terminal.styled_text import plain
from makai.cli.terminal.transcript_view import TranscriptView
from makai.core import session_events as ev
from makai.tools import commands
from makai.tools.sandbox.proxy import EgressProxy
from tools.transcripts import renewed

DOCUMENT = ROOT / "docs/permissions-and-sandbox.md"
HOST = "packages.example.org"
WRITES_DOCUMENT = "MAKAI_TEST_WRITES_DOCS" in os.environ
VARIES = re.compile(r"^\[0 in, 0 out(?:, .*)?\]\n\n?|  \(from another client\)$", re.MULTILINE)
"""How long a run took, and that the message was not typed in the terminal."""
SHOWN_HOME, SHOWN_PORT = "/home/ada", "8080"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_outside_tmp() as found:
        yield found.resolve()


def edit(old: str, new: str) -> str:
    arguments = {"path": "src/sums.py", "old_text": old, "new_text": new}
    return f"tool: edit {msgspec.json.encode(arguments).decode()}"


def scenario(port: str) -> list[str]:
    install = (
        f"python3 -m venv .venv && .venv/bin/pip install -q --disable-pip-version-check --trusted-host {HOST} "
        f"-i http://{HOST}:{port}/simple/ greeting && .venv/bin/python -c 'import greeting'"
    )
    return [
        *(shell("git status --short && cat src/sums.py"), edit("a - b", "a + b"), shell("make test")),
        shell("git commit -qam 'add adds'", git=True, reason="A commit writes .git."),
        shell(install, network=[f"{HOST}:{port}"], reason="To install greeting."),
        "say: `add` adds now, the tests pass, it is committed, and `greeting` is installed.",
        *(edit("def add(a, b):", "def add(a: int, b: int) -> int:"), shell("make test")),
        shell("git commit -qam 'Types for add'", git=True, reason="A commit writes .git."),
        "say: Done, and committed.",
    ]


def transcript(desk: Desk) -> str:
    view = TranscriptView("Ada", finished_length)
    text = plain([piece for logged in desk.seen for piece in view.take(logged)])
    return VARIES.sub("", text)


async def test_edits_tests_a_commit_and_an_installation_take_three_questions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_backend("bubblewrap", monkeypatch)
    proxy = functools.partial(EgressProxy, resolve=resolve_to_this_machine, may_be_reached=lambda address: True)
    monkeypatch.setattr(commands, "EgressProxy", proxy)
    project = make_project(folder)
    with package_index(folder) as index:
        port = index.split(":")[2].split("/")[0]
        async with session(folder, project, scenario(port), monkeypatch, mode="accept_edits") as desk:
            commit: tuple[ev.GrantScope, str] = ("session", "Bash(git commit:*)+git")
            await work(desk, "Fix add, commit it, and install greeting.", ("session", ""), commit, ("once", ""))
            await work(desk, "Give it types, and commit.")

    assert [code for code, _ in results(desk) if code is not None] == [0] * 6, results(desk)
    assert [question.name for question in desk.events(ev.ApprovalRequested)] == ["shell"] * 3
    shown = transcript(desk).replace(str(folder), SHOWN_HOME).replace(f":{port}", f":{SHOWN_PORT}")
    made = renewed(text := DOCUMENT.read_text(encoding="utf-8"), {"daily-work": f"```text\n{shown.strip()}\n```\n"})
    if WRITES_DOCUMENT:
        DOCUMENT.write_text(made, encoding="utf-8")
    else:
        assert text == made, "run this test with MAKAI_TEST_WRITES_DOCS=1 and review the change"
