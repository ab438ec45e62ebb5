import { describe, expect, test } from "vitest";
import { cpuMs } from "./cpu";
import { GrowingMarkdown, markdownParts, renderMarkdown } from "../src/lib/markdown/blocks";
import { markupOf } from "./shown";

const html = (text: string): string => renderMarkdown(text).map(markupOf).join("");

describe("markdown", () => {
  test("becomes blocks whose raw texts add up to the whole", () => {
    const text = "# Title\n\nSome *words*.\n\n- one\n\n- two\n\n```python\nprint(1)\n```\n\nlast";
    const blocks = renderMarkdown(text);
    expect(blocks.map((block) => block.kind)).toEqual(["html", "html", "html", "code", "html"]);
    expect(blocks.map((block) => block.raw).join("")).toBe(text);
    expect(blocks[3]).toMatchObject({ language: "python", text: "print(1)" });
  });

  test.each([
    ["<script>alert(1)</script>"],
    ["<img src=x onerror=alert(1)>"],
    ["[x](javascript:alert(1))"],
    ["[x](JaVaScRiPt:alert(1))"],
    ["[x](data:text/html;base64,PHNjcmlwdD4=)"],
    ["[x](vbscript:x)"],
    ["<a href='javascript:alert(1)'>x</a>"],
    ["![x](javascript:alert(1))"],
    ['![x](data:image/svg+xml;base64,PHN2Zz4=)'],
    ["<style>*{display:none}</style>"],
    ["<iframe src='//evil.example'></iframe>"],
    ['<p style="position:fixed">x</p>'],
    ["[x](https://a.example/\"onmouseover=alert(1))"],
    ["<svg onload=alert(1)>"],
  ])("never becomes something that runs or hides: %s", (text) => {
    const page = document.createElement("div");
    page.innerHTML = html(text);
    for (const element of page.querySelectorAll("*")) {
      expect(["P", "A", "SPAN", "EM"]).toContain(element.tagName);
      for (const name of element.getAttributeNames()) expect(["href", "title", "rel", "target"]).toContain(name);
      expect(element.getAttribute("href") ?? "https://").toMatch(/^https:/);
    }
  });

  test.each([
    ["2*3*4", "2*3*4"],
    ["2**10**3 and a*b*c", "2**10**3 and a*b*c"],
    ["*one*, **two**s and (*three*)", "<em>one</em>, <strong>two</strong>s and (<em>three</em>)"],
    ["这是**重点**内容", "这是<strong>重点</strong>内容"],
  ])("shows asterisks inside a word, and reads those around one: %s", (text, shown) => {
    expect(html(text)).toBe(`<p>${shown}</p>\n`);
  });

  test("opens links in a tab that cannot reach this one", () => {
    expect(html("[docs](https://example.org)")).toContain('rel="noopener noreferrer"');
    expect(html("[docs](https://example.org)")).toContain('target="_blank"');
  });

  test("loads no image from elsewhere, but shows a link to it", () => {
    const shown = html("![chart](https://tracker.example/p.png)");
    expect(shown).not.toContain("<img");
    expect(shown).toContain('href="https://tracker.example/p.png"');
    expect(html("![dot](data:image/png;base64,iVBOR)")).toContain("<img");
  });

  test("reads the marks around a very long word, and shows an image of some kilobytes", () => {
    const word = "x".repeat(4000);
    expect(html(`This is **one** and **two**. ${word} and *three*`)).toBe(
      `<p>This is <strong>one</strong> and <strong>two</strong>. ${word} and <em>three</em></p>\n`,
    );
    const href = `data:image/png;base64,${"iVBOR/+=".repeat(500)}`;
    expect(html(`A **dot**: ![a dot](${href}) here`)).toBe(
      `<p>A <strong>dot</strong>: <img src="${href}" alt="a dot"> here</p>\n`,
    );
    expect(html(`![x](javascript:${word})`)).not.toContain("<img");
  });

  test("shows a megabyte in one line, and a huge table, in bounded time", () => {
    const start = cpuMs();
    const line = "*a_[b](".repeat(150_000);
    expect(renderMarkdown(`before\n\n${line}\n\nafter`).map((block) => block.kind)).toEqual(["html", "plain", "html"]);
    const table = `|a|b|\n|-|-|\n${"|1|2|\n".repeat(20_000)}`;
    expect(html(table).match(/<tr>/g)?.length).toBe(20_001);
    expect(cpuMs() - start).toBeLessThan(3000);
  });

  test("keeps long lines inside a fence as code", () => {
    const code = "x".repeat(40_000);
    const blocks = renderMarkdown("```js\n" + code + "\n```\n");
    expect(blocks).toEqual([{ kind: "code", raw: expect.anything(), language: "js", info: "js", text: code }]);
  });
});

describe("a growing text", () => {
  const text = "# T\n\npara one\ngoes on\n\n1. a\n\n2. b\n\n```js\nlet x;\n\nlet y;\n```\n\n|a|b|\n|-|-|\n|1|2|\n\nend";

  test("ends as the same blocks as the complete text, however it arrived", () => {
    for (const step of [1, 2, 3, 7, 50]) {
      const growing = new GrowingMarkdown();
      let blocks = growing.update("");
      for (let at = step; at < text.length + step; at += step) blocks = growing.update(text.slice(0, at));
      expect(blocks).toEqual(renderMarkdown(text));
    }
  });

  test("keeps the objects of finished blocks", () => {
    const growing = new GrowingMarkdown();
    const first = growing.update("one\n\ntwo\n\nthr");
    const second = growing.update("one\n\ntwo\n\nthree\n\nfour");
    expect(second[0]).toBe(first[0]);
    expect(second[1]).toBe(first[1]);
    expect(second).toHaveLength(4);
  });
});

