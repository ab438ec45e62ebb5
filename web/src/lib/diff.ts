// The difference of two texts for display: lines with their numbers, rows with unchanged lines folded away, one below
// the other or side by side, and the words that changed in a line. Work is bounded: parts that differ too much are shown
// as removed and added as a whole.

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
  /** Line numbers from 1; null on the side that does not have the line. */
  old: number | null;
  new: number | null;
}

export interface Diff {
  lines: DiffLine[];
  added: number;
  removed: number;
}

/** A line of the old text beside its line of the new one; `left` and `right` are the same line where nothing changed. */
export interface LinePair {
  kind: "pair";
  left: DiffLine | null;
  right: DiffLine | null;
}

export type Row =
  /** `other` is the line that it replaces, or that replaces it. */
  | { kind: "line"; line: DiffLine; other: DiffLine | null }
  | LinePair
  /** Unchanged lines that are not shown; `at` is the first of them, as an index of `Diff.lines`. */
  | { kind: "gap"; at: number; count: number };

/** A part of a text, from and to as indices of its characters. */
export type Range = readonly [number, number];

const CONTEXT = 3;
/** Fewer unchanged lines than this are shown: a line that says so would be as long. */
const MIN_GAP = 3;
/** A longer line, or one of which less than this share stayed, is shown as changed as a whole. */
const MAX_WORDS_LINE = 600;
const MIN_SHARE = 0.3;
/** How many edits Myers' search follows before it gives up; its work and memory grow with the square of this. */
const MAX_EDITS = 500;

export function diffLines(oldText: string | null, newText: string): Diff {
  const all = compare(oldText === null ? [] : lines(oldText), lines(newText));
  return {
    lines: all,
    added: all.filter((line) => line.kind === "added").length,
    removed: all.filter((line) => line.kind === "removed").length,
  };
}

/** What is drawn: changes with three lines around them, and gaps in between, except those that were opened. */
export function diffRows(all: readonly DiffLine[], split: boolean, opened: ReadonlySet<number>): Row[] {
  const rows: Row[] = [];
  let at = 0;
  while (at < all.length) {
    const end = endOfKind(all, at);
    if (all[at]?.kind !== "same") for (const row of changedRows(all.slice(at, end), split)) rows.push(row);
    else if (at === 0 && end === all.length) break;
    else {
      const from = at === 0 ? at : Math.min(at + CONTEXT, end);
      const to = end === all.length ? end : Math.max(end - CONTEXT, from);
      const isFolded = to - from >= MIN_GAP && !opened.has(from);
      for (let line = at; line < end; line++) {
        if (!isFolded || line < from || line >= to) rows.push(sameRow(all[line] as DiffLine, split));
        else if (line === from) rows.push({ kind: "gap", at: from, count: to - from });
      }
    }
    at = end;
  }
  return rows;
}

/** Where the unchanged lines, or the changed ones, that begin at `at` end. */
function endOfKind(all: readonly DiffLine[], at: number): number {
  const isSame = all[at]?.kind === "same";
  let end = at;
  while (end < all.length && (all[end]?.kind === "same") === isSame) end++;
  return end;
}

function sameRow(line: DiffLine, split: boolean): Row {
  return split ? { kind: "pair", left: line, right: line } : { kind: "line", line, other: null };
}

function changedRows(block: readonly DiffLine[], split: boolean): Row[] {
  const removed = block.filter((line) => line.kind === "removed");
  const added = block.filter((line) => line.kind === "added");
  if (split)
    return Array.from({ length: Math.max(removed.length, added.length) }, (_, at) => ({
      kind: "pair",
      left: removed[at] ?? null,
      right: added[at] ?? null,
    }));
  return [
    ...removed.map((line, at): Row => ({ kind: "line", line, other: added[at] ?? null })),
    ...added.map((line, at): Row => ({ kind: "line", line, other: removed[at] ?? null })),
  ];
}

/** The parts of two lines that differ, by words; null where the lines have too little in common to say. */
export function changedWords(before: string, after: string): [Range[], Range[]] | null {
  if (before.length > MAX_WORDS_LINE || after.length > MAX_WORDS_LINE) return null;
  const [old, now] = [words(before), words(after)];
  const ranges: [Range[], Range[]] = [[], []];
  let [oldAt, newAt, oldPlace, newPlace, kept] = [0, 0, 0, 0, 0];
  for (const step of edits(old, now)) {
    const word = (step === "added" ? now[newAt] : old[oldAt]) ?? "";
    if (step === "same" && word.trim()) kept += word.length;
    if (step === "removed") extend(ranges[0], oldPlace, word.length);
    if (step === "added") extend(ranges[1], newPlace, word.length);
    if (step !== "added") [oldAt, oldPlace] = [oldAt + 1, oldPlace + word.length];
    if (step !== "removed") [newAt, newPlace] = [newAt + 1, newPlace + word.length];
  }
  return kept >= MIN_SHARE * Math.max(before.trim().length, after.trim().length) ? ranges : null;
}

function words(text: string): string[] {
  return text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];
}

function extend(ranges: Range[], from: number, length: number): void {
  const last = ranges.at(-1);
  if (last?.[1] === from) ranges[ranges.length - 1] = [last[0], from + length];
  else ranges.push([from, from + length]);
}

function lines(text: string): string[] {
  const found = text.split("\n");
  if (found.at(-1) === "") found.pop();
  return found;
}

