// regress: the number that a model gives a text, or several texts that it reads together.

export { answers, request, size, textFields as fields } from "../fields.js";

export const action = "Score";

export function said(answer) {
  return answer.value.toLocaleString("en", { maximumSignificantDigits: 5 });
}

/** Return nothing beside the number, which has been said. */
export function show() {
  return [];
}

export function cells(answer) {
  return { prediction: answer.value };
}
