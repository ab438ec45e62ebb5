"""Ways around what is hidden, when it lies in a folder of the session: both backends close them."""

from __future__ import annotations

import functools
import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.places import folder_outside_tmp

from makai.core.errors import InvalidRequest
from makai.tools.launching import launcher
from makai.tools.sandbox.detect import SandboxBackend, try_bubblewrap, try_landlock
from makai.tools.sandbox.policy import SandboxLevel, SandboxPolicy, session_policy

SECRET = "the-token-of-the-server"


@pytest.fixture(params=[try_bubblewrap, try_landlock], ids=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> SandboxBackend:
    return usable(request.param())


def usable(found: SandboxBackend | str) -> SandboxBackend:
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def base() -> Iterator[Path]:
    with folder_outside_tmp() as folder:
        yield folder


def policy_of(base: Path, makai_home: Path, level: SandboxLevel = "workspace-write") -> SandboxPolicy:
    (base / "user").mkdir(exist_ok=True)
    return session_policy(level, [base / "work"], makai_home=makai_home, user_home=base / "user")


def run(sandbox: SandboxBackend, policy: SandboxPolicy, script: str) -> str:
    done = launcher().run(sandbox.wrap(policy, ["bash", "-c", script]), cwd=policy.roots[0], timeout_s=30)
    return done.stdout.decode()


def home_in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "server-token").write_text(SECRET)
    return folder


def test_what_is_hidden_deep_in_the_session_folder_cannot_be_moved_out(sandbox: SandboxBackend, base: Path) -> None:
    home = home_in(base / "work/state/deep/makai")
    for above in ("state", "state/deep"):
        run(sandbox, policy_of(base, home), f"mv {above} {above}-moved && mkdir -p state/deep/makai")

    seen = run(sandbox, policy_of(base, home), "grep -r . . 2>/dev/null; cat state*/deep*/makai/server-token")

    assert SECRET not in seen
    assert (home / "server-token").read_text() == SECRET


def test_no_other_folder_can_replace_a_link_to_what_is_hidden(sandbox: SandboxBackend, base: Path) -> None:
    real = home_in(base / "elsewhere/makai")
    (base / "work/settings").mkdir(parents=True)
    link = base / "work/settings/state"
    link.symlink_to(real.parent)

    script = "rm settings/state; mkdir -p settings/state/makai; echo > settings/state/makai/config.toml"
    run(sandbox, policy_of(base, link / "makai"), script)

    assert (os.readlink(link), os.listdir(real)) == (str(real.parent), ["server-token"])


def test_a_link_to_what_is_hidden_in_the_very_folder_of_the_session_is_refused_by_bubblewrap(base: Path) -> None:
    found = usable(try_bubblewrap())
    real = home_in(base / "elsewhere/makai")
    (base / "work").mkdir()
    (base / "work/state").symlink_to(real)

    with pytest.raises(InvalidRequest, match="is a symbolic link"):
        found.wrap(policy_of(base, base / "work/state"), ["true"])


def test_links_that_lead_in_circles_are_no_trap(base: Path) -> None:
    (base / "work").mkdir()
    (base / "work/a").symlink_to("b")
    (base / "work/b").symlink_to("a")

    policy = policy_of(base, base / "work/a/makai")

    assert {str(base / "work/a"), str(base / "work/b")} <= set(policy.protected)


def test_what_is_read_only_around_something_hidden_stays_read_only(base: Path) -> None:
    found = usable(try_bubblewrap())
    home = home_in(base / "work/.claude/state/makai")

    run(found, policy_of(base, home), "echo > .claude/state/new; echo > .claude/new")

    assert sorted(os.listdir(base / "work/.claude/state")) == ["makai"]
    assert sorted(os.listdir(base / "work/.claude")) == ["state"]


def test_a_socket_of_another_process_in_the_session_folder_is_out_of_reach(sandbox: SandboxBackend, base: Path) -> None:
    (base / "work").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(base / "work/service.sock"))
        listener.listen()
        listener.setblocking(False)
        connect = "import socket; socket.socket(socket.AF_UNIX).connect('service.sock'); print('CONNECTED')"
        said = run(sandbox, policy_of(base, base / "makai"), f'python3 -c "{connect}"')

        assert "CONNECTED" not in said
        with pytest.raises(BlockingIOError):
            listener.accept()


