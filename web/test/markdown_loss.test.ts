import { describe, expect, test } from "vitest";
import { GrowingMarkdown, renderMarkdown, type Block } from "../src/lib/markdown/blocks";
import { elementOf } from "./shown";

/** What a reader sees: the text of the elements, and the addresses that links show when they are pointed at. */
function seen(blocks: Block[]): string {
  return blocks
    .map((block) => {
      if (block.kind === "code" || block.kind === "plain") return (block.kind === "code" ? block.info : "") + block.text;
      const element = elementOf(block);
      const addresses = [...element.querySelectorAll("a")].map((link) => link.title);
      return (element.textContent ?? "") + addresses.join(" ");
    })
    .join("\n");
}

const visible = (text: string): string => text.replace(/\s+/g, "");

/** Characters of `wanted` that are not in `found`, counted. */
function missing(wanted: string, found: string): string {
  const left = new Map<string, number>();
  for (const character of visible(found)) left.set(character, (left.get(character) ?? 0) + 1);
  return [...visible(wanted)]
    .filter((character) => {
      const count = left.get(character) ?? 0;
      left.set(character, count - 1);
      return count < 1;
    })
    .join("");
}

/** A generator of numbers that is the same in every run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

describe("what a model wrote is shown", () => {
  test.each([
    ["Vec<String> and <div>", "Vec<String> and <div>"],
    ["a <!-- remark --> b", "a <!-- remark --> b"],
    ["<div>\n**raw**\n</div>", "<div>\n**raw**\n</div>"],
    ["- <details>\n  x\n  </details>", "<details>x</details>"],
    ["[a](https://x.example 'title')", "ahttps://x.example title"],
    ["[a](file:///etc/x)", "afile:///etc/x"],
    ["[a](b/c.md)", "ab/c.md"],
    ["![alt](p.png)", "altp.png"],
    ["[a][1]\n\n[1]: https://x.example \"t\"", "a https://x.example t"],
    ["[1]: https://unused.example\n\nwords", "[1]: https://unused.example words"],
    ["Told.[^1]\n\n[^1]: by whom", "Told.[^1] by whom"],
    ["&lt;b&gt; \\*no\\*", "<b> *no*"],
    ["```rust no_run\nlet x;\n```", "rust no_run let x;"],
    ["| a | b |\n|---|---|\n| 1 |\n| 1 | 2 | three |", "a b 1 1 2 three"],
    ["1. one\n   - in\n\n     more", "one in more"],
  ])("%j", (source, wanted) => {
    expect(missing(wanted, seen(renderMarkdown(source)))).toBe("");
  });

  test("no letter is lost from characters of Markdown in any order, however they arrive", () => {
    const alphabet = [..."aZé世 \n\n  12*_#>-+.|:[]()<>!\"'\\~=`&;/"];
    for (let seed = 1; seed <= 150; seed += 1) {
      const next = numbers(seed);
      const source = Array.from({ length: next(120) }, () => alphabet[next(alphabet.length)]).join("");
      const letters = source.replace(/[^a-zA-Zé世]/g, "");
      expect({ source, lost: missing(letters, seen(renderMarkdown(source))) }).toEqual({ source, lost: "" });
      const growing = new GrowingMarkdown();
      growing.update(source.slice(0, next(source.length + 1)));
      expect({ source, lost: missing(letters, seen(growing.update(source))) }).toEqual({ source, lost: "" });
    }
  }, 60_000);
});
