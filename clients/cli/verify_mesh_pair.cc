#include "clients/cli/verify_mesh_pair.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "gpu/collision/surface_topology.h"
#include "sim/ccd/frame_file.h"
#include "sim/ccd/pair_file.h"

namespace palpate::cli {
namespace {

constexpr int kRuns = 3;

uint64_t KeyOf(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

// Pairs as the detector numbers their elements, in the order of the list.
absl::StatusOr<std::vector<uint64_t>> ReadKeys(const std::string& path, uint32_t kind, const gpu::SurfaceTopology& topology,
                                               const std::vector<uint32_t>& edge_of_rank) {
  PALPATE_ASSIGN_OR_RETURN(const auto pairs, sim::ReadPairList(path));
  const uint64_t vertex_count = topology.vertex_count;
  const uint64_t edges_end = vertex_count + topology.edges.size();
  const uint64_t faces_end = edges_end + topology.triangles.size();
  std::vector<uint64_t> keys;
  keys.reserve(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const uint32_t low = std::min(pairs[i][0], pairs[i][1]);
    const uint32_t high = std::max(pairs[i][0], pairs[i][1]);
    if (kind == PALPATE_VERTEX_TRIANGLE && low < vertex_count && high >= edges_end && high < faces_end) {
      keys.push_back(KeyOf(low, static_cast<uint32_t>(high - edges_end)));
    } else if (kind == PALPATE_EDGE_EDGE && low >= vertex_count && high < edges_end && low != high) {
      const uint32_t a = edge_of_rank[low - vertex_count];
      const uint32_t b = edge_of_rank[high - vertex_count];
      keys.push_back(KeyOf(std::min(a, b), std::max(a, b)));
    } else {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: pair %d (%d, %d) is no %s; ids below %d are vertices, below %d edges, below %d faces", path, i, pairs[i][0], pairs[i][1],
          kind == PALPATE_EDGE_EDGE ? "pair of edges" : "vertex and face", vertex_count, edges_end, faces_end));
    }
  }
  return keys;
}

template <typename T>
absl::StatusOr<std::array<gpu::DeviceBuffer<T>, 2>> UploadFrames(gpu::Queue& queue, const sim::MeshFrame (&frames)[2]) {
  std::array<gpu::DeviceBuffer<T>, 2> buffers;
  for (size_t f = 0; f < 2; ++f) {
    std::vector<T> values;
    values.reserve(frames[f].positions_m.size() * 3);
    for (const auto& p : frames[f].positions_m) {
      if constexpr (std::is_same_v<T, double>) {
        values.insert(values.end(), p.begin(), p.end());
      } else {
        values.push_back({static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), 0});
      }
    }
    PALPATE_ASSIGN_OR_RETURN(buffers[f], gpu::CreateBufferFrom(queue, std::span<const T>(values), "frame"));
  }
  return buffers;
}

/// Two frames of one mesh.
absl::Status ReadFrames(const MeshPairFiles& files, sim::MeshFrame (&frames)[2]) {
  for (size_t f = 0; f < 2; ++f) {
    PALPATE_ASSIGN_OR_RETURN(frames[f], sim::ReadPlyFrame(files.frames[f]));
  }
  if (frames[0].positions_m.size() != frames[1].positions_m.size() || frames[0].triangles != frames[1].triangles) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s and %s are no two frames of one mesh: they differ in their triangles or in the number of vertices (%d and %d)",
                        files.frames[0], files.frames[1], frames[0].positions_m.size(), frames[1].positions_m.size()));
  }
  if (frames[0].positions_m.size() > gpu::SurfaceTopology::kMaxElements) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d vertices; at most %d are taken", files.frames[0],
                                                        frames[0].positions_m.size(), gpu::SurfaceTopology::kMaxElements));
  }
  return absl::OkStatus();
}

