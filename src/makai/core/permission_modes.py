"""When the user is asked about a call: the permission modes, and the names that they had before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

PermissionMode: TypeAlias = Literal["ask", "accept_edits", "plan", "never_ask"]
"""When the user is asked about a call. What a call can do even when nothing is asked is the `SandboxLevel`."""
MODES: Final[tuple[PermissionMode, ...]] = get_args(PermissionMode)
FORMER_MODES: Final[dict[str, PermissionMode]] = {"full_access": "never_ask"}
"""Names in old logs and of old clients. They are read for good and never written."""
if TYPE_CHECKING:
    DecodedMode: TypeAlias = PermissionMode
    """The type of a field that is decoded: `HasPermissionMode` turns former names into current ones."""
else:
    DecodedMode = Literal["ask", "accept_edits", "plan", "never_ask", "full_access"]


class HasPermissionMode(msgspec.Struct, frozen=True):
    """Base of every value that is decoded and has a `mode`."""

    def __post_init__(self) -> None:
        if (name := FORMER_MODES.get(getattr(self, "mode"))) is not None:  # noqa: B009
            msgspec.structs.force_setattr(self, "mode", name)
