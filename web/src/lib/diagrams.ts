// Diagrams as pictures. One sandboxed frame draws them, one after the other; it is loaded when the first diagram is seen
// and removed when none was wanted for a while. What it sends is only ever shown as a picture, in which nothing runs and
// which loads nothing.

export interface Picture {
  /** For `src` of an image. */
  address: string;
  width: number;
  height: number;
}

export const MAX_DIAGRAM = 20_000;
const MAX_PICTURE = 2_000_000;
const MAX_SIDE = 20_000;
const DEADLINE_MS = 15_000;
/** Longer than two deadlines: a frame that is in use is not removed. */
const IDLE_MS = 60_000;
const MAX_KEPT = 30;
const FRAME = "/assets/diagram-frame.html";

/** Pictures that were drawn or are being drawn. */
const kept = new Map<string, Promise<Picture>>();
let frame: { element: HTMLIFrameElement; ready: Promise<void> } | null = null;
let line: Promise<unknown> = Promise.resolve();
let idle: ReturnType<typeof setTimeout> | undefined;
let count = 0;

/** The picture of a diagram. Fails with a sentence for people. */
export function drawDiagram(source: string, dark: boolean): Promise<Picture> {
  if (source.length > MAX_DIAGRAM) return Promise.reject(new Error("The diagram is too long to be drawn."));
  const key = `${dark}${source}`;
  const old = kept.get(key);
  if (old) return old;
  const picture = line.then(() => answered(source, dark)).then(pictureOf);
  line = picture.catch(() => undefined);
  kept.set(key, picture);
  const [oldest] = kept.keys();
  if (kept.size > MAX_KEPT && oldest !== undefined) kept.delete(oldest);
  return picture;
}

/** What the frame says about a diagram. A frame that says nothing in time is not used again, and neither is its answer. */
async function answered(source: string, dark: boolean): Promise<Record<string, unknown>> {
  clearTimeout(idle);
  idle = setTimeout(close, IDLE_MS);
  count += 1;
  const id = count;
  try {
    frame ??= opened();
    await frame.ready;
    const answer = answerOf(frame.element, (data) => (data["id"] === id ? data : null));
    // A frame without an origin cannot be named otherwise.
    frame.element.contentWindow?.postMessage({ id, source, dark }, "*");
    return await answer;
  } catch (error) {
    close();
    kept.delete(`${dark}${source}`);
    throw error;
  }
}

/** What the frame says is judged like any other input. */
export function pictureOf(data: Record<string, unknown>): Picture {
  const { svg, width, height, error } = data;
  if (typeof error === "string") throw new Error(error.slice(0, 500));
  const isSide = (side: unknown): side is number => typeof side === "number" && side > 0 && side <= MAX_SIDE;
  if (typeof svg !== "string" || svg.length > MAX_PICTURE || !isSide(width) || !isSide(height)) {
    throw new Error("The diagram is too large to be shown.");
  }
  return { address: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, width, height };
}

function opened(): { element: HTMLIFrameElement; ready: Promise<void> } {
  const element = document.createElement("iframe");
  element.setAttribute("sandbox", "allow-scripts");
  element.className = "diagram-frame";
  element.title = "Draws diagrams";
  element.tabIndex = -1;
  element.ariaHidden = "true";
  const ready = answerOf(element, (data) => (data["ready"] === true ? true : null)).then(() => undefined);
  element.src = FRAME;
  document.body.append(element);
  return { element, ready };
}

function close(): void {
  frame?.element.remove();
  frame = null;
}

/** The next message of the frame that `wanted` takes. */
function answerOf<T>(element: HTMLIFrameElement, wanted: (data: Record<string, unknown>) => T | null): Promise<T> {
  return new Promise((settle, fail) => {
    const heard = (event: MessageEvent<unknown>): void => {
      if (event.source !== element.contentWindow || typeof event.data !== "object" || event.data === null) return;
      const found = wanted(event.data as Record<string, unknown>);
      if (found === null) return;
      end();
      settle(found);
    };
    const late = setTimeout(() => {
      end();
      fail(new Error("Drawing the diagram took too long."));
    }, DEADLINE_MS);
    const end = (): void => {
      clearTimeout(late);
      removeEventListener("message", heard);
    };
    addEventListener("message", heard);
  });
}
