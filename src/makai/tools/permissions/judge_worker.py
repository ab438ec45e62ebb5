"""The process that reads one shell command to judge it. Its argument is a `JudgeRequest`, its output a `Verdict`.

A model chose the command, and reading it takes native code (tree-sitter) and work that depends on it. Here a crash,
endless work or gigabytes end this process alone.
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

from makai.tools.permissions.judge import judge
from makai.tools.permissions.judging import JudgeRequest
from makai.tools.shell_policy import syntax as shell_syntax

CPU_S: Final = 0.1
MEMORY_BYTES: Final = 50 * 1024 * 1024

shell_syntax.load_parser()  # once, by the launcher: every fork of it has the parser


def main(arguments: Sequence[str]) -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF is not handled, so it ends the process
    wanted = msgspec.json.decode(arguments[0], type=JudgeRequest)
    verdict = judge(wanted.mode, wanted.rules, wanted.grants, wanted.tool_name, wanted.description)
    sys.stdout.buffer.write(msgspec.json.encode(verdict))
    return os.EX_OK
