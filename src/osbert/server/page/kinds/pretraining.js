// pretraining: the pieces that a model puts in place of each [MASK] of a text.

import { bars } from "../bars.js";
import { element, percent } from "../elements.js";

export const action = "Fill the masks";
export const does = "Fills in what is missing";
export const size = 32;

const MASK = "[MASK]";
const LISTED = 5;

export function heading() {
  return "One text";
}

export function fields() {
  return [{ name: "text", label: "Text", lines: 5, hint: `${MASK} stands for a piece to be filled in.`, insert: MASK }];
}

export function request(rows) {
  return { path: "v1/fill-mask", body: { texts: rows.map((row) => row.text), top: LISTED } };
}

export function answers(reply) {
  return reply.fills;
}

export function said(fills) {
  return fills.map(([best]) => `${best.piece}, ${percent(best.probability)}`).join("; ");
}

export function show(fills, { text }) {
  const tables = fills.map((found, place) => {
    const caption = fills.length > 1 ? `Mask ${place + 1} of ${fills.length}` : "The likeliest pieces";
    return bars(found.map(({ piece, probability }) => ({ name: piece, share: probability })), { caption, chosen: 0 });
  });
  return [filled(text, fills), ...tables];
}

export function cells(fills, { text }) {
  const found = { prediction: whole(text, fills) };
  fills.forEach(([best], place) => {
    found[`fill ${place + 1}`] = best.piece;
    found[`probability ${place + 1}`] = best.probability;
  });
  return found;
}

export function record(fills, { text }) {
  return { prediction: whole(text, fills), fills };
}

export function facets(fills) {
  return { labels: fills.map(([best]) => best.piece), probability: Math.min(...fills.map(([best]) => best.probability)) };
}

function filled(text, fills) {
  const parts = sentence(text, fills).map((part) => (part.mask ? element("mark", { class: "answer" }, part.text) : part.text));
  return element("p", { class: "text", dir: "auto" }, parts);
}

function whole(text, fills) {
  return sentence(text, fills).map((part) => part.text).join("");
}

/** Return the text in parts, with the likeliest piece in place of each mask; ##s go right behind what stands before. */
function sentence(text, fills) {
  const between = text.split(MASK);
  if (between.length !== fills.length + 1) return [{ text, mask: false }];
  return between.flatMap((part, place) => {
    const next = fills[place]?.[0].piece;
    const joins = next?.startsWith("##");
    const own = { text: joins ? part.trimEnd() : part, mask: false };
    return next === undefined ? [own] : [own, { text: joins ? next.slice(2) : next, mask: true }];
  });
}
