"""Folds the log of a session into its file changes, and plans what an undo or a redo restores. No I/O.

A change is one file of one call, with its content before and after. Changes of a message are undone together: for each
file, from the content after its last change back to that before its first. The plan says what each file has to be now;
whether it is, `undo` finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import SessionRefused
from makai.core.visible_text import one_line
from makai.sessions.log.base import LoggedEvent
from makai.tools.edit import content_digest
from makai.tools.restoring import SPECIAL_BITS, FileState

MAX_FILES: Final = 1_000
MAX_TOLD: Final = 3
MAX_NAMED: Final = 20
_HARMLESS: Final = frozenset({"read", "search", "think", "fetch", "edit"})
"""Kinds of calls that change no file, and edits, whose changes are known."""
NOT_KEPT: Final = "its content was not kept: it is too large, or not UTF-8 text"
BETWEEN: Final = "something else changed it between two of the changes"
CLAIMED: Final = "the agent did not report the whole file, or it was changed since"


class FileVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file at one moment."""

    digest: str
    """Empty: there is no file."""
    mode: int | None = None
    """None when it is not known."""
    text: str | None = None
    """None when it was not kept."""

    def is_same(self, other: FileVersion) -> bool:
        return self.digest == other.digest and (None in (self.mode, other.mode) or self.mode == other.mode)

    def fits(self, state: FileState | None) -> bool:
        if state is None or not self.digest:
            return state is None and not self.digest
        return self.digest == state.digest and self.mode in (None, state.mode)


