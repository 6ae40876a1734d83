#include <algorithm>
#include <cmath>

#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

constexpr double kLargest = 1e300;
constexpr std::int64_t kMostConnected = 1 << 24;

/// Fitted constants are plain numbers in SI base units: they belong to a formula, whose header says
/// what they are.
FittedModel fitted_from(const Value& v) {
  v.keys({"form", "constants", "range", "samples", "error", "log_sigma", "source", "points"});
  FittedModel m;
  m.form = v.at("form", "the name of the analytical form").name();
  if (const auto constants = v.find("constants")) {
    for (const auto& [name, c] : constants->members()) {
      m.constants[name] = c.number(-kLargest, kLargest);
    }
  }
  if (const auto range = v.find("range")) {
    for (const auto& [name, r] : range->members()) {
      const auto ends = r.items("[low, high]", 2);
      if (ends.size() != 2) {
        r.fail("[low, high]");
      }
      const double low = ends[0].number(-kLargest, kLargest);
      m.range[name] = {low, ends[1].number(low, kLargest)};
    }
  }
  if (const auto samples = v.find("samples")) {
    m.samples = samples->integer(0, INT64_MAX);
  }
  if (const auto error = v.find("error")) {
    error->keys({"median", "mean", "p90", "worst", "bias"});
    const auto part = [&](const char* key, double low) {
      const auto e = error->find(key);
      return e ? e->number(low, kLargest) : 0.0;
    };
    m.error = {part("median", 0), part("mean", 0), part("p90", 0), part("worst", 0),
               part("bias", -kLargest)};
  }
  if (const auto sigma = v.find("log_sigma")) {
    m.log_sigma = sigma->number(0, 1e3);
  }
  if (const auto source = v.find("source")) {
    m.source = source->text("where the rows come from");
  }
  if (const auto points = v.find("points")) {
    const std::string shape =
        "a list of points [feature, ..., ln(measured / analytical)], all of one length";
    std::size_t length = 0;
    for (const Value& p : points->items(shape)) {
      FittedModel::Point point;
      for (const Value& x : p.items(shape, 2)) {
        point.features.push_back(x.number(-kLargest, kLargest));
      }
      length = length == 0 ? point.features.size() : length;
      if (point.features.size() != length) {
        p.fail(shape);
      }
      point.log_ratio = point.features.back();
      point.features.pop_back();
      m.points.push_back(std::move(point));
    }
  }
  return m;
}

FittedModels fitted_models_from(const Value& v) {
  FittedModels models;
  if (const auto fitted = v.find("fitted")) {
    for (const auto& [name, m] : fitted->members()) {
      models[name] = fitted_from(m);
    }
  }
  return models;
}

std::map<Format, FlopsPerSecond> peaks_from(const Value& v) {
  std::map<Format, FlopsPerSecond> peaks;
  for (const auto& [name, p] : v.members()) {
    const auto format = format_named(name);
    if (!format) {
      std::vector<std::string> names;
      for (const FormatInfo& f : all_formats()) {
        names.emplace_back(f.name);
      }
      throw InputError(p.where(),
                       fmt::format("unknown number format; {}", suggestion(name, names)));
    }
    peaks[*format] = p.amount<FlopsPerSecond>();
  }
  if (peaks.empty()) {
    v.fail("at least one format, such as {\"fp32\": \"67 TFLOP/s\"}");
  }
  return peaks;
}

FabricLevel level_from(const Value& v) {
  v.keys({"name", "size", "used", "bandwidth", "latency", "oversubscription",
          "in_switch_reduction"});
  FabricLevel l;
  l.name = v.at("name", "a name in quotes").name();
  l.size = v.at("size", "how many units of the level below it joins").integer(1, kMostConnected);
  if (const auto used = v.find("used")) {
    l.used = used->integer(1, l.size);
  }
  l.bandwidth =
      v.at("bandwidth", "bytes per second, device and direction").amount<BytesPerSecond>();
  l.latency = v.at("latency", "a one-way time").amount<Seconds>(true);
  if (const auto o = v.find("oversubscription")) {
    l.oversubscription = o->number(1, 1e3);
  }
  if (const auto r = v.find("in_switch_reduction")) {
    l.in_switch_reduction = r->boolean();
  }
  return l;
}

Tier tier_from(const Value& v, const Device& device) {
  v.keys({"name", "capacity", "bandwidth", "shared_by"});
  Tier t;
  t.name = v.at("name", "a name in quotes").name();
  if (t.name == "hbm") {
    for (const char* key : {"capacity", "bandwidth", "shared_by"}) {
      if (const auto k = v.find(key)) {
        k->refuse(
            fmt::format("found {}: the tier hbm is the device's own memory; remove it and set "
                        "device.memory or device.bandwidth",
                        shown(k->json())));
      }
    }
    t.capacity = device.memory;
    t.bandwidth = device.bandwidth;
    return t;
  }
  t.capacity = v.at("capacity", "an amount of memory").amount<Bytes>();
  t.bandwidth = v.at("bandwidth", "bytes per second").amount<BytesPerSecond>();
  if (const auto s = v.find("shared_by")) {
    t.shared_by = s->integer(1, kMostConnected);
  }
  return t;
}

