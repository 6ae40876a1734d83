#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace stepcast {

/// The text of a document that a command may be given: a regular file or a pipe. Errors: InputError
/// naming the file when it cannot be read, is a folder or a device, or is longer than `most` bytes.
std::string read_document_text(const std::filesystem::path& file,
                               std::size_t most = std::size_t{1} << 28U);

/// Rejects JSON that nests deeper than any document here does, before a parser builds what only
/// recursion can walk. Counts brackets outside of texts; what does not begin with one passes.
/// Whether it is JSON is the parser's business. Errors: InputError naming `where` and the byte.
void expect_shallow_json(std::string_view text, std::string_view where);

}  // namespace stepcast
