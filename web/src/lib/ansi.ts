// Terminal output as styled runs of text. In: what a command printed. Out: lines of runs with class names. Colours,
// movements within a line and to the lines above, and erasing are understood, so that what a terminal would have
// overwritten is not shown; every other escape sequence is dropped.

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

const [BACKSPACE, NEW_LINE, RETURN] = [8, 10, 13];
/** How far a movement may go: what is further than a screen is no drawing of a progress bar. */
const MAX_MOVE = 500;
/** Where movements to the right end, however many there are. */
const MAX_COLUMN = 1_000;
/** A line of more pieces only grows: to overwrite it again and again would take too long. */
const MAX_RUNS = 500;

/** Every line as runs. */
export function parseAnsi(text: string): Run[][] {
  const screen = new Screen();
  let pen = PLAIN;
  let style = "";
  let from = 0;
  for (const match of text.matchAll(SEQUENCE)) {
    if (match.index > from) screen.print(text.slice(from, match.index), style);
    from = match.index + match[0].length;
    const [command, parameters] = [match[2] ?? match[4], match[1] ?? match[3] ?? ""];
    if (command === "m") style = classes((pen = applySgr(pen, parameters)));
    else if (command !== undefined) screen.move(command, parameters);
  }
  if (from < text.length) screen.print(text.slice(from), style);
  return screen.lines;
}

/** Lines and a cursor. */
class Screen {
  readonly lines: Run[][] = [[]];
  private readonly lengths: number[] = [0];
  private row = 0;
  private column = 0;

  print(text: string, style: string): void {
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code !== NEW_LINE && code !== RETURN && code !== BACKSPACE) continue;
      if (at > from) this.write(text.slice(from, at), style);
      from = at + 1;
      if (code === NEW_LINE) this.newLine();
      else this.column = code === RETURN ? 0 : Math.max(0, this.column - 1);
    }
    if (from < text.length) this.write(text.slice(from), style);
  }

  move(command: string, parameters: string): void {
    const by = Math.min(Math.max(Number(parameters) || 1, 1), MAX_MOVE);
    if (command === "A") this.row = Math.max(0, this.row - by);
    else if (command === "B") this.row = Math.min(this.lines.length - 1, this.row + by);
    else if (command === "C") this.column = Math.max(this.column, Math.min(this.column + by, MAX_COLUMN));
    else if (command === "D") this.column = Math.max(0, this.column - by);
    else if (command === "G") this.column = by - 1;
    else if (command === "K" && parameters === "2") this.keep([], 0);
    else if (command === "K" && Number(parameters) === 0) this.erase();
    else if (command === "J" && Number(parameters) === 0) {
      this.erase();
      this.lines.length = this.lengths.length = this.row + 1;
    }
  }

  private newLine(): void {
    this.column = 0;
    if (++this.row < this.lines.length) return;
    this.lines.push([]);
    this.lengths.push(0);
  }

  private erase(): void {
    if (this.column < this.length) this.keep(part(this.line, 0, this.column), this.column);
  }

  private keep(line: Run[], length: number): void {
    this.lines[this.row] = line;
    this.lengths[this.row] = length;
  }

  private get line(): Run[] {
    return this.lines[this.row] as Run[];
  }

  private get length(): number {
    return this.lengths[this.row] ?? 0;
  }

  private write(text: string, style: string): void {
    if (this.column < this.length && this.line.length <= MAX_RUNS) {
      const end = this.column + text.length;
      const [before, after] = [part(this.line, 0, this.column), part(this.line, end, this.length)];
      append(before, text, style);
      for (const run of after) append(before, run.text, run.style);
      this.keep(before, Math.max(end, this.length));
      this.column = end;
      return;
    }
    if (this.column > this.length) append(this.line, " ".repeat(this.column - this.length), "");
    append(this.line, text, style);
    this.column = this.lengths[this.row] = Math.max(this.column, this.length) + text.length;
  }
}

function append(line: Run[], text: string, style: string): void {
  const last = line.at(-1);
  if (last?.style === style) last.text += text;
  else line.push({ text, style });
}

/** The characters of a line from one column to another. */
function part(line: readonly Run[], from: number, to: number): Run[] {
  const found: Run[] = [];
  let at = 0;
  for (const { text, style } of line) {
    const piece = text.slice(Math.max(0, from - at), Math.max(0, to - at));
    if (piece) found.push({ text: piece, style });
    at += text.length;
  }
  return found;
}

/** The text alone, without any sequence. */
export function stripAnsi(text: string): string {
  return text.replace(SEQUENCE, "");
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
  if (bg !== null && (bg !== fg || bg === "inverse")) names.push(`bg-${bg}`); // text in its own background hides
  if (pen.bold) names.push("bold");
  if (pen.dim) names.push("dim");
  if (pen.italic) names.push("italic");
  if (pen.underline) names.push("underline");
  return names.join(" ");
}