function compare(before: string[], after: string[]): DiffLine[] {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (
    tail < before.length - head &&
    tail < after.length - head &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  )
    tail++;
  const result: DiffLine[] = [];
  const same = (oldAt: number, newAt: number): void => {
    result.push({ kind: "same", text: before[oldAt] ?? "", old: oldAt + 1, new: newAt + 1 });
  };
  for (let at = 0; at < head; at++) same(at, at);
  let oldAt = head;
  let newAt = head;
  for (const step of anchored(before.slice(head, before.length - tail), after.slice(head, after.length - tail))) {
    if (step === "same") same(oldAt++, newAt++);
    else if (step === "removed") result.push({ kind: step, text: before[oldAt] ?? "", old: ++oldAt, new: null });
    else result.push({ kind: step, text: after[newAt] ?? "", old: null, new: ++newAt });
  }
  for (let at = 0; at < tail; at++) same(oldAt + at, newAt + at);
  return result;
}

/**
 * The shortest edit script where that can be found in time. Else the texts are cut at lines that both have exactly once,
 * in the same order, and the parts are compared.
 */
function anchored(before: string[], after: string[]): DiffLine["kind"][] {
  const found = shortest(before, after);
  if (found) return found;
  const steps: DiffLine["kind"][] = [];
  let [oldAt, newAt] = [0, 0];
  for (const [oldEnd, newEnd] of [...anchors(before, after), [before.length, after.length] as const]) {
    for (const step of edits(before.slice(oldAt, oldEnd), after.slice(newAt, newEnd))) steps.push(step);
    if (oldEnd < before.length) steps.push("same");
    [oldAt, newAt] = [oldEnd + 1, newEnd + 1];
  }
  return steps;
}

/** Lines that both texts have exactly once, as many as are in the same order in both. */
function anchors(before: string[], after: string[]): Range[] {
  const inNew = placesOfUnique(after);
  const pairs = [...placesOfUnique(before)].flatMap(([line, at]): Range[] => {
    const place = inNew.get(line);
    return place === undefined ? [] : [[at, place]];
  });
  // The longest increasing sequence: `tops` has the pair that ends the best one of each length.
  const tops: number[] = [];
  const previous = new Int32Array(pairs.length);
  pairs.forEach(([, place], at) => {
    let [low, high] = [0, tops.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((pairs[tops[middle] ?? 0]?.[1] ?? 0) < place) low = middle + 1;
      else high = middle;
    }
    previous[at] = low ? (tops[low - 1] ?? -1) : -1;
    tops[low] = at;
  });
  const found: Range[] = [];
  for (let at = tops.at(-1) ?? -1; at >= 0; at = previous[at] ?? -1) found.push(pairs[at] as Range);
  return found.reverse();
}

function placesOfUnique(lines: string[]): Map<string, number> {
  const places = new Map<string, number>();
  const repeated = new Set<string>();
  lines.forEach((line, at) => {
    if (places.has(line)) repeated.add(line);
    places.set(line, at);
  });
  for (const line of repeated) places.delete(line);
  return places;
}

/** The shortest edit script, or "replace everything" where that would take too long. */
function edits(before: string[], after: string[]): DiffLine["kind"][] {
  return shortest(before, after) ?? [...before.map(() => "removed" as const), ...after.map(() => "added" as const)];
}

/** Myers 1986; null where it would take too long. */
function shortest(before: string[], after: string[]): DiffLine["kind"][] | null {
  const [rows, columns] = [before.length, after.length];
  const limit = Math.min(rows + columns, MAX_EDITS);
  const furthest = new Int32Array(2 * limit + 3);
  const middle = limit + 1;
  const trace: Int32Array[] = [];
  for (let depth = 0; depth <= limit; depth++) {
    trace.push(furthest.slice());
    for (let diagonal = -depth; diagonal <= depth; diagonal += 2) {
      let x = startOf(furthest, middle, depth, diagonal);
      while (x < rows && x - diagonal < columns && before[x] === after[x - diagonal]) x++;
      furthest[middle + diagonal] = x;
      if (x >= rows && x - diagonal >= columns) return walkBack(trace, middle, rows, columns);
    }
  }
  return null;
}

function comesFromAbove(furthest: Int32Array, middle: number, depth: number, diagonal: number): boolean {
  if (diagonal === -depth) return true;
  return diagonal !== depth && (furthest[middle + diagonal - 1] ?? 0) < (furthest[middle + diagonal + 1] ?? 0);
}

function startOf(furthest: Int32Array, middle: number, depth: number, diagonal: number): number {
  return comesFromAbove(furthest, middle, depth, diagonal)
    ? (furthest[middle + diagonal + 1] ?? 0)
    : (furthest[middle + diagonal - 1] ?? 0) + 1;
}

function walkBack(trace: Int32Array[], middle: number, rows: number, columns: number): DiffLine["kind"][] {
  const steps: DiffLine["kind"][] = [];
  let [x, y] = [rows, columns];
  for (let depth = trace.length - 1; depth >= 0; depth--) {
    const furthest = trace[depth] as Int32Array;
    const down = comesFromAbove(furthest, middle, depth, x - y);
    const diagonal = down ? x - y + 1 : x - y - 1;
    const fromX = depth === 0 ? 0 : (furthest[middle + diagonal] ?? 0);
    const fromY = depth === 0 ? 0 : fromX - diagonal;
    while (x > fromX && y > fromY) {
      steps.push("same");
      x--;
      y--;
    }
    if (depth > 0) steps.push(down ? "added" : "removed");
    [x, y] = [fromX, fromY];
  }
  return steps.reverse();
}
