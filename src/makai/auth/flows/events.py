"""What a login tells its client (document 000 §4), as data.

In: nothing. Out: one Struct per event, whose tag is the key it has on the wire. None ever holds a token, key or code.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    flow_id: str
    provider_id: str


class AuthUrl(_Event, frozen=True, kw_only=True, tag="auth_url"):
    """A page for the user to open."""

    url: str
    instructions: str = ""


class Prompt(_Event, frozen=True, kw_only=True, tag="prompt"):
    """A question; the flow waits for its answer, unless the login ends in the browser first."""

    prompt_id: str
    message: str
    allow_empty: bool = False


class Progress(_Event, frozen=True, kw_only=True, tag="progress"):
    """What is happening."""

    message: str


class Success(_Event, frozen=True, kw_only=True, tag="success"):
    """The credential is stored."""


class Failed(_Event, frozen=True, kw_only=True, tag="error"):
    """Why there is none. The last event of every login that does not succeed."""

    message: str
    code: str = ""


AuthEvent: TypeAlias = AuthUrl | Prompt | Progress | Success | Failed
