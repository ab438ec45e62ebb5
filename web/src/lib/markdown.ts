// Markdown as blocks of safe HTML. In: what a model wrote. Out: blocks the page draws one by one, so that a growing
// text costs only its last block. Raw HTML is shown as text, images are not loaded, and only web and mail links work.
//
// The parser takes quadratic time for many shapes of text, so it never sees much at once: a text is cut where a block
// surely begins, what cannot be cut is shown as it was written, and so are tables, paragraphs and lines beyond the
// limits below. `markdownParts` lets its caller pause between two parts.
import DOMPurify from "dompurify";
import { Lexer, Marked, type Token, type Tokens } from "marked";

export type Block =
  | { kind: "html"; raw: string; html: string }
  /** `info` is what stands after the fence: the language, and what else the model wrote there. */
  | { kind: "code"; raw: string; language: string; info: string; text: string }
  /** Too long to be laid out as prose in reasonable time: shown as it was written. */
  | { kind: "plain"; raw: string; text: string };

/** A line this long is no prose; parsing its inline marks could freeze the page. */
const MAX_LINE = 16_384;
/** Quotes and lists nested this deep, and runs of marks this long, are no prose either: parsing them is quadratic. */
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+]|\d{1,9}[.)])){24}|^[ \t]{96,}(?:>|[-*+]|\d{1,9}[.)])|([*_~[\](!<`\\])\1{199}/;
/** Too short to be any of that. */
const SHORT_TEXT = 24;
/** What the parser is given at a time. A list, quote or paragraph that is longer is shown as it was written. */
const MAX_PART = 16_384;
const MAX_PART_LINES = 500;
/** Marks of a paragraph, table cell or heading; with more of them it is shown without its marks being read. */
const MAX_MARKS = 600;
const MARKS = /[*_~[\]!<`\\@]/g;
/** A word this long is no word; looking for an address in it is quadratic. An image in the text is one too. */
const LONG_WORD = /[^\s*`[\]<]{1500}/;
const LONG_PIECES =
  /!\[(?<alt>[^[\]]{0,200})\]\((?<href>data:image\/(?:png|jpeg|gif|webp);base64,[\w+/=]+)\)|[^\s*`[\]<]{1500,}/g;
const MAX_TABLE_ROWS = 300;
const MAX_TABLE_COLUMNS = 64;
const MAX_TABLE_CELLS = 4_000;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\n?$/;
const MAY_CONTINUE_A_LIST = /^(?:\s|[-*+](?:\s|$)|\d{1,9}[.)](?:\s|$))/;
/** Blocks that are drawn; the rest of the text is one plain block. */
const MAX_BLOCKS = 1_000;
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
    image: ({ href, title, text }) => image(href, title ?? "", text),
    link({ href, title, tokens, raw }) {
      return link(href, title ?? "", this.parser.parseInline(tokens), !raw.startsWith("["));
    },
  },
  tokenizer: {
    // `undefined` means that this is no table, `false` that marked decides.
    table: (source) => (isPlainTable(source) ? undefined : false),
    emStrong(source, _masked, before = "") {
      const marks = /^\*+/.exec(source)?.[0] ?? "";
      if (!marks || !isInsideWord(before, source.slice(marks.length))) return false;
      return textOf(marks) as Tokens.Em; // the lexer adds any token
    },
  },
});

/** `2*3*4` is a product: marks inside a word begin no emphasis. Ideographs have no spaces between words. */
function isInsideWord(before: string, after: string): boolean {
  return LETTER_AT_END.test(before) && LETTER_AT_START.test(after) && !IDEOGRAPH.test(before + (after[0] ?? ""));
}
const LETTER_AT_END = /[\p{L}\p{N}]$/u;
const LETTER_AT_START = /^[\p{L}\p{N}]/u;
const IDEOGRAPH = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u;

