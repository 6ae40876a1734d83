// A trace handed to Perfetto's page: it says PONG once it listens.

const kPerfetto = "https://ui.perfetto.dev";

/** `trace`: a promise of the text, asked for once the window is open, so that no browser blocks it. */
export async function openInPerfetto(trace, title) {
  const other = window.open(kPerfetto);
  if (!other) throw new Error("the browser blocked the window of ui.perfetto.dev; download the trace and open it there");
  const buffer = new TextEncoder().encode(await trace).buffer;
  await new Promise((ready, failed) => {
    const asking = setInterval(() => other.postMessage("PING", kPerfetto), 100);
    const end = setTimeout(() => ended(failed, new Error("ui.perfetto.dev does not answer; download the trace and open it there")), 30000);
    const heard = ({ data, origin }) => data === "PONG" && origin === kPerfetto && ended(ready);
    function ended(how, with_) {
      clearInterval(asking);
      clearTimeout(end);
      removeEventListener("message", heard);
      how(with_);
    }
    addEventListener("message", heard);
  });
  other.postMessage({ perfetto: { buffer, title } }, kPerfetto);
}
