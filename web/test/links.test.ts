import { describe, expect, test } from "vitest";
import { textPieces } from "../src/lib/links";

const links = (text: string): string[] => textPieces(text).flatMap(({ href }) => href ?? []);

describe("web addresses in plain text", () => {
  test.each([
    ["see https://a.example/b?c=d#e.", ["https://a.example/b?c=d#e"]],
    ["(http://localhost:5173/) and [x](https://b.example/a_(b))", ["http://localhost:5173/", "https://b.example/a_(b)"]],
    ['<a href="https://c.example">', ["https://c.example"]],
    ["**https://d.example/**, 'https://e.example/?'", ["https://d.example/", "https://e.example/"]],
    ["javascript:alert(1) file:///etc/passwd //x.example http:// nothttps://f.example", []],
    ["https://gооd.example/ https://g\u200bood.example", []],
    ["在 https://a.example/看。https://b.example。", ["https://a.example/", "https://b.example"]],
  ])("are found, and nothing else: %s", (text, found) => {
    expect(links(text)).toEqual(found);
    expect(textPieces(text).map((piece) => piece.text).join("")).toBe(text);
  });

  test("are found in a long line in bounded time", () => {
    const text = "https://a".repeat(20_000) + ")".repeat(20_000);
    expect(textPieces(text).map((piece) => piece.text).join("")).toBe(text);
  });
});
