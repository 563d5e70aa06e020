// types by name: the entities of the types that a person names, in a text; the model may have seen none of them.

import { namesOf } from "../fields.js";
import { show as marked } from "./tag.js";
export { heading, namedFields as fields } from "../fields.js";
export { action, answers, cells, facets, record, said } from "./tag.js";

export const does = "Finds entities of the types that you name";
export const size = 1; // each row of a file has names of its own

export function request([row]) {
  return { path: "v1/tag", body: { texts: [row.text], labels: namesOf(row) } };
}

export function show(entities, row, model) {
  return marked(entities, row, { ...model, labels: namesOf(row) });
}
