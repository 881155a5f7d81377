// Tests of training/input_file.hpp.
// Not: formats of files.
#include "tawpipe/training/input_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "support/scratch_folder.hpp"

using support::put_file;
using support::ScratchFolder;
using tawpipe::InputError;
using tawpipe::training::InputFile;

namespace {

std::string read(const InputFile& file, std::int64_t begin, std::size_t count) {
  std::string text(count, '\0');
  file.read_at(begin, std::as_writable_bytes(std::span{text}));
  return text;
}

}  // namespace

TEST_CASE("bytes are read from any place, also after a move") {
  const ScratchFolder folder;
  put_file(folder / "x", "abcdef");
  InputFile file{folder / "x"};
  CHECK(file.size() == 6);
  CHECK(read(file, 2, 3) == "cde");
  const InputFile moved{std::move(file)};
  CHECK(read(moved, 0, 6) == "abcdef");
  CHECK(read(moved, 6, 0).empty());
}

TEST_CASE("a file that became shorter is an error, not the end of the program") {
  const ScratchFolder folder;
  put_file(folder / "x", "abcdef");
  const InputFile file{folder / "x"};
  std::filesystem::resize_file(folder / "x", 3);
  CHECK_THROWS_WITH_AS(read(file, 1, 4), doctest::Contains("ends at byte 3; it was longer when it was opened"), InputError);
}

TEST_CASE("what is no file is refused") {
  const ScratchFolder folder;
  CHECK_THROWS_WITH_AS(InputFile{folder.path()}, doctest::Contains("it must be a file, not a folder or device"), InputError);
  CHECK_THROWS_WITH_AS(InputFile{"/dev/null"}, doctest::Contains("it must be a file"), InputError);
  CHECK_THROWS_WITH_AS(InputFile{"no\nsuch"}, doctest::Contains("cannot read 'no?such': No such file"), InputError);
}
