#include "tests/studies/drawn_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/config/catalogue.h"
#include "core/config/default_framework.h"
#include "core/config/published_names.h"
#include "core/error.h"

namespace stepcast::studies::testing {
namespace {

using planner::testing::Draw;
using Settings = std::vector<std::string>;

const config::Library& library() {
  static config::Catalogue catalogue;
  static const config::Library kept{STEPCAST_SOURCE_DIR, nullptr, &catalogue};
  return kept;
}

/// Names of the transformers of the zoo, of all systems and of the frameworks that train
/// transformers.
struct Names {
  Settings workloads, systems, frameworks;
};
const Names& names() {
  static const Names all = [] {
    Names n;
    for (const config::Entry& entry : config::list_workloads(library())) {
      if (config::load_workload(entry.name, library()).transformer() != nullptr) {
        n.workloads.push_back(entry.name);
      }
    }
    for (const config::Entry& entry : config::list_systems(library())) {
      n.systems.push_back(entry.name);
    }
    for (const config::Framework& framework : config::load_published_names(library()).frameworks) {
      n.frameworks.push_back(framework.name);
    }
    return n;
  }();
  return all;
}

template <class T>
const T& one_of(Draw& draw, const std::vector<T>& values) {
  return values[draw.below(values.size())];
}

const char* flag(Draw& draw) { return draw.one_in(2) ? "true" : "false"; }

/// The degrees of a plan; devices are their product.
struct Degrees {
  std::int64_t tensor, context, pipeline, data;
  [[nodiscard]] std::int64_t devices() const { return tensor * context * pipeline * data; }
};

Degrees drawn_degrees(Draw& draw) {
  while (true) {
    const Degrees d{draw({1, 1, 2, 4, 8}), draw({1, 1, 1, 1, 2, 4, 8}),
                    draw({1, 1, 1, 2, 3, 4, 5, 8, 16}),
                    draw({1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 64, 125, 512})};
    if (d.devices() <= 10'000) {
      return d;
    }
  }
}

/// First settings of a job, which every one says.
Settings core_of(Draw& draw, const TransformerWorkload& model, const Degrees& d, bool small,
                 std::int64_t& tokens) {
  Settings set;
  const auto add = [&set](const char* key, const auto& value) {
    set.push_back(fmt::format("{}={}", key, value));
  };
  if (small || !draw.one_in(3)) {
    const std::int64_t most = small ? 2 : 4;
    add("workload.layers",
        std::min(model.layers, d.pipeline * draw({1, most}) + draw({0, 0, 0, 1})));
  }
  const std::int64_t micro = draw({1, 1, 1, 2, 4});
  const std::int64_t sequence = draw({1024, 2048, 4096, 4096, 8192, small ? 8192 : 32768});
  add("devices", d.devices());
  add("batch.global", d.data * micro * (small ? draw({1, 2, 4}) : draw({1, 2, 3, 4, 8, 16, 24})));
  add("batch.micro", micro);
  add("batch.sequence", sequence);
  tokens = micro * sequence / d.context;
  for (const auto& [key, degree] : {std::pair{"parallel.tensor", d.tensor},
                                    {"parallel.context", d.context},
                                    {"parallel.pipeline", d.pipeline}}) {
    if (degree > 1) {
      add(key, degree);
    }
  }
  return set;
}

/// Choices that a job may make besides, most of them at the default.
Settings options_of(Draw& draw, const TransformerWorkload& model, const Degrees& d,
                    std::int64_t tokens) {
  Settings set;
  const auto add = [&set](const char* key, const auto& value) {
    set.push_back(fmt::format("{}={}", key, value));
  };
  if (draw.one_in(2)) {
    add("stack", one_of(draw, names().frameworks));
  }
  if (d.pipeline > 1) {
    const std::int64_t chunks = draw({1, 1, 1, 2, 3});
    if (chunks > 1) {
      add("parallel.virtual_stages", chunks);
    } else {
      add("parallel.schedule",
          one_of<std::string>(draw, {"1f1b", "1f1b", "gpipe", "zb-h1", "zb-h2"}));
    }
    if (draw.one_in(12)) {
      set.back() = "parallel.schedule=" +
                   one_of<std::string>(draw, {"zb-v", "v-half", "v-min", "dualpipe-v"});
      add("parallel.virtual_stages", 2);
    }
  }
  if (d.tensor > 1) {
    add("parallel.sequence_parallel", flag(draw));
  }
  if (d.context > 1 && draw.one_in(2)) {
    add("parallel.context_algorithm",
        one_of<std::string>(draw, {"ring", "all_gather", "all_to_all"}));
  }
  if (model.moe && !draw.one_in(4)) {
    const std::int64_t most = std::gcd(d.tensor * d.context * d.data, model.moe->experts);
    std::int64_t expert = draw({1, 2, 4, 8, 16, 32, 64});
    while (most % expert != 0) {
      expert /= 2;
    }
    add("parallel.expert", expert);
    add("parallel.expert_tensor", draw.one_in(2) ? "1" : "auto");
    if (draw.one_in(4)) {
      add("parallel.expert_dispatch", "per_machine");
    }
  }
  add("parallel.zero",
      one_of<std::string>(
          draw, {"0", "1", "1", "2", "3", "3", R"({"stage": 3, "reshard": false})",
                 R"({"stage": 1, "level": "node"})", R"({"stage": 3, "level": "node"})"}));
  if (draw.one_in(2)) {
    add("parallel.recompute",
        one_of<std::string>(
            draw, {"selective", "full", R"({"layers": 1})", R"({"modules": ["layernorm"]})",
                   R"({"modules": ["moe_act"]})", R"({"modules": ["mla_up_proj"]})"}));
  }
  if (draw.one_in(2)) {
    add("formats.compute",
        one_of<std::string>(draw, {"bf16", "fp16", "fp8", "mxfp8", "nvfp4", "tf32", "fp32"}));
  }
  if (draw.one_in(3)) {
    add("formats.gradient", "bf16");
  }
  if (draw.one_in(8)) {
    add("lora", fmt::format(R"({{"rank": {}}})", draw({8, 16, 64})));
  }
  if (draw.one_in(3)) {
    const auto kind = one_of<std::string>(draw, {"copied", "compiled", "eager", "fused"});
    const std::int64_t chunks = tokens % 8 == 0 ? draw({1, 1, 8}) : 1;
    add("loss",
        chunks == 1 ? kind : fmt::format(R"({{"kind": "{}", "chunks": {}}})", kind, chunks));
  }
  for (const char* overlap :
       {"data", "tensor", "tensor_products", "pipeline", "parameters", "expert"}) {
    if (draw.one_in(4)) {
      add(fmt::format("parallel.overlap.{}", overlap).c_str(), flag(draw));
    }
  }
  if (draw.one_in(15)) {
    add("attention", "unfused");
  }
  if (draw.one_in(10)) {
    add("parallel.order", "tensor-context-data-pipeline");
  }
  if (draw.one_in(10)) {
    add("optimizer", "sgd");
  }
  if (draw.one_in(20)) {
    add("sequence_lengths", R"({"mean": 700, "deviation": 400})");
  }
  return set;
}

std::string_view key_of(const std::string& setting) {
  return std::string_view(setting).substr(0, setting.find('='));
}

/// The option that an error names, or any.
std::size_t blamed(Draw& draw, const Settings& options, const std::string& error) {
  const auto at = std::find_if(options.begin(), options.end(), [&](const std::string& setting) {
    return error.find(key_of(setting)) != std::string::npos;
  });
  return at != options.end() ? static_cast<std::size_t>(at - options.begin())
                             : draw.below(options.size());
}

}  // namespace

std::string command_of(const std::vector<std::string>& settings) {
  std::string text = "stepcast predict";
  for (const std::string& setting : settings) {
    text += " --set " + config::quoted_setting(setting);
  }
  return text;
}

Job loaded(const std::vector<std::string>& settings) {
  return config::load_job_on_default_framework(config::text_source("{}", "drawn"), settings,
                                               library())
      .job;
}

std::optional<DrawnJob> drawn_job(Draw& draw, bool small) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const std::string& workload = one_of(draw, names().workloads);
    const Degrees degrees = drawn_degrees(draw);
    const Workload model = config::load_workload(workload, library());
    std::int64_t tokens = 0;
    Settings set{"workload=" + workload, "system=" + one_of(draw, names().systems)};
    const Settings core = core_of(draw, *model.transformer(), degrees, small, tokens);
    set.insert(set.end(), core.begin(), core.end());
    Settings options = options_of(draw, *model.transformer(), degrees, tokens);
    while (true) {
      Settings all = set;
      all.insert(all.end(), options.begin(), options.end());
      try {
        Job job = loaded(all);
        return DrawnJob{std::move(all), std::move(job)};
      } catch (const InputError& error) {
        if (options.empty()) {
          break;
        }
        options.erase(options.begin() +
                      static_cast<std::ptrdiff_t>(blamed(draw, options, error.what())));
      }
    }
  }
  return std::nullopt;
}

}  // namespace stepcast::studies::testing
