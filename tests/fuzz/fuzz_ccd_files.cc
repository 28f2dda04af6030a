#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "sim/ccd/frame_file.h"
#include "sim/ccd/pair_file.h"
#include "sim/ccd/query_file.h"

namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

template <typename T>
bool IsGood(const absl::StatusOr<T>& result) {
  if (result.ok()) return true;
  Require(result.status().code() == absl::StatusCode::kInvalidArgument, "a parser's error is InvalidArgument");
  for (const char c : result.status().message()) Require(c >= ' ' && c <= '~', "an error message is printable ASCII");
  return false;
}

}  // namespace

// The first byte chooses the parser.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace palpate::sim;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: {
      const auto queries = ParseCcdQueries(bytes, "input");
      if (!IsGood(queries)) break;
      Require(queries->coordinates.size() == queries->count() * CcdQuerySet::kCoordinates, "whole queries");
      Require(queries->truth.empty() || queries->truth.size() == queries->count(), "an answer for each query, or none");
      for (const double x : queries->coordinates) Require(x - x == 0, "coordinates are finite");
      for (const double e : queries->errors) Require(e >= 0 && e - e == 0, "errors are finite");
      break;
    }
    case 1: {
      const auto frame = ParsePlyFrame(bytes, "input");
      if (!IsGood(frame)) break;
      for (const auto& triangle : frame->triangles) {
        for (const uint32_t corner : triangle) Require(corner < frame->positions_m.size(), "corners exist");
      }
      break;
    }
    case 2:
      IsGood(ParsePairList(bytes, "input"));
      break;
    default:
      IsGood(ParseTruthList(bytes, "input"));
  }
  return 0;
}
