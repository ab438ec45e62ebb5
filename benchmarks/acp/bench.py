"""The ACP benchmark: how soon `makai acp` answers `initialize`, and what an update costs as agent and as client.

Everything is measured from outside, on real processes, beside the same thing made with the official Python SDK. The
processes of one round follow one another, so that a busy moment of the machine hits all of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import machine
from bars import Bar, bar_table
from gateway.process import cpu_seconds

HERE = Path(__file__).resolve().parent
PYTHON = str(machine.PEERS_PYTHON)
STARTS, PASSES, UPDATES = 20, 5, 10_000
BARE, MAKAI, SDK = "python -c pass", "makai acp", "official Python SDK"
AGENTS = {
    MAKAI: [PYTHON, "-m", "makai", "acp", "-m", "scripted/scenario"],
    SDK: [PYTHON, str(HERE / "sdk_agent.py")],
}
EDITORS_COMMANDS = AGENTS | {MAKAI: [PYTHON, "-m", "makai", "acp"]}
"""What an editor starts, without options."""
CLIENTS = {
    MAKAI: [PYTHON, str(HERE / "makai_client.py")],
    SDK: [PYTHON, str(HERE / "sdk_client.py")],
}
EMITTER = [PYTHON, str(HERE / "emitter.py")]
INITIALIZE = {"protocolVersion": 1, "clientCapabilities": {}}


@dataclass(frozen=True)
class Row:
    """Medians of all rounds: milliseconds to the answer, or microseconds of CPU per update."""

    what: str
    name: str
    value: float
    all_values: tuple[float, ...]


class Agent:
    """An agent in a process, spoken to in bytes."""

    def __init__(self, command: Sequence[str], environ: dict[str, str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command, env=environ, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._number = 0

    def request(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """The result, and how many characters of messages came before it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._number += 1
        frame = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        self.process.stdin.flush()
        characters = 0
        for line in self.process.stdout:
            if b'"session/update"' in line:
                if b'_chunk"' in line:
                    characters += len(json.loads(line)["params"]["update"]["content"]["text"])
                continue
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer["result"], characters
        raise RuntimeError(f"the agent ended before it answered {method}")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def run(*, quick: bool) -> None:
    """Measure and report. A quick run has few rounds and only prints."""
    where = machine.describe()
    with places() as (environ, folder):
        rows = [
            *initialized(environ, folder, 3 if quick else STARTS),
            *sent(environ, folder, 1 if quick else PASSES),
            *sent(environ, folder, 1 if quick else PASSES, separate=True),
            *received(environ, folder, 1 if quick else PASSES),
        ]
    where["load_after"] = round(os.getloadavg()[0], 1)
    for row in rows:
        print(f"{row.what:44} {row.name:24} {row.value:10.1f}")
    bars = acp_bars(rows)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    versions = machine.versions(machine.PEERS_PYTHON, ("agent-client-protocol", "msgspec", "pydantic", "uvloop"))
    record = {"machine": where, "versions": versions, "rows": [asdict(row) for row in rows]}
    record["bars"] = [asdict(bar) for bar in bars]
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "acp.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "acp.md").write_text(page(rows, bars, where, versions))


