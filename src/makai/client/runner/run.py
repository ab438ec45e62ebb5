"""One task of a harness in a git worktree, from the check of the repository to the `Result`.

The steps: worktree, baseline of the quality commands, session, commit of what was left, quality again, push. Every step
but the first two ends in a `Result`; what the caller can change is raised as `InvalidRequest` before anything is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from makai.client.runner.backstop import CommitStep, backstop_report, commit_leftovers, publish, refuse_protected
from makai.client.runner.commands import Git
from makai.client.runner.driving import Notices, SessionDriver, result_of
from makai.client.runner.gating import fitted
from makai.client.runner.quality import Measured, QualityChecks, compare, measure
from makai.client.runner.records import RunRecords, WorktreeRunState, raw_result
from makai.client.runner.recovery import CONTINUE_PROMPT, transcript_prompt
from makai.client.runner.worktree import Worktree, make_worktree, new_run_id
from makai.core.errors import AgentFailed, InvalidRequest, MakaiError, SessionNotFound, Unsupported, find_error
from makai.core.session_terms import SandboxLevel
from makai.harness.contract.capabilities import is_supported
from makai.harness.contract.events import Event, SystemEvent
from makai.harness.contract.interfaces import Handle, Harness
from makai.harness.contract.result import BackstopReport, QualityReport, Result
from makai.harness.contract.spec import Spec
from makai.harness.manifests import provider_name_of

DEFAULT_TIMEOUT_S: Final = 2 * 60 * 60.0
MAX_TITLE_CHARS: Final = 72


def _ignore(_: object) -> None:
    pass


class RunObserver(msgspec.Struct, frozen=True, kw_only=True):
    """What watches a run: its events, each after it was recorded, and one line per step of the runner."""

    event: Callable[[Event], None] = _ignore
    step: Callable[[str], None] = _ignore


UNOBSERVED: Final = RunObserver()


class RunnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    """Becomes part of the run's id."""
    branch: str = ""
    """The branch to make instead of `agent/<run id>`."""
    parent: Path | None = None
    """Where the worktree is made. None: in `<repository>.worktrees` beside the repository."""
    allow_dirty: bool = False
    checks: QualityChecks = QualityChecks()
    checks_sandbox: SandboxLevel = "workspace-write"
    """With `full-access` the checks execute what the agent wrote with all that the user may do."""
    backstop: bool = False
    push: bool = False
    pull_request: bool = False
    remote: str = "origin"
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_usd: float | None = None


async def run_in_worktree(
    harness: Harness,
    spec: Spec,
    options: RunnerOptions,
    *,
    observer: RunObserver = UNOBSERVED,
    stop: asyncio.Event | None = None,
    making: asyncio.Lock | None = None,
) -> Result:
    """Run `spec` in a new worktree of the repository in which `spec.cwd` lies. Setting `stop` ends the run politely.
    Runs that begin at the same time share `making`, because git makes one worktree at a time."""
    observer.step("making a worktree")
    try:
        async with making or asyncio.Lock():
            place = await make_worktree(
                Path(spec.cwd),
                run_id=new_run_id(options.name),
                branch=options.branch,
                parent=options.parent,
                allow_dirty=options.allow_dirty,
            )
    except AgentFailed as error:
        return Result(
            status="failed",
            provider_name=provider_name_of(harness.name),
            failure_mode="worktree-provision",
            error=error.message,
        )
    state = WorktreeRunState(
        run_id=place.run_id,
        harness=harness.name,
        branch=place.branch,
        base_commit=place.base_commit,
        phase="running",
        prompt=spec.prompt,
        model=spec.model,
        prefix=place.prefix,
    )
    fit, dropped = fitted(msgspec.structs.replace(spec, cwd=place.cwd), harness.capabilities)
    attempt = _Attempt(harness, place, options, observer, stop or asyncio.Event())
    with attempt.records.open():
        return await attempt.carry_out(state, lambda: harness.spawn(fit), lambda: _mismatches(harness, dropped))


async def run_in_folder(
    harness: Harness,
    spec: Spec,
    options: RunnerOptions,
    *,
    observer: RunObserver = UNOBSERVED,
    stop: asyncio.Event | None = None,
) -> Result:
    """Run `spec` where it says, without a worktree, records, checks or commits."""
    fit, dropped = fitted(spec, harness.capabilities)
    driver = SessionDriver(_ignore, observer.event, lambda: _mismatches(harness, dropped))
    driven = await driver.drive(lambda: harness.spawn(fit), timeout_s=options.timeout_s, stop=stop or asyncio.Event())
    return result_of(driven, harness.name, max_usd=options.max_usd)


