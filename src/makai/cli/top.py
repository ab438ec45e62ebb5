"""`makai top`: a live view of sessions, agents, cost and nodes in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from makai.cli.console import epilog, run_async

if TYPE_CHECKING:
    from makai.cli.top_view import TopView
    from makai.server.activity import Activity
    from makai.sessions.service import Sessions

_KEYS: Final = ("changed", "cost", "tokens", "events", "status", "agent")
_ENTER_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE_SCREEN: Final = "\x1b[?25h\x1b[?1049l"


@epilog("""
Examples:
  makai top                              what goes on now; q leaves
  makai top --sort cost --active         active sessions, the most expensive first
  makai top --once                       print it once, for a script or a log
  makai top --once --json | jq '.sessions[] | select(.status == "running") | .session_id'

Keys: s changes the order, r reverses it, a shows active sessions only, / filters by id, title, model, agent, folder or
status, arrows scroll, q or Ctrl-C leaves. EV/S is events a second since the last look. Nodes are listed when several
share a store.
""")
@click.command("top")
@click.option("--sort", type=click.Choice(_KEYS), default="changed", show_default=True, help="The order of the rows.")
@click.option("--active", "only_active", is_flag=True, help="Only sessions with an active run.")
@click.option("--filter", "wanted", default="", metavar="TEXT", help="Only sessions with this text.")
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option("--once", is_flag=True, help="Print once and end; also without a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print once, as JSON.")
def command(sort: str, only_active: bool, wanted: str, interval: float, once: bool, as_json: bool) -> int:
    """Show what your sessions do now: status, agents, tokens, cost and nodes."""
    import sys

    import msgspec

    from makai.cli.top_view import MAX_FILTER, SortKey, TopView

    view = TopView(sort=msgspec.convert(sort, SortKey), only_active=only_active, filter=wanted[:MAX_FILTER])
    if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        run_async(_print_once(view, as_json=as_json))
    else:
        run_async(_watch(view, interval))
    return 0


async def _print_once(view: TopView, *, as_json: bool) -> None:
    import sys

    from makai.cli.console import painter, say, say_json, terminal_width
    from makai.cli.top_view import top_lines

    async with _Source() as source:
        view.take(await source.look())
    if as_json:
        say_json({**_without_sessions(view.activity), "sessions": view.sessions()})
    else:
        say("\n".join(top_lines(view, terminal_width(), None, painter(sys.stdout))))


def _without_sessions(activity: Activity) -> dict[str, Any]:
    return {"now_ms": activity.now_ms, "nodes": activity.nodes, "today": activity.today}


class _Source:
    """Asks the process that owns the sessions. While there is none, it opens them for a moment: a view that stays open
    must not become the owner that runs agents."""

    def __init__(self) -> None:
        from contextlib import AsyncExitStack

        self._stack = AsyncExitStack()
        self._owner: Sessions | None = None

    async def __aenter__(self) -> _Source:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def look(self) -> Activity:
        import os

        from makai.cli.session_access import open_sessions, running_owner
        from makai.core.errors import TransportError
        from makai.core.home import home_directory
        from makai.server.activity import activity_of

        if self._owner is not None:
            try:
                return await activity_of(self._owner)
            except TransportError:
                self._owner = None
                await self._stack.aclose()
        self._owner = await self._stack.enter_async_context(running_owner(home_directory(os.environ)))
        if self._owner is not None:
            return await activity_of(self._owner)
        async with open_sessions() as sessions:
            return await activity_of(sessions)


async def _watch(view: TopView, interval: float) -> None:
    """Look, draw, and wait for a key, the end of the interval or another size of the terminal."""
    import asyncio
    import signal
    import sys

    from makai.cli.menu import single_keys
    from makai.cli.top_view import keys_in
    from makai.core.errors import MakaiError

    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    sys.stdout.write(_ENTER_SCREEN)
    try:
        with single_keys(0) as keys:
            async with _Source() as source, asyncio.TaskGroup() as group:

                async def look() -> None:
                    while True:
                        try:
                            view.take(await source.look())
                        except MakaiError as error:
                            view.problem = f"{error.message} {error.hint or ''}".strip()
                        changed.set()
                        await asyncio.sleep(interval)

                async def draw() -> None:
                    while True:
                        await changed.wait()
                        changed.clear()
                        _draw(view)

                tasks = [group.create_task(look(), name="makai-top-look"), group.create_task(draw(), name="makai-top")]
                while (data := await keys.get()) and all(map(view.press, keys_in(data.decode(errors="ignore")))):
                    changed.set()
                for task in tasks:
                    task.cancel()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        sys.stdout.write(_LEAVE_SCREEN)
        sys.stdout.flush()


def _draw(view: TopView) -> None:
    import sys
    from shutil import get_terminal_size

    from makai.cli.console import painter
    from makai.cli.top_view import top_lines

    columns, rows = get_terminal_size()
    lines = top_lines(view, columns - 1, rows, painter(sys.stdout))
    sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines[:rows]) + "\x1b[J")
    sys.stdout.flush()
