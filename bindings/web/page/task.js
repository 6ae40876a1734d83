// A long question in a worker of its own: a button that starts it, one that stops it, its progress.

/** `start`, `running`, `stopped`: texts; `args()` gives {args, files} to ask; `show(answer)` draws it and returns what to say. */
function longTask({ start, running, stopped, args, show, beside = [] }) {
  const bar = element("progress", { max: 1, value: 0, hidden: true, "aria-label": `progress: ${running}` });
  const told = element("p", { class: "facts", role: "status" });
  const go = element("button", { type: "button", class: "primary", onclick: run }, start);
  const stop = element("button", { type: "button", hidden: true, onclick: () => ended(stopped) }, "stop");
  let engine = null;
  function ended(text) {
    engine?.stop();
    engine = null;
    bar.hidden = stop.hidden = true;
    go.disabled = false;
    told.textContent = text;
  }
  async function run() {
    const asked = args();
    go.disabled = true;
    stop.hidden = bar.hidden = false;
    bar.removeAttribute("value");
    told.textContent = `${running} ...`;
    const begin = performance.now();
    const own = (engine = new Engine());
    try {
      const answer = await own.ask("run", asked.args, asked.files, (share) => {
        bar.value = share;
        told.textContent = `${running}: ${percent(share)} after ${seconds((performance.now() - begin) / 1000)}`;
      });
      if (own !== engine) return;
      ended(answer.output === "" ? answer.error : show(JSON.parse(answer.output), asked, answer));
    } catch (e) {
      if (own === engine) ended(String(e.message));
    }
  }
  return element("div", {}, element("div", { class: "row" }, go, stop, beside, bar), told);
}
