"""Shows the progress of a download: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from makai.cli.console import has_colour, note
from makai.providers.local.weights import OnProgress, PullProgress

_WORDS = {
    "finding": "Looking for the weights",
    "downloading": "Downloading",
    "checking": "Checking",
    "unpacking": "Unpacking",
}
_STEP_PERCENT = 20


@contextmanager
def show_progress(stream: TextIO) -> Iterator[OnProgress]:
    if not stream.isatty():
        yield plain_progress(note)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(file=stream, no_color=not has_colour(stream), highlight=False)
    columns = (
        TextColumn("{task.description:<11}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        stage = ""

        def show(progress: PullProgress) -> None:
            nonlocal stage
            if progress.stage != stage:
                stage = progress.stage
                # No total while the size is unknown: the bar then just moves.
                bar.reset(task, description=_WORDS[stage], total=None if stage == "finding" else progress.total)
            bar.update(task, completed=progress.done)

        yield show


def plain_progress(write: Callable[[str], object]) -> OnProgress:
    """One line when a stage begins, and one for every fifth of a download."""
    stage = ""
    shown = 0

    def show(progress: PullProgress) -> None:
        nonlocal stage, shown
        percent = 100 * progress.done // max(1, progress.total)
        if progress.stage != stage:
            stage, shown = progress.stage, percent
            resumed = f" from {percent}%" if percent >= 1 and stage == "downloading" else ""
            write(f"{_WORDS[stage]}{resumed} ({progress.total / 1_000_000:.0f} MB)")
        elif stage == "downloading" and percent >= shown + _STEP_PERCENT:
            shown = percent
            write(f"{_WORDS[stage]}: {percent}%")

    return show
