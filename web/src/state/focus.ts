// Where the focus goes when something was chosen: into the message field, once the page has drawn it.
import { tick } from "svelte";

export async function focusComposer(): Promise<void> {
  await tick();
  // A dialog that closes gives the focus back to its button, after this task.
  requestAnimationFrame(() => document.querySelector<HTMLElement>("[data-testid=composer]")?.focus({ preventScroll: true }));
}
