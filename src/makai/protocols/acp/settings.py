"""What can be chosen in a session, as `modes`, as `models` and as `configOptions`, which have the thinking level too.

All of them are made from the same state, so they agree (clients read one or the other), and the current value is always
among the offered ones (ACP-SESS-005). An external agent's own modes and models stand in place of ours; what the agent
of a session cannot change is not offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

import msgspec

from makai.core import session_events as ev
from makai.core.model import ReasoningEffort
from makai.sessions import commands as cmd
from makai.sessions.state import SessionState
from makai.wire import json_rpc
from makai.wire.acp.sessions import (
    ConfigOption,
    ModelInfo,
    SelectOption,
    SelectValue,
    SessionMode,
    SessionModelState,
    SessionModeState,
    SessionSettings,
)
from makai.wire.acp.updates import ConfigOptionUpdate, CurrentModeUpdate, SessionUpdate
from makai.wire.json_rpc_errors import RpcError

MODE: Final = "mode"
MODEL: Final = "model"
THOUGHT_LEVEL: Final = "thought_level"
DEFAULT_LEVEL: Final = "default"
"""The thinking level that a model has by itself."""
_LEVELS: Final[tuple[ReasoningEffort, ...]] = get_args(ReasoningEffort)
_MODES: Final[dict[ev.PermissionMode, tuple[str, str]]] = {
    "ask": ("Ask", "Asks before it changes files or runs commands"),
    "accept_edits": ("Accept edits", "Changes files in the folder without asking"),
    "plan": ("Plan", "Reads only, changes nothing"),
    "never_ask": ("Never ask", "Asks nothing; only the sandbox protects your files"),
}


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a session can use."""

    model_ref: str
    name: str
    description: str = ""
    can_think: bool = False
    """Whether it has thinking levels."""


class _Choices(msgspec.Struct, frozen=True):
    current: str
    offered: tuple[ev.AgentOption, ...]


def session_settings(state: SessionState, models: Sequence[ModelChoice]) -> SessionSettings:
    mode, model = _modes(state), _models(state, models)
    options: list[ConfigOption] = []
    modes: SessionModeState | None = None
    shown_models: SessionModelState | None = None
    if mode is not None:
        available = tuple(
            SessionMode(id=each.id, name=each.name or each.id, description=each.description or None)
            for each in mode.offered
        )
        modes = SessionModeState(current_mode_id=mode.current, available_modes=available)
        options.append(_option(MODE, "Mode", mode))
    if model is not None:
        known = tuple(
            ModelInfo(model_id=each.id, name=each.name or each.id, description=each.description or None)
            for each in model.offered
        )
        shown_models = SessionModelState(current_model_id=model.current, available_models=known)
        options.append(_option(MODEL, "Model", model))
    if (level := _levels(state, models)) is not None:
        options.append(_option(THOUGHT_LEVEL, "Thinking", level))
    return SessionSettings(modes=modes, models=shown_models, config_options=tuple(options) or None)


def settings_updates(before: SessionSettings, after: SessionSettings) -> list[SessionUpdate]:
    """What a client has to be sent when something changed that it did not ask for itself (ACP-UPD-011)."""
    updates: list[SessionUpdate] = []
    if after.modes is not None and (
        before.modes is None or before.modes.current_mode_id != after.modes.current_mode_id
    ):
        updates.append(CurrentModeUpdate(current_mode_id=after.modes.current_mode_id))
    if before.config_options != after.config_options:
        updates.append(ConfigOptionUpdate(config_options=after.config_options or ()))
    return updates


def command_for_mode(mode_id: str, state: SessionState) -> cmd.SetMode:
    """`RpcError` -32602 for a mode that is not offered."""
    choices = _modes(state)
    if choices is not None and state.agent is not None and state.agent.modes:
        if mode_id in {each.id for each in choices.offered}:
            return cmd.SetMode(now=0, mode=state.mode, agent_mode=mode_id)
    elif choices is not None:
        known = {each.id for each in choices.offered}
        name = ev.FORMER_MODES.get(mode_id, mode_id)
        if name in known:
            return cmd.SetMode(now=0, mode=next(mode for mode in ev.MODES if mode == name))
    raise _unknown("mode", mode_id, choices)


