"""Carries out `makai harness run`: one task, several side by side, or the rest of one that was interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from makai.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, note, say
from makai.cli.harness_output import EventPrinter, ProgressBoard, results_table
from makai.cli.session_options import agent_effort
from makai.client.harness.opening import open_harness
from makai.client.runner.quality import QualityChecks
from makai.client.runner.records import RunRecords
from makai.client.runner.run import (
    RunnerOptions,
    RunObserver,
    resume_in_worktree,
    run_in_folder,
    run_in_worktree,
)
from makai.client.runner.tasks import RunTask, read_tasks, run_side_by_side
from makai.core.errors import InvalidRequest
from makai.harness.contract.interfaces import Harness
from makai.harness.contract.result import Result
from makai.harness.contract.spec import Spec
from makai.harness.registry import EXTERNAL
from makai.providers.logins import user_settings


async def run_one(harness_name: str, prompt: str, given: Mapping[str, Any]) -> int:
    """One task, in a worktree or in the folder."""
    printer = EventPrinter(as_json=given["as_json"])
    options, spec = runner_options(given), session_spec(prompt, given)
    async with _opened(harness_name, given) as harness:
        with stopping_politely() as stop:
            run = run_in_worktree if given["worktree"] else run_in_folder
            observer = RunObserver(event=printer.event, step=printer.step)
            result = await run(harness, spec, options, observer=observer, stop=stop)
    printer.result(result)
    return exit_code_of(result)


async def resume_one(place: Path, prompt: str, given: Mapping[str, Any]) -> int:
    """Continue a run with the harness that it had, or with another one that the user names."""
    name = given["agent"] or RunRecords(place).read_state().harness
    if not given["agent"] and name.startswith(EXTERNAL):
        # The agent could have written this file: a command line in it is not the user's word.
        raise InvalidRequest(
            f"This run was made by a command line ({name}).", hint="Name the harness again with --agent."
        )
    printer = EventPrinter(as_json=given["as_json"])
    async with _opened(name, given) as harness:
        with stopping_politely() as stop:
            observer = RunObserver(event=printer.event, step=printer.step)
            spec = session_spec(prompt, given)
            options = runner_options(given)
            result = await resume_in_worktree(harness, place, spec, options, observer=observer, stop=stop)
    printer.result(result)
    return exit_code_of(result)


async def run_many(path: str, at_once: int, given: Mapping[str, Any]) -> int:
    """The tasks of a file, each in a worktree of its own."""
    tasks = tuple(
        task if task.harness else msgspec.structs.replace(task, harness=given["agent"] or "native")
        for task in read_tasks(Path(path))
    )
    board = ProgressBoard(tasks, sys.stderr, as_json=given["as_json"])
    making = asyncio.Lock()
    async with contextlib.AsyncExitStack() as held:
        limits = {task.name: task.max_usd or given["max_usd"] for task in tasks}
        harnesses = {
            (name, limit): await held.enter_async_context(_opened(name, {**given, "max_usd": limit}))
            for name, limit in dict.fromkeys((task.harness, limits[task.name]) for task in tasks)
        }
        stop = held.enter_context(stopping_politely())

        async def start(task: RunTask) -> Result:
            observer = RunObserver(
                event=lambda event: board.event(task.name, event), step=lambda text: board.show(task.name, text)
            )
            settings = {**given, **_of_task(task)}
            spec, options = session_spec(task.prompt, settings), runner_options(settings)
            harness = harnesses[task.harness, limits[task.name]]
            return await run_in_worktree(harness, spec, options, observer=observer, stop=stop, making=making)

        results = await run_side_by_side(
            tasks, start, at_once=at_once, stop=stop, done=lambda task, result: board.done(task.name, result)
        )
    ordered = {task.name: results[task.name] for task in tasks}
    if not given["as_json"]:
        say("\n".join(results_table(ordered)))
    return max(map(exit_code_of, ordered.values()))


def _of_task(task: RunTask) -> dict[str, Any]:
    """The settings of a task that win over those of the command line."""
    own = {
        "model": task.model,
        "effort": task.effort,
        "max_usd": task.max_usd,
        "max_turns": task.max_turns,
        "branch": task.branch,
    }
    return {"name": task.name} | {name: value for name, value in own.items() if value not in ("", None)}


@contextlib.asynccontextmanager
async def _opened(name: str, given: Mapping[str, Any]) -> AsyncIterator[Harness]:
    """The harness and its budget, before any worktree is made (DM-PROV-004). Sessions of
    runs that can be continued are kept in MAKAI_HOME."""
    harness = open_harness(name, keep=bool(given["worktree"] or given["resume"] or given["parallel"]))
    harness.max_usd, harness.allow_unknown_price = given["max_usd"], given["allow_unknown_price"]
    try:
        harness.check_limit()
        yield harness
    finally:
        await harness.shutdown()


@contextlib.contextmanager
def stopping_politely() -> Iterator[asyncio.Event]:
    """Ctrl-C sets the event; pressed a second time it cancels the command."""
    stop, loop, task = asyncio.Event(), asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupted() -> None:
        if stop.is_set():
            task.cancel()
            return
        note("\nStopping. Press Ctrl-C again to stop at once.")
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted)
    try:
        yield stop
    except asyncio.CancelledError:
        if stop.is_set():
            raise click.Abort from None
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def session_spec(prompt: str, given: Mapping[str, Any]) -> Spec:
    """What the command line does not say comes from the user's settings; the harness knows the model of these."""
    settings = user_settings(os.environ)
    level = given["sandbox"] or (settings.sandbox if settings.sources["sandbox"] != "default" else None)
    return Spec(
        prompt=prompt,
        cwd=os.path.abspath(given["cwd"] or "."),
        autonomous=given["autonomous"],
        sandbox_enabled=level is not None,
        sandbox_level=level,
        allowed_tools=_rules(given["allowed_tools"]),
        disallowed_tools=_rules(given["disallowed_tools"]),
        max_turns=given["max_turns"],
        model=given["model"] or "",
        effort=agent_effort(given["effort"], settings.effort),
    )


def _rules(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.strip() for word in words if word.strip())


def runner_options(given: Mapping[str, Any]) -> RunnerOptions:
    return RunnerOptions(
        name=given.get("name", ""),
        branch=given["branch"] or "",
        allow_dirty=given["allow_dirty"],
        checks=QualityChecks(
            test=given["test"] or "",
            types=given["types"] or "",
            lint=given["lint"] or "",
            timeout_s=given["check_seconds"],
        ),
        checks_sandbox=given["sandbox"] or "workspace-write",
        backstop=given["backstop"],
        push=given["push"],
        pull_request=given["pr"],
        timeout_s=given["max_seconds"],
        max_usd=given["max_usd"],
    )


def exit_code_of(result: Result) -> int:
    """0 when the work is done and no check is worse than before."""
    if result.status == "stopped":
        return EXIT_INTERRUPTED
    blocked = result.quality_report is not None and result.quality_report.blocked_promotion
    return EXIT_FAILED if result.status == "failed" or blocked or result.work_result == "failed" else 0
