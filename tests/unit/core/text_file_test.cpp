// Whole files: their text, and what is no such file.
#include "tawpipe/core/text_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tawpipe/core/error.hpp"

namespace {

const std::string path = (std::filesystem::temp_directory_path() / "tawpipe_text_file_test").string();

void write(const std::string& text) { std::ofstream{path, std::ios::binary} << text; }

}  // namespace

TEST_CASE("a file is read whole, without a byte order mark") {
  write("\xef\xbb\xbfone\ntwo");
  CHECK(tawpipe::read_text_file(path, "list", 1) == "one\ntwo");
  std::filesystem::remove(path);
}

TEST_CASE("what is missing, a folder or too large is said") {
  CHECK_FALSE(tawpipe::find_text_file(path + ".none", "list", 1).has_value());
  CHECK_THROWS_WITH_AS(tawpipe::read_text_file("/no/such", "list", 1),
                       "the list '/no/such' cannot be read: No such file or directory", tawpipe::InputError);
  CHECK_THROWS_WITH_AS(tawpipe::read_text_file("/", "list", 1), "the list '/' cannot be read: Is a directory",
                       tawpipe::InputError);
  write(std::string((1 << 20) + 1, 'x'));
  const std::string expected = "the list '" + path + "' is larger than 1 MiB";
  CHECK_THROWS_WITH_AS(tawpipe::read_text_file(path, "list", 1), expected.c_str(), tawpipe::InputError);
  std::filesystem::remove(path);
}

TEST_CASE("what never ends is not read to the end") {
  CHECK_THROWS_WITH_AS(tawpipe::read_text_file("/dev/zero", "trace", 8 << 10),
                       "the trace '/dev/zero' begins with 64 KiB of zeros; give a file with contents", tawpipe::InputError);
  CHECK_THROWS_WITH_AS(tawpipe::read_text_file("/dev/urandom", "list", 1), "the list '/dev/urandom' is larger than 1 MiB",
                       tawpipe::InputError);
  CHECK(tawpipe::read_text_file("/dev/null", "list", 1).empty());
}

TEST_CASE("a file too large is refused by its size, before it is read") {
  write("x");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // takes no room on the disk
  CHECK_THROWS_WITH_AS(tawpipe::read_text_file(path, "list", 1 << 10), doctest::Contains("is larger than 1024 MiB"),
                       tawpipe::InputError);
  std::filesystem::remove(path);
}
