// How the tests of the page run: what building needs, and a document. A file of its own, because the page is built
// where vitest is not installed.
import { defineConfig, mergeConfig } from "vitest/config";

import page from "./vite.config";

export default mergeConfig(page, defineConfig({ test: { environment: "jsdom", include: ["test/**/*.test.ts"] } }));
