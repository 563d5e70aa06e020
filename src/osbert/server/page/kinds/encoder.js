// encoder: a model without a task, which has vectors for texts and nothing to say of them.

export const action = null;

export function fields() {
  return [];
}