/// Edges in the order in which the files number them: by their second vertex, then by their first.
std::vector<uint32_t> EdgesByRank(const gpu::SurfaceTopology& topology) {
  std::vector<uint32_t> edge_of_rank(topology.edges.size());
  std::iota(edge_of_rank.begin(), edge_of_rank.end(), 0U);
  std::sort(edge_of_rank.begin(), edge_of_rank.end(), [&](uint32_t a, uint32_t b) {
    const gpu::UInt2 x = topology.edges[a];
    const gpu::UInt2 y = topology.edges[b];
    return x.y != y.y ? x.y < y.y : x.x < y.x;
  });
  return edge_of_rank;
}

/// What the files say of pairs, by kind.
struct PairLists {
  std::vector<uint64_t> required[2];  ///< keys
  std::vector<bool> truth[2];         ///< of each of them, or empty
};

absl::StatusOr<PairLists> ReadLists(const MeshPairFiles& files, const gpu::SurfaceTopology& topology) {
  PairLists lists;
  const std::vector<uint32_t> edge_of_rank = EdgesByRank(topology);
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    if (files.truth[kind] && !files.boxes[kind]) {
      return absl::InvalidArgumentError(absl::StrCat(*files.truth[kind], ": answers without the pairs that they belong to"));
    }
    if (!files.boxes[kind]) continue;
    PALPATE_ASSIGN_OR_RETURN(lists.required[kind], ReadKeys(*files.boxes[kind], kind, topology, edge_of_rank));
    if (!files.truth[kind]) continue;
    PALPATE_ASSIGN_OR_RETURN(lists.truth[kind], sim::ReadTruthList(*files.truth[kind]));
    if (lists.truth[kind].size() != lists.required[kind].size()) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %d answers for the %d pairs of %s", *files.truth[kind],
                                                        lists.truth[kind].size(), lists.required[kind].size(), *files.boxes[kind]));
    }
  }
  return lists;
}

/// Both frames on the device, in the precision of the files.
struct DeviceFrames {
  bool is_double = false;
  std::array<gpu::DeviceBuffer<double>, 2> doubles;
  std::array<gpu::DeviceBuffer<gpu::Float4>, 2> floats;

  absl::Status Run(gpu::Queue& queue, gpu::ContinuousCollisions& detector) const {
    return is_double ? detector.RunDouble(queue, doubles[0], doubles[1]) : detector.Run(queue, floats[0], floats[1]);
  }
};

absl::StatusOr<DeviceFrames> Upload(gpu::Queue& queue, const sim::MeshFrame (&frames)[2]) {
  DeviceFrames out;
  out.is_double = frames[0].has_double || frames[1].has_double;
  if (out.is_double) {
    PALPATE_ASSIGN_OR_RETURN(out.doubles, UploadFrames<double>(queue, frames));
  } else {
    PALPATE_ASSIGN_OR_RETURN(out.floats, UploadFrames<gpu::Float4>(queue, frames));
  }
  return out;
}

/// Which of the required pairs are no candidates.
absl::Status CheckCandidates(gpu::Queue& queue, gpu::CcdDetectorOptions options, const gpu::SurfaceTopology& topology,
                             const DeviceFrames& frames, const PairLists& lists, MeshPairVerdict* verdict) {
  options.candidates_only = true;
  PALPATE_ASSIGN_OR_RETURN(auto detector, gpu::ContinuousCollisions::Create(queue.context(), options));
  PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue, topology));
  PALPATE_RETURN_IF_ERROR(frames.Run(queue, detector));
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<gpu::UInt2> pairs, detector.Candidates(queue, kind));
    std::vector<uint64_t> keys;
    keys.reserve(pairs.size());
    for (const gpu::UInt2& pair : pairs) keys.push_back(KeyOf(pair.x, pair.y));
    std::sort(keys.begin(), keys.end());
    verdict->required[kind] = lists.required[kind].size();
    for (const uint64_t key : lists.required[kind]) verdict->missing[kind] += std::binary_search(keys.begin(), keys.end(), key) ? 0 : 1;
  }
  return absl::OkStatus();
}

