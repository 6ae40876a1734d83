// Layers of several kinds: mixers with a state of constant size, and the order of layers.
#include <algorithm>
#include <array>

#include "core/config/internal/layer_loaders.h"
#include "core/config/internal/layer_pattern.h"
#include "core/config/pattern_text.h"

namespace stepcast::config {
namespace {

constexpr std::size_t kMostInPattern = 4096;
using Sizes = RecurrentMixer;

const Keys<Sizes>& mamba_keys() {
  static const Keys<Sizes> keys{
      integer_key("heads", &Sizes::heads, 1, 1 << 16, "heads").needed("the number of heads"),
      integer_key("head_dim", &Sizes::value_dim, 1, 1 << 16, "width of a head")
          .needed("the width of a head"),
      integer_key("groups", &Sizes::key_heads, 1, 1 << 16, "groups of heads that share B and C")
          .needed("the number of groups that share B and C"),
      integer_key("state", &Sizes::key_dim, 1, 1 << 16, "columns of the state of a head's column")
          .needed("the state size"),
      integer_key("kernel", &Sizes::kernel, 1, 64, "taps of the causal convolution").usual(4),
      integer_key("chunk", &Sizes::chunk, 1, 1 << 16, "tokens of a chunk of the scan").usual(256)};
  return keys;
}

const Keys<Sizes>& delta_keys() {
  static const Keys<Sizes> keys{
      integer_key("heads", &Sizes::heads, 1, 1 << 16, "heads of values")
          .needed("the number of heads of values"),
      integer_key("key_heads", &Sizes::key_heads, 1, 1 << 16, "heads of keys and queries")
          .needed("the number of heads of keys and queries"),
      integer_key("key_dim", &Sizes::key_dim, 1, 1 << 16, "width of a key")
          .needed("the width of a key"),
      integer_key("value_dim", &Sizes::value_dim, 1, 1 << 16, "width of a value")
          .needed("the width of a value"),
      integer_key("kernel", &Sizes::kernel, 1, 64, "taps of the causal convolution").usual(4),
      integer_key("chunk", &Sizes::chunk, 1, 1 << 16, "tokens of a chunk of the scan").usual(64),
      integer_key("gate_rank", &Sizes::gate_rank, 0, kWidest,
                  "Kimi delta attention: width between the matrices of its gates; 0: gated delta")
          .usual(0)};
  return keys;
}

const Keys<Sizes>& convolution_keys() {
  static const Keys<Sizes> keys{
      integer_key("kernel", &Sizes::kernel, 1, 64, "taps of the gated causal convolution")
          .usual(3)};
  return keys;
}

/// A mixer by the name of its key.
struct MixerForm {
  std::string_view name, help;
  const Keys<Sizes>& keys;
  Sizes begin;
};

std::array<MixerForm, 3> mixer_forms() {
  Sizes mamba;
  mamba.chunk = 256;
  Sizes delta;
  delta.rule = RecurrentRule::kGatedDelta;
  Sizes convolution;
  convolution.rule = RecurrentRule::kConvolution;
  convolution.kernel = 3;
  return {
      {{"mamba", "Mamba-2 layers", mamba_keys(), mamba},
       {"delta", "gated delta or Kimi delta attention layers", delta_keys(), delta},
       {"convolution", "layers of a gated short convolution", convolution_keys(), convolution}}};
}

std::string_view name_of(const Sizes& mixer) {
  return mixer.rule == RecurrentRule::kMamba2        ? "mamba"
         : mixer.rule == RecurrentRule::kConvolution ? "convolution"
                                                     : "delta";
}

struct Word {
  std::string_view name;
  MixerKind mixer;
  FeedForwardKind feed_forward;
};
constexpr std::array<Word, 9> kWords{
    {{"attention", MixerKind::kAttention, FeedForwardKind::kNone},
     {"window", MixerKind::kWindow, FeedForwardKind::kNone},
     {"csa", MixerKind::kCompressedSparse, FeedForwardKind::kNone},
     {"hca", MixerKind::kHeavilyCompressed, FeedForwardKind::kNone},
     {"mamba", MixerKind::kRecurrent, FeedForwardKind::kNone},
     {"delta", MixerKind::kRecurrent, FeedForwardKind::kNone},
     {"convolution", MixerKind::kRecurrent, FeedForwardKind::kNone},
     {"mlp", MixerKind::kNone, FeedForwardKind::kDense},
     {"experts", MixerKind::kNone, FeedForwardKind::kExperts}}};
constexpr std::string_view kExpected =
    "words in the order of layers, such as \"3 x (mamba mlp) attention mlp\": attention, window, "
    "csa, hca, mamba, delta, convolution, mlp, experts; + joins a mixer and what follows it in one "
    "layer";

/// Reads `list := item*`, `item := [N x] ( word[+word] | "(" list ")" )`: "3 x (mamba mlp)
/// attention mlp" is eight layers of one block each, "3 x mamba+experts attention+experts" four of
/// two.
class PatternReader {
 public:
  PatternReader(const Value& v, std::string text) : v_(v), text_(std::move(text)) {}

