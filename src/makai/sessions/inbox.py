"""Commands of a session on their way to the next commit. Deltas of one block are joined here, so that a stream of words
costs one decision per commit and not one per word."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from makai.core import session_events as ev
from makai.core.errors import MakaiError
from makai.sessions import commands as cmd
from makai.sessions.log.encoding import block_of

Effects: TypeAlias = tuple[cmd.AnyEffect, ...]


class Order(msgspec.Struct, eq=False):
    """A command, and the future of the caller that waits for its commit."""

    command: cmd.Command
    waiter: asyncio.Future[Effects] | None = None
    words: list[str] = []
    """Of a delta: what is said, with the deltas of the same block that followed it."""

    @property
    def is_urgent(self) -> bool:
        """Whether a caller, or a person who has to decide, waits for the commit."""
        command = self.command
        can_wait = isinstance(command, cmd.Report) and not isinstance(command.event, ev.ApprovalRequested)
        return self.waiter is not None or not can_wait

    def whole(self) -> cmd.Command:
        """The command to decide: of deltas that were joined, one report of all they say."""
        command = self.command
        if len(self.words) <= 1 or not isinstance(command, cmd.Report):
            return command
        return replace(command, event=replace(command.event, delta="".join(self.words)))

    def done(self, effects: Effects) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(effects)

    def fail(self, error: MakaiError) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)


class Inbox:
    """What the next commits hold, in order."""

    MAX_BATCH: Final = 2_000
    """Orders in one commit."""

    def __init__(self) -> None:
        self._orders: deque[Order] = deque()
        self.block: tuple[object, ...] | None = None
        """The block of the newest order, when that is a delta: the next delta of it belongs to `words`."""
        self.words: list[str] = []
        self.has_urgent = False
        """Whether an order is here that cannot wait."""
        self.facts = 0
        """How many reports were put, each delta counted, and not taken yet."""

    def __bool__(self) -> bool:
        return bool(self._orders)

    def put(self, order: Order) -> None:
        self._append(order)
        self.has_urgent = self.has_urgent or order.is_urgent

    def put_report(self, now: int, run_id: str, event: ev.SessionEvent) -> None:
        """Add a fact that no caller waits for."""
        if not isinstance(event, ev.Delta):
            self._append(Order(cmd.Report(now=now, event=event, run_id=run_id)))
            self.has_urgent = self.has_urgent or type(event) is ev.ApprovalRequested
        elif (block := block_of(run_id, event)) == self.block:
            self.words.append(event.delta)
            self.facts += 1
        else:
            words = [event.delta]
            self._append(Order(cmd.Report(now=now, event=event, run_id=run_id), words=words))
            self.block, self.words = block, words

    def _append(self, order: Order) -> None:
        self.block = None
        self._orders.append(order)
        self.facts += 1

    def take(self) -> list[Order]:
        if len(self._orders) <= self.MAX_BATCH:
            return self.take_all()
        orders = [self._orders.popleft() for _ in range(self.MAX_BATCH)]
        self.has_urgent = any(order.is_urgent for order in self._orders)
        self.facts = sum(len(order.words) or 1 for order in self._orders)
        return orders

    def take_all(self) -> list[Order]:
        orders = list(self._orders)
        self._orders.clear()
        self.block, self.has_urgent, self.facts = None, False, 0
        return orders
