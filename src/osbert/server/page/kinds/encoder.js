// encoder: a model without a task, which has vectors for texts and nothing to say of them.

export const action = null;
export const does = "Finds texts that are alike";

export function heading() {
  return "One text";
}

export function fields() {
  return [];
}
