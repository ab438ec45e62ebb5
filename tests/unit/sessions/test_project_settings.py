"""What a project's `.makai/config.toml` settles: only as it was when a person trusted the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_sessions import owned_sessions, trust_folder

from makai.core.errors import InvalidRequest, ModelNotFound
from makai.core.settings import SettingsLayer
from makai.sessions import requests as req
from makai.sessions.commands import SetModel

NOTHING = SettingsLayer()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".makai").mkdir(parents=True)
    (folder / ".makai/config.toml").write_text('model = "sonnet"\nmode = "plan"\n')
    return folder


async def test_the_settings_of_a_project_count_once_it_is_trusted_and_until_they_change(
    tmp_path: Path, project: Path
) -> None:
    asked = req.GetProjectSettings(str(project))
    async with owned_sessions(tmp_path, "echo") as sessions:
        before = await sessions.dispatch(asked)
        await trust_folder(sessions, project)
        trusted = await sessions.dispatch(asked)
        (project / ".makai/config.toml").write_text('mode = "never_ask"\n')
        changed = await sessions.dispatch(asked)
        await trust_folder(sessions, project)
        again = await sessions.dispatch(asked)
        await sessions.dispatch(req.SetTrust(str(project), False))
        refused = await sessions.dispatch(asked)

    assert (before, trusted) == (NOTHING, SettingsLayer(model="sonnet", mode="plan"))
    assert (changed, again, refused) == (NOTHING, SettingsLayer(mode="never_ask"), NOTHING)


async def test_a_folder_without_such_a_file_settles_nothing(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "echo") as sessions:
        await trust_folder(sessions, tmp_path)
        assert await sessions.dispatch(req.GetProjectSettings(str(tmp_path))) == NOTHING


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'modle = "x"', "line 1: Object contains unknown field `modle`"), (b"\xff", "is not UTF-8")],
)
async def test_a_trusted_file_that_cannot_be_read_is_named(
    tmp_path: Path, project: Path, content: bytes, message: str
) -> None:
    (project / ".makai/config.toml").write_bytes(content)
    async with owned_sessions(tmp_path, "echo") as sessions:
        await trust_folder(sessions, project)
        with pytest.raises(InvalidRequest, match=message):
            await sessions.dispatch(req.GetProjectSettings(str(project)))


async def test_the_log_has_the_ref_of_a_model_that_a_client_names_by_an_alias(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "echo") as sessions:
        session_id = await sessions.dispatch(req.CreateSession(model_ref="sonnet"))
        created = (await sessions.dispatch(req.GetState(session_id))).model_ref
        await sessions.dispatch(req.RunCommand(session_id, SetModel(now=0, model_ref="haiku")))
        changed = (await sessions.dispatch(req.GetState(session_id))).model_ref
        with pytest.raises(ModelNotFound, match="Did you mean haiku"):
            await sessions.dispatch(req.RunCommand(session_id, SetModel(now=0, model_ref="haikuu")))

    refs = ("anthropic/anthropic-messages@claude-sonnet-5-5", "anthropic/anthropic-messages@claude-haiku-5-5")
    assert (created, changed) == refs
