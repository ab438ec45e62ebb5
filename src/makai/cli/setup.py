"""`makai setup`: the command line only; `first_steps` asks and acts."""

from __future__ import annotations

import click

from makai.cli.console import EXIT_FAILED, epilog


@epilog("""
Examples:
  makai setup                     asks what you want to begin with
  makai setup --local             download the small local model
  makai setup --login anthropic   log in, or paste an API key
  makai setup --demo              see how makai works, without any account

The first `makai` or `makai run` without a usable model asks the same. Exit codes: 0 done, 1 failed or left.
""")
@click.command("setup")
@click.option("--local", "step", flag_value="local", help="Download the small local model.")
@click.option("--demo", "step", flag_value="demo", help="Chat with a scripted model in a throw-away folder.")
@click.option("--login", "provider", metavar="PROVIDER", help="Log in to this provider.")
def command(step: str | None, provider: str | None) -> int:
    """Get a model to work with: download a local one, log in, or see the demo."""
    if step and provider:
        raise click.UsageError("give one of --local, --login and --demo")
    from makai.cli.console import run_async
    from makai.cli.run_request import demo_request
    from makai.cli.terminal.chat_setup import converse

    outcome = "demo" if step == "demo" else run_async(_set_up(step, provider or ""))
    if outcome == "demo":
        return converse(demo_request())
    return 0 if outcome == "ready" else EXIT_FAILED


async def _set_up(step: str | None, provider: str) -> str:
    from makai.cli.console import tell
    from makai.cli.first_steps import carry_out, has_terminal, no_model_error, offer_first_steps
    from makai.cli.provider_access import lacks_model
    from makai.providers.runtime import ModelRuntime

    async with ModelRuntime() as models:
        if provider or step == "local":
            return "ready" if await carry_out(models, "login" if provider else "local", provider) == 0 else "failed"
        is_lacking = lacks_model(models)
        if not has_terminal():
            if is_lacking:
                raise no_model_error(models)
            default = models.resolve(None)
            tell(f"{default.provider}/{default.id} can be used. For more: makai setup --login PROVIDER, or --local.")
            return "ready"
        question = "" if is_lacking else "You have a usable model. What do you want to add?"
        done = await offer_first_steps(models, question)
        if done == "ready":
            tell("Done. Try: makai run 'Say hello', or just `makai` to chat.")
        return done
