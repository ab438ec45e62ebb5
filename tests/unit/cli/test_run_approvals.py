"""A denial of a script names the narrowest option that allows the call, so that it can be pasted into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from makai.cli.run_approvals import denial_reason
from makai.cli.run_request import rules_from
from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.session_events import ApprovalRequested
from makai.tools.base import CallDescription
from makai.tools.files import ReadTool
from makai.tools.permissions.offered_grants import offered_grants
from makai.tools.permissions.rules import PermissionRules, decide_call, parse_rule
from makai.tools.shell import ShellTool

ANY_MODE = "--permission-mode never_ask"


def denied(command: str, folder: Path, confinement: Confinement = SESSION_SANDBOX) -> str:
    description = CallDescription(kind="execute", title="", subject=command, confinement=confinement)
    request = ApprovalRequested(
        call_id="c",
        name=ShellTool.definition.name,
        arguments_json=msgspec.json.encode({"command": command}).decode(),
        digest="d",
        confinement=confinement,
        grants=offered_grants(PermissionRules(workspace=str(folder)), ShellTool.definition.name, description),
    )
    return denial_reason(request, str(folder)).rpartition("Allow it with ")[2].removesuffix(".")


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("git log -3", ["Bash(git log -3)"]),
        ("rm a.txt", ["Bash(rm a.txt)"]),
        ("python3 x.py", ["Bash(python3 x.py)"]),
        ("python3 -c 'print(1)'", ["Bash(python3 -c 'print(1)')"]),
        ("echo '('", ["Bash(echo '(')"]),
        ("git add a && make test", ["Bash(git add a)", "Bash(make test)"]),
    ],
)
def test_the_named_rules_are_the_narrowest_and_allow_exactly_that_call(
    tmp_path: Path, command: str, rules: list[str]
) -> None:
    option, words = shlex.split(denied(command, tmp_path))
    allowing = PermissionRules(workspace=str(tmp_path), allow=tuple(map(parse_rule, rules_from([words], option))))

    assert (option, list(rules_from([words], option))) == ("--allowed-tools", rules)
    decisions = [
        decide_call(allowing, ShellTool.definition.name, CallDescription(kind="execute", title="", subject=each))
        for each in (command, f"{command} more")
    ]
    assert decisions == ["allow", None]


@pytest.mark.parametrize("command", ["echo hi > f", "echo $(date)", "rm 'a b.txt'"])
def test_a_line_that_no_rule_can_name_is_allowed_by_a_mode_only(tmp_path: Path, command: str) -> None:
    assert denied(command, tmp_path) == ANY_MODE


def test_what_opens_the_sandbox_is_allowed_by_a_rule_that_says_so_or_by_a_person(tmp_path: Path) -> None:
    network = Confinement(network=("example.com",))

    assert denied("python3 x.py", tmp_path, network) == "--allowed-tools 'Bash(python3 x.py)+network(example.com)'"
    assert denied("echo hi > f", tmp_path, network) == "an answer in `makai chat`"


@pytest.mark.parametrize(
    ("path", "option"),
    [
        (".git/config", "--allowed-tools 'Read(./.git/config)'"),
        ("link", "--allowed-tools 'Read(./.git/config)'"),
        ("{folder}/.git/config", "--allowed-tools 'Read(./.git/config)'"),
        ("../other/.git/config", "--allowed-tools 'Read(/{other}/.git/config)'"),
        ("notes.txt", ANY_MODE),  # asked because of a rule of the user, which wins over one that allows it
        ("a\0b", ANY_MODE),
    ],
)
def test_a_file_with_credentials_is_allowed_by_a_rule_for_this_file(tmp_path: Path, path: str, option: str) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    for repository in (folder, other):
        (repository / ".git").mkdir(parents=True)
        (repository / ".git" / "config").write_text("[remote]\nurl = https://me:secret@git.example/x.git\n")
    (folder / "link").symlink_to(folder / ".git" / "config")
    (folder / "notes.txt").write_text("notes")
    arguments = msgspec.json.encode({"path": path.format(folder=folder)}).decode()
    request = ApprovalRequested(call_id="c", name=ReadTool.definition.name, arguments_json=arguments, digest="d")

    told = denial_reason(request, str(folder)).rpartition("Allow it with ")[2].removesuffix(".")
    assert told == option.format(other=other)
