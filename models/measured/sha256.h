#pragma once
#include <string>
#include <string_view>

namespace stepcast::models {

/// SHA-256 of the bytes, 64 hexadecimal digits: which data a fit was made from. Source: FIPS 180-4.
std::string sha256(std::string_view bytes);

}  // namespace stepcast::models
