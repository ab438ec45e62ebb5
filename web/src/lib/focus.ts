// Where the focus goes when what had it is gone: the field for messages.

/** Focus the field for messages, unless that would bring up the keyboard of a phone. */
export function focusComposer(): void {
  if (!matchMedia("(hover: hover)").matches) return;
  document.querySelector<HTMLElement>("[data-testid=composer]")?.focus({ preventScroll: true });
}