class FileStep(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one file."""

    event_id: int
    path: str
    old: FileVersion
    new: FileVersion
    made_folders: tuple[str, ...] = ()
    is_claimed: bool = False
    """An external agent said so. Its texts may be parts of the file."""


class _Message(msgspec.Struct, frozen=True):
    event_id: int
    text: str


class _Untracked(msgspec.Struct, frozen=True):
    """A call that may have changed files in a way that the log does not know."""

    event_id: int
    title: str
    kind: Literal["command", "interrupted", "other"]


class FileTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one file: it has to be as in `now`, and is to be as in `then`."""

    path: str
    now: FileVersion
    then: FileVersion
    folders: tuple[str, ...] = ()
    """Made by the changes: an undo removes those that are empty then, a redo makes them again."""
    is_claimed: bool = False
    refusal: str = ""

    @property
    def kind(self) -> Literal["create", "change", "remove", "keep"]:
        if self.now.is_same(self.then):
            return "keep"
        if not self.then.digest:
            return "remove"
        return "change" if self.now.digest else "create"

    @property
    def diff(self) -> ev.FileDiff:
        old, new = self.now, self.then
        return ev.FileDiff(path=self.path, old_text=_shown(old) if old.digest else None, new_text=_shown(new))


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that one undo or redo is about."""

    direction: ev.RestoreDirection
    message: int
    """The event of the first message whose changes these are."""
    text: str
    steps: tuple[FileStep, ...]
    notes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Made by tools since the message, or ever for a redo: also by changes that this undo or redo is not about."""

    @property
    def events(self) -> tuple[int, ...]:
        return tuple(sorted({step.event_id for step in self.steps}))

    def targets(self) -> tuple[FileTarget, ...]:
        by_path: dict[str, list[FileStep]] = {}
        for step in self.steps:
            by_path.setdefault(step.path, []).append(step)
        return tuple(self._target(path, steps) for path, steps in by_path.items())

    def _target(self, path: str, steps: Sequence[FileStep]) -> FileTarget:
        first, last = steps[0].old, steps[-1].new
        now, then = (last, first) if self.direction == "undo" else (first, last)
        refusal = ""
        if any(not one.new.is_same(other.old) for one, other in pairwise(steps)):
            refusal = CLAIMED if any(step.is_claimed for step in steps) else BETWEEN
        elif then.digest and then.text is None:
            refusal = NOT_KEPT
        elif (then.mode or 0) & SPECIAL_BITS:
            refusal = "it had a set-user-ID, set-group-ID or sticky bit"
        return FileTarget(
            path=path,
            now=now,
            then=then,
            folders=tuple(sorted((each for each in self.folders if path.startswith(f"{each}/")), key=len)),
            is_claimed=any(step.is_claimed for step in steps),
            refusal=refusal,
        )


class FileChanges:
    """The fold: `apply` every event, in their order."""

    def __init__(self) -> None:
        self._messages: list[_Message] = []
        self._calls: dict[str, ev.ToolCalled] = {}
        self._started: set[str] = set()
        self._reported: dict[str, tuple[ev.FileDiff, ...]] = {}
        self._done: list[FileStep] = []
        self._undone: list[list[FileStep]] = []
        """What can be redone, the last undo last."""
        self._made_folders: dict[str, int] = {}
        """Folders that tools made, with the event of the last change that made them."""
        self._untracked: list[_Untracked] = []

    def apply(self, logged: LoggedEvent) -> None:
        if not isinstance(logged, ev.Logged):
            return
        match logged.event:
            case ev.UserInput(content=content):
                self._messages.append(_Message(logged.event_id, _first_words(content)))
            case ev.RunStarted(input_id=input_id) if input_id:
                self._messages.append(_Message(logged.event_id, "(no message)"))
            case ev.ToolCalled() as call:
                self._calls[call.call_id] = call
            case ev.ToolStarted(call_id=call_id):
                self._started.add(call_id)
            case ev.ToolUpdated() as update:
                self._on_updated(update)
            case ev.ToolFinished() as finished:
                self._on_finished(finished, logged.event_id)
            case ev.FilesRestored() as restored:
                self._on_restored(restored)
            case _:
                pass

    def _on_updated(self, update: ev.ToolUpdated) -> None:
        if update.diffs is not None:
            self._reported[update.call_id] = update.diffs
        if (call := self._calls.get(update.call_id)) is not None:
            news = {name: value for name in ("title", "kind") if (value := getattr(update, name)) is not None}
            self._calls[update.call_id] = msgspec.structs.replace(call, **news)

    def _on_finished(self, finished: ev.ToolFinished, event_id: int) -> None:
        call = self._calls.pop(finished.call_id, None)
        reported = self._reported.pop(finished.call_id, ())
        is_started = finished.call_id in self._started
        self._started.discard(finished.call_id)
        if finished.file_versions:
            pairs = zip(finished.diffs, finished.file_versions, strict=False)
            steps = [_known_step(event_id, diff, versions) for diff, versions in pairs]
        elif finished.is_error:
            steps = []
        else:
            claimed = (_claimed_step(event_id, diff) for diff in finished.diffs or reported)
            steps = [step for step in claimed if not self._is_known(step)]
        if steps:
            self._done += steps
            self._undone.clear()
            self._made_folders |= {folder: event_id for step in steps for folder in step.made_folders}
        if call is None or not (is_started or not finished.is_error):
            return
        title = one_line(call.title or call.name, 60)
        if finished.interrupted:
            self._untracked.append(_Untracked(event_id, title, "interrupted"))
        elif call.kind not in _HARMLESS and not steps and not finished.only_looked:
            kind: Literal["command", "other"] = "command" if call.kind == "execute" else "other"
            self._untracked.append(_Untracked(event_id, title, kind))

    def _is_known(self, claimed: FileStep) -> bool:
        """Whether the change of an external agent is one that makai made for it, in this message."""
        since = self._messages[-1].event_id if self._messages else 0
        recent = (step for step in reversed(self._done) if step.event_id > since)
        return any(step.path == claimed.path and not step.is_claimed and _covers(step, claimed) for step in recent)

    def _on_restored(self, restored: ev.FilesRestored) -> None:
        paths = {file.path for file in restored.files if file.outcome == "restored"}
        events = set(restored.events)

        def is_moved(step: FileStep) -> bool:
            return step.event_id in events and step.path in paths

        if restored.direction == "undo":
            if moved := [step for step in self._done if is_moved(step)]:
                self._undone.append(moved)
            self._done = [step for step in self._done if not is_moved(step)]
            return
        moved = [step for group in self._undone for step in group if is_moved(step)]
        self._done = sorted([*self._done, *moved], key=lambda step: step.event_id)
        left = [[step for step in group if not is_moved(step)] for group in self._undone]
        self._undone = [group for group in left if group]

    def select(
        self, direction: ev.RestoreDirection, count: int = 1, to: int | None = None, paths: Sequence[str] = ()
    ) -> Selection:
        """The changes of the last `count` messages that have some, or of all messages from `to` on; with `paths` only
        those of these files. A redo of named files is about the last `count` undos of each. `SessionRefused` when there
        are none, or none of a named file."""
        if count < 1:
            raise SessionRefused("BAD_ARGUMENT", "The number of messages is at least 1.")
        if to is not None and all(message.event_id != to for message in self._messages):
            raise SessionRefused("BAD_ARGUMENT", f"Event {to} is not a message of this session.")
        if direction == "redo":
            groups = [group for group in self._undone if to is None or group[0].event_id > to]
            steps = _last_undone(groups, count if to is None else len(groups), paths)
        else:
            first = self._first_message(count) if to is None else to
            steps = [step for step in self._done if step.event_id > first]
        if not steps:
            raise SessionRefused("INVALID_COMMAND", f"There are no file changes to {direction}.")
        steps.sort(key=lambda step: step.event_id)
        message = self._message_of(steps[0])
        if paths:
            _check_changed(paths, steps, direction)
            steps = [step for step in steps if step.path in paths]
        since = message.event_id if direction == "undo" else 0
        return Selection(
            direction=direction,
            message=message.event_id,
            text=message.text,
            steps=tuple(steps),
            notes=self._notes(since) if direction == "undo" else (),
            folders=tuple(folder for folder, event_id in self._made_folders.items() if event_id > since),
        )

    def net(self) -> tuple[FileTarget, ...]:
        """What the session changed, as if it were to be redone: without what was undone."""
        selection = Selection(direction="redo", message=0, text="", steps=tuple(self._done))
        return tuple(target for target in selection.targets() if not target.now.is_same(target.then))

    def _first_message(self, count: int) -> int:
        """The `count`th last message with changes; the first of them when there are fewer."""
        found = list(dict.fromkeys(self._message_of(step).event_id for step in self._done))
        return found[-count:][0] if found else 0

    def _message_of(self, step: FileStep) -> _Message:
        earlier = (message for message in reversed(self._messages) if message.event_id < step.event_id)
        return next(earlier, _Message(0, "(before the first message)"))

    def _notes(self, since: int) -> tuple[str, ...]:
        """What happened since a message and is not undone."""
        found = [each for each in self._untracked if each.event_id > since]
        words = {
            "command": "What commands changed is not undone",
            "interrupted": "What interrupted calls changed is unknown, and not undone",
            "other": "What other tools changed is not undone",
        }
        return tuple(
            f"{told}: {_listed(titles)}."
            for kind, told in words.items()
            if (titles := [each.title for each in found if each.kind == kind])
        )


def file_changes(events: Iterable[LoggedEvent]) -> FileChanges:
    folded = FileChanges()
    for logged in events:
        folded.apply(logged)
    return folded


def _last_undone(groups: Sequence[Sequence[FileStep]], count: int, paths: Sequence[str]) -> list[FileStep]:
    """The changes of the last `count` undos; with `paths`, of the last `count` undos of each of these files. Without a
    named file among them the changes of all files are returned, so that the refusal can list them."""
    if count < 1:
        return []
    known = {step.path for group in groups for step in group}
    if not known.issuperset(paths):
        return [step for group in groups for step in group]
    if not paths:
        return [step for group in groups[-count:] for step in group]
    found: list[FileStep] = []
    for path in dict.fromkeys(paths):
        own = [[step for step in group if step.path == path] for group in groups]
        found += [step for group in [each for each in own if each][-count:] for step in group]
    return found


def _check_changed(paths: Sequence[str], steps: Sequence[FileStep], direction: ev.RestoreDirection) -> None:
    known = tuple(dict.fromkeys(step.path for step in steps))
    unknown = [path for path in paths if path not in known]
    if unknown:
        raise SessionRefused(
            "BAD_ARGUMENT",
            f"There is nothing to {direction} in {one_line(unknown[0], 200)}. "
            f"The files are: {_listed([one_line(path, 200) for path in known], MAX_NAMED)}.",
        )


def _known_step(event_id: int, diff: ev.FileDiff, versions: ev.FileVersions) -> FileStep:
    return FileStep(
        event_id=event_id,
        path=versions.path,
        old=_version(versions.old_digest, versions.old_mode, diff.old_text),
        new=_version(versions.new_digest, versions.new_mode, diff.new_text),
        made_folders=versions.made_folders,
    )


def _version(digest: str, mode: int, text: str | None) -> FileVersion:
    if not digest:
        return FileVersion(digest="")
    is_whole = text is not None and content_digest(_bytes(text)) == digest
    return FileVersion(digest=digest, mode=mode, text=text if is_whole else None)


def _claimed_step(event_id: int, diff: ev.FileDiff) -> FileStep:
    """A deletion is reported as an empty new text; the file itself shows whether it is gone or empty."""
    old = FileVersion(digest="") if diff.old_text is None else _of_text(diff.old_text)
    return FileStep(event_id=event_id, path=diff.path, old=old, new=_of_text(diff.new_text), is_claimed=True)


def _of_text(text: str) -> FileVersion:
    return FileVersion(digest=content_digest(_bytes(text)), text=text)


def _covers(step: FileStep, claimed: FileStep) -> bool:
    """Whether both are the same change, of the whole file or of the one place where the text was."""
    if claimed.new.is_same(step.new) and claimed.old.is_same(step.old):
        return True
    old, new, part, changed = step.old.text, step.new.text, claimed.old.text, claimed.new.text
    if old is None or new is None or not part or changed is None:
        return False
    return old.count(part) == 1 and old.replace(part, changed) == new


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _shown(version: FileVersion) -> str:
    if not version.digest:
        return ""
    return "[not kept: too large, or not UTF-8 text]\n" if version.text is None else version.text


def _first_words(content: str | Sequence[object]) -> str:
    words = content if isinstance(content, str) else " ".join(part.text for part in content if isinstance(part, Text))
    return one_line(words.strip().partition("\n")[0], 80)


def _listed(titles: Sequence[str], most: int = MAX_TOLD) -> str:
    more = f" and {len(titles) - most} more" if len(titles) > most else ""
    return ", ".join(f"`{title}`" for title in titles[:most]) + more
