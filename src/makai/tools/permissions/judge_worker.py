"""The process that reads one shell command to judge it. Its argument is a `JudgeRequest`, its output a `Verdict`.

A model chose the command, and reading it takes native code (tree-sitter) and work that depends on it and on the files
that it names. Here a crash, endless work or gigabytes end this process alone.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from makai.tools.permissions.judge import Verdict, judge, with_grants
from makai.tools.permissions.judging import JudgeRequest
from makai.tools.permissions.looking import leads_inside
from makai.tools.permissions.rules import unreadable_paths
from makai.tools.shell_policy import syntax as shell_syntax

CPU_S: Final = 0.1
FILES_CPU_S: Final = 0.5
"""For what the files of the project decide and not the words of the command: the index of a large repository."""
MEMORY_BYTES: Final = 50 * 1024 * 1024

shell_syntax.load_parser()  # once, by the launcher: every fork of it has the parser


def main(arguments: Sequence[str]) -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF is not handled, so it ends the process
    wanted = msgspec.json.decode(arguments[0], type=JudgeRequest)
    verdict = _judged(wanted)
    if verdict.looks_at is not None:
        signal.setitimer(signal.ITIMER_PROF, FILES_CPU_S)
        unreadable = unreadable_paths(with_grants(wanted.rules, wanted.grants))
        if not leads_inside(verdict.looks_at, wanted.rules.looking_roots, unreadable):
            verdict = _judged(wanted, may_look=False)
    sys.stdout.buffer.write(msgspec.json.encode(verdict))
    return os.EX_OK


def _judged(wanted: JudgeRequest, *, may_look: bool = True) -> Verdict:
    return judge(wanted.mode, wanted.rules, wanted.grants, wanted.tool_name, wanted.description, may_look=may_look)
