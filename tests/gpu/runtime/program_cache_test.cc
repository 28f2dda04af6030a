#include "gpu/runtime/program_cache.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource runtime_test;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::program_cache_test {
namespace {

using Bytes = std::vector<unsigned char>;

std::filesystem::path NewFolder() {
  std::string pattern = (std::filesystem::path(::testing::TempDir()) / "palpate_cache_XXXXXX").string();
  const char* folder = mkdtemp(pattern.data());
  EXPECT_NE(folder, nullptr);
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder);
}

std::vector<std::filesystem::path> FilesIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
}

class ProgramCacheTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ = NewFolder();
  const ProgramCache cache_{folder_ / "sub" / "folder"};
};

TEST_F(ProgramCacheTest, WhatIsStoredIsLoaded) {
  EXPECT_FALSE(cache_.Load("key").has_value());
  cache_.Store("key", {1, 2, 3});
  cache_.Store("other", {4});
  cache_.Store("empty", {});
  EXPECT_EQ(cache_.Load("key"), (Bytes{1, 2, 3}));
  EXPECT_EQ(cache_.Load("other"), Bytes{4});
  EXPECT_EQ(cache_.Load("empty"), Bytes{});
  EXPECT_FALSE(cache_.Load("ke").has_value());
  cache_.Store("key", {5});
  EXPECT_EQ(cache_.Load("key"), Bytes{5});
}

TEST_F(ProgramCacheTest, EveryDamagedByteAndEveryLengthIsAMiss) {
  cache_.Store("the key", {10, 20, 30, 40, 50});
  const std::filesystem::path file = cache_.FileOf("the key");
  const std::string good = ReadFile(file);
  ASSERT_FALSE(good.empty());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    WriteFile(file, bad);
    EXPECT_FALSE(cache_.Load("the key").has_value()) << "byte " << i;
    WriteFile(file, good.substr(0, i));
    EXPECT_FALSE(cache_.Load("the key").has_value()) << "length " << i;
  }
  WriteFile(file, good + "x");
  EXPECT_FALSE(cache_.Load("the key").has_value());
  WriteFile(file, good);
  EXPECT_TRUE(cache_.Load("the key").has_value());
}

TEST_F(ProgramCacheTest, AFileOfAnotherKeyIsAMiss) {
  cache_.Store("a", {1});
  std::filesystem::copy_file(cache_.FileOf("a"), cache_.FileOf("b"));
  EXPECT_FALSE(cache_.Load("b").has_value());
}

TEST_F(ProgramCacheTest, WithoutAFolderThereIsNoCache) {
  const ProgramCache off{std::filesystem::path()};
  off.Store("key", {1});
  EXPECT_FALSE(off.Load("key").has_value());
}

TEST_F(ProgramCacheTest, AFolderThatCannotBeWrittenIsOnlyAMiss) {
  WriteFile(folder_ / "file", "in the way");
  const ProgramCache blocked{folder_ / "file" / "folder"};
  blocked.Store("key", {1});
  EXPECT_FALSE(blocked.Load("key").has_value());
  // A folder where the file should be.
  std::filesystem::create_directories(cache_.FileOf("key"));
  cache_.Store("key", {1});
  EXPECT_FALSE(cache_.Load("key").has_value());
  for (const auto& path : FilesIn(folder_ / "sub" / "folder")) EXPECT_NE(path.extension(), ".tmp") << path;
}

// Readers see a whole file of one of the writers at any time.
TEST_F(ProgramCacheTest, ProcessesAndThreadsShareAFolder) {
  const auto binary = [](unsigned char writer) { return Bytes(100000, writer); };
  cache_.Store("key", binary(1));
  std::vector<pid_t> children;
  for (unsigned char writer = 1; writer <= 2; ++writer) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 0; i < 30; ++i) cache_.Store("key", binary(writer));
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<std::thread> threads;
  std::vector<int> bad(2, 0);
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        cache_.Store("key", binary(static_cast<unsigned char>(3 + t)));
        const auto loaded = cache_.Load("key");
        if (!loaded.has_value() || loaded->size() != 100000 || *loaded != Bytes(100000, loaded->front())) ++bad[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(bad, (std::vector<int>{0, 0}));
  EXPECT_EQ(FilesIn(folder_ / "sub" / "folder").size(), 1U) << "temporary files were left";
}

