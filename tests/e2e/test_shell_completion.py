"""Tab in real shells, with the scripts that `makai completion` prints."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent
WITHIN_S = 60
TYPED = ("self-u", "run --output-l", "sessions exp")
MEANT = ["self-update", "--output-last-message", "export"]
HEAVY = {"aiohttp", "asyncio", "httpx2", "mcp", "prompt_toolkit", "pydantic", "rich", "sqlite3", "ssl"}


def _environ(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{PROGRAMS}:/usr/bin:/bin", "HOME": str(home), "TERM": "dumb", "PS1": "> ", **more}


def _shell(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


def _output(command: list[str], home: Path, **more: str) -> str:
    done = subprocess.run(
        command, env=_environ(home, **more), cwd=home, capture_output=True, text=True, timeout=WITHIN_S, check=True
    )
    return done.stdout


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = (
        'source <(makai completion bash)\nread -ra COMP_WORDS <<< "makai $1"\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n'
    )
    script += '_makai_completion makai\nprintf "%s\\n" "${COMPREPLY[@]}"\ncomplete -p makai >&2'

    found = [_output([_shell("bash"), "--norc", "-c", script, "bash", typed], tmp_path).strip() for typed in TYPED]

    assert found == MEANT


def test_fish_completes_commands_and_options(tmp_path: Path) -> None:
    script = 'makai completion fish | source; complete -C "makai $argv[1]"'

    found = [_output([_shell("fish"), "--no-config", "-c", script, typed], tmp_path) for typed in TYPED]

    assert [text.partition("\t")[0].strip() for text in found] == MEANT


def test_zsh_completes_a_command_at_its_prompt(tmp_path: Path) -> None:
    """The completion of zsh works only in its line editor, so it gets a terminal."""
    start = "autoload -Uz compinit && compinit -D -u; source <(makai completion zsh); echo rea''dy\n"
    master, terminal = pty.openpty()
    command = [_shell("zsh"), "-f", "-i"]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=_environ(tmp_path), start_new_session=True
    ) as shell:
        os.close(terminal)
        try:
            os.write(master, start.encode())
            _read_until(master, b"ready")
            os.write(master, b"makai self-u\t")
            line = _read_until(master, b"self-update ")
        finally:
            shell.kill()
            os.close(master)

    assert line.endswith(b"makai self-update ")


def _read_until(terminal: int, words: bytes) -> bytes:
    """What a terminal shows until these words; the time limit of the test ends the wait."""
    shown = b""
    while words not in shown:
        with contextlib.suppress(InterruptedError):
            shown += os.read(terminal, 65536)
    return shown


@pytest.mark.parametrize("typed", ["makai ", "makai run --", "makai serve --", "makai sessions ", "makai harness "])
def test_a_tab_loads_nothing_heavy(tmp_path: Path, typed: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1), "_MAKAI_COMPLETE": "bash_complete"}
    script = "import sys; from makai.cli.main import main\ntry: main([])\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=_environ(tmp_path, **words),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )

    assert done.stdout.startswith("plain,")
    assert HEAVY.intersection(done.stderr.split()) == set()
