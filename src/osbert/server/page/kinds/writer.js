// writer: how a pretrained model goes on with a text, shown behind it while it is written.

import { element } from "../elements.js";
export { answers, facets, fields, heading, request, said, size, streams } from "./generate.js";

export const action = "Go on";
export const does = "Goes on with a text";

/** Return the text with what is written behind it so far. */
export function growing(text, row) {
  return element("p", { class: "text written", dir: "auto" }, row.text, element("mark", { class: "answer" }, text));
}

export function show({ text }, row) {
  return [growing(text, row)];
}

export function cells({ text }, row) {
  return { prediction: row.text + text };
}

export function record({ text, pieces, ended, log_probability }, row) {
  return { prediction: row.text + text, generated: text, pieces, ended, log_probability };
}
