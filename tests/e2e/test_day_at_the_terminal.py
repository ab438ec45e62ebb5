"""A day with makai in a terminal, from the login to the session that is resumed: what a person sees at every step.

The screens are also the picture docs/screenshots/terminal-day.svg, which `make picture` draws again.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.cli import Cli, Terminal
from support.daily_work import git, make_project, shell
from support.places import ROOT, folder_outside_tmp, mode
from support.scenario_server import scenario_server, user_texts
from support.terminal_screen import Mask, Row, masked, row_text, screen_text
from support.upstream import Upstream

from makai.tools.sandbox.detect import try_bubblewrap
from tools.terminal_picture import Frame, picture

pytestmark = pytest.mark.timeout(240)

PICTURE = ROOT / "docs/screenshots/terminal-day.svg"
WRITES_PICTURE = "MAKAI_TEST_WRITES_DOCS" in os.environ
SIZE = (40, 100)
ENTER, CTRL_D = "\r", "\x04"
HOME_LENGTH = 48
"""Characters of the path of the home folder: where the terminal breaks a line depends on them."""
KEY = "sk-desk-0123456789abcdefghij"
SESSION = "3f2c9a1b-7d4e-4c58-9a06-b1c2d3e4f506"
WRONG, RIGHT, TYPED = (
    "def add(a, b):\n    return a - b\n",
    "def add(a, b):\n    return a + b\n",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
)
STATUS_ROWS = 3
"""An empty row, the line to type in and the status line: what is below them does not exist, what is above stays."""

SCENARIO = "\n---\n".join(
    [
        'tool: read {"path": "src/sums.py"}\nusage: input=900 output=20',
        "say: `add` in `src/sums.py` subtracts: it returns `a - b`.\nusage: input=1000 output=30",
        'tool: edit {"path": "src/sums.py", "old_text": "a - b", "new_text": "a + b"}\nusage: input=1100 output=40',
        f"{shell('make test')}\nusage: input=1200 output=20",
        "say: `add` adds now, and the tests pass.\nusage: input=1300 output=20",
        shell("git commit -qam 'Let add add'", git=True, reason="A commit writes .git.")
        + "\nusage: input=1400 output=20",
        "say: Committed as **Let add add**.\nusage: input=1500 output=20",
        'tool: edit {"path": "src/sums.py", "old_text": "add(a, b)", "new_text": "add(a: int, b: int) -> int"}\n'
        "usage: input=1600 output=30",
        "say: `add` has types.\nusage: input=1700 output=20",
        "say: You fixed and committed `add`, and took the types back.\nusage: input=1800 output=30",
    ]
)


class Day:
    """The terminal of a person, and the screens for the picture."""

    def __init__(self, folder: Path, server: Upstream) -> None:
        self.frames: list[Frame] = []
        self.output = ""
        """Of all terminals that were closed."""
        places = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "VLLM_BASE_URL": f"{server.url}/v1"}
        self._cli = Cli(folder / "makai", places)
        self._project = folder / "project"
        self._masks: list[Mask] = [
            (re.compile(re.escape(str(folder))), "/home/ada"),
            (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), SESSION),
            (re.compile(r"terminal-\d+"), "terminal-1"),
            (re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"), "⠹"),
            (re.compile(r"(?:\d+ min )?\d+ s, Esc stops"), "2 s, Esc stops"),
            (re.compile(r"out, (?:\d+ min )?\d+ s\]"), "out]"),
            (re.compile("Expires in .*"), "Expires in 24 h"),
        ]
        self._terminal: Terminal | None = None
        self._top = 0
        """The first row of the current step."""

    @asynccontextmanager
    async def terminal(self, *arguments: str) -> AsyncIterator[None]:
        """A `makai` in the folder of the project, which has ended well at the end of the block."""
        async with self._cli.on_terminal(*arguments, cwd=self._project, size=SIZE) as self._terminal:
            self._top = 0
            yield
            assert await self._terminal.ended() == 0
            self.output += self._terminal.output

    async def sees(self, expected: str, *, after: str = "", caption: str = "") -> None:
        """Press the keys `after` which the rows of this step are exactly these. A caption puts them into the
        picture."""
        assert self._terminal is not None
        self._terminal.press(after)
        wanted = textwrap.dedent(expected).strip("\n")
        try:
            await self._terminal.until(lambda: screen_text(self._rows()) == wanted)
        except TimeoutError:
            assert screen_text(self._rows()) == wanted
            raise
        if caption:
            self.frames.append((caption, self._rows()))

    def turns_to_the_next_step(self) -> None:
        """What is shown is read; the next rows begin where the line to type in is now."""
        assert self._terminal is not None
        self._top = len(self._terminal.display.rows) - STATUS_ROWS

    def _rows(self) -> list[Row]:
        """The rows of this step, without empty ones around them."""
        assert self._terminal is not None
        rows = [masked(row, self._masks) for row in self._terminal.display.rows[self._top :]]
        filled = [number for number, row in enumerate(rows) if row_text(row)]
        return rows[filled[0] : filled[-1] + 1] if filled else []


@pytest.fixture
def folder() -> Iterator[Path]:
    if isinstance(found := try_bubblewrap(), str):
        pytest.skip(f"{found}: NOT tested")
    with folder_outside_tmp() as made:
        place = made.resolve()
        if len(str(place)) > HOME_LENGTH - 2:
            pytest.skip(f"{place} is so long that lines are broken elsewhere: NOT tested")
        home = place / ("h" * (HOME_LENGTH - len(str(place)) - 1))
        home.mkdir()
        yield home


async def test_a_day_from_the_login_to_the_session_that_is_resumed(folder: Path) -> None:
    project = make_project(folder)
    async with scenario_server(SCENARIO, KEY) as server:
        day = Day(folder, server)
        async with day.terminal("setup", "--login", "vllm"):
            await logs_in(day)
        async with day.terminal("config", "set", "model", "vllm/coder"):
            await day.sees("model = vllm/coder, in /home/ada/makai/config.toml")
        assert mode(folder / "makai/auth.json") == 0o600
        async with day.terminal():
            await asks(day)
            await lets_it_edit_and_test(day, project)
            await lets_it_commit(day)
            assert git(project, "log", "--format=%s by %an") == "Let add add by Ada\nAdd sums by Ada\n"
            await takes_an_edit_back(day, project)
            assert git(project, "status", "--short") == ""
            await leaves(day)
        resumed = re.search(r"makai -r (\S{8})", day.output)
        assert resumed is not None
        async with day.terminal("-r", resumed[1]):
            await resumes(day)

    assert KEY not in day.output
    undone = f"[The user undid file changes that you made: {project}/src/sums.py (has its earlier content). "
    undone += "Read these files again before you rely on what is in them.]"
    earlier = ["What is wrong with add?", "Fix it, and run the tests.", "Commit it.", "Add types."]
    assert user_texts(server.requests[-1]) == [*earlier, f"{undone}What did we do?"]
    drawn = picture(day.frames, SIZE[1])
    if WRITES_PICTURE:
        PICTURE.write_text(drawn, encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == drawn, "run `make picture` and review the change"


def code(project: Path) -> str:
    return (project / "src/sums.py").read_text()


async def logs_in(day: Day) -> None:
    await day.sees("Paste your API key for vLLM: (it is not shown)")
    await day.sees(
        """
        Paste your API key for vLLM: (it is not shown)
        Trying the key at vLLM.
        Logged in to vllm.
        """,
        after=KEY + ENTER,
        caption="makai setup --login vllm",
    )


async def asks(day: Day) -> None:
    await day.sees(
        """
        makai: coder, vllm/coder, in /home/ada/project
        Ask anything, or describe a task. /help lists commands and keys, Esc stops the agent, Ctrl+D leaves.

        >
          ask · vllm/coder
        """
    )
    await day.sees(
        """
        makai: coder, vllm/coder, in /home/ada/project
        Ask anything, or describe a task. /help lists commands and keys, Esc stops the agent, Ctrl+D leaves.

        > What is wrong with add?
        ✓ Read src/sums.py  2 lines

        add in src/sums.py subtracts: it returns a - b.
        [1.9k in, 50 out]

        >
          ask · vllm/coder
        """,
        after="What is wrong with add?" + ENTER,
        caption="makai: ask",
    )


async def lets_it_edit_and_test(day: Day, project: Path) -> None:
    day.turns_to_the_next_step()
    await day.sees(
        """
        > Fix it, and run the tests.

        ? Edit src/sums.py?
          /home/ada/project/src/sums.py  +1 -1
          1   def add(a, b):
          2 -     return a - b
          2 +     return a + b

        ⠹ Waiting for your approval  2 s, Esc stops
          y allow once  n deny  Esc deny and stop  e deny with a reason
          s allow for this session: Edit(./src/sums.py)
          a allow always: Edit(./src/sums.py)
          2 or choose edits in src: Edit(./src/**)
          3 or choose all edits of this session: Edit
          Expires in 24 h
        >
          ask · vllm/coder
        """,
        after="Fix it, and run the tests." + ENTER,
        caption="You see the change before it is made",
    )
    assert code(project) == WRONG
    await day.sees(
        """
        > Fix it, and run the tests.

        ? Edit src/sums.py?
          /home/ada/project/src/sums.py  +1 -1
          1   def add(a, b):
          2 -     return a - b
          2 +     return a + b
          allowed
        ✓ Edit src/sums.py  +1 -1

        ? Run this command?
          make test
          in /home/ada/project, for at most 120 s

        ⠹ Waiting for your approval  2 s, Esc stops
          y allow once  n deny  Esc deny and stop  e deny with a reason
          s allow for this session: Bash(make test)
          a allow always: Bash(make test)
          Expires in 24 h
        >
          ask · vllm/coder
        """,
        after="y",
    )
    assert code(project) == RIGHT
    await day.sees(
        """
        > Fix it, and run the tests.

        ? Edit src/sums.py?
          /home/ada/project/src/sums.py  +1 -1
          1   def add(a, b):
          2 -     return a - b
          2 +     return a + b
          allowed
        ✓ Edit src/sums.py  +1 -1

        ? Run this command?
          make test
          in /home/ada/project, for at most 120 s
          allowed
        ✓ $ make test
          ok

        add adds now, and the tests pass.
        [3.6k in, 80 out]

        >
          ask · vllm/coder
        """,
        after="y",
        caption="Commands run in a sandbox",
    )


async def lets_it_commit(day: Day) -> None:
    day.turns_to_the_next_step()
    await day.sees(
        """
        > Commit it.

        ? Run this command?
          git commit -qam 'Let add add'
          + may write the git repository in /home/ada/project/.git
          and check out files, but not change hooks or configuration
          in /home/ada/project, for at most 120 s
          the model's reason: "A commit writes .git."

        ⠹ Waiting for your approval  2 s, Esc stops
          y allow once  n deny  Esc deny and stop  e deny with a reason
          s allow for this session: Bash(git commit:*)+git
          a allow always: Bash(git commit:*)+git
          Expires in 24 h
        >
          ask · vllm/coder
        """,
        after="Commit it." + ENTER,
        caption="A commit opens .git, for this command",
    )
    await day.sees(
        """
        > Commit it.

        ? Run this command?
          git commit -qam 'Let add add'
          + may write the git repository in /home/ada/project/.git
          and check out files, but not change hooks or configuration
          in /home/ada/project, for at most 120 s
          the model's reason: "A commit writes .git."
          allowed
        ✓ $ git commit -qam 'Let add add' [+git]
          [no output]

        Committed as Let add add.
        [2.9k in, 40 out]

        >
          ask · vllm/coder
        """,
        after="y",
    )


async def takes_an_edit_back(day: Day, project: Path) -> None:
    day.turns_to_the_next_step()
    await day.sees(
        """
        > Add types.

        ? Edit src/sums.py?
          /home/ada/project/src/sums.py  +1 -1
          1 - def add(a, b):
          1 + def add(a: int, b: int) -> int:
          2       return a + b

        ⠹ Waiting for your approval  2 s, Esc stops
          y allow once  n deny  Esc deny and stop  e deny with a reason
          s allow for this session: Edit(./src/sums.py)
          a allow always: Edit(./src/sums.py)
          2 or choose edits in src: Edit(./src/**)
          3 or choose all edits of this session: Edit
          Expires in 24 h
        >
          ask · vllm/coder
        """,
        after="Add types." + ENTER,
    )
    await day.sees(
        """
        > Add types.

        ? Edit src/sums.py?
          /home/ada/project/src/sums.py  +1 -1
          1 - def add(a, b):
          1 + def add(a: int, b: int) -> int:
          2       return a + b
          allowed
        ✓ Edit src/sums.py  +1 -1

        add has types.
        [3.3k in, 50 out]

        >
          ask · vllm/coder
        """,
        after="y",
    )
    assert code(project) == TYPED
    day.turns_to_the_next_step()
    await day.sees(
        """
        > /undo
        Undo the file changes since the message "Add types.":
          restore     /home/ada/project/src/sums.py  +1 -1

          Undo this?  y yes, any other key no
        >
          ask · vllm/coder
        """,
        after="/undo" + ENTER,
    )
    await day.sees(
        """
        > /undo
        Undo the file changes since the message "Add types.":
          restore     /home/ada/project/src/sums.py  +1 -1
        Undid the changes of /home/ada/project/src/sums.py
        (restored).

        >
          ask · vllm/coder
        """,
        after="y",
        caption="/undo takes the files back",
    )
    assert code(project) == RIGHT


async def leaves(day: Day) -> None:
    day.turns_to_the_next_step()
    await day.sees(
        """
        This session: 11.7k in, 220 out
        To continue: makai -r 3f2c9a1b-7d4e-4c58-9a06-b1c2d3e4f506
        """,
        after=CTRL_D,
    )


async def resumes(day: Day) -> None:
    await day.sees(
        """
        Session 3f2c9a1b-7d4e-4c58-9a06-b1c2d3e4f506 (What is wrong with add?)

        > What is wrong with add?
        ✓ Read src/sums.py  2 lines

        add in src/sums.py subtracts: it returns a - b.
        [1.9k in, 50 out]

        > Fix it, and run the tests.

        ? Edit src/sums.py?
          /home/ada/project/src/sums.py  +1 -1
          1   def add(a, b):
          2 -     return a - b
          2 +     return a + b
          allowed by terminal-1
        ✓ Edit src/sums.py  +1 -1

        ? Run this command?
          make test
          in /home/ada/project, for at most 120 s
          allowed by terminal-1
        ✓ $ make test
          ok

        add adds now, and the tests pass.
        [3.6k in, 80 out]

        > Commit it.

        ? Run this command?
          git commit -qam 'Let add add'
          + may write the git repository in /home/ada/project/.git
          and check out files, but not change hooks or configuration
          in /home/ada/project, for at most 120 s
          the model's reason: "A commit writes .git."
          allowed by terminal-1
        ✓ $ git commit -qam 'Let add add' [+git]
          [no output]

        Committed as Let add add.
        [2.9k in, 40 out]

        > Add types.

        ? Edit src/sums.py?
          /home/ada/project/src/sums.py  +1 -1
          1 - def add(a, b):
          1 + def add(a: int, b: int) -> int:
          2       return a + b
          allowed by terminal-1
        ✓ Edit src/sums.py  +1 -1

        add has types.
        [3.3k in, 50 out]
        Undid the changes of /home/ada/project/src/sums.py
        (restored).

        >
          ask · vllm/coder
        """
    )
    day.turns_to_the_next_step()
    await day.sees(
        """
        > What did we do?

        You fixed and committed add, and took the types back.
        [1.8k in, 30 out]

        >
          ask · vllm/coder
        """,
        after="What did we do?" + ENTER,
        caption="makai -r: another day",
    )
    day.turns_to_the_next_step()
    await day.sees(
        """
        This session: 13.5k in, 250 out
        To continue: makai -r 3f2c9a1b-7d4e-4c58-9a06-b1c2d3e4f506
        """,
        after=CTRL_D,
    )
