// regress: the number that a model gives a text, or several texts that it reads together.

import { scale } from "../scale.js";
export { answers, heading, request, size, textFields as fields } from "../fields.js";

export const action = "Score";
export const does = "Gives a number";

export function said(answer) {
  return answer.value.toLocaleString("en", { maximumSignificantDigits: 5 });
}

/** Return the number on the scale of the training rows, where the run has kept it. */
export function show({ value }, row, { range }) {
  return range ? [scale(value, range)] : [];
}

export function cells(answer) {
  return { prediction: answer.value };
}

export function record({ value }) {
  return { prediction: value };
}

export function facets({ value }) {
  return { labels: [], value };
}
