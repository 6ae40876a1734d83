#include "models/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/graph/op_traits.h"
#include "core/graph/program.h"
#include "core/job/tier_units.h"
#include "models/collectives/collective_curves.h"
#include "models/collectives/collective_form.h"
#include "models/kernels/kernel_form.h"
#include "models/kernels/newton_schulz.h"
#include "models/kernels/unfused_attention.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

constexpr std::string_view kTierModel = "tier.shared_link";

double constant_or(const FittedModel* model, const std::string& name, double otherwise) {
  if (model == nullptr) {
    return otherwise;
  }
  const auto it = model->constants.find(name);
  return it == model->constants.end() ? otherwise : it->second;
}

const FittedModel* find(const FittedModels& models, const std::string& key) {
  const auto it = models.find(key);
  return it == models.end() ? nullptr : &it->second;
}

/// A model made from measurements of this device states its ranges; constants taken over from
/// elsewhere have none and are never in range.
bool inside(const FittedModel& model, std::span<const std::string_view> names,
            std::span<const double> coordinates) {
  if (model.samples <= 0 || model.range.empty()) {
    return false;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto it = model.range.find(std::string(names[i]));
    const double slack = 1e-3;  // ranges are logarithms, written with five digits
    if (it == model.range.end() || coordinates[i] < it->second.first - slack ||
        coordinates[i] > it->second.second + slack) {
      return false;
    }
  }
  return true;
}

}  // namespace

// Members of CostModel::Impl, so not of an anonymous namespace.
inline namespace cost_model_parts {

class Kernel {
 public:
  Kernel(const KernelForm* of, const FittedModel* fit, std::vector<double> values)
      : form(of), fitted(fit), constants(std::move(values)) {}

  const KernelForm* form;
  const FittedModel* fitted;
  std::vector<double> constants;

  /// Solved for when the first op asks: a device holds more fits than a step has kinds of ops, and
  /// each costs O(points^3).
  [[nodiscard]] const ResidualSurface& residual() const {
    std::call_once(surface_->once, [this] {
      surface_->residual = fitted != nullptr ? ResidualSurface(*fitted) : ResidualSurface();
    });
    return surface_->residual;
  }

 private:
  struct Surface {
    std::once_flag once;
    ResidualSurface residual;
  };
  std::shared_ptr<Surface> surface_ = std::make_shared<Surface>();
};

struct Collective {
  const CollectiveForm* form = nullptr;
  const FittedModel* fitted = nullptr;
  std::vector<double> constants;
  CollectiveCurves curves;

  /// exp of what the points add to the form.
  [[nodiscard]] double correction(OpKind kind, double bytes, const GroupShape& group,
                                  const System& system) const {
    return std::exp(curves.at(place_of(bytes, group), [&](double log_bytes) {
      return std::log(
          form->predict(kind, std::exp(log_bytes), group, system, constants).time.base());
    }));
  }

  /// True if such sizes and such groups were among the rows of the fit.
  [[nodiscard]] bool measured(double bytes, const GroupShape& group) const {
    const CollectivePlace place = place_of(bytes, group);
    const std::array<double, 3> at{place.log_bytes, place.log_size, place.log_members};
    constexpr std::array<std::string_view, 3> kNames{"log_bytes", "log_size", "log_members"};
    // Ranks of one machine state no members per unit.
    const std::size_t stated = fitted->range.contains(std::string(kNames[2])) ? 3 : 2;
    return inside(*fitted, std::span(kNames).first(stated), std::span(at).first(stated));
  }
};

}  // namespace cost_model_parts

namespace {

/// An op that consists of several kernels, each so many times.
class SumOfParts {
 public:
  SumOfParts(const CostModel& model, std::string_view name) : model_(model) {
    sum_.in_range = true;
    sum_.model = name;
  }
  void add(const Op& part, double times = 1) {
    const Prediction p = model_.kernel(part);
    sum_.time += p.time * times;
    sum_.compute += p.compute * times;
    sum_.memory += p.memory * times;
    sum_.overhead += p.overhead * times;
    sum_.in_range = sum_.in_range && p.in_range;
    sum_.log_sigma = std::max(sum_.log_sigma, p.log_sigma);
    sum_.bound = sum_.compute > sum_.memory ? "compute" : "memory";
  }
  [[nodiscard]] const Prediction& sum() const { return sum_; }

 private:
  const CostModel& model_;
  Prediction sum_;
};

}  // namespace

