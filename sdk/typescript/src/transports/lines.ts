/**
 * Bytes -> lines of UTF-8 text, for NDJSON.
 *
 * In: chunks of bytes, cut anywhere. Out: the lines they complete, without their end. Only "\n" ends a line: JSON
 * text may hold U+2028 and U+2029, which other splitters take for line ends.
 */

export class LineError extends Error {}

const NEWLINE = 0x0a;

export class LineSplitter {
  #pieces: Uint8Array[] = [];
  #length = 0;
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  constructor(private readonly maxBytes: number) {}

  /** The lines that this chunk completes. `LineError` for a line that is too long or not UTF-8. */
  push(chunk: Uint8Array): string[] {
    const lines: string[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      this.#keep(chunk.subarray(start, end));
      lines.push(this.#line());
      start = end + 1;
    }
    this.#keep(chunk.subarray(start));
    return lines;
  }

  #keep(piece: Uint8Array): void {
    this.#length += piece.length;
    if (this.#length > this.maxBytes) throw new LineError(`a line longer than ${this.maxBytes} bytes`);
    if (piece.length > 0) this.#pieces.push(piece);
  }

  #line(): string {
    const bytes = new Uint8Array(this.#length);
    let at = 0;
    for (const piece of this.#pieces) {
      bytes.set(piece, at);
      at += piece.length;
    }
    this.#pieces = [];
    this.#length = 0;
    try {
      return this.#decoder.decode(bytes);
    } catch {
      throw new LineError("a line that is not UTF-8");
    }
  }
}
