"""A harness whose sessions play a list of events and actions, and a git repository for its runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from makai.core.errors import MakaiError, Unsupported
from makai.harness.contract.capabilities import Capabilities
from makai.harness.contract.events import (
    AssistantTextEvent,
    CostData,
    Event,
    InitEvent,
    ResultEvent,
    is_terminal,
)
from makai.harness.contract.interfaces import STOP_GRACE_S
from makai.harness.contract.spec import Spec

Step: TypeAlias = Event | Callable[[Spec], object] | asyncio.Event
"""An event, something that is done in the folder of the session, or something to wait for."""

INIT = InitEvent(session_id="s-1")
COST = CostData(input_tokens=10, output_tokens=5, total_cost_usd=0.25, num_turns=1)
DONE = ResultEvent(success=True, message="All done.", cost=COST)


def text(words: str) -> AssistantTextEvent:
    return AssistantTextEvent(text=words)


def writes(name: str, content: str = "new\n") -> Callable[[Spec], object]:
    def write(spec: Spec) -> None:
        path = Path(spec.cwd, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    return write


class FakeHandle:
    def __init__(self, spec: Spec, steps: Sequence[Step]) -> None:
        self.spec, self._steps = spec, steps
        self.session_id = ""
        self.stops = 0
        self._stopped = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Event]:
        for step in self._steps:
            if isinstance(step, asyncio.Event):
                waiting = [asyncio.create_task(event.wait()) for event in (step, self._stopped)]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    task.cancel()
            elif callable(step):
                step(self.spec)
                continue
            if self._stopped.is_set():
                yield ResultEvent(success=False, error_subtype="stopped")
                return
            if isinstance(step, asyncio.Event) or callable(step):
                continue
            if isinstance(step, InitEvent):
                self.session_id = step.session_id
            yield step
            if is_terminal(step):
                return

    async def inject(self, text: str) -> None:
        raise Unsupported("no")

    async def stop(self, *, grace_s: float = STOP_GRACE_S) -> None:
        self.stops += 1
        self._stopped.set()


class FakeHarness:
    """`scripts` are the sessions in order; an error is raised instead of a session."""

    def __init__(
        self, *scripts: Sequence[Step] | MakaiError, name: str = "fake", capabilities: Capabilities | None = None
    ) -> None:
        self.name = name
        self.capabilities = capabilities or Capabilities(supports_session_resume=True)
        self._scripts = list(scripts)
        self.specs: list[Spec] = []
        self.resumed: list[str] = []
        self.handles: list[FakeHandle] = []

    async def spawn(self, spec: Spec) -> FakeHandle:
        self.specs.append(spec)
        script = self._scripts.pop(0)
        if isinstance(script, MakaiError):
            raise script
        self.handles.append(FakeHandle(spec, script))
        return self.handles[-1]

    async def resume(self, session_id: str, spec: Spec) -> FakeHandle:
        self.resumed.append(session_id)
        return await self.spawn(spec)

    async def shutdown(self) -> None:
        pass


def git(folder: Path, *arguments: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *arguments)
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def make_repository(folder: Path) -> Path:
    """A repository with one commit on main."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "a.txt").write_text("old\n", encoding="utf-8")
    (folder / "sub").mkdir()
    (folder / "sub/b.txt").write_text("old\n", encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder
