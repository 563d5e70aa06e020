// generate: the text that a fine-tuned model writes for a text, shown while it is written.

import { counted, element } from "../elements.js";
import { heading as pairHeading, labelOf, texts } from "../fields.js";

export const action = "Write";
export const does = "Writes a text for a text";
export const size = 8;
export const streams = true;

export function heading(model) {
  return fields(model).length > 2 ? "One set of texts" : pairHeading(model);
}

export function fields(model) {
  const names = model.fields?.length ? model.fields : ["text"];
  return names.map((name) => ({ name, label: names.length > 1 ? labelOf(name) : "Text", lines: names.length > 1 ? 3 : 6 }));
}

export function request(rows, model) {
  return { path: "v1/generate", body: { texts: texts(rows, model) } };
}

export function answers(reply) {
  return reply.generations;
}

export function said({ pieces, ended }) {
  const count = `${counted(pieces, "piece")} written`;
  return ended === "end" ? count : `${count}, which is the most: the text may be unfinished`;
}

/** Return what is shown while the text grows. */
export function growing(text) {
  return element("p", { class: "text written", dir: "auto" }, text.trimStart());
}

export function show({ text }) {
  return [growing(text)];
}

export function cells({ text }) {
  return { prediction: text.trim() };
}

export function record({ text, pieces, ended, log_probability }) {
  return { prediction: text.trim(), pieces, ended, log_probability };
}

export function facets({ ended }) {
  return { labels: [ended === "end" ? "ended" : "unfinished"] };
}