async def resume_in_worktree(
    harness: Harness,
    worktree: Path,
    spec: Spec,
    options: RunnerOptions,
    *,
    observer: RunObserver = UNOBSERVED,
    stop: asyncio.Event | None = None,
) -> Result:
    """Continue the run of a worktree with the settings of `spec`. An empty prompt means to finish the recorded task. A
    run that has completed needs another one."""
    records = RunRecords(worktree)
    state = records.read_state()
    refuse_protected(await Git(worktree).branch())
    if state.phase == "completed" and not spec.prompt:
        raise InvalidRequest("This run has completed.", hint="Add a prompt to continue it.")
    place = Worktree(
        run_id=state.run_id, path=worktree, prefix=state.prefix, branch=state.branch, base_commit=state.base_commit
    )
    attempt = _Attempt(harness, place, options, observer, stop or asyncio.Event())
    with attempt.records.open():
        recorded = records.read_events()
        wanted = msgspec.structs.replace(spec, cwd=place.cwd, model=spec.model or state.model)
        fit, dropped = fitted(wanted, harness.capabilities)
        transcript = transcript_prompt(state.prompt, recorded.events, spec.prompt)
        known_id = recorded.session_id if harness.name == state.harness else ""
        recovery = _Recovery(harness, fit, known_id, transcript)
        if recorded.damaged_lines:
            lines = ", ".join(map(str, recorded.damaged_lines[:10]))
            observer.step(f"events.jsonl is damaged in line {lines}: these events are left out")
        state = msgspec.structs.replace(
            state,
            phase="running",
            attempts=state.attempts + 1,
            harness=harness.name,
            spent_usd=attempt.spent(state),
            result=msgspec.Raw(b"null"),  # its cost is counted: a kill before the next result must not count it again
        )
        return await attempt.carry_out(
            state, recovery.begin, lambda: [recovery.notice(), *_mismatches(harness, dropped)]
        )


class _Recovery:
    """Begins the session of a resumed run, and knows afterwards in which way it did."""

    def __init__(self, harness: Harness, spec: Spec, session_id: str, transcript: str) -> None:
        self._harness, self._spec, self._session_id, self._transcript = harness, spec, session_id, transcript
        self.way = ""

    def notice(self) -> SystemEvent:
        return SystemEvent(subtype="recovered", message=self.way)

    async def begin(self) -> Handle:
        if self._session_id and is_supported(self._harness.capabilities, "session_resume"):
            spec = msgspec.structs.replace(self._spec, prompt=self._spec.prompt or CONTINUE_PROMPT)
            try:
                handle = await self._harness.resume(self._session_id, spec)
            except MakaiError as error:
                if find_error(error, SessionNotFound) is None and find_error(error, Unsupported) is None:
                    raise
                self.way = f"{self._harness.name} does not know its session any more; "
            else:
                self.way = f"continued the session {self._session_id} of {self._harness.name}"
                return handle
        self.way += "started a new session with a transcript of what was recorded"
        return await self._harness.spawn(msgspec.structs.replace(self._spec, prompt=self._transcript))


