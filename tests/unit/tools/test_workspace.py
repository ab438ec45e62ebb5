"""Files beneath the roots, and nothing else; and what of makai itself is hidden."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.machine import RecordMeasure, open_descriptors
from support.path_trials import INSIDE, MAGIC, SECRET, changes, content, make_root, race, spellings
from support.places import mode
from support.profiles import FAULTS

from makai.core.errors import InvalidRequest, NotSupported
from makai.tools import openat2
from makai.tools.file_errors import FileMissing, FileRefused, OutsideWorkspace
from makai.tools.workspace import Entry, Place, Workspace


def write(workspace: Workspace, path: str, data: bytes = b"new") -> None:
    with workspace.open_write(path) as file:
        file.write(data)


ATTEMPTS: tuple[Callable[[Workspace, str], object], ...] = (content, write)


def names(workspace: Workspace, path: str) -> list[str]:
    return sorted(entry.name for entry in workspace.entries(path))


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path)[0]


@pytest.fixture
def outside(root: Path) -> Path:
    return root.parent / "outside"


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace([root])


def test_files_beneath_the_root_are_read_by_relative_and_absolute_paths(root: Path, workspace: Workspace) -> None:
    paths = ["inner/file", "./inner//file", "inner/../inner/file", str(root / "inner" / "file"), f"/{root}/inner/file"]
    assert [content(workspace, path) for path in paths] == [INSIDE] * 5


@pytest.mark.proof("P1")
@pytest.mark.parametrize("attempt", ["read", "list", "stat", "place"])
def test_no_spelling_reads_outside_the_root(root: Path, outside: Path, workspace: Workspace, attempt: str) -> None:
    actions: dict[str, Callable[[str], object]] = {
        "read": lambda path: content(workspace, path),
        "list": lambda path: names(workspace, path),
        "stat": workspace.stat,
        "place": lambda path: workspace.place(path).absolute,
    }

    assert len(spellings(outside)) >= 60
    for path in spellings(outside):
        try:
            found = actions[attempt](path)
        except FileRefused:
            continue
        # A place may be named that does not exist yet; it must lie in the root all the same.
        assert attempt == "place", path
        assert str(found).startswith(f"{root}/"), path


@pytest.mark.proof("P1")
def test_no_spelling_writes_outside_the_root(outside: Path, workspace: Workspace, tmp_path: Path) -> None:
    for path in spellings(outside):
        with suppress(FileRefused):
            write(workspace, path)

    assert changes(outside) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "outside"]


def test_outside_and_missing_are_different_errors_with_a_hint(root: Path, outside: Path, workspace: Workspace) -> None:
    with pytest.raises(OutsideWorkspace, match=f"outside the session's folders. Files can be used in: {root}"):
        workspace.open_read(str(outside / "secret"))
    with pytest.raises(FileMissing, match="nothing does not exist"):
        workspace.open_read("nothing")


@pytest.mark.proof("P2")
def test_links_that_lead_outside_are_refused_and_inner_ones_followed(
    root: Path, outside: Path, workspace: Workspace
) -> None:
    targets = {
        "to-file": "../outside/secret",
        "to-folder": "../outside",
        "to-parent": "..",
        "absolute": str(outside / "secret"),
        "absolute-inside": str(root / "inner" / "file"),
        "loop": "loop",
        "magic": MAGIC,
        "dangling-outside": "../outside/new",
    }
    for name, target in targets.items():
        (root / name).symlink_to(target)
    (root / "inside").symlink_to("inner/file")

    paths = (*targets, "to-folder/secret", "to-parent/outside/secret", "magic/etc/passwd")
    for path, attempt in itertools.product(paths, ATTEMPTS):
        with pytest.raises(FileRefused):
            attempt(workspace, path)
    assert changes(outside) == 0
    assert content(workspace, "inside") == INSIDE


def test_a_write_through_an_inner_link_changes_the_file_and_keeps_the_link(root: Path) -> None:
    (root / "link").symlink_to("inner/file")

    write(Workspace([root]), "link")

    assert (root / "inner" / "file").read_bytes() == b"new"
    assert (root / "link").is_symlink()


@pytest.mark.proof("P2")
def test_a_write_to_a_hard_link_leaves_the_other_name_as_it_was(root: Path, outside: Path) -> None:
    os.link(outside / "secret", root / "hard")

    write(Workspace([root]), "hard")

    assert ((root / "hard").read_bytes(), changes(outside)) == (b"new", 0)


@pytest.mark.proof("P3")
@pytest.mark.scaled
def test_a_swapped_link_never_leads_outside(tmp_path: Path, record_measure: RecordMeasure) -> None:
    tries = 60_000 if FAULTS else 2_000
    report = race(tmp_path, tries)

    record_measure(f"symlink-swap race, {tries:,} opens: outside the root", "0", str(report.outside))
    assert (report.tries, report.outside) == (tries, 0)
    assert min(report.inside, report.refused) > (1_000 if FAULTS else 0)


@pytest.mark.proof("P4")
def test_a_folder_whose_name_begins_like_the_root_is_outside(tmp_path: Path) -> None:
    for name in ("app", "app-secret"):
        (tmp_path / name).mkdir()
    (tmp_path / "app-secret" / "key").write_bytes(SECRET)
    workspace = Workspace([tmp_path / "app"])

    for path in (f"{tmp_path}/app-secret/key", "../app-secret/key", f"{tmp_path}/app/../app-secret/key"):
        with pytest.raises(OutsideWorkspace):
            workspace.open_read(path)


def test_a_place_tells_where_links_lead_so_that_rules_see_the_real_file(root: Path, workspace: Workspace) -> None:
    (root / "link").symlink_to("inner")
    top = workspace.roots[0]

    assert [workspace.place(path) for path in ("link/file", "link/new/x", ".")] == [
        Place(root=top, relative="inner/file", shown="inner/file"),
        Place(root=top, relative="inner/new/x", shown="inner/new/x"),
        Place(root=top, relative="", shown="."),
    ]


def test_a_root_named_through_a_link_takes_paths_in_both_spellings(
    root: Path, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(root)
    workspace = Workspace([tmp_path / "alias"])

    assert content(workspace, f"{tmp_path}/alias/inner/file") == content(workspace, f"{root}/inner/file") == INSIDE


def test_a_root_replaced_by_a_link_is_gone_not_followed(
    root: Path, outside: Path, workspace: Workspace, tmp_path: Path
) -> None:
    root.rename(tmp_path / "moved")
    root.symlink_to(outside)

    with pytest.raises(FileRefused, match="no longer there"):
        workspace.open_read("secret")


def test_a_readable_root_is_read_and_never_written(root: Path, outside: Path, workspace: Workspace) -> None:
    workspace = Workspace([root], readable=[outside])

    assert content(workspace, str(outside / "secret")) == SECRET
    with pytest.raises(FileRefused, match="can be read, not written"):
        write(workspace, str(outside / "secret"))
    assert changes(outside) == 0


@pytest.mark.parametrize("roots", [[], ["nowhere"], ["base/inner/file"]])
def test_roots_that_are_no_folders_are_refused(root: Path, tmp_path: Path, roots: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        Workspace([tmp_path / root for root in roots])


class TestHidden:
    @pytest.fixture
    def workspace(self, root: Path) -> Workspace:
        (root / "home").mkdir()
        (root / "home" / "auth.json").write_bytes(SECRET)
        (root / "link").symlink_to("home/auth.json")
        (root / "folder-link").symlink_to("home")
        os.link(root / "home" / "auth.json", root / "hard")
        return Workspace([root], hidden=[root / "home", root / "later"])

    @pytest.mark.parametrize(
        "path",
        [
            *("home", "home/auth.json", "home/new", "inner/../home/auth.json", "link", "folder-link/auth.json"),
            *("hard", "later", "later/x"),
        ],
    )
    def test_it_reads_as_missing_however_it_is_reached(self, workspace: Workspace, path: str) -> None:
        for look in (content, names):
            with pytest.raises(FileMissing):
                look(workspace, path)
        with suppress(FileRefused):
            write(workspace, path)
        root = Path(workspace.roots[0].real)
        assert (root / "home" / "auth.json").read_bytes() == SECRET
        assert everything_below(root / "home") == {"auth.json"}
        assert not (root / "later").exists()

    def test_listings_do_not_show_it(self, workspace: Workspace) -> None:
        assert names(workspace, ".") == ["folder-link", "hard", "inner", "link"]

    def test_no_session_works_in_it(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="makai's own state"):
            Workspace([tmp_path], hidden=[tmp_path])

    def test_the_same_workspace_in_another_process_hides_the_same(self, workspace: Workspace) -> None:
        with pytest.raises(FileMissing):
            Workspace.of(workspace.folders).open_read("home/auth.json")


def test_procfs_is_missing_even_beneath_the_root() -> None:
    workspace = Workspace([Path("/")])

    for path in ("proc/self/environ", "/proc/self/mem", f"proc/{os.getpid()}/environ", f"{MAGIC}/etc/passwd"):
        with pytest.raises(FileRefused):
            workspace.open_read(path)


def test_devices_pipes_and_sockets_are_refused_without_opening_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    workspace = Workspace([tmp_path])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name, attempt in itertools.product(("pipe", "socket"), ATTEMPTS):
            with pytest.raises(FileRefused, match="not an ordinary file"):
                attempt(workspace, name)
    with pytest.raises(FileRefused, match="not an ordinary file"):
        Workspace([Path("/dev")]).open_read("null")


def test_a_listing_tells_kinds_and_sizes(root: Path) -> None:
    (root / "link").symlink_to("inner")

    found = sorted(Workspace([root]).entries("."), key=lambda entry: entry.name)
    assert found == [Entry(name="inner", kind="directory"), Entry(name="link", kind="link")]
    assert list(Workspace([root]).entries("inner")) == [Entry(name="file", kind="file", size=len(INSIDE))]


def test_a_write_makes_folders_and_keeps_mode(tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(b"old")
    (tmp_path / "script").chmod(0o751)
    workspace = Workspace([tmp_path])

    write(workspace, "script")
    write(workspace, "a/b/c")

    assert mode(tmp_path / "script") == 0o751
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"new"
    assert everything_below(tmp_path) == {"script", "a", "a/b", "a/b/c"}


def test_a_write_that_fails_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    workspace = Workspace([tmp_path])

    def write_half() -> None:
        with workspace.open_write("file") as file:
            file.write(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(FileRefused, match="No space"):
        write_half()

    assert ((tmp_path / "file").read_bytes(), everything_below(tmp_path)) == (b"old", {"file"})


@pytest.mark.parametrize("path", [".", "inner", "inner/", "inner/file/below"])
def test_a_write_to_what_is_no_file_is_refused(root: Path, path: str) -> None:
    with pytest.raises(FileRefused):
        write(Workspace([root]), path)


def test_names_that_are_not_utf_8_can_be_listed_and_read(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb") as file:
        file.write(INSIDE)
    workspace = Workspace([tmp_path])

    [name] = names(workspace, ".")
    assert content(workspace, name) == INSIDE
    assert workspace.place(name).shown == r"\udcff\udcfe"


def test_a_workspace_holds_no_descriptor(tmp_path: Path) -> None:
    root, _ = make_root(tmp_path)
    before = open_descriptors()
    workspace = Workspace([root])
    for path in ("inner/file", "../x", "nothing", "inner"):
        for action in (content, names, write):
            with suppress(FileRefused):
                action(workspace, path)

    assert open_descriptors() - before == set()


def test_a_protected_file_is_written_only_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_bytes(b"old")
    (tmp_path / "link").symlink_to(".git")
    workspace = Workspace([tmp_path])

    with pytest.raises(FileRefused, match=r"protected file \.git/config\. Write to it by its own name"):
        write(workspace, "link/config")
    assert workspace.place("link/config").protected
    assert (tmp_path / ".git" / "config").read_bytes() == b"old"


def test_systems_without_openat2_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openat2, "_loaded", None)
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(NotSupported, match="darwin has no openat2"):
        Workspace([tmp_path]).open_read("x")


@pytest.mark.proof("P2")
def test_a_bind_mount_of_the_hidden_folder_is_hidden(root: Path, outside: Path) -> None:
    """In a namespace of its own, where this is allowed."""
    program = (
        "import sys; from pathlib import Path; from makai.tools.workspace import Workspace\n"
        "w = Workspace([Path(sys.argv[1])], hidden=[Path(sys.argv[2])])\n"
        "print([w.open_read('ordinary').read() and 'read'])\n"
        "try: w.open_read('mounted/secret'); print('leaked')\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    (root / "ordinary").write_bytes(INSIDE)
    (root / "mounted").mkdir()
    script = 'mount --bind "$2" "$1/mounted" && exec "$3" -W ignore -c "$4" "$1" "$2"'

    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(root), str(outside), sys.executable, program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if "mount" in ran.stderr or "unshare" in ran.stderr:
        pytest.skip(f"no mount namespaces here: {ran.stderr.strip()}")

    assert ran.stdout.split("\n")[:2] == ["['read']", "FileMissing"]
