// multilabel: which of its labels a model gives a text, or several texts that it reads together: any number of them.

import { bars, captionOf, likeliest } from "../bars.js";
import { percent } from "../elements.js";
export { answers, heading, ofPrediction, request, size, textFields as fields } from "../fields.js";

export const action = "Label";
export const does = "Chooses any number of labels";

const NONE = "No label";

export function said({ labels, probabilities }) {
  const likely = likeliest(probabilities).filter(({ name }) => labels.includes(name));
  const told = likely.map(({ name, share }) => `${name}, ${percent(share)}`);
  return told.length ? told.join("; ") : NONE;
}

export function show(answer) {
  const { labels, probabilities } = answer;
  const rows = likeliest(probabilities).map((row) => ({ ...row, given: labels.includes(row.name) }));
  return [bars(rows, { caption: captionOf(answer) })];
}

export function cells({ labels, probabilities }) {
  const shares = Object.entries(probabilities).map(([label, share]) => [`probability ${label}`, share]);
  return { prediction: JSON.stringify(labels), ...Object.fromEntries(shares) };
}

export function record({ labels, probabilities, left_out }) {
  return { prediction: labels, probabilities, left_out };
}

/** Return the labels, and the probability of the decision that is most in doubt. */
export function facets({ labels, probabilities }) {
  const shares = Object.entries(probabilities).map(([name, share]) => (labels.includes(name) ? share : 1 - share));
  return { labels: labels.length ? labels : [NONE], probability: Math.min(...shares) };
}
