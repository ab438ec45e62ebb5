"""Commands that the user runs from the chat."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.cli.terminal.shell_escape import KeptOutput, ShellOutcome, ShellRun
from makai.core.content import Resource


@pytest.fixture(autouse=True)
def _plain_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")


class HeardOutput(KeptOutput):
    """Says when the first output has come."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        self.heard.set()


async def test_a_command_runs_in_the_folder_and_its_output_is_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "here.txt").touch()

    outcome = await ShellRun("ls; echo wrong >&2; cat; exit 3", str(tmp_path)).run()

    assert outcome == ShellOutcome(command="ls; echo wrong >&2; cat; exit 3", output="here.txt\nwrong", exit_code=3)
    assert outcome.for_model() == Resource(
        uri="command:ls%3B%20echo%20wrong%20%3E%262%3B%20cat%3B%20exit%203",
        text="$ ls; echo wrong >&2; cat; exit 3\nhere.txt\nwrong\n[exit code 3]",
        mime_type="text/plain",
    )


async def test_a_stopped_command_keeps_what_it_said_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    run = ShellRun("touch begun; echo begun; sleep 600; touch ended", str(tmp_path))
    run.kept = kept = HeardOutput()
    async with asyncio.timeout(60):
        running = asyncio.create_task(run.run())
        await kept.heard.wait()
        run.stop()
        outcome = await running

    assert outcome == ShellOutcome(command=run.command, output="begun", exit_code=None)
    assert outcome.for_model().text == f"$ {run.command}\nbegun\n[stopped by the user]"
    assert os.listdir(tmp_path) == ["begun"]


async def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await ShellRun("true", str(tmp_path / "gone")).run()


@given(st.lists(st.binary(max_size=30), max_size=10), st.integers(2, 40))
def test_the_ends_of_a_long_output_are_kept(chunks: list[bytes], limit: int) -> None:
    kept, whole = KeptOutput(limit), b"".join(chunks)
    for chunk in chunks:
        kept.add(chunk)
    half = limit // 2
    dropped = max(0, len(whole) - 2 * half)
    gap = f"\n[… {dropped:,} bytes left out …]\n".encode() if dropped else b""
    middle = len(whole) - half if dropped else half

    assert kept.text() == (whole[:half] + gap + whole[middle:]).decode("utf-8", "replace")
