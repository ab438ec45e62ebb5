"""What each HTTP route needs. A route without an entry is refused; what a route then asks of the sessions is checked
again (`scopes.py`)."""

from __future__ import annotations

from typing import Final

from makai.core.access import TokenScope
from makai.transports.guard import PAGE_FILES

ROUTES: Final[dict[tuple[str, str], TokenScope | None]] = {
    ("GET", "/"): None,
    **{("GET", f"/{name}"): None for name in PAGE_FILES},
    ("GET", "/assets/{name}"): None,
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): "observe",
    ("POST", "/api/cookie"): "observe",
    ("GET", "/v1/makai"): "observe",
    ("POST", "/v1/makai"): "observe",
    ("GET", "/ws"): "observe",
    ("GET", "/acp"): "observe",  # connects; what is then asked of sessions needs its own scope
    ("POST", "/acp"): "observe",
    ("DELETE", "/acp"): "observe",
    ("GET", "/api/info"): "observe",
    ("GET", "/api/models"): "observe",
    ("GET", "/api/harnesses"): "observe",
    ("GET", "/api/approvals"): "observe",
    ("GET", "/api/folders"): "prompt",  # below approve only those of `allowed_folders`
    ("POST", "/api/folders"): "approve",
    ("GET", "/api/files"): "prompt",  # the same folders
    ("GET", "/api/commands"): "prompt",  # the same folders
    ("GET", "/api/models/pull"): "admin",
    ("POST", "/api/models/pull"): "admin",
    ("DELETE", "/api/models/pull"): "admin",
    ("GET", "/api/search"): "observe",
    ("GET", "/api/usage"): "observe",
    ("GET", "/api/activity"): "observe",
    ("GET", "/api/nodes"): "observe",
    ("GET", "/api/sessions"): "observe",
    ("POST", "/api/sessions"): "prompt",
    ("GET", "/api/sessions/{id}"): "observe",
    ("DELETE", "/api/sessions/{id}"): "admin",
    ("POST", "/api/sessions/{id}/fork"): "prompt",
    ("POST", "/api/sessions/{id}/archive"): "prompt",
    ("POST", "/api/sessions/{id}/title"): "prompt",
    ("POST", "/api/sessions/{id}/effort"): "prompt",
    ("GET", "/api/sessions/{id}/export"): "observe",
    ("GET", "/api/sessions/{id}/restore"): "observe",
    ("GET", "/api/sessions/{id}/diff"): "observe",
    ("GET", "/api/sessions/{id}/transcript"): "observe",
    ("GET", "/api/sessions/{id}/files"): "prompt",
    ("GET", "/api/sessions/{id}/commands"): "prompt",
    ("POST", "/api/sessions/{id}/compose"): "prompt",
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
    ("GET", "/api/auth/providers"): "prompt",
    ("POST", "/api/auth/login"): "admin",
    ("GET", "/api/auth/flows/{flow_id}/events"): "admin",
    ("POST", "/api/auth/flows/{flow_id}/answer"): "admin",
    ("POST", "/api/auth/flows/{flow_id}/cancel"): "admin",
    ("POST", "/api/auth/logout"): "admin",
}
"""None for those that need no token."""