  std::vector<BlockKind> read() {
    std::vector<BlockKind> all = list();
    if (at_ < text_.size() || all.empty()) {
      v_.fail(kExpected);
    }
    return all;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
    }
  }
  bool take(char c) {
    skip_blanks();
    const bool found = at_ < text_.size() && text_[at_] == c;
    at_ += found ? 1 : 0;
    return found;
  }
  std::string letters(bool (*of)(char)) {
    skip_blanks();
    const std::size_t first = at_;
    while (at_ < text_.size() && of(text_[at_])) {
      ++at_;
    }
    return text_.substr(first, at_ - first);
  }
  void word(BlockKind& kind) {
    const std::string name = letters([](char c) { return c >= 'a' && c <= 'z'; });
    const auto* found =
        std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return w.name == name; });
    if (found == kWords.end() ||
        (found->mixer != MixerKind::kNone &&
         (kind.mixer != MixerKind::kNone || kind.feed_forward != FeedForwardKind::kNone)) ||
        (found->feed_forward != FeedForwardKind::kNone &&
         kind.feed_forward != FeedForwardKind::kNone)) {
      v_.fail(kExpected);
    }
    kind.mixer = found->mixer != MixerKind::kNone ? found->mixer : kind.mixer;
    kind.feed_forward =
        found->feed_forward != FeedForwardKind::kNone ? found->feed_forward : kind.feed_forward;
  }
  std::vector<BlockKind> item() {
    std::size_t times = 1;
    if (const std::string digits = letters([](char c) { return c >= '0' && c <= '9'; });
        !digits.empty()) {
      times = digits.size() > 4 ? 0 : std::stoul(digits);
      if (times == 0 || times > kMostInPattern || !take('x')) {
        v_.fail(kExpected);
      }
    }
    std::vector<BlockKind> once;
    if (take('(')) {
      if (++depth_ > 8) {
        v_.fail(kExpected);
      }
      once = list();
      --depth_;
      if (!take(')') || once.empty()) {
        v_.fail(kExpected);
      }
    } else {
      BlockKind& kind = once.emplace_back(BlockKind{MixerKind::kNone, FeedForwardKind::kNone});
      do {
        word(kind);
      } while (take('+'));
    }
    if (once.size() * times > kMostInPattern) {
      v_.fail(fmt::format("at most {} layers", kMostInPattern));
    }
    std::vector<BlockKind> all;
    for (std::size_t i = 0; i < times; ++i) {
      all.insert(all.end(), once.begin(), once.end());
    }
    return all;
  }
  std::vector<BlockKind> list() {
    std::vector<BlockKind> all;
    for (skip_blanks(); at_ < text_.size() && text_[at_] != ')'; skip_blanks()) {
      const std::vector<BlockKind> more = item();
      all.insert(all.end(), more.begin(), more.end());
      if (all.size() > kMostInPattern) {
        v_.fail(fmt::format("at most {} layers", kMostInPattern));
      }
    }
    return all;
  }

  const Value& v_;
  std::string text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

std::string words_of(const BlockKind& kind, std::string_view recurrent) {
  std::string text;
  for (const Word& w : kWords) {
    const bool is = w.mixer == MixerKind::kNone ? w.feed_forward == kind.feed_forward
                    : w.mixer == MixerKind::kRecurrent
                        ? kind.mixer == w.mixer && w.name == recurrent
                        : kind.mixer == w.mixer;
    text += is ? (text.empty() ? "" : "+") + std::string(w.name) : "";
  }
  return text;
}

bool has(const TransformerWorkload& w, MixerKind mixer) {
  return std::any_of(w.pattern.begin(), w.pattern.end(),
                     [&](const BlockKind& kind) { return kind.mixer == mixer; });
}

std::string text_of_pattern(const TransformerWorkload& w) {
  const std::string_view recurrent = w.recurrent ? name_of(*w.recurrent) : "";
  std::vector<std::string> words;
  for (const BlockKind& kind : w.pattern) {
    words.push_back(words_of(kind, recurrent));
  }
  return pattern_text(words);
}

}  // namespace

