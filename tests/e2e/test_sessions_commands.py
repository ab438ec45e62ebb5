"""`makai sessions` as scripts and people use it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
from support.cli import Cli, Finished
from support.postgres import shared_server

ECHO = ("run", "-m", "scripted/echo", "--no-tools")


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Cli(home)


async def begin(makai: Cli, *words: str) -> str:
    """A session in which this was said and answered."""
    finished = await makai(*ECHO, "--output-format", "json", *words)
    return str(finished.json()["session_id"])


def listed(finished: Finished) -> list[dict[str, object]]:
    return msgspec.convert(finished.json()["sessions"], list[dict[str, object]])


async def test_the_list_shows_this_folder_and_all_of_them_on_demand(makai: Cli, tmp_path: Path) -> None:
    here = await begin(makai, "Ask here")
    (tmp_path / "elsewhere").mkdir()
    there = await begin(makai, "Ask there", "--cwd", str(tmp_path / "elsewhere"))
    mine = await makai("sessions", "list")
    everything = await makai("sessions", "list", "--all")
    scripts = await makai("sessions", "list", "--all", "--output-format", "json")
    waiting = await makai("sessions", "list", "--all", "--waiting")

    assert [line.split()[0] for line in mine.out.splitlines()] == ["ID", here[:8]]
    assert [line.split()[0] for line in everything.out.splitlines()] == ["ID", there[:8], here[:8]]
    assert "Ask there" in everything.out
    assert str(tmp_path / "elsewhere") in everything.out
    assert [(one["session_id"], one["title"], one["status"]) for one in listed(scripts)] == [
        (there, "Ask there", "finished"),
        (here, "Ask here", "finished"),
    ]
    assert (waiting.code, waiting.out) == (0, "")


async def test_an_archived_session_is_listed_on_demand_and_comes_back(makai: Cli) -> None:
    session = await begin(makai, "Ask here")
    archived = await makai("sessions", "archive", session[:8])
    without, only = await makai("sessions", "list", "--json"), await makai("sessions", "list", "--archived", "--json")
    words, continued = await makai("sessions", "list"), await makai("run", "-c", "And now?")
    undone = await makai("sessions", "archive", "--undo", session, "--json")
    after = await makai("sessions", "list", "--archived")

    assert archived.out == f"Archived {session}\n"
    assert (listed(without), [(one["session_id"], one["archived"], one["made_by"]) for one in listed(only)]) == (
        [],
        [(session, True, "run")],
    )
    assert (words.code, words.err.partition(" in ")[0], words.err.partition(" are ")[2]) == (
        0,
        "All sessions",
        "archived. List them with `makai sessions list --archived`.\n",
    )
    assert (continued.code, continued.err.startswith("makai: there is no session to continue in ")) == (2, True)
    assert undone.json() == {"session_ids": [session], "archived": False}
    assert (after.out, after.err) == ("", "No session of this folder is archived.\n")


async def test_sessions_are_searched_and_their_usage_is_summed(makai: Cli, tmp_path: Path) -> None:
    here = await begin(makai, "Where is the kettle?")
    (tmp_path / "elsewhere").mkdir()
    await begin(makai, "Boil the kettle", "--cwd", str(tmp_path / "elsewhere"))
    text = await makai("sessions", "search", "the", "kett", "--here")
    scripts = await makai("sessions", "search", "kettle", "--limit", "1", "--json")
    nothing = await makai("sessions", "search", "coffee")
    used = await makai("usage", "--days", "1", "--by", "folder")
    rows = await makai("usage", "--json")

    assert [line.split()[0] for line in text.out.splitlines()] == [here[:8], "title:", "you:", "agent:"]
    assert f"Continue one with `makai -r {here[:8]}`." in text.err
    assert (len(scripts.json()["hits"]), scripts.json()["complete"]) == (1, True)
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "Nothing was found for 'coffee'.\n")
    assert used.out.startswith("FOLDER")
    assert sum(line.split()[1] == "1" for line in used.out.splitlines()) == 2
    assert used.out.splitlines()[-1].split()[:2] == ["all", "2"]
    assert [row["runs"] for row in rows.json()["rows"]] == [1, 1]


async def test_an_empty_home_says_how_to_begin(makai: Cli) -> None:
    text = await makai("sessions", "list")
    scripts = await makai("sessions", "list", "--json")

    assert (text.code, text.out) == (0, "")
    assert 'Begin one with `makai run "…"` or `makai`.' in text.err
    assert scripts.json() == {"sessions": []}


async def test_a_session_is_shown_and_exported(makai: Cli, tmp_path: Path) -> None:
    session_id = await begin(makai, "Say ``` and \x1b[31m")
    shown = await makai("sessions", "show", session_id[:6])
    scripts = await makai("sessions", "show", session_id, "--json")
    markdown = await makai("sessions", "export", session_id, "-o", str(tmp_path / "out.md"))
    lines = await makai("sessions", "export", session_id, "--format", "jsonl")

    assert shown.out == (tmp_path / "out.md").read_text()
    assert (tmp_path / "out.md").stat().st_mode & 0o777 == 0o600
    assert "> Say ``` and \\u001b[31m" in shown.out
    assert "\x1b" not in shown.out + lines.out
    assert (markdown.code, markdown.out) == (0, "")
    value = scripts.json()
    assert value["session"]["session_id"] == session_id
    assert [item["type"] for item in value["items"]] == ["user", "text"]
    numbers = [line["event_id"] for line in lines.json_lines()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_transcript_on_a_terminal_is_drawn_and_harmless(makai: Cli) -> None:
    session_id = await begin(makai, "red \x1b[31m alert")
    async with makai.on_terminal("sessions", "show", session_id) as terminal:
        await terminal.shows("red \\u001b[31m alert")

        assert await terminal.ended() == 0


async def test_a_fork_goes_its_own_way(makai: Cli) -> None:
    session_id = await begin(makai, "one")
    forked = await makai("sessions", "fork", session_id)
    at = await makai("sessions", "fork", session_id, "--at", "1", "--title", "From the start", "--json")
    too_far = await makai("sessions", "fork", session_id, "--at", "9999")
    copy = forked.out.strip()
    answered = await makai("run", "-r", copy, "two")
    sessions = listed(await makai("sessions", "list", "--json"))

    told = at.json()
    assert (told["forked_from"], told["forked_at"]) == (session_id, 1)
    assert (answered.code, answered.out) == (0, "two\n")
    titles = {one["session_id"]: one["title"] for one in sessions}
    assert titles == {session_id: "one", copy: "one (fork)", told["session_id"]: "From the start"}
    assert (too_far.code, "not 9999" in too_far.err) == (1, True)


async def test_removing_needs_a_yes(makai: Cli) -> None:
    first, second = await begin(makai, "one"), await begin(makai, "two")
    unsure = await makai("sessions", "rm", first)
    typo = await makai("sessions", "rm", "--yes", first, "nothing")
    kept = listed(await makai("sessions", "list", "--json"))
    removed = await makai("sessions", "rm", "--yes", first, first[:8], "--json")
    async with makai.on_terminal("sessions", "rm", second) as terminal:
        await terminal.shows("Delete for good?")
        terminal.press("n\n")
        refused = await terminal.ended()
    async with makai.on_terminal("sessions", "rm", second) as terminal:
        await terminal.shows("Delete for good?")
        await terminal.types("y\n", f"Deleted {second}")
        agreed = await terminal.ended()

    assert (unsure.code, typo.code, len(kept)) == (2, 2, 2)
    assert "--yes" in unsure.err
    assert "there is no session 'nothing'" in typo.err
    assert removed.json() == {"removed": [first]}
    assert (refused, agreed) == (1, 0)
    assert listed(await makai("sessions", "list", "--json")) == []


@pytest.mark.parametrize("command", ["show", "export", "fork", "resume"])
async def test_an_unknown_id_is_said_with_what_was_meant(makai: Cli, command: str) -> None:
    session_id = await begin(makai, "Fix the parser")
    wrong = session_id[:7] + ("0" if session_id[7] != "0" else "1")
    finished = await makai("sessions", command, wrong)

    assert (finished.code, finished.out) == (2, "")
    assert f"there is no session '{wrong}'" in finished.err
    assert f"Did you mean {session_id} (Fix the parser)?" in finished.err


@pytest.mark.sqlite_file("damages the file, and repairs it")
async def test_damage_is_found_and_repaired(makai: Cli) -> None:
    session_id = await begin(makai, "one")
    with closing(sqlite3.connect(makai.home / "sessions.db")) as database:
        database.execute("UPDATE event SET checksum = checksum + 1 WHERE event_id = 2")
        database.commit()
    read = await makai("sessions", "show", session_id)
    looked = await makai("sessions", "repair", "--check")
    repaired = await makai("sessions", "repair", "--json")
    again = await makai("sessions", "repair")
    shown = await makai("sessions", "show", session_id)

    assert (read.code, read.out) == (1, "")
    assert "makai sessions repair" in read.err
    assert looked.code == 1
    assert f"session {session_id}, event 2: damaged or missing" in looked.out
    report = repaired.json()
    assert (repaired.code, len(report["problems"])) == (0, 1)
    assert [str(path) for path in makai.home.glob("sessions.db.damaged-*")] == [report["kept_as"]]
    assert "no damage found" in again.out
    assert "What happened here was damaged on disk." in shown.out


@pytest.mark.sqlite_file("only the file is repaired")
async def test_without_a_log_there_is_nothing_to_repair(makai: Cli) -> None:
    assert await makai("sessions", "repair") == Finished(0, "0 sessions with 0 events: no damage found.\n", "")


async def test_folders_are_trusted_and_no_longer(makai: Cli, project: Path) -> None:
    answers = [(await makai("sessions", "trust", *more, str(project))).out for more in ((), ("--yes",), (), ("--no",))]
    scripts = await makai("sessions", "trust", "--json", str(project))

    assert answers == [f"{project} is {word}\n" for word in ("not trusted", "trusted", "trusted", "not trusted")]
    assert scripts.json() == {"folder": str(project), "trusted": False}
    assert (await makai("sessions", "trust", "--all")).out == f"{project} is not trusted\n"


async def test_folders_are_trusted_and_the_log_is_checked_while_a_server_runs(makai: Cli, tmp_path: Path) -> None:
    await begin(makai, "Hello")
    async with makai.serving():
        trusted = await makai("sessions", "trust", "--yes", str(tmp_path))
        checked = await makai("sessions", "repair", "--check", "--json")
    after = await makai("sessions", "repair", "--check", "--json")
    later = await makai("sessions", "trust", str(tmp_path))

    assert trusted.out == later.out == f"{tmp_path} is trusted\n"
    report = checked.json()
    assert (checked.code, report["sessions"], report["problems"], report["kept_as"]) == (0, 1, [], None)
    assert (after.code, after.json()) == (0, report)


@pytest.mark.sqlite_file("only the file is repaired")
async def test_a_repair_needs_that_no_server_runs(makai: Cli) -> None:
    await begin(makai, "Hello")
    async with makai.serving() as (server, _):
        repaired = await makai("sessions", "repair")

    assert repaired.code == 1
    assert f"process {server.pid}" in repaired.err
    assert f"Stop it (kill {server.pid})" in repaired.err


async def test_saved_permissions_are_listed_and_revoked_while_a_server_runs(makai: Cli, tmp_path: Path) -> None:
    folder, scenario = tmp_path / "project", tmp_path / "scenario.txt"
    folder.mkdir()
    scenario.write_text('tool: write {"path": "new.txt", "content": "hi"}\n---\nsay: Done it.')
    environ = {"MAKAI_SCENARIO": str(scenario)}
    command = ("run", "-m", "scripted/scenario", "--cwd", str(folder), "Write")
    async with makai.on_terminal(*command, environ=environ) as terminal:
        await terminal.shows("Your answer, then Enter > ")
        await terminal.types("a\n", "Done it.")
        assert await terminal.ended() == 0
    async with makai.serving():
        (grant,) = (await makai("sessions", "grants", "--all", "--json")).json()["grants"]
        nothing_here = await makai("sessions", "grants")
        unknown = await makai("sessions", "grants", "--revoke", "Bash(no:*)")
        revoked = await makai("sessions", "grants", "--folder", str(folder), "--revoke", grant["rule"])

    assert (grant["folder"], grant["allow"], grant["by"]) == (str(folder), True, "run")
    assert (nothing_here.code, nothing_here.out) == (0, "")
    assert (unknown.code, "there is no saved permission 'Bash(no:*)'" in unknown.err) == (2, True)
    assert revoked.code == 0
    assert (await makai("sessions", "grants", "--all", "--json")).json() == {"grants": []}


@pytest.mark.parametrize("command", ["", "list", "show", "resume", "fork", "export", "rm", "repair", "grants", "trust"])
async def test_every_command_has_help_with_examples(makai: Cli, command: str) -> None:
    finished = await makai("sessions", *([command] if command else []), "--help")

    assert (finished.code, finished.err) == (0, "")
    assert "Examples:" in finished.out


async def test_files_of_a_session_are_undone_and_redone(makai: Cli, tmp_path: Path) -> None:
    work, scenario = tmp_path / "work", tmp_path / "scenario.txt"
    work.mkdir()
    (work / "a.txt").write_text("old\n")
    scenario.write_text('say: I write.\ntool: write {"path": "a.txt", "content": "new\\n"}\n---\nsay: Done.\n')
    options = ("-m", "scripted/scenario", "--permission-mode", "accept_edits", "--output-format", "json")
    run = await makai("run", *options, "--cwd", str(work), "Write", environ={"MAKAI_SCENARIO": str(scenario)})
    session_id = str(run.json()["session_id"])
    diff = await makai("sessions", "diff", session_id)
    dry = await makai("sessions", "undo", session_id, "--dry-run")
    unconfirmed = await makai("sessions", "undo", session_id)
    assert (work / "a.txt").read_text() == "new\n"
    unknown = await makai("sessions", "undo", session_id, "--path", "b.txt", "--dry-run")
    undone = await makai("sessions", "undo", session_id, "--path", "a.txt", "--yes", "--json")
    assert (work / "a.txt").read_text() == "old\n"
    redone = await makai("sessions", "redo", session_id, "--yes")
    (work / "a.txt").write_text("mine\n")
    refused = await makai("sessions", "undo", session_id, "--yes")

    assert diff.out == f" {work}/a.txt  +1 -1\n1 - old\n1 + new\n"
    plan = f'Undo the file changes since the message "Write":\n  restore     {work}/a.txt  +1 -1'
    assert (dry.code, dry.out) == (0, f"{plan}\n")
    assert (unconfirmed.code, "confirm with --yes" in unconfirmed.err) == (2, True)
    assert (unknown.code, f"The files are: `{work}/a.txt`." in unknown.err) == (1, True)
    assert (undone.code, undone.json()["restored"], redone.code) == (0, True, 0)
    assert (refused.code, refused.out) == (
        1,
        f"{plan}  ✗ it was changed since\nThis cannot be undone. Nothing is changed.\n",
    )
    assert (work / "a.txt").read_text() == "mine\n"


async def test_sessions_in_a_database_are_checked_and_repaired_there(makai: Cli) -> None:
    url = shared_server().new_schema()
    (makai.home / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    session_id = await begin(makai, "Hello")
    sound = await makai("sessions", "repair")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE event SET line = '\\x7b7d' WHERE event_id = 2")
    read = await makai("sessions", "show", session_id)
    looked = await makai("sessions", "repair", "--check")
    async with makai.serving():
        through_server = await makai("sessions", "repair", "--check")
        refused = await makai("sessions", "repair")
    repaired = await makai("sessions", "repair", "--json")
    again = await makai("sessions", "repair")
    shown = await makai("sessions", "show", session_id)
    doctor = await makai("doctor", "--offline", "--json")

    assert (sound.code, sound.out.partition(" with ")[0]) == (0, "1 sessions")
    assert (read.code, "makai sessions repair" in read.err) == (1, True)
    assert looked == through_server
    assert (looked.code, looked.out.splitlines()[1:]) == (
        1,
        [
            f"  session {session_id}, event 2: damaged or missing",
            "Run `makai sessions repair` to make every session readable again.",
        ],
    )
    assert (refused.code, refused.out) == (2, "")
    assert "Stop makai there and try again." in refused.err
    report = repaired.json()
    assert (repaired.code, len(report["problems"])) == (0, 1)
    (file,) = makai.home.glob("sessions.damaged-*")
    assert report["kept_as"] == str(file)
    kept = [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
    assert [(row["session_id"], row.get("event_id")) for row in kept] == [(session_id, 2), (session_id, None)]
    assert (file.stat().st_mode & 0o777, kept[0]["data"]) == (0o600, "e30=")
    assert (again.code, again.out) == (sound.code, sound.out)
    assert "What happened here was damaged on disk." in shown.out
    (sessions,) = [check for check in doctor.json()["checks"] if check["name"] == "sessions"]
    assert sessions == {"name": "sessions", "state": "good", "text": shown_address(url)}


async def test_the_doctor_says_that_a_database_cannot_be_reached_and_hides_its_password(makai: Cli) -> None:
    doctor = await makai("doctor", "--offline", environ={"MAKAI_STORE_URL": "postgres://me:sesame@127.0.0.1:1/makai"})

    assert "Sessions cannot be stored or read in PostgreSQL" in doctor.out
    assert "sesame" not in doctor.out + doctor.err


def shown_address(url: str) -> str:
    parts = urlsplit(url)
    return f"PostgreSQL at {parts.hostname}:{parts.port}{parts.path}"
