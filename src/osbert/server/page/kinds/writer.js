// writer: how a pretrained model goes on with a text, shown behind it while it is written.

import { element } from "../elements.js";
import { limit } from "./generate.js";
export { answers, facets, fields, heading, listed, request, said, size, streams } from "./generate.js";

export const action = "Go on";
export const does = "Goes on with a text";

/** Return the text with what is written behind it so far. */
export function growing(text, row) {
  return joined(text, row, "text written growing");
}

export function show({ text, ended }, row) {
  return [joined(text, row, "text written"), limit(ended)];
}

function joined(text, row, look) {
  return element("p", { class: look, dir: "auto" }, row.text, element("mark", { class: "answer" }, text));
}

export function cells({ text }, row) {
  return { prediction: row.text + text };
}

export function record({ text, pieces, ended, log_probability }, row) {
  return { prediction: row.text + text, generated: text, pieces, ended, log_probability };
}
