#include "gpu/runtime/driver_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace palpate::gpu::driver_cache_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DriverCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // what a process does once, each case does in a process of its own
    std::string name = (fs::temp_directory_path() / "palpate-driver-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string BytesOf(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  void Write(const fs::path& path, const std::string& bytes) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path, std::ios::binary) << bytes;
  }
  std::vector<std::string> Damaged() const {
    std::vector<std::string> names;
    for (const fs::path& path : DamagedFiles(folder_)) names.push_back(path.filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  /// In a process without a cache of its own choice: prepares it, prints the notes, and ends with 0 if what `check` asks holds.
  template <typename Check>
  void Prepare(const Check& check) const {
    unsetenv("POCL_CACHE_DIR");
    unsetenv("POCL_KERNEL_CACHE");
    setenv("PALPATE_CACHE_DIR", folder_.c_str(), 1);
    PrepareDriverCache();
    const char* const used = std::getenv("POCL_CACHE_DIR");
    const bool holds = check(used == nullptr ? "" : used);
    fs::remove_all(folder_);
    std::exit(holds ? 0 : 1);
  }

  fs::path folder_;
};

TEST_F(DriverCacheTest, FindsFilesThatAreCutOff) {
  const std::string object = BytesOf("/proc/self/exe");  // of the same kind
  EXPECT_THAT(Damaged(), IsEmpty());
  Write("AB/C/kernel/0-0-0/whole.so", object);
  Write("AB/C/program.bc", "BC\xC0\xDE rest");
  Write("AB/C/build.log", "");
  Write("tempfile_0PMKrO", "");
  EXPECT_THAT(Damaged(), IsEmpty()) << "other files do not matter";
  Write("AB/C/kernel/0-0-0/cut.so", object.substr(0, object.size() / 2));
  Write("AB/C/kernel/0-0-0/empty.so", "");
  Write("AB/C/kernel/0-0-0/text.so", std::string(200, 'x'));
  Write("AB/D/program.bc", "");
  EXPECT_THAT(Damaged(), ElementsAre("cut.so", "empty.so", "program.bc", "text.so"));
  EXPECT_THAT(DamagedFiles(folder_ / "none"), IsEmpty());
}

TEST_F(DriverCacheTest, WhatIsIntactIsUsedAndADamagedOneSetAside) {
  const std::string own = (folder_ / "pocl").string();  // each process has a folder of its own
  EXPECT_EXIT(Prepare([&](const std::string& used) { return used == own && PrepareDriverCache().empty(); }), testing::ExitedWithCode(0),
              "");
  Write("pocl/AB/C/kernel/0-0-0/cut.so", "");
  Write("pocl/AB/C/program.bc", "BC\xC0\xDE rest");
  EXPECT_EXIT(Prepare([&](const std::string& used) { return used == own && fs::is_empty(own); }), testing::ExitedWithCode(0),
              "holds 1 damaged files, for instance .*cut.so; it was moved to .*pocl-damaged-");
  // Another process uses it, and may be writing: what is damaged for long is left to it, what is new is believed to become whole.
  const auto beside_another = [&](bool is_old) {
    const int file = open((folder_ / "pocl.lock").c_str(), O_RDWR | O_CREAT, 0644);
    if (flock(file, LOCK_SH) != 0) std::abort();
    const fs::path cut = folder_ / "pocl/AB/C/kernel/0-0-0/cut.so";
    if (is_old) fs::last_write_time(cut, fs::last_write_time(cut) - std::chrono::hours(1));
    Prepare([&](const std::string& used) { return fs::exists(cut) && (used == (folder_ / "pocl").string()) == !is_old; });
  };
  EXPECT_EXIT(beside_another(false), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(beside_another(true), testing::ExitedWithCode(0), "it is left to the programs that use it");
}

TEST_F(DriverCacheTest, AFolderThatTakesNothingIsReplacedForThisProcess) {
  Write("pocl", "a file where the folder should be");
  const auto is_elsewhere = [&](const std::string& used) {
    return !used.empty() && used.rfind(folder_.string(), 0) != 0 && fs::is_directory(used);
  };
  EXPECT_EXIT(Prepare(is_elsewhere), testing::ExitedWithCode(0), "kernels are compiled into .*, which is not kept");
}

TEST_F(DriverCacheTest, AFolderOfTheUsersIsLeftAlone) {
  Write("mine/cut.so", "");
  const auto prepare = [&] {
    const std::string mine = (folder_ / "mine").string();
    setenv("POCL_CACHE_DIR", mine.c_str(), 1);
    PrepareDriverCache();
    const bool is_kept = std::getenv("POCL_CACHE_DIR") == mine && fs::exists(folder_ / "mine/cut.so");
    fs::remove_all(folder_);
    std::exit(is_kept ? 0 : 1);
  };
  EXPECT_EXIT(prepare(), testing::ExitedWithCode(0), "holds 1 damaged files, for instance .*cut.so");
}

}  // namespace
}  // namespace palpate::gpu::driver_cache_test
