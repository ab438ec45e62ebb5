"""makai loads code from installations only: not from folders that its own commands may write."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.places import folder_outside_tmp

import makai
from makai.core.module_path import is_replaceable, module_path

SOURCES = Path(makai.__file__).parents[1]
PRINTS_PATH = "import sys\nfrom makai.cli import main\nmain._run = lambda arguments: print(*sys.path, sep='\\n') or 0\n"


@pytest.fixture
def project() -> Iterator[Path]:
    """A folder with modules that say when they are loaded, by names that makai and its dependencies import late."""
    with folder_outside_tmp() as base:
        folder = base / "project"
        folder.mkdir()
        for name in ("difflib", "html", "readline", "sqlite3", "tomllib", "tree_sitter", "webbrowser", "zoneinfo"):
            (folder / f"{name}.py").write_text(f"open({str(base / 'loaded')!r}, 'a').write('{name} ')\n")
        yield folder


def path_of(interpreter: str, cwd: Path, **environ: str) -> list[str]:
    """The module path of the `makai` command."""
    done = subprocess.run(
        [interpreter, "-c", f"{PRINTS_PATH}main.main()"],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("variable", ["{project}", "{project}:", "{sources}:{project}/lib", "."])
def test_no_folder_of_pythonpath_is_on_the_module_path_of_the_command(project: Path, variable: str) -> None:
    given = variable.format(project=project, sources=SOURCES)

    usual = path_of(sys.executable, SOURCES)
    found = path_of(sys.executable, project, PYTHONPATH=given)

    assert (sorted(set(found)), [entry for entry in found if entry.startswith(str(project))]) == (
        sorted(set(usual)),
        [],
    )


def test_a_command_of_makai_loads_no_module_of_the_folder_it_is_started_in(project: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(project), "PYTHONPATH": str(project), "MAKAI_HOME": str(project)}

    subprocess.run(
        [sys.executable, "-m", "makai", "doctor", "--offline"],
        env=environ,
        cwd=project,
        capture_output=True,
        timeout=120,
    )

    assert not (project.parent / "loaded").exists()


def test_a_project_that_a_pth_file_names_is_not_on_the_module_path_and_makai_itself_is(project: Path) -> None:
    """makai and the project are both installed for development, in one virtual environment."""
    venv.create(project / ".venv", with_pip=False)
    packages = next((project / ".venv/lib").glob("python*/site-packages"))
    (packages / "of_the_project.pth").write_text(f"{project}\n{SOURCES}\n")

    found = path_of(str(project / ".venv/bin/python"), project)

    assert [entry for entry in found if entry.startswith((str(project), str(SOURCES)))] == [str(packages), str(SOURCES)]


def test_the_loader_looks_in_no_folder_that_commands_may_write_and_commands_keep_the_variable(project: Path) -> None:
    library = os.path.dirname(os.__file__)
    given = f":{project}:{library}"
    shows = "import os; from makai.cli import main\nmain._run = lambda arguments: print(dict(os.environ), "
    shows += "open('/proc/self/environ').read().split('\\0')[:-1], sep='\\n') or 0\nmain.main()"
    environ = {"LD_LIBRARY_PATH": given, "PYTHONCOERCECLOCALE": "0"}

    done = subprocess.run([sys.executable, "-c", shows], env=environ, cwd=project, capture_output=True, timeout=60)

    later, at_start = map(ast.literal_eval, done.stdout.decode().splitlines())
    assert later == environ
    assert f"LD_LIBRARY_PATH={library}" in at_start


def test_a_child_loads_code_from_where_this_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", "lib", "/opt/library", "/opt/packages"])

    assert module_path() == "/opt/library:/opt/packages"


def test_what_the_user_owns_or_could_make_is_replaceable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_replaceable(str(tmp_path))
    assert is_replaceable("/no/such/folder")

    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(os, "access", lambda path, mode: path == "/srv")

    assert [is_replaceable(path) for path in ("/usr/bin", "/usr", "/", "/srv")] == [False, False, False, True]
