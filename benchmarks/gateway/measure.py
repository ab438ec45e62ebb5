"""Runs every job: a fresh gateway, a load generator, a row.

In: jobs. Out: rows, one per gateway and traffic. A gateway that fails or loses a delta of any stream gives a row with
an error and no numbers.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.plan import Job
from gateway.servers import NotInstalledError, Server, running
from machine import PEERS_PYTHON, ROOT, child_environment
from stream.measure import representative, upstream

LOAD_TIMEOUT_S = 400

Report: TypeAlias = dict[str, Any] | str
"""What a load generator printed, or an error."""


@dataclass(frozen=True)
class Row:
    """One gateway under one traffic. `cpu_us` (per delta) is the best flat pass, and the median live pass."""

    gateway: str
    config: str
    passes: int = 0
    cpu_us: float = 0.0
    all_cpu_us: tuple[float, ...] = ()
    deltas_per_second: float = 0.0
    first_delta_median_ms: float = 0.0
    first_delta_max_ms: float = 0.0
    ready_rss_mb: float = 0.0
    peak_rss_mb: float = 0.0
    error: str | None = None


def run_jobs(planned: Sequence[Job]) -> list[Row]:
    """Run them one after the other, saying what comes out."""
    reports: dict[tuple[str, str], list[Report]] = {}
    rows: dict[tuple[str, str], Row] = {}
    with upstream() as url:
        for number, job in enumerate(planned, 1):
            key = job.gateway.key, job.config.key
            of_row = reports.setdefault(key, [])
            of_row.append(run_job(job, url))
            rows[key] = row = reduce(job, of_row)
            told = row.error or f"{row.cpu_us:8.1f} us/delta  {row.peak_rss_mb:6.0f} MB"
            print(f"[{number:2}/{len(planned)}] {job.config.title:34} {job.gateway.title:30} {told}", flush=True)
    return list(rows.values())


def run_job(job: Job, upstream_url: str) -> Report:
    """One gateway process: what its load generator reports, or why there is nothing to report."""
    base_url = f"{upstream_url}/{job.config.shape}/{job.config.deltas}"
    try:
        with running(job.gateway.server, base_url) as server:
            return put_under_load(job, server)
    except (NotInstalledError, RuntimeError, subprocess.TimeoutExpired) as error:
        return str(error)


def put_under_load(job: Job, server: Server) -> dict[str, Any]:
    """What the load generator reports."""
    config, gateway = job.config, job.gateway
    plan = (config.concurrency, config.rounds, job.passes, gateway.streams_per_connection)
    arguments = (gateway.client, server.port, server.key, server.pid, *plan)
    load = subprocess.run(
        [PEERS_PYTHON, "-m", "gateway.load", *map(str, arguments)],
        cwd=ROOT / "benchmarks",
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    if load.returncode != 0:
        raise RuntimeError(load.stderr.strip().splitlines()[-1][:300] if load.stderr.strip() else "no reason given")
    measured: dict[str, Any] = json.loads(load.stdout.splitlines()[-1])
    return measured


def failed(job: Job, error: str) -> Row:
    """A row without numbers."""
    return Row(job.gateway.key, job.config.key, error=error)


def reduce(job: Job, reports: Sequence[Report]) -> Row:
    """The generator's reports as one row."""
    measured, config = [report for report in reports if not isinstance(report, str)], job.config
    if len(measured) < len(reports):
        return failed(job, next(report for report in reports if isinstance(report, str)))
    passes = [one for report in measured for one in report["passes"]]
    for one in passes:
        if lost := [deltas for deltas in one["stream_deltas"] if deltas != config.deltas]:
            return failed(job, f"{len(lost)} streams lost deltas; one delivered {lost[0]} of {config.deltas}")
    cpu_us = [one["cpu_s"] / config.total() * 1e6 for one in passes]
    late = [value for one in passes for value in one["first_delta_ms"]]
    return Row(
        gateway=job.gateway.key,
        config=config.key,
        passes=len(passes),
        cpu_us=representative(cpu_us, config),
        all_cpu_us=tuple(cpu_us),
        deltas_per_second=config.total() / min(one["wall_s"] for one in passes),
        first_delta_median_ms=statistics.median(late),
        first_delta_max_ms=max(late),
        ready_rss_mb=max(report["ready_rss_mb"] for report in measured),
        peak_rss_mb=max(report["peak_rss_mb"] for report in measured),
    )
