"""From the options of `makai run` to a session that answers.

In: what click has read. Out: an exit code. It opens the models and the sessions, the user's own or ones that are
forgotten, and closes them; what happens in between is `run_session`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from makai.cli.console import EXIT_INTERRUPTED, exit_code
from makai.cli.run_output import OUTPUTS
from makai.cli.run_request import RunRequest, folder_from, options_from, rules_from
from makai.cli.run_session import run_in_session
from makai.cli.session_access import is_ours, open_sessions
from makai.core.errors import MakaiError
from makai.core.session_events import RunTerms
from makai.providers.runtime import ModelRuntime
from makai.sessions.service import Sessions

_MODEL_OPTIONS = ("account", "max_tokens", "temperature", "effort", "stall_timeout", "max_retries")


def request_from(question: str, given: Mapping[str, Any]) -> RunRequest:
    """What was asked for; raises `InvalidRequest` for what cannot be done."""
    cwd = folder_from(given["cwd"])
    added = tuple(folder_from(folder) for folder in given["add_dir"])
    options = options_from(given["json_schema"], {name: given[name] for name in _MODEL_OPTIONS})
    return RunRequest(
        question=question,
        model=given["model"],
        cwd=cwd,
        roots=(cwd, *added) if added else (),
        resume=given["resume"],
        continue_newest=given["continue_newest"],
        keep=not given["no_session"],
        mode=given["mode"],
        system_prompt=given["system_prompt"],
        tools=not given["no_tools"],
        terms=RunTerms(
            options=options,
            max_turns=given["max_turns"],
            max_usd=given["max_budget_usd"],
            max_seconds=given["max_seconds"],
            allow=rules_from(given["allowed_tools"], "--allowed-tools"),
            deny=rules_from(given["disallowed_tools"], "--disallowed-tools"),
        ),
    )


async def answer(request: RunRequest, output_format: str) -> int:
    """Ask, print, and say how it went."""
    output = OUTPUTS[output_format](hold=request.terms.options.json_schema is not None)
    with _ended_by_terminate() as was_ended:
        try:
            async with (
                ModelRuntime(on_status=output.status) as models,
                _sessions(request, models) as sessions,
            ):
                return await run_in_session(request, sessions, models, output, owns_models=is_ours(sessions))
        except MakaiError as error:
            output.failed(error)
            return exit_code(error)
        except asyncio.CancelledError:
            if was_ended():
                return EXIT_INTERRUPTED
            raise


@asynccontextmanager
async def _sessions(request: RunRequest, models: ModelRuntime) -> AsyncIterator[Sessions]:
    if request.keep:
        async with open_sessions(models=models) as sessions:
            yield sessions
        return
    from makai.sessions.log.memory import MemoryLog
    from makai.sessions.owner import OwnedSessions

    forgotten = await OwnedSessions.open(models.home, models, log=MemoryLog())
    try:
        yield forgotten
    finally:
        await forgotten.close()


@contextlib.contextmanager
def _ended_by_terminate() -> Iterator[Callable[[], bool]]:
    """SIGTERM stops the run as Ctrl-C does: `timeout 60 makai run` must not leave one behind that somebody resumes.

    Gives a function that says whether it came.
    """
    if os.name != "posix":
        yield lambda: False
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came = False

    def end() -> None:
        nonlocal came
        came = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield lambda: came
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