TEST(ProgramCacheFolderTest, EnvironmentChoosesTheFolder) {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? std::optional<std::string>() : std::optional<std::string>(text);
  };
  const auto set = [](const char* name, const std::optional<std::string>& text) {
    text.has_value() ? setenv(name, text->c_str(), 1) : unsetenv(name);
  };
  const auto own = value("PALPATE_CACHE_DIR");
  const auto xdg = value("XDG_CACHE_HOME");
  const auto home = value("HOME");
  set("PALPATE_CACHE_DIR", "/a");
  set("XDG_CACHE_HOME", "/b");
  set("HOME", "/c");
  EXPECT_EQ(ProgramCache::DefaultFolder(), "/a");
  set("PALPATE_CACHE_DIR", std::nullopt);
  EXPECT_EQ(ProgramCache::DefaultFolder(), "/b/palpate");
  set("XDG_CACHE_HOME", std::nullopt);
  EXPECT_EQ(ProgramCache::DefaultFolder(), "/c/.cache/palpate");
  set("HOME", std::nullopt);
  EXPECT_EQ(ProgramCache::DefaultFolder(), "");
  set("PALPATE_CACHE_DIR", own);
  set("XDG_CACHE_HOME", xdg);
  set("HOME", home);
}

TEST(Fnv1a64Test, EqualsPublishedValues) {
  EXPECT_EQ(Fnv1a64(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(Fnv1a64("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(Fnv1a64("foobar"), 0x85944171f73967e8ULL);
}

// The cache as a context uses it.
class ContextCacheTest : public test::DeviceTest {
 protected:
  void SetUp() override {
    unsetenv("PALPATE_PROGRAM_BINARIES");
    DeviceTest::SetUp();
  }
  void TearDown() override {
    unsetenv("PALPATE_PROGRAM_BINARIES");
    std::filesystem::remove_all(folder_);
    DeviceTest::TearDown();
  }

  std::shared_ptr<Context> NewContext() const {
    auto context = Context::Create({.cache_folder = folder_});
    EXPECT_TRUE(context.ok()) << context.status();
    return *context;
  }

  // Runs scale_values with SCALE=`scale` on a new context; the number of compilations, -1 if the result was wrong.
  int Compilations(int scale) {
    const std::shared_ptr<Context> fresh = NewContext();
    const auto result = [&]() -> absl::StatusOr<int32_t> {
      PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<Queue> own, Queue::Create(fresh));
      PALPATE_ASSIGN_OR_RETURN(Kernel kernel,
                               fresh->CreateKernel(kernels::runtime_test, "scale_values", {{"SCALE", std::to_string(scale)}}));
      const int32_t ten = 10;
      PALPATE_ASSIGN_OR_RETURN(const DeviceBuffer<int32_t> value, CreateBufferFrom(*own, std::span(&ten, 1), "value"));
      PALPATE_RETURN_IF_ERROR(own->Launch(kernel, {1, 1}, Arg("in", value), Arg("out", value), Arg("count", 1U)));
      int32_t read = 0;
      PALPATE_RETURN_IF_ERROR(own->ReadBlocking(value, std::span(&read, 1)));
      return read;
    }();
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() && *result == 10 * scale ? static_cast<int>(fresh->programs_compiled()) : -1;
  }

  const std::filesystem::path folder_ = NewFolder();
};

// Then only signatures are kept: nobody asks the driver for a binary, and what was kept is no longer compiled as a new program.
TEST_F(ContextCacheTest, BinariesMayBeLeftToTheDriver) {
  ASSERT_EQ(setenv("PALPATE_PROGRAM_BINARIES", "off", 1), 0);
  EXPECT_EQ(Compilations(2), 1);
  ASSERT_EQ(FilesIn(folder_).size(), 1U);
  const std::filesystem::path file = FilesIn(folder_)[0];
  const auto size = std::filesystem::file_size(file);
  EXPECT_EQ(Compilations(2), 0);
  unsetenv("PALPATE_PROGRAM_BINARIES");
  EXPECT_EQ(Compilations(2), 1) << "who wants binaries makes them";
  EXPECT_GT(std::filesystem::file_size(file), size);
  EXPECT_EQ(Compilations(2), 0);
  setenv("PALPATE_PROGRAM_BINARIES", "off", 1);
  EXPECT_EQ(Compilations(2), 0) << "a binary that is there is used";
}

TEST_F(ContextCacheTest, SecondContextTakesTheBinaryFromDisk) {
  EXPECT_EQ(Compilations(2), 1);
  EXPECT_EQ(FilesIn(folder_).size(), 1U);
  EXPECT_EQ(Compilations(2), 0);
  EXPECT_EQ(Compilations(3), 1) << "other options are another program";
  EXPECT_EQ(Compilations(3), 0);
  EXPECT_EQ(FilesIn(folder_).size(), 2U);
}

TEST_F(ContextCacheTest, OneContextCompilesAProgramOnce) {
  const std::shared_ptr<Context> fresh = NewContext();
  for (const char* entry_point : {"scale_values", "write_at", "scale_values"}) {
    EXPECT_TRUE(fresh->CreateKernel(kernels::runtime_test, entry_point).ok());
  }
  EXPECT_EQ(fresh->programs_compiled(), 1U);
}

TEST_F(ContextCacheTest, AnotherSourceOfTheSamePathIsCompiled) {
  for (const char* text : {"kernel void f(global int* x) { x[0] = 1; }\n", "kernel void f(global int* x) { x[0] = 2; }\n"}) {
    const std::shared_ptr<Context> fresh = NewContext();
    EXPECT_TRUE(fresh->CreateKernel({"same.cl", text}, "f").ok());
    EXPECT_EQ(fresh->programs_compiled(), 1U);
  }
}

TEST_F(ContextCacheTest, DamagedFilesAreRebuiltSilently) {
  ASSERT_EQ(Compilations(2), 1);
  const std::filesystem::path file = FilesIn(folder_).at(0);
  const std::string good = ReadFile(file);
  std::string flipped = good;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), flipped, std::string("not a program")}) {
    WriteFile(file, bad);
    EXPECT_EQ(Compilations(2), 1);
    EXPECT_EQ(Compilations(2), 0) << "the rebuilt program was not stored";
  }
}

