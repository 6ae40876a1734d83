#include <algorithm>
#include <cmath>

#include "core/config/catalogue.h"
#include "core/config/internal/job_tables.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

constexpr double kLargest = 1e300;
constexpr double kLargestResidual = 5;  ///< of a point: ln(measured / analytical)
constexpr std::int64_t kMostConnected = 1 << 24;

KeyTable error_table() {
  const OrderedJson share = number_form(0, kLargest);
  return {usual_fact("median", share, "of the rows", 0),
          usual_fact("mean", share, "of the rows", 0), usual_fact("p90", share, "of the rows", 0),
          usual_fact("worst", share, "of the rows", 0),
          usual_fact("bias", number_form(-kLargest, kLargest), "mean signed error", 0)};
}

KeyTable fitted_table() {
  const OrderedJson number = number_form(-kLargest, kLargest);
  return {needed_fact("form", text_form("the name of the analytical form"),
                      "the formula whose constants these are", "the name of the analytical form"),
          open_fact("constants", map_form(number), "in SI units"),
          open_fact("range", map_form(list_form(number, 2, 2)),
                    "by feature: between which values rows were measured"),
          usual_fact("samples", integer_form(0, INT64_MAX), "rows", 0),
          open_fact("error", object_form(error_table()), "of the fit, as fractions"),
          usual_fact("log_sigma", number_form(0, 1e3), "spread of ln(measured / predicted)", 0),
          open_fact("source", text_form("where the rows come from"), "of the rows"),
          open_fact("points", list_form(list_form(number, 2)),
                    "[feature, ..., ln(measured / analytical)], all of one length")};
}

/// Fitted constants are plain numbers in SI base units: they belong to a formula, whose header says
/// what they are.
FittedModel fitted_from(const Value& v) {
  expect_keys(v, fitted_table());
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
    expect_keys(*error, error_table());
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
      if (std::abs(point.log_ratio) > kLargestResidual) {
        p.reject(fmt::format(
            "a residual of {:g} says that a measurement was {:.3g} times the "
            "analytical time; expected -{} to {}",
            point.log_ratio, std::exp(point.log_ratio), kLargestResidual, kLargestResidual));
      }
      point.features.pop_back();
      m.points.push_back(std::move(point));
    }
  }
  return m;
}

FittedModels fitted_models_from(const Value& v) {
  FittedModels models;
  for (const auto& [name, m] : v.members()) {
    models[name] = fitted_from(m);
  }
  return models;
}

OrderedJson fitted_json(const FittedModels& models) {
  OrderedJson all = OrderedJson::object();
  for (const auto& [name, m] : models) {
    OrderedJson j;
    j["form"] = m.form;
    j["constants"] = OrderedJson::object();
    for (const auto& [constant, value] : m.constants) {
      j["constants"][constant] = plain(value);
    }
    j["range"] = OrderedJson::object();
    for (const auto& [feature, r] : m.range) {
      j["range"][feature] = {plain(r.first), plain(r.second)};
    }
    j["samples"] = m.samples;
    j["error"] = {{"median", plain(m.error.median)},
                  {"mean", plain(m.error.mean)},
                  {"p90", plain(m.error.p90)},
                  {"worst", plain(m.error.worst)},
                  {"bias", plain(m.error.bias)}};
    j["log_sigma"] = plain(m.log_sigma);
    j["source"] = m.source;
    j["points"] = OrderedJson::array();
    for (const auto& p : m.points) {
      if (std::abs(p.log_ratio) > kLargestResidual) {  // of a disturbed run, and would not be read
        continue;
      }
      OrderedJson point = OrderedJson::array();
      for (const double f : p.features) {
        point.push_back(plain(f));
      }
      point.push_back(plain(p.log_ratio));
      j["points"].push_back(std::move(point));
    }
    all[name] = std::move(j);
  }
  return all;
}

