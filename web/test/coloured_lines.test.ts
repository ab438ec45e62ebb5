import { describe, expect, test } from "vitest";
import { colouredLines, languageOf, linePieces, piecesOf } from "../src/lib/coloured_lines";

describe("lines in colour", () => {
  test("keep their text, with every class they stand in", async () => {
    const lines = await colouredLines('def f():\n    return "<b>&amp;</b>"\n', "/project/a.py");
    expect(lines?.map((line) => line.map((piece) => piece.text).join(""))).toEqual(
      ["def f():", '    return "<b>&amp;</b>"', ""],
    );
    expect(lines?.[0]?.[0]).toEqual({ text: "def", style: "hljs-keyword" });
  });

  test("carry a class over the end of a line", () => {
    expect(piecesOf('<span class="hljs-string">"a\nb<span class="hljs-subst">c</span></span>d')).toEqual([
      [{ text: '"a', style: "hljs-string" }],
      [{ text: "b", style: "hljs-string" }, { text: "c", style: "hljs-string hljs-subst" }, { text: "d", style: "" }],
    ]);
  });

  test("mark changed words across pieces, and spell out what is hidden", () => {
    const coloured = [{ text: "let ", style: "k" }, { text: "a\u202eb", style: "" }];
    expect(linePieces("let a\u202eb", coloured, [[2, 5]])).toEqual([
      { text: "le", style: "k" },
      { text: "t ", style: "k word" },
      { text: "a", style: "word" },
      { text: "\\u202e", style: "hidden-character" },
      { text: "b", style: "" },
    ]);
  });

  test("are plain when the colours are of another text", () => {
    expect(linePieces("truth", [{ text: "lie", style: "k" }], [])).toEqual([{ text: "truth", style: "" }]);
  });

  test("are plain in a language that is not known and in a text that is too long", async () => {
    expect(await colouredLines("x", "/project/notes.unknown")).toBeNull();
    expect(await colouredLines("x = 1\n".repeat(30_000), "/project/a.py")).toBeNull();
    expect([languageOf("/a.b/Makefile"), languageOf("x/Y.TS")]).toEqual(["makefile", "ts"]);
  });
});
