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

export function said({ pieces }) {
  return `${counted(pieces, "piece")} written`;
}

/** Return what is shown while the text grows. */
export function growing(text) {
  return element("p", { class: "text written growing", dir: "auto" }, text.trimStart());
}

export function show({ text, ended }) {
  return [element("p", { class: "text written", dir: "auto" }, text.trimStart()), limit(ended)];
}

/** Return a remark on a text that ended at the most pieces; null on others. */
export function limit(ended) {
  return ended === "end" ? null : element("p", { class: "hint" }, "That is the most that may be written: the text may be unfinished.");
}

/** Return the answer of a row in the table of a file. */
export function listed({ text }) {
  return element("div", { class: "cut" }, text.trim());
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