/// `fitted` of a device or a system.
template <class S>
Key<S> fitted_key(std::string_view help) {
  return custom_key<S>(
      "fitted", map_form(object_form(fitted_table())), help,
      [](const Value& v, S& into, const Reading&) { into.fitted = fitted_models_from(v); },
      [](const S& of, const Writing&) { return fitted_json(of.fitted); });
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

const Keys<FabricLevel>& level_keys() {
  using L = FabricLevel;
  static const Keys<L> keys{
      name_key("name", &L::name, "of the level").needed("a name in quotes"),
      integer_key("size", &L::size, 1, kMostConnected, "units of the level below it that it joins")
          .needed("how many units of the level below it joins"),
      custom_key<L>(
          "used", integer_form(1, kMostConnected), "of these, how many a job takes",
          [](const Value& v, L& l, const Reading&) { l.used = v.integer(1, l.size); },
          [](const L& l, const Writing&) {
            return l.used > 0 ? OrderedJson(l.used) : OrderedJson();
          })
          .otherwise("all"),
      amount_key("bandwidth", &L::bandwidth, "of a device, in each direction")
          .needed("bytes per second, device and direction"),
      amount_key("latency", &L::latency, "one way", true).needed("a one-way time"),
      number_key("oversubscription", &L::oversubscription, 1, 1e3,
                 "bandwidth below over bandwidth above")
          .usual(1),
      boolean_key("in_switch_reduction", &L::in_switch_reduction, "switches add up what passes")
          .usual(false)};
  return keys;
}

FabricLevel level_from(const Value& v) {
  FabricLevel l;
  read_keys(v, level_keys(), l, {});
  return l;
}

/// hbm is the device's own memory: the device says what it is.
Key<Tier> slow_tier_key(Key<Tier> key) {
  key.write = [write = key.write](const Tier& t, const Writing& w) {
    return t.name == "hbm" ? OrderedJson() : write(t, w);
  };
  return key;
}

const Keys<Tier>& tier_keys() {
  static const Keys<Tier> keys{
      name_key("name", &Tier::name, "of the tier; hbm is the device's own memory")
          .needed("a name in quotes"),
      slow_tier_key(amount_key("capacity", &Tier::capacity, "of all sharers")),
      slow_tier_key(amount_key("bandwidth", &Tier::bandwidth, "of all sharers")),
      slow_tier_key(
          integer_key("shared_by", &Tier::shared_by, 1, kMostConnected, "devices that share it")
              .usual(1))};
  return keys;
}

Tier tier_from(const Value& v, const Device& device) {
  static const KeyTable known = facts_of(tier_keys());
  expect_keys(v, known);
  Tier t;
  if (v.at("name", "a name in quotes").is("hbm")) {
    for (const auto& [key, value] : v.members()) {
      if (key != "name") {
        value.reject(
            fmt::format("found {}: the tier hbm is the device's own memory; remove it and set "
                        "device.memory or device.bandwidth",
                        shown(value.json())));
      }
    }
    t.capacity = device.memory;
    t.bandwidth = device.bandwidth;
  } else {
    (void)v.at("capacity", "an amount of memory");
    (void)v.at("bandwidth", "bytes per second");
  }
  read_keys(v, tier_keys(), t, {});
  return t;
}

std::vector<Tier> tiers_from(const Value& v, const Device& device) {
  std::vector<Tier> tiers;
  if (const auto list = v.find("tiers")) {
    for (const Value& t : list->items("a list of tiers")) {
      tiers.push_back(tier_from(t, device));
      const auto same = [&](const Tier& other) { return other.name == tiers.back().name; };
      if (std::find_if(tiers.begin(), tiers.end() - 1, same) != tiers.end() - 1) {
        t.reject(fmt::format("a second tier \"{}\"; give it another name", tiers.back().name));
      }
    }
  }
  const auto hbm =
      std::find_if(tiers.begin(), tiers.end(), [](const Tier& t) { return t.name == "hbm"; });
  if (hbm == tiers.end()) {
    tiers.insert(tiers.begin(), Tier{"hbm", device.memory, device.bandwidth, 1});
  } else {
    std::rotate(tiers.begin(), hbm, hbm + 1);
  }
  return tiers;
}

const Keys<Host>& host_keys() {
  static const Keys<Host> keys{
      integer_key("devices", &Host::devices, 1, kMostConnected, "devices of a machine")
          .otherwise("the size of the first fabric level"),
      integer_key("cores", &Host::cores, 1, 1 << 20, "cores of a machine"),
      boolean_key("shares_core", &Host::shares_core,
                  "host thread and streams of a rank run on one core")
          .usual(false),
      boolean_key("collectives_hold_core", &Host::collectives_hold_core,
                  "transfers need the core of a rank too")
          .usual(true)};
  return keys;
}

const Keys<FrameworkTraits>& framework_keys() {
  using F = FrameworkTraits;
  static const Keys<F> keys = [] {
    const auto flag = [](std::string_view name, bool F::*member, std::string_view help) {
      return boolean_key(name, member, help).terse_usual(false);
    };
    const auto number = [](std::string_view name, double F::*member, std::string_view help) {
      return number_key(name, member, 0, 1e15, help).terse_usual(0);
    };
    return Keys<F>{
        flag("separate_accumulation", &F::separate_accumulation,
             "weight gradients are added up by a kernel of their own"),
        flag("scatter_gather", &F::scatter_gather,
             "tensor ranks send parts along the pipeline and gather them"),
        flag("fused_quantise", &F::fused_quantise, "norms write narrow formats"),
        flag("synchronous_messages", &F::synchronous_messages,
             "the host waits for its device after each message"),
        flag("selective_per_op", &F::selective_per_op, "selective recomputation is torchtitan's"),
        flag("blocking_launches", &F::blocking_launches, "the host waits after every op"),
        flag("keeps_outputs", &F::keeps_outputs, "a stage keeps what it sent"),
        flag("casts_each_pass", &F::casts_each_pass, "weights are cast where they are used"),
        flag("gathers_narrow", &F::gathers_narrow, "ZeRO 3 gathers weights in narrow formats"),
        number("attention", &F::attention, "fused attention over the measured kernels; 0: as long"),
        number("attention_fp8_devices", &F::attention_fp8_devices,
               "the same on devices with fp8 units"),
        flag("fp8_attention", &F::fp8_attention, "fused attention computes in fp8"),
        flag("copies_gathered", &F::copies_gathered, "ZeRO 3 copies weights out of gathers"),
        flag("narrow_head", &F::narrow_head,
             "the head's products are as narrow as those of layers"),
        flag("wide_scores", &F::wide_scores, "unfused attention keeps its softmax in fp32"),
        number("gradient_passes", &F::gradient_passes,
               "ZeRO 3: passes over gradients before they leave"),
        flag("synchronous_routing", &F::synchronous_routing,
             "the host waits for each router's counts"),
        number("expert_layer_host", &F::expert_layer_host,
               "the host's seconds for a layer of experts, each pass"),
        number("exchange_multiprocessors", &F::exchange_multiprocessors,
               "multiprocessors that a collective occupies while it overlaps"),
        flag("probabilities_inside", &F::probabilities_inside,
             "experts' activations are multiplied by the probabilities"),
        flag("narrow_ids", &F::narrow_ids, "row ids are 32 bits wide"),
        flag("fused_optimizer", &F::fused_optimizer,
             "one launch updates all dense parameters of a recommender"),
        number("arranged_rows", &F::arranged_rows,
               "pooled rows that a multiprocessor reorders in a second; 0: copies do it"),
        number("distributed_ids", &F::distributed_ids,
               "ids that a multiprocessor orders by rank in a second; 0: their bytes alone")};
  }();
  return keys;
}

Host host_from(const Value& v, const System& system) {
  Host h;
  h.devices = system.fabric.empty() ? 1 : system.fabric.front().size;
  if (const auto host = v.find("host")) {
    read_keys(*host, host_keys(), h, {});
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

const Keys<Device>& device_keys() {
  using D = Device;
  static const Keys<D> keys{
      name_key("name", &D::name, "of the device").needed("a name in quotes"),
      amount_key("memory", &D::memory, "device memory").needed("an amount such as \"80 GB\""),
      amount_key("bandwidth", &D::bandwidth, "of device memory")
          .needed("an amount such as \"3.35 TB/s\""),
      amount_key("l2", &D::l2, "last-level cache", true),
      integer_key("multiprocessors", &D::multiprocessors, 1, 1 << 20, "multiprocessors, or cores"),
      amount_key("launch", &D::launch, "the host's time to issue an op", true),
      number_key("watts", &D::watts, 0, 1e6, "power"),
      custom_key<D>(
          "peak", map_form(amount_form(example_of<FlopsPerSecond>())),
          "dense rate of products by number format",
          [](const Value& v, D& d, const Reading&) { d.peak = peaks_from(v); },
          [](const D& d, const Writing&) {
            OrderedJson peak = OrderedJson::object();
            for (const auto& [format, rate] : d.peak) {
              peak[std::string(name_of(format))] = quantity_text(rate);
            }
            return peak;
          })
          .needed("an object of formats and rates"),
      custom_key<D>(
          "source", text_form("where the facts come from"), "of the facts",
          [](const Value& v, D& d, const Reading&) {
            d.source = v.text("where the facts come from");
          },
          [](const D& d, const Writing&) { return OrderedJson(d.source); }),
      fitted_key<D>("constants of kernels")};
  return keys;
}

/// Lists of structs.
template <class S>
OrderedJson list_json(const Keys<S>& keys, const std::vector<S>& all) {
  OrderedJson list = OrderedJson::array();
  for (const S& one : all) {
    list.push_back(write_keys(keys, one, {}));
  }
  return list;
}

const Keys<System>& system_keys() {
  using S = System;
  static const Keys<S> keys{
      name_key("name", &S::name, "of the system").needed("a name in quotes"),
      known_key<S>("device", any_form({text_form("a name or a path"), named_form("device")}),
                   "what computes",
                   [](const S& s, const Writing&) { return device_json(s.device); })
          .needed("a device name, path or object"),
      known_key<S>("fabric", list_form(object_form(facts_of(level_keys()))),
                   "levels that join devices, innermost first",
                   [](const S& s, const Writing&) { return list_json(level_keys(), s.fabric); })
          .needed("a list of levels, innermost first"),
      known_key<S>("tiers", list_form(object_form(facts_of(tier_keys()))),
                   "memories that rows of tables may be in",
                   [](const S& s, const Writing&) { return list_json(tier_keys(), s.tiers); })
          .otherwise("hbm"),
      known_key<S>("host", object_form(facts_of(host_keys())), "a machine",
                   [](const S& s, const Writing&) { return write_keys(host_keys(), s.host, {}); }),
      known_key<S>("framework_traits", object_form(facts_of(framework_keys())),
                   "what a training framework does",
                   [](const S& s, const Writing& w) {
                     OrderedJson traits = write_keys(framework_keys(), s.framework, w);
                     return traits.empty() ? OrderedJson() : traits;
                   })
          .otherwise("none, or the stack's"),
      fitted_key<S>("constants of collectives and of steps"),
      known_key<S>("source", text_form("where the facts come from"), "of the facts")};
  return keys;
}

}  // namespace

Device device_from(const Value& v) {
  if (!v.is_object()) {
    v.fail("a device: a name, a path or an object {...}");
  }
  Device d;
  read_keys(v, device_keys(), d, {});
  return d;
}

OrderedJson device_json(const Device& d) { return write_keys(device_keys(), d, {}); }
OrderedJson system_json(const System& s, bool every) {
  return write_keys(system_keys(), s, {.every = every});
}
const KeyTable& device_table() {
  static const KeyTable table = facts_of(device_keys());
  return table;
}
const KeyTable& system_table() {
  static const KeyTable table = facts_of(system_keys());
  return table;
}

System system_from(const Value& v, const Library& library, const Document* device) {
  if (!v.is_object()) {
    v.fail("a system: a name, a path or an object {...}");
  }
  expect_keys(v, system_table());
  System s;
  s.name = v.at("name", "a name in quotes").name();
  s.device = device_of(v, library, device);
  double devices = 1;
  for (const Value& l : v.at("fabric", "a list of levels, innermost first")
                            .items("a list of levels, innermost first")) {
    s.fabric.push_back(level_from(l));
    devices *= static_cast<double>(s.fabric.back().size);
    if (devices > kMostConnected) {
      l.reject(fmt::format("the sizes up to here multiply to {} devices, expected at most {}",
                           devices, kMostConnected));
    }
  }
  s.tiers = tiers_from(v, s.device);
  s.host = host_from(v, s);
  if (const auto source = v.find("source")) {
    (void)source->text("where the facts come from");
  }
  if (const auto traits = v.find("framework_traits")) {
    read_keys(*traits, framework_keys(), s.framework, {});
  }
  if (const auto fitted = v.find("fitted")) {
    s.fitted = fitted_models_from(*fitted);
  }
  return s;
}

void attach_memory_margin(Device& device, const Library& library) {
  const auto margin = read_once<FittedModel>(library, "memory_margin", [&] {
    const Document d =
        parse_document(file_source(library.root / "models" / "stacks" / "memory_margin.json"));
    return fitted_from(Value::root_of(d));
  });
  FittedModel& memory = device.fitted["memory"];
  memory.form = memory.form.empty() ? "memory.reserve" : memory.form;
  memory.constants.insert(margin.constants.begin(), margin.constants.end());
}

}  // namespace stepcast::config
