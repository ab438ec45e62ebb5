// Sets the formulas of a text. The library and its fonts are loaded when the first formula is seen. It builds elements
// and writes their styles as properties, which the page's policy allows; only style attributes are forbidden. A formula
// that cannot be set, or would take too long, stays as it was written.
import type { KatexOptions } from "katex";

/** A node of a formula before it becomes an element. */
interface FormulaNode {
  attributes?: Record<string, string>;
  children?: FormulaNode[];
  toNode(): Node;
}
/** What the library offers below `render`, so that the style attributes of its MathML can be taken out. */
export interface Katex {
  __renderToDomTree(source: string, options: KatexOptions): FormulaNode;
}

/** Formulas that were set, so that a text that grows or comes back into view costs little. */
const MAX_KEPT = 300;
const SLICE_MS = 10;
const FEW = 40;
const OPTIONS: KatexOptions = {
  throwOnError: true,
  trust: false,
  strict: "ignore",
  maxSize: 20,
};
const MAX_EXPAND = 500;
/** Elements inside of one another. Browsers lay out more of them slowly, and crash with far more. */
const MAX_DEPTH = 200;
/** What a formula with definitions may say: they multiply it, and the time it takes grows with its square. */
const MAX_DEFINING = 300;
const MAX_DEFINING_EXPAND = 30;
const DEFINES = /\\(?:[gex]?def|(?:re)?newcommand|providecommand|let|futurelet)(?![a-zA-Z@])/;
const MARKS = /^(?:\$\$?|\\[([])|(?:\$\$?|\\[)\]])$/g;

let katex: Katex | null = null;
let loading: Promise<void> | undefined;
const kept = new Map<string, Node>();

/** Formulas that wait for their turn. */
let queue: HTMLElement[] = [];
/** Until when this task may set formulas; 0 when none has begun. */
let until = 0;
let nearby: IntersectionObserver | undefined;

/** Sets the formulas below `root`: a few at once, so that a text that grows does not flicker; many when they come near
    the screen. */
export function typeset(root: Element): void {
  const formulas = root.querySelectorAll<HTMLElement>(".math:not(.set)");
  if (!formulas.length) return;
  if (formulas.length <= FEW && root.tagName !== "TBODY") {
    enqueue(formulas);
    return;
  }
  nearby ??= new IntersectionObserver(
    (entries) => {
      const seen = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target as HTMLElement);
      for (const formula of seen) nearby?.unobserve(formula);
      enqueue(seen);
    },
    { rootMargin: "400px" },
  );
  for (const formula of formulas) nearby.observe(formula);
}

function enqueue(formulas: Iterable<HTMLElement>): void {
  queue.push(...formulas);
  if (katex) setSome();
  else {
    loading ??= load();
    void loading.then(setSome);
  }
}

async function load(): Promise<void> {
  try {
    const [module] = await Promise.all([import("katex"), import("katex/dist/katex.min.css")]);
    katex = module.default as unknown as Katex;
  } catch {
    loading = undefined; // the source is shown, and the next formula tries again
  }
}

/** Sets what waits, and never for longer than the page can spare in one task, however often it is called in it. */
function setSome(): void {
  if (!katex) return;
  if (!until) {
    until = performance.now() + SLICE_MS;
    setTimeout(() => {
      until = 0;
      if (queue.length) setSome();
    });
  }
  let done = 0;
  while (done < queue.length && performance.now() < until) {
    const formula = queue[done];
    if (formula && !formula.classList.contains("set")) setOne(katex, formula);
    done += 1;
  }
  queue = queue.slice(done);
}

function setOne(library: Katex, formula: HTMLElement): void {
  const source = (formula.textContent ?? "").trim().replaceAll(MARKS, "");
  const displayMode = formula.dataset["display"] !== undefined;
  const key = `${displayMode}${source}`;
  formula.classList.add("set");
  try {
    let made = kept.get(key);
    if (!made) {
      made = formulaOf(library, source, displayMode);
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

/** Fails for a formula that would take the browser too long. */
export function formulaOf(library: Katex, source: string, displayMode: boolean): Node {
  const defines = DEFINES.test(source);
  if (defines && source.length > MAX_DEFINING) throw new Error("A formula that defines commands is only set when it is short.");
  const maxExpand = defines ? MAX_DEFINING_EXPAND : MAX_EXPAND;
  const tree = library.__renderToDomTree(source, { ...OPTIONS, maxExpand, displayMode });
  withoutStyles(tree);
  return tree.toNode();
}

function withoutStyles(node: FormulaNode, depth = 1): void {
  if (depth > MAX_DEPTH) throw new Error("This formula is nested too deeply to be shown.");
  if (node.attributes) delete node.attributes["style"];
  for (const child of node.children ?? []) withoutStyles(child, depth + 1);
}
