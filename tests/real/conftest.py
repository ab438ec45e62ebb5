"""What tests against a real model may rely on: one running llama.cpp server, `llama_server`."""

from support.llama import llama_server

__all__ = ["llama_server"]
