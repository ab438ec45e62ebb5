// Terminal output as styled runs of text. In: what a command printed. Out: lines of runs with class names; colours are
// understood, every other escape sequence is dropped, and what a terminal would have overwritten is not shown.

export interface Run {
  text: string;
  /** Space-separated classes such as "fg-2 bold"; empty for plain text. */
  style: string;
}

interface Pen {
  fg: number | null;
  bg: number | null;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
}

const PLAIN: Pen = { fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, inverse: false };
// CSI (with its parameters), OSC/DCS/SOS/PM/APC strings up to their end, and two-character escapes.
const SEQUENCE = /\x1b\[([0-9:;<=>?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?|\x9b([0-9:;<=>?]*)[ -/]*([@-~])/g;

/** Every line as runs. */
export function parseAnsi(text: string): Run[][] {
  const lines: Run[][] = [[]];
  let pen = PLAIN;
  let from = 0;
  const put = (piece: string): void => {
    const parts = piece.split("\n");
    parts.forEach((part, index) => {
      if (index) lines.push([]);
      write(lines[lines.length - 1] as Run[], part, classes(pen));
    });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    if (match.index > from) put(text.slice(from, match.index));
    from = match.index + match[0].length;
    if ((match[2] ?? match[4]) === "m") pen = applySgr(pen, match[1] ?? match[3] ?? "");
  }
  if (from < text.length) put(text.slice(from));
  return lines;
}

/** The text alone, without any sequence. */
export function stripAnsi(text: string): string {
  return text.replace(SEQUENCE, "");
}

function write(line: Run[], piece: string, style: string): void {
  // "\r\n" ends a line; a lone "\r" starts it again, as progress bars do.
  const text = piece.endsWith("\r") ? piece.slice(0, -1) : piece;
  const again = text.lastIndexOf("\r");
  if (again >= 0) line.length = 0;
  const rest = erased(again >= 0 ? text.slice(again + 1) : text);
  if (!rest) return;
  const last = line.at(-1);
  if (last?.style === style) last.text += rest;
  else line.push({ text: rest, style });
}

function erased(text: string): string {
  if (!text.includes("\b")) return text;
  const kept: string[] = [];
  for (const character of text) {
    if (character === "\b") kept.pop();
    else kept.push(character);
  }
  return kept.join("");
}

function applySgr(pen: Pen, parameters: string): Pen {
  const codes = parameters === "" ? [0] : parameters.split(/[;:]/).map(Number);
  let next = { ...pen };
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] ?? 0;
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code >= 30 && code <= 37) next.fg = code - 30;
    else if (code === 39) next.fg = null;
    else if (code >= 40 && code <= 47) next.bg = code - 40;
    else if (code === 49) next.bg = null;
    else if (code >= 90 && code <= 97) next.fg = code - 82;
    else if (code >= 100 && code <= 107) next.bg = code - 92;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(at + 1));
      if (code === 38) next.fg = colour;
      else next.bg = colour;
      at += used;
    }
  }
  return next;
}

/** 256 and 24-bit colours, as the nearest of the sixteen the page has in light and dark. */
function extended(rest: number[]): [number | null, number] {
  if (rest[0] === 5) return [nearest256(rest[1] ?? 0), 2];
  if (rest[0] === 2) return [nearestRgb(rest[1] ?? 0, rest[2] ?? 0, rest[3] ?? 0), 4];
  return [null, rest.length];
}

function nearest256(index: number): number {
  if (index < 16) return Math.max(0, index);
  if (index >= 232) return index < 238 ? 0 : index < 244 ? 8 : index < 250 ? 7 : 15;
  const level = [0, 95, 135, 175, 215, 255];
  const cube = index - 16;
  return nearestRgb(
    level[Math.floor(cube / 36) % 6] ?? 0,
    level[Math.floor(cube / 6) % 6] ?? 0,
    level[cube % 6] ?? 0,
  );
}

function nearestRgb(red: number, green: number, blue: number): number {
  const most = Math.max(red, green, blue);
  if (most < 60) return 0;
  if (most - Math.min(red, green, blue) < 30) return most > 200 ? 15 : most > 120 ? 7 : 8;
  const on = (part: number): boolean => part > most * 0.6;
  const base = (on(red) ? 1 : 0) + (on(green) ? 2 : 0) + (on(blue) ? 4 : 0);
  return most > 200 ? base + 8 : base;
}

function classes(pen: Pen): string {
  const [fg, bg] = pen.inverse ? [pen.bg ?? "inverse", pen.fg ?? "inverse"] : [pen.fg, pen.bg];
  const names: string[] = [];
  if (fg !== null) names.push(`fg-${fg}`);
  if (bg !== null) names.push(`bg-${bg}`);
  if (pen.bold) names.push("bold");
  if (pen.dim) names.push("dim");
  if (pen.italic) names.push("italic");
  if (pen.underline) names.push("underline");
  return names.join(" ");
}