/** Reads the marks of a text only where there are few enough of them. */
class BoundedLexer extends Lexer {
  override inlineTokens(source: string, tokens: Token[] = []): Token[] {
    if (source.length <= SHORT_TEXT) return super.inlineTokens(source, tokens);
    if ((source.match(MARKS)?.length ?? 0) > MAX_MARKS) {
      tokens.push(textOf(source));
      return tokens;
    }
    let read = 0;
    for (const piece of LONG_WORD.test(source) ? source.matchAll(LONG_PIECES) : []) {
      if (piece.index > read) super.inlineTokens(source.slice(read, piece.index), tokens);
      const { alt, href } = piece.groups ?? {};
      const raw = piece[0];
      tokens.push(href === undefined ? textOf(raw) : { type: "image", raw, href, title: null, text: alt ?? "" });
      read = piece.index + raw.length;
    }
    return read < source.length ? super.inlineTokens(source.slice(read), tokens) : tokens;
  }
}

const textOf = (raw: string): Token => ({ type: "text", raw, text: raw, escaped: false });

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
      yield [plainBlock(parts.slice(at).map((each) => each.text + (each.cutRows?.raw ?? "")).join(""))];
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
    if (last && part.cutRows) {
      if (last.kind === "html") last.html += moreRows(part.cutRows.count);
      last.raw += part.cutRows.raw;
    }
  }
  if (last) yield [last];
}

const moreRows = (count: number): string =>
  `<p class="more">${count} more rows are not shown; copy the answer to get them.</p>`;

