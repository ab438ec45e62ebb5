// Files that a message names with an `@`: which one is being typed, and how a path is written. The server reads the same
// form, which is also the terminal's. Pure.
const BEING_TYPED = /(?:^|[\s([])@("(?:[^"\\\n]|\\.)*|[^\s"]*)$/;
const NAMED = /(?:^|[\s([])@[^\s]/;

/** The path after the last `@` before the cursor, and how many characters it takes with the `@`. */
export function pathBeingTyped(before: string): { path: string; length: number } | null {
  const typed = BEING_TYPED.exec(before)?.[1];
  if (typed === undefined) return null;
  const path = typed.startsWith('"') ? typed.slice(1).replace(/\\(.)/g, "$1") : typed;
  return { path, length: typed.length + 1 };
}

/** How a path is written in a message. */
export function mention(path: string): string {
  if (/^[\x21\x23-\x5b\x5d-\x7e\u00a1-\uffff]+$/u.test(path) && !/[\s\p{C}\p{Z}]/u.test(path)) return `@${path}`;
  const escaped = [...path].map((sign) => {
    if (sign === '"' || sign === "\\") return `\\${sign}`;
    if (sign === "\n") return "\\n";
    if (sign === " " || !/[\s\p{C}\p{Z}]/u.test(sign)) return sign;
    const code = sign.codePointAt(0) ?? 0;
    return code < 0x100 ? `\\x${hex(code, 2)}` : code < 0x10000 ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
  });
  return `@"${escaped.join("")}"`;
}

const hex = (code: number, digits: number): string => code.toString(16).padStart(digits, "0");

/** Whether a message may name a file. The server decides. */
export const namesFiles = (text: string): boolean => NAMED.test(text);
