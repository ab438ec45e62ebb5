"""A small model on this machine: its weights, and the llama.cpp child process that serves them."""
