// classify: which of its labels a model gives a text, or several texts that it reads together.

import { bars, captionOf, likeliest } from "../bars.js";
import { percent } from "../elements.js";
export { answers, heading, ofPrediction, request, size, textFields as fields } from "../fields.js";

export const action = "Classify";
export const does = "Chooses one label";

export function said(answer) {
  const share = answer.probabilities?.[answer.label];
  return share === undefined ? String(answer.label) : `${answer.label}, ${percent(share)}`;
}

export function show(answer) {
  const rows = likeliest(answer.probabilities ?? {});
  const chosen = rows.findIndex((row) => row.name === String(answer.label));
  return [bars(rows, { caption: captionOf(answer), chosen })];
}

export function cells(answer) {
  // not by the label alone: one that is a number would come before the prediction, and one may be called "prediction"
  const shares = Object.entries(answer.probabilities ?? {}).map(([label, share]) => [`probability ${label}`, share]);
  return { prediction: answer.label, ...Object.fromEntries(shares) };
}

export function record({ label, probabilities, left_out }) {
  return { prediction: label, probabilities, left_out };
}

export function facets({ label, probabilities }) {
  return { labels: [String(label)], probability: probabilities?.[label] };
}
