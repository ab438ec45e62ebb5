"""The files in deploy/ are well formed, name settings and options that exist, and hold no secret. YAML is read as
lines: no parser is installed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from makai.cli.commands import cli
from makai.core.config import ClusterConfig, Config, StoreConfig

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
YAML_FILES = [path for path in FILES if path.suffix == ".yaml"]
_LINE = re.compile(r"(?P<indent> *)(- )*([\w./<-][\w./-]*:( .+)?|[^\s:].*)")
_CHECK_S = 30


def _text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def _is_known(arguments: list[str]) -> bool:
    """`--help` is answered only where the command and every option before it are known."""
    return CliRunner().invoke(cli, [*arguments, "--help"]).exit_code == 0


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_a_yaml_file_is_indented_in_steps_of_two_and_closes_what_it_opens(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line != "---"]
    content = [line for line in lines if not line.lstrip().startswith(("#", "{{-"))]

    assert [line for line in content if "\t" in line or not _LINE.fullmatch(line)] == []
    assert [line for line in content if (len(line) - len(line.lstrip())) % 2] == []
    assert [line for line in content if line.count('"') % 2 or line.count("{{") != line.count("}}")] == []
    joined = "\n".join(lines)
    assert len(re.findall(r"{{-? (?:if|range) ", joined)) == len(re.findall(r"{{-? end }}", joined))


def test_every_value_that_the_chart_uses_is_in_its_values_file() -> None:
    templates = "\n".join(path.read_text(encoding="utf-8") for path in (DEPLOY / "helm/makai/templates").iterdir())
    used = {path.split(".")[0] for path in re.findall(r"\.Values\.([\w.]+)", templates)}

    assert used == set(re.findall(r"^(\w+):", _text("helm/makai/values.yaml"), re.MULTILINE))


@pytest.mark.parametrize("name", ["node-1", "node-2"])
def test_the_settings_of_a_node_are_read(name: str) -> None:
    address = "postgres://makai@database:5432/makai?passfile=/run/secrets/pgpass"

    assert msgspec.toml.decode(_text(f"{name}.toml"), type=Config) == Config(
        store=StoreConfig(url=address),
        cluster=ClusterConfig(
            name=name,
            listen="0.0.0.0:8719",
            advertise=f"{name}:8719",
            labels=("work",),
            key_file="/run/secrets/cluster-key",
        ),
    )


def test_the_settings_that_the_chart_writes_exist() -> None:
    (heredoc,) = re.findall(
        r"config\.toml <<END\n(.*?)\n +END\n", _text("helm/makai/templates/statefulset.yaml"), re.DOTALL
    )
    written = {line.strip() for line in heredoc.splitlines() if "{{-" not in line}
    plain = "\n".join(sorted(written, key=heredoc.index)).replace("{{ .Values.leaseSeconds }}", "6")

    read = msgspec.toml.decode(plain, type=Config)
    assert (read.cluster.labels, read.cluster.key_file) == (("work",), "/data/home/cluster-key")


def test_every_command_in_the_files_exists_and_has_more_time_to_stop_than_it_takes_to_drain() -> None:
    compose, chart, unit = _text("compose.yaml"), _text("helm/makai/templates/statefulset.yaml"), _text("makai.service")
    in_compose = json.loads(re.findall(r"^  command: (\[.*\])$", compose, re.MULTILINE)[0])
    in_unit = shlex.split(re.findall(r"^ExecStart=\S+/makai (.*)$", unit, re.MULTILINE)[0])
    in_chart = re.findall(r"^ +- (serve|--[\w-]+)$", chart, re.MULTILINE)

    assert (in_compose[0], in_unit[0], in_chart[0]) == ("serve", "serve", "serve")
    assert _is_known(in_compose)
    assert _is_known(in_unit)
    # Options with a value stand before it in a line of their own.
    assert in_chart[1:] == ["--host", "--allow-plain-remote", "--drain", "--allow-host"]
    assert _is_known(["serve", "--host", "0.0.0.0", "--allow-plain-remote", "--drain", "20", "--allow-host", "a:1"])
    seconds = {
        name: int(value) for name, value in re.findall(r"(stop_grace_period: |TimeoutStopSec=)(\d+)", compose + unit)
    }
    assert seconds == {"stop_grace_period: ": 60, "TimeoutStopSec=": 60}
    assert in_compose[-2:] == in_unit[-2:] == ["--drain", "20"]
    assert "terminationGracePeriodSeconds: {{ add .Values.drainSeconds 45 }}" in chart


def test_every_image_has_a_version() -> None:
    images = [image for path in FILES for image in re.findall(r"^ *image: (\S+)$", path.read_text(), re.MULTILINE)]

    assert len(images) == 3
    assert [
        image for image in images if not re.fullmatch(r"[\w./-]+:[\w.-]+", image) or image.endswith(":latest")
    ] == []
    assert re.search(r'^  tag: "[\d.]+"$', _text("helm/makai/values.yaml"), re.MULTILINE)


def test_no_file_holds_a_secret_and_those_that_will_are_ignored() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    with_password = re.compile(r"://(?!USER:PASSWORD@)[^\s:/@]+:[^\s/@]+@|PASSWORD: |MAKAI_CLUSTER_KEY")

    assert [path.name for path, text in texts.items() if with_password.search(text)] == []
    assert [path.name for path in (DEPLOY / "secrets").iterdir()] == [".gitignore"]
    assert "\n*\n" in _text("secrets/.gitignore")


def test_the_image_installs_the_driver_of_postgresql_from_the_lock_file() -> None:
    pins = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("constraints.txt", "constraints-run.txt")}
    entry = re.compile(r"^(psycopg(?:-binary)?)==", re.MULTILINE)

    assert entry.findall(pins["constraints.txt"]) == ["psycopg", "psycopg-binary"]
    assert {"cryptography", "typing-extensions"} <= set(
        re.findall(r"^([\w-]+)==", pins["constraints-run.txt"], re.MULTILINE)
    )
    assert "/^psycopg(-binary)?==/" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "\n!constraints.txt\n" in (ROOT / ".dockerignore").read_text(encoding="utf-8")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the unit was not checked")
    unit = tmp_path / "makai.service"
    unit.write_text(_text("makai.service").replace("/opt/makai/bin/makai", "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=_CHECK_S)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if nginx is None:
        pytest.skip("nginx is not installed: its configuration was not checked")
    written = tmp_path / "nginx.conf"
    text = re.sub(r"\bnode-\d:", "127.0.0.1:", _text("nginx.conf"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "".join(f"{kind}_temp_path {tmp_path}/{kind}; " for kind in kinds)
    written.write_text(text.replace("http {", f"pid {tmp_path}/pid;\nhttp {{ {own}"))
    call = [nginx, "-t", "-q", "-e", f"{tmp_path}/log", "-c", str(written)]
    checked = subprocess.run(call, capture_output=True, text=True, timeout=_CHECK_S)

    assert (checked.returncode, checked.stderr) == (0, "")