std::vector<Tier> tiers_from(const Value& v, const Device& device) {
  std::vector<Tier> tiers;
  if (const auto list = v.find("tiers")) {
    for (const Value& t : list->items("a list of tiers")) {
      tiers.push_back(tier_from(t, device));
      const auto same = [&](const Tier& other) { return other.name == tiers.back().name; };
      if (std::find_if(tiers.begin(), tiers.end() - 1, same) != tiers.end() - 1) {
        t.refuse(fmt::format("a second tier \"{}\"; give it another name", tiers.back().name));
      }
    }
  }
  const auto is_hbm = [](const Tier& t) { return t.name == "hbm"; };
  if (std::none_of(tiers.begin(), tiers.end(), is_hbm)) {
    tiers.insert(tiers.begin(), Tier{"hbm", device.memory, device.bandwidth, 1});
  }
  return tiers;
}

Host host_from(const Value& v, const System& system) {
  Host h;
  h.devices = system.fabric.empty() ? 1 : system.fabric.front().size;
  if (const auto host = v.find("host")) {
    host->keys({"devices", "cores", "shares_core", "collectives_hold_core"});
    if (const auto d = host->find("devices")) {
      h.devices = d->integer(1, kMostConnected);
    }
    if (const auto c = host->find("cores")) {
      h.cores = c->integer(1, 1 << 20);
    }
    if (const auto s = host->find("shares_core")) {
      h.shares_core = s->boolean();
    }
    if (const auto c = host->find("collectives_hold_core")) {
      h.collectives_hold_core = c->boolean();
    }
  }
  return h;
}

Device device_of(const Value& v, const Library& library, const Document* override_document) {
  if (override_document != nullptr) {
    return device_from(Value::root_of(*override_document));
  }
  const Value device = v.at("device", "a device name, path or object");
  if (!device.is_string()) {
    return device_from(device);
  }
  const Document d =
      open_named(device.text(""), FileKind::kDevice, device.folder(), device.where(), library);
  return device_from(Value::root_of(d));
}

}  // namespace

Device device_from(const Value& v) {
  if (!v.is_object()) {
    v.fail("a device: a name, a path or an object {...}");
  }
  v.keys({"name", "memory", "bandwidth", "l2", "multiprocessors", "launch", "watts", "peak",
          "source", "fitted"});
  Device d;
  d.name = v.at("name", "a name in quotes").name();
  d.memory = v.at("memory", "an amount such as \"80 GB\"").amount<Bytes>();
  d.bandwidth = v.at("bandwidth", "an amount such as \"3.35 TB/s\"").amount<BytesPerSecond>();
  d.peak = peaks_from(v.at("peak", "an object of formats and rates"));
  if (const auto l2 = v.find("l2")) {
    d.l2 = l2->amount<Bytes>(true);
  }
  if (const auto m = v.find("multiprocessors")) {
    d.multiprocessors = m->integer(1, 1 << 20);
  }
  if (const auto l = v.find("launch")) {
    d.launch = l->amount<Seconds>(true);
  }
  if (const auto w = v.find("watts")) {
    d.watts = w->number(0, 1e6);
  }
  if (const auto s = v.find("source")) {
    d.source = s->text("where the facts come from");
  }
  d.fitted = fitted_models_from(v);
  return d;
}

System system_from(const Value& v, const Library& library, const Document* device) {
  if (!v.is_object()) {
    v.fail("a system: a name, a path or an object {...}");
  }
  v.keys({"name", "device", "fabric", "tiers", "host", "fitted", "source"});
  System s;
  s.name = v.at("name", "a name in quotes").name();
  s.device = device_of(v, library, device);
  double devices = 1;
  for (const Value& l : v.at("fabric", "a list of levels, innermost first")
                            .items("a list of levels, innermost first")) {
    s.fabric.push_back(level_from(l));
    devices *= static_cast<double>(s.fabric.back().size);
    if (devices > kMostConnected) {
      l.refuse(fmt::format("the sizes up to here multiply to {} devices, expected at most {}",
                           devices, kMostConnected));
    }
  }
  s.tiers = tiers_from(v, s.device);
  s.host = host_from(v, s);
  if (const auto source = v.find("source")) {
    (void)source->text("where the facts come from");
  }
  s.fitted = fitted_models_from(v);
  return s;
}

}  // namespace stepcast::config
