"""The settings for editors: what is printed can be pasted, starts this installation, and is what the page of the
documentation shows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from makai.cli import acp
from makai.cli.editor_settings import EDITORS, EditorLaunch, editor_settings, launch, this_makai

PAGE = Path(__file__).resolve().parents[3] / "docs/editors.md"
PLAIN = EditorLaunch("makai", ("acp",), {})
AWKWARD = EditorLaunch('/opt/my "tools"\\bin/makai', ("acp",), {"MAKAI_HOME": "/home/jö/with space"})


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("editor", EDITORS)
def test_the_documentation_shows_what_the_command_prints(editor: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for block in editor_settings(editor, PLAIN):
        assert f"```{block.language}\n{block.text}\n```" in text
    assert f"makai acp --print-config {editor}" in text


@pytest.mark.parametrize(("editor", "more"), [("zed", {"type": "custom"}), ("jetbrains", {})])
def test_settings_in_json_hold_any_path_and_variable(editor: str, more: dict[str, str]) -> None:
    (block,) = editor_settings(editor, AWKWARD)
    server = {**more, "command": AWKWARD.command, "args": ["acp"], "env": dict(AWKWARD.environment)}
    assert json.loads(block.text) == {"agent_servers": {"makai": server}}


@pytest.mark.parametrize("editor", ["neovim", "emacs"])
def test_strings_of_lua_and_lisp_are_escaped_and_brackets_closed(editor: str) -> None:
    for block in editor_settings(editor, AWKWARD):
        assert r'"/opt/my \"tools\"\\bin/makai"' in block.text
        assert "/home/jö/with space" in block.text
        for opening, closing in ("()", "{}"):
            assert block.text.count(opening) == block.text.count(closing)


def test_the_command_is_a_name_only_where_path_leads_to_this_installation(tmp_path: Path) -> None:
    own = program(tmp_path / "venv/bin/makai")
    other = program(tmp_path / "other/makai")
    link = tmp_path / "local/makai"
    link.parent.mkdir()
    link.symlink_to(own)

    def found(*folders: Path, script: str = own) -> tuple[str, ...]:
        path = os.pathsep.join(map(str, folders))
        return this_makai({"PATH": path}, script=script, interpreter=str(tmp_path / "venv/bin/python"))

    assert found(tmp_path / "venv/bin") == ("makai",)
    assert found(link.parent) == ("makai",)  # as pipx and uv install it
    assert found(Path(other).parent, link.parent) == (own,)
    assert found() == (own,)
    assert found(script="/lib/makai/__main__.py") == (own,)
    assert found(script=str(link)) == (str(link),)


def test_an_installation_without_a_script_is_started_by_its_interpreter(tmp_path: Path) -> None:
    interpreter = program(tmp_path / "bin/python")
    found = this_makai({"PATH": ""}, script="/lib/makai/__main__.py", interpreter=interpreter)
    assert found == (interpreter, "-P", "-m", "makai")


def test_a_home_of_the_shell_is_passed_on_and_keys_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch({"MAKAI_HOME": "here", "ANTHROPIC_API_KEY": "sk-secret"}).environment == {
        "MAKAI_HOME": str(tmp_path / "here")
    }
    assert launch({"MAKAI_HOME": " ", "ANTHROPIC_API_KEY": "sk-secret"}).environment == {}


def test_the_option_prints_only_the_settings_and_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.server.stdio.acp_main", lambda *_, **__: pytest.fail("the command ran"))
    printed = CliRunner().invoke(acp.command, ["--print-config", "zed"])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout)["agent_servers"]["makai"]["args"][-1] == "acp"
    assert "~/.config/zed/settings.json" in printed.stderr
    both = CliRunner().invoke(acp.command, ["--print-config", "neovim"])
    assert both.stdout.count(".setup({") == 2
    assert CliRunner().invoke(acp.command, ["--print-config", "notepad"]).exit_code == 2


@pytest.mark.parametrize("options", [("-m", "a/b", "--max-turns", "3", "--unstable"), ("--unstable",)])
def test_the_settings_start_makai_with_the_options_that_are_given(options: tuple[str, ...]) -> None:
    for given in ([*options, "--print-config", "jetbrains"], ["--print-config", "jetbrains", *options]):
        printed = CliRunner().invoke(acp.command, given)
        arguments = json.loads(printed.stdout)["agent_servers"]["makai"]["args"]
        assert arguments[arguments.index("acp") :] == ["acp", *options]
