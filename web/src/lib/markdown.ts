// Markdown as blocks of safe HTML. In: what a model wrote. Out: blocks the page draws one by one, so that a growing
// text costs only its last block. Raw HTML is shown as text, images are not loaded, and only web and mail links work.
import DOMPurify from "dompurify";
import { Marked, type Token, type Tokens } from "marked";

export type Block =
  | { kind: "html"; raw: string; html: string }
  | { kind: "code"; raw: string; language: string; text: string }
  /** Too long to be laid out as prose in reasonable time: shown as it was written. */
  | { kind: "plain"; raw: string; text: string };

/** A line this long is no prose; parsing its inline marks could freeze the page. */
const MAX_LINE = 16_384;
/** Quotes and lists nested this deep, and runs of marks this long, are no prose either: parsing them is quadratic. */
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+]|\d{1,9}[.)])){24}|^[ \t]{96,}(?:>|[-*+]|\d{1,9}[.)])|([*_~[\](!<`\\])\1{199}/;
/** Too short to be any of that. */
const SHORT_TEXT = 24;
/** A paragraph, list or table longer than this is shown as it was written. */
const MAX_BLOCK = 65_536;
const MAX_TABLE_ROWS = 300;
const SAFE_LINK = /^(?:https?:\/\/|mailto:)/i;
const SAFE_IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

const TAGS = (
  "p br hr em strong del code pre a ul ol li blockquote h3 table thead tbody tr th td span img"
).split(" ");
const ATTRIBUTES = ["href", "title", "align", "start", "class", "rel", "target", "src", "alt", "role", "aria-label"];

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html: ({ text }) => escapeHtml(text),
    checkbox: ({ checked }) =>
      `<span class="task${checked ? " done" : ""}" role="img" aria-label="${checked ? "done" : "to do"}"></span>`,
    heading({ tokens, depth }) {
      return `<h3 class="h-${depth}">${this.parser.parseInline(tokens)}</h3>\n`;
    },
    tablecell(token) {
      // A header without words is no header.
      return token.header && !token.tokens.length ? "<td></td>\n" : false;
    },
    image: ({ href, text }) => image(href, text),
    link({ href, tokens }) {
      return link(href, this.parser.parseInline(tokens));
    },
    table(token) {
      if (token.rows.length <= MAX_TABLE_ROWS) return false;
      const shown = { ...token, rows: token.rows.slice(0, MAX_TABLE_ROWS) };
      const more = `<p class="more">${token.rows.length - MAX_TABLE_ROWS} more rows are not shown; copy the answer to get them.</p>`;
      return this.parser.parse([shown]) + more;
    },
  },
});

/** All blocks of a text that is complete. */
export function renderMarkdown(text: string): Block[] {
  const blocks: Block[] = [];
  for (const segment of segmentsOf(text.replaceAll("\r", ""))) {
    if (segment.plain) blocks.push(plainBlock(segment.text));
    else addParsed(blocks, segment.text);
  }
  return blocks;
}

/** One part of a text. What the parser cannot take is shown as it was written: it must not take other parts with it. */
function addParsed(blocks: Block[], text: string): void {
  const before = blocks.map((block) => ({ ...block }));
  try {
    for (const token of marked.lexer(text)) add(blocks, token);
  } catch {
    blocks.splice(0, blocks.length, ...before, plainBlock(text));
  }
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

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** Blank lines and link definitions belong to the block before them: the blocks' raw texts add up to the whole. */
function add(blocks: Block[], token: Token): void {
  const last = blocks.at(-1);
  if (token.type !== "space" && token.type !== "def") blocks.push(blockOf(token));
  else if (last) last.raw += token.raw;
  else blocks.push({ kind: "html", raw: token.raw, html: "" });
}

function blockOf(token: Token): Block {
  if (token.type === "code") {
    const { text, lang } = token as Tokens.Code;
    return { kind: "code", raw: token.raw, language: /^[\w+#.-]*/.exec(lang ?? "")?.[0] ?? "", text };
  }
  if (token.raw.length > MAX_BLOCK && token.type !== "table") return plainBlock(token.raw);
  return { kind: "html", raw: token.raw, html: clean(marked.parser([token])) };
}

function plainBlock(text: string): Block {
  return { kind: "plain", raw: text, text };
}

function clean(html: string): string {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ATTRIBUTES, ALLOW_DATA_ATTR: false });
}

function link(href: string, inner: string): string {
  if (!SAFE_LINK.test(href)) return inner;
  const address = escapeHtml(href);
  return `<a href="${address}" title="${address}" rel="noopener noreferrer" target="_blank">${inner}</a>`;
}

function image(href: string, text: string): string {
  const name = escapeHtml(text || "image");
  if (SAFE_IMAGE.test(href)) return `<img src="${escapeHtml(href)}" alt="${name}">`;
  return link(href, `Image: ${name}`);
}

interface Segment {
  plain: boolean;
  text: string;
}

/** Lines that would take the parser too long stand alone, unless they are code: it must not see them. */
function segmentsOf(text: string): Segment[] {
  if (text.length <= SHORT_TEXT) return [{ plain: false, text }];
  const found: Segment[] = [];
  let fence = "";
  for (const line of text.split(/(?<=\n)/)) {
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence ? mark.startsWith(fence) && line.trim() === mark : mark) fence = fence ? "" : mark;
    const plain = !fence && (line.length > MAX_LINE || TOO_DEEP.test(line));
    const last = found.at(-1);
    if (last && last.plain === plain) last.text += line;
    else found.push({ plain, text: line });
  }
  return found;
}
