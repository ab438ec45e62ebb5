"""Writes `docs/harness-matrix.md` and `docs/harness-matrix.json` from the manifests of harnesses and endpoints."""

from __future__ import annotations

from pathlib import Path

from makai.harness.matrix_page import matrix_json, matrix_markdown

DIRECTORY = Path(__file__).resolve().parent.parent / "docs"
PAGES = {"harness-matrix.md": matrix_markdown, "harness-matrix.json": matrix_json}
"""File below `docs/` -> what makes it."""


def main() -> None:
    for name, make in PAGES.items():
        (DIRECTORY / name).write_text(make(), encoding="utf-8")
        print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
