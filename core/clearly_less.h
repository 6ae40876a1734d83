#pragma once
#include "core/units.h"

namespace stepcast {

/// A predicted time or cost as it is compared. Its last digits differ between machines (variants of
/// libm, the blocking of a factorisation, the order of a sum), so a choice, a count or an order
/// depends on this, never on the value itself: amounts that differ by less than a float's
/// precision (1e-7) are one. Rounded, for within a margin is no strict weak order.
inline float comparable(double value) { return static_cast<float>(value); }
inline float comparable(Seconds value) { return comparable(value.base()); }

/// A strict weak order.
inline bool clearly_less(double a, double b) { return comparable(a) < comparable(b); }
inline bool clearly_less(Seconds a, Seconds b) { return comparable(a) < comparable(b); }

}  // namespace stepcast