describe("what no parser should see", () => {
  test.each([
    ["deep quotes", "> ".repeat(5000) + "deep"],
    ["deep lists", "- ".repeat(5000) + "deep"],
    ["a run of stars", "*".repeat(16_000)],
    ["brackets", "[".repeat(5000)],
    ["lists indented further and further", Array.from({ length: 500 }, (_, at) => " ".repeat(at * 2) + "- x").join("\n")],
  ])("%s are shown as written, quickly, and what follows is laid out", (_, text) => {
    const start = cpuMs();
    const blocks = renderMarkdown(`${text}\n\n**after**`);
    expect(cpuMs() - start).toBeLessThan(2000);
    expect(blocks.at(-1)).toMatchObject({ kind: "html", html: "<p><strong>after</strong></p>\n" });
    expect(blocks.map((block) => block.raw).join("")).toBe(`${text}\n\n**after**`);
  });
});

describe("any text", () => {
  const fill = (piece: string, length: number): string => piece.repeat(Math.ceil(length / piece.length)).slice(0, length);
  const wide = (length: number): string =>
    `|${"a|".repeat(length / 8)}\n|${"-|".repeat(length / 8)}\n${"|\n".repeat(length / 4)}`;
  const PIECES = [
    "*a ", "*a_b ", "**a *b ", "*a\n", "_a ", "~a ", "a* ", "*a_[b](", "[a](", "[a](b ", "[a][b] ", "![a](", "[a ", "a] ",
    "`a ", "``a ` ", "<a ", "<a b='", "<http://", "http://a.", "www.a", "a@b.", "a.b-c_", "a.b-c", "\\*", "&a;&#",
    "<b>x</b> ", "<div>\n", "<!-- ", "<!--\n\n", "- a\n", "1. a\n", "- a\n  - b\n    - c\n", "- a\n\n", "> a\n", ">a\nb\n",
    "- [ ] a\n", "# a\n", "a\n=\n", "***\n", "[a]: b\n", "[a]: <b 'c\n", "```\n", "~~~a\n```\n", "    a\n", "\n", " \n",
    "a  \n", "a\n", "a\n\n", "word ", "a", "1", "- - ", "|", "a|b\n", "-\ta\n", " ", "\u00a0", "[^a]: b\n", "> - a\n",
    "* *a\n", "~~a", "__a", "*.,", "*a*", "***a***b", "|a|b|\n|-|-|\n|1|2|\n\n", "> |a|b|\n> |-|-|\n> |1|2|\n",
    "|a|b|\n|-|-|\n" + "|1|2|\n".repeat(400), "- a\n" + "b\n".repeat(400), "- a\n" + "\n  b\n".repeat(200),
    wide(8_000), "> " + wide(4_000).replaceAll("\n", "\n> "), "- " + wide(4_000).replaceAll("\n", "\n  "),
  ];

  /** CPU time of the slowest part and of all of them. Blocks must add up to the text. */
  function measured(text: string): { slowest: number; all: number } {
    const parts = markdownParts(text);
    const begun = cpuMs();
    let slowest = 0;
    let raw = "";
    for (;;) {
      const start = cpuMs();
      const { value, done } = parts.next();
      slowest = Math.max(slowest, cpuMs() - start);
      if (done) break;
      raw += value.map((block) => block.raw).join("");
    }
    expect(raw.length).toBe(text.length);
    return { slowest, all: cpuMs() - begun };
  }

  test.each(PIECES.map((piece) => [piece.slice(0, 24), piece]))("is read in bounded steps: %j", (_, piece) => {
    measured(fill(piece, 2_000)); // the first time is not typical
    const { slowest, all } = measured(fill(piece, 50_000));
    expect(slowest).toBeLessThan(500);
    expect(all).toBeLessThan(12_000); // most of it is the sanitiser on a DOM in JavaScript
  }, 60_000);

  test("of a megabyte is read in time that grows with its length only", () => {
    for (const piece of ["*a_[b](\n", "- a\n", "a\n\n", "> a\n\n", "|a|b|\n|-|-|\n|1|2|\n\n"]) {
      expect(measured(fill(piece, 1_000_000)).all).toBeLessThan(15_000);
    }
  }, 120_000);

  test("with a table of thousands of columns is shown as it was written", () => {
    const [block, ...more] = renderMarkdown(wide(50_000));
    expect(more).toEqual([]);
    expect(block?.kind).toBe("plain");
  });

  test("keeps all rows where a long table follows other blocks", () => {
    const blocks = renderMarkdown(`Intro:\n\n|a|b|\n|-|-|\n${"|1|2|\n".repeat(5_000)}\nafter`);
    expect(blocks.map((block) => block.kind)).toEqual(["html", "table", "html"]);
    expect(blocks[1]).toMatchObject({ table: { header: ["a", "b"], rows: Array(5_000).fill("|1|2|") } });
  });

  test("that grows to a megabyte without an end of its block is read in bounded time", () => {
    for (const piece of ["*a_[b](\n", "- a\n", "word "]) {
      const text = fill(piece, 1_000_000);
      const growing = new GrowingMarkdown();
      let slowest = 0;
      for (let at = 100_000; at <= text.length; at += 100_000) {
        const start = cpuMs();
        growing.update(text.slice(0, at));
        slowest = Math.max(slowest, cpuMs() - start);
      }
      expect(slowest).toBeLessThan(1_500);
    }
  }, 120_000);
});
