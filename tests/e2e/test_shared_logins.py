"""Machines whose `[store]` names one database share their logins through it."""

from __future__ import annotations

from pathlib import Path

from support.cli import Cli
from support.postgres import shared_server

from makai.auth.credentials import Account, ApiKey
from makai.auth.store import CredentialStore
from makai.core.secret import Secret

KEY = {"MAKAI_CLUSTER_KEY": "a cluster key of more than 32 characters"}


def machine(folder: Path, url: str) -> Cli:
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    return Cli(folder, KEY)


async def test_a_login_on_one_machine_counts_on_the_other_and_those_of_a_file_are_shared_on_demand(
    tmp_path: Path,
) -> None:
    url = shared_server().new_database()
    one, two = machine(tmp_path / "one", url), machine(tmp_path / "two", url)
    for name in ("home", "work"):
        account = Account(name=name, credential=ApiKey(key=Secret(f"sk-{name}")), origins=("https://api.groq.com:443",))
        CredentialStore(one.home).save("groq", account)

    before = await two("auth", "status", "groq")
    without_key = await one("auth", "share", environ={"MAKAI_CLUSTER_KEY": ""})
    shared = await one("auth", "share", "--json")
    default = await two("auth", "default", "groq", "home")
    after = await one("auth", "status", "groq", "--json")
    again, kept_in, moved = await one("auth", "share"), await two("auth", "store"), await two("auth", "store", "file")

    assert before.code == 3
    assert (without_key.code, "This machine does not share its logins." in without_key.err) == (2, True)
    assert shared.json() == {"copied": [["groq", "home"], ["groq", "work"]], "kept": []}
    assert (default.code, default.out) == (0, "groq now uses home by default.\n")
    (status,) = after.json()["providers"]
    assert [(each["name"], each["is_default"]) for each in status["accounts"]] == [("home", True), ("work", False)]
    assert again.out.splitlines() == [
        "Copied nothing.",
        "There already: groq (home), groq (work). Use --replace to copy them over.",
    ]
    assert "in the database of [store] in config.toml" in kept_in.out
    assert (moved.code, "Your logins are shared through the database." in moved.err) == (2, True)
    assert not (two.home / "auth.json").exists()
