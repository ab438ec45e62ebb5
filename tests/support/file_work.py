"""An agent that changes files as its messages say, with the real file tools, and reports the changes as tools do."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from makai.core import session_events as ev
from makai.core.content import Text
from makai.harness.base import RunPort, RunStart, Settlement, StartRun
from makai.tools.base import ToolOutcome
from makai.tools.edit import EditTool, WriteTool, content_digest
from makai.tools.workspace import Workspace

HARNESS = "file-work"


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is done to a file. Foreign work and commands are done by something else than the file tools."""

    kind: Literal["write", "edit", "delete", "move", "foreign", "foreign_delete", "chmod", "link", "command", "claim"]
    path: str
    text: str = ""
    to: str = ""


Tree: TypeAlias = dict[str, tuple[str, int, bytes]]
"""Every name beneath a folder with its kind, mode and content."""


def tree(folder: Path) -> Tree:
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        mode = stat.S_IMODE(about.st_mode)
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", 0, os.fsencode(os.readlink(path)))
        elif path.is_dir():
            found[name] = ("folder", mode, b"")
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


class FileWorker:
    id = HARNESS
    capabilities = ev.HarnessCapabilities(has_turns=False, needs_model=False)

    def __init__(self) -> None:
        self.steps: list[tuple[Tree, tuple[str, ...]]] = []
        """What the folder was before each change by a tool, and the files that it changed."""
        self.heard: list[str] = []

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        """Every folder is fine."""

    async def forget(self, session_id: str) -> None:
        """It keeps nothing."""

    async def run(self, port: RunPort, start: RunStart) -> Settlement:
        assert isinstance(start, StartRun)
        assert port.session.cwd is not None
        said = (await port.input(start.input_id)).content
        assert isinstance(said, str)
        self.heard += [*port.session.restored, said.partition("\n")[0]]
        for each in msgspec.json.decode(said.partition("\n")[2] or "[]", type=list[Work]):
            folder = Path(port.session.cwd)
            before = tree(folder)
            if changed := await _do(port, folder, each):
                self.steps.append((before, changed))
        return ev.RunFinished(stop_reason="end_turn")


def message(work: list[Work], title: str = "work") -> str:
    return f"{title}\n{msgspec.json.encode(work).decode()}"


async def _do(port: RunPort, folder: Path, work: Work) -> tuple[str, ...]:
    if work.kind in ("foreign", "foreign_delete", "chmod", "link"):
        foreign(folder, work)
        return ()
    call_id = port.call_id("call")
    kind = "execute" if work.kind == "command" else "edit"
    title = f"{work.kind} {work.path}"
    await port.emit(ev.ToolCalled(call_id=call_id, name=work.kind, arguments_json="{}", kind=kind, title=title))
    await port.emit(ev.ToolStarted(call_id=call_id))
    outcome = await _outcome(folder, work, call_id)
    await port.emit(
        ev.ToolFinished(
            call_id=call_id,
            content=outcome.content,
            is_error=outcome.is_error,
            diffs=outcome.diffs,
            file_versions=outcome.file_versions,
        )
    )
    return tuple(str(Path(diff.path).relative_to(folder)) for diff in outcome.diffs)


async def _outcome(folder: Path, work: Work, call_id: str) -> ToolOutcome:
    files = Workspace([folder])
    match work.kind:
        case "write":
            return await WriteTool(files).run({"path": work.path, "content": work.text}, _Silent(call_id))
        case "edit":
            try:
                old = (folder / work.path).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                old = "nothing"
            arguments = {"path": work.path, "old_text": old or "nothing", "new_text": work.text}
            return await EditTool(files).run(arguments, _Silent(call_id))
        case "delete" | "move":
            return _removed(folder, work)
        case "claim":
            return _claimed(folder, work)
        case _:
            foreign(folder, work)
            return ToolOutcome(content=(Text(text="done"),))


def _removed(folder: Path, work: Work) -> ToolOutcome:
    """A deletion, or a move to a name that is free: what a tool would report."""
    source, target = folder / work.path, folder / work.to
    if not source.is_file() or source.is_symlink():
        return ToolOutcome(content=(Text(text="missing"),), is_error=True)
    if work.kind == "move" and (target.exists() or target.is_symlink() or not target.parent.is_dir()):
        return ToolOutcome(content=(Text(text="exists"),), is_error=True)
    data, mode = source.read_bytes(), stat.S_IMODE(source.stat().st_mode)
    text, digest = data.decode("utf-8", "replace"), content_digest(data)
    diffs = [ev.FileDiff(path=str(source), old_text=text, new_text="")]
    versions = [ev.FileVersions(path=str(source), old_digest=digest, old_mode=mode)]
    if work.kind == "move":
        source.rename(target)
        diffs.append(ev.FileDiff(path=str(target), old_text=None, new_text=text))
        versions.append(ev.FileVersions(path=str(target), new_digest=digest, new_mode=mode))
    else:
        source.unlink()
    return ToolOutcome(content=(Text(text="done"),), diffs=tuple(diffs), file_versions=tuple(versions))


def _claimed(folder: Path, work: Work) -> ToolOutcome:
    """A change by an external agent, which says the texts only."""
    path = folder / work.path
    old = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(work.text, encoding="utf-8")
    return ToolOutcome(
        content=(Text(text="done"),), diffs=(ev.FileDiff(path=str(path), old_text=old, new_text=work.text),)
    )


def foreign(folder: Path, work: Work) -> None:
    """What another program does; impossible work is left out."""
    path = folder / work.path
    try:
        match work.kind:
            case "foreign_delete":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            case "chmod":
                path.chmod(0o600 if stat.S_IMODE(path.stat().st_mode) != 0o600 else 0o755)
            case "link":
                path.unlink()
                path.symlink_to(folder / (work.to or "elsewhere"))
            case _:
                path.write_text(work.text, encoding="utf-8")
    except OSError:
        pass


class _Silent:
    def __init__(self, call_id: str) -> None:
        self.call_id = call_id

    def progress(self, text: str) -> None:
        """Files report nothing on their way."""
