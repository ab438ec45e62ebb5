"""`makai sessions`: the command line only. Importing it must stay cheap; `session_*` modules do the work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from makai.cli.console import EXIT_FAILED, epilog, note, output_format, painter, run_async, say_json, say_result


@epilog("""
Examples:
  makai sessions list
  makai sessions show 3f2c9a1b
  makai sessions export 3f2c9a1b -o session.md
  makai sessions resume 3f2c9a1b

The beginning of an ID is enough when only one session has it.
Sessions are kept in MAKAI_HOME/sessions.db (~/.makai), readable only by you.
""")
@click.group("sessions")
def command() -> None:
    """List, search, read, continue, fork, export and delete sessions.

    Also: manage saved permissions and trusted folders, and check the session log.
    """


@epilog("""
Examples:
  makai sessions list
  makai sessions list --all --limit 0
  makai sessions list --waiting
  makai sessions list --archived
  makai sessions list --all --json | jq -r '.sessions[].session_id'
""")
@command.command("list")
@click.option("--all", "all_folders", is_flag=True, help="Sessions of every folder, not only of this one.")
@click.option("--waiting", is_flag=True, help="Only sessions that wait for your approval.")
@click.option("--archived", is_flag=True, help="Only sessions that you archived; the list leaves them out otherwise.")
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, help="How many; 0 lists all.")
@output_format
def list_command(all_folders: bool, waiting: bool, archived: bool, limit: int, as_json: bool) -> None:
    """List the sessions of this folder, newest first."""
    from makai.cli.session_list import list_now, print_list

    listed = run_async(list_now(all_folders=all_folders, waiting=waiting, archived=archived, limit=limit))
    if as_json:
        say_json({"sessions": listed.sessions})
    else:
        print_list(listed)


@epilog("""
Examples:
  makai sessions search parser error
  makai sessions search '"exit code 137"' --here
  makai sessions search kettle --json | jq -r '.hits[].session_id'

Finds messages, answers, commands, paths, the beginning of tool output, and titles. All words have to be in one of
them, in any order; of the last word the beginning is enough. "Quoted words" are found as they stand.
""")
@command.command("search")
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option("--here", is_flag=True, help="Only sessions of this folder.")
@click.option("--archived", is_flag=True, help="Also sessions that you archived.")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="How many sessions.")
@output_format
def search_command(words: tuple[str, ...], here: bool, archived: bool, limit: int, as_json: bool) -> None:
    """Find sessions by what was said and done in them."""
    from makai.cli.session_search import print_hits, search

    answer = run_async(search(words, here=here, archived="with" if archived else "without", limit=limit))
    if as_json:
        say_json(answer)
    else:
        print_hits(answer, words)


@epilog("""
Examples:
  makai sessions show 3f2c9a1b
  makai sessions show 3f2c9a1b --json | jq '.items[] | select(.type=="user").content'
""")
@command.command("show")
@click.argument("session", metavar="ID")
@output_format
def show_command(session: str, as_json: bool) -> None:
    """Print the transcript of a session."""
    from makai.cli.session_export import print_transcript, read_session, sandbox_of, transcript

    found = run_async(read_session(session))
    if as_json:
        say_json({"session": found.summary, "sandbox": sandbox_of(found), "items": transcript(found)})
    else:
        print_transcript(found)


@epilog("""
Examples:
  makai sessions resume 3f2c9a1b
  makai -r 3f2c9a1b                 the same
  makai run -r 3f2c9a1b "Go on"     one more prompt, without a chat
""")
@command.command("resume")
@click.argument("session", metavar="ID")
def resume_command(session: str) -> int:
    """Continue a session in a chat."""
    from makai.cli.chat import command as chat

    code: int = chat.main(args=["--resume", session], prog_name="makai chat", standalone_mode=False)
    return code


@epilog("""
Examples:
  makai sessions fork 3f2c9a1b            a copy that continues from here
  makai sessions fork 3f2c9a1b --at 42    a copy up to event 42 (`export --format jsonl` shows the numbers)
  makai -r $(makai sessions fork 3f2c9a1b)
""")
@command.command("fork")
@click.argument("session", metavar="ID")
@click.option(
    "--at", type=click.IntRange(min=1), metavar="EVENT", help="Continue after this event.  [default: the last]"
)
@click.option("--title", metavar="TEXT", default="", help="Title of the copy.")
@output_format
def fork_command(session: str, at: int | None, title: str, as_json: bool) -> None:
    """Copy a session and print the id of the copy. The original does not change."""
    from makai.cli.session_admin import fork

    forked = run_async(fork(session, at, title))
    say_result(forked, [forked.session_id], as_json=as_json)


@epilog("""
Examples:
  makai sessions export 3f2c9a1b > session.md
  makai sessions export 3f2c9a1b --format jsonl -o session.jsonl

