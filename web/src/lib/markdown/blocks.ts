// Markdown as blocks. In: what a model wrote. Out: blocks the page draws one by one, so that a growing text costs only
// its last blocks. `markdownParts` lets its caller pause between two of them.
import type { Token, Tokens } from "marked";
import { htmlOf, tokensOf } from "./parser";
import { partsOf, type Part } from "./parts";
import { escapeHtml } from "./safe";
import { tableOf, type Table } from "./table";

export type Block =
  /** Markup in which everything the model wrote is escaped; `elementsOf` is the way to show it. */
  | { kind: "html"; raw: string; html: string }
  | { kind: "table"; raw: string; table: Table }
  /** `info` is what stands after the fence: the language, and what else the model wrote there. */
  | { kind: "code"; raw: string; language: string; info: string; text: string }
  /** Too long to be laid out as prose in reasonable time: shown as it was written. */
  | { kind: "plain"; raw: string; text: string };

/** Blocks that are drawn; the rest of the text is one plain block. */
const MAX_BLOCKS = 1_000;

/** All blocks of a text that is complete. */
export function renderMarkdown(text: string): Block[] {
  return [...markdownParts(text)].flat();
}

/** The blocks of a complete text, some at a time; each step takes a bounded time. */
export function* markdownParts(text: string): Generator<Block[]> {
  const parts = partsOf(text.replaceAll("\r", ""));
  let count = 0;
  let last: Block | null = null;
  for (const [at, part] of parts.entries()) {
    if (count >= MAX_BLOCKS) {
      if (last) yield [last];
      yield [plainBlock(parts.slice(at).map((each) => each.text).join(""))];
      return;
    }
    for (const block of blocksOf(part)) {
      // Blank lines belong to the block before them: the blocks' raw texts add up to the whole.
      if (last && block.kind === "html" && !block.html) {
        last.raw += block.raw;
        continue;
      }
      if (last) yield [last];
      last = block;
      count += 1;
    }
  }
  if (last) yield [last];
}

/** What the parser cannot take is shown as it was written: it must not take other parts with it. */
function* blocksOf(part: Part): Generator<Block> {
  if (part.kind === "plain") {
    yield plainBlock(part.text);
    return;
  }
  if (part.kind === "table") {
    yield { kind: "table", raw: part.text, table: tableOf(part.text) };
    return;
  }
  let tokens: Token[];
  try {
    tokens = tokensOf(part.text);
  } catch {
    yield plainBlock(part.text);
    return;
  }
  for (const token of tokens) yield blockOf(token);
}

/**
 * A text that grows at its end. All but its last two blocks are kept as they are, and what is still open is parsed
 * again: after "1. a" a new "2" looks like a paragraph until its full stop makes it part of the list.
 * Unchanged blocks are the same objects, so a keyed list redraws only what changed.
 */
export class GrowingMarkdown {
  private done: Block[] = [];
  private tail: Block[] = [];
  private open = "";
  private length = 0;

  /** Takes the text so far. One that is shorter than the last starts again. */
  update(text: string): Block[] {
    if (text.length < this.length) {
      this.done = [];
      this.tail = [];
      this.open = "";
      this.length = 0;
    }
    this.open += text.slice(this.length).replaceAll("\r", "");
    this.length = text.length;
    const blocks = renderMarkdown(this.open).map((block, at) => {
      const before = this.tail[at];
      return before?.raw === block.raw && before.kind === block.kind ? before : block;
    });
    const finished = blocks.slice(0, -2);
    this.done.push(...finished);
    this.open = this.open.slice(finished.reduce((sum, block) => sum + block.raw.length, 0));
    this.tail = blocks.slice(-2);
    return [...this.done, ...this.tail];
  }
}

function blockOf(token: Token): Block {
  if (token.type === "code") {
    const { text, lang } = token as Tokens.Code;
    return { kind: "code", raw: token.raw, language: /^[\w+#.-]*/.exec(lang ?? "")?.[0] ?? "", info: lang ?? "", text };
  }
  if (token.type === "grid") return { kind: "table", raw: token.raw, table: tableOf(token.raw) };
  if (token.type === "space") return { kind: "html", raw: token.raw, html: "" };
  // A definition is text, too: it may be used by no link, or only by one that came before.
  if (token.type === "def") return { kind: "html", raw: token.raw, html: `<p>${escapeHtml(token.raw.trim())}</p>` };
  try {
    return { kind: "html", raw: token.raw, html: htmlOf(token) };
  } catch {
    return plainBlock(token.raw);
  }
}

function plainBlock(text: string): Block {
  return { kind: "plain", raw: text, text };
}
