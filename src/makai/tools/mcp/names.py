"""What servers and their tools are called: `mcp__server__tool`.

In: names as users and servers write them. Out: names that every model API takes (letters, digits, `_`, `-`; 64 at most)
and that always lead back to one tool. Pure. A server's name holds no `__`, so that the rule `mcp__a__*` can never match
a tool of another server; a tool's name depends on nothing but itself, so that it does not move when others come or go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

LONGEST_NAME: Final = 64
"""What OpenAI and others take for a function's name."""
_LONGEST_SERVER: Final = 32
_HASH_SIGNS: Final = 8
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]")
_UNDERSCORES: Final = re.compile(r"_{2,}")


def server_names(written: Sequence[str]) -> dict[str, str]:
    """The normalised name of each. One that needs no change keeps it; of others that meet, each gets a hash."""
    wanted = {name: _server_name(name) for name in written}
    names: dict[str, str] = {}
    for name, short in wanted.items():
        meets_another = any(other != name and wanted[other] == short for other in wanted)
        names[name] = short if name == short or not meets_another else _hashed(short, name, _LONGEST_SERVER)
    return names


def tool_name(server: str, tool: str) -> str:
    """The name a model sees; `server` is normalised. A name that had to be changed carries a hash of the original."""
    prefix = f"mcp__{server}__"
    short = _NOT_ALLOWED.sub("_", tool)
    if short == tool and tool and len(prefix) + len(tool) <= LONGEST_NAME:
        return prefix + tool
    return prefix + _hashed(short, tool, LONGEST_NAME - len(prefix))


def _server_name(written: str) -> str:
    # A name that begins or ends with "_" would make three underscores in a row, and two readings of them.
    short = _UNDERSCORES.sub("_", _NOT_ALLOWED.sub("_", written)).strip("_")
    if not short or len(short) > _LONGEST_SERVER:
        return _hashed(short or "server", written, _LONGEST_SERVER)
    return short


def _hashed(short: str, original: str, longest: int) -> str:
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_SIGNS]
    return f"{short[: longest - _HASH_SIGNS - 1].rstrip('_')}_{digest}".lstrip("_")