LATE_SOCKETS = """
import os, socket
with open("started", "w") as pipe:
    pipe.write("x")
with open("go") as pipe:
    pipe.read(1)
UNIX = socket.AF_UNIX
def attempt(what, how):
    try:
        how()
        print("REACHED", what)
    except OSError:
        pass
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    late = f"late-{int(kind)}"
    for name in (late, f"{os.environ['OUTSIDE']}/{late}", f"\\0{os.environ['ABSTRACT']}-{int(kind)}"):
        attempt(("connect", kind, name), lambda: socket.socket(UNIX, kind).connect(name))
        def through_pair():
            near, far = socket.socketpair(UNIX, kind)
            near.connect(name)
        attempt(("pair", kind, name), through_pair)
        def send_through_pair():
            near, far = socket.socketpair(UNIX, kind)
            far.close()
            near.sendto(b"x", name)
        attempt(("sendto", kind, name), send_through_pair)
for process in ["self", *filter(str.isdigit, os.listdir("/proc"))]:
    try:
        descriptors = os.listdir(f"/proc/{process}/fd")
    except OSError:
        continue
    for number in descriptors:
        path = f"/proc/{process}/fd/{number}"
        try:
            if not os.readlink(path).startswith("socket:"):
                continue
        except OSError:
            continue
        if process == "self":
            print("REACHED an inherited socket", number)
        attempt(("descriptor", path), lambda: os.open(path, os.O_RDWR))
print("tried")
"""


def test_a_socket_that_is_made_while_a_command_runs_is_out_of_reach(sandbox: SandboxBackend, base: Path) -> None:
    """Hidden paths are known when a command starts; what is made later can only be refused by the kind of socket."""
    work, outside, abstract = base / "work", base / "outside", f"makai-late-{os.getpid()}"
    for folder in (work, outside):
        folder.mkdir()
    (work / "attack.py").write_text(LATE_SOCKETS)
    pipes: dict[str, int] = {}
    with ExitStack() as stack:
        for name in ("started", "go"):
            os.mkfifo(work / name)
            pipes[name] = os.open(work / name, os.O_RDWR)
            stack.callback(os.close, pipes[name])

        def listen_late() -> None:
            assert select.select([pipes["started"]], [], [], 60)[0]
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                for name in (f"{work}/late-{int(kind)}", f"{outside}/late-{int(kind)}", f"\0{abstract}-{int(kind)}"):
                    listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                    listener.bind(name)
                    if kind != socket.SOCK_DGRAM:
                        listener.listen()
            os.write(pipes["go"], b"x")

        thread = stack.enter_context(ThreadPoolExecutor(1))
        listening = thread.submit(listen_late)
        said = run(sandbox, policy_of(base, base / "makai"), f"OUTSIDE={outside} ABSTRACT={abstract} python3 attack.py")
        listening.result()

    assert said.split("\n") == ["tried", ""]


def test_a_socket_of_another_process_that_vanishes_does_not_fail_a_command(sandbox: SandboxBackend, base: Path) -> None:
    (base / "work").mkdir()
    policy = policy_of(base, base / "makai")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(base / "service.sock"))
        argv = sandbox.wrap(policy, ["echo", "done"])
        os.unlink(base / "service.sock")
        done = launcher().run(argv, timeout_s=60, cwd=base / "work")

    assert (done.returncode, done.stdout) == (0, b"done\n")


@pytest.mark.parametrize("folder", [".git", ".git/modules/a", ".GIT/hooks", "project/.makai"])
def test_commands_cannot_be_given_a_folder_to_write_that_makes_git_or_makai_run_code(base: Path, folder: str) -> None:
    root = base / folder
    root.mkdir(parents=True)
    policy = functools.partial(session_policy, roots=[root], makai_home=base / "makai", user_home=base / "user")

    assert policy("read-only").writable == ()
    assert policy("full-access").roots == (str(root),)
    with pytest.raises(InvalidRequest, match="makes other programs run code"):
        policy("workspace-write")


def test_secrets_are_hidden_where_they_are_and_are_not_made_where_they_are_missing(base: Path) -> None:
    (base / "work").mkdir()
    (base / "user/.mozilla").mkdir(parents=True)

    hidden = policy_of(base, base / "makai").hidden

    assert str(base / "user/.mozilla") in hidden
    assert str(base / "user/.config/chromium") not in hidden
    assert str(base / "user/.ssh") in hidden
