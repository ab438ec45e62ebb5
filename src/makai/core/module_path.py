"""Where this process may load code from.

Commands write the session's folders, and what makai imports runs outside of every sandbox. A folder that is no
installation, such as one of PYTHONPATH, the current one or a project that a `.pth` file names, is therefore not on
makai's module path. The same holds for LD_LIBRARY_PATH, in which an empty part is the current folder. Programs that use
makai as a library keep theirs. This module is the first that a command imports, so it imports little.
"""

from __future__ import annotations

import os
import site
import sys

_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_LIBRARY_PATH, _GIVEN_LIBRARY_PATH = "LD_LIBRARY_PATH", "_LD_LIBRARY_PATH_OF_MAKAI"


def code_folders() -> tuple[str, ...]:
    """Where makai, the standard library and installed packages are: absolute and free of links."""
    library = os.path.dirname(os.__file__)
    shared = os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(library))
    own = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    found = [own, library, shared, *site.getsitepackages()]
    if site.ENABLE_USER_SITE and (user_site := site.getusersitepackages()):
        found.append(user_site)
    found += [entry for entry in sys.path if os.path.basename(entry) in _PACKAGE_FOLDERS]
    return tuple(dict.fromkeys(map(os.path.realpath, found)))


def keep_installed_code() -> None:
    """Remove every other folder from the module path, unless this user cannot put anything there."""
    folders = code_folders()
    sys.path[:] = [entry for entry in sys.path if _is_kept(entry, folders)]


def keep_installed_libraries() -> None:
    """Start this program again when the loader would look for libraries in other folders, as it would for every module
    that is loaded later. `os.environ` keeps the variable as it was given, for the commands that need it."""
    given = os.environ.pop(_GIVEN_LIBRARY_PATH, None)
    if given is not None:
        os.environ[_LIBRARY_PATH] = given
        return
    given = os.environ.get(_LIBRARY_PATH, "")
    parts = given.replace(";", ":").split(":") if given else []
    libraries = os.path.join(os.path.realpath(sys.base_exec_prefix), sys.platlibdir)
    kept = [part for part in parts if _is_kept(part, (*code_folders(), libraries))]
    if kept != parts:
        environ = {**os.environ, _GIVEN_LIBRARY_PATH: given, _LIBRARY_PATH: ":".join(kept)}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def module_path() -> str:
    """A PYTHONPATH for a Python process of makai's own, which then loads code from where this one does."""
    return os.pathsep.join(filter(os.path.isabs, sys.path))


def _is_kept(entry: str, folders: tuple[str, ...]) -> bool:
    if not os.path.isabs(entry):
        return False
    real = os.path.realpath(entry)
    return any(real == folder or real.startswith(f"{folder}/") for folder in folders) or not is_replaceable(real)


def is_replaceable(path: str) -> bool:
    """Whether this user could put something else at `path`, which is absolute and free of links, or in it."""
    user = os.geteuid()
    while True:
        try:
            if os.stat(path).st_uid == user or os.access(path, os.W_OK):
                return True
        except OSError:  # it could be made
            return True
        if path == "/":
            return False
        path = os.path.dirname(path)
