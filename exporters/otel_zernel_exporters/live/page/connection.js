// Reads the stream of the state. It comes back after a break, and resumes after the last event that it has.

const FIRST_WAIT = 1000, LONGEST_WAIT = 30_000;
const SILENCE = 45_000;  // the server sends a comment after 15 s

export class Connection {
  // `on` has: state(value, skew), delta(value), status(kind, sentence, next ms)
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.lastId = "";
    this.failures = 0;
  }

  async run() {
    for (;;) {
      let sentence = "the connection was closed";
      try {
        await this.read();
      } catch (error) {
        sentence = error.name === "AbortError" ? "the collector has been silent" : error instanceof Refusal ? error.message : "the collector does not answer";
      }
      const whole = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.failures++);
      const wait = whole / 2 + Math.random() * whole / 2;  // so that many pages do not come back at once
      this.on.status("waiting", sentence, Date.now() + wait);
      await Promise.race([new Promise((done) => setTimeout(done, wait)), this.woken()]);
    }
  }

  // Resolves when there is a reason to try at once.
  woken() {
    return new Promise((done) => window.addEventListener("online", done, { once: true }));
  }

  async read() {
    const aborting = new AbortController();
    let timer = setTimeout(() => aborting.abort(), SILENCE);
    try {
      const headers = { accept: "text/event-stream", ...(this.lastId ? { "last-event-id": this.lastId } : {}) };
      const answer = await fetch(this.url, { headers, signal: aborting.signal, cache: "no-store" });
      if (!answer.ok) throw new Refusal(await reasonOf(answer));
      if (this.lastId) this.on.status("live", "");  // it resumes: there may be no event for some time
      const decoder = new TextDecoder(), reader = answer.body.getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => aborting.abort(), SILENCE);
        const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
        rest = events.pop();
        for (const event of events) this.take(event);
      }
    } finally {
      clearTimeout(timer);
      aborting.abort();
    }
  }

  take(text) {
    const fields = Object.fromEntries(text.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 1).replace(/^ /, "")]));
    if (!fields.data) return;
    try {
      const value = JSON.parse(fields.data);
      if (fields.event === "state") this.on.state(value);
      else if (fields.event === "delta") this.on.delta(value);
    } catch (error) {
      this.lastId = "";  // the next connection begins with the whole state
      throw error;
    }
    this.failures = 0;
    this.lastId = fields.id ?? this.lastId;
    this.on.status("live", "");
  }
}

class Refusal extends Error {}

async function reasonOf(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return `the collector answers ${answer.status} ${answer.statusText}`.trim();
  }
}
