// Reads the stream of the state. It comes back after a break, and resumes after the last event that it has.

const FIRST_WAIT = 1000, LONGEST_WAIT = 30_000;
const SILENCE = 45_000;  // the server sends a comment after 15 s

export class Connection {
  // `on` has: state(value, the time of the server in ms), delta(value), status(kind, sentence, the time of the next try)
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
      await pause(wait);
    }
  }

  async read() {
    const aborting = new AbortController();
    let timer = setTimeout(() => aborting.abort(), SILENCE);
    try {
      const headers = { accept: "text/event-stream", ...(this.lastId ? { "last-event-id": this.lastId } : {}) };
      const answer = await fetch(this.url, { headers, signal: aborting.signal, cache: "no-store" });
      if (!answer.ok) throw new Refusal(await reasonOf(answer));
      if (this.lastId) this.on.status("live", "");  // it resumes: there may be no event for some time
      this.served = Date.parse(answer.headers.get("date")) || undefined;
      const decoder = new TextDecoder(), reader = answer.body.getReader();
      let parts = [], last = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => aborting.abort(), SILENCE);
        const text = decoder.decode(value, { stream: true });
        parts.push(text);
        if (!(last + text).includes("\n\n")) {  // a whole state comes in many pieces
          last = text.at(-1) ?? last;
          continue;
        }
        const events = parts.join("").split("\n\n");
        parts = [events.pop()];
        last = parts[0].at(-1) ?? "";
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
      if (fields.event === "state") this.on.state(value, this.served ?? value.time);
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

// Waits, or until the network is back.
function pause(ms) {
  return new Promise((done) => {
    const finish = () => {
      clearTimeout(timer);
      window.removeEventListener("online", finish);
      done();
    };
    const timer = setTimeout(finish, ms);
    window.addEventListener("online", finish);
  });
}

class Refusal extends Error {}

async function reasonOf(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return `the collector answers ${answer.status} ${answer.statusText}`.trim();
  }
}
