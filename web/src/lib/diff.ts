// The difference of two texts, line by line, for display. In: old text (null for a new file) and new text. Out: hunks
// with line numbers. Work is bounded: texts that differ too much are shown as removed and added as a whole.

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
  /** Line numbers from 1; null on the side that does not have the line. */
  old: number | null;
  new: number | null;
}

export interface Diff {
  hunks: DiffLine[][];
  added: number;
  removed: number;
}

const CONTEXT = 3;
/** How many edits Myers' search follows before it gives up; its work and memory grow with the square of this. */
const MAX_EDITS = 500;

export function diffLines(oldText: string | null, newText: string): Diff {
  const all = compare(oldText === null ? [] : lines(oldText), lines(newText));
  return {
    hunks: hunks(all),
    added: all.filter((line) => line.kind === "added").length,
    removed: all.filter((line) => line.kind === "removed").length,
  };
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
  for (const step of edits(before.slice(head, before.length - tail), after.slice(head, after.length - tail))) {
    if (step === "same") same(oldAt++, newAt++);
    else if (step === "removed") result.push({ kind: step, text: before[oldAt] ?? "", old: ++oldAt, new: null });
    else result.push({ kind: step, text: after[newAt] ?? "", old: null, new: ++newAt });
  }
  for (let at = 0; at < tail; at++) same(oldAt + at, newAt + at);
  return result;
}

/** The shortest edit script (Myers 1986), or "replace everything" where that would take too long. */
function edits(before: string[], after: string[]): DiffLine["kind"][] {
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
  return [...before.map(() => "removed" as const), ...after.map(() => "added" as const)];
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

function hunks(all: DiffLine[]): DiffLine[][] {
  const found: DiffLine[][] = [];
  let until = 0;
  all.forEach((line, at) => {
    if (line.kind === "same") return;
    const from = Math.max(at - CONTEXT, until);
    if (!found.length || from > until) found.push([]);
    until = Math.min(at + CONTEXT + 1, all.length);
    found.at(-1)?.push(...all.slice(from, until));
  });
  return found;
}
