// Lines of code: how many a block has, its first ones, and highlighted code cut into lines.

export function countLines(code: string): number {
  let count = 1;
  for (let at = code.indexOf("\n"); at >= 0; at = code.indexOf("\n", at + 1)) count += 1;
  return count;
}

/** The first `count` lines, without the break after the last of them. */
export function firstLines(code: string, count: number): string {
  let end = -1;
  for (let line = 0; line < count; line += 1) {
    end = code.indexOf("\n", end + 1);
    if (end < 0) return code;
  }
  return code.slice(0, end);
}

/** Highlighted code as lines that are markup of their own: a span that is open at the end of a line is closed there and
    opened again on the next. In: what the highlighter made, which holds spans and escaped text only. */
export function htmlLines(html: string): string[] {
  const lines: string[] = [];
  let open: string[] = [];
  for (const line of html.split("\n")) {
    const before = open.join("");
    open = [...open];
    for (const [tag] of line.matchAll(/<span[^>]*>|<\/span>/g)) {
      if (tag === "</span>") open.pop();
      else open.push(tag);
    }
    lines.push(before + line + "</span>".repeat(open.length));
  }
  return lines;
}
