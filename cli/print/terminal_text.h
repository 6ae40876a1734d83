#pragma once
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace stepcast::cli {

/// Names of kernels are whole signatures: cut for tables and sentences. Programs get them whole.
std::string short_text(const std::string& name);
/// Control characters replaced by '?', but for line ends and tabs: names in recordings may hold
/// escape sequences, and a terminal would obey them.
std::string printable(std::string_view text);

/// While it lives, what goes to the stream is made printable.
class PrintableStream {
 public:
  explicit PrintableStream(std::ostream& out);
  ~PrintableStream();
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;

  class Buffer : public std::streambuf {
   public:
    explicit Buffer(std::streambuf* to) : to_(to) {}
    /// Lets text through that is safe as it stands: with colours of ours.
    void pass(std::string_view text) {
      to_->sputn(text.data(), static_cast<std::streamsize>(text.size()));
    }

   protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override { return to_->pubsync(); }

   private:
    std::streambuf* to_;
  };

 private:
  std::ostream& out_;
  std::streambuf* before_;
  Buffer buffer_;
};

}  // namespace stepcast::cli
