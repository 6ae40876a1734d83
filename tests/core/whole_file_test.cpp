#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/whole_file.h"
#include "tests/folder.h"

using namespace stepcast;
namespace fs = std::filesystem;

namespace {

struct Folder : fixtures::Folder {
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path()), {}));
  }
};

using fixtures::text_of;

}  // namespace

TEST_CASE("a written file replaces the old one and keeps its permissions", "[core][whole_file]") {
  const Folder folder;
  const fs::path file = folder.path() / "out.json";
  write_whole_file(file, "first");
  CHECK(text_of(file) == "first");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  write_whole_file(file, "second");
  CHECK(text_of(file) == "second");
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  write_whole_file(folder.path() / std::string(255, 'n'), "");  // the longest name there may be
  CHECK(folder.entries() == 2);
}

TEST_CASE("a symbolic link is followed, also to what is not there yet", "[core][whole_file]") {
  const Folder folder;
  fs::create_directory(folder.path() / "deep");
  const fs::path link = folder.path() / "link";
  fs::create_symlink("deep/hop", link);
  fs::create_symlink("target", folder.path() / "deep" / "hop");
  for (const std::string text : {"new", "again"}) {
    write_whole_file(link, text);
    CHECK(fs::is_symlink(link));
    CHECK(fs::is_symlink(folder.path() / "deep" / "hop"));
    CHECK(text_of(folder.path() / "deep" / "target") == text);
  }
  fs::create_symlink("circle", folder.path() / "circle");
  CHECK_THROWS_AS(write_whole_file(folder.path() / "circle", "x"), InputError);
}

TEST_CASE("a disk that is full ends a run, it is no wrong input", "[core][whole_file]") {
  REQUIRE(fs::exists("/dev/full"));  // every write to it finds no room
  CHECK_THROWS_AS(write_whole_file("/dev/full", "x"), RunError);
  CHECK_THROWS_WITH(write_whole_file("/dev/full", "x"),
                    Catch::Contains("/dev/full") && Catch::Contains("room"));
}

TEST_CASE("a FIFO is written to and stays one", "[core][whole_file]") {
  const Folder folder;
  const fs::path fifo = folder.path() / "fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const std::string text(200000, 'x');  // more than a pipe holds
  auto reader = std::async(std::launch::async, [&] { return text_of(fifo); });
  write_whole_file(fifo, text);
  CHECK(reader.get() == text);
  CHECK(fs::is_fifo(fifo));
  CHECK(folder.entries() == 1);
}

TEST_CASE("writers of one file do not meet", "[core][whole_file]") {
  const Folder folder;
  const fs::path file = folder.path() / "out";
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 50; ++i) {
        write_whole_file(file, std::string(10000, static_cast<char>('a' + w)));
      }
    });
  }
  for (std::thread& w : writers) {
    w.join();
  }
  const std::string text = text_of(file);
  REQUIRE(text.size() == 10000);
  CHECK(text.find_first_not_of(text[0]) == std::string::npos);
  CHECK(folder.entries() == 1);
}

TEST_CASE("what cannot be written is named and leaves nothing", "[core][whole_file]") {
  const Folder folder;
  fs::create_directory(folder.path() / "d");
  CHECK_THROWS_WITH(write_whole_file(folder.path() / "no" / "out", "x"),
                    Catch::Contains("out: cannot be written"));
  CHECK_THROWS_AS(write_whole_file(folder.path() / "d", "x"), InputError);
  CHECK_THROWS_AS(write_whole_file(folder.path() / std::string(256, 'n'), "x"), InputError);
  CHECK(folder.entries() == 1);
}

TEST_CASE("what could not be written is refused before the work", "[core][whole_file]") {
  const Folder folder;
  const fs::path file = folder.path() / "out.json";
  CHECK_NOTHROW(expect_writable(file));
  CHECK(folder.entries() == 0);  // asking creates nothing
  CHECK_NOTHROW(expect_writable("/dev/null"));
  CHECK_THROWS_AS(expect_writable(folder.path() / "none" / "out.json"), InputError);
  CHECK_THROWS_AS(expect_writable(folder.path()), InputError);
  write_whole_file(file, "text");
  CHECK_NOTHROW(expect_writable(file));
  CHECK_THROWS_AS(expect_writable(file / "below.json"), InputError);
  // A folder is made with its parents, but not below a file.
  CHECK_NOTHROW(expect_writable_folder(folder.path()));
  CHECK_NOTHROW(expect_writable_folder(folder.path() / "none" / "deeper"));
  CHECK_THROWS_AS(expect_writable_folder(file / "deeper"), InputError);
  CHECK_THROWS_AS(expect_writable_folder(file), InputError);
  CHECK(folder.entries() == 1);
}
