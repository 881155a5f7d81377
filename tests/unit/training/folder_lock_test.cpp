// Tests of include/tawpipe/training/folder_lock.hpp.
// Not: the command's use of it (tests/cli/train_test.cpp).
#include "tawpipe/training/folder_lock.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "support/scratch_folder.hpp"

using support::ScratchFolder;
using tawpipe::InputError;
using tawpipe::training::FolderLock;
using tawpipe::training::open_locked;

TEST_CASE("a folder is held by one process, until that ends or lets it go") {
  const ScratchFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const FolderLock lock{folder.path()};
    const bool told = ::write(ready[1], "x", 1) == 1;
    while (told) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK_THROWS_WITH_AS(FolderLock{folder.path()}, doctest::Contains("is in use by another run (process "), InputError);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  { const FolderLock lock{folder.path()}; }
  { const FolderLock again{folder.path()}; }
  CHECK(std::filesystem::is_empty(folder.path()));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a lock is not taken through a link, of a file that is no lock, nor in a folder that is not there") {
  const ScratchFolder folder;
  std::filesystem::create_symlink("elsewhere", folder / "lock");
  CHECK_THROWS_WITH_AS(FolderLock{folder.path()}, doctest::Contains("cannot lock folder"), InputError);
  CHECK_FALSE(std::filesystem::exists(folder / "elsewhere"));
  std::filesystem::remove(folder / "lock");
  support::put_file(folder / "lock", "of a door");
  CHECK_THROWS_WITH_AS(FolderLock{folder.path()}, doctest::Contains("its file 'lock' is something else"), InputError);
  CHECK(support::file_bytes(folder / "lock") == "of a door");
  CHECK_THROWS_WITH_AS(FolderLock{folder / "none"}, doctest::Contains("No such file"), InputError);
}

TEST_CASE("a file that its holder renamed is not the file of that name any more") {
  const ScratchFolder folder;
  const std::string path = folder / "file.part";
  const int first = open_locked(path);
  REQUIRE(first >= 0);
  CHECK(open_locked(path) == -1);
  std::filesystem::rename(path, folder / "file");
  const int second = open_locked(path);
  CHECK(second >= 0);
  ::close(first);
  ::close(second);
}
