#pragma once
#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stepcast {

/// A text as `filter` ("gzip", "zstd") packs it.
inline std::string packed_text(const std::string& text, const char* filter) {
  std::string out(2 * text.size() + 65536, '\0');
  std::size_t used = 0;
  const std::unique_ptr<archive, int (*)(archive*)> to(archive_write_new(), archive_write_free);
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                       archive_entry_free);
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  const bool zstd = std::string_view(filter) == "zstd";
  if ((zstd ? archive_write_add_filter_zstd(to.get()) : archive_write_add_filter_gzip(to.get())) !=
          ARCHIVE_OK ||
      archive_write_set_format_raw(to.get()) != ARCHIVE_OK ||
      archive_write_set_bytes_in_last_block(to.get(), 1) != ARCHIVE_OK ||
      archive_write_open_memory(to.get(), out.data(), out.size(), &used) != ARCHIVE_OK ||
      archive_write_header(to.get(), entry.get()) != ARCHIVE_OK ||
      archive_write_data(to.get(), text.data(), text.size()) !=
          static_cast<la_ssize_t>(text.size()) ||
      archive_write_close(to.get()) != ARCHIVE_OK) {
    throw std::runtime_error(archive_error_string(to.get()));
  }
  out.resize(used);
  return out;
}

}  // namespace stepcast
