"""The tool shell: output, exit codes, limits, and that nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.machine import RecordMeasure, open_descriptors, slack
from support.orphan_trials import (
    WILD_COMMANDS,
    Silent,
    aborted_runs,
    confining,
    processes_with,
    shell_tool,
    text_of,
    unique_mark,
)
from support.profiles import FAULTS

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.session_events import FilePlace
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.commands import LocalCommands, child_environment
from makai.tools.scratch import KEPT_BYTES, CappedOutput
from makai.tools.shell import ShellTool
from makai.tools.workspace import Workspace

NEWEST = re.compile(r"\n\[[0-9,]+ bytes of output so far, the newest:\]\n([0-9]+\n)*[0-9]*")


async def run(folder: Path, command: str, **more: Any) -> ToolOutcome:
    return await shell_tool(folder).run({"command": command, **more}, Silent())


async def test_output_and_errors_come_in_order_with_the_exit_code(tmp_path: Path) -> None:
    assert await run(tmp_path, "echo one; echo two >&2; echo three; exit 3") == ToolOutcome(
        content=(Text(text="one\ntwo\nthree\n[exit code 3]"),), is_error=True, exit_code=3
    )
    assert await run(tmp_path, "true") == ToolOutcome(content=(Text(text="[no output]"),), exit_code=0)


async def test_a_reader_of_long_output_sees_its_newest_lines_and_not_all_of_them(tmp_path: Path) -> None:
    context = Silent()
    await shell_tool(tmp_path).run({"command": "seq 200000"}, context)

    whole = [text for text in context.heard if "so far" not in text]
    newest = [text for text in context.heard if "so far" in text]
    assert "".join(whole) == "".join(f"{number}\n" for number in range(1, 200_001))[: len("".join(whole))]
    assert len("".join(whole)) < 2 * KEPT_BYTES
    assert [text for text in newest if not NEWEST.fullmatch(text) or len(text) > 2_100] == []
    assert newest


async def test_a_command_killed_by_a_signal_has_the_code_shells_give(tmp_path: Path) -> None:
    assert (await run(tmp_path, "kill -9 $$")).exit_code == 128 + signal.SIGKILL


async def test_it_runs_in_the_folder_asked_for_and_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    assert (await run(tmp_path, "pwd; cat", directory="sub")).content == (Text(text=f"{tmp_path}/sub"),)


@pytest.mark.parametrize("directory", ["..", "/etc", "missing", "file"])
async def test_a_folder_elsewhere_or_missing_is_refused(tmp_path: Path, directory: str) -> None:
    (tmp_path / "file").touch()

    outcome = await run(tmp_path, "echo ran", directory=directory)
    assert outcome.is_error
    assert "ran" not in str(outcome.content)


async def test_a_session_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    tool = shell_tool(folder)
    folder.rmdir()

    outcome = await tool.run({"command": "true"}, Silent())
    assert outcome == text_outcome(
        f"The session's folder {folder} is no longer there (No such file or directory).", is_error=True
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": ""},
        {"command": "a\0b"},
        {"command": "\ud800"},
        {"command": "x" * 130_000},
        {"command": "x", "timeout_s": 0},
        {"command": "x", "timeout_s": 1e9},
        {"command": "x", "background": True},
    ],
)
async def test_arguments_that_cannot_be_meant_are_refused_by_both(tmp_path: Path, arguments: dict[str, Any]) -> None:
    tool = shell_tool(tmp_path)

    with pytest.raises(InvalidRequest):
        await tool.describe(arguments)
    assert (await tool.run(arguments, Silent())).is_error


async def test_a_call_is_described_by_the_whole_command_and_an_escaped_title(tmp_path: Path) -> None:
    command = "echo \x1b[2K\u202e" + "x" * 200

    assert await shell_tool(tmp_path).describe({"command": command}) == CallDescription(
        kind="execute",
        title="echo \\x1b[2K\\u202e" + "x" * 82 + "...",
        subject=command,
        locations=(FilePlace(path=str(tmp_path)),),
    )
    (tmp_path / "evil").mkdir()
    assert (await shell_tool(tmp_path).describe({"command": "make", "directory": "evil"})).title == "make (in evil)"


async def test_output_is_shown_as_it_comes(tmp_path: Path) -> None:
    watching = Silent()
    os.mkfifo(tmp_path / "gate")
    command = {"command": "echo first; read line < gate; echo $line"}
    call = asyncio.create_task(shell_tool(tmp_path).run(command, watching))
    await asyncio.wait_for(watching.first.wait(), 60)
    assert watching.heard == ["first\n"]

    await asyncio.to_thread((tmp_path / "gate").write_text, "second\n")
    assert (await call).content == (Text(text="first\nsecond"),)
    assert "".join(watching.heard) == "first\nsecond\n"


async def test_characters_cut_by_a_read_arrive_whole(tmp_path: Path) -> None:
    watching = Silent()
    await shell_tool(tmp_path).run({"command": r"printf 'caf\303'; sleep 0.05; printf '\251'"}, watching)

    assert "".join(watching.heard) == "café"


@pytest.mark.proof("limit-output")
async def test_long_output_keeps_its_ends_and_is_whole_in_a_file(tmp_path: Path) -> None:
    size = 64 * 1024 * 1024
    watching = Silent()
    command = {"command": f"echo begin; yes 0123456 | head -c {size}; echo end"}
    outcome = await shell_tool(tmp_path).run(command, watching)

    shown = text_of(outcome)
    total = size + len("begin\nend\n")
    assert outcome.omitted_bytes == total - 256 * 1024
    assert outcome.spill_path is not None
    assert f"[{outcome.omitted_bytes:,} bytes left out here; all is in {outcome.spill_path}]" in shown
    assert (shown[:6], shown[-4:], len(shown) < 257 * 1024) == ("begin\n", "\nend", True)
    whole = await asyncio.to_thread(Path(outcome.spill_path).read_bytes)
    assert (len(whole), whole[:6], whole[-4:]) == (total, b"begin\n", b"end\n")
    assert sum(map(len, watching.heard)) < 1024 * 1024


async def test_output_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = CappedOutput(tmp_path / "file", kept=10)
    for chunk in (b"0123456789", b"abc", b"xyz"):
        await output.add(chunk)

    assert output.text() == "01234\n[6 bytes left out here; it could not be kept: File exists]\nbcxyz"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
async def test_output_is_the_same_however_it_arrives(tmp_path: Path, size: int) -> None:
    data = "".join(f"ligne {number} é\n" for number in range(50)).encode()
    output = CappedOutput(tmp_path, kept=101)
    for start in range(0, len(data), size):
        await output.add(data[start : start + size])
    output.close()

    assert output.spill_path is not None
    assert output.spill_path.read_bytes() == data
    assert output.text().startswith("ligne 0 é\nligne 1 é\n")
    assert output.text().endswith("ligne 49 é\n")
    assert "\ufffd" not in output.text()


@pytest.mark.parametrize("before", [b"", b"begin", b"x" * 256 * 1024])
async def test_one_chunk_larger_than_everything_that_is_kept_is_spilled_whole(tmp_path: Path, before: bytes) -> None:
    chunk = b"".join(b"%07d\n" % number for number in range(200_000))
    output = CappedOutput(tmp_path)
    for part in (before, chunk, b"end"):
        await output.add(part)
    output.close()

    assert output.spill_path is not None
    assert output.spill_path.read_bytes() == before + chunk + b"end"
    assert output.text().endswith("0199999\nend")


async def test_the_command_is_started_as_the_wrapper_says_while_what_it_needs_is_held(tmp_path: Path) -> None:
    order: list[object] = []

    @contextlib.contextmanager
    def confined(
        argv: Sequence[str], opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False
    ) -> Iterator[Sequence[str]]:
        order.append(argv[1:])
        try:
            yield ["/usr/bin/env", "WRAPPED=yes", *argv]
        finally:
            order.append("released")
            (tmp_path / "released").touch()

    outcome = await shell_tool(tmp_path, confined=confined).run({"command": "echo $WRAPPED; ls"}, Silent())

    assert outcome == ToolOutcome(content=(Text(text="yes"),), exit_code=0)
    assert order == [("--noprofile", "--norc", "-c", "echo $WRAPPED; ls"), "released"]


@pytest.mark.proof("T3")
async def test_what_is_opened_is_what_was_shown_or_nothing_is_run(tmp_path: Path) -> None:
    """The answer to a question opens the folder that a link led to when it was asked."""
    for name in ("work", "shown", "secret"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("shown")
    started: list[Confinement] = []

    @contextlib.contextmanager
    def confined(
        argv: Sequence[str], opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False
    ) -> Iterator[Sequence[str]]:
        started.append(opened)
        yield argv

    def resolved(wanted: Confinement, directory: str) -> Confinement:
        return msgspec.structs.replace(wanted, folders=tuple(map(os.path.realpath, wanted.folders)))

    workspace = Workspace([tmp_path / "work"])
    commands = LocalCommands(workspace, confined=confined, resolved=resolved)
    tool = ShellTool(workspace, commands, environ=os.environ, spill_directory=tmp_path / "spilled")
    call = {"command": "true", "write_folders": [str(tmp_path / "link")], "git": True}

    described = await tool.describe(call)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("secret")
    turned = await tool.run(call, Silent())
    again = await tool.describe(call)
    outcome = await tool.run(call, Silent())

    shown = Confinement(git=True, folders=(str(tmp_path / "shown"),))
    assert (described.confinement, described.title) == (shown, f"true [+git+write({tmp_path / 'shown'})]")
    assert (turned.is_error, outcome.is_error, started) == (True, False, [again.confinement])
    assert again.confinement.folders == (str(tmp_path / "secret"),)


@pytest.mark.parametrize(
    "asks",
    [{"network": ["a b"]}, {"network": "index.example.org"}, {"write_folders": [1]}, {"reason": "x" * 501}, {"git": 2}],
)
async def test_what_cannot_be_asked_for_is_refused(tmp_path: Path, asks: dict[str, Any]) -> None:
    tool = shell_tool(tmp_path)

    with pytest.raises(InvalidRequest):
        await tool.describe({"command": "true", **asks})


async def test_a_command_that_takes_too_long_is_ended_with_what_it_said(tmp_path: Path) -> None:
    begun = time.monotonic()
    outcome = await run(tmp_path, "echo started; trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.3)

    told = "started\n[ended after 0.3 s with all it started; pass a longer timeout_s if it needs one]"
    assert outcome == text_outcome(told, is_error=True)
    assert time.monotonic() - begun < 30


async def test_processes_in_the_background_end_with_the_command(tmp_path: Path) -> None:
    mark = unique_mark()
    outcome = await run(tmp_path, f"(setsid bash -c 'exec -a {mark} sleep 600' &); sleep 0.05; echo done")

    assert outcome.content == (Text(text="done"),)
    assert processes_with(mark) == []


@pytest.mark.proof("T7")
@pytest.mark.scaled
async def test_aborted_runs_leave_no_process(tmp_path: Path, record_measure: RecordMeasure) -> None:
    runs = 200 if FAULTS else 20
    report = await aborted_runs(tmp_path, runs, seed=5)

    record_measure(f"abort, {runs} runs: processes left after 1 s", "0", str(len(report.left)))
    record_measure(f"abort, {runs} runs: slowest end", "<= 1 s", f"{report.slowest_s:.2f} s")
    assert report.left == []
    assert report.slowest_s <= (1 if FAULTS else slack())


async def test_processes_end_when_makai_itself_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from support.orphan_trials import Silent, shell_tool\n"
        "asyncio.run(shell_tool(Path(sys.argv[1])).run({'command': sys.argv[2]}, Silent()))"
    )
    os.mkfifo(tmp_path / "gate")
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(tmp_path)),
        "(setsid bash -c 'trap \"\" TERM; echo $$ > gate; exec sleep 600' &); exec sleep 600",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    orphan = os.pidfd_open(int(await asyncio.to_thread((tmp_path / "gate").read_text)))
    server.kill()
    await server.wait()

    ended, _, _ = await asyncio.to_thread(select.select, [orphan], [], [], 10)
    os.close(orphan)
    assert ended == [orphan]


async def test_nothing_of_a_call_stays_open(tmp_path: Path) -> None:
    await run(tmp_path, "true")
    before = open_descriptors()
    for command in ("true", *list(WILD_COMMANDS.values())[:3]):
        await run(tmp_path, command, timeout_s=0.2)

    assert open_descriptors() - before == set()


@pytest.mark.proof("O8")
async def test_children_see_no_secret_of_the_environment(tmp_path: Path) -> None:
    kept = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_TIME": "C", "http_proxy": "http://proxy:1"}
    names = ("OPENAI_API_KEY", "MAKAI_HOME", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "LD_PRELOAD", "BASH_ENV")
    secrets = {"https_proxy": "http://user:secret-0@proxy:1", **{name: f"/secret-{name}" for name in names}}
    added = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"}
    environ = kept | secrets
    assert child_environment(environ) == kept | added | {"AI_AGENT": "makai"}
    tool = shell_tool(tmp_path, environ=environ)
    # The supervisor is the parent of the command: its environment is no way around, it is that of the launcher.
    outcome = await tool.run({"command": "env; tr '\\0' '\\n' < /proc/$PPID/environ"}, Silent())
    assert "secret-" not in str(outcome.content)
    assert str(outcome.content).count("HOME=/nowhere") == 1
    assert str(outcome.content).endswith("LC_ALL=C.UTF-8', text_signature=None),)")


async def test_a_wrapper_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    tool = shell_tool(tmp_path, confined=confining(lambda _: ["/no/such/sandbox"]), environ={})

    assert await tool.run({"command": "true"}, Silent()) == ToolOutcome(
        content=(Text(text="/no/such/sandbox: No such file or directory\n[exit code 127]"),),
        is_error=True,
        exit_code=127,
    )


async def test_a_command_does_not_run_in_another_folder_than_the_one_that_was_shown(tmp_path: Path) -> None:
    for name in ("good", "evil"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("good")
    tool = shell_tool(tmp_path)
    arguments = {"command": "touch ran", "directory": "link"}
    await tool.describe(arguments)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("evil")

    outcome = await tool.run(arguments, Silent())

    assert outcome.is_error
    assert str(outcome.content).count("evil is not what it was when this call was shown for approval.") == 1
    assert (list((tmp_path / "good").iterdir()), list((tmp_path / "evil").iterdir())) == ([], [])
