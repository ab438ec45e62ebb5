"""The first steps of a user without a usable model: download the small local one, log in, or see the demo."""

from __future__ import annotations

import os
import sys
from typing import Final, Literal, TypeAlias, assert_never

from makai.cli.browser import has_browser
from makai.cli.console import EXIT_FAILED, note, say
from makai.cli.line_reader import LineReader
from makai.cli.login import LoginOutput, log_in
from makai.cli.menu import choose
from makai.cli.pull_progress import show_progress
from makai.core.errors import AuthRequired, MakaiError
from makai.providers.local.weights import SMOLLM2, has_llama
from makai.providers.runtime import ModelRuntime

Step: TypeAlias = Literal["local", "login", "demo"]
STEPS: Final[tuple[Step, ...]] = ("local", "login", "demo")
FirstSteps: TypeAlias = Literal["ready", "demo", "left"]
"""A model can be used now; the demo was chosen; or nothing changed."""
MAX_PROVIDERS: Final = 8
"""So many are offered by number; the others by their name."""
_SIZE: Final = SMOLLM2.download_text


def no_model_error(models: ModelRuntime) -> MakaiError:
    """For scripts and pipes, which cannot be asked."""
    if lacking := models.resolver.missing_default():
        return lacking
    pull = f"`makai models pull` (a small local model, {_SIZE})"
    if not has_llama():
        pull = f"`pip install 'makai[local]'` and {pull}"
    return AuthRequired(
        "No model can be used yet: you have no login, no API key is set, and there is no local model.",
        provider_id="",
        hint=f"{pull}, `makai auth login PROVIDER` (`makai auth providers` lists them), or `makai setup --demo`.",
    )


async def first_model(models: ModelRuntime) -> FirstSteps:
    """What a command does before it takes the default model, when that is lacking. Raises without a terminal, and
    when a provider of the user's own needs only the name of a model."""
    if not has_terminal() or models.resolver.missing_default():
        raise no_model_error(models)
    return await offer_first_steps(models)


def has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def offer_first_steps(models: ModelRuntime, question: str = "") -> FirstSteps:
    """Ask on the terminal what to do, and do it. A step that fails says why and the question comes again."""
    while True:
        chosen = await choose(question or "There is no model to use yet. How do you want to begin?", _options())
        if chosen is None:
            return "left"
        step = STEPS[chosen]
        if step == "demo":
            return "demo"
        if await carry_out(models, step) == 0:
            return "ready"


def _options() -> list[str]:
    local = f"Download the small local model ({_SIZE}): chats offline, cannot use tools"
    if not has_llama():
        local = f"Download the small local model ({_SIZE}), after: pip install 'makai[local]'"
    return [
        local,
        "Log in to a provider, or paste an API key: for capable models",
        "See the demo: a scripted model and real tools, in a throw-away folder",
    ]


async def carry_out(models: ModelRuntime, step: Literal["local", "login"], provider: str = "") -> int:
    """Returns an exit code."""
    match step:
        case "local":
            return await _pull(models)
        case "login":
            provider = provider or await _chosen_provider(models)
            if not provider:
                return EXIT_FAILED
            browser = sys.stdout.isatty() and has_browser(os.environ)
            return await log_in(models, provider, None, LoginOutput(LineReader(), browser=browser))
        case _:
            assert_never(step)


async def _pull(models: ModelRuntime) -> int:
    from makai.cli.console import explain
    from makai.providers.local.install import pull

    if not has_llama():
        note("The local model needs xllamacpp: pip install 'makai[local]', then `makai setup` again.", fg="yellow")
        return EXIT_FAILED
    try:
        with show_progress(sys.stderr) as progress:
            path = await pull(SMOLLM2, home=models.home, progress=progress)
    except MakaiError as error:
        explain(error)
        return EXIT_FAILED
    say(f"{SMOLLM2.display_name}\n  is installed in {path}")
    return 0


async def _chosen_provider(models: ModelRuntime) -> str:
    """The id of a provider; "" when the person leaves."""
    known = {one.id: one.name for one in models.auth().list_providers()}
    offered = list(known)[:MAX_PROVIDERS]
    chosen = await choose("Which provider?", [*(known[one] for one in offered), "Another one, by its name"])
    if chosen is None:
        return ""
    if chosen < len(offered):
        return offered[chosen]
    reader = LineReader()
    while True:
        note(f"Its name ({', '.join(sorted(set(known) - set(offered)))}): ", end="")
        name = (await reader.next() or "").strip()
        if not name or name in known:
            return name
        note(f"There is no provider {name!r}.", fg="yellow")
