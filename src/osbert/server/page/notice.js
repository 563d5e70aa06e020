// What has come of asking: a line that is read out when it changes, and one for what went wrong.

import { element } from "./elements.js";

const SLOW = 400;

/** Return {said, trouble, say, busy, refuse, clear} of a view. */
export function notice(session) {
  const said = element("p", { class: "said", role: "status", dir: "auto" });
  const trouble = element("p", { class: "trouble", role: "alert" });
  let timer = 0;

  const put = (text, wrong) => {
    clearTimeout(timer);
    said.textContent = text;
    trouble.textContent = wrong;
  };
  return {
    said,
    trouble,
    say: (text) => put(text, ""),
    clear: () => put("", ""),
    /** Say that work is going on, once it has taken long enough to be worth a word. */
    busy(text) {
      put("", "");
      timer = setTimeout(() => put(text, ""), SLOW);
    },
    /** Say why something failed; opens the field for the key where that is what the server wants. */
    refuse(error) {
      put("", error.message);
      if (error.status === 401) session.wantKey();
    },
  };
}
