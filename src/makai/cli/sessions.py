"""`makai sessions`: what there is, what was said, and what becomes of it.

In: options. Out: tables, transcripts or JSON on stdout, and an exit code. Thin: `sessions_work` reads and changes
sessions, `sessions_text` puts them into words. Importing it must stay cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from makai.cli.console import EXIT_FAILED, note, run_async, say, say_json

ID_HELP = "IDs may be cut: the beginning is enough where only one session has it."


def _formats(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--output-format`, and its shorter name for scripts."""
    choice = click.option("--output-format", type=click.Choice(("text", "json")), default="text", show_default=True)
    short = click.option("--json", "as_json", is_flag=True, help="Short for --output-format json.")
    return choice(short(function))


def _is_json(output_format: str, as_json: bool) -> bool:
    return as_json or output_format == "json"


@click.group(
    "sessions",
    epilog=f"""\b
Examples:
  makai sessions list
  makai sessions show 3f2c9a1b
  makai sessions export 3f2c9a1b -o session.md
  makai sessions resume 3f2c9a1b

\b
{ID_HELP}
Sessions are kept in MAKAI_HOME/sessions.db (~/.makai), readable by you only.
""",
)
def command() -> None:
    """List, read, continue, copy, export and remove sessions."""


@command.command(
    "list",
    epilog="""\b
Examples:
  makai sessions list
  makai sessions list --all --limit 0
  makai sessions list --waiting
  makai sessions list --all --json | jq -r '.sessions[].session_id'
""",
)
@click.option("--all", "all_folders", is_flag=True, help="Of every folder, not only of this one.")
@click.option("--waiting", is_flag=True, help="Only those that wait for your approval.")
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, help="At most so many; 0: all.")
@_formats
def list_command(all_folders: bool, waiting: bool, limit: int, output_format: str, as_json: bool) -> None:
    """List the sessions of this folder, the newest first."""
    from makai.cli.session_list import list_now, print_list

    listed = run_async(list_now(all_folders=all_folders, waiting=waiting, limit=limit))
    if _is_json(output_format, as_json):
        say_json({"sessions": listed.sessions})
    else:
        print_list(listed)


@command.command(
    "show",
    epilog="""\b
Examples:
  makai sessions show 3f2c9a1b
  makai sessions show 3f2c9a1b --json | jq '.items[] | select(.type=="user").content'
""",
)
@click.argument("session", metavar="ID")
@_formats
def show_command(session: str, output_format: str, as_json: bool) -> None:
    """Print what was said and done in a session."""
    from makai.cli.session_export import print_transcript, read_session, transcript

    found = run_async(read_session(session))
    if _is_json(output_format, as_json):
        say_json({"session": found.summary, "items": transcript(found)})
    else:
        print_transcript(found)


@command.command(
    "resume",
    epilog="""\b
Examples:
  makai sessions resume 3f2c9a1b
  makai -r 3f2c9a1b                 the same
  makai run -r 3f2c9a1b "Go on"     one more question, without a chat
""",
)
@click.argument("session", metavar="ID")
def resume_command(session: str) -> int:
    """Go on talking in a session."""
    from makai.cli.chat import command as chat

    code: int = chat.main(args=["--resume", session], prog_name="makai chat", standalone_mode=False)
    return code


@command.command(
    "fork",
    epilog="""\b
Examples:
  makai sessions fork 3f2c9a1b            a copy that goes its own way from here
  makai sessions fork 3f2c9a1b --at 42    from its event 42 (`export --format jsonl` shows the numbers)
  makai -r $(makai sessions fork 3f2c9a1b)
""",
)
@click.argument("session", metavar="ID")
@click.option(
    "--at", type=click.IntRange(min=1), metavar="EVENT", help="Continue after this event.  [default: the last]"
)
@click.option("--title", metavar="TEXT", default="", help="What the copy is called.")
@_formats
def fork_command(session: str, at: int | None, title: str, output_format: str, as_json: bool) -> None:
    """Begin a session that continues another one, which stays as it is. Prints the new id."""
    from makai.cli.session_admin import fork

    forked = run_async(fork(session, at, title))
    if _is_json(output_format, as_json):
        say_json(forked)
    else:
        say(forked.session_id)