struct CostModel::Impl {
  System system;
  double scale = 1;
  std::map<std::string, Kernel> fitted_kernels;                 // by key of FittedModels
  std::vector<Kernel> plain_kernels;                            // one per form, ideal constants
  std::map<std::pair<OpKind, Format>, Collective> collectives;  // fp32 always; others where fitted

  Impl(const System& of, const Calibration& calibration) : system(of) {
    if (calibration.kind == Calibration::Kind::kNone) {
      system.fitted.clear();
      system.device.fitted.clear();
      system.framework = {};
    }
    scale = calibration.kind == Calibration::Kind::kScale ? calibration.scale : 1;
    for (const auto& form : builtin_kernel_forms()) {
      plain_kernels.emplace_back(form.get(), nullptr, constants_of(*form, system.device, nullptr));
    }
    for (const auto& [key, model] : system.device.fitted) {
      if (const KernelForm* form = kernel_form_named(model.form)) {
        fitted_kernels.emplace(key,
                               Kernel(form, &model, constants_of(*form, system.device, &model)));
      }
    }
    for (auto kind = static_cast<int>(OpKind::kAllReduce);
         kind <= static_cast<int>(OpKind::kBarrier); ++kind) {
      for (const FormatInfo& f : all_formats()) {
        const auto of_kind = static_cast<OpKind>(kind);
        if (f.format == Format::kFp32 ||
            fitted(collective_keys(of_kind, f.format).front()) != nullptr) {
          collectives[{of_kind, f.format}] = collective_model(of_kind, f.format);
        }
      }
    }
  }

  [[nodiscard]] const FittedModel* fitted(const std::string& key) const {
    const FittedModel* model = find(system.fitted, key);
    return model != nullptr ? model : find(system.device.fitted, key);
  }

  [[nodiscard]] Collective collective_model(OpKind kind, Format format) const {
    Collective c;
    c.form = builtin_collective_forms().front().get();
    for (const std::string& key : collective_keys(kind, format)) {
      const FittedModel* model = fitted(key);
      if (const CollectiveForm* form =
              model != nullptr ? collective_form_named(model->form) : nullptr) {
        c.form = form;
        c.fitted = model;
        c.curves = CollectiveCurves(*model);
        break;
      }
    }
    for (const Constant& k : c.form->constants(system)) {
      c.constants.push_back(constant_or(c.fitted, std::string(k.name), k.ideal));
    }
    return c;
  }

  [[nodiscard]] const Collective& collective_of(OpKind kind, Format format) const {
    const auto it = collectives.find({kind, format});
    return it != collectives.end() ? it->second : collectives.at({kind, Format::kFp32});
  }

  [[nodiscard]] const Kernel& kernel_of(const Op& op) const {
    for (const std::string& key : fitted_keys(op, system.device.peak.contains(op.format))) {
      if (const auto it = fitted_kernels.find(key);
          it != fitted_kernels.end() && it->second.form->covers(op)) {
        return it->second;
      }
    }
    for (const Kernel& k : plain_kernels) {
      if (k.form->covers(op)) {
        return k;
      }
    }
    throw InternalError(std::string("no kernel form covers ") + std::string(name_of(op.kind)));
  }

  /// Time of the framework's fused attention over that of the kernels the device was measured with.
  [[nodiscard]] double attention_pace(const Op& op) const {
    const bool fused =
        class_of(op.kind) == OpClass::kAttention && (op.flags & op_flags::kUnfused) == 0;
    const double efficiency = !fused ? 0
                              : system.device.peak.contains(Format::kFp8)
                                  ? system.framework.attention_fp8_devices
                                  : system.framework.attention;
    return efficiency > 0 ? efficiency : 1;
  }

  /// Unfused attention that no fitted model answers for: the sum of the kernels it consists of.
  [[nodiscard]] bool in_parts(const Op& op) const {
    return class_of(op.kind) == OpClass::kAttention && (op.flags & op_flags::kUnfused) != 0 &&
           kernel_of(op).fitted == nullptr;
  }

  /// The slower memory tier an op fetches from or writes to; null where the system has none such.
  [[nodiscard]] const Tier* tier_of(const Program& program, const Op& op) const {
    const std::size_t tier = op.as<TierAttributes>().tier;
    const auto at = std::find_if(system.tiers.begin(), system.tiers.end(), [&](const Tier& t) {
      return tier < program.tiers.size() && t.name == program.tiers[tier];
    });
    return at == system.tiers.end() ? nullptr : &*at;
  }

