// How code is shown, for all blocks of code at once; this browser remembers it.

class CodeView {
  wrap = $state(localStorage.getItem("makai.code.wrap") === "yes");
  numbers = $state(localStorage.getItem("makai.code.numbers") === "yes");

  setWrap(wrap: boolean): void {
    this.wrap = wrap;
    localStorage.setItem("makai.code.wrap", wrap ? "yes" : "no");
  }

  setNumbers(numbers: boolean): void {
    this.numbers = numbers;
    localStorage.setItem("makai.code.numbers", numbers ? "yes" : "no");
  }
}

export const codeView = new CodeView();
