"""Logins for a client of the Agent Client Protocol: `authenticate` and `logout`.

An editor can show an address, or open it; it must not be asked for a key. So the methods that it is offered
(`acp_handshake`) are the logins that end in a browser, and one that runs in a terminal, where every other login is
possible. No answer holds a credential.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from makai.aio.json_rpc_calls import answered_request
from makai.core.errors import MakaiError
from makai.wire import json_rpc, strict_json
from makai.wire.acp import connecting
from makai.wire.acp.common import Empty
from makai.wire.json_rpc_errors import RpcError, decoded_params, decoded_result

if TYPE_CHECKING:
    from makai.auth.login import LoginEvent, LoginPrompt, LoginUrl, RunningLogin
    from makai.server.acp_connection import AcpConnection

log = logging.getLogger(__name__)

_ASKS_FOR_A_SECRET: Final = re.compile(r"\b(key|token|secret|password)\b", re.IGNORECASE)
_AUTHENTICATE: Final = msgspec.json.Decoder(connecting.AuthenticateRequest)
_LOGOUT: Final = msgspec.json.Decoder(connecting.LogoutRequest)


class AcpLogins:
    """The login requests of one connection."""

    def __init__(self, connection: AcpConnection) -> None:
        self._connection = connection
        self._backend = connection.server.backend

    async def answer(self, method: str, params: msgspec.Raw | None) -> Empty:
        caller = self._connection.caller
        if not caller.may("admin") or caller.session_id is not None:
            told = "Your token does not allow this: it needs the scope admin, for all sessions."
            raise RpcError(json_rpc.INVALID_REQUEST, told)
        if method == "logout":
            decoded_params(_LOGOUT, params)
            await self._log_out()
        else:
            await self._authenticate(decoded_params(_AUTHENTICATE, params).method_id)
        return Empty()

    async def _log_out(self) -> None:
        """End every stored login. Keys in the environment stay: they are not makai's to remove."""
        auth = self._backend.auth()
        for provider in await asyncio.to_thread(auth.list_providers):
            for account in provider.accounts:
                await auth.logout(provider.id, account.name)

    async def _authenticate(self, method_id: str) -> None:
        names = dict(self._connection.server.logins())
        if method_id not in names:
            raise RpcError(json_rpc.INVALID_PARAMS, f"There is no login {method_id[:100]!r}.")
        flow = self._backend.auth().start_login(method_id, secrets.token_hex(16))
        await _Login(self._connection, names[method_id], flow).carry_out()


class _Login:
    """One login: shows what it wants shown, and asks what an editor may be asked."""

    def __init__(self, connection: AcpConnection, name: str, flow: RunningLogin) -> None:
        self._connection = connection
        self._elicitation = connection.client.client_capabilities.elicitation
        self._name = name
        self._flow = flow
        self._request_id = answered_request.get()
        self._tasks: set[asyncio.Task[None]] = set()
        self._shown: list[str] = []
        """Ids of the addresses that the client shows."""
        self._has_page = False
        self._failure: RpcError | None = None

    async def carry_out(self) -> None:
        """Return when the credential is stored; `RpcError` when it is not. Cancelling this cancels the login."""
        try:
            async for event in self._flow:
                self._take(event)
            if self._flow.result != "success":
                raise self._failure or self._failed("The login failed.")
        finally:
            self._flow.cancel()
            for task in self._tasks:
                task.cancel()
            for elicitation_id in self._shown:
                self._connection.calls.notify("elicitation/complete", {"elicitationId": elicitation_id})

    def _take(self, event: LoginEvent) -> None:
        from makai.auth import login

        match event:
            case login.LoginUrl():
                self._show(event)
            case login.LoginPrompt():
                self._ask(event)
            case login.LoginFailed(message=message):
                self._failure = self._failure or self._failed(message)
            case login.LoginProgress() | login.LoginSuccess():
                pass
            case _:
                assert_never(event)

    def _show(self, page: LoginUrl) -> None:
        text = " ".join(f"Log in to {self._name}. {page.instructions}".split())
        if self._elicitation is not None and self._elicitation.url is not None:
            self._has_page = True
            elicitation_id = secrets.token_hex(16)
            self._shown.append(elicitation_id)
            self._start(self._elicited({"mode": "url", "elicitationId": elicitation_id, "url": page.url}, text))
        elif self._connection.server.open_page is not None and self._connection.server.open_page(page.url):
            self._has_page = True
            log.warning("%s", text)  # a code to type is nowhere else to be read
        else:
            self._give_up(f"No browser can be opened here to log in to {self._name}.")

    def _ask(self, prompt: LoginPrompt) -> None:
        may_ask = self._elicitation is not None and self._elicitation.form is not None
        if may_ask and not _ASKS_FOR_A_SECRET.search(prompt.message):
            fields = {"answer": {"type": "string", "title": prompt.message}}
            schema = {"type": "object", "properties": fields, "required": [] if prompt.allow_empty else ["answer"]}
            form = {"mode": "form", "requestedSchema": schema}
            self._start(self._elicited(form, prompt.message, prompt.prompt_id))
        elif not self._has_page:  # otherwise the login ends in the browser
            self._give_up(f"Logging in to {self._name} asks a question that your editor cannot show.")

    async def _elicited(self, question: dict[str, Any], message: str, prompt_id: str | None = None) -> None:
        from makai.wire.acp.client_calls import CreateElicitationResponse

        decoder = msgspec.json.Decoder(CreateElicitationResponse)
        wanted = {"message": message, "requestId": self._request_id, **question}
        try:
            raw = await self._connection.calls.request("elicitation/create", wanted)
            answer = decoded_result(decoder, raw, "elicitation/create")
        except MakaiError as error:
            self._give_up(f"Your editor did not show the login: {error.message}")
            return
        if answer.action != "accept":
            self._give_up("The login was cancelled.")
        elif prompt_id is not None:
            given = (answer.content or {}).get("answer", "")
            self._flow.answer(prompt_id, given if isinstance(given, str) else strict_json.encode(given).decode())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._connection.tasks.start(work, "acp-elicitation")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give_up(self, why: str) -> None:
        self._failure = self._failure or self._failed(why)
        self._flow.cancel()

    def _failed(self, why: str) -> RpcError:
        hint = f"You can also run `makai auth login {self._flow.provider_id}` in a terminal."
        return RpcError(json_rpc.AUTH_REQUIRED, " ".join(f"{why} {hint}".split()))
