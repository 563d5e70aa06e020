// What is asked of the server, and what it refuses; the key is kept in memory only.

/** What the server refuses, in its own words; status 0: it was not reached. `after`: seconds until it may be asked again. */
export class Refusal extends Error {
  constructor(message, { status = 0, field = "", after = null } = {}) {
    super(message);
    this.status = status;
    this.field = field;
    this.after = after;
  }
}

export class Client {
  /** Ask the server whose page this is; `key` goes with every request once it is set. */
  constructor(base = document.baseURI) {
    this.base = base;
    this.key = "";
  }

  /** Return the models that the server has. */
  async models() {
    const reply = await this.#ask("v1/models", { method: "GET" });
    return reply.models;
  }

  /** Post a body as JSON and return what comes back; raises Refusal, or AbortError when the signal ends it. */
  post(path, body, { signal } = {}) {
    return this.#ask(path, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json" },
      signal,
    });
  }

  /** Post a body and call `take` with each part of the answer while it is written; returns the whole, as `post` does. */
  async stream(path, body, { signal, take }) {
    const headers = { "content-type": "application/json", accept: "text/event-stream" };
    const reply = await this.#reach(path, { method: "POST", body: JSON.stringify({ ...body, stream: true }), headers, signal });
    try {
      for await (const { name, data } of events(reply.body)) {
        if (name === "done") return data;
        if (name === "error") throw new Refusal(data.error.message, { status: 504, field: data.error.field ?? "" });
        take(data);
      }
    } catch (error) {
      if (error instanceof Refusal || error.name === "AbortError") throw error;
    }
    throw new Refusal("The server's answer broke off.");
  }

  async #ask(path, options) {
    const reply = await this.#reach(path, options);
    try {
      return await reply.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal("The server's answer broke off.");
    }
  }

  async #reach(path, options) {
    const headers = { accept: "application/json", ...options.headers };
    if (this.key) headers.authorization = `Bearer ${this.key}`;
    let reply;
    try {
      reply = await fetch(new URL(path, this.base), { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      if (error instanceof TypeError && /header|ByteString|ISO-8859-1/i.test(error.message)) {
        throw new Refusal("The API key holds characters that no key has.", { status: 401 });
      }
      throw new Refusal("The server was not reached. Is it still running?");
    }
    if (!reply.ok) throw await refusal(reply);
    return reply;
  }
}

/** Yield the server-sent events of a body, {name, data}, the data being JSON. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const blocks = (kept + part.value).split("\n\n");
    kept = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      yield { name: fields.event ?? "", data: JSON.parse(fields.data) };
    }
  }
}

async function refusal(reply) {
  const told = await reply.json().catch(() => null);
  const error = told?.error ?? {};
  const message = error.message || `The server answered ${reply.status} ${reply.statusText}`.trim();
  return new Refusal(message, { status: reply.status, field: error.field ?? "", after: seconds(reply.headers.get("retry-after")) });
}

/** Return the seconds that a Retry-After header asks for, which may be a number or a date; null without one. */
function seconds(header) {
  if (!header) return null;
  const found = /^\d+(\.\d+)?$/.test(header.trim()) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(found) ? Math.max(0, found) : null;
}
