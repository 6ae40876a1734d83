#pragma once
#include <functional>
#include <string>

#include "core/input/input.h"

namespace stepcast::traces {

/// True when the next bytes are the header of a tar archive.
bool is_tar(Input& input);
/// Calls `use` for every regular file of an archive, in order, with an input that ends with the
/// member. Labels are "archive/member". Members that macOS adds ("._name") are passed over.
void for_each_member(Input& archive,
                     const std::function<void(const std::string& member, Input& input)>& use);

}  // namespace stepcast::traces
