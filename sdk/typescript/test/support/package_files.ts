/** Where the package is: this file runs from `build/test/support`. */

import { fileURLToPath } from "node:url";

export function packageFile(path: string): string {
  return fileURLToPath(new URL(`../../../${path}`, import.meta.url));
}
