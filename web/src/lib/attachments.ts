// What a message carries beside its words: pictures, and text files in the form in which every client of a session shows
// them. Reading is bounded; what is refused has a reason for a person.
import { carriedText } from "./carried";
import { IMAGE_TYPES, MAX_IMAGES, readImages } from "./images";
import type { AttachedText, PastedImage } from "./protocol";

export interface Draft {
  text: string;
  images: PastedImage[];
  files: AttachedText[];
}

export const MAX_FILES = 20;
const MAX_FILE_BYTES = 256 * 1024;
const MAX_ALL_BYTES = 512 * 1024;
/** A longer pasted text becomes an attachment. */
export const LONG_PASTE = 4000;

const encoder = new TextEncoder();
export const byteLength = (text: string): number => encoder.encode(text).length;

/** Adds what was dropped, pasted or picked to what is attached. */
export async function withFiles(
  draft: Omit<Draft, "text">,
  given: Iterable<File>,
): Promise<Omit<Draft, "text"> & { refused: string[] }> {
  const all = [...given];
  const pictures = all.filter((file) => IMAGE_TYPES.includes(file.type));
  const { images, refused } = await readImages(pictures);
  if (draft.images.length + images.length > MAX_IMAGES) refused.push(`At most ${MAX_IMAGES} pictures in a message.`);
  let files = draft.files;
  for (const file of all.filter((one) => !pictures.includes(one))) {
    const read = await readText(file);
    const added = typeof read === "string" ? read : withText(files, file.name, read.text);
    if (typeof added === "string") refused.push(added);
    else files = added;
  }
  return { images: [...draft.images, ...images].slice(0, MAX_IMAGES), files, refused };
}

/** The files and one more, or why it is refused. */
export function withText(files: readonly AttachedText[], name: string, text: string): AttachedText[] | string {
  if (files.length >= MAX_FILES) return `${name}: at most ${MAX_FILES} files in a message.`;
  const size = byteLength(text);
  if (size > MAX_FILE_BYTES) return tooLarge(name);
  if (files.reduce((sum, one) => sum + byteLength(one.text), size) > MAX_ALL_BYTES)
    return `${name}: all files of a message together have at most 512 KB.`;
  const taken = new Set(files.map((one) => one.uri));
  let uri = attachmentAddress(name);
  for (let number = 2; taken.has(uri); number++) uri = attachmentAddress(name.replace(/(\.[^.]*)?$/, `-${number}$1`));
  return [...files, { uri, text }];
}

async function readText(file: File): Promise<{ text: string } | string> {
  if (file.type.startsWith("image/")) return `${file.name}: only PNG, JPEG, GIF and WebP pictures`;
  if (file.size > MAX_FILE_BYTES) return tooLarge(file.name);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await bytesOf(file));
    return text.includes("\0") ? binary(file.name) : { text };
  } catch {
    return binary(file.name);
  }
}

function bytesOf(file: File): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(new Uint8Array(reader.result as ArrayBuffer));
    reader.onerror = () => reject(reader.error ?? new Error("The file cannot be read."));
    reader.readAsArrayBuffer(file);
  });
}

const tooLarge = (name: string): string => `${name}: larger than 256 KB. Put it into the folder and name it with @, so that the agent can read it.`;
const binary = (name: string): string => `${name}: not a text file. Put it into the folder and tell the agent its name.`;

function attachmentAddress(name: string): string {
  return `attachment:///${encodeURIComponent(carriedText(name.slice(-120)))}`;
}

/** A file's name for people. */
export function nameOf(file: AttachedText): string {
  const last = file.uri.replace(/\/+$/, "").split("/").pop() ?? "";
  try {
    return decodeURIComponent(last) || file.uri;
  } catch {
    return last;
  }
}

export function sizeText(bytes: number): string {
  return bytes < 1000 ? `${bytes} B` : bytes < 1_000_000 ? `${(bytes / 1000).toFixed(bytes < 10_000 ? 1 : 0)} KB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

const BEGIN = /(?:^|\n)<resource uri="([^"\n]*)">\n/;
const END = "\n</resource>";

/** A sent message apart: the words, and the files that follow them. The words end where the first file begins, so no
    content of a file is ever shown as words. */
export function withoutFiles(text: string): { words: string; files: AttachedText[] } {
  const first = BEGIN.exec(text);
  if (!first || !text.endsWith(END)) return { words: text, files: [] };
  const words = text.slice(0, first.index);
  const files = text
    .slice(first.index, -END.length)
    .split(/\n<\/resource>(?=\n<resource uri="[^"\n]*">\n)/)
    .map((one) => {
      const begin = BEGIN.exec(one);
      return { uri: begin?.[1] ?? "", text: one.slice((begin?.index ?? 0) + (begin?.[0].length ?? 0)) };
    });
  return { words, files };
}
