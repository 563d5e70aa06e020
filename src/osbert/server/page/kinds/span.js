// span: the answer to a question as a part of a paragraph, or that the paragraph holds none.

import { bars } from "../bars.js";
import { element, percent } from "../elements.js";
import { marked } from "../marks.js";

export const action = "Answer";
export const does = "Finds the answer to a question in a paragraph";
export const size = 1;

const LISTED = 5;
const NOTHING = "(no answer)";

export function heading() {
  return "One question";
}

export function fields() {
  return [
    { name: "question", label: "Question", lines: 1 },
    { name: "paragraph", label: "Paragraph", lines: 8 },
  ];
}

export function request([{ question, paragraph }]) {
  return { path: "v1/answer", body: { question, paragraph, n_best: LISTED } };
}

export function answers(reply) {
  return [{ chosen: reply.answer, others: reply.n_best ?? [] }];
}

export function said({ chosen }) {
  if (!chosen) return "The paragraph does not answer the question";
  return `${chosen.text}, ${percent(chosen.probability)}`;
}

export function show({ chosen, others }, { paragraph }) {
  const mark = (part) => element("mark", { class: "answer" }, part);
  const parts = [marked(paragraph, chosen ? [chosen] : [], mark)];
  if (others.length) {
    const rows = others.map((one) => ({ name: one.text || NOTHING, share: one.probability }));
    const place = others.findIndex((one) => (chosen ? one.start === chosen.start && one.end === chosen.end : !one.text));
    parts.push(bars(rows, { caption: "The likeliest answers", chosen: place }));
  }
  return parts;
}

export function cells({ chosen }) {
  return { prediction: chosen?.text ?? "", probability: chosen?.probability, start: chosen?.start, end: chosen?.end };
}

export function record({ chosen }) {
  return { prediction: chosen?.text ?? "", probability: chosen?.probability, start: chosen?.start, end: chosen?.end };
}

export function facets({ chosen, others }) {
  const said = chosen ?? others.find((one) => !one.text);
  return { labels: [chosen ? "An answer" : "No answer"], probability: said?.probability };
}
