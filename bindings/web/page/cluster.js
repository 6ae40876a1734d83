// A cluster of one's own: what differs from the system that was chosen, as overrides of it, so that its measured constants stay.

import { button, element } from "./kit/dom.js";
import { three } from "./kit/numbers.js";

const kFields = [
  { id: "node", label: "GPUs a node", unit: "" },
  { id: "link", label: "GPU to GPU", unit: "GB/s, one way" },
  { id: "nics", label: "NICs a node", unit: "" },
  { id: "nic", label: "a NIC", unit: "Gb/s" },
];
const rate = (text) => {
  const m = /^([\d.]+)\s*([KMGT]?)B\/s$/.exec(text ?? "");
  return m ? Number(m[1]) * { "": 1e-9, K: 1e-6, M: 1e-3, G: 1, T: 1e3 }[m[2]] : NaN;
};

/** `offer(changes)`: keys below system. */
export function cluster(offer) {
  const inputs = {};
  let now = null; // the system as it was resolved
  const told = (cleared) => {
    const v = Object.fromEntries(kFields.map(({ id }) => [id, Number(inputs[id].value)]));
    const node = v.node || now.node;
    const changes = {};
    changes["system.fabric.0.size"] = v.node ? String(v.node) : "";
    if (now.hosted) changes["system.host.devices"] = changes["system.fabric.0.size"];
    changes["system.fabric.0.bandwidth"] = v.link ? `${v.link} GB/s` : "";
    if (now.levels > 1 && (v.nics || v.nic || cleared)) changes["system.fabric.1.bandwidth"] = v.nics || v.nic ? `${Number((((v.nics || node) * (v.nic || now.nic)) / 8 / node).toPrecision(6))} GB/s` : "";
    offer(changes);
  };
  const rows = kFields.map(({ id, label, unit }) => {
    inputs[id] = element("input", { id: "cluster-" + id, type: "number", min: 1, step: "any", onchange: () => told(false) });
    return element("div", { class: "field" }, element("label", { for: "cluster-" + id }, label, unit ? element("small", {}, unit) : null), element("span", { class: "control" }, inputs[id]));
  });
  const reset = button("as the system has it", () => {
    for (const input of Object.values(inputs)) input.value = "";
    told(true);
  }, { class: "small" });
  const box = element("details", {}, element("summary", {}, "my cluster differs"), rows, reset);
  box.show = (keys) => {
    inputs.node.value = keys["system.fabric.0.size"] ?? "";
    inputs.link.value = keys["system.fabric.0.bandwidth"] ? rate(keys["system.fabric.0.bandwidth"]) : "";
    if (!keys["system.fabric.1.bandwidth"]) inputs.nics.value = inputs.nic.value = "";
  };
  box.resolved = (system) => {
    const [inner, outer] = system.fabric ?? [];
    if (!inner) return;
    const node = inner.size;
    const nic = outer ? rate(outer.bandwidth) * 8 : 0;
    now = { node, nic, levels: system.fabric.length, hosted: system.host?.devices === node };
    inputs.node.placeholder = node;
    inputs.link.placeholder = three(rate(inner.bandwidth));
    inputs.nics.placeholder = node;
    inputs.nic.placeholder = three(nic);
    for (const id of ["nics", "nic"]) inputs[id].disabled = !outer;
  };
  return box;
}
