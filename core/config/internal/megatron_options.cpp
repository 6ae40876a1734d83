#include "core/config/internal/megatron_options.h"

#include <algorithm>
#include <charconv>

#include "core/config/internal/shell_variables.h"
#include "core/config/suggest.h"

namespace stepcast::config {
namespace {

/// Options that do not change a step's shape: by name, or by the beginning of the name.
const std::set<std::string_view> kHarmless{"seed",
                                           "split",
                                           "save",
                                           "load",
                                           "bf16",
                                           "clip-grad",
                                           "weight-decay",
                                           "num-workers",
                                           "train-iters",
                                           "train-samples",
                                           "exit-duration-in-mins",
                                           "exit-interval",
                                           "init-method-std",
                                           "attention-dropout",
                                           "hidden-dropout",
                                           "norm-epsilon",
                                           "layernorm-epsilon",
                                           "normalization",
                                           "position-embedding-type",
                                           "use-rotary-position-embeddings",
                                           "apply-layernorm-1p",
                                           "disable-bias-linear",
                                           "add-qkv-bias",
                                           "max-position-embeddings",
                                           "vocab-file",
                                           "merge-file",
                                           "use-mcore-models",
                                           "use-legacy-models",
                                           "transformer-impl",
                                           "attention-softmax-in-fp32",
                                           "use-flash-attn",
                                           "distributed-backend",
                                           "distributed-timeout-minutes",
                                           "local-rank",
                                           "manual-gc",
                                           "manual-gc-interval",
                                           "mock-data",
                                           "override-opt-param-scheduler",
                                           "override-opt_param-scheduler",
                                           "use-checkpoint-args",
                                           "finetune",
                                           "ckpt-format",
                                           "async-save",
                                           "empty-unused-memory-level",
                                           "group-query-attention",
                                           "initial-loss-scale",
                                           "min-loss-scale",
                                           "loss-scale",
                                           "loss-scale-window",
                                           "hysteresis",
                                           "overlap-p2p-communication",
                                           "cross-entropy-loss-fusion",
                                           "calculate-per-token-loss",
                                           "qk-layernorm",
                                           "eod-mask-loss",
                                           "reset-position-ids",
                                           "reset-attention-mask",
                                           "master-addr",
                                           "master-port",
                                           "node-rank",
                                           "rdzv-endpoint",
                                           "rdzv-backend",
                                           "rdzv-id",
                                           "max-restarts",
                                           "moe-grouped-gemm",
                                           "moe-permute-fusion",
                                           "moe-deepep-num-sms",
                                           "moe-hybridep-num-sms",
                                           "moe-z-loss-coeff",
                                           "moe-aux-loss-coeff",
                                           "moe-input-jitter-eps",
                                           "no-gradient-accumulation-fusion",
                                           "no-async-tensor-model-parallel-allreduce",
                                           "create-attention-mask-in-dataloader",
                                           "fp8-amax-history-len",
                                           "fp8-amax-compute-algo",
                                           "fp8-margin",
                                           "fp8-interval",
                                           "fp8-param-gather",
                                           "overlap-param-gather-with-optimizer-step",
                                           "te-rng-tracker",
                                           "enable-cuda-graph",
                                           "external-cuda-graph",
                                           "cuda-graph-scope",
                                           "enable-experimental"};
const std::vector<std::string_view> kHarmlessBeginnings{"adam-",
                                                        "data-args-path",
                                                        "data-cache-path",
                                                        "data-parallel-random-init",
                                                        "data-path",
                                                        "data-sharding",
                                                        "lr",
                                                        "min-lr",
                                                        "log-",
                                                        "tensorboard-",
                                                        "wandb-",
                                                        "eval-",
                                                        "save-",
                                                        "no-load-",
                                                        "no-save-",
                                                        "tokenizer-",
                                                        "rotary-",
                                                        "moe-router-",
                                                        "train-data",
                                                        "valid-data",
                                                        "test-data",
                                                        "timing-",
                                                        "no-masked-softmax",
                                                        "no-bias-",
                                                        "no-rope",
                                                        "no-create-attention",
                                                        "no-mmap",
                                                        "dist-ckpt",
                                                        "profile",
                                                        "check-",
                                                        "rerun-",
                                                        "start-weight",
                                                        "end-weight",
                                                        "weight-decay-incr",
                                                        "no-check-",
                                                        "tp-comm-overlap-"};

/// "tensor-model-parallel-size" has the words of "tensor-parallel-size", in their order, and begins
/// with the first.
bool has_words_of(std::string_view longer, std::string_view name) {
  std::size_t from = 0;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('-', at), name.size());
    const std::size_t found = longer.find(name.substr(at, end - at), from);
    if (found == std::string_view::npos || (at == 0 && found != 0)) {
      return false;
    }
    from = found + end - at;
    at = end + 1;
  }
  return true;
}

