"""What goes along with a message."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from makai.core.content import Image, Resource, ResourceLink, SessionPart, Text
from makai.tools.attachments import (
    MAX_NAMES,
    MAX_TEXT_BYTES,
    AttachedContent,
    DetachedContent,
    attach,
    detach,
    dragged_picture,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
PICTURE = Image(data=base64.b64encode(PNG).decode(), mime_type="image/png")


def attached(text: str, folder: Path, *others: Path) -> AttachedContent:
    return attach(text, [str(folder), *map(str, others)], {})


def test_a_text_file_goes_along_whole_and_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ä')\n")

    assert attached("Look at @a.py, and @a.py again", tmp_path) == AttachedContent(
        content=(
            Text(text="Look at @a.py, and @a.py again"),
            Resource(uri=(tmp_path / "a.py").as_uri(), text="print('ä')\n"),
        )
    )


def test_what_leads_to_nothing_stays_words(tmp_path: Path) -> None:
    text = "@pytest.fixture and me@example.org and @" + "x" * 300 + '/y and @"a\\x00b"'
    assert attached(text, tmp_path) == AttachedContent(content=text)


def test_a_large_file_and_one_that_is_no_text_go_along_as_paths(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (MAX_TEXT_BYTES + 1))
    (tmp_path / "odd").write_bytes(b"\xff\xfe\0")
    os.mkfifo(tmp_path / "pipe")

    found = attached("@large @odd @pipe", tmp_path)

    assert found.content == (
        Text(text="@large @odd @pipe"),
        ResourceLink(
            uri=(tmp_path / "large").as_uri(),
            name=str(tmp_path / "large"),
            size=65_537,
            description="65,537 bytes, not included",
        ),
        ResourceLink(
            uri=(tmp_path / "odd").as_uri(), name=str(tmp_path / "odd"), size=3, description="3 bytes, not included"
        ),
        ResourceLink(uri=(tmp_path / "pipe").as_uri(), name=str(tmp_path / "pipe")),
    )
    assert found.notices == (
        f"{tmp_path}/large has 65,537 bytes; only its path goes along, and the agent can read it.",
        f"{tmp_path}/odd is not text; only its path goes along.",
        f"{tmp_path}/pipe is not a file; only its path goes along.",
    )


def test_a_folder_goes_along_as_its_names_with_hostile_ones_written_out(tmp_path: Path) -> None:
    (tmp_path / "my dir" / "inner").mkdir(parents=True)
    (tmp_path / "my dir" / "line\nbreak\x1b").touch()

    found = attached('see @"my dir/"', tmp_path)

    assert found.content == (
        Text(text='see @"my dir/"'),
        Resource(uri=(tmp_path / "my dir").as_uri() + "/", text="inner/\nline\\nbreak\\x1b"),
    )
    for number in range(MAX_NAMES + 1):
        (tmp_path / "my dir" / f"{number:04}").touch()
    content = attached('see @"my dir/"', tmp_path).content
    assert isinstance(content[1], Resource)
    assert (content[1].text or "").split("\n")[-1] == "…"


def test_pictures_go_along_as_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    other = Image(data="AAAA", mime_type="image/png")

    found = attach("@a.png [image] [image #2]", [str(tmp_path)], {"[image]": other, "[image #3]": PICTURE})

    assert found == AttachedContent(content=(Text(text="@a.png [image] [image #2]"), other, PICTURE))


def test_a_file_outside_of_the_folders_goes_along_with_a_notice(tmp_path: Path) -> None:
    work, other, elsewhere = (tmp_path / name for name in ("work", "other", "work-secret"))
    for folder in (work, other, elsewhere):
        folder.mkdir()
        (folder / "a.txt").write_text("hi")
    (work / "link").symlink_to(elsewhere / "a.txt")

    told = f"Outside of this session's folders, attached as you named it: {elsewhere}/a.txt"

    found = attached(f"@a.txt @{other}/a.txt @../work-secret/a.txt", work, other)
    assert (len(found.content), found.notices) == (4, (told,))
    linked = attached("@link", work, other)
    assert (len(linked.content), linked.notices) == (2, (told,))


@pytest.mark.parametrize("form", ["{}", "'{}'", '"{}"', "file://{}", "  {}\n"])
def test_a_picture_that_is_dragged_onto_the_terminal_is_known_by_its_path(tmp_path: Path, form: str) -> None:
    path = tmp_path / "my pic.png"
    path.write_bytes(PNG)
    written = str(path).replace(" ", "%20") if "file:" in form else str(path)

    assert dragged_picture(form.format(written), "/") == str(path)
    assert dragged_picture(str(path).replace(" ", "\\ "), "/") == str(path)
    assert dragged_picture("my pic.png", str(tmp_path)) == "my pic.png"


def test_other_pasted_text_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi")
    pasted = ["", "a.txt", "none.png", str(tmp_path), "a\nb", "x" * 5_000, "'", "a\0b"]
    assert [dragged_picture(text, str(tmp_path)) for text in pasted] == [None] * len(pasted)


OTHER_PICTURE = Image(data="AAAA", mime_type="image/png")
OUTPUT = Resource(uri="command:ls", text="$ ls\na.py", mime_type="text/plain")


@pytest.mark.parametrize(
    ("text", "pictures"),
    [
        ("just words", {}),
        ("read @a.py and @folder/ and @pic.png", {}),
        ("[image #2] before [image]", {"[image]": PICTURE, "[image #2]": OTHER_PICTURE}),
        ("[image] before [image #2]", {"[image #2]": PICTURE, "[image]": OTHER_PICTURE}),
        ("[image] beside @a.py", {"[image]": OTHER_PICTURE}),
    ],
)
def test_an_attached_message_comes_apart_as_it_was_typed(tmp_path: Path, text: str, pictures: dict[str, Image]) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "pic.png").write_bytes(PNG)
    folders = [str(tmp_path)]
    content = attach(text, folders, pictures).content
    (tmp_path / "a.py").write_text("changed meanwhile")

    assert detach(content, folders) == DetachedContent(text=text, pictures=pictures)


def test_the_output_of_a_command_is_no_part_of_the_text_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    attached_parts = attach("why? @a.py", [str(tmp_path)], {}).content
    assert not isinstance(attached_parts, str)

    assert detach((*attached_parts, OUTPUT), [str(tmp_path)]) == DetachedContent(text="why? @a.py", others=(OUTPUT,))


@pytest.mark.parametrize(
    ("content", "text", "pictures"),
    [
        ((PICTURE,), "[image]", {"[image]": PICTURE}),
        ((Text(text="look"), PICTURE, OTHER_PICTURE), "look [image] [image #2]",
         {"[image]": PICTURE, "[image #2]": OTHER_PICTURE}),
        ((Text(text="an [image]"), PICTURE, OTHER_PICTURE), "an [image] [image #2]",
         {"[image]": PICTURE, "[image #2]": OTHER_PICTURE}),
        ((Text(text="the file @gone.png"), PICTURE), "the file @gone.png [image]", {"[image]": PICTURE}),
    ],
)  # fmt: skip
def test_a_picture_that_the_text_does_not_name_gets_a_placeholder(
    tmp_path: Path, content: tuple[SessionPart, ...], text: str, pictures: dict[str, Image]
) -> None:
    assert detach(content, [str(tmp_path)]) == DetachedContent(text=text, pictures=pictures)
