// regress: the number that a model gives a text, or several texts that it reads together.

import { textFields, texts } from "../fields.js";

export const action = "Score";
export const size = 32;
export const fields = textFields;

export function request(rows, model) {
  return { path: "v1/predict", body: { texts: texts(rows, model) } };
}

export function answers(reply) {
  return reply.predictions;
}

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
