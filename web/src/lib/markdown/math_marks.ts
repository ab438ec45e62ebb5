// Where a formula begins and ends: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`. A dollar sign is mostly money or a variable of
// a shell, so a single one begins a formula only where nothing else is likely.

export interface Math {
  /** With its marks. */
  raw: string;
  display: boolean;
}

/** Longer formulas are shown as they were written. */
const MAX_FORMULA = 4_000;
/** `$x$`: nothing blank inside the marks, no letter or digit right after them, no code between them. */
const DOLLARS = /^\$(?![\s$])((?:\\[^\n]|[^$\\`\n]|\n(?!\s*\n))*?(?:\\\S|[^\s\\$`]))\$(?![\p{L}\p{N}$_])/u;
const BRACKETS = /^\\\((?!\s*\\\))((?:(?!\\\))[^\n]|\n(?!\s*\n))+)\\\)/;
const DISPLAY = /^(?:\$\$((?:(?!\$\$)[^\n]|\n(?!\s*\n))+)\$\$|\\\[((?:(?!\\\])[^\n]|\n(?!\s*\n))+)\\\])/;
/** `$5 a month or 60$`: an amount, then words. */
const AMOUNT = /^\d[\d.,]*\s*(?:[kKmMbB]\b)?\s+(?!\\)(?:\p{L}{2,}|\p{L}\s+\p{L}{2,})/u;
/** A dollar sign inside a word (`US$5`) or after a backslash begins nothing. */
const START = /(?<![\p{L}\p{N}\\$])\$(?!\s)|\\[([]/u;

export function mathStart(source: string): number | undefined {
  const at = source.search(START);
  return at < 0 ? undefined : at;
}

/** The formula that a text inside a paragraph begins with. */
export function inlineMath(text: string): Math | null {
  const first = text[0];
  if (first !== "$" && first !== "\\") return null;
  const piece = text.slice(0, MAX_FORMULA);
  const display = displayMath(piece);
  if (display) return display;
  const found = first === "$" ? DOLLARS.exec(piece) : BRACKETS.exec(piece);
  const source = found?.[1];
  if (!found || source === undefined || (first === "$" && AMOUNT.test(source))) return null;
  return { raw: found[0], display: false };
}

/** The formula that stands on lines of its own at the beginning of a text. */
export function blockMath(text: string): Math | null {
  const indent = /^ {0,3}(?=\$\$|\\\[)/.exec(text)?.[0];
  if (indent === undefined) return null;
  const found = displayMath(text.slice(indent.length, MAX_FORMULA));
  const end = found && /^[ \t]*(?:\n|$)/.exec(text.slice(indent.length + found.raw.length))?.[0];
  return found && end !== null && end !== undefined ? { ...found, raw: indent + found.raw + end } : null;
}

function displayMath(piece: string): Math | null {
  const found = DISPLAY.exec(piece);
  const source = found?.[1] ?? found?.[2];
  return found && source?.trim() ? { raw: found[0], display: true } : null;
}
