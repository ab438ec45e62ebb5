// Short messages about what just happened. They are announced, go by themselves, and can be closed.

export interface Toast {
  id: number;
  level: "info" | "error";
  text: string;
}

const SHOWN_MS = { info: 4000, error: 10_000 };

class Toasts {
  list: readonly Toast[] = $state.raw([]);
  private count = 0;

  add(level: Toast["level"], text: string): void {
    const one = { id: ++this.count, level, text };
    this.list = [...this.list.filter((other) => other.text !== text), one].slice(-4);
    setTimeout(() => this.close(one.id), SHOWN_MS[level]);
  }

  close(id: number): void {
    this.list = this.list.filter((one) => one.id !== id);
  }
}

export const toasts = new Toasts();

export function toast(level: Toast["level"], text: string): void {
  toasts.add(level, text);
}
