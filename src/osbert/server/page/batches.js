// Many rows asked of the server, some at a time; what is wrong with one costs the others nothing.

import { Refusal } from "./client.js";

/** Rows in a request. */
export const SIZE = 32;
/** How often a request that the server has no time for is sent again, before the user is asked. */
export const PATIENCE = 8;

const BUSY = new Set([429, 503]);
const OF_THE_ROWS = new Set([400, 413, 422, 500, 504]);

/** Answer every row that has no entry in `done` yet, in order; `done` is filled as [{answer} | {error}].
 *
 * `ask(rows, signal)` returns as many answers. Where a request is refused for its rows, it is halved until the row that
 * is to blame is found; where the server is busy, it is sent again after the time that the server names. Raises what
 * stops all rows, such as a missing key, with everything that was answered before left in `done`.
 */
export async function answerAll(rows, done, ask, { size = SIZE, signal, onProgress = () => {} } = {}) {
  const open = rows.map((_, place) => place).filter((place) => !done[place]);
  for (let start = 0; start < open.length; start += size) {
    await answer(open.slice(start, start + size), { rows, done, ask, signal, onProgress });
  }
}

async function answer(places, work) {
  let answers;
  try {
    answers = await patiently(places.map((place) => work.rows[place]), work);
  } catch (error) {
    if (!(error instanceof Refusal) || !OF_THE_ROWS.has(error.status)) throw error;
    if (places.length > 1) {
      const half = Math.ceil(places.length / 2);
      await answer(places.slice(0, half), work);
      await answer(places.slice(half), work);
      return;
    }
    work.done[places[0]] = { error: error.message };
    work.onProgress({ waiting: 0 });
    return;
  }
  places.forEach((place, number) => {
    work.done[place] = { answer: answers[number] };
  });
  work.onProgress({ waiting: 0 });
}

async function patiently(rows, { ask, signal, onProgress }) {
  for (let tried = 0; ; tried += 1) {
    try {
      const answers = await ask(rows, signal);
      if (answers.length !== rows.length) throw new Refusal(`The server gave ${answers.length} answers for ${rows.length} rows.`);
      return answers;
    } catch (error) {
      if (!(error instanceof Refusal) || !BUSY.has(error.status) || tried === PATIENCE) throw error;
      const seconds = error.after ?? Math.min(30, 2 ** tried);
      onProgress({ waiting: seconds });
      await pause(seconds, signal);
    }
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}
