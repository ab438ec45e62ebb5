"""Guards the files of `tools.protected` below a session's folders while sandboxed commands run.

No sandbox can forbid a name that does not exist yet in a folder that may be written. So what exists is read-only for a
command, and after it ended the folders are compared with what was there before:

    a guarded file is new, in a folder that was there before     it is moved away
    a guarded file is new, in a folder that is new as well       it stays (`git clone`, `npm create`), and is reported
    a link, or a file beyond `MAX_READ_ONLY`, was changed        it is moved away, and what was there is put back

Links are followed to folders that a command may write, whatever their names: who works in `src` meets what is in
`node_modules/src` once `src` is a link to it. In such places only new files are looked for.

MCP programs run longer than a command, and people work beside them: folders are compared around each call of their
tools, and what appears between two calls stays and is reported.

People are told what was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from makai.aio.cancellation import wait_uncancelled
from makai.core.session_events import Notice
from makai.tools.file_errors import printable
from makai.tools.openat2 import open_without_links
from makai.tools.protected import is_guarded_pair, was_approved
from makai.tools.sandbox.guard_snapshot import Guarded, GuardSnapshot, is_unchanged, snapshot_of
from makai.tools.sandbox.policy import is_beneath

_MAX_SHOWN: Final = 10
_MAX_NOTICES: Final = 100
TOO_LARGE_CODE: Final = "folder_too_large"
TOO_LARGE: Final = (
    "This folder is too large to look through before every command: files deep in it that make later commands run "
    "code, such as git hooks, are not guarded. Start in a smaller folder."
)


class FileGuard:
    """Looks below the folders that commands of a session may write. Its methods block: call them in a thread."""

    def __init__(
        self, roots: Sequence[str], taken_folder: Path, also: frozenset[str] = frozenset(), scratch: Sequence[str] = ()
    ) -> None:
        """`roots` are absolute and free of links. What is moved away goes to `taken_folder`, outside of them. Paths of
        `also` are guarded whatever their names are. `scratch` are other folders that commands may write, in which
        nothing is guarded unless a link leads there."""
        self._roots = tuple(roots)
        self._also = also
        self._scratch = tuple(os.path.realpath(folder) for folder in scratch)
        self._taken_folder = taken_folder
        self._lock = threading.Lock()
        self._latest = GuardSnapshot()
        self._notices: list[Notice] = []
        self._beside = 0

    @contextlib.contextmanager
    def running_beside(self) -> Iterator[None]:
        """While a confined program runs that does not belong to one command."""
        self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1

    def begin(self, opened: Sequence[str] = ()) -> GuardSnapshot:
        """What is there before a command or a call."""
        earlier = self._latest
        now = self.look(opened)
        if self._beside:
            new = (path for path in now.found.keys() - earlier.found.keys() if not was_approved(path, earlier.taken_at))
            met = [path for path in new if _place_of(path) in earlier.folders]
            self._report([_appeared(self._shown(met))] if met else [])
        return now

    def look(self, opened: Sequence[str] = ()) -> GuardSnapshot:
        """What is there now, also in the folders that were opened for one command. Only folders that changed since the
        last look are read."""
        with self._lock:
            self._latest = snapshot_of((*self._roots, *opened), self._latest, self._also, self._scratch)
            return self._latest

    @property
    def read_only(self) -> frozenset[str]:
        """What a command finds read-only, as of the last look."""
        return self._latest.read_only

    def settle(self, before: GuardSnapshot, opened: Sequence[str] = (), *, keeps_new: bool = False) -> None:
        """Compare with what was there before a command, and undo what it must not leave behind. `keeps_new`: a person
        allowed the command to change the repository, so it may check out such files; they are reported only."""
        after = self.look(opened)
        lost = before.folders.keys() - after.folders.keys()
        if any(_made_readable(path) for path in lost):
            after = self.look(opened)
        # Who works in a folder that became a link meets what is where the link leads.
        replaced = [os.path.realpath(path) for path in lost if os.path.islink(path)]
        unseen = [path for path in replaced if path not in after.folders and self._may_be_written(path, opened)]
        if unseen:
            after = self.look((*unseen, *opened))
        made, taken = [], []
        for path in after.found:
            if path in before.found or was_approved(path, before.taken_at):
                continue
            is_met = _place_of(path) in before.folders or any(is_beneath(path, folder) for folder in replaced)
            if is_met and not keeps_new:
                taken.append((path, self._moved_away(path)))
            else:
                made.append(path)
        for path, known in before.found.items():
            if known.saved is not None and not is_unchanged(path, known, after.found.get(path)):
                if keeps_new or was_approved(path, before.taken_at):
                    made.append(path)
                else:
                    taken.append((path, self._put_back(path, known, after)))
        moved = self._shown(path for path, is_done in taken if is_done)
        notices = [*_notices(self._shown(made), moved, self._taken_folder)]
        notices += [_not_undone(path) for path, is_done in taken if not is_done]
        if before.is_complete and not after.is_complete:
            notices.append(Notice(level="warning", code=TOO_LARGE_CODE, message=TOO_LARGE))
        self._report(notices)

    def _may_be_written(self, path: str, opened: Sequence[str]) -> bool:
        return any(is_beneath(path, folder) for folder in (*self._roots, *opened, *self._scratch))

    def _report(self, notices: Sequence[Notice]) -> None:
        with self._lock:
            self._notices = [*self._notices, *notices][-_MAX_NOTICES:]

    def take_notices(self) -> tuple[Notice, ...]:
        """The notices since the last call; the next run reports those of a run that was stopped."""
        with self._lock:
            taken, self._notices = tuple(self._notices), []
        return taken

    def _shown(self, paths: Iterable[str]) -> list[str]:
        first = f"{self._roots[0]}/" if self._roots else "/"
        return sorted(printable(path.removeprefix(first)) for path in paths)

    def _moved_away(self, path: str) -> bool:
        """Rename it in its folder, which takes its effect in one step; then move it out of the project."""
        folder, name = os.path.split(path)
        parked = f".makai-taken-{secrets.token_hex(8)}"
        try:
            descriptor = open_without_links(folder, os.O_PATH | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            os.rename(name, parked, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            with contextlib.suppress(OSError, shutil.Error):
                self._store(descriptor, parked, f"{secrets.token_hex(4)}-{name}")
        except FileNotFoundError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _store(self, folder: int, parked: str, name: str) -> None:
        with _opened(str(self._taken_folder.parent)) as above, contextlib.suppress(FileExistsError):
            os.mkdir(self._taken_folder.name, 0o700, dir_fd=above)
        with _opened(str(self._taken_folder)) as store:
            try:
                os.rename(parked, name, src_dir_fd=folder, dst_dir_fd=store)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                source, target = f"/proc/self/fd/{folder}/{parked}", f"/proc/self/fd/{store}/{name}"
                if stat.S_ISDIR(os.stat(parked, dir_fd=folder, follow_symlinks=False).st_mode):
                    shutil.copytree(source, target, symlinks=True)
                    shutil.rmtree(parked, dir_fd=folder)
                else:
                    shutil.copy2(source, target, follow_symlinks=False)
                    os.unlink(parked, dir_fd=folder)

    def _put_back(self, path: str, known: Guarded, after: GuardSnapshot) -> bool:
        folder, name = os.path.split(path)
        if folder not in after.folders:
            return True  # its folder is gone: there is no place where it could have an effect
        if path in after.found and not self._moved_away(path):
            return False
        with contextlib.suppress(OSError), _opened(folder) as descriptor:
            if known.kind == "link":
                os.symlink(known.saved or b"", name, dir_fd=descriptor)
                return True
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(name, flags, 0o600, dir_fd=descriptor), "wb") as file:
                file.write(known.saved or b"")
                os.fchmod(file.fileno(), stat.S_IMODE(known.mode))
            return True
        return False


class GuardedWork:
    """Compares the files before and after a command or a call, in threads. Without a guard it does nothing."""

    def __init__(self, guard: FileGuard | None, opened: Sequence[str] = (), *, keeps_new: bool = False) -> None:
        self._guard = guard
        self._opened = opened
        self._keeps_new = keeps_new
        self._before: GuardSnapshot | None = None

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def begin(self) -> None:
        if self._guard is not None:
            self._before = await asyncio.to_thread(self._guard.begin, self._opened)

    async def end(self) -> None:
        if self._guard is not None and self._before is not None:
            before, self._before = self._before, None
            work = asyncio.to_thread(self._guard.settle, before, self._opened, keeps_new=self._keeps_new)
            await wait_uncancelled(asyncio.create_task(work, name="protected-files"))

    def take_notices(self) -> tuple[Notice, ...]:
        return () if self._guard is None else self._guard.take_notices()


def _place_of(path: str) -> str:
    """The folder in which someone works who would meet the effect of `path`."""
    folder, name = os.path.split(path)
    above, folder_name = os.path.split(folder)
    if is_guarded_pair(folder_name, name):
        return above
    return os.path.dirname(above) if is_guarded_pair(folder, name) else folder


def _made_readable(path: str) -> bool:
    """Whether `path` is a folder that its owner could not list, and can now: a command took the right away."""
    try:
        with _opened(path) as descriptor:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & 0o500 == 0o500:
                return False
            os.chmod(f"/proc/self/fd/{descriptor}", mode | 0o700)
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    descriptor = open_without_links(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _notices(made: Sequence[str], taken: Sequence[str], folder: Path) -> list[Notice]:
    notices = []
    if taken:
        message = (
            f"A command or an MCP tool tried to leave {_listed(taken)}, which can make later commands or agents run "
            f"code. makai moved it to {folder} and left what was there before. Use the write tool for such a file; it "
            "asks first."
        )
        notices.append(Notice(level="warning", code="protected_file_taken", message=message))
    if made:
        message = (
            f"A command made {_listed(made)}, which can make later commands or agents run code. Look at it before you "
            "open or use its folder."
        )
        notices.append(Notice(level="warning", code="protected_file_made", message=message))
    return notices


def _appeared(paths: Sequence[str]) -> Notice:
    message = (
        f"{_listed(paths)} appeared while an MCP program was running, and can make later commands or agents run code. "
        "If you did not make it, look at it before you open or use its folder."
    )
    return Notice(level="warning", code="protected_file_made", message=message)


def _not_undone(path: str) -> Notice:
    message = f"A command changed {printable(path)}, which can make later commands run code. It could not be undone."
    return Notice(level="error", code="protected_file_changed", message=message)


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _MAX_SHOWN:,} more" if len(paths) > _MAX_SHOWN else ""
    return ", ".join(paths[:_MAX_SHOWN]) + more
