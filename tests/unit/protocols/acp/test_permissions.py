"""Approvals as permission requests, and answers as decisions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.acp_schema import FrameChecker

from makai.core import session_events as ev
from makai.core.confinement import Confinement, OfferedGrant
from makai.protocols.acp.permissions import decision_for, permission_request
from makai.sessions import commands as cmd
from makai.wire.acp.client_calls import CancelledOutcome, RequestPermissionResponse, SelectedOutcome

CALL = ev.ToolCalled(
    call_id="c",
    name="shell",
    arguments_json='{"command":"git log -1"}',
    kind="execute",
    title="git log -1",
    locations=(ev.FilePlace("/p"),),
)
EXACTLY, ANY = "Bash(git log -1)", "Bash(git log:*)"
ASKED = ev.ApprovalRequested(
    call_id="c",
    name="shell",
    arguments_json=CALL.arguments_json,
    digest="d1",
    title="git log -1",
    grant=ANY,
    grants=(OfferedGrant(rule=EXACTLY, label="exactly this"), OfferedGrant(rule=ANY, label="any arguments")),
)
OPTIONS = (
    ev.ApprovalOption(id="0", label="No, never", kind="reject_always"),
    ev.ApprovalOption(id="yes", label="Yes", kind="allow_once"),
    ev.ApprovalOption(id="yes", label="Yes again", kind="reject_once"),
    ev.ApprovalOption(id="all", label="Yes, always", kind="allow_always"),
)


def asked(**changes: Any) -> ev.ApprovalRequested:
    return msgspec.structs.replace(ASKED, **changes)


def sent(requested: ev.ApprovalRequested, call: ev.ToolCalled | None = CALL) -> dict[str, Any]:
    """The parameters of the request as the client receives them; fails when the schema does not allow them."""
    params = permission_request("session", requested, call)
    frame = {"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": params}
    received: dict[str, Any] = FrameChecker("agent").sent(msgspec.json.encode(frame))["params"]
    return received


def options(requested: ev.ApprovalRequested) -> list[tuple[str, str]]:
    return [(option["kind"], option["name"]) for option in sent(requested)["options"]]


def answer(option_id: str) -> RequestPermissionResponse:
    return RequestPermissionResponse(outcome=SelectedOutcome(option_id=option_id))


def chosen(requested: ev.ApprovalRequested, kind: str) -> Any:
    """The decision when the client takes the first option of a kind."""
    option_id = next(option["optionId"] for option in sent(requested)["options"] if option["kind"] == kind)
    return decision_for(answer(option_id), requested, by="editor")


def texts(requested: ev.ApprovalRequested) -> list[str]:
    items = sent(requested)["toolCall"].get("content", [])
    return [item["content"]["text"] for item in items if item["type"] == "content"]


@pytest.mark.req("ACP-PERM-001")
def test_the_question_is_about_the_announced_call_and_shows_all_of_it() -> None:
    question = sent(ASKED)

    assert question["sessionId"] == "session"
    assert question["toolCall"] == {
        "toolCallId": "c",
        "title": "git log -1",
        "kind": "execute",
        "status": "pending",
        "content": [{"type": "content", "content": {"type": "text", "text": "```\ngit log -1\n```"}}],
        "locations": [{"path": "/p"}],
        "rawInput": {"command": "git log -1"},
    }


@pytest.mark.req("ACP-PERM-002")
def test_all_four_kinds_are_offered_and_say_what_is_granted() -> None:
    assert options(ASKED) == [
        ("allow_once", "Allow once"),
        ("allow_always", "Always allow Bash(git log:*) in this session"),
        ("allow_always", "Always allow Bash(git log:*) in this folder, also in later sessions"),
        ("reject_once", "Reject"),
        ("reject_always", "Always reject Bash(git log:*) in this session"),
    ]
    ids = [option["optionId"] for option in sent(ASKED)["options"]]
    assert len(ids) == len(set(ids))


def test_a_wider_rule_than_the_usual_one_is_offered_for_the_session() -> None:
    wide = (OfferedGrant(rule="Edit(./a.py)", label="this"), OfferedGrant(rule="Edit", label="all", session_only=True))

    assert [name for kind, name in options(asked(grant="Edit(./a.py)", grants=wide)) if kind == "allow_always"] == [
        "Always allow Edit(./a.py) in this session",
        "Always allow Edit in this session",
        "Always allow Edit(./a.py) in this folder, also in later sessions",
    ]


def test_a_call_that_no_rule_covers_is_decided_once() -> None:
    assert options(asked(grant="", grants=())) == [("allow_once", "Allow once"), ("reject_once", "Reject")]


@pytest.mark.parametrize(
    "changes",
    [
        {"confinement": Confinement(unsandboxed=True)},
        {"grants": (OfferedGrant(rule=ANY, label="any", session_only=True),)},
    ],
)
def test_a_call_without_the_sandbox_is_never_remembered_beyond_the_session(changes: dict[str, Any]) -> None:
    question = asked(**changes)
    kinds = [kind for kind, _ in options(question)]
    decided = [decision_for(answer(option["optionId"]), question, by="editor") for option in sent(question)["options"]]

    assert set(kinds) == {"allow_once", "allow_always", "reject_once", "reject_always"}
    assert {each.scope for each in decided if not isinstance(each, cmd.Abort)} == {"once", "session"}


@pytest.mark.req("ACP-PERM-003", "ACP-PERM-004", "ACP-PERM-005")
def test_an_answer_is_the_decision_that_its_option_names() -> None:
    allowed: dict[str, Any] = {"now": 0, "call_id": "c", "by": "editor", "digest": "d1"}
    denied: dict[str, Any] = {"now": 0, "call_id": "c", "by": "editor"}

    assert chosen(ASKED, "allow_once") == cmd.ApproveCall(**allowed)
    assert chosen(ASKED, "allow_always") == cmd.ApproveCall(**allowed, scope="session", grant=ANY)
    assert chosen(ASKED, "reject_once") == cmd.DenyCall(**denied)
    assert chosen(ASKED, "reject_always") == cmd.DenyCall(**denied, scope="session", grant=ANY)
    saved = decision_for(answer("allow_always_saved"), ASKED, by="editor")
    assert saved == cmd.ApproveCall(**allowed, scope="always", grant=ANY)


@pytest.mark.req("ACP-PERM-005")
def test_a_cancelled_question_stops_the_run() -> None:
    cancelled = RequestPermissionResponse(outcome=CancelledOutcome())

    decided = decision_for(cancelled, ASKED, by="editor", run_id="run")

    assert decided == cmd.Abort(now=0, run_id="run", by="editor", reason="cancelled in the editor")


@pytest.mark.req("ACP-PERM-006")
@pytest.mark.parametrize("wrong", [None, answer("unknown"), answer(""), answer("0"), answer("allow_always_wider")])
@pytest.mark.parametrize("question", [ASKED, asked(grant="", grants=())])
def test_everything_else_is_a_rejection_of_this_call(wrong: Any, question: ev.ApprovalRequested) -> None:
    assert decision_for(wrong, question, by="editor") == cmd.DenyCall(
        now=0, call_id="c", by="editor", reason="The client gave no usable answer."
    )


def test_options_of_an_external_agent_are_passed_through_and_chosen_by_id() -> None:
    question = asked(options=OPTIONS, grant="", grants=())

    assert [(each["optionId"], each["name"], each["kind"]) for each in sent(question)["options"]] == [
        ("0", "No, never", "reject_always"),
        ("yes", "Yes", "allow_once"),
        ("all", "Yes, always", "allow_always"),
    ]
    base: dict[str, Any] = {"now": 0, "call_id": "c", "by": "editor"}
    assert chosen(question, "allow_once") == cmd.ApproveCall(**base, digest="d1", option_id="yes")
    assert chosen(question, "allow_always") == cmd.ApproveCall(**base, digest="d1", scope="session", option_id="all")
    assert chosen(question, "reject_always") == cmd.DenyCall(**base, scope="session", option_id="0")


def test_an_external_question_without_a_way_to_reject_gets_one() -> None:
    question = asked(options=(ev.ApprovalOption(id="reject_once", label="Yes", kind="allow_once"),), grant="")

    decided = chosen(question, "reject_once")

    assert decided == cmd.DenyCall(now=0, call_id="c", by="editor")
    assert chosen(question, "allow_once").option_id == "reject_once"


def test_arguments_that_no_diff_shows_are_shown_beside_it() -> None:
    diffs = (ev.FileDiff(path="/p/a.py", old_text="y", new_text="x"),)

    assert texts(asked(name="Bash", diffs=diffs)) == ['```\nBash\ncommand: "git log -1"\n```']


def test_titles_rules_and_options_hide_nothing_and_keep_their_end() -> None:
    rule = f"Bash({'x' * 300}\u200d; rm)"
    agents = (ev.ApprovalOption(id="a", label="Yes\n\u3164, always", kind="allow_always"),)

    assert sent(asked(title="ls\u202e\n"))["toolCall"]["title"] == "ls\\u202e\\n"
    assert options(asked(grant=rule, grants=()))[1][1].endswith("\\u200d; rm) in this session")
    assert options(asked(options=agents))[0] == ("allow_always", "Yes\\n\\u3164, always")


def test_diffs_are_shown_as_diffs_and_not_a_second_time_as_text() -> None:
    diffs = (ev.FileDiff(path="/p/a.py", old_text="y", new_text="x"),)
    edit = '{"path": "a.py", "old_text": "y", "new_text": "x"}'
    question = asked(name="edit", title="Edit a.py", diffs=diffs, arguments_json=edit)

    assert sent(question)["toolCall"]["content"] == [
        {"type": "diff", "path": "/p/a.py", "oldText": "y", "newText": "x"}
    ]


def test_what_is_opened_beyond_the_sandbox_is_shown() -> None:
    opened = Confinement(network=("example.org",), git=True, folders=("/other",))

    assert texts(asked(confinement=opened))[1].split("\n") == [
        "Beyond the sandbox of this session:",
        "- with network to example.org",
        "- may write the git repository and check out files, but not change hooks or configuration",
        "- may write /other",
    ]


def test_a_command_cannot_hide_a_part_of_itself() -> None:
    """Neither behind a closed fence, nor by characters that turn the reading direction."""
    command = "echo ```\n``` \u202e && rm -rf ."
    hidden = msgspec.json.encode({"command": command}).decode()

    (shown,) = texts(asked(arguments_json=hidden))

    assert shown == "````\necho ```\n``` \\u202e && rm -rf .\n````"


def test_a_call_that_was_not_seen_is_asked_about_by_what_the_question_says() -> None:
    call = sent(asked(title=""), None)["toolCall"]

    assert (call["title"], call["kind"], call["rawInput"]) == ("shell", "other", {"command": "git log -1"})
    assert "locations" not in call
