// Sets the formulas of a text. The library and its fonts are loaded when the first formula is seen. It builds elements
// and writes their styles as properties, which the page's policy allows; only style attributes are forbidden. A formula
// that cannot be set, or would take too long, stays as its source.
import type { KatexOptions } from "katex";

type Katex = (typeof import("katex"))["default"];

/** Formulas that were set, so that a text that grows or comes back into view costs little. */
const MAX_KEPT = 300;
const SLICE_MS = 10;
const OPTIONS: KatexOptions = {
  throwOnError: true,
  trust: false,
  strict: "ignore",
  maxSize: 20,
  maxExpand: 500,
  // The library writes a style attribute for these two, so they are drawn as their nearest relatives.
  macros: { "\\pmb": "\\boldsymbol{#1}", "\\fcolorbox": "\\colorbox{#2}{#3}" },
};

let katex: Katex | null = null;
let loading: Promise<void> | undefined;
const kept = new Map<string, Element>();

/** Sets the formulas below `root`: at once when the library is there, else when it has come. */
export function typeset(root: Element): void {
  const formulas = [...root.querySelectorAll<HTMLElement>(".math:not(.set)")];
  if (!formulas.length) return;
  if (katex) {
    setSome(katex, formulas);
    return;
  }
  loading ??= load();
  void loading.then(() => {
    if (katex) setSome(katex, formulas);
  });
}

async function load(): Promise<void> {
  try {
    const [module] = await Promise.all([import("katex"), import("katex/dist/katex.min.css")]);
    katex = module.default;
  } catch {
    loading = undefined; // the source is shown, and the next formula tries again
  }
}

/** Never for longer than the page can spare. */
function setSome(library: Katex, formulas: HTMLElement[]): void {
  const until = performance.now() + SLICE_MS;
  for (const [at, formula] of formulas.entries()) {
    if (!formula.classList.contains("set")) setOne(library, formula);
    if (performance.now() < until) continue;
    const rest = formulas.slice(at + 1);
    if (rest.length) setTimeout(() => setSome(library, rest.filter((each) => each.isConnected)));
    return;
  }
}

function setOne(library: Katex, formula: HTMLElement): void {
  const source = formula.textContent ?? "";
  const displayMode = formula.dataset["display"] !== undefined;
  const key = `${displayMode}${source}`;
  formula.classList.add("set");
  try {
    let made = kept.get(key);
    if (!made) {
      const box = document.createElement("span");
      library.render(source, box, { ...OPTIONS, macros: { ...OPTIONS.macros }, displayMode });
      made = box.firstElementChild ?? box;
      kept.set(key, made);
      const [oldest] = kept.keys();
      if (kept.size > MAX_KEPT && oldest !== undefined) kept.delete(oldest);
    }
    formula.replaceChildren(made.cloneNode(true));
  } catch (error) {
    formula.classList.add("failed");
    formula.title = error instanceof Error ? error.message.slice(0, 300) : "This formula cannot be shown.";
  }
}