@contextmanager
def places() -> Iterator[tuple[dict[str, str], Path]]:
    """The environment of all processes: a home of its own, and a model that says so many words."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "home").mkdir(mode=0o700)
        scenario = folder / "scenario.txt"
        pairs = "think: word,\nsay: word,\n" * (UPDATES // 2)
        words = f"when: {UPDATES}\nrepeat: {UPDATES} word,"
        scenario.write_text(f"when: {APART}\n{pairs}---\n{words}\n---\nsay: word,\n")
        own = {"HOME": made, "MAKAI_HOME": str(folder / "home"), "MAKAI_SCENARIO": str(scenario)}
        yield machine.child_environment() | own, folder


START = "spawn to the answer of initialize, ms"


def initialized(environ: dict[str, str], folder: Path, rounds: int) -> list[Row]:
    """Wall time from the start of a process to its first answer; of bare Python to its end."""
    samples: dict[str, list[float]] = {name: [] for name in (BARE, *AGENTS)}
    for number in range(rounds + 1):  # the first one compiles
        began = time.perf_counter()
        subprocess.run([PYTHON, "-c", "pass"], env=environ, check=True)
        spent = {BARE: time.perf_counter() - began}
        for name, command in EDITORS_COMMANDS.items():
            began = time.perf_counter()
            agent = Agent(command, environ, folder)
            agent.request("initialize", INITIALIZE)
            spent[name] = time.perf_counter() - began
            agent.close()
        if number:
            for name, seconds in spent.items():
                samples[name].append(seconds * 1000)
    return [_row(START, name, values) for name, values in samples.items()]


SENT = "sending an update, us of CPU"
SENT_APART = "sending an update that cannot be joined, us of CPU"
APART = f"{UPDATES} apart"


def sent(environ: dict[str, str], folder: Path, passes: int, *, separate: bool = False) -> list[Row]:
    """CPU of an agent for a prompt of so many updates, beyond that of a prompt with one. With `separate`, thoughts and
    words of the model alternate, so that makai joins none of them."""
    samples: dict[str, list[float]] = {name: [] for name in AGENTS}
    for _ in range(passes):
        for name, command in AGENTS.items():
            agent = Agent(command, environ, folder)
            agent.request("initialize", INITIALIZE)
            session = agent.request("session/new", {"cwd": str(folder), "mcpServers": []})[0]["sessionId"]
            spent = []
            for count in (1, 1, UPDATES):
                text = APART if separate and name == MAKAI and count > 1 else str(count)
                prompt = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
                before = cpu_seconds(agent.process.pid)
                _, characters = agent.request("session/prompt", prompt)
                spent.append(cpu_seconds(agent.process.pid) - before)
                if characters != count * len("word,"):
                    raise RuntimeError(f"{name} sent {characters} characters for {count} updates")
            samples[name].append((spent[2] - spent[1]) / (UPDATES - 1) * 1e6)
            agent.close()
    return [_row(SENT_APART if separate else SENT, name, values) for name, values in samples.items()]


RECEIVED = "receiving an update, us of CPU"
RECEIVED_UPDATES = 100_000
"""The CPU time of starting a client varies by as much as taking a few thousand updates costs."""


def received(environ: dict[str, str], folder: Path, passes: int) -> list[Row]:
    """CPU of a client whose agent sends so many updates, beyond that of one whose agent sends one."""
    samples: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for _ in range(passes):
        for name, command in CLIENTS.items():
            spent = [_cpu_of([*command, str(count), *EMITTER], environ, folder) for count in (1, RECEIVED_UPDATES)]
            samples[name].append((spent[1] - spent[0]) / (RECEIVED_UPDATES - 1) * 1e6)
    return [_row(RECEIVED, name, values) for name, values in samples.items()]


def _cpu_of(command: Sequence[str], environ: dict[str, str], folder: Path) -> float:
    """User and system seconds of a process and what it started, as the kernel counted them."""
    process = subprocess.Popen(command, env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[1]} failed")
    return usage.ru_utime + usage.ru_stime


def _row(what: str, name: str, values: list[float]) -> Row:
    return Row(what, name, statistics.median(values), tuple(values))


def acp_bars(rows: list[Row]) -> list[Bar]:
    """Ratios of neighbours: a shared machine is fast for seconds and slow for seconds."""
    found = {(row.what, row.name): row.all_values for row in rows}

    def ratio(what: str, ours: str, its: str) -> float:
        return statistics.median(a / b for a, b in zip(found[what, ours], found[what, its], strict=True))

    return [
        Bar("`makai acp`: initialize answered, relative to `python -c pass`", 5, ratio(START, MAKAI, BARE), "x"),
        Bar("`makai acp`: initialize answered, sooner than the SDK's agent", 5, ratio(START, SDK, MAKAI), "x", True),
        Bar("Sending an update: CPU relative to the SDK's", 1 / 3, ratio(SENT, MAKAI, SDK), "x"),
        Bar("Receiving an update: CPU relative to the SDK's", 1 / 3, ratio(RECEIVED, MAKAI, SDK), "x"),
    ]


NOTE = f"""\
Medians of {STARTS} starts and of {PASSES} prompts with {UPDATES:,} updates, of clients with {RECEIVED_UPDATES:,},
because starting a client varies by what a few thousand cost. An agent is a process whose pipes this program reads; its
CPU time is that of all its threads and children. As agent, makai runs a session on a scripted model: each delta is
stored in SQLite before it is sent. Deltas of one text that come while others are being stored leave as one update: of
{UPDATES:,} words that a model writes at once, an editor gets all in a few updates. In the rows about updates that
cannot be joined, thoughts and words of the model alternate: each update is two stored events and a message of its own,
and costs more than one of the SDK. As client, makai runs a session too and stores what it gets; the SDK's agent and
client store nothing. Both clients read from the same agent, which writes all updates at once."""


def page(rows: list[Row], bars: list[Bar], where: dict[str, Any], versions: dict[str, str]) -> str:
    """The Markdown page people read."""
    lines = ["# Agent Client Protocol", "", *machine.description_lines(where)]
    lines += ["", ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", "", *bar_table(bars), ""]
    lines += ["| | | |", "|---|---|---|"]
    lines += [f"| {row.what} | {row.name} | {row.value:.1f} |" for row in rows]
    return "\n".join([*lines, "", NOTE]) + "\n"
