"""What is attached to a message, by names for people. Pure."""

from __future__ import annotations

from urllib.parse import unquote

from makai.core.content import Audio, Image, Resource, ResourceLink, SessionPart, Text


def attached_names(content: str | tuple[SessionPart, ...]) -> list[str]:
    """What is attached to a text, by names for people: `[notes.txt, 12 lines]`, `[image]`."""
    parts = () if isinstance(content, str) else content
    return [f"[{_attached_name(part)}]" for part in parts if not isinstance(part, Text)]


def _attached_name(part: Image | Audio | Resource | ResourceLink) -> str:
    match part:
        case Resource(uri=uri, text=text):
            name = unquote(uri.rstrip("/").rpartition("/")[2] or uri)
            count = len((text or "").splitlines())
            return f"{name}, {count} line{'' if count == 1 else 's'}"
        case ResourceLink(uri=uri, name=name):
            return name or uri
        case Image():
            return "image"
        case Audio():
            return "audio"