@command.command(
    "export",
    epilog="""\b
Examples:
  makai sessions export 3f2c9a1b > session.md
  makai sessions export 3f2c9a1b --format jsonl -o session.jsonl

\b
Markdown is for people: words, calls with their arguments and diffs, who approved what, what it cost. JSON lines are the
log itself, one event a line, nothing left out.
""",
)
@click.argument("session", metavar="ID")
@click.option("--format", "form", type=click.Choice(("md", "jsonl")), default="md", show_default=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write there, for you only to read.  [default: standard output]",
)
def export_command(session: str, form: str, output: Path | None) -> None:
    """Write a session as Markdown or JSON lines."""
    from makai.cli.session_export import exported, read_session, write

    found = run_async(read_session(session))
    write(exported(found, form), output)
    if output is not None:
        note(f"{len(found.records):,} events of session {found.summary.session_id} are in {output}", dim=True)


@command.command(
    "rm",
    epilog="""\b
Examples:
  makai sessions rm 3f2c9a1b
  makai sessions rm --yes 3f2c9a1b 77ab01cd
""",
)
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@_formats
def rm_command(sessions: tuple[str, ...], yes: bool, output_format: str, as_json: bool) -> int:
    """Remove sessions for good. What runs in them is stopped."""
    from makai.cli.session_admin import remove

    removed = run_async(remove(sessions, is_sure=yes))
    if removed is None:
        note("Nothing was removed.")
        return EXIT_FAILED
    if _is_json(output_format, as_json):
        say_json({"removed": removed})
    else:
        for session_id in removed:
            say(f"removed {session_id}")
    return 0


@command.command(
    "repair",
    epilog="""\b
Examples:
  makai sessions repair --check     only look; works while makai runs
  makai sessions repair             needs the sessions for itself: end other makai processes first

\b
A damaged event is replaced by a notice under the same number; the damaged file is kept. Exit code 1 when --check finds
something.
""",
)
@click.option("--check", "only_check", is_flag=True, help="Change nothing.")
@_formats
def repair_command(only_check: bool, output_format: str, as_json: bool) -> int:
    """Find damage in the stored sessions and make them readable again."""
    from makai.cli.session_admin import examine, report_lines

    report = run_async(examine(only_check=only_check))
    if _is_json(output_format, as_json):
        say_json(report)
    else:
        say("\\n".join(report_lines(report, repaired=not only_check)))
    return EXIT_FAILED if only_check and report.problems else 0


@command.command(
    "grants",
    epilog="""\b
Examples:
  makai sessions grants
  makai sessions grants --all
  makai sessions grants --revoke 'Bash(git push:*)'

\b
A grant is what you decided with "always"; it holds in every session of its folder.
""",
)
@click.option("--all", "all_folders", is_flag=True, help="Of every folder, not only of this one.")
@click.option("--folder", metavar="DIR", help="Of this folder.  [default: the current one]")
@click.option("--revoke", metavar="RULE", help="Forget this rule of the folder; makai asks again.")
@_formats
def grants_command(
    all_folders: bool, folder: str | None, revoke: str | None, output_format: str, as_json: bool
) -> None:
    """List what you allowed or refused for ever, or take it back."""
    from makai.cli.run_request import folder_from
    from makai.cli.session_admin import grants_now, print_grants
    from makai.cli.session_admin import revoke as revoke_now

    place = folder_from(folder)
    if revoke is not None:
        run_async(revoke_now(place, revoke))
    grants = run_async(grants_now(None if all_folders else place))
    if _is_json(output_format, as_json):
        say_json({"grants": grants})
    else:
        print_grants(grants, None if all_folders else place)


@command.command(
    "trust",
    epilog="""\b
Examples:
  makai sessions trust                   is this folder trusted?
  makai sessions trust --yes ~/project   its .makai/ and MCP servers count from now on
  makai sessions trust --no .
  makai sessions trust --all             every folder about which you decided

\b
A folder that is not trusted cannot configure anything: its tool servers are not started and its rules are not read.
""",
)
@click.argument("folder", default=".", metavar="[FOLDER]")
@click.option("--yes/--no", "trusted", default=None, help="Trust it and everything beneath it, or no longer.")
@click.option("--all", "all_folders", is_flag=True, help="List every folder about which you decided.")
@_formats
def trust_command(folder: str, trusted: bool | None, all_folders: bool, output_format: str, as_json: bool) -> None:
    """Say whether the files of a folder may configure makai, or decide it."""
    from makai.cli.session_admin import trust, trusted_folders

    told = run_async(trusted_folders()) if all_folders else [run_async(trust(folder, trusted))]
    if _is_json(output_format, as_json):
        say_json({"folders": told} if all_folders else told[0])
    else:
        for one in told:
            say(f"{one.folder} is {'trusted' if one.trusted else 'not trusted'}")
