"""Hooks of the documentation site (mkdocs.yml): pages of the repository's root, and links that leave docs/.

A page in docs/ links to files of the repository as they are seen in a checkout. On the site, links to the pages of the
root lead to their copies below project/; links to programs and schemas lead to copies below files/.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent
ROOT_PAGES: Final = ("ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
_copied: dict[str, Path] = {}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root, and every file that a page links to."""
    _copied.clear()
    for name in ROOT_PAGES:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text(encoding="utf-8")))
    for file in list(files.documentation_pages()):
        for _, target, _ in _LINK.findall(_FENCE.sub("", file.content_string)):
            if path := _outside(file.src_uri, target):
                _copied[path] = ROOT / path
    for path, source in _copied.items():
        if source.is_file():
            text = source.read_text(encoding="utf-8")
            files.append(File.generated(config, f"files/{path}{_suffix(path)}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _rewritten(part, page.file.src_uri) for part in parts)


def _rewritten(text: str, page: str) -> str:
    def replace(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        path = _outside(page, target)
        if path is None:
            return match[0]
        here = posixpath.dirname(page)
        if path in ROOT_PAGES:
            return f"[{words}]({posixpath.relpath(f'project/{path}', here or '.')}{anchor})"
        if path.startswith("docs/"):  # a page of the root links into docs/
            return f"[{words}]({posixpath.relpath(path.removeprefix('docs/'), here or '.')}{anchor})"
        if (ROOT / path).is_file():
            return f"[{words}]({posixpath.relpath(f'files/{path}{_suffix(path)}', here or '.')})"
        return words  # a folder of the repository has no page

    return _LINK.sub(replace, text)


def _outside(page: str, target: str) -> str | None:
    """The path in the repository of a link that leaves docs/; None for every other link."""
    if "://" in target or target.startswith(("/", "#", "mailto:")):
        return None
    origin = page.removeprefix("project/") if page.startswith("project/") else f"docs/{page}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    is_inside = path.startswith("docs/") and not page.startswith("project/")
    return None if is_inside or path.startswith("..") else path


def _suffix(path: str) -> str:
    """Markdown files that are copied as they are must not become pages."""
    return ".txt" if path.endswith((".md", ".py", ".ts", ".proto")) else ""
