// multilabel: which of its labels a model gives a text, or several texts that it reads together: any number of them.

import { bars, likeliest } from "../bars.js";
import { percent } from "../elements.js";
export { answers, request, size, textFields as fields } from "../fields.js";

export const action = "Label";

export function said({ labels, probabilities }) {
  const likely = likeliest(probabilities).filter(({ name }) => labels.includes(name));
  const told = likely.map(({ name, share }) => `${name}, ${percent(share)}`);
  return told.length ? told.join("; ") : "No label";
}

export function show({ labels, probabilities }) {
  const rows = likeliest(probabilities).map((row) => ({ ...row, given: labels.includes(row.name) }));
  return [bars(rows, { caption: "Probability of each label" })];
}

export function cells({ labels, probabilities }) {
  const shares = Object.entries(probabilities).map(([label, share]) => [`probability ${label}`, share]);
  return { prediction: JSON.stringify(labels), ...Object.fromEntries(shares) };
}
