// How the page is built: into the Python package, which serves it. No inline scripts or styles: the server's
// Content-Security-Policy allows neither.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, transformWithEsbuild, type Plugin } from "vite";

const SERVER = process.env["MAKAI_SERVER"] ?? "http://127.0.0.1:8717";

/** Every browser that runs the page reads woff2, so the other formats of the formula fonts are left out. */
const woff2Only: Plugin = {
  name: "woff2-only",
  enforce: "pre",
  transform: (code, id) =>
    /katex.*\.css$/.test(id) ? code.replaceAll(/,url\([^)]*\.(?:woff|ttf)\) format\("[^"]*"\)/g, "") : undefined,
};

/** The document of the frame that draws diagrams, with its one script inside: the library as it is published and our few
    lines. The document allows exactly this script, by its hash, and asks the server for nothing. */
const diagramFrame: Plugin = {
  name: "diagram-frame",
  apply: "build",
  async generateBundle() {
    const file = (path: string): string => readFileSync(new URL(path, import.meta.url), "utf8");
    const own = await transformWithEsbuild(file("src/frame/diagram_frame.ts"), "frame.ts", { minify: true, format: "iife" });
    const library = file("node_modules/mermaid/dist/mermaid.min.js");
    // What would end a script in HTML, or begin a comment, says the same in a string of the program.
    const script = `${library}\n${own.code}`.replaceAll("\r", "").replaceAll(/<(?=\/script|!--|script)/gi, "\\x3c");
    const hash = createHash("sha256").update(script).digest("base64");
    const policy = `<meta http-equiv="Content-Security-Policy" content="script-src 'sha256-${hash}'">`;
    const source = `<!doctype html><html lang="en"><meta charset="utf-8">${policy}<title>Diagram</title><body><script>${script}</script>`;
    this.emitFile({ type: "asset", fileName: "assets/diagram-frame.html", source });
  },
};

export default defineConfig({
  plugins: [svelte(), woff2Only, diagramFrame],
  build: {
    outDir: "../src/makai/server/page",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: {
      "/api": { target: SERVER },
      "/assets/diagram-frame": { target: SERVER },
      "/ws": { target: SERVER.replace("http", "ws"), ws: true },
    },
  },
});
