// Headers of pictures, and collections of files by time.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sim/export/pvd_series.h"
#include "sim/scene/image_file.h"

namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto header = palpate::scene::ParseImageHeader(bytes, "input");
  if (header.ok()) {
    const uint32_t most = palpate::scene::kMaxImageSide;
    Require(header->width >= 1 && header->width <= most && header->height >= 1 && header->height <= most, "sides are in range");
  } else {
    Require(header.status().code() == absl::StatusCode::kInvalidArgument, "an error is InvalidArgument");
  }
  const auto entries = palpate::sim::PvdSeries::Parse(bytes, "input");
  if (!entries.ok()) Require(entries.status().code() == absl::StatusCode::kInvalidArgument, "an error is InvalidArgument");
  return 0;
}
