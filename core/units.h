#pragma once
#include <cmath>
#include <compare>
#include <cstdint>

namespace stepcast {

/// A physical amount held in base units (second, byte, FLOP). The exponents are the dimension:
/// `bytes / bandwidth` is a time, `bytes + seconds` does not compile. Bytes and FLOPs are exact up
/// to 2^53.
///
///   Seconds t = GB(6.7) / GBps(3350);     // 2 ms
///   double ms = t / milliseconds(1);      // read out only where it is printed
template <int S, int B, int F>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double base) : base_(base) {}
  /// The amount in base units. For serialisation and printing; arithmetic stays typed.
  [[nodiscard]] constexpr double base() const { return base_; }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return Quantity(-base_); }
  constexpr Quantity& operator+=(Quantity o) {
    base_ += o.base_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    base_ -= o.base_;
    return *this;
  }
  constexpr Quantity& operator*=(double k) {
    base_ *= k;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.base_ + b.base_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.base_ - b.base_);
  }
  friend constexpr Quantity operator*(Quantity a, double k) { return Quantity(a.base_ * k); }
  friend constexpr Quantity operator*(double k, Quantity a) { return Quantity(a.base_ * k); }
  friend constexpr Quantity operator/(Quantity a, double k) { return Quantity(a.base_ / k); }

 private:
  double base_ = 0;
};

template <int S, int B, int F, int S2, int B2, int F2>
constexpr auto operator/(Quantity<S, B, F> a, Quantity<S2, B2, F2> b) {
  if constexpr (S == S2 && B == B2 && F == F2) {
    return a.base() / b.base();
  } else {
    return Quantity<S - S2, B - B2, F - F2>(a.base() / b.base());
  }
}
template <int S, int B, int F, int S2, int B2, int F2>
constexpr auto operator*(Quantity<S, B, F> a, Quantity<S2, B2, F2> b) {
  if constexpr (S + S2 == 0 && B + B2 == 0 && F + F2 == 0) {
    return a.base() * b.base();
  } else {
    return Quantity<S + S2, B + B2, F + F2>(a.base() * b.base());
  }
}

using Seconds = Quantity<1, 0, 0>;
using Bytes = Quantity<0, 1, 0>;
using Flops = Quantity<0, 0, 1>;
using BytesPerSecond = Quantity<-1, 1, 0>;
using FlopsPerSecond = Quantity<-1, 0, 1>;

constexpr Seconds seconds(double v) { return Seconds(v); }
constexpr Seconds milliseconds(double v) { return Seconds(v * 1e-3); }
constexpr Seconds microseconds(double v) { return Seconds(v * 1e-6); }
constexpr Seconds nanoseconds(double v) { return Seconds(v * 1e-9); }
constexpr Bytes bytes(double v) { return Bytes(v); }
constexpr Bytes GB(double v) { return Bytes(v * 1e9); }  ///< 10^9 bytes, as links and HBM are sold
constexpr Bytes MB(double v) { return Bytes(v * 1e6); }
constexpr Bytes GiB(double v) { return Bytes(v * 1073741824.0); }  ///< 2^30 bytes
constexpr Bytes MiB(double v) { return Bytes(v * 1048576.0); }
constexpr BytesPerSecond GBps(double v) { return BytesPerSecond(v * 1e9); }
constexpr FlopsPerSecond teraflops(double v) { return FlopsPerSecond(v * 1e12); }

/// Simulated clock, integer picoseconds (106 days): sums do not depend on their order.
enum class SimTime : std::int64_t {};
constexpr std::int64_t ticks(SimTime t) { return static_cast<std::int64_t>(t); }
/// The only place where a predicted duration becomes a tick count. Rounds to nearest.
inline std::int64_t to_ticks(Seconds t) { return std::llround(t.base() * 1e12); }
inline SimTime after(SimTime start, Seconds delay) {
  return SimTime{ticks(start) + to_ticks(delay)};
}
constexpr Seconds to_seconds(SimTime t) { return Seconds(static_cast<double>(ticks(t)) * 1e-12); }

}  // namespace stepcast
