// How long a run of so many tokens takes, and what it costs.

import { element, note } from "./kit/dom.js";
import { amount, count, days, money, three } from "./kit/numbers.js";

/** {seconds, hours, cost} of a run of `samples` steps at `step` seconds. */
function runOf(p, step, samples, price) {
  const time = Math.ceil(samples / p.job.batch.global) * step;
  return { time, hours: (time / 3600) * p.job.devices, cost: (time / 3600) * p.job.devices * price };
}

/** Text of a run's cost for comparisons. */
export function costOf(p, run) {
  const samples = samplesOf(p, run.tokens);
  if (!samples) return "";
  const r = runOf(p, p.iteration_time_s, samples, amount(run.price) || 0);
  return [days(r.time), `${count(Math.round(r.hours))} GPU-hours`, r.cost > 0 ? money(r.cost) : ""].filter(Boolean).join(", ");
}
const samplesOf = (p, text) => amount(text) / (p.job.batch.sequence || 1);

/** `state()` what is chosen; `offer(run)`: its length and price changed. */
export function costPanel(offer) {
  const told = () => offer({ tokens: tokens.value, price: price.value });
  const tokens = element("input", { id: "run-tokens", value: "", placeholder: "1T", spellcheck: "false", oninput: told });
  const price = element("input", { id: "run-price", value: "", placeholder: "2.50", inputmode: "decimal", oninput: told });
  const unit = element("label", { for: "run-tokens" }, "tokens");
  const out = element("dl", { class: "facts-row small" });
  const box = element("div", {}, element("div", { class: "row" }, unit, tokens, element("label", { for: "run-price" }, "$ a GPU and hour"), price), out, note("Steps alone: without failures, checkpoints and restarts."));
  box.show = (p, run) => {
    if (document.activeElement !== tokens) tokens.value = run.tokens ?? "";
    if (document.activeElement !== price) price.value = run.price ?? "";
    const ofTokens = p.job.batch.sequence > 0;
    unit.textContent = ofTokens ? "tokens" : "samples";
    const samples = samplesOf(p, run.tokens || tokens.placeholder);
    const dollars = amount(run.price || price.placeholder);
    if (!(samples > 0) || !(dollars >= 0)) {
      out.replaceChildren(element("div", {}, "A number such as 15T, 300B or 1.5e9 is expected."));
      return;
    }
    const r = runOf(p, p.iteration_time_s, samples, dollars);
    const between = p.interval_s ? [runOf(p, p.interval_s.p5, samples, dollars), runOf(p, p.interval_s.p95, samples, dollars)] : null;
    const fact = (name, of, text) => element("div", { class: "fact" }, element("dt", {}, name), element("dd", {}, text(of(r)), between ? element("small", {}, `90 %: ${text(of(between[0]))} to ${text(of(between[1]))}`) : null));
    out.replaceChildren(
      fact("time", (v) => v.time, days),
      fact("GPU-hours", (v) => v.hours, (v) => count(Math.round(v))),
      fact("cost", (v) => v.cost, money),
      element("div", { class: "fact" }, element("dt", {}, ofTokens ? "a million tokens" : "a million samples"), element("dd", {}, "$" + three((r.cost / (samples * (p.job.batch.sequence || 1))) * 1e6), element("small", {}, `${count(Math.ceil(samples / p.job.batch.global))} steps`))));
  };
  return box;
}
