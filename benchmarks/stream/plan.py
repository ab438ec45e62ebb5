"""What is measured: the traffic shapes, the clients and how often each pair is repeated.

In: whether the run is a quick one. Out: a list of `Job`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """One traffic shape: `rounds` times `concurrency` streams of `deltas` deltas each."""

    key: str
    title: str
    shape: str
    concurrency: int
    rounds: int
    deltas: int

    def total(self) -> int:
        """Deltas of one pass."""
        return self.concurrency * self.rounds * self.deltas


@dataclass(frozen=True)
class Job:
    """One child process."""

    client: str
    loop: str
    config: Config
    repeats: int
    warm_up: int = 1


FLAT_1 = Config("flat-1", "flat out, 1 stream", "flat", 1, 5, 2_000)
FLAT_50 = Config("flat-50", "flat out, 50 streams", "flat", 50, 1, 200)
FLAT_500 = Config("flat-500", "flat out, 500 streams", "flat", 500, 1, 100)
LIVE = Config("live", "live, 50 streams of 50 deltas/s", "live", 50, 1, 100)
FIRST_DELTA = Config("first-delta", "live, 1 stream", "live", 1, 20, 3)
"""Only its time to the first delta is of interest."""
CONFIGS = (FLAT_1, FLAT_50, FLAT_500, LIVE)

SHORT_ANSWER = Config("short-answer", "one answer of 1,000 deltas", "flat", 1, 1, 1_000)
LONG_ANSWER = Config("long-answer", "one answer of 1,000,000 deltas", "flat", 1, 1, 1_000_000)

MAKAI = (
    "makai-openai",
    "makai-anthropic",
    "runtime-openai",
    "runtime-anthropic",
    "connect-openai",
    "connect-anthropic",
)
PEERS = ("openai", "anthropic-raw", "anthropic-stream", "any-llm", "pydantic-ai", "litellm")
SLOW = frozenset({"any-llm", "pydantic-ai"})
"""A second pass at 500 streams would take minutes and no bar depends on it."""

NATIVE_LOOP = dict.fromkeys(MAKAI, "uvloop") | dict.fromkeys(PEERS, "asyncio")
"""The event loop a user gets without asking: makai brings uvloop, the others leave asyncio's own."""

TITLES = {
    "makai-openai": "makai, chat completions",
    "makai-anthropic": "makai, Messages",
    "runtime-openai": "makai by model name, chat completions",
    "runtime-anthropic": "makai by model name, Messages",
    "connect-openai": "makai.connect(), chat completions",
    "connect-anthropic": "makai.connect(), Messages",
    "openai": "openai SDK",
    "anthropic-raw": "anthropic SDK, create(stream=True)",
    "anthropic-stream": "anthropic SDK, stream()",
    "any-llm": "any-llm",
    "pydantic-ai": "pydantic-ai run_stream",
    "litellm": "LiteLLM acompletion",
}


def other_loop(loop: str) -> str:
    """The loop that is not this one."""
    return "asyncio" if loop == "uvloop" else "uvloop"


def jobs(quick: bool) -> list[Job]:
    """Every child of a run, those that are compared with one another next to one another."""
    if quick:
        clients = (*MAKAI, "openai", "anthropic-raw", "litellm")
        shapes = (FIRST_DELTA, FLAT_1, LIVE)
        return [Job(client, NATIVE_LOOP[client], config, 1) for config in shapes for client in clients]
    planned = [Job(client, NATIVE_LOOP[client], FIRST_DELTA, 1) for client in (*MAKAI, *PEERS)]
    for config in CONFIGS:
        for client in (*MAKAI, *PEERS):
            repeats = 3 if config is not FLAT_500 else 1 if client in SLOW else 2
            planned.append(Job(client, NATIVE_LOOP[client], config, repeats))
        on_other_loop = (*MAKAI, *PEERS) if config in (FLAT_1, LIVE) else MAKAI
        planned.extend(Job(client, other_loop(NATIVE_LOOP[client]), config, 2) for client in on_other_loop)
    return planned + [Job("makai-openai", "uvloop", config, 1, warm_up=0) for config in (SHORT_ANSWER, LONG_ANSWER)]
