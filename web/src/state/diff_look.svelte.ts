// How diffs are drawn, remembered for the next visit.
class DiffLook {
  /** Side by side where there is room for it. */
  split: boolean = $state(localStorage.getItem("makai.diff") === "split");

  setSplit(split: boolean): void {
    this.split = split;
    localStorage.setItem("makai.diff", split ? "split" : "unified");
  }
}

export const diffLook = new DiffLook();
