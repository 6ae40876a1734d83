#pragma once
#include <filesystem>
#include <string_view>

namespace stepcast {

/// Writes a file so that it appears whole or not at all: under a name of its own in the same folder
/// first, then renamed. Replaces a file of that name and keeps its permissions; follows symbolic
/// links to what they name, which need not exist; makes no folder. What is no regular file (a
/// device, a FIFO) is written to as it is: it cannot be replaced, only filled.
/// Errors: InputError naming the file when it may not be written there, RunError when writing fails
/// on the way (a full disk); nothing is left behind then.
void write_whole_file(const std::filesystem::path& file, std::string_view text);

/// Rejects before the work what write_whole_file would reject after it: a folder that is missing or
/// may not be written to, a file that may not be replaced, a folder in its place. Creates nothing;
/// a disk that fills up is met only when the file is written. Errors: the same InputError.
void expect_writable(const std::filesystem::path& file);
/// The same for a folder that is made with its parents where it is missing: its nearest existing
/// parent must be a folder that may be written to.
void expect_writable_folder(const std::filesystem::path& folder);

}  // namespace stepcast
