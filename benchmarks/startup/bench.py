"""The start-up benchmark: what it costs to say one word on the command line, to import a library, or to be answered by
`makai stdio`.

In: nothing. Out: `results/startup.md` and `.json`. Each command is a fresh process; its CPU is user plus system time as
the kernel counted it for that process and its children (`wait4`). Compiled bytecode is there, as after any first run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
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
    costs = measure(COMMANDS, 1 if quick else REPEATS)
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


def measure(commands: Sequence[Command], rounds: int) -> list[Cost]:
    """Start each once for its bytecode, then all in turn, so that a busy moment of the machine hits them alike."""
    errors = {command.name: error for command in commands if (error := check(command))}
    samples: dict[str, list[tuple[float, float]]] = {command.name: [] for command in commands}
    for number in range(rounds):
        for command in commands:
            if command.name not in errors and number < command.repeats:
                cpu_s, wall_s, _ = start(command)
                samples[command.name].append((cpu_s * 1000, wall_s * 1000))
    return [cost_of(command.name, samples[command.name], errors.get(command.name)) for command in commands]


def check(command: Command) -> str | None:
    """Why a command cannot be measured; None when it runs."""
    if not command.python.exists():
        return "not installed (see benchmarks/README.md)"
    _, _, exit_code = start(command)
    return f"exit code {exit_code}" if exit_code else None


def cost_of(name: str, samples: list[tuple[float, float]], error: str | None) -> Cost:
    """The medians of one command."""
    if error:
        return Cost(name, 0, error=error)
    cpu_ms, wall_ms = zip(*samples, strict=True)
    return Cost(name, len(samples), statistics.median(cpu_ms), statistics.median(wall_ms), all_wall_ms=wall_ms)


def start(command: Command) -> tuple[float, float, int]:
    """CPU seconds, wall seconds and exit code of one process."""
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
    bare, version, stdio = (by_name.get(name) for name in ("python -c pass", "makai --version", STDIO))
    times = version.cpu_ms / bare.cpu_ms if bare and version else None
    pong = paired_ratio(stdio.all_wall_ms, bare.all_wall_ms) if bare and stdio else None
    return [
        Bar("`makai --version`: CPU relative to `python -c pass`", 3, times, "x"),
        Bar("`makai stdio`: wall time to the first pong relative to the `python -c pass` before it", 6, pong, "x"),
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
of `makai stdio` runs from its spawn (as `python -m makai stdio`) to its answer to a ping."""


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
