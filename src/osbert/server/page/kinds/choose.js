// choose: which of two or more choices goes best with a context.

import { bars } from "../bars.js";
import { percent } from "../elements.js";

export const action = "Choose";
export const does = "Picks the choice that goes best with a context";
export const size = 16;

export function heading() {
  return "One choice";
}

export function fields() {
  return [
    { name: "context", label: "Context", lines: 3 },
    { name: "choices", label: "Choice", lines: 1, several: true },
  ];
}

export function request(rows) {
  return { path: "v1/predict", body: { records: rows.map(({ context, choices }) => ({ context, choices })) } };
}

export function answers(reply) {
  return reply.predictions;
}

export function said(answer, row) {
  return `${row.choices[answer.choice]}, ${percent(answer.probabilities[answer.choice])}`;
}

export function show(answer, row) {
  const rows = row.choices.map((name, place) => ({ name, share: answer.probabilities[place] }));
  return [bars(rows, { caption: "Probability of each choice", chosen: answer.choice })];
}

export function cells(answer, row) {
  const probability = answer.probabilities[answer.choice];
  return { prediction: answer.choice, choice: row.choices[answer.choice], probability };
}

export function record({ choice, probabilities }, row) {
  return { prediction: choice, choice: row.choices[choice], probabilities };
}

export function facets({ choice, probabilities }) {
  return { labels: [`Choice ${choice + 1}`], probability: probabilities[choice] };
}
