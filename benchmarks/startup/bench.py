"""The start-up benchmark: what it costs to say one word on the command line, to import a library, to be answered by
`makai stdio`, or to see the prompt of `makai` and send a message.

In: nothing. Out: `results/startup.md` and `.json`. Each command is a fresh process; its CPU is user plus system time as
the kernel counted it for that process and its children (`wait4`). Compiled bytecode is there, as after any first run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
from bars import Bar, bar_table

REPEATS = 20
PEER_REPEATS = 5
CLI = "import sys; from makai.cli.main import main; sys.exit(main())"
"""What the installed `makai` script does."""
STDIO = "makai stdio, to the first pong"
PROMPT = "makai, to the first prompt"
MESSAGE = "makai, to a message typed at the first prompt"
PING = (
    b'{"type":"ping","stream_id":"00000000-0000-4000-8000-000000000001","message_id":'
    b'"00000000-0000-4000-8000-000000000002","sequence":1,"timestamp":0,"version":1,"payload":{}}\n'
)
HTTP_LIBRARIES = ("aiohttp", "httpx", "requests", "urllib3", "http.client")


@dataclass(frozen=True)
class Command:
    """A process to start, and how often."""

    name: str
    python: Path
    arguments: tuple[str, ...]
    repeats: int
    ping: bool = False
    """Whether it is sent a ping as it starts; its wall time then ends with the pong."""
    keys: bytes | None = None
    """Typed as soon as the prompt is visible, on a terminal; its wall time then ends with `until` on the screen."""
    until: bytes = b"> "


@dataclass(frozen=True)
class Cost:
    """Medians over all starts, in milliseconds."""

    name: str
    starts: int
    cpu_ms: float = 0.0
    wall_ms: float = 0.0
    error: str | None = None
    all_wall_ms: tuple[float, ...] = ()


COMMANDS = (
    Command("python -c pass", machine.PEERS_PYTHON, ("-c", "pass"), REPEATS),
    Command(STDIO, machine.PEERS_PYTHON, ("-m", "makai", "stdio"), REPEATS, ping=True),
    Command(PROMPT, machine.PEERS_PYTHON, ("-m", "makai"), REPEATS, keys=b""),
    # The transcript shows a message once the session has stored it; the mark and the text are then one run of colour.
    Command(MESSAGE, machine.PEERS_PYTHON, ("-m", "makai"), REPEATS, keys=b"hi\r", until=b"> hi"),
    Command("makai --version", machine.PEERS_PYTHON, ("-c", CLI, "--version"), REPEATS),
    Command("makai run --help", machine.PEERS_PYTHON, ("-c", CLI, "run", "--help"), REPEATS),
    Command("import makai", machine.PEERS_PYTHON, ("-c", "import makai"), REPEATS),
    Command("import openai", machine.PEERS_PYTHON, ("-c", "import openai"), PEER_REPEATS),
    Command("import anthropic", machine.PEERS_PYTHON, ("-c", "import anthropic"), PEER_REPEATS),
    Command("import pydantic_ai", machine.PEERS_PYTHON, ("-c", "import pydantic_ai"), PEER_REPEATS),
    Command("import any_llm", machine.PINNED_PEERS_PYTHON, ("-c", "import any_llm"), PEER_REPEATS),
    Command("import litellm", machine.PINNED_PEERS_PYTHON, ("-c", "import litellm"), PEER_REPEATS),
)


def run(*, quick: bool) -> None:
    """Measure and report. A quick run starts everything once and only prints."""
    where = machine.describe()
    with tempfile.TemporaryDirectory() as place:
        costs = measure(COMMANDS, 1 if quick else REPEATS, Path(place))
    for cost in costs:
        print(f"{cost.name:32} {cost.error or f'{cost.cpu_ms:8.1f} ms CPU {cost.wall_ms:8.1f} ms wall'}")
    bars = startup_bars(costs)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    record = {"machine": where, "costs": [asdict(cost) for cost in costs], "bars": [asdict(bar) for bar in bars]}
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "startup.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "startup.md").write_text(page(costs, bars, where))


def measure(commands: Sequence[Command], rounds: int, place: Path) -> list[Cost]:
    """Start each once for its bytecode, then all in turn, so that a busy moment of the machine hits them alike. `place`
    is an empty folder, for what makai keeps."""
    errors = {command.name: error for command in commands if (error := check(command, place))}
    samples: dict[str, list[tuple[float, float]]] = {command.name: [] for command in commands}
    for number in range(rounds):
        for command in commands:
            if command.name not in errors and number < command.repeats:
                cpu_s, wall_s, _ = start(command, place)
                samples[command.name].append((cpu_s * 1000, wall_s * 1000))
    return [cost_of(command.name, samples[command.name], errors.get(command.name)) for command in commands]


def check(command: Command, place: Path) -> str | None:
    """Why a command cannot be measured; None when it runs."""
    if not command.python.exists():
        return "not installed (see benchmarks/README.md)"
    _, _, exit_code = start(command, place)
    return f"exit code {exit_code}" if exit_code else None


def cost_of(name: str, samples: list[tuple[float, float]], error: str | None) -> Cost:
    """The medians of one command."""
    if error:
        return Cost(name, 0, error=error)
    cpu_ms, wall_ms = zip(*samples, strict=True)
    return Cost(name, len(samples), statistics.median(cpu_ms), statistics.median(wall_ms), all_wall_ms=wall_ms)


def start(command: Command, place: Path) -> tuple[float, float, int]:
    """CPU seconds, wall seconds and exit code of one process."""
    if command.keys is not None:
        return start_on_terminal(command, command.keys, place)
    pipe = subprocess.PIPE if command.ping else subprocess.DEVNULL
    began = time.perf_counter()
    process = subprocess.Popen(
        [command.python, *command.arguments],
        env=machine.child_environment(),
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
    )
    answered = wait_for_pong(process) if command.ping else None
    _, status, usage = os.wait4(process.pid, 0)
    wall = (answered or time.perf_counter()) - began
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, wall, process.returncode


def start_on_terminal(command: Command, keys: bytes, place: Path) -> tuple[float, float, int]:
    """The same for a chat with the scripted model. Ctrl+D ends it after the measurement."""
    home, folder = place / "home", place / "folder"
    for each in (home, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    chat = {"MAKAI_HOME": str(home), "MAKAI_MODEL": "scripted/echo", "TERM": "xterm-256color"}
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    began = time.perf_counter()
    process = subprocess.Popen(
        [command.python, *command.arguments],
        env=machine.child_environment() | chat,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        start_new_session=True,
    )
    os.close(slave)
    screen = wait_for_text(master, b"", b"> ")
    os.write(master, keys)
    screen = wait_for_text(master, screen, command.until)
    wall = time.perf_counter() - began
    os.write(master, b"\x04")
    wait_for_text(master, screen, None)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    os.close(master)
    return usage.ru_utime + usage.ru_stime, wall, process.returncode


def wait_for_text(master: int, screen: bytes, text: bytes | None) -> bytes:
    """Read what a terminal shows until a text appears, or with None until its last program ends; everything so far."""
    while text is None or text not in screen:
        try:
            screen += os.read(master, 65536)
        except OSError:  # no program has the terminal open
            if text is None:
                return screen
            raise RuntimeError(f"makai ended with {screen[-500:]!r}") from None
    return screen


def wait_for_pong(process: subprocess.Popen[bytes]) -> float:
    """Ping a stdio server; when it answered. Its input is then closed, which ends it."""
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as answers, process.stdin as requests:
        requests.write(PING)
        requests.flush()
        if b'"ready"' not in answers.readline() or b'"pong"' not in answers.readline():
            raise RuntimeError("makai stdio answered a ping with something else")
        return time.perf_counter()


def startup_bars(costs: list[Cost]) -> list[Bar]:
    """The promises about starting (issues 2 and 3, "Bars")."""
    by_name = {cost.name: cost for cost in costs if cost.error is None}
    names = ("python -c pass", "makai --version", STDIO, PROMPT)
    bare, version, stdio, chat = (by_name.get(name) for name in names)
    times = version.cpu_ms / bare.cpu_ms if bare and version else None
    pong = paired_ratio(stdio.all_wall_ms, bare.all_wall_ms) if bare and stdio else None
    prompt = paired_ratio(chat.all_wall_ms, bare.all_wall_ms) if bare and chat else None
    return [
        Bar("`makai --version`: CPU relative to `python -c pass`", 3, times, "x"),
        Bar("`makai stdio`: wall time to the first pong relative to the `python -c pass` before it", 6, pong, "x"),
        Bar("`makai`: wall time to the first prompt relative to the `python -c pass` before it", 4, prompt, "x"),
        Bar("HTTP libraries that `import makai` imports", 0, http_libraries_imported(), ""),
    ]


def paired_ratio(ours: Sequence[float], bare: Sequence[float]) -> float:
    """The median ratio of starts next to one another: a shared machine is fast for seconds and slow for seconds."""
    return statistics.median(our / its for our, its in zip(ours, bare, strict=True))


def http_libraries_imported() -> int:
    """How many HTTP libraries are loaded after `import makai`."""
    code = "import sys, makai; print(sum(name in sys.modules for name in sys.argv[1:]))"
    command = [sys.executable, "-c", code, *HTTP_LIBRARIES]
    return int(subprocess.run(command, env=machine.child_environment(), capture_output=True, check=True).stdout)


NOTE = """\
Medians; every start is a new process, with bytecode already compiled. CPU includes the end of a process; the wall time
of `makai stdio` runs from its spawn (as `python -m makai stdio`) to its answer to a ping. That of `makai` on a terminal
ends when the prompt is visible, or when a message that was typed at this moment is stored and shown; CPU is that of the
whole chat."""


def page(costs: list[Cost], bars: list[Bar], where: dict[str, object]) -> str:
    """The Markdown page people read."""
    bare = next((cost.cpu_ms for cost in costs if cost.name == "python -c pass"), 0.0)
    lines = ["# Start-up", "", *machine.description_lines(where), "", *bar_table(bars), ""]
    lines += ["| | CPU ms | over bare Python | wall ms | starts |", "|---|---|---|---|---|"]
    for cost in costs:
        numbers = f"{cost.cpu_ms:.0f} | {cost.cpu_ms - bare:+.0f} | {cost.wall_ms:.0f} | {cost.starts}"
        lines.append(f"| `{cost.name}` | {f'{cost.error} | | | ' if cost.error else numbers} |")
    lines += ["", NOTE]
    return "\n".join(lines) + "\n"
