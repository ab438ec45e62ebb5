"""What tests against real servers may rely on: a running llama.cpp server, and a certified OAuth server."""

from support.llama import llama_server
from support.oidc import oidc_server

__all__ = ["llama_server", "oidc_server"]
