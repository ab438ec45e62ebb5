// Says which requirement a test carries; `tools/requirements.py` reads the calls, and the name of the test shows them.
export function req(...ids: string[]): string {
  return `[${ids.join(", ")}]`;
}
