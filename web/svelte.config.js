// Runes everywhere; styles go to the CSS file, never into the page by script.
import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
  preprocess: vitePreprocess({ script: false, style: false }),
  compilerOptions: { runes: true },
};
