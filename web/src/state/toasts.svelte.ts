// Short messages about what just happened. They are announced, go by themselves, and can be closed.

export interface Toast {
  id: number;
  level: "info" | "error";
  text: string;
  action?: ToastAction | undefined;
}

/** What can be done about it, for as long as the message is shown. */
export interface ToastAction {
  label: string;
  act: () => void;
}

const SHOWN_MS = { info: 4000, error: 10_000 };
/** Reading, deciding and reaching a button takes longer than reading. */
const WITH_ACTION_MS = 12_000;

class Toasts {
  list: readonly Toast[] = $state.raw([]);
  private count = 0;

  add(level: Toast["level"], text: string, action?: ToastAction): void {
    const one = { id: ++this.count, level, text, action };
    this.list = [...this.list.filter((other) => other.text !== text), one].slice(-4);
    setTimeout(() => this.close(one.id), action ? WITH_ACTION_MS : SHOWN_MS[level]);
  }

  close(id: number): void {
    this.list = this.list.filter((one) => one.id !== id);
  }
}

export const toasts = new Toasts();

export function toast(level: Toast["level"], text: string, action?: ToastAction): void {
  toasts.add(level, text, action);
}
