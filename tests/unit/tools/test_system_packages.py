"""What tests need besides Python packages is installed, or missed aloud."""

from __future__ import annotations

import pytest

from tools import system_packages
from tools.system_packages import NEEDED_BY, Need, missing

SHELL = Need("dash", ("sh",), "shells")
NOWHERE = Need("no-such-package", ("no-such-program", "nor-this-one"), "nothing at all")


def test_only_what_is_not_there_is_missing() -> None:
    assert missing([SHELL, NOWHERE]) == [NOWHERE]


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        (
            [NOWHERE],
            "SKIPPED: no-such-package is not installed (there is no apt-get here); not tested: nothing at all\n",
        ),
        ([], ""),
    ],
)
def test_what_cannot_be_installed_is_named_with_the_tests_that_need_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lacking: list[Need], said: str
) -> None:
    monkeypatch.setattr(system_packages, "missing", lambda needed=(): lacking)
    monkeypatch.setenv("PATH", "")

    system_packages.main()

    assert capsys.readouterr() == ("", said)


def test_what_only_the_long_tests_need_is_not_installed_by_make_test() -> None:
    added = [need.package for need in NEEDED_BY["faults"] if need not in NEEDED_BY["test"]]

    assert added == ["etcd-server", "patroni", "nginx-light", "iproute2"]
    assert [need.package for need in NEEDED_BY["bench"]] == ["postgresql"]
