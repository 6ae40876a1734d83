// Floating-point arithmetic (PTX ISA 9.7.3).
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "models/ptx/apply.h"

namespace stepcast::models::ptx {
namespace {

constexpr auto kAdd = []<class T>(T a, T b) { return a + b; };
constexpr auto kSubtract = []<class T>(T a, T b) { return a - b; };
constexpr auto kMultiply = []<class T>(T a, T b) { return a * b; };
constexpr auto kDivide = []<class T>(T a, T b) { return a / b; };
constexpr auto kMadd = []<class T>(T a, T b, T c) { return std::fma(a, b, c); };
constexpr auto kNegate = []<class T>(T a) { return -a; };
constexpr auto kAbsolute = []<class T>(T a) { return std::fabs(a); };
constexpr auto kMinimum = []<class T>(T a, T b) { return std::fmin(a, b); };
constexpr auto kMaximum = []<class T>(T a, T b) { return std::fmax(a, b); };
constexpr auto kReciprocal = []<class T>(T a) { return T{1} / a; };
constexpr auto kRoot = []<class T>(T a) { return std::sqrt(a); };
constexpr auto kReciprocalRoot = []<class T>(T a) { return T{1} / std::sqrt(a); };
constexpr auto kExponential = [](float a) { return std::exp2(a); };
constexpr auto kLogarithm = [](float a) { return std::log2(a); };
constexpr auto kSine = [](float a) { return std::sin(a); };
constexpr auto kCosine = [](float a) { return std::cos(a); };
constexpr auto kTangent = [](float a) { return std::tanh(a); };
constexpr auto kCopySign = []<class T>(T sign, T size) { return std::copysign(size, sign); };
// The ISA: a gross approximation, of which the low 32 bits are zero.
constexpr auto kReciprocalHigh = [](double a) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(1 / a) & ~std::uint64_t{0xffffffff});
};

/// Rounds another way than to nearest for as long as it lives.
class Rounding {
 public:
  explicit Rounding(const Instruction& i) : before_(std::fegetround()) {
    std::fesetround(i.has("rm")   ? FE_DOWNWARD
                    : i.has("rp") ? FE_UPWARD
                    : i.has("rz") ? FE_TOWARDZERO
                                  : FE_TONEAREST);
  }
  ~Rounding() { std::fesetround(before_); }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  int before_;
};

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

/// The same with a rounding of its own, subnormal numbers flushed (.ftz) and results cut to [0, 1]
/// (.sat), NaN to 0.
template <auto F, class... A>
void apply_float(Warp& w, const Instruction& i, std::uint32_t mask) {
  const Rounding rounding(i);
  const bool flush = i.has("ftz"), cut = i.has("sat");
  [&]<std::size_t... N>(std::index_sequence<N...>) {
    Lanes& d = w.lanes(i.reg(0));
    const Lanes* const s[] = {&w.lanes(i.reg(static_cast<int>(N) + 1))...};
    for_lanes(mask, [&](int lane) {
      const auto l = static_cast<std::size_t>(lane);
      const auto in = [&](std::size_t n) {
        const float x = value_of<float>((*s[n])[l]);
        return flush ? flushed(x) : x;
      };
      float r = F(in(N)...);
      r = flush ? flushed(r) : r;
      d[l] = bits_of(cut ? (r > 0 ? std::min(r, 1.0F) : 0.0F) : r);
    });
    w.define(i.reg(0), mask, (w.defined(i.reg(static_cast<int>(N) + 1)) & ...));
  }
  (std::index_sequence_for<A...>{});
}

template <auto F, int Sources>
Execute floats(Instruction& i) {
  const bool plain = !i.has("rm") && !i.has("rp") && !i.has("rz") && !i.has("ftz") && !i.has("sat");
  if (plain) {
    return of_one_type<F, Sources, Floats>(i);
  }
  if (i.type != Type::kF32) {
    return nullptr;
  }
  if constexpr (Sources == 1) {
    return &apply_float<F, float>;
  } else if constexpr (Sources == 2) {
    return &apply_float<F, float, float>;
  } else {
    return &apply_float<F, float, float, float>;
  }
}
template <auto F>
Execute singles(Instruction& i) {
  return i.type != Type::kF32 ? nullptr
         : i.has("ftz")       ? &apply_float<F, float>
                              : &apply<F, float, float>;
}
Execute reciprocal(Instruction& i) {
  return i.type == Type::kF64 && i.has("approx") ? &apply<kReciprocalHigh, double, double>
                                                 : floats<kReciprocal, 1>(i);
}

constexpr Opcode kTable[] = {
    {"add", Flow::kNext, 3, 3, "rn rz rm rp ftz sat", floats<kAdd, 2>, Work::kFloat, 1},
    {"sub", Flow::kNext, 3, 3, "rn rz rm rp ftz sat", floats<kSubtract, 2>, Work::kFloat, 1},
    {"mul", Flow::kNext, 3, 3, "rn rz rm rp ftz sat", floats<kMultiply, 2>, Work::kFloat, 1},
    {"fma", Flow::kNext, 4, 4, "rn rz rm rp ftz sat", floats<kMadd, 3>, Work::kFloat, 2},
    {"mad", Flow::kNext, 4, 4, "rn rz rm rp ftz sat", floats<kMadd, 3>, Work::kFloat, 2},
    {"min", Flow::kNext, 3, 3, "ftz", floats<kMinimum, 2>, Work::kFloat, 1},
    {"max", Flow::kNext, 3, 3, "ftz", floats<kMaximum, 2>, Work::kFloat, 1},
    {"neg", Flow::kNext, 2, 2, "ftz", floats<kNegate, 1>},
    {"abs", Flow::kNext, 2, 2, "ftz", floats<kAbsolute, 1>},
    {"copysign", Flow::kNext, 3, 3, "", floats<kCopySign, 2>},
    {"div", Flow::kNext, 3, 3, "rn rz rm rp ftz full approx", floats<kDivide, 2>, Work::kSpecial},
    {"rcp", Flow::kNext, 2, 2, "rn rz rm rp ftz approx", reciprocal, Work::kSpecial},
    {"sqrt", Flow::kNext, 2, 2, "rn rz rm rp ftz approx", floats<kRoot, 1>, Work::kSpecial},
    {"rsqrt", Flow::kNext, 2, 2, "approx ftz", floats<kReciprocalRoot, 1>, Work::kSpecial},
    {"ex2", Flow::kNext, 2, 2, "approx ftz", singles<kExponential>, Work::kSpecial},
    {"lg2", Flow::kNext, 2, 2, "approx ftz", singles<kLogarithm>, Work::kSpecial},
    {"sin", Flow::kNext, 2, 2, "approx ftz", singles<kSine>, Work::kSpecial},
    {"cos", Flow::kNext, 2, 2, "approx ftz", singles<kCosine>, Work::kSpecial},
    {"tanh", Flow::kNext, 2, 2, "approx", singles<kTangent>, Work::kSpecial},
};

}  // namespace

const Opcode* find_float(std::string_view name) { return find_in(kTable, name); }

}  // namespace stepcast::models::ptx
