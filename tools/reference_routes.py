"""One sentence for every HTTP route, for the generated reference. `test_reference` fails for a route without one."""

from __future__ import annotations

from typing import Final

MEANINGS: Final[dict[tuple[str, str], str]] = {
    ("GET", "/"): "The page.",
    ("GET", "/icon.svg"): "The page's icon.",
    ("GET", "/assets/{name}"): "The page's scripts and styles.",
    ("GET", "/healthz"): "Whether the process answers.",
    ("GET", "/readyz"): "Whether it takes new work: 503 while it ends.",
    ("GET", "/metrics"): "Counters for Prometheus.",
    ("POST", "/api/cookie"): "Trade the token for the page's cookie.",
    ("GET", "/v1/makai"): "The Makai protocol over WebSocket.",
    ("POST", "/v1/makai"): "The Makai protocol over server-sent events.",
    ("GET", "/ws"): "One session over WebSocket (MiniCodex protocol).",
    ("GET", "/acp"): "The Agent Client Protocol over WebSocket, or its event stream; with `--acp`.",
    ("POST", "/acp"): "A message of the Agent Client Protocol; with `--acp`.",
    ("DELETE", "/acp"): "End a connection of the Agent Client Protocol; with `--acp`.",
    ("GET", "/api/info"): "Version, defaults for new sessions, and what the token allows.",
    ("GET", "/api/models"): "The models that can be used, and what others need.",
    ("GET", "/api/harnesses"): "The agents, what each can do, and how to install it.",
    ("GET", "/api/approvals"): "The open questions of all sessions.",
    ("GET", "/api/sessions"): "Sessions, newest first; `limit`, `before`, `q`.",
    (
        "POST",
        "/api/sessions",
    ): "Begin a session: `model_ref`, `mode`, `sandbox`, `cwd`, `title`, `harness`, `demo`.",
    ("GET", "/api/sessions/{id}"): "One session; the beginning of its id is enough.",
    ("DELETE", "/api/sessions/{id}"): "Stop and delete a session.",
    ("POST", "/api/sessions/{id}/fork"): "Copy a session, up to the event `at`.",
    ("GET", "/api/sessions/{id}/export"): "Download it: `format=md` or `jsonl`.",
    ("GET", "/api/sessions/{id}/restore"): "What an undo or redo of its file changes would do.",
    ("GET", "/api/sessions/{id}/diff"): "Every file that its tools changed, before and after.",
    ("GET", "/api/sessions/{id}/transcript"): "A page of the transcript, backwards from `before`.",
    ("GET", "/api/auth/providers"): "Providers and their logins.",
    ("POST", "/api/auth/login"): "Begin a login.",
    ("GET", "/api/auth/flows/{flow_id}/events"): "The events of a login, as server-sent events.",
    ("POST", "/api/auth/flows/{flow_id}/answer"): "Answer a question of a login.",
    ("POST", "/api/auth/flows/{flow_id}/cancel"): "Cancel a login.",
    ("POST", "/api/auth/logout"): "Log out.",
}
