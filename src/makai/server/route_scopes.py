"""What the routes of the settings and the files of the page need: parts of `scopes.ROUTES`."""

from __future__ import annotations

from typing import Final

from makai.core.access import TokenScope
from makai.transports.guard import PAGE_FILES

PAGE_FILE_ROUTES: Final[dict[tuple[str, str], TokenScope | None]] = {("GET", f"/{name}"): None for name in PAGE_FILES}
SETTINGS_ROUTES: Final[dict[tuple[str, str], TokenScope | None]] = {
    ("GET", "/api/settings"): "approve",
    ("PATCH", "/api/settings"): "admin",
    ("GET", "/api/grants"): "approve",
    ("POST", "/api/grants/revoke"): "approve",
    ("GET", "/api/trust"): "approve",
    ("GET", "/api/trust/folder"): "admin",
    ("POST", "/api/trust"): "admin",
    ("GET", "/api/tokens"): "admin",
    ("POST", "/api/tokens"): "admin",
    ("DELETE", "/api/tokens/{token_id}"): "admin",
    ("GET", "/api/mcp"): "approve",
    ("POST", "/api/mcp"): "admin",
    ("POST", "/api/mcp/remove"): "admin",
    ("POST", "/api/mcp/test"): "admin",
}
