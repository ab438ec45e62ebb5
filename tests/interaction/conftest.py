"""A database for each test that asks for one."""

from __future__ import annotations

from support.postgres import database as database