  void rescale(Prediction& p) const {
    p.time *= scale;
    p.compute *= scale;
    p.memory *= scale;
    p.overhead *= scale;
  }
};

CostModel::CostModel(const System& system, const Calibration& calibration)
    : impl_(std::make_unique<Impl>(system, calibration)) {}
CostModel::~CostModel() = default;
CostModel::CostModel(CostModel&&) noexcept = default;

const System& CostModel::system() const { return impl_->system; }

Prediction CostModel::kernel(const Program& program, const Op& op) const {
  STEPCAST_CHECK(!is_collective(op.kind), "{} is not a kernel", name_of(op.kind));
  return kernel(OpFacts(program, op));
}

Prediction CostModel::kernel(const Op& op) const {
  STEPCAST_CHECK(!is_collective(op.kind), "{} is not a kernel", name_of(op.kind));
  return kernel(OpFacts(op));
}

Prediction CostModel::kernel(const OpFacts& facts) const {
  const Op& op = *facts.op;
  if (moves_between_tiers(op.kind)) {
    if (facts.program == nullptr) {
      return {};  // no tier known
    }
    if (const Tier* tier = impl_->tier_of(*facts.program, op)) {
      return tier_move(*tier, tier_bytes(op));
    }
    Prediction nothing;
    nothing.model = kTierModel;
    return nothing;
  }
  if (op.kind == OpKind::kOrthogonalize) {
    SumOfParts all(*this, "newton_schulz");
    for (const auto& [part, times] : newton_schulz_ops(op)) {
      all.add(part, times);
    }
    return all.sum();
  }
  if (impl_->in_parts(op)) {
    SumOfParts all(*this, "attention.unfused");
    for (const Op& part : unfused_attention_ops(op)) {
      all.add(part);
    }
    return all.sum();
  }
  const Kernel& k = impl_->kernel_of(op);
  Prediction p = k.form->predict(facts, impl_->system.device, k.constants);
  p.model = k.form->name();
  if (k.fitted != nullptr) {
    const std::vector<double> coordinates = k.form->coordinates(facts);
    p.log_sigma = k.fitted->log_sigma;
    const bool alike = k.form->like_measured(op);
    p.in_range = alike && inside(*k.fitted, k.form->coordinate_names(), coordinates);
    if (alike && !k.residual().empty()) {
      p.time *= std::exp(k.residual().at(coordinates));
      p.time = std::max(p.time, k.form->limit(facts, impl_->system.device));
    }
  }
  p.time *= impl_->attention_pace(op);
  impl_->rescale(p);
  return p;
}

Prediction CostModel::tier_move(const Tier& tier, Bytes moved) const {
  Prediction p;
  p.model = kTierModel;
  p.bound = "link";
  if (!(tier.bandwidth.base() > 0)) {
    return p;
  }
  p.memory = moved / link_of_device(tier);
  p.time = p.memory;
  p.in_range = true;
  impl_->rescale(p);
  return p;
}

bool CostModel::of_op_alone(const Op& op) const {
  return op.kind == OpKind::kOrthogonalize ||
         (!moves_between_tiers(op.kind) && impl_->kernel_of(op).form->of_op_alone());
}

Prediction CostModel::collective(const Op& op, const GroupShape& group, Seconds idle_time) const {
  STEPCAST_CHECK(is_collective(op.kind), "{} is not a collective", name_of(op.kind));
  if (group.size <= 1 || impl_->system.fabric.empty()) {
    return {};
  }
  const Collective& c = impl_->collective_of(op.kind, op.format);
  const bool alike = traits_of(op.kind).role == OpRole::kSymmetric;
  const double steps = alike ? static_cast<double>(std::max<std::int64_t>(op.shape[1], 1)) : 1;
  const double bytes =
      op.kind == OpKind::kBarrier ? 0 : steps * format_bytes(op.format, 1, op.shape[0]).base();
  Prediction p = c.form->predict(op.kind, bytes, group, impl_->system, c.constants);
  p.model = c.form->name();
  if (c.fitted != nullptr) {
    p.log_sigma = c.fitted->log_sigma;
    p.in_range = c.measured(bytes, group);
    if (!c.curves.empty() && op.kind != OpKind::kBarrier) {
      p.time *= c.correction(op.kind, bytes, group, impl_->system);
      p.time = std::max(p.time, c.form->limit(op.kind, bytes, group, impl_->system));
    }
  }
  const Seconds rest = c.form->after_rest(bytes, idle_time, c.constants);
  p.time += rest;
  p.overhead += rest;
  for (Seconds* part : {&p.time, &p.compute, &p.memory, &p.overhead}) {
    *part = *part * (1 / steps);  // steps share what the whole exchange takes
  }
  impl_->rescale(p);
  return p;
}

