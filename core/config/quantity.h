#pragma once
#include <string>
#include <string_view>

#include "core/units.h"

namespace stepcast::config {

/// Reads an amount with its unit: "80 GB", "80 GiB", "3.35 TB/s", "2 us", "989 TFLOP/s". A number,
/// optional blanks, then a unit:
///
///   Bytes           B kB MB GB TB PB (powers of 1000), KiB MiB GiB TiB PiB (powers of 1024)
///   BytesPerSecond  the same with "/s"; bits ("Gb/s") are rejected, with the value in bytes named
///   Seconds         s ms us ns ps min h
///   FlopsPerSecond  FLOP/s kFLOP/s MFLOP/s GFLOP/s TFLOP/s PFLOP/s EFLOP/s
///
/// Case matters (mB is no unit). Never negative; finite. `where` is the place an error names
/// ("x.json: memory"). Errors: InputError on a missing or unknown unit (with the nearest valid
/// one), a malformed number or a negative amount.
template <class Q>
Q parse_quantity(std::string_view text, std::string_view where);

/// Writes an amount so that `parse_quantity` gives back the very same bits: the largest unit for
/// which that holds ("3.35 TB/s").
template <class Q>
std::string quantity_text(Q amount);

}  // namespace stepcast::config
