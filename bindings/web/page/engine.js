// Workers with an engine each. Everything they need stands in the page, compressed.

const engineSource = () => ["glue", "worker"].map((id) => document.getElementById(id).textContent).join("\n") + "\nserve(stepcastModule);";

async function unpacked(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

let packed;
/** The module's bytes and the data files, unpacked once. */
function packedEngine() {
  packed ??= Promise.all([unpacked("wasm").then((r) => r.arrayBuffer()), unpacked("data").then((r) => r.json())]);
  return packed;
}

/** A worker that answers one question after the other; stop() ends it, whatever it does. */
export class Engine {
  constructor() {
    this.waiting = new Map();
    this.next = 0;
    this.ready = this.open();
  }
  async open() {
    const [wasm, data] = await packedEngine();
    const url = URL.createObjectURL(new Blob([engineSource()], { type: "text/javascript" }));
    this.worker = new Worker(url);
    await new Promise((opened, failed) => {
      this.worker.onerror = (e) => failed(new Error(e.message));
      this.worker.onmessage = ({ data: message }) => (message.opened ? opened() : failed(new Error(message.broken)));
      this.worker.postMessage({ open: { wasm, data } });
    });
    URL.revokeObjectURL(url);
    this.worker.onmessage = ({ data: message }) => {
      const asked = this.waiting.get(message.id);
      if (!asked) return;
      if ("progress" in message) {
        asked.progress?.(message.progress, message.note);
        return;
      }
      this.waiting.delete(message.id);
      if (message.broken) {
        asked.failed(new Error(message.broken));
        this.breakOff();
      } else asked.answered(message.answer);
    };
  }
  async ask(args, files = {}, progress) {
    await (this.ready ??= this.open());
    const id = this.next++;
    return new Promise((answered, failed) => {
      this.waiting.set(id, { answered, failed, progress });
      this.worker.postMessage({ id, args, files });
    });
  }
  /** A module that broke off answers nothing any more: the next question opens another. */
  breakOff() {
    this.stop();
    this.ready = null;
    for (const { failed } of this.waiting.values()) failed(new Error("the engine broke off"));
    this.waiting.clear();
  }
  stop() {
    this.worker?.terminate();
  }
}

/** Only the last of the tasks that come while one is under way is done. */
export function latestOnly(task) {
  let running = false;
  let next = null;
  return async function offer(...args) {
    next = args;
    if (running) return;
    running = true;
    while (next) {
      const now = next;
      next = null;
      await task(...now, () => next === null);
    }
    running = false;
  };
}
