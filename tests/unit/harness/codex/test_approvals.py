"""Questions of Codex's app-server, as permission requests, and the answers that it gets."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from makai.harness.codex.approvals import OPTIONS, CodexQuestion, CodexRefusal, question_of
from makai.harness.codex.messages import ChangeKind, CodexItem, FileUpdate
from makai.wire.acp import updates as wire
from makai.wire.json_rpc_errors import RpcError

PATCH = CodexItem(
    type="fileChange",
    id="p",
    changes=(FileUpdate(path="/w/a", kind=ChangeKind(type="update"), diff="@@ -1 +1 @@\n-x\n+y\n"),),
)
MCP = CodexItem(type="mcpToolCall", id="m", server="s", tool="t", arguments=msgspec.Raw(b'{"a":1}'))
ITEMS = {item.id: item for item in (PATCH, MCP)}


def asked(method: str, **params: Any) -> CodexQuestion:
    found = question_of(method, msgspec.Raw(json.dumps({"threadId": "T", **params}).encode()), ITEMS)
    assert isinstance(found, CodexQuestion)
    return found


def input_of(question: CodexQuestion) -> Any:
    assert isinstance(question.call.raw_input, msgspec.Raw)
    return json.loads(bytes(question.call.raw_input))


def test_every_option_and_a_withdrawn_question_have_an_answer_in_every_form() -> None:
    questions = [
        asked("item/commandExecution/requestApproval", itemId="c", command="ls", cwd="/w"),
        asked("item/fileChange/requestApproval", itemId="p"),
        asked("item/permissions/requestApproval", itemId="q", permissions={"network": {"enabled": True}}),
        asked("execCommandApproval", callId="c", command=["ls"], cwd="/w"),
        asked("applyPatchApproval", callId="c", fileChanges={"/w/n": {"type": "add", "content": "x"}}),
        asked("mcpServer/elicitation/request", serverName="s", _meta={"codex_approval_kind": "mcp_tool_call"}),
    ]
    names = {option.option_id for option in OPTIONS} | {"cancelled"}
    assert [set(question.answers) for question in questions] == [names] * len(questions)
    assert [question.answers["once"] for question in questions] == [
        {"decision": "accept"},
        {"decision": "accept"},
        {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
        {"decision": "approved"},
        {"decision": "approved"},
        {"action": "accept", "content": {}, "_meta": None},
    ]
    assert [question.answers["cancelled"] for question in questions] == [
        {"decision": "cancel"},
        {"decision": "cancel"},
        {"permissions": {}, "scope": "turn"},
        {"decision": "abort"},
        {"decision": "abort"},
        {"action": "cancel", "content": None, "_meta": None},
    ]


def test_a_command_is_asked_about_word_for_word_and_never_as_one_that_only_looks() -> None:
    looks = [{"type": "read", "command": "cat a", "path": "a"}]
    question = asked(
        "item/commandExecution/requestApproval", itemId="c", command="bash -lc 'cat a'", cwd="/w", commandActions=looks
    )
    assert (question.call.kind, question.call.title, question.is_own_call) == ("execute", "cat a", False)
    assert input_of(question) == {"command": "bash -lc 'cat a'", "cwd": "/w"}


def test_what_a_command_wants_beyond_itself_is_part_of_the_question() -> None:
    question = asked(
        "item/commandExecution/requestApproval",
        itemId="c",
        approvalId="one-part",
        command="curl x.org",
        cwd="/w",
        reason="needs the network",
        networkApprovalContext={"host": "x.org", "protocol": "https"},
    )
    assert (question.call.tool_call_id, question.call.title, question.is_own_call) == (
        "one-part", "Connect to x.org: curl x.org (needs the network)", True,
    )  # fmt: skip
    assert input_of(question)["network"] == {"host": "x.org", "protocol": "https"}


def test_a_patch_is_shown_with_its_diff_and_one_that_wants_a_folder_is_no_plain_edit() -> None:
    plain = asked("item/fileChange/requestApproval", itemId="p")
    assert plain.call.content == (wire.DiffItem(path="/w/a", old_text="x\n", new_text="y\n"),)
    assert (plain.call.kind, plain.call.title) == ("edit", "Edit a")
    wide = asked("item/fileChange/requestApproval", itemId="p", grantRoot="/etc")
    assert (wide.call.kind, wide.call.title) == ("other", "Edit a, and write below /etc")
    assert wide.call.locations == (wire.Location(path="/w/a"), wire.Location(path="/etc"))
    unknown = asked("item/fileChange/requestApproval", itemId="nowhere")
    assert (unknown.call.title, unknown.call.locations) == ("Edit files", ())


def test_a_call_of_an_mcp_tool_is_found_by_its_server_and_its_arguments() -> None:
    meta = {"codex_approval_kind": "mcp_tool_call"}
    known = asked("mcpServer/elicitation/request", serverName="s", _meta={**meta, "tool_params": {"a": 1}})
    assert (known.call.tool_call_id, known.call.name, known.is_own_call) == ("m", "mcp__s__t", False)
    other = asked(
        "mcpServer/elicitation/request", serverName="s", message="Run?", _meta={**meta, "tool_params": {"a": 2}}
    )
    assert (other.call.tool_call_id, other.call.title, other.is_own_call) == ("mcp-s", "Run?", True)
    assert input_of(other) == {"a": 2}


def test_other_forms_are_declined_and_other_requests_refused() -> None:
    params = msgspec.Raw(b'{"serverName":"s","message":"Your name?"}')
    assert question_of("mcpServer/elicitation/request", params, {}) == CodexRefusal(
        {"action": "decline", "content": None, "_meta": None},
        "The MCP server 's' asked for input, which was declined: Your name?",
    )
    for method in ("item/tool/requestUserInput", "item/tool/call", "account/chatgptAuthTokens/refresh", "new/thing"):
        with pytest.raises(RpcError, match=f"makai does not answer {method}"):
            question_of(method, params, {})