Keys<TransformerWorkload> layer_pattern_keys() {
  using T = TransformerWorkload;
  Keys<T> keys;
  for (const MixerForm& form : mixer_forms()) {
    keys.push_back(custom_key<T>(
        form.name, object_form(facts_of(form.keys)), form.help,
        [form](const Value& v, T& t, const Reading&) {
          if (t.recurrent) {
            v.reject(
                "found with another mixer with a state; give one of mamba, delta and "
                "convolution");
          }
          Sizes& mixer = t.recurrent.emplace(form.begin);
          read_keys(v, form.keys, mixer, {});
          if (mixer.rule == RecurrentRule::kGatedDelta && mixer.gate_rank > 0) {
            mixer.rule = RecurrentRule::kKimiDelta;
          }
          if (mixer.scans() && mixer.heads % mixer.key_heads != 0) {
            v.reject(fmt::format("heads = {} is no multiple of the {} that share keys", mixer.heads,
                                 mixer.key_heads));
          }
        },
        [form](const T& t, const Writing&) {
          return t.recurrent && name_of(*t.recurrent) == form.name
                     ? write_keys(form.keys, *t.recurrent, {})
                     : OrderedJson();
        }));
  }
  keys.push_back(
      custom_key<T>(
          "pattern",
          text_form("words: mamba, delta, convolution, attention, window, csa, hca, mlp, "
                    "experts"),
          "kinds of layers in order, over and over: \"3 x mamba+mlp attention+mlp\"",
          [](const Value& v, T& t, const Reading&) {
            t.pattern = PatternReader(v, v.text(kExpected)).read();
          },
          [](const T& t, const Writing&) {
            return t.pattern.empty() ? OrderedJson() : OrderedJson(text_of_pattern(t));
          })
          .otherwise("attention and a feed-forward block in each"));
  return keys;
}

void check_pattern(const Value& v, const TransformerWorkload& w) {
  if (w.pattern.empty()) {
    if (w.compressed) {
      v.at("compressed", "").reject("found without pattern, which says what each layer sees");
    }
    if (w.recurrent) {
      v.at(name_of(*w.recurrent), "")
          .reject("found without pattern, which says which layers it is");
    }
    return;
  }
  const Value at = v.at("pattern", "");
  if (v.find("full_attention_every")) {
    v.at("full_attention_every", "").reject("found with pattern, which says it; remove it");
  }
  if (w.moe && w.moe->first_dense_layers > 0) {
    v.at("moe", "")
        .at("first_dense_layers", "")
        .reject("found with pattern, which says it; remove it");
  }
  if (has(w, MixerKind::kRecurrent) != w.recurrent.has_value()) {
    at.reject(w.recurrent ? "names no recurrent layer; name some, or remove the mixer"
                          : "has recurrent layers; give mamba, delta or convolution");
  }
  const bool compressed =
      has(w, MixerKind::kCompressedSparse) || has(w, MixerKind::kHeavilyCompressed);
  if (w.compressed ? has(w, MixerKind::kAttention) || !compressed : compressed) {
    at.reject(w.compressed
                  ? "names no csa or hca layer, or attention to all keys beside them; name "
                    "some of csa, hca and window, or remove compressed"
                  : "has layers of compressed keys; give compressed");
  }
  if (w.compressed && has(w, MixerKind::kCompressedSparse) != w.sparse.has_value()) {
    at.reject(w.sparse ? "names no csa layer; name some, or remove sparse"
                       : "has csa layers, whose keys an indexer chooses; give sparse");
  }
  if ((compressed || has(w, MixerKind::kWindow)) != (w.window > 0)) {
    at.reject(w.window > 0 ? "names no window layer; name some, or remove window"
                           : "has layers with a window; give window");
  }
  const std::string words = at.text(kExpected);
  for (const MixerForm& form : mixer_forms()) {
    if (w.recurrent && form.name != name_of(*w.recurrent) &&
        words.find(form.name) != std::string::npos) {
      at.reject(fmt::format("names {} layers, and the workload's are {} layers; use one name",
                            form.name, name_of(*w.recurrent)));
    }
  }
  const bool experts = std::any_of(w.pattern.begin(), w.pattern.end(), [](const BlockKind& kind) {
    return kind.feed_forward == FeedForwardKind::kExperts;
  });
  if (experts != w.moe.has_value()) {
    at.reject(w.moe ? "names no layer with experts; name some, or remove moe"
                    : "has layers with experts; give moe");
  }
  if (w.parallel_block) {
    at.reject("found with parallel_block, whose layers are all alike; use false");
  }
  const bool whole = std::all_of(w.pattern.begin(), w.pattern.end(), [](const BlockKind& kind) {
    return kind.attends() && kind.feed_forward != FeedForwardKind::kNone;
  });
  if (!w.llama_style() && !whole) {
    at.reject(
        "has layers of one block or with a state, which have no biases as those of activation "
        "gelu; use another");
  }
}

}  // namespace stepcast::config
