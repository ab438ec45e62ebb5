"""Starts the upstream, runs every job in its own process, and reduces what the children report to rows.

In: jobs. Out: rows, one per job, in the same order. A child that fails or loses a delta gives a row with an error
and no numbers.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import PEERS_PYTHON, PINNED_PEERS_PYTHON, ROOT, child_environment
from stream.plan import TITLES, Config, Job

CHILD_TIMEOUT_S = 240
PINNED = frozenset({"litellm", "any-llm"})


@dataclass(frozen=True)
class Row:
    """One client in one configuration on one event loop.

    `cpu_us` (per delta) is the best pass of the flat shapes, and the median pass of the live shape: a live pass looks
    better than it is when a busy machine delivers several deltas at once.
    """

    client: str
    loop: str
    config: str
    passes: int = 0
    cpu_us: float = 0.0
    all_cpu_us: tuple[float, ...] = ()
    wall_s: float = 0.0
    first_delta_median_ms: float = 0.0
    first_delta_max_ms: float = 0.0
    ready_rss_mb: float = 0.0
    peak_rss_mb: float = 0.0
    text_length: int | None = None
    error: str | None = None


def python_of(client: str) -> Path:
    """The interpreter whose environment has this client."""
    return PINNED_PEERS_PYTHON if client in PINNED else PEERS_PYTHON


@contextmanager
def upstream() -> Iterator[str]:
    """A running upstream; yields its URL."""
    process = subprocess.Popen(
        [PEERS_PYTHON, "-m", "stream.upstream"],
        cwd=ROOT / "benchmarks",
        env=child_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run_jobs(planned: Sequence[Job]) -> list[Row]:
    """Run them one after the other, saying what comes out."""
    rows = []
    with upstream() as url:
        for number, job in enumerate(planned, 1):
            row = run_job(job, url)
            told = row.error or f"{row.cpu_us:8.1f} us/delta  {row.peak_rss_mb:6.0f} MB"
            print(f"[{number:2}/{len(planned)}] {job.config.title:34} {TITLES[job.client]:36} {job.loop:8} {told}")
            rows.append(row)
    return rows


def run_job(job: Job, url: str) -> Row:
    """One child process and its row."""
    config = job.config
    python = python_of(job.client)
    if not python.exists():
        return failed(job, f"not installed: no {python.parent.parent.name} (see benchmarks/README.md)")
    numbers = (config.concurrency, config.rounds, job.repeats, job.warm_up)
    base_url = f"{url}/{config.shape}/{config.deltas}"
    try:
        child = subprocess.run(
            [python, "-m", "stream.child", job.client, job.loop, base_url, *map(str, numbers)],
            cwd=ROOT / "benchmarks",
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=CHILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return failed(job, f"did not end within {CHILD_TIMEOUT_S} s")
    if child.returncode != 0:
        return failed(job, child.stderr.strip().splitlines()[-1][:200] if child.stderr.strip() else "no reason given")
    return reduce(job, json.loads(child.stdout.splitlines()[-1]))


def failed(job: Job, error: str) -> Row:
    """A row without numbers."""
    return Row(job.client, job.loop, job.config.key, error=error)


def reduce(job: Job, measured: dict[str, Any]) -> Row:
    """A child's report as one row."""
    passes = measured["repeats"]
    if lost := [one["deltas"] for one in passes if one["deltas"] != job.config.total()]:
        return failed(job, f"received {lost[0]} of {job.config.total()} deltas")
    cpu_us = [one["cpu_s"] / one["deltas"] * 1e6 for one in passes]
    late = [value for one in passes for value in one["first_delta_ms"]]
    return Row(
        client=job.client,
        loop=job.loop,
        config=job.config.key,
        passes=len(passes),
        cpu_us=representative(cpu_us, job.config),
        all_cpu_us=tuple(cpu_us),
        wall_s=min(one["wall_s"] for one in passes),
        first_delta_median_ms=statistics.median(late),
        first_delta_max_ms=max(late),
        ready_rss_mb=measured["ready_rss_mb"],
        peak_rss_mb=measured["peak_rss_mb"],
        text_length=passes[-1]["text_length"],
    )


def representative(cpu_us: Sequence[float], config: Config) -> float:
    """Which of several passes to believe (see `Row`)."""
    return statistics.median(cpu_us) if config.shape == "live" else min(cpu_us)
