"""What a child process learns from our environment: what programs need to run, and no secret.

In: an environment. Out: the part of it that a command started for a model may see (DESIGN §9: "Children get a scrubbed
environment"). An allow list: a variable nobody thought of stays here.
"""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
_NAMES = frozenset({
    "CARGO_HOME", "COLUMNS", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "GEM_HOME", "GEM_PATH", "GOBIN", "GOFLAGS",
    "GOPATH", "GOROOT", "HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LINES", "LOGNAME",
    "NODE_EXTRA_CA_CERTS", "NODE_PATH", "NVM_DIR", "PATH", "PKG_CONFIG_PATH", "PYENV_ROOT", "PYTHONPATH",
    "RBENV_ROOT", "REQUESTS_CA_BUNDLE", "RUSTUP_HOME", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM",
    "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
})
# fmt: on
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
_SET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"} | {
    "AI_AGENT": "makai"
}
"""Nobody sits at the terminal: nothing may page, prompt or paint. Programs can tell for whom they run."""


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a command."""
    kept = {name: value for name, value in environ.items() if _is_harmless(name, value)}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **kept, **_SET}


def _is_harmless(name: str, value: str) -> bool:
    if name.upper() in _PROXIES:
        # A proxy's address may carry a password.
        return "@" not in value
    return name in _NAMES or name.startswith("LC_")
