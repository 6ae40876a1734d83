// A long question in a worker of its own: a button that starts it, one that stops it, its progress.

import { Engine } from "./engine.js";
import { button, element } from "./kit/dom.js";
import { percent, seconds } from "./kit/numbers.js";

/** `start`, `running`, `stopped`: texts; `args()` gives {args, files} to ask; `show(answer)` draws it and returns what to say. */
export function longTask({ start, running, stopped, args, show, beside = [] }) {
  const bar = element("progress", { max: 1, value: 0, hidden: true, "aria-label": `progress: ${running}` });
  const told = element("p", { class: "facts", role: "status" });
  const go = button(start, run, { class: "primary" });
  const stop = button("stop", () => ended(stopped), { hidden: true });
  let engine = null;
  let clock = null;
  function ended(text) {
    engine?.stop();
    engine = null;
    clearInterval(clock);
    bar.hidden = stop.hidden = true;
    go.disabled = false;
    told.textContent = text;
  }
  async function run() {
    const asked = args();
    go.disabled = true;
    stop.hidden = bar.hidden = false;
    bar.removeAttribute("value");
    const begin = performance.now();
    let share = 0;
    let hand = "";
    const tell = () => (told.textContent = `${running}: ${share > 0 ? `${percent(share)} after ` : ""}${Math.round((performance.now() - begin) / 1000)} s${hand && hand !== running ? `, ${hand}` : ""}`);
    tell();
    clock = setInterval(tell, 500);
    const own = (engine = new Engine());
    try {
      const answer = await own.ask(asked.args, asked.files, (done, what) => {
        share = bar.value = done;
        hand = what ?? "";
        tell();
      });
      if (own !== engine) return;
      ended(answer.output === "" ? answer.error : show(JSON.parse(answer.output), asked, answer, (performance.now() - begin) / 1000));
    } catch (e) {
      if (own === engine) ended(String(e.message));
    }
  }
  return element("div", {}, element("div", { class: "row" }, go, stop, beside, bar), told);
}
