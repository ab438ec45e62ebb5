"""Logins on a protocol connection: joins its auth scopes to the auth runtime. No secret passes through here. Every
login is a task of the connection's task group and ends with the connection (MK-TRANS-005)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from makai.core.errors import MakaiError
from makai.protocols.makai import auth as wire
from makai.protocols.makai.auth import AuthCommand, AuthScopes, ListProviders, StartLogin

if TYPE_CHECKING:
    from makai.auth.login import LoginEvent, RunningLogin
    from makai.server.backend import Backend

log = logging.getLogger(__name__)


class ConnectionLogins:
    def __init__(self, scopes: AuthScopes, backend: Backend, on_news: Callable[[], None]) -> None:
        self._scopes = scopes
        self._backend = backend
        self._on_news = on_news
        self._flows: dict[str, RunningLogin] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def carry_out(self, command: AuthCommand, group: asyncio.TaskGroup) -> None:
        """Do what the client asked for; what takes time becomes a task of the group."""
        match command:
            case ListProviders():
                self._start(group, self._list_providers(command), "makai-providers")
            case StartLogin():
                # Begun here and not in the task: a cancel that came in the same batch must find it.
                if flow := self._begun(command):
                    self._flows[command.flow_id] = flow
                    self._start(group, self._follow(command.flow_id, flow), f"makai-login-{command.flow_id}")
            case wire.AuthPromptResponse():
                if flow := self._flows.get(command.flow_id):
                    flow.answer(command.prompt_id, command.answer)
            case wire.AuthCancel():
                if flow := self._flows.get(command.flow_id):
                    flow.cancel()
            case _:
                assert_never(command)

    def refuse(self, command: object, error: MakaiError) -> None:
        """Answer a login that cannot start; nothing else has an answer beyond its ack."""
        if isinstance(command, StartLogin):
            flow_id, provider_id = command.flow_id, command.provider_id
            failure = wire.AuthFailure(flow_id=flow_id, provider_id=provider_id, message=str(error), code=error.code)
            self._scopes.event(flow_id, wire.AuthEvent(error=failure))
            self._scopes.result(flow_id, "failed")

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        for flow in self._flows.values():
            flow.cancel()

    def _start(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None], name: str) -> None:
        task = group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _list_providers(self, command: ListProviders) -> None:
        providers: tuple[wire.AuthProviderInfo, ...] = ()
        try:
            listed = self._backend.auth().list_providers()
            providers = msgspec.convert(listed, tuple[wire.AuthProviderInfo, ...], from_attributes=True)
        except MakaiError:
            log.exception("listing providers failed")
        self._scopes.providers(command.scope, providers)
        self._on_news()

    def _begun(self, command: StartLogin) -> RunningLogin | None:
        try:
            return self._backend.auth().start_login(command.provider_id, command.flow_id, command.account)
        except MakaiError as error:
            self.refuse(command, error)
            return None

    async def _follow(self, flow_id: str, flow: RunningLogin) -> None:
        try:
            async for event in flow:
                self._scopes.event(flow_id, wire_event(event))
                self._on_news()
        finally:
            flow.cancel()
            del self._flows[flow_id]
        self._scopes.result(flow_id, flow.result or "failed")
        self._on_news()


def wire_event(event: LoginEvent) -> wire.AuthEvent:
    """A login's event as the wire has it: an object whose one key is the tag of the event."""
    return msgspec.convert({event.__struct_config__.tag: event}, wire.AuthEvent, from_attributes=True)
