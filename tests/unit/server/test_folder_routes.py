"""Folders for the page's folder picker, over plain HTTP and for tokens of every scope."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.serving import Site, serving
from support.tokens import bearer, make_token

from makai.core.access import TokenScope
from makai.core.errors import InvalidRequest
from makai.server.folder_routes import MAX_FOLDERS, listing, typed_path


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the server was started, with two folders in it and a hidden one."""
    folder = tmp_path / "project"
    for name in ("api", "app", ".hidden"):
        (folder / name).mkdir(parents=True)
    (folder / "a-file").touch()
    monkeypatch.chdir(folder)
    return folder


async def listed(site: Site, path: str, scope: TokenScope = "admin") -> tuple[int, Any]:
    headers = bearer((await make_token(site.sessions, scope))[1])
    status, body = await site.ask("GET", f"/api/folders?path={path}", headers=headers)
    return status, body["folders"] if status == 200 else body["error"]["message"]


async def test_a_typed_path_is_completed_with_folders_and_hidden_ones_need_their_dot(
    tmp_path: Path, project: Path
) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        assert await listed(site, f"{project}/ap") == (200, [f"{project}/api", f"{project}/app"])
        assert await listed(site, "AP") == (200, [f"{project}/api", f"{project}/app"])
        assert await listed(site, f"{project}/") == (200, [f"{project}/api", f"{project}/app"])
        assert await listed(site, f"{project}/.h") == (200, [f"{project}/.hidden"])
        assert await listed(site, f"{project}/zzz") == (200, [])


async def test_a_prompt_token_lists_only_folders_in_which_it_may_begin_sessions(tmp_path: Path, project: Path) -> None:
    (project / "out").symlink_to(tmp_path)
    async with serving(tmp_path, "say: Hi.") as site:
        assert await listed(site, f"{project}/ap", "prompt") == (200, [f"{project}/api", f"{project}/app"])
        # The folder around the server's own is not shown, only what is in it.
        assert await listed(site, str(project), "prompt") == (
            200,
            [f"{project}/api", f"{project}/app", f"{project}/out"],
        )
        for path in (str(tmp_path), "/etc/", f"{project}/out/", f"{project}/../"):
            status, message = await listed(site, path, "prompt")
            assert (status, "which does not open" in message) == (403, True), path
        # A refusal does not say where a link leads.
        assert f"does not open {project}/out." in (await listed(site, f"{project}/out", "prompt"))[1]
        assert (await listed(site, "/etc/", "approve"))[0] == 200
        assert (await listed(site, str(project), "observe"))[0] == 403


async def test_a_folder_is_created_by_a_token_that_may_approve(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        prompt, approve = [bearer((await make_token(site.sessions, scope))[1]) for scope in ("prompt", "approve")]
        wanted = {"path": f"{project}/new/deep"}
        assert (await site.ask("POST", "/api/folders", wanted, headers=prompt))[0] == 403
        assert not (project / "new").exists()
        status, body = await site.ask("POST", "/api/folders", wanted, headers=approve)
        made = {"path": wanted["path"], "is_folder": True, "exists": True, "branch": "", "folders": []}
        assert (status, body) == (201, made | {"is_complete": True})
        status, body = await site.ask("POST", "/api/folders", {"path": f"{project}/a-file"}, headers=approve)
        assert (status, body["error"]["message"]) == (400, f"{project}/a-file cannot be created: File exists.")


async def test_a_token_of_one_session_sees_no_folders(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        _, token = await make_token(site.sessions, "approve", session_id=await site.session())
        assert (await site.ask("GET", f"/api/folders?path={project}", headers=bearer(token)))[0] == 403


def test_the_branch_is_that_of_the_repository_around_and_only_of_the_folder_itself_below_approve(project: Path) -> None:
    for name in ("objects", "refs"):
        (project / ".git" / name).mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    api = str(project / "api")
    assert listing(api, api, "", any_repository=True).branch == "feature/x"
    assert listing(api, api, "", any_repository=False).branch == ""
    assert listing(str(project), str(project), "", any_repository=False).branch == "feature/x"


def test_a_large_folder_is_cut_and_says_so(project: Path) -> None:
    for number in range(MAX_FOLDERS + 1):
        (project / "api" / f"f{number}").mkdir()
    found = listing(f"{project}/api/f", f"{project}/api", "f", any_repository=True)
    assert (len(found.folders), found.is_complete) == (MAX_FOLDERS, False)


def test_a_path_is_read_as_a_person_types_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert typed_path("~/pro") == ("/home/ann/pro", "pro")
    assert typed_path("~") == ("/home/ann", None)
    assert typed_path("") == (os.getcwd(), None)
    assert typed_path("/a/../b/") == ("/b", None)
    assert typed_path("/a/..") == ("/", None)
    with pytest.raises(InvalidRequest, match="not a path"):
        typed_path("/a\0b")
