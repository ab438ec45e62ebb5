import { describe, expect, test } from "vitest";
import { pictureOf } from "../src/lib/diagrams";
import { renderMarkdown } from "../src/lib/markdown/blocks";
import { linkNotes } from "../src/lib/markdown/draw";
import { elementsOf } from "../src/lib/markdown/safe";
import { elementOf } from "./shown";

function page(text: string): HTMLElement {
  const prose = document.createElement("div");
  prose.append(...renderMarkdown(text).map(elementOf));
  return prose;
}

describe("formulas", () => {
  test.each([
    ["$x$ and $y_1 + 2$.", ["$x$", "$y_1 + 2$"]],
    ["$\\a$, $x\\$y$ $2 \\sin x$", ["$\\a$", "$x\\$y$", "$2 \\sin x$"]],
    ["\\(a\\), \\[b\\], $$c$$", ["\\(a\\)", "\\[b\\]", "$$c$$"]],
    ["$$\na\n+ b\n= c\n$$", ["$$\na\n+ b\n= c\n$$"]],
    ["Text before\n\\[\n- a\n\\]\nand after", ["\\[\n- a\n\\]"]],
    ["- item\n\n  $$\n  a\n  $$", ["$$\na\n$$"]],
    ["*$a$* and **$b$**", ["$a$", "$b$"]],
    ["|a|\n|-|\n|$x^2$|", ["$x^2$"]],
  ])("are found: %j", (text, found) => {
    expect([...page(text).querySelectorAll(".math")].map((each) => each.textContent)).toEqual(found);
  });

  test.each([
    ["$5 and $6"], ["from $5 to $10."], ["US$20 or A$30"], ["$HOME/$USER"], ["$HOME and $PATH"], ["`$x$`"], ["\\$x\\$"],
    ["$5 a month or 60$"], ["a $ b $ c"], ["$$"], ["$ x$"], ["$x $"], ["$a\n\nb$"], ["$$a\n\nb$$"], ["a$b$c"], ["$1,000-$2,000"],
  ])("money, shell variables and code are none: %j", (text) => {
    expect(page(text).querySelectorAll(".math")).toHaveLength(0);
  });
});

describe("footnotes", () => {
  const text = "Told.[^1] And [^a-z] is a class.\n\n[^1]: by *whom*\n[^2]: unused";

  test("can be followed there and back, and what is no footnote stays as it was written", () => {
    const prose = page(text);
    linkNotes(prose);
    linkNotes(prose);
    expect([...prose.querySelectorAll(".note-mark")].map((mark) => mark.textContent)).toEqual(["1", "[^a-z]"]);
    expect([...prose.querySelectorAll("button")].map((button) => button.ariaLabel)).toEqual([
      "Footnote 1",
      "Back to the mark of footnote 1",
    ]);
    expect([...prose.querySelectorAll(".note")].map((note) => note.textContent?.trim())).toEqual(["1. by whom ↩", "2. unused"]);
  });

  test("no element has an id, so two answers never share one", () => {
    expect(page(`${text}\n\n# One\n\n# One`).querySelectorAll("[id]")).toHaveLength(0);
  });
});

test("an alert of GitHub has its title and no mark", () => {
  expect(page("> [!WARNING]\n> Careful.").querySelector(".alert.warning")?.textContent?.split(/\s+/)).toEqual([
    "WarningCareful.",
    "",
  ]);
});

describe("markup that our renderer did not make", () => {
  test.each([
    ["<script>x</script>"], ["<p onclick='x'>y</p>"], ["<p style='color:red'>y</p>"], ["<svg><p>y</p></svg>"],
    ["<math><mi>y</mi></math>"], ["<a href='javascript:x'>y</a>"], ["<a href='/x'>y</a>"], ["<img src='https://x.example/'>"],
    ["<p id='composer'>y</p>"], ["<!-- y -->"], ["<iframe></iframe>"], ["<form></form>"], ["<p><b>y</b></p>"],
    ["<img src='data:image/svg+xml;base64,AA'>"], ["<template><p>y</p></template>"],
  ])("is shown as text: %s", (html) => {
    const element = document.createElement("div");
    element.append(elementsOf(html));
    expect([element.childElementCount, element.textContent]).toEqual([0, html]);
  });
});

describe("what the frame of diagrams says", () => {
  test("is a picture within bounds, or a sentence", () => {
    expect(pictureOf({ svg: "<svg/>", width: 10, height: 20 })).toEqual({
      address: "data:image/svg+xml;charset=utf-8,%3Csvg%2F%3E",
      width: 10,
      height: 20,
    });
    expect(() => pictureOf({ error: "Parse error on line 2" })).toThrow("Parse error on line 2");
    for (const wrong of [{ width: 1e9 }, { width: NaN }, { height: -1 }, { svg: 5 }, { svg: "x".repeat(3_000_000) }]) {
      expect(() => pictureOf({ svg: "<svg/>", width: 1, height: 1, ...wrong })).toThrow("too large");
    }
  });
});
