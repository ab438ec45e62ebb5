"""What a command of the shell tool costs over the same command started by asyncio: unconfined, and in each sandbox.

It runs in a repository with a workbench as sessions have it: the policy, the sandbox, the launcher, the output and the
end of all processes are part of the time. The bare command runs before each of them, so that a busy moment of the
machine hits both. What is judged before a command runs is a row of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import machine
from bars import Bar, bar_table

ROUNDS = 100
WARM_UP = 5
MAX_OVERHEAD_MS = 15
COMMAND = "true"
UNCONFINED, JUDGED = "unconfined", "judging, without running"
CODE = "import asyncio, sys; from commands.bench import measure; print(asyncio.run(measure(int(sys.argv[1]))))"

Action = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of wall time; `overhead_ms` is over the bare command that ran just before."""

    name: str
    median_ms: float
    overhead_ms: float
    runs: int


class _Context:
    call_id = "benchmark"

    def progress(self, text: str) -> None:
        pass


def run(*, quick: bool) -> None:
    """Measure and report. A quick run has few rounds and only prints."""
    where = machine.describe()
    environ = machine.child_environment() | {"PYTHONPATH": os.pathsep.join(map(str, (machine.ROOT / "src", *_HERE)))}
    command = [machine.PEERS_PYTHON, "-c", CODE, str(10 if quick else ROUNDS)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    costs = [Cost(**cost) for cost in json.loads(done.stdout)]
    for cost in costs:
        print(f"{cost.name:32} {cost.median_ms:8.1f} ms, {cost.overhead_ms:+6.1f} ms over asyncio")
    bars = command_bars(costs)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    record = {"machine": where, "costs": [asdict(cost) for cost in costs], "bars": [asdict(bar) for bar in bars]}
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "commands.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "commands.md").write_text(page(costs, bars, where))


_HERE = (Path(__file__).resolve().parent.parent,)


async def measure(rounds: int) -> str:
    """In a process of its own: the costs as JSON."""
    async with AsyncExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.home())))
        bare, costs = _bare(base), []
        for name, action in (await _made(stack, base)).items():
            pairs = [(await _milliseconds(bare), await _milliseconds(action)) for _ in range(WARM_UP + rounds)][
                WARM_UP:
            ]
            overhead = statistics.median(its - usual for usual, its in pairs)
            costs.append(Cost(name, statistics.median(its for _, its in pairs), overhead, rounds))
    return json.dumps([asdict(cost) for cost in costs])


async def _milliseconds(action: Action) -> float:
    began = time.perf_counter()
    await action()
    return (time.perf_counter() - began) * 1000


def _bare(base: Path) -> Action:
    async def run_bare() -> None:
        process = await asyncio.create_subprocess_exec(
            *("bash", "--noprofile", "--norc", "-c", COMMAND),
            cwd=base,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        await process.communicate()

    return run_bare


async def _made(stack: AsyncExitStack, base: Path) -> dict[str, Action]:
    from makai.agent.workbench import Workbench, WorkbenchSpec
    from makai.core.session_events import SandboxLevel
    from makai.tools.permissions.judging import judge_call
    from makai.tools.sandbox.detect import Detection, try_bubblewrap, try_landlock

    folder = base / "repository"
    await (await asyncio.create_subprocess_exec("git", "init", "-q", folder)).wait()
    actions: dict[str, Action] = {}
    kinds: list[tuple[str, SandboxLevel, Detection]] = [(UNCONFINED, "full-access", Detection(backend=None))]
    for found in (try_landlock(), try_bubblewrap()):
        if isinstance(found, str):
            print(found, file=sys.stderr)
        else:
            kinds.append((found.name, "workspace-write", Detection(backend=found)))
    for name, level, detection in kinds:
        spec = WorkbenchSpec(
            session_id=f"benchmark-{len(actions)}",
            cwd=str(folder),
            sandbox=level,
            makai_home=base / "makai-home",
            environ={**os.environ, "HOME": str(base)},
        )
        spec.makai_home.mkdir(exist_ok=True)
        bench = await stack.enter_async_context(Workbench(spec, detection=detection))
        tool = bench.tools(bench.rules())["shell"]

        async def run_tool(tool=tool, **further: object) -> None:  # type: ignore[no-untyped-def]
            outcome = await tool.run({"command": COMMAND, **further}, _Context())
            assert outcome.exit_code == 0, outcome

        actions[name] = run_tool
        if level != "full-access":
            actions[f"{name}, with a named host"] = partial(run_tool, network=["a.example"])
    rules, description = bench.rules(), await tool.describe({"command": COMMAND})

    async def judged() -> object:
        return await judge_call("ask", rules, (), "shell", description, is_clients_own=False)

    return {**actions, JUDGED: judged}


def command_bars(costs: list[Cost]) -> list[Bar]:
    by_name = {cost.name: cost.overhead_ms for cost in costs}
    return [
        Bar(f"A command in {name}: over the same command started by asyncio", MAX_OVERHEAD_MS, by_name.get(name), " ms")
        for name in ("bubblewrap", "landlock")
    ]


NOTE = f"""\
Wall time of `bash -c {COMMAND}` through the shell tool of a session's workbench. The overhead is the median of the
differences to the same command, started by asyncio just before. `judging` is what happens before a command is allowed
to run."""


def page(costs: list[Cost], bars: list[Bar], where: dict[str, object]) -> str:
    """The Markdown page people read."""
    lines = ["# Commands", "", *machine.description_lines(where), "", *bar_table(bars), ""]
    lines += ["| | ms | over asyncio | runs |", "|---|---|---|---|"]
    lines += [f"| {cost.name} | {cost.median_ms:.1f} | {cost.overhead_ms:+.1f} | {cost.runs} |" for cost in costs]
    return "\n".join([*lines, "", NOTE]) + "\n"
