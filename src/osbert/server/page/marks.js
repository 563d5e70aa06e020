// Texts with spans marked in them.
// The server counts characters as Unicode does, JavaScript counts halves of some of them.

import { element } from "./elements.js";

/** Return the parts of a text between spans {start, end, ...}, in order: [{text, span}], span null between them.
 *
 * Offsets are code points. A span that overlaps one before it, or lies outside of the text, is left out.
 */
export function cut(text, spans) {
  const points = Array.from(text);
  const parts = [];
  let place = 0;
  for (const span of [...spans].sort((one, other) => one.start - other.start || other.end - one.end)) {
    if (span.start < place || span.end <= span.start || span.end > points.length) continue;
    if (span.start > place) parts.push({ text: points.slice(place, span.start).join(""), span: null });
    parts.push({ text: points.slice(span.start, span.end).join(""), span });
    place = span.end;
  }
  if (place < points.length || !parts.length) parts.push({ text: points.slice(place).join(""), span: null });
  return parts;
}

/** Return a text as a paragraph with its spans marked; `mark` makes the element of one from its text and itself. */
export function marked(text, spans, mark) {
  const parts = cut(text, spans).map((part) => (part.span ? mark(part.text, part.span) : part.text));
  return element("p", { class: "text", dir: "auto" }, parts);
}