std::vector<std::pair<std::string, int>> words_of(std::string_view text) {
  std::vector<std::pair<std::string, int>> words;
  std::string word;
  int line = 1;
  char quote = 0;
  bool comment = false;
  const auto finish = [&] {
    if (!word.empty()) {
      words.emplace_back(std::move(word), line);
      word.clear();
    }
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      finish();
      ++line;
      comment = false;
    } else if (comment) {
      continue;
    } else if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? '\0' : c;
    } else if (quote == 0 && c == '#' && word.empty()) {
      // Our own export says in a comment how many processes the launcher starts.
      comment = !text.substr(i).starts_with("# torchrun ");
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\\' && quote == 0) ||
               (quote == 0 && (c == '(' || c == ')'))) {
      finish();
    } else {
      word += c;
    }
  }
  finish();
  return words;
}

}  // namespace

Arguments::Arguments(const Source& source) : label_(source.label) {
  std::string* into = nullptr;
  for (const auto& [word, line] : words_of(with_variables(source.text))) {
    if (word.starts_with("--")) {
      const std::size_t equals = std::min(word.find('='), word.size());
      std::string name = word.substr(2, equals - 2);
      std::replace(name.begin(), name.end(), '_', '-');
      Option& option = options_[name];
      option = {equals < word.size() ? word.substr(equals + 1) : "", line};
      into = &option.value;
    } else if (into != nullptr && into->empty()) {
      *into = word;
    }  // further words are lists of paths and weights, or the launcher's own
  }
}

std::optional<std::int64_t> Arguments::integer_at_least(const std::string& name,
                                                        std::int64_t least) {
  if (!has(name)) {
    return std::nullopt;
  }
  const std::string& value = options_.at(name).value;
  std::int64_t n = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, n);
  if (error != std::errc() || stop != end || n < least || n > INT32_MAX) {
    const bool variable = value.find('$') != std::string::npos;
    refuse(name, fmt::format("found '{}', expected a whole number from {} to {}{}",
                             value.substr(0, 40), least, INT32_MAX,
                             variable ? "; the script does not set this variable to one plain "
                                        "value: write the number"
                                      : ""));
  }
  return n;
}

std::int64_t Arguments::required(const std::string& name, const char* what) {
  const auto n = size(name);
  if (!n) {
    const std::string meant = nearest_name(name, unknown());
    refuse(name, fmt::format("missing; expected {}{}", what,
                             meant.empty() ? "" : fmt::format(" (found --{})", meant)));
  }
  return *n;
}

void Arguments::refuse_unread() const {
  const std::vector<std::string> left = unknown();
  if (left.empty()) {
    return;
  }
  std::vector<std::string> known(seen_.begin(), seen_.end());
  known.insert(known.end(), kHarmless.begin(), kHarmless.end());
  const auto hint = [&](const std::string& name) {
    const auto longer = std::find_if(known.begin(), known.end(),
                                     [&](const std::string& k) { return has_words_of(k, name); });
    const std::string meant = longer != known.end() ? *longer : nearest_name(name, known);
    return meant.empty() ? std::string() : fmt::format("did you mean --{}? ", meant);
  };
  if (left.size() == 1) {
    refuse(left.front(), fmt::format("an option that stepcast does not read and that may change "
                                     "what a step costs; {}remove it if it does not, else write "
                                     "the job in stepcast's own form",
                                     hint(left.front())));
  }
  std::string list;
  for (const std::string& name : left) {
    list += fmt::format("\n  line {}: --{} {}", options_.at(name).line, name, hint(name));
    list.erase(list.find_last_not_of(' ') + 1);
  }
  throw InputError(label_, fmt::format("{} options that stepcast does not read and that may "
                                       "change what a step costs; remove those that do not, else "
                                       "write the job in stepcast's own form:{}",
                                       left.size(), list));
}

std::vector<std::string> Arguments::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, option] : options_) {
    const bool harmless = kHarmless.count(name) != 0 ||
                          std::any_of(kHarmlessBeginnings.begin(), kHarmlessBeginnings.end(),
                                      [&n = name](std::string_view b) { return n.starts_with(b); });
    if (seen_.count(name) == 0 && !harmless) {
      names.push_back(name);
    }
  }
  std::stable_sort(names.begin(), names.end(), [this](const std::string& x, const std::string& y) {
    return options_.at(x).line < options_.at(y).line;
  });
  return names;
}

}  // namespace stepcast::config
