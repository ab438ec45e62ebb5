"""Whole runs of a fake harness in real git worktrees."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from support.fake_harness import COST, DONE, INIT, FakeHarness, Step, git, make_repository, text, writes

from makai.client.runner.quality import QualityChecks
from makai.client.runner.records import RunRecords
from makai.client.runner.run import RunnerOptions, RunObserver, resume_in_worktree, run_in_folder, run_in_worktree
from makai.core.errors import InvalidRequest, ProviderUnavailable, SessionNotFound, SpawnFailed
from makai.harness.contract.capabilities import Capabilities
from makai.harness.contract.events import AgentErrorEvent, Event, ResultEvent, SystemEvent
from makai.harness.contract.result import BackstopReport, QualityReport, Result
from makai.harness.contract.spec import Spec

PLAIN = RunnerOptions()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def without_place(result: Result) -> Result:
    return msgspec.structs.replace(result, worktree_path="", commit_sha="")


@pytest.mark.req("DM-RES-001", "DM-RES-002", "DM-RES-004", "DM-ONE-004")
async def test_a_run_works_in_a_worktree_on_its_own_branch_and_reports_a_result(repository: Path) -> None:
    harness = FakeHarness([INIT, writes("new.txt"), text("Made it.\nWORK_RESULT:"), text(" passed"), DONE])
    seen: list[Event] = []

    result = await run_in_worktree(
        harness, Spec(prompt="do", cwd=str(repository)), PLAIN, observer=RunObserver(event=seen.append)
    )

    place = Path(result.worktree_path)
    assert result == Result(
        status="completed",
        provider_name="fake",
        provider_session_id="s-1",
        worktree_path=str(place),
        summary="All done.",
        work_result="passed",
        cost=COST,
    )
    assert place.parent == repository.parent / "repo.worktrees"
    assert git(place, "branch", "--show-current") == f"agent/{place.name}"
    assert (place / "new.txt").exists()
    assert not (repository / "new.txt").exists()
    assert git(repository, "status", "--porcelain") == ""
    assert git(place, "status", "--porcelain") == "?? new.txt"
    records = RunRecords(place)
    assert records.read_events().events == tuple(seen) == (
        INIT, text("Made it.\nWORK_RESULT:"), text(" passed"), DONE
    )  # fmt: skip
    state = records.read_state()
    assert (state.phase, state.prompt, state.branch) == ("completed", "do", f"agent/{place.name}")
    assert msgspec.json.decode(state.result, type=Result) == result
    assert harness.specs == [Spec(prompt="do", cwd=str(place))]
    assert harness.handles[0].stops == 1


@pytest.mark.req("DM-EVT-012")
async def test_every_event_is_recorded_before_it_is_observed(repository: Path) -> None:
    harness = FakeHarness([INIT, text("a"), DONE])
    recorded: list[int] = []

    def observe(_: Event) -> None:
        recorded.append(len(RunRecords(Path(harness.specs[0].cwd)).read_events().events))

    spec = Spec(prompt="do", cwd=str(repository))
    await run_in_worktree(harness, spec, PLAIN, observer=RunObserver(event=observe))

    assert recorded == [1, 2, 3]


async def test_the_agent_works_in_the_same_subfolder_as_its_caller(repository: Path) -> None:
    harness = FakeHarness([INIT, DONE])

    result = await run_in_worktree(harness, Spec(prompt="do", cwd=str(repository / "sub")), PLAIN)

    assert harness.specs[0].cwd == result.worktree_path + "/sub"


@pytest.mark.parametrize(
    ("script", "status", "mode", "error"),
    [
        ([INIT, ResultEvent(success=False, errors=("no", "never"))], "failed", "provider-error", "no; never"),
        ([INIT, ResultEvent(success=False, error_subtype="error_max_turns")], "failed", "provider-error",
         "error_max_turns"),
        ([INIT, AgentErrorEvent(message="crashed")], "failed", "provider-error", "crashed"),
        ([INIT, AgentErrorEvent(message="Ended.", code="spawn_no_result")], "failed", "silent-exit", "Ended."),
        ([INIT, text("hm")], "failed", "silent-exit", "The agent ended without a result."),
        (SpawnFailed("cannot start"), "failed", "spawn-failed", "cannot start"),
        (ProviderUnavailable("not installed"), "failed", "spawn-failed", "not installed"),
    ],
)  # fmt: skip
@pytest.mark.req("DM-RES-001", "DM-RES-004")
async def test_failures_have_a_mode_and_the_text_of_the_failure(
    repository: Path, script: list[Step], status: str, mode: str, error: str
) -> None:
    result = await run_in_worktree(FakeHarness(script), Spec(prompt="do", cwd=str(repository)), PLAIN)

    assert (result.status, result.failure_mode, result.error) == (status, mode, error)
    assert RunRecords(Path(result.worktree_path)).read_state().phase == "failed"


@pytest.mark.req("DM-RES-004")
async def test_a_failure_costs_what_the_agent_spent_before_it(repository: Path) -> None:
    harness = FakeHarness([INIT, AgentErrorEvent(message="crashed", cost=COST)])

    result = await run_in_worktree(harness, Spec(prompt="do", cwd=str(repository)), PLAIN)

    assert (result.status, result.cost) == ("failed", COST)


async def test_a_run_that_takes_too_long_is_stopped(repository: Path) -> None:
    harness = FakeHarness([INIT, asyncio.Event(), DONE])

    spec = Spec(prompt="do", cwd=str(repository))
    result = await run_in_worktree(harness, spec, RunnerOptions(timeout_s=0.05))

    assert (result.status, result.failure_mode) == ("failed", "timeout")
    assert harness.handles[0].stops >= 1


@pytest.mark.req("DM-RES-001")
async def test_a_run_is_stopped_on_request_and_keeps_its_work_uncommitted(repository: Path) -> None:
    stop = asyncio.Event()
    harness = FakeHarness([INIT, writes("new.txt"), text("half"), asyncio.Event(), DONE])
    observer = RunObserver(event=lambda event: stop.set() if event == text("half") else None)

    options = RunnerOptions(backstop=True)
    result = await run_in_worktree(
        harness, Spec(prompt="do", cwd=str(repository)), options, observer=observer, stop=stop
    )

    assert (result.status, result.failure_mode) == ("stopped", "operator-cancelled")
    assert result.commit_sha == ""
    assert os.listdir(result.worktree_path).count("new.txt") == 1
    last = RunRecords(Path(result.worktree_path)).read_events().events[-1]
    assert last == ResultEvent(success=False, error_subtype="stopped")


@pytest.mark.req("DM-PROV-012")
async def test_cancelling_a_run_stops_its_session_and_says_so_in_the_state(repository: Path) -> None:
    began = asyncio.Event()
    harness = FakeHarness([INIT, asyncio.Event(), DONE])
    observer = RunObserver(event=lambda _: began.set())
    run = asyncio.create_task(
        run_in_worktree(harness, Spec(prompt="do", cwd=str(repository)), PLAIN, observer=observer)
    )
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert harness.handles[0].stops == 1
    assert RunRecords(Path(harness.specs[0].cwd)).read_state().phase == "stopped"


async def test_a_run_over_its_budget_fails_also_over_several_attempts(repository: Path) -> None:
    harness = FakeHarness([INIT, DONE], [INIT, DONE])
    options = RunnerOptions(max_usd=0.4)
    spec = Spec(prompt="do", cwd=str(repository))
    first = await run_in_worktree(harness, spec, options)
    again = await resume_in_worktree(harness, Path(first.worktree_path), Spec(prompt="more"), options)

    assert first.status == "completed"
    assert (again.status, again.failure_mode) == ("failed", "budget-exceeded")
    assert again.error == "The run cost $0.50, more than the $0.40 that were allowed."


@pytest.mark.req("DM-RES-004")
async def test_an_attempt_that_is_cut_off_does_not_count_an_earlier_cost_twice(repository: Path) -> None:
    harness = FakeHarness([INIT, DONE], [INIT, asyncio.Event(), DONE], [INIT, DONE])
    options = RunnerOptions(max_usd=0.6)
    began = asyncio.Event()
    observer = RunObserver(event=lambda _: began.set())
    first = await run_in_worktree(harness, Spec(prompt="do", cwd=str(repository)), options)
    place = Path(first.worktree_path)
    cut_off = asyncio.create_task(resume_in_worktree(harness, place, Spec(prompt="more"), options, observer=observer))
    await asyncio.wait_for(began.wait(), 30)
    cut_off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut_off
    again = await resume_in_worktree(harness, place, Spec(prompt="again"), options)

    assert (first.status, again.status, again.error) == ("completed", "completed", "")
    assert RunRecords(place).read_state().spent_usd == 0.25


@pytest.mark.req("DM-CAP-006", "DM-CAP-005")
async def test_a_setting_that_the_harness_ignores_is_left_out_and_reported_after_init(repository: Path) -> None:
    harness = FakeHarness([INIT, DONE], [INIT, DONE])
    seen: list[Event] = []
    spec = Spec(prompt="do", cwd=str(repository), effort="high")

    await run_in_worktree(harness, spec, PLAIN, observer=RunObserver(event=seen.append))
    await run_in_folder(harness, spec, PLAIN, observer=RunObserver(event=seen.append))

    notice = SystemEvent(subtype="capability_mismatch", message="fake does not honour effort: it was left out")
    assert seen == [INIT, notice, DONE] * 2
    assert [given.effort for given in harness.specs] == [None, None]


@pytest.mark.req("DM-SPEC-013")
async def test_settings_for_the_provider_reach_it_unchanged(repository: Path) -> None:
    harness = FakeHarness([INIT, DONE], [INIT, DONE])
    settings = {"speed": "fast", "nested": {"a": [1, None]}}
    spec = Spec(prompt="do", cwd=str(repository), provider_config=settings, sub_agent_provider="codex", max_turns=3)

    await run_in_worktree(harness, spec, PLAIN)
    await run_in_folder(harness, spec, PLAIN)

    assert [msgspec.structs.replace(seen, cwd=spec.cwd) for seen in harness.specs] == [spec, spec]


@pytest.mark.req("DM-RES-001", "DM-PROV-014")
async def test_a_result_and_a_failed_worktree_name_the_provider_of_the_contract(repository: Path) -> None:
    (repository.parent / "repo.worktrees").write_text("in the way", encoding="utf-8")
    harness = FakeHarness([INIT, DONE], name="antigravity")
    spec = Spec(prompt="do", cwd=str(repository))
    results = [await run_in_folder(harness, spec, PLAIN), await run_in_worktree(harness, spec, PLAIN)]

    assert [(result.status, result.provider_name) for result in results] == [
        ("completed", "agy-cli"),
        ("failed", "agy-cli"),
    ]


@pytest.mark.req("DM-RES-004")
async def test_the_backstop_commits_what_was_left_and_pushes_when_asked(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "remote.git"))
    harness = FakeHarness([INIT, writes("new.txt"), text("WORK_RESULT: passed"), DONE])

    options = RunnerOptions(backstop=True, push=True, name="Fix the bug!")
    result = await run_in_worktree(harness, Spec(prompt="do", cwd=str(repository)), options)

    assert without_place(result) == Result(
        status="completed",
        provider_name="fake",
        provider_session_id="s-1",
        summary="All done.",
        work_result="passed",
        cost=COST,
        backstop_report=BackstopReport(
            triggered=True, pushed=True, diagnostics="Committed 1 file that the agent had left uncommitted."
        ),
    )
    place = Path(result.worktree_path)
    assert place.name.startswith("fix-the-bug-")
    assert git(tmp_path / "remote.git", "rev-parse", f"agent/{place.name}") == result.commit_sha
    assert git(place, "log", "-1", "--format=%B") == "All done.\n\nCommitted by makai for fake."
    assert git(repository, "branch", "--show-current") == "main"
    assert git(tmp_path / "remote.git", "branch", "--list", "main") == ""


@pytest.mark.req("DM-RES-003", "DM-RES-004")
async def test_a_regression_blocks_the_push(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "remote.git"))
    harness = FakeHarness([INIT, writes("a.txt", "bad\nbad\n"), text("WORK_RESULT: passed"), DONE])
    checks = QualityChecks(
        test='n=$(grep -c bad a.txt); echo "Found $n errors."; test "$n" = 0', lint="true", types="test ! -e x"
    )

    options = RunnerOptions(backstop=True, push=True, checks=checks)
    result = await run_in_worktree(harness, Spec(prompt="do", cwd=str(repository)), options)

    assert result.quality_report == QualityReport(baseline_captured=True, test_delta=2, blocked_promotion=True)
    assert result.backstop_report is not None
    assert not result.backstop_report.pushed
    assert "Nothing was pushed: a check is worse than before the run." in result.backstop_report.diagnostics
    assert result.commit_sha != ""
    assert git(tmp_path / "remote.git", "branch", "--list") == ""


async def test_too_many_files_fail_the_run_and_stay_uncommitted(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [writes(f"{number}.txt") for number in range(201)]
    harness = FakeHarness([INIT, *many, DONE])

    options = RunnerOptions(backstop=True)
    result = await run_in_worktree(harness, Spec(prompt="do", cwd=str(repository)), options)

    assert (result.status, result.failure_mode) == ("failed", "backstop-failed")
    assert result.error == "Nothing was committed: 201 files changed, more than 200: look at them first."


async def test_a_folder_without_git_and_a_repository_without_commits_are_refused(tmp_path: Path) -> None:
    harness = FakeHarness()
    with pytest.raises(InvalidRequest, match="is not in a git repository"):
        await run_in_worktree(harness, Spec(prompt="do", cwd=str(tmp_path)), PLAIN)
    git(tmp_path, "init", "--quiet")
    with pytest.raises(InvalidRequest, match="no commit yet"):
        await run_in_worktree(harness, Spec(prompt="do", cwd=str(tmp_path)), PLAIN)


async def test_uncommitted_changes_are_refused_unless_the_caller_allows_them(repository: Path) -> None:
    (repository / "a.txt").write_text("changed\n", encoding="utf-8")
    (repository / "more.txt").write_text("x", encoding="utf-8")
    spec = Spec(prompt="do", cwd=str(repository))

    with pytest.raises(InvalidRequest, match="2 uncommitted changes") as refused:
        await run_in_worktree(FakeHarness(), spec, PLAIN)
    result = await run_in_worktree(FakeHarness([INIT, DONE]), spec, RunnerOptions(allow_dirty=True))

    assert "--allow-dirty" in str(refused.value.hint)
    assert git(Path(result.worktree_path), "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("branch", "message"),
    [("main", "do not work on main"), ("master", "do not work on master"), ("a..b", "no name"), ("old", "already")],
)
async def test_a_branch_that_cannot_be_made_is_refused(repository: Path, branch: str, message: str) -> None:
    git(repository, "branch", "old")

    spec = Spec(prompt="do", cwd=str(repository))

    with pytest.raises(InvalidRequest, match=message):
        await run_in_worktree(FakeHarness(), spec, RunnerOptions(branch=branch))

    assert not (repository.parent / "repo.worktrees").exists()


async def test_a_worktree_that_git_cannot_make_is_a_failed_result(repository: Path) -> None:
    (repository.parent / "repo.worktrees").write_text("in the way", encoding="utf-8")

    result = await run_in_worktree(FakeHarness(), Spec(prompt="do", cwd=str(repository)), PLAIN)

    assert (result.status, result.failure_mode) == ("failed", "worktree-provision")


async def test_a_killed_run_continues_with_the_session_of_its_harness(repository: Path) -> None:
    harness = FakeHarness([INIT, writes("half.txt")], [INIT, text("rest"), DONE])
    spec = Spec(prompt="do", cwd=str(repository / "sub"), model="m")
    first = await run_in_worktree(harness, spec, PLAIN)
    seen: list[Event] = []

    result = await resume_in_worktree(
        harness, Path(first.worktree_path), Spec(prompt=""), PLAIN, observer=RunObserver(event=seen.append)
    )

    assert harness.resumed == ["s-1"]
    assert harness.specs[1].prompt.startswith("This session was interrupted.")
    assert (harness.specs[1].model, harness.specs[1].cwd) == ("m", harness.specs[0].cwd)
    notice = SystemEvent(subtype="recovered", message="continued the session s-1 of fake")
    assert seen == [INIT, notice, text("rest"), DONE]
    assert result.status == "completed"
    assert RunRecords(Path(first.worktree_path)).read_events().events == (INIT, *seen)
    assert RunRecords(Path(first.worktree_path)).read_state().attempts == 2


@pytest.mark.req("DM-CAP-005")
@pytest.mark.parametrize(
    ("second", "way"),
    [
        (FakeHarness([INIT, DONE], capabilities=Capabilities()), "started a new session with a transcript"),
        (FakeHarness([INIT, DONE], name="other"), "started a new session with a transcript"),
        (
            FakeHarness(SessionNotFound("gone"), [INIT, DONE]),
            "fake does not know its session any more; started a new session with a transcript",
        ),
    ],
)
async def test_a_run_whose_session_is_lost_continues_with_a_transcript(
    repository: Path, second: FakeHarness, way: str
) -> None:
    first = await run_in_worktree(
        FakeHarness([INIT, text("I began.")]), Spec(prompt="the task", cwd=str(repository)), PLAIN
    )
    seen: list[Event] = []

    await resume_in_worktree(
        second, Path(first.worktree_path), Spec(prompt=""), PLAIN, observer=RunObserver(event=seen.append)
    )

    assert seen[1] == SystemEvent(subtype="recovered", message=f"{way} of what was recorded")
    assert second.resumed == (["s-1"] if "any more" in way else [])
    assert "<task>\nthe task\n</task>" in second.specs[-1].prompt
    assert "agent: I began." in second.specs[-1].prompt


async def test_a_completed_run_needs_a_prompt_and_one_on_main_is_refused(repository: Path) -> None:
    first = await run_in_worktree(FakeHarness([INIT, DONE]), Spec(prompt="do", cwd=str(repository)), PLAIN)
    place = Path(first.worktree_path)

    with pytest.raises(InvalidRequest, match="has completed"):
        await resume_in_worktree(FakeHarness(), place, Spec(prompt=""), PLAIN)
    git(repository, "checkout", "--quiet", "-b", "elsewhere")
    git(place, "checkout", "--quiet", "main")
    with pytest.raises(InvalidRequest, match="do not work on main"):
        await resume_in_worktree(FakeHarness(), place, Spec(prompt="more"), PLAIN)


async def test_damaged_events_are_left_out_and_named(repository: Path) -> None:
    first = await run_in_worktree(FakeHarness([INIT, text("a")]), Spec(prompt="do", cwd=str(repository)), PLAIN)
    place = Path(first.worktree_path)
    with RunRecords(place).events_path.open("ab") as file:
        file.write(b"\x00garbage\n{]")
    steps: list[str] = []

    result = await resume_in_worktree(
        FakeHarness([INIT, DONE]), place, Spec(prompt=""), PLAIN, observer=RunObserver(step=steps.append)
    )

    assert steps[0] == "events.jsonl is damaged in line 3, 4: these events are left out"
    assert result.status == "completed"


async def test_an_agent_cannot_leave_its_worktree_by_a_changed_state(repository: Path, tmp_path: Path) -> None:
    first = await run_in_worktree(FakeHarness([INIT]), Spec(prompt="do", cwd=str(repository)), PLAIN)
    place = Path(first.worktree_path)
    state = RunRecords(place).read_state()
    for prefix in ("../..", "/", str(tmp_path)):
        with RunRecords(place).open():
            RunRecords(place).write_state(msgspec.structs.replace(state, prefix=prefix))
        harness = FakeHarness([INIT])
        await resume_in_worktree(harness, place, Spec(prompt=""), PLAIN)
        assert harness.specs[0].cwd == str(place)
