"""A place to attack: a workspace, what lies around it, and servers."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from makai.tools.launching import launcher
from makai.tools.sandbox.detect import Detection
from makai.tools.sandbox.guard import FileGuard
from makai.tools.sandbox.policy import SandboxLevel, SandboxPolicy, not_to_be_made, session_policy
from makai.tools.sandbox.repository import git_folders_of

SECRET = "the-secret-of-the-site"
TRACES = ("/makai-was-here", "/etc/makai-was-here", "/usr/local/bin/makai-was-here", "/dev/shm/makai-was-here")

_FILES = {
    "workspace/src/main.py": "answer = 42\n",
    "workspace/src/test_main.py": "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n",
    "workspace/src/hello.c": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
    "workspace/.makai/config.toml": "",
    "outside/file": "precious\n",
    "makai-home/auth.json": SECRET,
    "makai-home/server-token": SECRET,
    "makai-home/makai.db": SECRET,
    "user/.bashrc": "",
    "user/.netrc": SECRET,
    "user/.ssh/id_ed25519": SECRET,
    "user/.aws/credentials": SECRET,
    "tmp/.keep": "",
}


class Site:
    """See above. `base` must not be in /tmp, which a sandbox replaces as a whole."""

    def __init__(self, base: Path) -> None:
        self.base = base
        for name, text in _FILES.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.root, self.outside, self.makai_home = base / "workspace", base / "outside", base / "makai-home"
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(base / "user"), "OUT": str(self.outside)}
        self._environ |= {"MK": str(self.makai_home), "LC_ALL": "C.UTF-8", "ABSTRACT": f"makai-{os.getpid()}"}
        for role in ("AUTHOR", "COMMITTER"):
            self._environ |= {f"GIT_{role}_NAME": "Ada", f"GIT_{role}_EMAIL": "ada@example.com"}
        self._git("init", "-q")
        self._git("add", ".")
        self._git("commit", "-qm", "first")
        (self.root / ".git/hooks/post-merge").write_text("")
        (self.root / "untracked").write_text("")

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, env=self._environ, check=True, timeout=30)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """With the sockets and the server that attacks aim at."""
        with contextlib.ExitStack() as stack:
            self._tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            self._udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._udp.bind(("127.0.0.1", 0))
            self._datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            self._datagrams.bind(str(self.outside / "datagrams.sock"))
            for folder, name in ((self.outside, "service.sock"), (self.makai_home, "makai.sock")):
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(str(folder / name))
                listener.listen()
            abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
            abstract.bind("\0" + self._environ["ABSTRACT"])
            abstract.listen()
            others = Path("/tmp", f"makai-of-others-{os.getpid()}")
            others.write_text("")
            stack.callback(others.unlink)
            self.victim = stack.enter_context(self._server())
            ports = {"TCP": self._tcp.getsockname()[1], "UDP": self._udp.getsockname()[1], "VICTIM": self.victim.pid}
            self._environ |= {name: str(value) for name, value in ports.items()}
            self._before = self._state()
            yield

    @contextlib.contextmanager
    def _server(self) -> Iterator[subprocess.Popen[bytes]]:
        with (
            open(self.makai_home / "auth.json") as credentials,
            subprocess.Popen(
                ["sleep", "600"], stdin=credentials, cwd=self.makai_home, env={"SECRET": SECRET, **self._environ}
            ) as server,
        ):
            try:
                yield server
            finally:
                server.kill()

    def policy(
        self,
        level: SandboxLevel = "workspace-write",
        *,
        network: bool = False,
        git_writable: bool = False,
        max_processes: int = 256,
    ) -> SandboxPolicy:
        return session_policy(
            level,
            [self.root],
            makai_home=self.makai_home,
            user_home=self.base / "user",
            private_tmp=self.base / "tmp",
            network=network,
            git_folders=git_folders_of(str(self.root)) if git_writable else (),
            max_processes=max_processes,
        )

    def run(
        self, sandbox: Detection, script: str, policy: SandboxPolicy | None = None, *, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.run_command(sandbox, ["bash", "-c", script], policy, cwd=cwd)

    def run_command(
        self,
        sandbox: Detection,
        argv: Sequence[str],
        policy: SandboxPolicy | None = None,
        *,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a session does. What it says of itself and of errors comes together."""
        policy = policy or self.policy()
        watched = () if policy.level == "full-access" else policy.writable
        guard = FileGuard(watched, self.base / "taken", not_to_be_made(self.base / "user"))
        before = guard.look()
        with sandbox.holding(policy):
            command = sandbox.wrap(policy, argv)
            done = launcher().run(command, env=self._environ, timeout_s=30, cwd=cwd or self.root)
        guard.settle(before, keeps_new=bool(policy.git_folders))
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode("utf-8", "replace"))

    def damage(self) -> list[str]:
        """What an attack did that can be seen from outside."""
        after = self._state()
        found = [path for path in sorted({*self._before, *after}) if self._before.get(path) != after.get(path)]
        found += [path for path in TRACES if os.path.exists(path)]
        if self.victim.poll() is not None:
            found.append("the server is dead")
        elif Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt":
            found.append("the server is stopped")
        heard, _, _ = select.select([self._tcp, self._udp, self._datagrams], [], [], 0)
        return found + [f"{listener.family.name} {listener.type.name} heard something" for listener in heard]

    def _state(self) -> dict[str, tuple[object, ...]]:
        """What must not change: everything but the workspace's own files and the private /tmp."""
        watched = [self.outside, self.makai_home, self.base / "user", self.root / ".makai", self.root / ".git/hooks"]
        paths = [self.root / name for name in (".git/config", ".git/modules", ".mcp.json", ".claude")]
        for folder in watched:
            paths += [folder, *folder.rglob("*")]
        return {str(path.relative_to(self.base)): _look(path) for path in paths if path.is_symlink() or path.exists()}


def _look(path: Path) -> tuple[object, ...]:
    found = path.lstat()
    text = path.read_bytes() if path.is_file() else b""
    return found.st_mode, found.st_uid, found.st_ino, text, found.st_mtime_ns if path.is_file() else 0


def remove_traces() -> None:
    for path in TRACES:
        with contextlib.suppress(OSError):
            os.unlink(path)


UNCONFINED = Detection(backend=None)
"""For proofs: it runs what has full access, and nothing else."""