/** What the parser cannot take is shown as it was written: it must not take other parts with it. */
function* blocksOf(part: Part): Generator<Block> {
  if (part.plain) {
    yield plainBlock(part.text);
    return;
  }
  let tokens: Token[];
  try {
    tokens = new BoundedLexer(marked.defaults).lex(part.text);
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

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

function blockOf(token: Token): Block {
  if (token.type === "code") {
    const { text, lang } = token as Tokens.Code;
    return { kind: "code", raw: token.raw, language: /^[\w+#.-]*/.exec(lang ?? "")?.[0] ?? "", info: lang ?? "", text };
  }
  if (token.type === "space") return { kind: "html", raw: token.raw, html: "" };
  // A definition is text, too: it may be used by no link, or only by one that came before.
  if (token.type === "def") return { kind: "html", raw: token.raw, html: `<p>${escapeHtml(token.raw.trim())}</p>` };
  try {
    return { kind: "html", raw: token.raw, html: clean(marked.parser([token])) };
  } catch {
    return plainBlock(token.raw);
  }
}

function plainBlock(text: string): Block {
  return { kind: "plain", raw: text, text };
}

function clean(html: string): string {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ATTRIBUTES, ALLOW_DATA_ATTR: false });
}

/** A link that works shows its target when it is pointed at; of any other one the target is shown. */
function link(href: string, title: string, inner: string, isAddress: boolean): string {
  const address = escapeHtml(href);
  const named = title ? ` “${escapeHtml(title)}”` : "";
  if (!SAFE_LINK.test(href)) return isAddress ? inner : `${inner} (${address}${named})`;
  return `<a href="${address}" title="${address}${named}" rel="noopener noreferrer" target="_blank">${inner}</a>`;
}

function image(href: string, title: string, text: string): string {
  const name = escapeHtml(text || "image");
  if (SAFE_IMAGE.test(href)) return `<img src="${escapeHtml(href)}" alt="${name}">`;
  return link(href, title, `Image: ${name}`, false);
}

interface Part {
  plain: boolean;
  text: string;
  /** Rows of a table at the end of the part that the parser does not get. */
  cutRows?: { count: number; raw: string };
}

/** Cuts a text into parts that the parser can take. Lines that would take it too long stand alone, unless they are code. */
function partsOf(text: string): Part[] {
  if (text.length <= SHORT_TEXT) return [{ plain: false, text }];
  const parts: Part[] = [];
  let lines: string[] = [];
  let length = 0;
  /** Where in `lines` a block surely begins; everything before it is complete. */
  let safe = 0;
  let fence = "";
  let wasBlank = true;
  /** Beyond the limits without a place to cut: shown as written until one comes. */
  let overflown = false;

  const flush = (upTo: number, plain = overflown): void => {
    const cut = lines.splice(0, upTo).join("");
    if (cut) push(parts, plain, cut);
    length -= cut.length;
    safe = 0;
    overflown = false;
  };

  for (const line of text.split(/(?<=\n)/)) {
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    const opens = !fence && mark !== "";
    const tooHard = !fence && !opens && (line.length > MAX_LINE || TOO_DEEP.test(line));
    if (tooHard) {
      flush(lines.length);
      push(parts, true, line);
      wasBlank = true;
      continue;
    }
    if (!fence && wasBlank && !MAY_CONTINUE_A_LIST.test(line)) {
      if (overflown) flush(lines.length);
      safe = lines.length;
    }
    lines.push(line);
    length += line.length;
    if (fence ? mark.startsWith(fence) && line.trim() === mark : opens) {
      const closes = fence !== "";
      fence = closes ? "" : mark;
      // Code at the top is a part of its own, however long.
      if (closes && safe < lines.length && isCode(lines[safe])) {
        if (safe) flush(safe);
        flush(lines.length, false);
        wasBlank = true;
        continue;
      }
    }
    wasBlank = !fence && !line.trim();
    if (!fence && (length > MAX_PART || lines.length > MAX_PART_LINES)) {
      if (safe) flush(safe);
      if (length > MAX_PART || lines.length > MAX_PART_LINES) overflown = true;
    }
  }
  if (fence && isCode(lines[safe])) {
    if (safe) flush(safe);
    flush(lines.length, false);
  }
  flush(lines.length);
  return parts;
}

const isCode = (line: string | undefined): boolean => /^ {0,3}(?:`{3,}|~{3,})/.test(line ?? "");

/** Adds a part. A long table of few columns is no plain text: its first rows are shown. */
function push(parts: Part[], plain: boolean, text: string): void {
  const last = parts.at(-1);
  if (plain) {
    const table = longTable(text);
    if (table) parts.push(...table);
    else if (last?.plain) last.text += text;
    else parts.push({ plain, text });
  } else parts.push({ plain, text });
}

/** A text that begins with a table, as a part with its first rows and one with what follows; null if it does not. */
function longTable(text: string): Part[] | null {
  const lines = text.split(/(?<=\n)/);
  const columns = columnsOf(lines[0] ?? "", lines[1] ?? "");
  if (!columns || columns > MAX_TABLE_COLUMNS) return null;
  const blank = lines.findIndex((line) => !line.trim());
  const end = blank < 0 ? lines.length : blank;
  const shown = Math.min(MAX_TABLE_ROWS, Math.floor(MAX_TABLE_CELLS / columns) - 2);
  const rest = lines.slice(end).join("");
  if (end - 2 <= shown) return null;
  const head = lines.slice(0, shown + 2).join("");
  const raw = lines.slice(shown + 2, end).join("") + (rest.trim() ? "" : rest);
  const table = { plain: false, text: head, cutRows: { count: end - 2 - shown, raw } };
  return rest.trim() ? [table, { plain: true, text: rest }] : [table];
}

/** How many columns a table with these first lines has; 0 if they begin none. */
function columnsOf(header: string, delimiters: string): number {
  return header.includes("|") && delimiters.length <= MAX_LINE && DELIMITER_ROW.test(delimiters)
    ? delimiters.split("|").length
    : 0;
}

function cellsOf(row: string): number {
  return row.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).length;
}

/** Whether a table is shown as it was written. */
function isPlainTable(source: string): boolean {
  const [header = "", delimiters = ""] = source.split("\n", 2);
  const columns = columnsOf(header, delimiters);
  if (!columns) return false;
  const rows = source.split(/\n[ \t]*\n/, 1)[0]?.split("\n") ?? [];
  if (columns > MAX_TABLE_COLUMNS || columns * rows.length > MAX_TABLE_CELLS) return true;
  // The parser would drop the cells beyond the header.
  return rows.some((row) => cellsOf(row) > cellsOf(header));
}