/// The detector's hits. `fastest`: of several runs.
absl::StatusOr<std::vector<gpu::CcdHit>> FindHits(gpu::Queue& queue, gpu::CcdDetectorOptions options, const gpu::SurfaceTopology& topology,
                                                  const DeviceFrames& frames, gpu::CcdStatistics* fastest) {
  options.measure_stages = true;
  PALPATE_ASSIGN_OR_RETURN(auto detector, gpu::ContinuousCollisions::Create(queue.context(), options));
  PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue, topology));
  double least_seconds = 1e300;
  for (int i = 0; i < kRuns; ++i) {
    PALPATE_RETURN_IF_ERROR(frames.Run(queue, detector));
    const gpu::CcdStatistics& s = detector.statistics();
    const double seconds = s.build_seconds + s.find_seconds + s.decide_seconds;
    if (seconds < least_seconds) *fastest = s;
    least_seconds = std::min(least_seconds, seconds);
  }
  std::vector<gpu::CcdHit> hits(detector.hit_count());
  if (!hits.empty()) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(detector.hit_buffer(), hits));
  return hits;
}

/// Hits against the truth, as far as it is given.
void CheckHits(const std::vector<gpu::CcdHit>& hits, const MeshPairFiles& files, const PairLists& lists, MeshPairVerdict* verdict) {
  std::vector<uint64_t> hit_keys[2];
  for (const gpu::CcdHit& hit : hits) hit_keys[hit.kind].push_back(KeyOf(hit.a, hit.b));  // sorted, as the hits are
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    uint64_t true_hits = 0;
    for (size_t i = 0; i < lists.truth[kind].size(); ++i) {
      if (!lists.truth[kind][i]) continue;
      const bool is_hit = std::binary_search(hit_keys[kind].begin(), hit_keys[kind].end(), lists.required[kind][i]);
      ++verdict->colliding[kind];
      true_hits += is_hit ? 1 : 0;
      verdict->missed[kind] += is_hit ? 0 : 1;
    }
    if (files.truth[kind]) verdict->false_hits[kind] = hit_keys[kind].size() - true_hits;
  }
}

}  // namespace

absl::StatusOr<MeshPairVerdict> VerifyMeshPair(gpu::Queue& queue, const gpu::CcdDetectorOptions& options, const MeshPairFiles& files) {
  sim::MeshFrame frames[2];
  PALPATE_RETURN_IF_ERROR(ReadFrames(files, frames));
  const gpu::SurfaceBody body = {.triangles = frames[0].triangles};
  const absl::StatusOr<gpu::SurfaceTopology> topology =
      gpu::SurfaceTopology::Build(static_cast<uint32_t>(frames[0].positions_m.size()), std::span(&body, 1));
  if (!topology.ok()) return Annotate(topology.status(), files.frames[0]);
  PALPATE_ASSIGN_OR_RETURN(const PairLists lists, ReadLists(files, *topology));
  PALPATE_ASSIGN_OR_RETURN(const DeviceFrames on_device, Upload(queue, frames));

  MeshPairVerdict verdict;
  verdict.vertices = topology->vertex_count;
  verdict.edges = topology->edges.size();
  verdict.faces = topology->triangles.size();
  verdict.is_double = on_device.is_double;
  if (files.boxes[0] || files.boxes[1]) {
    PALPATE_RETURN_IF_ERROR(CheckCandidates(queue, options, *topology, on_device, lists, &verdict));
  }
  PALPATE_ASSIGN_OR_RETURN(const std::vector<gpu::CcdHit> hits, FindHits(queue, options, *topology, on_device, &verdict.statistics));
  CheckHits(hits, files, lists, &verdict);
  return verdict;
}

}  // namespace palpate::cli
