"""Claude Code's questions as permission requests of ACP, and the answers as it takes them. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from makai.core.visible_text import exact_line
from makai.harness.claude_code.tool_views import members, text_of
from makai.harness.claude_code.translator import PermissionAsked
from makai.wire.acp import client_calls

ALLOW: Final = "allow"
ALLOW_ALWAYS: Final = "allow_always"
REJECT: Final = "reject"
DECIDE: Final = "decide"
MAX_QUESTIONS: Final = 8
MAX_CHOICES: Final = 16
_MAX_LABEL_LENGTH: Final = 120
_REJECTED: Final = "The user rejected this call. Do not try it again in another way; ask what to do instead."
_NOT_ANSWERED: Final = "The user did not answer."
_DECLINED: Final = "The user declined to answer. Continue without an answer, or stop."
_DECIDE: Final = "The user lets you decide: choose the best answer yourself and say which one you chose."


class AgentQuestion(msgspec.Struct, frozen=True):
    """A question of the tool `AskUserQuestion`."""

    text: str
    labels: tuple[str, ...]


def permission_request(asked: PermissionAsked, session_id: str) -> client_calls.RequestPermissionRequest:
    options = [client_calls.PermissionOption(option_id=ALLOW, name="Allow once", kind="allow_once")]
    if granted := session_grants(asked):
        name = f"Allow for this session: {_grant_label(granted)}"
        options.append(client_calls.PermissionOption(option_id=ALLOW_ALWAYS, name=name, kind="allow_always"))
    options.append(client_calls.PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"))
    return client_calls.RequestPermissionRequest(
        session_id=session_id, tool_call=asked.tool_call, options=tuple(options)
    )


def permission_answer(asked: PermissionAsked, outcome: client_calls.RequestPermissionResponse) -> dict[str, Any]:
    """What Claude Code is answered. A question without an answer ends the turn: the run is being stopped."""
    if isinstance(outcome.outcome, client_calls.CancelledOutcome):
        return {"behavior": "deny", "message": _NOT_ANSWERED, "interrupt": True}
    match outcome.outcome.option_id:
        case "allow":
            return {"behavior": "allow", "updatedInput": asked.raw_input}
        case "allow_always":
            return {
                "behavior": "allow",
                "updatedInput": asked.raw_input,
                "updatedPermissions": list(session_grants(asked)),
            }
        case _:
            return {"behavior": "deny", "message": _REJECTED}


def session_grants(asked: PermissionAsked) -> tuple[dict[str, Any], ...]:
    """The suggested permissions, for this session only: makai writes nothing into the settings of Claude Code. A change
    of the mode covers more than this call, so it is offered only where nothing narrower is suggested."""
    narrow = tuple(one for one in asked.suggestions if one.get("type") in ("addRules", "addDirectories"))
    if not any(one.get("type") == "addRules" and one.get("behavior") == "allow" for one in narrow):
        narrow = tuple(one for one in asked.suggestions if one.get("type") == "setMode")[:1]
    return tuple({**one, "destination": "session"} for one in narrow)


def _grant_label(grants: tuple[dict[str, Any], ...]) -> str:
    labels: list[str] = []
    for grant in grants:
        if grant.get("type") == "setMode":
            labels.append("all edits" if grant.get("mode") == "acceptEdits" else f"mode {grant.get('mode')}")
        for rule in grant.get("rules") or ():
            if isinstance(rule, dict):
                content = rule.get("ruleContent")
                labels.append(f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName")))
        labels += [f"folder {folder}" for folder in grant.get("directories") or ()]
    return exact_line(", ".join(labels), _MAX_LABEL_LENGTH)


def questions_of(asked: PermissionAsked) -> tuple[AgentQuestion, ...]:
    """The questions of a call of `AskUserQuestion`; empty when they cannot be read."""
    listed = members(asked.raw_input).get("questions")
    found: list[AgentQuestion] = []
    for one in (listed if isinstance(listed, list) else [])[:MAX_QUESTIONS]:
        if not isinstance(one, dict) or not text_of(one, "question"):
            return ()
        options = one.get("options")
        labels = (
            text_of(each, "label") for each in (options if isinstance(options, list) else ()) if isinstance(each, dict)
        )
        found.append(AgentQuestion(text_of(one, "question"), tuple(label for label in labels if label)[:MAX_CHOICES]))
    return tuple(found)


def question_request(
    asked: PermissionAsked, question: AgentQuestion, session_id: str
) -> client_calls.RequestPermissionRequest:
    """A question to a person. The first option is what a session that never asks chooses: no answer is invented."""
    options = [client_calls.PermissionOption(option_id=DECIDE, name="Let the agent decide", kind="allow_once")]
    options += [
        client_calls.PermissionOption(
            option_id=f"answer-{number}", name=exact_line(label, _MAX_LABEL_LENGTH), kind="allow_once"
        )
        for number, label in enumerate(question.labels)
    ]
    options.append(client_calls.PermissionOption(option_id=REJECT, name="Decline to answer", kind="reject_once"))
    call = msgspec.structs.replace(asked.tool_call, title=exact_line(question.text, 200))
    return client_calls.RequestPermissionRequest(session_id=session_id, tool_call=call, options=tuple(options))


def chosen_label(question: AgentQuestion, outcome: client_calls.RequestPermissionResponse) -> str | None:
    """The chosen answer; None when the person chose none."""
    if isinstance(outcome.outcome, client_calls.CancelledOutcome):
        return None
    chosen = {f"answer-{number}": label for number, label in enumerate(question.labels)}
    return chosen.get(outcome.outcome.option_id)


def without_answer(outcome: client_calls.RequestPermissionResponse) -> dict[str, Any]:
    """Why a question has no answer, in words for Claude Code."""
    if isinstance(outcome.outcome, client_calls.CancelledOutcome):
        return {"behavior": "deny", "message": _NOT_ANSWERED, "interrupt": True}
    message = _DECIDE if outcome.outcome.option_id == DECIDE else _DECLINED
    return {"behavior": "deny", "message": message}


def with_answers(asked: PermissionAsked, answers: dict[str, str]) -> dict[str, Any]:
    return {"behavior": "allow", "updatedInput": {**members(asked.raw_input), "answers": answers}}
