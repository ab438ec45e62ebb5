// Which cards are open. Kept outside the cards: they come and go while the reader scrolls.
import { SvelteMap } from "svelte/reactivity";

class Folds {
  private readonly chosen = new SvelteMap<string, boolean>();
  /** What "expand all" last said, per kind of card; a single card's own choice comes first. */
  private readonly everyone = new SvelteMap<string, boolean>();

  isOpen(key: string, kind: string, otherwise: boolean): boolean {
    return this.chosen.get(key) ?? this.everyone.get(kind) ?? otherwise;
  }

  set(key: string, open: boolean): void {
    this.chosen.set(key, open);
  }

  toggleAll(kind: string): void {
    this.everyone.set(kind, !(this.everyone.get(kind) ?? false));
    this.chosen.clear();
  }

  forget(): void {
    this.chosen.clear();
    this.everyone.clear();
  }
}

export const folds = new Folds();
