"""Runs commands under strace in a throw-away folder, and tells what else they started and what they wrote.

`Site` makes the folder. `effects` runs commands, many in one traced shell, in bubblewrap with everything but the folder
read-only; what a command only tried to write counts too.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from makai.tools.permissions.git_helpers import SWITCHES
from makai.tools.protected import is_protected

PATIENCE_S = 240
_CALLS = (
    "execve,execveat,open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,"
    "linkat,symlink,symlinkat,truncate,mknod,mknodat,chmod,fchmodat,settimeofday,clock_settime,sethostname,"
    "connect,kill,setxattr"
)
_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)")
_QUOTED = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
"""A path, after the folder that it is relative to where the call names one."""
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
_NO_FILES = ("/dev/null", "/dev/tty", "/dev/pts", "/dev/urandom", "/proc/self/")
_OWN_HELPERS: Mapping[str, frozenset[str]] = {
    "egrep": frozenset({"grep", "sh"}),
    "fgrep": frozenset({"grep", "sh"}),
    "sdiff": frozenset({"diff"}),
    "diff3": frozenset({"diff"}),
    "which": frozenset({"sh", "which.debianutils"}),
    "fd": frozenset({"fdfind"}),
    "awk": frozenset({"gawk", "mawk"}),
    "python3": frozenset({"python", "python3.11", "pyenv", "bash", "cut", "grep", "sed", "head", "readlink", "env"}),
    "npm": frozenset({"node", "env"}),
    "zipinfo": frozenset({"unzip"}),
    "man": frozenset({"whatis", "apropos"}),
}
"""Programs that are scripts around another one, or always the front of it."""
_HARNESS = frozenset({"bash", "timeout"})


class Effects(msgspec.Struct, frozen=True):
    started: frozenset[str]
    """Names of programs that were started, or would have been."""
    written: frozenset[str]
    """Paths, relative to the folder where they lie in it, of what was written, made or removed, or would have been."""


class Site:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.tmp = folder / "tmp"
        self.bin = folder / "bin"
        for path in (self.root / "src", self.tmp, self.bin):
            path.mkdir(parents=True)
        if (fd := shutil.which("fdfind")) and not shutil.which("fd"):
            (self.bin / "fd").symlink_to(fd)
        self._files()
        self._repository()

    def _files(self) -> None:
        write = {
            "a.txt": "b\na\na\n",
            "b.txt": "a\nc\n",
            "data.csv": "x,y\n1,2\n",
            "a.json": '{"a": {"b": [1, 2]}}\n',
            "src/main.py": "def main():\n    return 1\n",
            "names": "a.txt\0b.txt\0",
            "sed.txt": "w out\n",
            "list.txt": "a.txt\n",
            "run": "#!/bin/sh\ntouch ran\n",
            ".envrc": "export A=1\n",
            "sub/.envrc": "export A=1\n",
            ".venv/bin/python": "#!/bin/sh\n",
            ".ripgreprc": "--pre=./run\n",
        }
        for name, text in write.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.root / "run").chmod(0o755)
        self._run("tar", "-cf", "a.tar", "a.txt")
        if shutil.which("zip"):
            self._run("zip", "-q", "a.zip", "a.txt")
        if shutil.which("sqlite3"):
            self._run("sqlite3", "a.db", "create table t(x); insert into t values (1)")

    def _repository(self) -> None:
        for words in (
            ("init", "-q", "-b", "main"),
            ("config", "user.name", "a"),
            ("config", "user.email", "a@b.c"),
            ("add", "a.txt", "b.txt", "src"),
            ("commit", "-qm", "first foo"),
            ("tag", "v1"),
            ("branch", "victim"),
            ("remote", "add", "origin", "https://example.invalid/x.git"),
        ):
            self._run("git", *words)
        (self.root / "b.txt").write_text("a\nd foo\n")
        self._run("git", "commit", "-qam", "second")
        (self.root / "a.txt").write_text("b\na\nz\n")

    def _run(self, *words: str) -> None:
        subprocess.run(words, cwd=self.root, check=True, capture_output=True, timeout=30)

    def state(self) -> dict[str, bytes | str]:
        """Everything in the folder but git's index, which any command may refresh."""
        found: dict[str, bytes | str] = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_file() and name != ".git/index":
                found[name] = path.read_bytes()
        return found

    def protected(self) -> dict[str, bytes | str]:
        return {name: content for name, content in self.state().items() if is_protected(name)}

    def effects(self, commands: Sequence[str], *, switches: bool = True, seconds: float = 0) -> Effects:
        """What all of these commands did together. With `seconds` each is ended after that time."""
        lines = [f"({one}\n)" for one in commands]
        if seconds:
            lines = [f"timeout -s KILL {seconds} bash --noprofile --norc -c {shlex.quote(one)}" for one in commands]
        (self.tmp / "script").write_text("\n".join(["ulimit -t 3", *lines, ""]))
        trace = self.tmp / "trace"
        environ = {
            "PATH": f"{os.environ['PATH']}:{self.bin}",
            "HOME": str(self.tmp),
            "TMPDIR": str(self.tmp),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **(SWITCHES if switches else {}),
        }
        strace = ["strace", "-f", "-y", "-qq", "-s", "4096", "--seccomp-bpf", "-e", f"trace={_CALLS}", "-o", str(trace)]
        inside = [
            "bwrap",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--unshare-all",
            "--die-with-parent",
        ]
        inside += ["--bind", str(self.root.parent), str(self.root.parent), "--chdir", str(self.root)]
        subprocess.run(
            [*inside, *strace, "bash", "--noprofile", "--norc", str(self.tmp / "script")],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )
        lines_seen = trace.read_text(errors="replace").splitlines()
        assert any("execve(" in line for line in lines_seen), "nothing was traced"
        return self._read(lines_seen)

    def _read(self, lines: Iterable[str]) -> Effects:
        started, written = set[str](), set[str]()
        for line in lines:
            if not (matched := _LINE.match(line)):
                continue
            call, arguments = matched[1], matched[2]
            paths = _QUOTED.findall(arguments)
            if call.startswith("exec"):
                if "ENOENT" not in line and paths:
                    started.add(os.path.basename(paths[0][1]))
            elif call in ("settimeofday", "clock_settime", "sethostname", "connect", "kill"):
                if call != "connect" or "AF_UNIX" not in arguments:
                    written.add(f"<{call}>")
            elif call not in ("open", "openat", "openat2") or _WRITES.search(arguments):
                written.update(self._named(paths[1:] if call.startswith("symlink") else paths))
        return Effects(frozenset(started - _HARNESS), frozenset(written))

    def _named(self, paths: Sequence[tuple[str, str]]) -> Iterator[str]:
        for folder, path in paths:
            absolute = os.path.normpath(os.path.join(folder or self.root, path))
            if absolute.startswith(_NO_FILES) or absolute.startswith(f"{self.tmp}/") or absolute == str(self.tmp):
                continue
            yield os.path.relpath(absolute, self.root) if absolute.startswith(f"{self.root}/") else absolute


def may_start(programs: Iterable[str]) -> frozenset[str]:
    """The named programs, and what some of them are scripts around."""
    named = frozenset(programs)
    return named.union(*(_OWN_HELPERS.get(name, frozenset()) for name in named))
