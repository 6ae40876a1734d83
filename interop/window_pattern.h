#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace stepcast::interop {

/// Period of full attention among layers that see all keys or a window: n where every n-th,
/// counted from 1, sees all, 0 where none does; nullopt for any other pattern.
std::optional<std::int64_t> full_attention_every(const std::vector<bool>& sees_all);

}  // namespace stepcast::interop