Markdown is for reading: messages, calls with their arguments and diffs, approvals and costs. JSON lines are the log
itself, one event per line, with nothing left out.
""")
@command.command("export")
@click.argument("session", metavar="ID")
@click.option("--format", "form", type=click.Choice(("md", "jsonl")), default="md", show_default=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write to a file that only you can read.  [default: standard output]",
)
def export_command(session: str, form: str, output: Path | None) -> None:
    """Export a session as Markdown or JSON lines."""
    from makai.cli.session_export import exported, read_session, write

    found = run_async(read_session(session))
    write(exported(found, form), output)
    if output is not None:
        note(f"Wrote {len(found.records):,} events of session {found.summary.session_id} to {output}", dim=True)


@command.command("rename")
@click.argument("session", metavar="ID")
@click.argument("title")
@output_format
def rename_command(session: str, title: str, as_json: bool) -> None:
    """Change the title of a session."""
    from makai.cli.session_admin import rename
    from makai.cli.session_options import has_stray_bytes

    if has_stray_bytes(title):
        raise click.UsageError("the title is not valid UTF-8 text")
    session_id = run_async(rename(session, title))
    say_result({"session_id": session_id, "title": title}, [f"The title is now: {title}"], as_json=as_json)


@epilog("""
Examples:
  makai sessions archive 3f2c9a1b 77ab01cd
  makai sessions archive --undo 3f2c9a1b
  makai sessions list --archived

Lists leave out archived sessions; nothing is deleted. A new message brings a session back.
""")
@command.command("archive")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Show the sessions in lists again.")
@output_format
def archive_command(sessions: tuple[str, ...], undo: bool, as_json: bool) -> None:
    """Put sessions out of the way without deleting them."""
    from makai.cli.session_admin import archive

    changed = run_async(archive(sessions, archived=not undo))
    done = "Back in the list:" if undo else "Archived"
    lines = [f"{done} {session_id}" for session_id in changed]
    say_result({"session_ids": changed, "archived": not undo}, lines, as_json=as_json)


@epilog("""
Examples:
  makai sessions rm 3f2c9a1b
  makai sessions rm --yes 3f2c9a1b 77ab01cd
""")
@command.command("rm")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@output_format
def rm_command(sessions: tuple[str, ...], yes: bool, as_json: bool) -> int:
    """Delete sessions. Active runs in them are stopped."""
    from makai.cli.session_admin import remove

    removed = run_async(remove(sessions, is_sure=yes))
    if removed is None:
        note("Nothing was deleted.")
        return EXIT_FAILED
    say_result({"removed": removed}, [f"Deleted {session_id}" for session_id in removed], as_json=as_json)
    return 0


@epilog("""
Examples:
  makai sessions repair --check     check only; works while makai runs
  makai sessions repair             stop other makai processes first

Damaged events are replaced by notices with the same numbers, and what was damaged is kept in a file. The exit code is
1 when --check finds damage, and when damage is left.
""")
@command.command("repair")
@click.option("--check", "only_check", is_flag=True, help="Change nothing.")
@output_format
def repair_command(only_check: bool, as_json: bool) -> int:
    """Check the session log for damage and make every session readable again."""
    from makai.cli.session_admin import examine, report_lines

    report, next_step = run_async(examine(only_check=only_check))
    say_result(report, report_lines(report, next_step), as_json=as_json)
    return EXIT_FAILED if report.problems and not report.kept_as else 0


@epilog("""
Examples:
  makai sessions copy sqlite postgres://makai@db.example/makai    sessions of this MAKAI_HOME to a database
  makai sessions copy store /backup/makai-home                    from the store in config.toml to a folder
  makai sessions copy store new/config.toml --all                 to the databases that another config.toml names
  makai sessions copy sqlite store --dry-run

FROM and TO are `sqlite` (the file in MAKAI_HOME), `store` ([store] in your config.toml), another MAKAI_HOME, the
address of a PostgreSQL database, or a config.toml, whose [store] counts as it is in that file. Stop makai where it uses
a file.

Sessions are copied as they are, event by event. One that is there in part is continued, so you can interrupt the
command and run it again. One that differs is left alone and listed. Logins are not copied, and what --all names
only with it.

Exit codes: 0 everything is there, 1 something was not copied, 2 usage, 130 interrupted.
""")
@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--all", "everything", is_flag=True, help="Copy access tokens, trusted folders and saved permissions, too."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be copied.")
@output_format
def copy_command(source: str, target: str, everything: bool, dry_run: bool, as_json: bool) -> int:
    """Copy all sessions from one store to another."""
    from makai.cli.session_copy import copy, report_lines

    report = run_async(copy(source, target, everything=everything, dry_run=dry_run))
    say_result(report, report_lines(report), as_json=as_json)
    return 0 if report.is_complete else EXIT_FAILED


@epilog("""
Examples:
  makai sessions grants
  makai sessions grants --all
  makai sessions grants --revoke 'Bash(git push:*)'

