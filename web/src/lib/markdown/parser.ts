// The Markdown parser and what it makes of each mark. It sees a bounded piece of text at a time (`parts.ts`), and reads
// marks only where there are few enough of them: it takes quadratic time for many shapes of text. Raw HTML is shown as
// text, images are not loaded, and only web and mail links work.
import { Lexer, Marked, Parser, type RendererThis, type Token, type TokenizerThis, type Tokens } from "marked";
import { blockMath, inlineMath, mathStart, type Math } from "./math_marks";
import { escapeHtml, SAFE_IMAGE, SAFE_LINK } from "./safe";
import { headerHtml, linesOf, rowsHtml, tableLines, tableOf } from "./table";

/** Too short for any mark to take long. */
const SHORT_TEXT = 24;
/** Marks of a paragraph, table cell or heading; with more of them it is shown without its marks being read. */
const MAX_MARKS = 600;
const MARKS = /[*_~[\]!<`\\@]/g;
/** A word this long is no word; looking for an address in it is quadratic. An image in the text is one too. */
const LONG_WORD = /[^\s*`[\]<]{1500}/;
const LONG_PIECES =
  /!\[(?<alt>[^[\]]{0,200})\]\((?<href>data:image\/(?:png|jpeg|gif|webp);base64,[\w+/=]+)\)|[^\s*`[\]<]{1500,}/g;
/** A table in a list or a quote is drawn at once, so it has fewer rows than one on its own. */
const MAX_INNER_ROWS = 300;
const MAX_INNER_CELLS = 2_000;
const NOTE_NAME = "[\\w.-]{1,40}";
const NOTE_MARK = new RegExp(`^\\[\\^(${NOTE_NAME})\\](?![:(])`);
const NOTE = new RegExp(`^ {0,3}\\[\\^(${NOTE_NAME})\\]:[ \\t]*([^\\n]*(?:\\n(?!\\s*\\n| {0,3}\\[\\^)[^\\n]+)*)(?:\\n|$)`);
const NOTE_START = new RegExp(`(?<=\\n) {0,3}\\[\\^${NOTE_NAME}\\]:`);
const ALERT = /^\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*(?:\n|$)/;

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
    image: ({ href, title, text }) => image(href, title ?? "", text),
    link({ href, title, tokens, raw }) {
      return link(href, title ?? "", this.parser.parseInline(tokens), !raw.startsWith("["));
    },
    blockquote({ tokens, text }) {
      const inner = this.parser.parse(tokens);
      const kind = ALERT.exec(text)?.[1]?.toLowerCase();
      if (!kind) return `<blockquote>${inner}</blockquote>\n`;
      const title = `<p class="alert-title">${kind[0]?.toUpperCase()}${kind.slice(1)}</p>`;
      return `<blockquote class="alert ${kind}">${title}${inner.replace(/\[!\w+\]\s*/, "")}</blockquote>\n`;
    },
  },
  tokenizer: {
    // `undefined` means that this is no table: marked must not decide, it would read all cells.
    table: (source) => tableToken(source) as Tokens.Table | undefined,
    emStrong(source, _masked, before = "") {
      const marks = /^\*+/.exec(source)?.[0] ?? "";
      if (!marks || !isInsideWord(before, source.slice(marks.length))) return false;
      return textOf(marks) as Tokens.Em; // the lexer adds any token
    },
  },
  extensions: [
    { name: "grid", renderer: ({ raw }) => innerTable(raw) },
    {
      name: "math",
      level: "inline",
      start: mathStart,
      tokenizer: (source) => mathToken("math", inlineMath(source)),
      renderer: (token) => mathHtml(token as unknown as MathToken),
    },
    {
      name: "displayMath",
      level: "block",
      start: (source) => indexOf(source, /(?<=\n) {0,3}(?:\$\$|\\\[)/),
      tokenizer: (source) => mathToken("displayMath", blockMath(source)),
      renderer: (token) => `<p>${mathHtml(token as unknown as MathToken)}</p>\n`,
    },
    {
      name: "noteMark",
      level: "inline",
      start: (source) => indexOf(source, /\[\^/),
      tokenizer(source) {
        const found = NOTE_MARK.exec(source);
        return found ? { type: "noteMark", raw: found[0], note: found[1] } : undefined;
      },
      renderer: ({ raw, note }) => `<sup class="note-mark" data-note="${escapeHtml(String(note))}">${escapeHtml(raw)}</sup>`,
    },
    {
      name: "note",
      level: "block",
      start: (source) => indexOf(source, NOTE_START),
      tokenizer(this: TokenizerThis, source) {
        const found = NOTE.exec(source);
        if (!found) return undefined;
        return { type: "note", raw: found[0], note: found[1], tokens: this.lexer.inline((found[2] ?? "").trim()) };
      },
      renderer(this: RendererThis, { note, tokens }) {
        const name = escapeHtml(String(note));
        const inner = this.parser.parseInline(tokens ?? []);
        return `<div class="note" data-note="${name}" tabindex="-1"><span class="note-name">${name}.</span> ${inner}</div>\n`;
      },
    },
  ],
});

interface MathToken extends Math {
  type: string;
}

const indexOf = (source: string, mark: RegExp): number | undefined => {
  const at = source.search(mark);
  return at < 0 ? undefined : at;
};

const mathToken = (type: string, found: Math | null): MathToken | undefined => (found ? { type, ...found } : undefined);

/** What was written stands where the formula will be: it is what is shown when it cannot be set. */
function mathHtml({ raw, display }: Math): string {
  return `<span class="math"${display ? ' data-display="yes"' : ""}>${escapeHtml(raw.trim())}</span>`;
}

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

/** The blocks of a text as the parser sees them. May fail on a text that is nested too deeply. */
export function tokensOf(text: string): Token[] {
  return new BoundedLexer(marked.defaults).lex(text);
}

/** One block as markup in which everything the model wrote is escaped. */
export function htmlOf(token: Token): string {
  return marked.parser([token]);
}

/** The marks of one table cell as markup. */
export function cellMarks(source: string): string {
  try {
    return Parser.parseInline(new BoundedLexer(marked.defaults).inlineTokens(source), marked.defaults);
  } catch {
    return escapeHtml(source);
  }
}

function tableToken(source: string): Token | undefined {
  if (!tableLines(source.split("\n", 2), 0)) return undefined;
  const lines = linesOf(source);
  const raw = lines.slice(0, tableLines(lines, 0)).join("");
  return raw ? { type: "grid", raw } : undefined;
}

function innerTable(raw: string): string {
  const table = tableOf(raw);
  if (table.rows.length > MAX_INNER_ROWS || table.rows.length * table.header.length > MAX_INNER_CELLS) {
    return `<pre>${escapeHtml(raw)}</pre>`;
  }
  const rows = rowsHtml(table, 0, table.rows.length, cellMarks);
  return `<div class="inner-table" tabindex="0" role="group" aria-label="Table"><table><thead>${headerHtml(table, cellMarks)}</thead><tbody>${rows}</tbody></table></div>\n`;
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
