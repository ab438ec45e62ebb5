// Pictures a user pastes, drops or picks, as the wire wants them: base64 with their type. Others are refused in words.
import type { PastedImage } from "./protocol";

export const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
export const MAX_IMAGES = 8;
const LARGEST = 5 * 1024 * 1024;

export async function readImages(files: Iterable<File>): Promise<{ images: PastedImage[]; refused: string[] }> {
  const images: PastedImage[] = [];
  const refused: string[] = [];
  for (const file of files) {
    if (!IMAGE_TYPES.includes(file.type)) refused.push(`${file.name}: only PNG, JPEG, GIF and WebP pictures`);
    else if (file.size > LARGEST) refused.push(`${file.name}: larger than 5 MB`);
    else images.push({ data: await base64(file), mime_type: file.type });
  }
  return { images, refused };
}

/** An address to show a picture with; empty when it is not one a browser shows without risk. */
export function imageAddress(image: PastedImage): string {
  return IMAGE_TYPES.includes(image.mime_type) && /^[A-Za-z0-9+/=]*$/.test(image.data)
    ? `data:${image.mime_type};base64,${image.data}`
    : "";
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",")[1] ?? "");
    reader.onerror = () => reject(reader.error ?? new Error("The file cannot be read."));
    reader.readAsDataURL(file);
  });
}
