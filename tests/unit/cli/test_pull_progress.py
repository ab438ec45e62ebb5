"""How a download looks in a log."""

from __future__ import annotations

from makai.cli.pull_progress import plain_progress
from makai.providers.local.weights import PullProgress


def test_a_log_gets_a_line_per_stage_and_per_fifth_of_the_download() -> None:
    lines: list[str] = []
    show = plain_progress(lines.append)

    show(PullProgress("finding", 0, 1_000_000))
    for done in range(0, 1_000_001, 50_000):
        show(PullProgress("downloading", done, 1_000_000))
    for done in range(0, 2_000_001, 500_000):
        show(PullProgress("unpacking", done, 2_000_000))

    assert lines == [
        "Looking for the weights (1 MB)",
        "Downloading (1 MB)",
        "Downloading: 20%",
        "Downloading: 40%",
        "Downloading: 60%",
        "Downloading: 80%",
        "Downloading: 100%",
        "Unpacking (2 MB)",
    ]


def test_a_download_that_continues_says_from_where() -> None:
    lines: list[str] = []
    show = plain_progress(lines.append)

    for done in (700_000, 800_000, 950_000, 1_000_000):
        show(PullProgress("downloading", done, 1_000_000))

    assert lines == ["Downloading from 70% (1 MB)", "Downloading: 95%"]
