"""What a run leaves in `<worktree>/.agent/`: every event in `events.jsonl`, and `state.json`, to continue from.

The folder ignores itself in git. Files are readable by the user only: events hold what the agent read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest, ParseError, StorageUnavailable
from makai.harness.contract.events import Event, InitEvent, decode_event, encode_event
from makai.harness.contract.result import Result
from makai.harness.contract.shapes import encode

AGENT_FOLDER: Final = ".agent"
EVENTS_FILE: Final = "events.jsonl"
STATE_FILE: Final = "state.json"
MAX_STATE_BYTES: Final = 16 * 1024 * 1024

RunPhase: TypeAlias = Literal["running", "completed", "failed", "stopped"]


class WorktreeRunState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a run stands. The agent can write this file, so it holds nothing that decides what an agent may do: rules,
    sandbox and variables come from the caller that resumes the run."""

    schema_version: Literal[1] = 1
    run_id: str
    harness: str
    branch: str
    base_commit: str
    phase: RunPhase
    attempts: int = 1
    prompt: str
    model: str = ""
    prefix: str = ""
    """The agent's folder, relative to the worktree."""
    spent_usd: float = 0.0
    """What earlier attempts cost."""
    baseline: dict[str, int] | None = None
    """Failures per quality command before the agent began."""
    result: msgspec.Raw = msgspec.Raw(b"null")


class RecordedEvents(msgspec.Struct, frozen=True, kw_only=True):
    events: tuple[Event, ...]
    damaged_lines: tuple[int, ...] = ()
    """Numbers of lines that hold no event, from 1. The last one of a run that was killed may be among them."""

    @property
    def session_id(self) -> str:
        """The harness' own id of the newest session. Empty when none began."""
        ids = [event.session_id for event in self.events if isinstance(event, InitEvent)]
        return ids[-1] if ids else ""


class RunRecords:
    """The files of one run. `open` holds a lock, so that two processes do not work in one worktree."""

    def __init__(self, worktree: Path) -> None:
        self.folder = worktree / AGENT_FOLDER
        self.events_path = self.folder / EVENTS_FILE
        self.state_path = self.folder / STATE_FILE
        self._events = -1

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Create the folder, and take up the log where an earlier attempt ended."""
        with contextlib.ExitStack() as held:
            try:
                self.folder.mkdir(mode=0o700, exist_ok=True)
                (self.folder / ".gitignore").write_text("*\n", encoding="utf-8")
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._events = os.open(self.events_path, flags, 0o600)
                held.callback(os.close, self._events)
                fcntl.flock(self._events, fcntl.LOCK_EX | fcntl.LOCK_NB)
                size = os.fstat(self._events).st_size
                if size and os.pread(self._events, 1, size - 1) != b"\n":
                    os.write(self._events, b"\n")  # the process was killed while it wrote a line
            except BlockingIOError:
                raise InvalidRequest(
                    f"Another run is active in {self.folder.parent}.", hint="Wait for it, or stop it with Ctrl-C."
                ) from None
            except OSError as error:
                raise _unavailable(self.folder, error) from error
            yield

    def append(self, event: Event) -> None:
        """Write one event as a line, before anyone observes it (DM-EVT-012)."""
        line = memoryview(encode_event(event) + b"\n")
        try:
            while line:
                line = line[os.write(self._events, line) :]
        except OSError as error:
            raise _unavailable(self.events_path, error) from error

    def read_events(self) -> RecordedEvents:
        """The events of all attempts, and which lines are damaged."""
        try:
            lines = self.events_path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return RecordedEvents(events=())
        except OSError as error:
            raise _unavailable(self.events_path, error) from error
        events, damaged = list[Event](), list[int]()
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                events.append(decode_event(line))
            except ParseError:
                damaged.append(number)
        return RecordedEvents(events=tuple(events), damaged_lines=tuple(damaged))

    def write_state(self, state: WorktreeRunState) -> None:
        """Replace the state as a whole: a reader finds the old one or the new one."""
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".state-", delete=False) as file:
                try:
                    file.write(msgspec.json.encode(state))
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(file.name, self.state_path)
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            raise _unavailable(self.state_path, error) from error

    def read_state(self) -> WorktreeRunState:
        """Raises `InvalidRequest` when there is none that can be read."""
        hint = "Name the folder of a worktree that `makai harness run --worktree` made."
        try:
            with self.state_path.open("rb") as file:
                data = file.read(MAX_STATE_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidRequest(f"{self.folder.parent} has no run to resume.", hint=hint) from None
        except OSError as error:
            raise _unavailable(self.state_path, error) from error
        try:
            return msgspec.json.decode(data, type=WorktreeRunState)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{self.state_path} is damaged: {error}.", hint=hint) from None


def raw_result(result: Result) -> msgspec.Raw:
    return msgspec.Raw(encode(result))


def _unavailable(path: Path, error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"{path} cannot be used: {error.strerror}.", hint="Check the disk and the rights of the folder."
    )