def command_for_model(model_id: str, models: Sequence[ModelChoice], state: SessionState | None = None) -> cmd.SetModel:
    """`RpcError` -32602 for a model that is not offered."""
    choices = _models(state or SessionState(), models)
    if choices is None or model_id not in {each.id for each in choices.offered if each.id}:
        raise _unknown("model", model_id, choices)
    return cmd.SetModel(now=0, model_ref=model_id)


def command_for_option(
    config_id: str, value: str | bool, state: SessionState, models: Sequence[ModelChoice]
) -> cmd.SetMode | cmd.SetModel | cmd.SetTerms:
    """`RpcError` -32602 for an option or a value that is not offered."""
    if isinstance(value, bool):
        raise RpcError(json_rpc.INVALID_PARAMS, f"The option {config_id[:100]!r} takes one of its values as a string.")
    match config_id:
        case "mode":
            return command_for_mode(value, state)
        case "model":
            return command_for_model(value, models, state)
        case "thought_level":
            levels = _levels(state, models)
            if levels is None or value not in {each.id for each in levels.offered}:
                raise _unknown("thinking level", value, levels)
            effort = next((level for level in _LEVELS if level == value), None)
            return cmd.SetTerms(now=0, terms=msgspec.structs.replace(state.terms, reasoning_effort=effort))
        case _:
            raise RpcError(json_rpc.INVALID_PARAMS, f"There is no option {config_id[:100]!r}.")


def _modes(state: SessionState) -> _Choices | None:
    if state.agent is not None and state.agent.modes:
        return _with_current(state.agent_mode or state.agent.mode, state.agent.modes)
    if not state.capabilities.change_mode:
        return None
    offered = tuple(ev.AgentOption(id=mode, name=name, description=text) for mode, (name, text) in _MODES.items())
    return _with_current(state.mode, offered)


def _models(state: SessionState, models: Sequence[ModelChoice]) -> _Choices | None:
    if not state.capabilities.change_model:
        return None
    if state.agent is not None and state.agent.models:
        ids = {each.id for each in state.agent.models}
        current = state.model_ref if state.model_ref in ids else state.agent.model
        return _with_current(current, state.agent.models)
    if not state.capabilities.needs_model:
        return None
    offered = tuple(ev.AgentOption(id=each.model_ref, name=each.name, description=each.description) for each in models)
    return _with_current(state.model_ref, offered)


def _levels(state: SessionState, models: Sequence[ModelChoice]) -> _Choices | None:
    """Of sessions whose model is one of ours and thinks; an external agent's levels are its own."""
    if not state.capabilities.needs_model or not any(m.can_think for m in models if m.model_ref == state.model_ref):
        return None
    offered = tuple(ev.AgentOption(id=level, name=level.capitalize()) for level in (DEFAULT_LEVEL, *_LEVELS))
    return _Choices(state.terms.reasoning_effort or DEFAULT_LEVEL, offered)


def _with_current(current: str, offered: Sequence[ev.AgentOption]) -> _Choices | None:
    """One of each id; a current value that is not offered (any more) comes first."""
    unique: dict[str, ev.AgentOption] = {}
    if current and current not in {each.id for each in offered}:
        unique[current] = ev.AgentOption(id=current)
    for each in offered:
        unique.setdefault(each.id, each)
    unique.pop("", None)
    return _Choices(current or next(iter(unique)), tuple(unique.values())) if unique else None


def _option(option_id: str, name: str, choices: _Choices) -> SelectOption:
    values = tuple(
        SelectValue(name=each.name or each.id, value=each.id, description=each.description or None)
        for each in choices.offered
    )
    return SelectOption(id=option_id, name=name, category=option_id, current_value=choices.current, options=values)


def _unknown(what: str, wanted: str, choices: _Choices | None) -> RpcError:
    if choices is None:
        return RpcError(json_rpc.INVALID_PARAMS, f"The agent of this session offers no choice of a {what}.")
    known = ", ".join(each.id for each in choices.offered[:10])
    return RpcError(json_rpc.INVALID_PARAMS, f"There is no {what} {wanted[:100]!r}. Some that are offered: {known}.")
