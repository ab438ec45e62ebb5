"""What can be chosen in an agent's session (modes, models, commands), as the session's `agent_session` fact shows it.

Agents offer modes and models as `configOptions`, as `modes` and, in the protocol's first version, as `models`. Where
an agent offers a choice in two ways, `configOptions` counts: it replaces the others. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from makai.core import session_events as ev
from makai.wire.acp import sessions, updates
from makai.wire.acp.common import Wire

WireT = TypeVar("WireT", bound=Wire)


class ChoiceRequest(NamedTuple):
    """The request that makes a choice."""

    method: str
    params: Wire


class AgentChoices:
    def __init__(self, start: ev.AgentSession, settings: sessions.SessionSettings) -> None:
        """`start` names the session; `settings` is the answer that opened it."""
        self._options = settings.config_options or ()
        self._modes, self._models = settings.modes, settings.models
        self.fact = start
        self._refresh()

    def apply(self, update: updates.SessionUpdate) -> bool:
        """Take an update of what can be chosen; whether `fact` has changed."""
        before = self.fact
        match update:
            case updates.AvailableCommandsUpdate(available_commands=offered):
                commands = tuple(ev.AgentOption(id=each.name, description=each.description) for each in offered)
                self.fact = msgspec.structs.replace(self.fact, commands=commands)
            case updates.CurrentModeUpdate(current_mode_id=mode):
                self._chosen("mode", mode)
            case updates.ConfigOptionUpdate(config_options=options):
                self.replace_options(options)
            case _:
                pass
        return self.fact != before

    def replace_options(self, options: tuple[sessions.ConfigOption, ...]) -> None:
        """Each answer and each update has the complete list."""
        self._options = options
        self._refresh()

    def mode_request(self, mode: str) -> ChoiceRequest:
        session_id = self.fact.agent_session_id
        if (option := self._option("mode")) is not None:
            return _option_request(session_id, option.id, mode)
        return ChoiceRequest("session/set_mode", sessions.SetModeRequest(session_id=session_id, mode_id=mode))

    def model_request(self, model: str) -> ChoiceRequest:
        session_id = self.fact.agent_session_id
        if (option := self._option("model")) is not None:
            return _option_request(session_id, option.id, model)
        return ChoiceRequest("session/set_model", sessions.SetModelRequest(session_id=session_id, model_id=model))

    def chose(self, *, mode: str | None = None, model: str | None = None) -> None:
        """A request for it succeeded. Not all agents report the change themselves."""
        if mode is not None:
            self._chosen("mode", mode)
        if model is not None:
            self._chosen("model", model)

    def _chosen(self, category: str, value: str) -> None:
        """Kept where it was offered, so that a later refresh does not bring back what was chosen before."""
        replace = msgspec.structs.replace
        if category == "mode" and self._modes is not None:
            self._modes = replace(self._modes, current_mode_id=value)
        if category == "model" and self._models is not None:
            self._models = replace(self._models, current_model_id=value)
        if (option := self._option(category)) is not None:
            chosen = replace(option, current_value=value)
            self._options = tuple(chosen if each is option else each for each in self._options)
        self._refresh()
        self.fact = replace(self.fact, **{category: value})

    def _refresh(self) -> None:
        changes: dict[str, Any] = {}
        if (mode := self._option("mode")) is not None:
            changes |= {"modes": tuple(_values(mode.options)), "mode": mode.current_value}
        elif self._modes is not None:
            modes = (ev.AgentOption(id=m.id, name=m.name, description=m.description or "") for m in _all(self._modes))
            changes |= {"modes": tuple(modes), "mode": self._modes.current_mode_id}
        if (model := self._option("model")) is not None:
            changes |= {"models": tuple(_values(model.options)), "model": model.current_value}
        elif self._models is not None:
            models = (
                ev.AgentOption(id=m.model_id, name=m.name, description=m.description or "")
                for m in self._models.available_models
            )
            changes |= {"models": tuple(models), "model": self._models.current_model_id}
        self.fact = msgspec.structs.replace(self.fact, **changes)

    def _option(self, category: str) -> sessions.SelectOption | None:
        fitting = (each for each in self._options if isinstance(each, sessions.SelectOption))
        return next((each for each in fitting if each.category == category), None)


def _all(state: sessions.SessionModeState) -> tuple[sessions.SessionMode, ...]:
    return state.available_modes


def _option_request(session_id: str, config_id: str, value: str) -> ChoiceRequest:
    params = sessions.SetConfigOptionRequest(session_id=session_id, config_id=config_id, value=value)
    return ChoiceRequest("session/set_config_option", params)


def _values(options: Iterable[sessions.SelectValue]) -> Iterator[ev.AgentOption]:
    """The values of an option, those of groups too."""
    for option in options:
        if isinstance(option.value, str):
            yield ev.AgentOption(id=option.value, name=option.name, description=option.description or "")
        elif isinstance(option.options, tuple):
            yield from _values(option.options)


def readable(kind: type[WireT], value: Any) -> WireT:
    """What can be read of an answer: agents are newer or stranger than this version, and one capability or login method
    that it cannot read must not make an agent unusable. `msgspec.ValidationError` when a required member is missing."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if not isinstance(value, dict):
            raise
    members: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in value:
            found = _readable_member(field.type, value[field.encode_name])
            members |= {} if found is msgspec.UNSET else {field.name: found}
        if field.required and field.name not in members:
            raise msgspec.ValidationError(f"Object missing required field `{field.encode_name}`")
    return kind(**members)


def _readable_member(kind: Any, value: Any) -> Any:
    """`UNSET` when it cannot be read."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    for possible in (kind, *get_args(kind)):
        if isinstance(possible, type) and issubclass(possible, Wire) and isinstance(value, dict):
            try:
                return readable(possible, value)
            except msgspec.ValidationError:
                continue
        if get_origin(possible) is tuple and isinstance(value, list):
            items = (_readable_member(get_args(possible)[0], item) for item in value)
            return tuple(item for item in items if item is not msgspec.UNSET)
    return msgspec.UNSET