A saved permission is what you answered with "always". It applies to every session of its folder.
""")
@command.command("grants")
@click.option("--all", "all_folders", is_flag=True, help="Permissions of every folder, not only of this one.")
@click.option("--folder", metavar="DIR", help="Permissions of this folder.  [default: the current one]")
@click.option("--revoke", metavar="RULE", help="Forget this permission; makai asks again.")
@output_format
def grants_command(all_folders: bool, folder: str | None, revoke: str | None, as_json: bool) -> None:
    """List or revoke saved permissions."""
    from makai.cli.run_request import folder_from
    from makai.cli.session_admin import grant_lines, grants

    place = folder_from(folder)
    found = run_async(grants(place, revoke, all_folders=all_folders))
    if found or as_json:
        say_result({"grants": found}, grant_lines(found, painter(sys.stdout)), as_json=as_json)
    else:
        note("No permissions are saved." if all_folders else f"No permissions are saved for {place}.")


@epilog("""
Examples:
  makai sessions trust                   show whether this folder is trusted
  makai sessions trust --yes ~/project   use its .makai/ folder and MCP servers from now on
  makai sessions trust --no .
  makai sessions trust --all             list every folder you decided about

A folder that is not trusted configures nothing: its MCP servers are not started and its instructions are not read.
""")
@command.command("trust")
@click.argument("folder", default=".", metavar="[FOLDER]")
@click.option("--yes/--no", "trusted", default=None, help="Trust or distrust the folder and everything below it.")
@click.option("--all", "all_folders", is_flag=True, help="List every folder you decided about.")
@output_format
def trust_command(folder: str, trusted: bool | None, all_folders: bool, as_json: bool) -> None:
    """Show or set whether files of a folder may configure makai."""
    from makai.cli.session_admin import trust

    found = run_async(trust(folder, trusted, all_folders=all_folders))
    lines = [f"{one.folder} is {'trusted' if one.trusted else 'not trusted'}" for one in found]
    say_result({"folders": found} if all_folders else found[0], lines, as_json=as_json)


def _restoring(function: Callable[..., int]) -> Callable[..., int]:
    """The arguments that undo and redo share."""
    options = (
        click.argument("session", metavar="ID"),
        click.option("-n", "--count", type=click.IntRange(min=1), default=1, show_default=True, help="Messages back."),
        click.option("--to", type=click.IntRange(min=1), metavar="EVENT", help="The message, by its event number."),
        click.option("--path", "paths", multiple=True, metavar="FILE", help="Only this file. It can be repeated."),
        click.option("--dry-run", is_flag=True, help="Only show what would change."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask. Required without a terminal."),
        output_format,
    )
    for option in reversed(options):
        function = option(function)
    return function


@epilog("""
Examples:
  makai sessions undo 3f2c9a1b --dry-run
  makai sessions undo 3f2c9a1b
  makai sessions undo 3f2c9a1b -n 2 --yes
  makai sessions undo 3f2c9a1b --path src/app.py --path src/new.py

Files that tools changed since your last message become what they were before it, all of them or none: nothing is done
when one of them was changed since, is a link now, or was too large or not text. With --path only the named files are
restored; a relative path is below the session's folder. What commands changed stays. The exit code is 1 when nothing
was undone, except for a dry run that could be carried out.
""")
@command.command("undo")
@_restoring
def undo_command(
    session: str, count: int, to: int | None, paths: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Restore the files of a session to before a message."""
    return _restore(session, "undo", count=count, to=to, paths=paths, dry_run=dry_run, is_sure=yes, as_json=as_json)


@epilog("""
Examples:
  makai sessions redo 3f2c9a1b --dry-run
  makai sessions redo 3f2c9a1b --yes

This works until a tool of the session changes a file again.
""")
@command.command("redo")
@_restoring
def redo_command(
    session: str, count: int, to: int | None, paths: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Bring back file changes that were undone."""
    return _restore(session, "redo", count=count, to=to, paths=paths, dry_run=dry_run, is_sure=yes, as_json=as_json)


def _restore(session: str, direction: Literal["undo", "redo"], *, dry_run: bool, as_json: bool, **options: Any) -> int:
    from makai.cli.session_undo import restore

    result = run_async(restore(session, direction, dry_run=dry_run, is_shown=not as_json, **options))
    if as_json:
        say_json(result)
    elif not dry_run:
        note(f"{'Done.' if result.restored else 'Nothing was changed.'}")
    return 0 if result.restored or (dry_run and not result.plan.is_refused) else EXIT_FAILED


@epilog("""
Examples:
  makai sessions diff 3f2c9a1b
  makai sessions diff 3f2c9a1b --json | jq -r '.files[].path'

From before the first change of each file to after its last one, as the log has them; undone changes do not count.
""")
@command.command("diff")
@click.argument("session", metavar="ID")
@output_format
def diff_command(session: str, as_json: bool) -> None:
    """Show the files that tools of a session changed."""
    from makai.cli.session_undo import print_diff, session_diff

    found = run_async(session_diff(session))
    if as_json:
        say_json({"files": found})
    else:
        print_diff(found)
