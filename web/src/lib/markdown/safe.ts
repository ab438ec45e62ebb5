// The only way from markup to elements. Our renderer escapes everything a model wrote; what it made is parsed into a
// template, which runs and loads nothing, and every element and attribute of it is looked at before it is shown. The
// elements that were judged are the ones that are shown: nothing is written out and parsed a second time.

export const SAFE_LINK = /^(?:https?:\/\/|mailto:)/i;
export const SAFE_IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

const XHTML = "http://www.w3.org/1999/xhtml";
const TAGS = new Set(
  "P BR HR EM STRONG DEL CODE PRE UL OL LI BLOCKQUOTE H3 TABLE THEAD TBODY TR TH TD SPAN SUP DIV A IMG".split(" "),
);
const ATTRIBUTES = new Set(
  "class title align start rel target alt role aria-label tabindex data-note data-display".split(" "),
);

/** Elements for markup that our renderer made; the markup as text if anything in it is not what we make. */
export function elementsOf(html: string): DocumentFragment {
  const template = document.createElement("template");
  template.innerHTML = html;
  const walker = document.createTreeWalker(template.content, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_COMMENT);
  while (walker.nextNode()) {
    if (isOurs(walker.currentNode)) continue;
    const refused = document.createDocumentFragment();
    refused.append(html);
    return refused;
  }
  return template.content;
}

function isOurs(node: Node): boolean {
  if (node.nodeType !== Node.ELEMENT_NODE) return false;
  const element = node as Element;
  if (element.namespaceURI !== XHTML || !TAGS.has(element.tagName)) return false;
  if (!element.hasAttributes()) return true; // most elements of a table: making their list of attributes takes longer
  for (const { name, value } of element.attributes) {
    if (name === "href" ? !SAFE_LINK.test(value) : name === "src" ? !SAFE_IMAGE.test(value) : !ATTRIBUTES.has(name)) {
      return false;
    }
  }
  return true;
}

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
