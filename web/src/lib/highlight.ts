// Colours for code. The highlighter and each language are loaded when code in that language is first seen; code in
// others, and very long code, stays plain. The result is HTML in which the highlighter has escaped the code.
import type { HLJSApi, LanguageFn } from "highlight.js";

const MAX_CHARACTERS = 20_000;

const LANGUAGES: Record<string, () => Promise<{ default: LanguageFn }>> = {
  bash: () => import("highlight.js/lib/languages/bash"),
  c: () => import("highlight.js/lib/languages/c"),
  cpp: () => import("highlight.js/lib/languages/cpp"),
  csharp: () => import("highlight.js/lib/languages/csharp"),
  css: () => import("highlight.js/lib/languages/css"),
  diff: () => import("highlight.js/lib/languages/diff"),
  dockerfile: () => import("highlight.js/lib/languages/dockerfile"),
  go: () => import("highlight.js/lib/languages/go"),
  ini: () => import("highlight.js/lib/languages/ini"),
  java: () => import("highlight.js/lib/languages/java"),
  javascript: () => import("highlight.js/lib/languages/javascript"),
  json: () => import("highlight.js/lib/languages/json"),
  kotlin: () => import("highlight.js/lib/languages/kotlin"),
  makefile: () => import("highlight.js/lib/languages/makefile"),
  markdown: () => import("highlight.js/lib/languages/markdown"),
  php: () => import("highlight.js/lib/languages/php"),
  python: () => import("highlight.js/lib/languages/python"),
  ruby: () => import("highlight.js/lib/languages/ruby"),
  rust: () => import("highlight.js/lib/languages/rust"),
  sql: () => import("highlight.js/lib/languages/sql"),
  swift: () => import("highlight.js/lib/languages/swift"),
  typescript: () => import("highlight.js/lib/languages/typescript"),
  xml: () => import("highlight.js/lib/languages/xml"),
  yaml: () => import("highlight.js/lib/languages/yaml"),
};

const ALIASES: Record<string, string> = {
  sh: "bash", shell: "bash", zsh: "bash", console: "bash",
  "c++": "cpp", cc: "cpp", h: "c", cs: "csharp",
  docker: "dockerfile", golang: "go", toml: "ini", conf: "ini",
  js: "javascript", jsx: "javascript", mjs: "javascript", ts: "typescript", tsx: "typescript",
  jsonc: "json", kt: "kotlin", make: "makefile", md: "markdown",
  py: "python", python3: "python", rb: "ruby", rs: "rust",
  html: "xml", svg: "xml", svelte: "xml", vue: "xml", yml: "yaml", patch: "diff",
};

let core: Promise<HLJSApi> | undefined;

/** Highlighted HTML, or null when the code is to stay plain. */
export async function highlight(code: string, language: string, most = MAX_CHARACTERS): Promise<string | null> {
  const name = ALIASES[language.toLowerCase()] ?? language.toLowerCase();
  const load = Object.hasOwn(LANGUAGES, name) ? LANGUAGES[name] : undefined;
  if (!load || code.length > most) return null;
  try {
    core ??= import("highlight.js/lib/core").then((module) => module.default);
    const [hljs, definition] = await Promise.all([core, load()]);
    if (!hljs.getLanguage(name)) hljs.registerLanguage(name, definition.default);
    return hljs.highlight(code, { language: name, ignoreIllegals: true }).value;
  } catch {
    return null; // a part of the page that could not be loaded: plain code is good code
  }
}
