// How the page is built: into the Python package, which serves it. No inline scripts or styles: the server's
// Content-Security-Policy allows neither.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const SERVER = process.env["MAKAI_SERVER"] ?? "http://127.0.0.1:8717";

export default defineConfig({
  plugins: [svelte()],
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
      "/ws": { target: SERVER.replace("http", "ws"), ws: true },
    },
  },
});
