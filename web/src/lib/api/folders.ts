// Folders of the server's machine, for the folder picker.
import { addressPart, ask } from "./http";

export interface FolderListing {
  /** What was typed, as an absolute path. */
  path: string;
  exists: boolean;
  is_folder: boolean;
  /** The git branch that is checked out there; empty when it is not known. */
  branch: string;
  /** Absolute paths that complete what was typed. */
  folders: string[];
  is_complete: boolean;
}

export const folders = {
  list: (path: string) => ask<FolderListing>("GET", `/api/folders?path=${addressPart(path)}`),
  create: (path: string) => ask<FolderListing>("POST", "/api/folders", { path }),
};
