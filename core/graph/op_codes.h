#pragma once
#include <array>
#include <cstdint>

#include "core/graph/program_fwd.h"


namespace stepcast {

/// An op's attributes as the integers that files hold: format 1 of native traces and rows of
/// `calibrate --rows`. Places in the program's tables are not among them.
struct OpCodes {
  std::uint8_t variant = 0;
  std::array<std::int64_t, 6> sizes{};  ///< the op's, with codes where a kind leaves sizes unused
};

OpCodes codes_of(const Op& op);
/// Sets sizes and attributes of an op whose kind is known. Errors: InputError for a code beyond
/// those of its kind.
void set_codes(Op& op, const OpCodes& codes);

}  // namespace stepcast
