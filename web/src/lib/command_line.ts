// A command line as people write it, into words: spaces separate, quotes and backslashes join. No shell is started, so
// nothing else has a meaning.

/** The words; null when a quotation is not closed. */
export function wordsOf(line: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let at = 0; at < line.length; at++) {
    const letter = line.charAt(at);
    if (quote) {
      if (letter === quote) quote = "";
      else if (letter === "\\" && quote === '"' && '"\\'.includes(line.charAt(at + 1))) word += line.charAt(++at);
      else word += letter;
    } else if (letter === "'" || letter === '"') {
      quote = letter;
      word ??= "";
    } else if (letter === "\\" && at + 1 < line.length) word = (word ?? "") + line.charAt(++at);
    else if (/\s/.test(letter)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + letter;
  }
  if (quote) return null;
  return word === null ? words : [...words, word];
}

/** Lines of NAME=VALUE; the first line that is none is named. */
export function pairsOf(text: string): { pairs: Record<string, string>; wrong: string | null } {
  const pairs: Record<string, string> = {};
  for (const line of text.split("\n").map((one) => one.trim())) {
    if (!line) continue;
    const at = line.indexOf("=");
    if (at < 1) return { pairs, wrong: line };
    pairs[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return { pairs, wrong: null };
}
