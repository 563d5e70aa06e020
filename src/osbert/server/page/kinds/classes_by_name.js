// classes by name: which of the classes that a person names a text has; the model was trained for none of them.

import { namesOf } from "../fields.js";
export { heading, namedFields as fields } from "../fields.js";
export { action, answers, cells, facets, record, said, show } from "./classify.js";

export const does = "Chooses one of the classes that you name";
export const size = 1; // each row of a file has names of its own

export function request([row]) {
  return { path: "v1/predict", body: { texts: [row.text], labels: namesOf(row) } };
}
