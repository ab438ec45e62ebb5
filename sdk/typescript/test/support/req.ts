/** Marks the requirements a test carries: part of its title, and found as text by the requirements checker. */
export function req(...ids: string[]): string {
  return `[${ids.join(" ")}]`;
}
