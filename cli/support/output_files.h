#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string_view>

namespace stepcast::cli {

/// Files that commands are asked to write: a place that cannot be
/// written to before the work, and say afterwards what was written.

/// Checks of options that name what is written, made as the command line is read. Errors:
/// InputError naming the file, as write_whole_file words it.
CLI::Validator output_file();    ///< its folder exists and may be written to
CLI::Validator output_folder();  ///< is made with its parents where it is missing

/// write_whole_file, then the name of the file on the error stream.
void write_output(const std::filesystem::path& file, std::string_view text);
/// Says on the error stream that `path` was written.
void tell_written(const std::filesystem::path& path);

}  // namespace stepcast::cli
