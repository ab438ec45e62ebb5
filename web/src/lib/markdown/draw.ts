// Puts the markup of a block on the page: judged elements, formulas that are set, and footnotes that can be followed.
import { typeset } from "./math";
import { elementsOf } from "./safe";

/** Replaces what `element` shows. */
export function draw(element: Element, html: string): void {
  element.replaceChildren(elementsOf(html));
  typeset(element);
}

/** Makes marks of footnotes that this text has into buttons that lead there, and back. Marks of others stay as written. */
export function linkNotes(prose: Element): void {
  for (const mark of prose.querySelectorAll<HTMLElement>(".note-mark:not(.linked)")) {
    const name = mark.dataset["note"] ?? "";
    const note = noteOf(prose, name);
    if (!note) continue;
    mark.classList.add("linked");
    mark.replaceChildren(button(name, `Footnote ${name}`, () => reveal(noteOf(prose, name))));
    if (note.querySelector("button")) continue;
    const back = button("↩", `Back to the mark of footnote ${name}`, () =>
      reveal(prose.querySelector(`.note-mark.linked[data-note="${name}"] button`)),
    );
    note.append(" ", back);
  }
}

/** Names of footnotes hold letters, digits, dots and dashes only. */
function noteOf(prose: Element, name: string): HTMLElement | null {
  return prose.querySelector<HTMLElement>(`.note[data-note="${name}"]`);
}

function reveal(element: HTMLElement | null): void {
  element?.scrollIntoView({ block: "nearest" });
  element?.focus({ preventScroll: true });
}

function button(text: string, label: string, act: () => void): HTMLButtonElement {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "note-link";
  made.textContent = text;
  made.ariaLabel = label;
  made.addEventListener("click", act);
  return made;
}