class _Attempt:
    """One attempt at a run, in a worktree whose records are open."""

    def __init__(
        self, harness: Harness, place: Worktree, options: RunnerOptions, observer: RunObserver, stop: asyncio.Event
    ) -> None:
        self._harness, self._place, self._options = harness, place, options
        self._observer, self._stop = observer, stop
        self.records = RunRecords(place.path)

    async def carry_out(
        self,
        state: WorktreeRunState,
        begin: Callable[[], Awaitable[Handle]],
        notices: Notices,
    ) -> Result:
        try:
            baseline = await self._baseline(state)
            state = msgspec.structs.replace(state, baseline=baseline)
            self.records.write_state(state)
            self._observer.step(f"running {self._harness.name} in {self._place.path}")
            driver = SessionDriver(self.records.append, self._observer.event, notices)
            driven = await driver.drive(begin, timeout_s=self._options.timeout_s, stop=self._stop)
            result = result_of(driven, self._harness.name, max_usd=self._options.max_usd, spent_usd=state.spent_usd)
            result = await self._finish(result, baseline)
        except asyncio.CancelledError:
            self.records.write_state(msgspec.structs.replace(state, phase="stopped"))
            raise
        self.records.write_state(msgspec.structs.replace(state, phase=result.status, result=raw_result(result)))
        return result

    def spent(self, state: WorktreeRunState) -> float:
        """What the run cost so far, with its last attempt."""
        last = msgspec.json.decode(state.result, type=Result | None)
        return state.spent_usd + (last.cost.total_cost_usd if last is not None and last.cost is not None else 0.0)

    async def _baseline(self, state: WorktreeRunState) -> dict[str, int] | None:
        """The failures before the agent began. A resumed run keeps those of its first attempt."""
        if state.baseline is not None or not self._options.checks.commands or state.attempts > 1:
            return state.baseline
        measured = await self._measured("before the run")
        return None if measured.problems else measured.counts

    async def _measured(self, when: str) -> Measured:
        self._observer.step(f"running your checks {when}")
        measured = await measure(self._options.checks, self._place.path, self._options.checks_sandbox)
        for kind, problem in measured.problems.items():
            self._observer.step(f"the {kind} check has no result: {problem}")
        return measured

    async def _finish(self, result: Result, baseline: dict[str, int] | None) -> Result:
        """Commit, measure and publish. A run that the user stopped, or that ran out of time, is left as it is."""
        git = self._place.git
        if result.failure_mode in ("operator-cancelled", "timeout", "spawn-failed"):
            return msgspec.structs.replace(
                result, worktree_path=str(self._place.path), commit_sha=await self._own_commit(git)
            )
        committed, failure = CommitStep(), ""
        if self._options.backstop:
            self._observer.step("committing what was left")
            title = f"{result.summary or 'Work of an agent'}"[:MAX_TITLE_CHARS].partition("\n")[0]
            committed = await commit_leftovers(git, f"{title}\n\nCommitted by makai for {self._harness.name}.")
            failure = committed.problem
        quality = await self._quality(baseline)
        report = await self._published(git, result, committed, quality)
        result = msgspec.structs.replace(
            result,
            worktree_path=str(self._place.path),
            commit_sha=await self._own_commit(git),
            backstop_report=report,
            quality_report=quality,
            pull_request_url=result.pull_request_url or (report.pr_url if report is not None else ""),
        )
        if failure and result.status == "completed":
            return msgspec.structs.replace(
                result, status="failed", failure_mode="backstop-failed", error=f"Nothing was committed: {failure}."
            )
        return result

    async def _own_commit(self, git: Git) -> str:
        """The newest commit of the run. Empty when it made none."""
        commit = await git.commit()
        return "" if commit == self._place.base_commit else commit

    async def _quality(self, baseline: dict[str, int] | None) -> QualityReport | None:
        if not self._options.checks.commands:
            return None
        after = await self._measured("after the run")
        return compare(
            baseline, after.counts, {str(kind): text for kind, text in self._options.checks.commands.items()}
        )

    async def _published(
        self, git: Git, result: Result, committed: CommitStep, quality: QualityReport | None
    ) -> BackstopReport | None:
        if not (self._options.backstop or self._options.push):
            return None
        unfilled = [] if result.work_result is not None else ["work_result"]
        if not self._options.push:
            return backstop_report(committed, None, unfilled=unfilled)
        held_back = _held_back(result, quality, await self._own_commit(git))
        if held_back:
            return backstop_report(committed, None, unfilled=unfilled, held_back=held_back)
        self._observer.step(f"pushing {self._place.branch}")
        publishing = await publish(
            git,
            remote=self._options.remote,
            pull_request=self._options.pull_request and not result.pull_request_url,
            title=(result.summary or self._place.branch)[:MAX_TITLE_CHARS],
            body=result.summary,
        )
        return backstop_report(committed, publishing, unfilled=unfilled)


def _held_back(result: Result, quality: QualityReport | None, commit: str) -> str:
    """Why the branch is not published. Empty when it is."""
    if quality is not None and quality.blocked_promotion:
        return "a check is worse than before the run"
    if result.status != "completed":
        return "the run did not complete"
    return "" if commit else "the run made no commit"


def _mismatches(harness: Harness, dropped: Sequence[str]) -> list[SystemEvent]:
    """One event for observers per field that the harness would ignore (DM-CAP-006)."""
    return [
        SystemEvent(subtype="capability_mismatch", message=f"{harness.name} does not honour {field}: it was left out")
        for field in dropped
    ]
