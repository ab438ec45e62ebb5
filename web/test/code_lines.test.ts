import { expect, test } from "vitest";
import { countLines, firstLines, htmlLines } from "../src/lib/code_lines";

test("lines are counted and the first of them taken", () => {
  expect([countLines("a"), countLines("a\nb\n"), firstLines("a\nb\nc", 2), firstLines("a\nb", 5)]).toEqual([1, 3, "a\nb", "a\nb"]);
});

test("highlighted code is cut into lines that are markup of their own", () => {
  expect(htmlLines('<span class="a">x\n<span class="b">y\nz</span></span>\nend')).toEqual([
    '<span class="a">x</span>',
    '<span class="a"><span class="b">y</span></span>',
    '<span class="a"><span class="b">z</span></span>',
    "end",
  ]);
});
