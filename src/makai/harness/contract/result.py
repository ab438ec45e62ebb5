"""What a runner reports about a finished session (DM-RES-001). A `ResultEvent` is the harness' own word about it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from makai.harness.contract.events import CostData
from makai.harness.contract.shapes import ContractShape

ResultStatus: TypeAlias = Literal["completed", "failed", "stopped"]
WorkResult: TypeAlias = Literal["passed", "failed", "unknown"]


class BackstopReport(ContractShape, frozen=True, kw_only=True):
    """What the runner did after a session that left its work unfinished."""

    triggered: bool
    pushed: bool = False
    pr_created: bool = False
    pr_url: str = ""
    unfilled_fields: tuple[str, ...] = ()
    diagnostics: str = ""


class QualityReport(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    """Changes of failing tests and of errors since the session began. A positive number is a regression."""

    baseline_captured: bool
    test_delta: int = 0
    type_delta: int = 0
    lint_delta: int = 0
    blocked_promotion: bool = False


class Result(ContractShape, frozen=True, kw_only=True):
    status: ResultStatus
    provider_name: str
    provider_session_id: str = ""
    worktree_path: str = ""
    pull_request_url: str = ""
    commit_sha: str = ""
    summary: str = ""
    work_result: WorkResult | None = None
    cost: CostData | None = None
    failure_mode: str = ""
    backstop_report: BackstopReport | None = None
    quality_report: QualityReport | None = None
    error: str = ""
