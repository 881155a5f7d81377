// Tests of training/durable_file.hpp: whole or absent.
// Not: what is written (safetensors_test.cpp, checkpoint_test.cpp).
#include "tawpipe/training/durable_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "support/file_size_limit.hpp"
#include "support/scratch_folder.hpp"

using support::file_bytes;
using support::put_file;
using support::ScratchFolder;
using tawpipe::InputError;
using tawpipe::training::DurableFile;
using tawpipe::training::sync_folder;
using tawpipe::training::write_durably;

TEST_CASE("a durable file takes its place when it is committed, not before") {
  const ScratchFolder folder;
  put_file(folder / "x", "before");
  DurableFile file{folder / "x"};
  file.write("af");
  CHECK(file_bytes(folder / "x") == "before");
  file.write("ter");
  file.commit();
  CHECK(file_bytes(folder / "x") == "after");
  CHECK(!std::filesystem::exists(folder / "x.partial"));
}

TEST_CASE("a durable file that is given up or cannot be written leaves what was there") {
  const ScratchFolder folder;
  put_file(folder / "x", "before");
  { DurableFile{folder / "x"}.write("half"); }
  CHECK(file_bytes(folder / "x") == "before");
  {
    const support::FileSizeLimit full_disk{4};
    CHECK_THROWS_WITH_AS(write_durably(folder / "x", "too long"), doctest::Contains("x': File too large"), InputError);
  }
  CHECK(file_bytes(folder / "x") == "before");
  CHECK(!std::filesystem::exists(folder / "x.partial"));
}

TEST_CASE("a file where a folder stands, and a folder that is missing, are refused") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "taken");
  CHECK_THROWS_WITH_AS(write_durably(folder / "taken", "x"), doctest::Contains("taken': Is a directory"), InputError);
  CHECK(!std::filesystem::exists(folder / "taken.partial"));
  CHECK_THROWS_WITH_AS(write_durably(folder / "none/x", "x"), doctest::Contains("No such file or directory"), InputError);
  CHECK_THROWS_WITH_AS(sync_folder(folder / "none"), doctest::Contains("cannot write to folder"), InputError);
  write_durably(folder / "empty", "");
  CHECK(file_bytes(folder / "empty").empty());
}
