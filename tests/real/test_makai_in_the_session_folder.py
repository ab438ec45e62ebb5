"""makai installed inside the folder that its sessions may write, as `make run` does it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.places import folder_outside_tmp

import makai

ATTACKER = """
import asyncio, json, sys
from pathlib import Path
from makai.tools import search
from makai.tools.launching import launcher
from makai.tools.sandbox import detect
from makai.tools.sandbox.policy import session_policy
from makai.tools.workspace import Workspace

root, backend, attacks = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
sandbox = {"bubblewrap": detect.try_bubblewrap, "landlock": detect.try_landlock}[backend]()
if isinstance(sandbox, str):
    sys.exit(f"NO BACKEND: {sandbox}")
policy = session_policy("workspace-write", [root], makai_home=root.parent / "state", user_home=root.parent / "user")

def run(script):
    return launcher().run(sandbox.wrap(policy, ["bash", "-c", script]), cwd=root, timeout_s=60)

async def grep():
    tool = search.GrepTool(Workspace([root]))
    return (await tool.run({"pattern": "needle", "path": "kept"}, None)).content[0].text

answers = []
for attack in attacks:
    run(attack)
    after = run("echo works > kept/probe && cat kept/probe")
    answers.append((after.stdout.decode().strip(), asyncio.run(grep())))
print(json.dumps(answers))
"""

RUN_BY_THE_NEXT_START = 'open("{mark}", "a").write("x")\n'


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A folder with makai's package in `src` and a virtual environment around it."""
    with folder_outside_tmp() as base:
        work = base / "work"
        for name in ("state", "user", "work/kept"):
            (base / name).mkdir(parents=True)
        (work / "kept/a.txt").write_text("a needle\n")
        shutil.copytree(Path(makai.__file__).parent, work / "src/makai", ignore=shutil.ignore_patterns("page"))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(work / ".venv")], check=True, timeout=120)
        packages = next((work / ".venv/lib").glob("python*")) / "site-packages"
        installed = Path(msgspec.__file__).parents[1]
        (packages / "makai.pth").write_text(f"{work / 'src'}\n{installed}\n")
        yield work


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_no_command_can_change_what_makai_runs_outside_of_the_sandbox(root: Path, backend: str) -> None:
    mark = root / "kept/escaped"
    code = RUN_BY_THE_NEXT_START.format(mark=mark)
    packages = next((root / ".venv/lib").glob("python*")) / "site-packages"
    targets = [
        *("src/makai/aio/supervisor.py", "src/makai/aio/launcher_process.py", "src/makai/tools/search_worker.py"),
        *("src/makai/tools/sandbox/landlock_child.py", "src/makai/__init__.py", "src/msgspec.py", "src/tree_sitter.py"),
        *(str(packages / name) for name in ("evil.pth", "sitecustomize.py", "json.py")),
        *(".venv/bin/python", ".venv/pyvenv.cfg", ".venv/bin/bwrap"),
    ]
    write = [f"printf %s '{code}' > {target}; printf %s '{code}' >> {target}" for target in targets]
    replace = [
        f"printf %s '{code}' > kept/new; chmod +x kept/new; mv -f kept/new .venv/bin/python",
        "mv src/makai/aio kept/aio; rm -rf src/makai; mv src kept/src",
        "mv .venv kept/venv; mkdir -p .venv/bin",
        f"rm -f .venv/bin/python; ln -s {mark} .venv/bin/python",
        "rm -rf .venv/bin src/makai/__pycache__ src/makai/aio/__pycache__",
    ]
    attacks = [*write, *replace]
    before = digest(root)

    done = subprocess.run(
        [str(root / ".venv/bin/python"), "-c", ATTACKER, str(root), backend, msgspec.json.encode(attacks).decode()],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=root,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if "NO BACKEND" in done.stderr:
        pytest.skip(done.stderr.strip())

    assert (done.returncode, done.stderr[-2000:]) == (0, "")
    answers = msgspec.json.decode(done.stdout)
    assert answers == [["works", "kept/a.txt:1: a needle"]] * len(attacks)
    assert (digest(root), mark.exists()) == (before, False)


def digest(root: Path) -> str:
    """Every file of makai and its environment: names, kinds and contents."""
    found = hashlib.sha256()
    for top in ("src", ".venv"):
        for path in sorted((root / top).rglob("*")):
            found.update(f"{path} {path.is_symlink()} {path.stat().st_mode}\n".encode())
            if path.is_file():
                found.update(path.read_bytes())
    return found.hexdigest()
