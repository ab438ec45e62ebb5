"""One-shot requests and results, and what a runner reports."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from makai.core.errors import ParseError
from makai.harness import (
    BackstopReport,
    CostData,
    EndpointBinding,
    Message,
    OneShotMessage,
    OneShotRequest,
    OneShotResult,
    QualityReport,
    Result,
    ResultStatus,
    WorkResult,
    decode,
    encode,
)


@pytest.mark.req("DM-ONE-001")
def test_a_one_shot_request_has_the_fields_of_the_contract() -> None:
    request = OneShotRequest(
        system="s",
        messages=(OneShotMessage(content="a"), OneShotMessage(role="assistant", content="b")),
        model="m",
        endpoint=EndpointBinding(model="e"),
        effort="low",
        response_schema={"type": "object"},
        max_tokens=5,
    )
    written = json.loads(encode(request))

    assert written.pop("endpoint")["model"] == "e"
    assert written == {
        "system": "s",
        "messages": [{"role": "", "content": "a"}, {"role": "assistant", "content": "b"}],
        "model": "m",
        "effort": "low",
        "responseSchema": {"type": "object"},
        "maxTokens": 5,
    }
    assert decode(encode(request), OneShotRequest) == request
    assert json.loads(encode(OneShotRequest())) == {"messages": []}
    assert decode('{"messages":null}', OneShotRequest) == OneShotRequest()


@pytest.mark.req("DM-ONE-001")
def test_an_empty_role_means_user() -> None:
    assert Message is OneShotMessage
    assert [OneShotMessage(content="").effective_role, OneShotMessage(role="assistant", content="").effective_role] == [
        "user",
        "assistant",
    ]
    assert decode('{"content":"a"}', OneShotMessage) == OneShotMessage(content="a")
    with pytest.raises(ParseError):
        decode('{"role":"system","content":"a"}', OneShotMessage)


@pytest.mark.req("DM-ONE-001")
def test_the_model_of_the_endpoint_wins_over_the_model() -> None:
    assert OneShotRequest(model="a", endpoint=EndpointBinding(model="b")).effective_model == "b"
    assert OneShotRequest(model="a", endpoint=EndpointBinding()).effective_model == "a"
    assert OneShotRequest(model="a").effective_model == "a"


@pytest.mark.req("DM-ONE-002")
def test_whether_the_schema_was_met_is_always_written() -> None:
    full = OneShotResult(
        text="t", structured={"a": [None]}, schema_ok=True, cost=CostData(num_turns=1), transport_used="pty"
    )

    assert json.loads(encode(OneShotResult(text=""))) == {"text": "", "schemaOk": False}
    assert json.loads(encode(full)) == {
        "text": "t",
        "structured": {"a": [None]},
        "schemaOk": True,
        "cost": {"numTurns": 1},
        "transportUsed": "pty",
    }
    assert decode(encode(full), OneShotResult) == full


@pytest.mark.req("DM-RES-001")
def test_a_result_always_has_its_status_and_provider() -> None:
    full = Result(
        status="failed",
        provider_name="codex",
        provider_session_id="s",
        worktree_path="/w",
        pull_request_url="https://x.example/pull/1",
        commit_sha="abc",
        summary="sum",
        work_result="unknown",
        cost=CostData(input_tokens=1),
        failure_mode="timeout",
        backstop_report=BackstopReport(triggered=False),
        quality_report=QualityReport(baseline_captured=True),
        error="late",
    )

    assert json.loads(encode(Result(status="completed", provider_name="stub"))) == {
        "status": "completed",
        "providerName": "stub",
    }
    assert json.loads(encode(full)) == {
        "status": "failed",
        "providerName": "codex",
        "providerSessionId": "s",
        "worktreePath": "/w",
        "pullRequestUrl": "https://x.example/pull/1",
        "commitSha": "abc",
        "summary": "sum",
        "workResult": "unknown",
        "cost": {"inputTokens": 1},
        "failureMode": "timeout",
        "backstopReport": {"triggered": False},
        "qualityReport": {
            "baselineCaptured": True,
            "testDelta": 0,
            "typeDelta": 0,
            "lintDelta": 0,
            "blockedPromotion": False,
        },
        "error": "late",
    }
    assert decode(encode(full), Result) == full


@pytest.mark.req("DM-RES-001")
def test_a_result_has_one_of_three_states_and_verdicts() -> None:
    assert get_args(ResultStatus) == ("completed", "failed", "stopped")
    assert get_args(WorkResult) == ("passed", "failed", "unknown")
    for text in ('{"status":"done","providerName":"x"}', '{"status":"failed"}', '{"providerName":"x"}'):
        with pytest.raises(ParseError):
            decode(text, Result)


@pytest.mark.req("DM-RES-003")
def test_a_backstop_report_writes_what_happened_and_a_quality_report_everything() -> None:
    backstop = BackstopReport(
        triggered=True, pushed=True, pr_created=True, pr_url="u", unfilled_fields=("work_result",), diagnostics="d"
    )
    quality = QualityReport(baseline_captured=False, test_delta=2, type_delta=-1, lint_delta=0, blocked_promotion=True)

    assert json.loads(encode(backstop)) == {
        "triggered": True,
        "pushed": True,
        "prCreated": True,
        "prUrl": "u",
        "unfilledFields": ["work_result"],
        "diagnostics": "d",
    }
    assert json.loads(encode(quality)) == {
        "baselineCaptured": False,
        "testDelta": 2,
        "typeDelta": -1,
        "lintDelta": 0,
        "blockedPromotion": True,
    }
    assert decode(encode(quality), QualityReport) == quality
    assert json.loads(encode(BackstopReport(triggered=False))) == {"triggered": False}
