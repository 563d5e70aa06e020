// The controls of a form: lines, long texts, and choices of which there may be any number.

import { element, fill, freshId, labelled } from "./elements.js";

/** Return {node, value, put, several} of a field {name, label, lines, several?, hint?, insert?}. */
export function control(field) {
  return { ...(field.several ? severalTexts(field) : oneText(field)), several: Boolean(field.several) };
}

/** Send a form by Ctrl+Enter, or Cmd+Enter, from any of its fields. */
export function sendByKey(form) {
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}

function oneText({ name, label, lines, hint, insert }) {
  const input = box(name, lines);
  const node = labelled(input, label, hint);
  if (insert) {
    const put = () => {
      input.focus();
      input.setRangeText(insert, input.selectionStart, input.selectionEnd, "end");
    };
    node.append(element("button", { type: "button", class: "plain", onclick: put }, `Insert ${insert}`));
  }
  return { node, value: () => input.value, put: (value) => (input.value = value) };
}

function box(name, lines) {
  const attributes = { name, dir: "auto", required: true, autocomplete: "off" };
  return lines > 1 ? element("textarea", { ...attributes, rows: lines }) : element("input", { ...attributes, type: "text" });
}

function severalTexts({ name, label }) {
  const inputs = [];
  const list = element("div", { class: "several" });
  const draw = () => fill(list, inputs.map(row));
  const row = (input, place) => {
    input.id ||= freshId("control");
    const remove = () => {
      inputs.splice(place, 1);
      draw();
      inputs[Math.min(place, inputs.length - 1)].focus();
    };
    const button = { type: "button", class: "plain", onclick: remove, "aria-label": `Remove ${label.toLowerCase()} ${place + 1}` };
    return element(
      "div",
      { class: "field" },
      element("label", { for: input.id }, `${label} ${place + 1}`),
      element("div", { class: "row" }, input, inputs.length > 2 && element("button", button, "Remove")),
    );
  };
  const add = (value = "") => {
    const input = box(name, 1);
    input.value = value;
    inputs.push(input);
    return input;
  };
  const more = () => {
    const input = add();
    draw();
    input.focus();
  };
  const put = (values) => {
    inputs.length = 0;
    for (let place = 0; place < Math.max(2, values.length); place += 1) add(values[place]);
    draw();
  };
  put([]);
  const legend = element("legend", {}, `${label}s`);
  const button = element("button", { type: "button", class: "plain", onclick: more }, `Add a ${label.toLowerCase()}`);
  const node = element("fieldset", {}, legend, list, button);
  return { node, value: () => inputs.map((input) => input.value), put };
}
