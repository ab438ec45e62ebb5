"""A process that holds secrets cannot be looked into by other processes of the same user."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys

import pytest

from makai.core import process_privacy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this")

UNPRIVILEGED = 65534
INTERPRETER = shutil.which("python3", path="/usr/bin:/bin") or os.path.realpath(sys.executable)
HOLDER = "import sys\n{prepared}\nprint('ready', flush=True)\nsys.stdin.read()\n"
LOOK = """
import sys
for name in ("environ", "mem", "maps"):
    try:
        open(f"/proc/{sys.argv[1]}/{name}", "rb").close()
        print(name)
    except PermissionError:
        pass
"""


def looked_into(prepared: str) -> list[str]:
    """What another process of the same user, who is not root, can open of a process with a secret."""
    user = UNPRIVILEGED if os.getuid() == 0 else os.getuid()
    start = [INTERPRETER, "-I", "-S", "-c"]
    environ = {"API_KEY": "secret"}
    code = HOLDER.format(prepared=prepared)
    with subprocess.Popen(
        [*start, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, env=environ
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            look = [*start, LOOK, str(holder.pid)]
            done = subprocess.run(look, user=user, env={}, capture_output=True, text=True, check=True, timeout=30)
            return done.stdout.split()
        finally:
            holder.kill()


@pytest.mark.proof("O8")
def test_its_environment_and_memory_are_for_root_only() -> None:
    try:
        without = looked_into("")
    except PermissionError:
        pytest.skip("another user cannot run this interpreter: the protection was NOT tested")

    assert "environ" in without
    code = inspect.getsource(process_privacy).replace("from __future__ import annotations\n", "")
    assert looked_into(f"{code}\nhide_memory()") == []


@pytest.mark.parametrize("arguments", [["--help"], ["stdio"]])
def test_every_command_that_could_hold_a_secret_is_such_a_process(arguments: list[str]) -> None:
    told = "atexit.register(lambda: os.write(2, b'dumpable: %d' % ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)))"
    code = f"import atexit, ctypes, os\n{told}\nfrom makai.cli.main import main\nmain({arguments!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, stdin=subprocess.DEVNULL, timeout=60)

    assert done.stderr.endswith(b"dumpable: 0")