ExchangePrediction CostModel::all_to_all_v(std::span<const double> send,
                                           std::span<const std::int32_t> ranks, Format format,
                                           Seconds idle_time) const {
  const std::size_t n = ranks.size();
  ExchangePrediction out;
  out.ends.resize(n);
  out.overheads.resize(n);
  if (n <= 1 || impl_->system.fabric.empty()) {
    out.in_range = true;  // nothing is exchanged
    return out;
  }
  const Collective& c = impl_->collective_of(OpKind::kAllToAllV, format);
  const GroupShape group = group_shape(impl_->system, ranks);
  const std::size_t levels = impl_->system.fabric.size();
  auto [ports, totals] = exchange_ports(send, ranks, impl_->system);
  const std::vector<double> no_bytes(levels, 0.0);
  const auto size = static_cast<double>(n);
  double most = 0;
  for (std::size_t r = 0; r < n; ++r) {
    double peers = 0;
    for (std::size_t p = 0; p < n; ++p) {
      peers += p != r && (send[r * n + p] > 0 || send[p * n + r] > 0) ? 1 : 0;
    }
    const std::span<const double> mine(ports.data() + r * levels, levels);
    // Points and ranges were taken on equal exchanges: of this rank the one that moves as much.
    const double equal = exchanged_bytes(mine) * size / (size - 1);
    most = std::max(most, equal);
    Seconds t = c.form->exchange(mine, send[r * n + r], peers, group, impl_->system, c.constants);
    if (!c.curves.empty() && equal > 0) {
      t *= c.correction(OpKind::kAllToAllV, equal, group, impl_->system);
      t = std::max(t, c.form->exchange_limit(mine, group, impl_->system));
    }
    const Seconds wire = slowest_port(mine, group, impl_->system, 1);
    for (std::size_t level = 0; level < levels && wire > Seconds{}; ++level) {
      PortUse& use = totals[r * levels + level];
      const double carried = port_bandwidth(impl_->system, group, level) * wire.base();
      use = {use.sent / carried, use.received / carried};
    }
    const Seconds rest = c.form->after_rest(equal, idle_time, c.constants);
    const Seconds empty = c.form->exchange(no_bytes, 0, peers, group, impl_->system, c.constants);
    out.ends[r] = (t + rest) * impl_->scale;
    out.overheads[r] = (std::min(empty, t) + rest) * impl_->scale;
  }
  out.ports = std::move(totals);
  out.model = c.form->name();
  if (c.fitted != nullptr) {
    out.log_sigma = c.fitted->log_sigma;
    out.in_range = c.measured(most, group);
  }
  return out;
}

bool CostModel::rest_matters() const {
  return std::any_of(impl_->collectives.begin(), impl_->collectives.end(), [](const auto& entry) {
    const Collective& c = entry.second;
    return c.form->after_rest(1, Seconds(1), c.constants) > Seconds{};
  });
}

HostCost CostModel::host() const {
  const FittedModel* model = impl_->fitted("host");
  HostCost h;
  h.issue = Seconds(constant_or(model, "issue", impl_->system.device.launch.base())) * impl_->scale;
  h.dispatch = Seconds(constant_or(model, "dispatch", 0)) * impl_->scale;
  h.step = Seconds(constant_or(model, "step", 0)) * impl_->scale;
  h.queue_depth = static_cast<std::int64_t>(
      constant_or(model, "queue_depth", static_cast<double>(h.queue_depth)));
  h.shares_core = impl_->system.host.shares_core;
  h.graphs = static_cast<Graphs>(std::clamp(std::lround(constant_or(model, "graphs", 0)), 0L,
                                            static_cast<long>(Graphs::kFull)));
  h.expert_layer = Seconds(impl_->system.framework.expert_layer_host) * impl_->scale;
  if (h.graphs == Graphs::kFull) {
    h.step += std::exchange(h.issue, Seconds());
  }
  return h;
}

Straggler CostModel::straggler() const {
  const FittedModel* model = impl_->fitted("straggler");
  return {constant_or(model, "log_sigma", 0), constant_or(model, "rho", 0)};
}

double CostModel::compute_slowdown() const {
  return std::max(1.0, constant_or(impl_->fitted("slowdown"), "compute", 1));
}

}  // namespace stepcast::models