// A whole file whose content the driver refuses, as after a driver change that kept its version.
TEST_F(ContextCacheTest, BinaryTheDriverRefusesIsRebuilt) {
  ASSERT_EQ(Compilations(2), 1);
  const std::filesystem::path file = FilesIn(folder_).at(0);
  const std::string good = ReadFile(file);
  // Recover the key, and store rubbish under it the regular way.
  constexpr size_t kMagicSize = 18;
  uint64_t key_size = 0;
  std::memcpy(&key_size, good.data() + kMagicSize, sizeof(key_size));
  const std::string key = good.substr(kMagicSize + 3 * sizeof(uint64_t), key_size);
  const ProgramCache cache{folder_};
  ASSERT_EQ(cache.FileOf(key), file);
  Bytes without_signatures(1000, 0x42);
  std::fill_n(without_signatures.begin(), sizeof(uint64_t), 0);  // the length of their text
  for (const Bytes& rubbish : {Bytes(1000, 0x42), Bytes(3, 0), without_signatures}) {
    cache.Store(key, rubbish);
    EXPECT_EQ(Compilations(2), 1);
    EXPECT_EQ(Compilations(2), 0);
  }
}

TEST_F(ContextCacheTest, ThreadsThatWantTheSameProgramCompileItOnce) {
  const std::shared_ptr<Context> fresh = NewContext();
  std::vector<std::thread> threads;
  std::vector<char> ok(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { ok[t] = fresh->CreateKernel(kernels::runtime_test, "write_at").ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ok, std::vector<char>(4, 1));
  EXPECT_EQ(fresh->programs_compiled(), 1U);
}

TEST_F(ContextCacheTest, ContextsOfManyThreadsShareTheFolder) {
  std::vector<std::thread> threads;
  std::vector<int> compiled(4, -1);
  for (int t = 0; t < 4; ++t) threads.emplace_back([&, t] { compiled[t] = Compilations(4); });
  for (std::thread& thread : threads) thread.join();
  for (const int count : compiled) EXPECT_TRUE(count == 0 || count == 1) << count;
  EXPECT_EQ(FilesIn(folder_).size(), 1U);
  EXPECT_EQ(Compilations(4), 0);
}

}  // namespace
}  // namespace palpate::gpu::program_cache_test
