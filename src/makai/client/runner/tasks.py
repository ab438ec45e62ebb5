"""Several runs side by side: the file that lists them, and the pool that carries them out."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from makai.core.errors import InvalidRequest, MakaiError
from makai.harness.contract.endpoint import Unset
from makai.harness.contract.result import Result
from makai.harness.contract.spec import EffortLevel
from makai.harness.manifests import provider_name_of

MAX_TASKS: Final = 200
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
EXAMPLE: Final = 'harness = "claude-code"\n\n[[task]]\nname = "fix-login"\nprompt = "Fix the login form"'


class RunTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """One task. Settings that it leaves out are those of the file, then those of the command line."""

    name: str = ""
    prompt: str = ""
    harness: str = ""
    model: str = ""
    effort: EffortLevel | Unset = ""
    max_usd: float | None = None
    max_turns: int | None = None
    branch: str = ""


class TaskFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    harness: str = ""
    model: str = ""
    effort: EffortLevel | Unset = ""
    max_usd: float | None = None
    max_turns: int | None = None
    task: tuple[RunTask, ...] = ()


def read_tasks(path: Path) -> tuple[RunTask, ...]:
    """The tasks of a file, with the file's own settings filled in. `InvalidRequest` says what is wrong where."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", hint=f"A file of tasks:\n{EXAMPLE}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidRequest(f"{path} is larger than {MAX_FILE_BYTES} bytes.")
    try:
        found = msgspec.convert(tomllib.loads(data.decode("utf-8")), TaskFile)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidRequest(f"{path} is not a file of tasks: {error}.", hint=f"An example:\n{EXAMPLE}") from None
    tasks = tuple(_filled(task, found, number) for number, task in enumerate(found.task, start=1))
    _check(path, tasks)
    return tasks


def _filled(task: RunTask, file: TaskFile, number: int) -> RunTask:
    shared: dict[str, Any] = {
        name: getattr(task, name) if getattr(task, name) not in ("", None) else getattr(file, name)
        for name in TaskFile.__struct_fields__
        if name != "task"
    }
    return msgspec.structs.replace(task, **shared, name=task.name or f"task-{number}")


def _check(path: Path, tasks: Sequence[RunTask]) -> None:
    names = [task.name for task in tasks]
    problems = [f"{task.name} has no prompt" for task in tasks if not task.prompt.strip()]
    problems += [f"the name {name} occurs {names.count(name)} times" for name in names if names.count(name) > 1]
    branches = [task.branch for task in tasks if task.branch]
    problems += [
        f"{branches.count(name)} tasks name the branch {name}" for name in branches if branches.count(name) > 1
    ]
    problems += [
        f"max-usd and max-turns of {task.name} must be greater than zero"
        for task in tasks
        if (task.max_usd is not None and not task.max_usd > 0) or (task.max_turns is not None and task.max_turns < 1)
    ]
    if not tasks or len(tasks) > MAX_TASKS:
        problems.append(f"it has {len(tasks)} tasks, and 1 to {MAX_TASKS} are possible")
    if problems:
        raise InvalidRequest(f"{path}: {'; '.join(dict.fromkeys(problems))}.", hint=f"An example:\n{EXAMPLE}")


class StartTask(Protocol):
    async def __call__(self, task: RunTask) -> Result: ...


async def run_side_by_side(
    tasks: Sequence[RunTask],
    start: StartTask,
    *,
    at_once: int,
    stop: asyncio.Event,
    done: Callable[[RunTask, Result], None],
) -> dict[str, Result]:
    """Carry out all tasks, at most `at_once` at a time. A task that fails does not affect the others; once `stop` is
    set, those that did not begin are reported as stopped."""
    room = asyncio.Semaphore(at_once)

    async def carry_out(task: RunTask) -> tuple[str, Result]:
        provider = provider_name_of(task.harness)
        async with room:
            if stop.is_set():
                result = Result(status="stopped", provider_name=provider, failure_mode="operator-cancelled")
            else:
                try:
                    result = await start(task)
                except MakaiError as error:
                    result = Result(
                        status="failed", provider_name=provider, failure_mode="spawn-failed", error=str(error)
                    )
        done(task, result)
        return task.name, result

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(carry_out(task), name=f"run of {task.name}") for task in tasks]
    return dict(task.result() for task in running)
