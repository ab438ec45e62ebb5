"""A strict reader of the Prometheus text format, version 0.0.4."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE: Final = re.compile(rf'({_NAME})(?:\{{((?:{_NAME}="(?:[^"\\\n]|\\[\\n"])*",?)+)\}})? (\S+)')
_LABEL: Final = re.compile(rf'({_NAME})="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {r"\\": "\\", r"\n": "\n", r"\"": '"'}


def read_metrics(text: str) -> dict[str, float]:
    """Samples by name and labels, as `name{label=value}`. Fails for anything that is not the format: a line that is no
    sample, a sample without HELP and TYPE before it, one that appears twice."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert line.split(" ")[2] not in kinds, line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram")
            kinds[name] = kind
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            name, labels, value = sample.groups()
            assert name in kinds or re.sub("_(bucket|sum|count)$", "", name) in kinds, line
            pairs = [
                (label, re.sub(r"\\.", lambda one: _ESCAPES[one[0]], text))
                for label, text in _LABEL.findall(labels or "")
            ]
            key = name + ("{" + ",".join(f"{label}={text}" for label, text in pairs) + "}" if pairs else "")
            assert key not in found, line
            found[key] = float(value)
    return found
