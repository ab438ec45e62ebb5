// Runs inside of a sandboxed frame, after the mermaid library: turns the source of a diagram into a picture (SVG as
// text) and sends it to the page. The frame has no origin, no network and no storage (`server/page_routes.py`), so a
// diagram that makes the library do something else reaches nothing.
import type { Mermaid } from "mermaid";

declare const mermaid: Mermaid;

interface Order {
  id: number;
  source: string;
  dark: boolean;
}

const MAX_EDGES = 300;
const MAX_CHARACTERS = 20_000;

addEventListener("message", (event: MessageEvent<Order>) => {
  if (event.source !== parent) return;
  const { id, source, dark } = event.data;
  void drawn(id, source, dark).then(
    (picture) => parent.postMessage({ id, ...picture }, "*"),
    (error: unknown) => parent.postMessage({ id, error: error instanceof Error ? error.message : String(error) }, "*"),
  );
});
parent.postMessage({ ready: true }, "*");

async function drawn(id: number, source: string, dark: boolean): Promise<{ svg: string; width: number; height: number }> {
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    theme: dark ? "dark" : "default",
    // Labels as SVG text: HTML inside of a picture is not drawn by every browser.
    htmlLabels: false,
    flowchart: { htmlLabels: false, useMaxWidth: false },
    fontFamily: "system-ui, sans-serif",
    suppressErrorRendering: true,
    maxEdges: MAX_EDGES,
    maxTextSize: MAX_CHARACTERS,
    secure: ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "htmlLabels", "suppressErrorRendering", "fontFamily"],
  });
  document.body.replaceChildren();
  const { svg } = await mermaid.render(`diagram-${id}`, source);
  const picture = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
  const [, , width = 0, height = 0] = (picture?.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
  if (!picture || !(width > 0) || !(height > 0)) throw new Error("The diagram is empty.");
  picture.setAttribute("width", String(width));
  picture.setAttribute("height", String(height));
  return { svg: new XMLSerializer().serializeToString(picture), width, height };
}
