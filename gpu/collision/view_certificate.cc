#include "gpu/collision/view_certificate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/collision/box_hierarchy.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource view_certificate;
}
namespace {

constexpr uint32_t kNone = 0xffffffffU;
constexpr uint32_t kWidth = BoxHierarchy::kWidth;
// Passes that place a new point, each with the height that it asks for as a share of the mean one: wide ones first, which see the whole
// shape, then those that only mind the triangles which are nearly seen from behind.
constexpr double kWantedShares[] = {0.5, 0.5, 0.25, 0.12, 0.06, 0.03};
// The same for a point that served before.
constexpr double kRefiningShares[] = {0.1, 0.03};
// Segments that are tried reach over these shares of the vertices' spread along their longest axis.
constexpr double kSegmentShares[] = {0.95, 0.8, 0.6, 0.3};
// Of the mean height: what all of a component is expected to keep from its point.
constexpr double kReachShare = 0.5;
// A point keeps at least this share of the mean distance from where surfaces lie, as far as heights go.
constexpr double kFlatShare = 0.4;
// Directions of rays, of which no coordinate is like another: meshes are often symmetric.
constexpr Float4 kRays[] = {{0.5219F, 0.3187F, 0.7912F, 0},  {-0.3391F, 0.8127F, 0.4738F, 0}, {0.6713F, -0.5417F, 0.5059F, 0},
                            {-0.7351F, -0.4019F, 0.546F, 0}, {0.2713F, 0.5903F, -0.7603F, 0}, {-0.8123F, 0.1931F, -0.5503F, 0}};

using Vector = std::array<double, 3>;

Vector Of(const Float4& v) { return {v.x, v.y, v.z}; }
Float4 Point4(double x, double y, double z) { return {static_cast<float>(x), static_cast<float>(y), static_cast<float>(z), 0}; }

// x of (matrix + a little) x = right, for a symmetric matrix of squares: diagonal, then xy, xz, yz. 0 where there is none.
Vector SolveSquares(const Vector& diagonal, const Vector& mixed, const Vector& right) {
  const double damping = 1e-4 * (diagonal[0] + diagonal[1] + diagonal[2]) + 1e-12;
  const double a = diagonal[0] + damping, b = mixed[0], c = mixed[1], d = diagonal[1] + damping, e = mixed[2], f = diagonal[2] + damping;
  const double ca = d * f - e * e, cb = c * e - b * f, cc = b * e - c * d;
  const double determinant = a * ca + b * cb + c * cc;
  if (!(std::abs(determinant) > 0) || !std::isfinite(determinant)) return {};
  const double cd = a * f - c * c, ce = b * c - a * e, cf = a * d - b * b;
  return {(ca * right[0] + cb * right[1] + cc * right[2]) / determinant, (cb * right[0] + cd * right[1] + ce * right[2]) / determinant,
          (cc * right[0] + ce * right[1] + cf * right[2]) / determinant};
}

uint32_t& Root(std::vector<uint32_t>& parents, uint32_t i) {
  while (parents[i] != i) {
    parents[i] = parents[parents[i]];
    i = parents[i];
  }
  return parents[i];
}

absl::Status CheckOption(bool is_good, const char* name, double value, const char* range) {
  if (is_good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ViewCertificateOptions.", name, ": ", value, " is not ", range));
}

}  // namespace

void ViewCertificate::Holes::Add(uint32_t component, std::span<const uint32_t> loop) {
  vertices.insert(vertices.end(), loop.begin(), loop.end());
  begins.push_back(static_cast<uint32_t>(vertices.size()));
  components.push_back(component);
}

absl::StatusOr<ViewCertificate> ViewCertificate::Create(const std::shared_ptr<Context>& context, const ViewCertificateOptions& options) {
  PALPATE_RETURN_IF_ERROR(
      CheckOption(options.margin_m >= 0 && std::isfinite(options.margin_m), "margin_m", options.margin_m, "at least 0"));
  PALPATE_RETURN_IF_ERROR(
      CheckOption(options.least_share > 0 && options.least_share <= 1, "least_share", options.least_share, "in (0, 1]"));
  PALPATE_RETURN_IF_ERROR(CheckOption(options.max_rounds <= 16, "max_rounds", options.max_rounds, "in [0, 16]"));
  PALPATE_RETURN_IF_ERROR(CheckOption(options.max_rest_runs <= 1024, "max_rest_runs", options.max_rest_runs, "in [0, 1024]"));
  ViewCertificate certificate;
  certificate.context_ = context;
  certificate.options_ = options;
  certificate.local_size_ = context->device().is_gpu ? 64 : 1;
  certificate.blocks_a_chunk_ = context->device().is_gpu ? 1 : 8;
  PALPATE_ASSIGN_OR_RETURN(certificate.classify_kernel_, context->CreateKernel(kernels::view_certificate, "view_classify"));
  PALPATE_ASSIGN_OR_RETURN(certificate.moments_kernel_, context->CreateKernel(kernels::view_certificate, "view_moments"));
  PALPATE_ASSIGN_OR_RETURN(certificate.copy_kernel_, context->CreateKernel(kernels::view_certificate, "view_copy"));
  PALPATE_ASSIGN_OR_RETURN(certificate.caps_kernel_, context->CreateKernel(kernels::view_certificate, "view_caps"));
  return certificate;
}

absl::Status ViewCertificate::SetSurface(Queue& queue, const SurfaceTopology& topology) {
  has_surface_ = false;
  const auto count = static_cast<uint32_t>(topology.triangles.size());
  vertex_count_ = topology.vertex_count;
  triangles_.resize(count);
  for (uint32_t t = 0; t < count; ++t) triangles_[t] = {topology.triangles[t].x, topology.triangles[t].y, topology.triangles[t].z};
  vertex_triangle_begin_ = topology.vertex_triangle_begin;
  vertex_triangles_ = topology.vertex_triangles;
  const auto corner_before = [&](uint32_t t, uint32_t edge) -> uint32_t {  // the corner that the edge starts from
    const UInt4& e = topology.triangle_edges[t];
    return e.x == edge ? 0 : e.y == edge ? 1 : 2;
  };

  // Pieces that hang together by edges.
  neighbours_.assign(count, {kNone, kNone, kNone});
  std::vector<uint32_t> parents(count);
  std::iota(parents.begin(), parents.end(), 0U);
  std::vector<bool> is_unfit(count, false);
  for (uint32_t e = 0; e < topology.edges.size(); ++e) {
    const uint32_t begin = topology.edge_triangle_begin[e], end = topology.edge_triangle_begin[e + 1];
    const uint32_t first = topology.edge_triangles[begin];
    for (uint32_t i = begin + 1; i < end; ++i) Root(parents, topology.edge_triangles[i]) = Root(parents, first);
    if (end - begin == 2) {
      const uint32_t second = topology.edge_triangles[begin + 1];
      const uint32_t k = corner_before(first, e), l = corner_before(second, e);
      neighbours_[first][k] = second;
      neighbours_[second][l] = first;
      if (triangles_[first][k] == triangles_[second][l]) is_unfit[first] = true;
    } else if (end - begin > 2) {
      is_unfit[first] = true;
    }
  }
  components_.clear();
  parts_.clear();
  component_of_.assign(count, kNone);
  std::vector<uint32_t> of_root(count, kNone);
  for (uint32_t t = 0; t < count; ++t) {
    if ((topology.groups[t] & PALPATE_GROUP_SELF) == 0) continue;
    const uint32_t root = Root(parents, t);
    if (of_root[root] == kNone) {
      of_root[root] = static_cast<uint32_t>(components_.size());
      components_.push_back({.body = topology.groups[t] & PALPATE_GROUP_MASK});
      parts_.emplace_back();
    }
    const uint32_t component = of_root[root];
    component_of_[t] = component;
    parts_[component].triangles.push_back(t);
    if (is_unfit[t]) components_[component].is_fit = false;
  }

  // Blocks of 16, and boundary loops.
  std::vector<uint32_t> ids;
  slots_.assign(count, kNone);
  marks_.assign(count, 0);
  for (uint32_t component = 0; component < components_.size(); ++component) {
    Part& part = parts_[component];
    components_[component].triangle_count = static_cast<uint32_t>(part.triangles.size());
    part.first_block = static_cast<uint32_t>(ids.size() / (3 * kWidth));
    for (size_t i = 0; i < part.triangles.size(); i += kWidth) {
      const size_t at = ids.size();
      ids.resize(at + 3 * kWidth, kNone);
      for (size_t lane = 0; lane < kWidth && i + lane < part.triangles.size(); ++lane) {
        const uint32_t t = part.triangles[i + lane];
        slots_[t] = static_cast<uint32_t>(at / 3 + lane);
        for (size_t c = 0; c < 3; ++c) ids[at + c * kWidth + lane] = triangles_[t][c];
      }
    }
    part.last_block = static_cast<uint32_t>(ids.size() / (3 * kWidth));
    if (!components_[component].is_fit) continue;
    for (const uint32_t t : part.triangles) marks_[t] = 1;
    part.holes = LoopsOf(part.triangles, 1);
    for (const uint32_t t : part.triangles) marks_[t] = 0;
    components_[component].hole_count = static_cast<uint32_t>(part.holes.size());
  }
  labels_.assign(count, 0);
  before_ = labels_;
  ++labels_version_;
  codes_.assign(ids.size() / 3, 0);
  chunked_.clear();
  chunks_.count = 0;
  PALPATE_ASSIGN_OR_RETURN(ids_, CreateBufferFrom<uint32_t>(queue, ids, "view corners"));
  PALPATE_ASSIGN_OR_RETURN(device_codes_, DeviceBuffer<uint32_t>::Create(context_, codes_.size(), "view codes"));
  PALPATE_ASSIGN_OR_RETURN(primitives_, DeviceBuffer<ViewPrimitive>::Create(context_, components_.size(), "view primitives"));
  PALPATE_ASSIGN_OR_RETURN(wanted_m_, DeviceBuffer<float>::Create(context_, components_.size(), "view heights"));
  PALPATE_ASSIGN_OR_RETURN(counts_, DeviceBuffer<ViewCounts>::Create(context_, components_.size(), "view counts"));
  PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  has_surface_ = true;
  return absl::OkStatus();
}

std::vector<std::vector<uint32_t>> ViewCertificate::LoopsOf(std::span<const uint32_t> triangles, uint32_t kept) const {
  // A half-edge of a kept triangle is at the boundary if no kept one lies across it.
  const auto is_boundary = [&](uint32_t t, uint32_t k) { return neighbours_[t][k] == kNone || marks_[neighbours_[t][k]] != kept; };
  std::vector<std::vector<uint32_t>> loops;
  std::vector<uint32_t> done;  // half-edges, sorted when looked up
  for (const uint32_t t : triangles) {
    if (marks_[t] != kept) continue;
    for (uint32_t k = 0; k < 3; ++k) {
      if (is_boundary(t, k)) done.push_back(3 * t + k);
    }
  }
  std::sort(done.begin(), done.end());
  std::vector<bool> is_done(done.size(), false);
  for (size_t i = 0; i < done.size(); ++i) {
    if (is_done[i]) continue;
    std::vector<uint32_t>& loop = loops.emplace_back();
    uint32_t half_edge = done[i];
    for (;;) {
      const auto at = static_cast<size_t>(std::lower_bound(done.begin(), done.end(), half_edge) - done.begin());
      if (is_done[at]) break;
      is_done[at] = true;
      uint32_t t = half_edge / 3, k = half_edge % 3;
      loop.push_back(triangles_[t][k]);
      // Around the vertex where it ends, through kept triangles, to the next boundary.
      k = (k + 1) % 3;
      while (!is_boundary(t, k)) {
        const uint32_t across = neighbours_[t][k];
        const uint32_t vertex = triangles_[t][k];
        // The shared edge ends at the vertex there; the one after it starts from it.
        k = triangles_[across][0] == vertex ? 0 : triangles_[across][1] == vertex ? 1 : 2;
        t = across;
      }
      half_edge = 3 * t + k;
    }
  }
  return loops;
}

absl::Status ViewCertificate::UploadChunks(Queue& queue, std::span<const uint32_t> components) {
  if (chunks_.count != 0 && std::equal(chunked_.begin(), chunked_.end(), components.begin(), components.end())) return absl::OkStatus();
  chunked_.assign(components.begin(), components.end());
  chunk_list_.clear();
  for (const uint32_t component : components) {
    const Part& part = parts_[component];
    for (uint32_t block = part.first_block; block < part.last_block; block += blocks_a_chunk_) {
      chunk_list_.push_back({component, block, std::min(block + blocks_a_chunk_, part.last_block), 0});
    }
  }
  chunks_.count = static_cast<uint32_t>(chunk_list_.size());
  PALPATE_RETURN_IF_ERROR(Grow(context_, chunks_.list, chunk_list_.size(), "view chunks"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, moments_, chunk_list_.size(), "view moments"));
  return queue.Write(chunks_.list, chunk_list_);
}

void ViewCertificate::NextRay(uint32_t component) { parts_[component].ray = (parts_[component].ray + 1) % std::size(kRays); }

void ViewCertificate::Complete(uint32_t component, float reach_m) {
  ViewPrimitive& primitive = components_[component].primitive;
  primitive.ray = kRays[parts_[component].ray];
  const Vector axis = Of(primitive.axis);
  const double length = std::hypot(axis[0], axis[1], axis[2]);
  const bool is_segment = length > 0;
  primitive.axis.w = is_segment ? 1 : 0;
  if (is_segment) {
    // Away from the other end by far more than rounding.
    primitive.ray.x = static_cast<float>(0.5 * primitive.ray.x - axis[0] / length);
    primitive.ray.y = static_cast<float>(0.5 * primitive.ray.y - axis[1] / length);
    primitive.ray.z = static_cast<float>(0.5 * primitive.ray.z - axis[2] / length);
  }
  primitive.start.w = primitive.end.w = 0;
  if (options_.margin_m > 0) {
    // A segment gets a sine that no corner has.
    primitive.end.w = reach_m;
    primitive.start.w = is_segment || !(reach_m > 0) ? 2 : static_cast<float>(1.000001 * options_.margin_m / reach_m);
  }
}

absl::Status ViewCertificate::WritePrimitives(Queue& queue) {
  std::vector<ViewPrimitive> primitives;
  primitives.reserve(components_.size());
  for (const ViewComponent& component : components_) primitives.push_back(component.primitive);
  return queue.Write(primitives_, primitives);
}

absl::Status ViewCertificate::MovePoints(Queue& queue, const Step& step, std::span<const uint32_t> components, bool centres,
                                         double wanted_share) {
  std::vector<float> wanted(components_.size(), 0);
  for (const uint32_t c : components) wanted[c] = static_cast<float>(wanted_share * parts_[c].height_m);
  PALPATE_RETURN_IF_ERROR(UploadChunks(queue, components));
  PALPATE_RETURN_IF_ERROR(WritePrimitives(queue));
  PALPATE_RETURN_IF_ERROR(queue.Write(wanted_m_, wanted));
  PALPATE_RETURN_IF_ERROR(queue.Launch(moments_kernel_, {chunks_.count, local_size_}, Arg("chunk_count", chunks_.count),
                                       Arg("chunks", chunks_.list), Arg("ids", ids_), Arg("starts", step.starts_m),
                                       Arg("ends", step.ends_m), Arg("primitives", primitives_), Arg("wanted_m", wanted_m_),
                                       Arg("moments", moments_)));
  std::vector<ViewMoments> chunks(chunks_.count);
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(moments_, chunks));
  size_t first = 0;
  for (const uint32_t c : components) {
    Vector pull = {}, diagonal = {}, mixed = {}, centre = {}, move = {};
    double height = 0, distance = 0, count = 0;
    for (; first < chunks.size() && chunk_list_[first].x == c; ++first) {
      const ViewMoments& m = chunks[first];
      const auto add = [](Vector& sum, const Float4& v) {
        sum[0] += v.x;
        sum[1] += v.y;
        sum[2] += v.z;
      };
      add(pull, m.pull);
      add(diagonal, m.diagonal);
      add(mixed, m.mixed);
      add(centre, m.centre);
      add(move, m.move);
      height += m.diagonal.w;
      distance += m.centre.w;
      count += m.mixed.w;
    }
    ViewPrimitive& primitive = components_[c].primitive;
    Vector at = Of(primitive.start);
    const Vector step_m = centres ? centre : SolveSquares(diagonal, mixed, {-pull[0], -pull[1], -pull[2]});
    for (size_t k = 0; k < 3; ++k) at[k] += centres ? step_m[k] / count : step_m[k];
    // The mean of a flat surface lies in it.
    parts_[c].height_m = std::max(height / (2 * count), kFlatShare * distance / count);
    primitive.start = {static_cast<float>(at[0]), static_cast<float>(at[1]), static_cast<float>(at[2]), 0};
    primitive.end = {static_cast<float>(at[0] + move[0] / count), static_cast<float>(at[1] + move[1] / count),
                     static_cast<float>(at[2] + move[2] / count), 0};
    primitive.axis = {};
    Complete(c, static_cast<float>(kReachShare * parts_[c].height_m));
  }
  return absl::OkStatus();
}

absl::Status ViewCertificate::Choose(Queue& queue, const Step& step, std::span<const uint32_t> components, bool is_new) {
  if (components.empty()) return absl::OkStatus();
  if (is_new) {
    for (const uint32_t c : components) components_[c].primitive = {};
    PALPATE_RETURN_IF_ERROR(MovePoints(queue, step, components, true, 0));
    PALPATE_RETURN_IF_ERROR(MovePoints(queue, step, components, false, 0));  // for the mean height
  }
  for (const double share : is_new ? std::span<const double>(kWantedShares) : std::span<const double>(kRefiningShares)) {
    PALPATE_RETURN_IF_ERROR(MovePoints(queue, step, components, false, share));
  }
  for (const uint32_t c : components) parts_[c].has_primitive = true;
  return absl::OkStatus();
}

absl::Status ViewCertificate::EnqueueCaps(Queue& queue, const Step& step, const Holes& holes, std::vector<ViewCounts>* counts) {
  counts->resize(holes.count());
  if (holes.count() == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Grow(context_, hole_begins_, holes.begins.size(), "view hole begins"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, hole_vertices_, holes.vertices.size(), "view hole vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, hole_components_, holes.count(), "view hole components"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, device_hole_counts_, holes.count(), "view hole counts"));
  PALPATE_RETURN_IF_ERROR(queue.Write(hole_begins_, holes.begins));
  PALPATE_RETURN_IF_ERROR(queue.Write(hole_vertices_, holes.vertices));
  PALPATE_RETURN_IF_ERROR(queue.Write(hole_components_, holes.components));
  PALPATE_RETURN_IF_ERROR(queue.Launch(caps_kernel_, {holes.count(), local_size_}, Arg("hole_count", holes.count()),
                                       Arg("from_corner", uint32_t{options_.caps_from_corner}), Arg("begins", hole_begins_),
                                       Arg("vertices", hole_vertices_), Arg("components", hole_components_), Arg("starts", step.starts_m),
                                       Arg("ends", step.ends_m), Arg("primitives", primitives_), Arg("counts", device_hole_counts_)));
  return queue.EnqueueRead(device_hole_counts_, *counts);
}

absl::Status ViewCertificate::Classify(Queue& queue, const Step& step, std::span<const uint32_t> components) {
  PALPATE_RETURN_IF_ERROR(UploadChunks(queue, components));
  PALPATE_RETURN_IF_ERROR(WritePrimitives(queue));
  PALPATE_RETURN_IF_ERROR(queue.Zero(counts_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(classify_kernel_, {chunks_.count, local_size_}, Arg("chunk_count", chunks_.count),
                                       Arg("chunks", chunks_.list), Arg("ids", ids_), Arg("starts", step.starts_m),
                                       Arg("ends", step.ends_m), Arg("primitives", primitives_), Arg("codes", device_codes_),
                                       Arg("counts", counts_)));
  Holes holes;
  std::vector<ViewCounts> hole_counts;
  for (const uint32_t c : components) {
    for (const std::vector<uint32_t>& hole : parts_[c].holes) holes.Add(c, hole);
  }
  PALPATE_RETURN_IF_ERROR(EnqueueCaps(queue, step, holes, &hole_counts));
  std::vector<ViewCounts> counts(components_.size());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counts_, counts));
  for (const uint32_t c : components) {
    components_[c].counts = counts[c];
    parts_[c].caps = {};
  }
  for (uint32_t h = 0; h < holes.count(); ++h) {
    ViewCounts& caps = parts_[holes.components[h]].caps;
    caps.unsure += hole_counts[h].unsure;
    caps.ray_hits += hole_counts[h].ray_hits;
    caps.ray_unsure += hole_counts[h].ray_unsure;
  }
  has_codes_ = false;
  return absl::OkStatus();
}

bool ViewCertificate::IsWhole(uint32_t component) const {
  const ViewCounts& counts = components_[component].counts;
  const ViewCounts& caps = parts_[component].caps;
  return counts.unsure == 0 && counts.negative == 0 && caps.unsure == 0 && counts.ray_hits + caps.ray_hits == 1 &&
         counts.ray_unsure + caps.ray_unsure == 0;
}

uint32_t ViewCertificate::KeepLargest(std::span<const uint32_t> triangles) {
  // Pieces of what is marked 1; the largest stays 1, the first of equals, the others become 0.
  uint32_t best = kNone, best_count = 0, next = 2;
  std::vector<uint32_t> open;
  for (const uint32_t seed : triangles) {
    if (marks_[seed] != 1) continue;
    const uint32_t piece = next++;
    uint32_t count = 0;
    marks_[seed] = piece;
    open.push_back(seed);
    while (!open.empty()) {
      const uint32_t t = open.back();
      open.pop_back();
      ++count;
      for (const uint32_t n : neighbours_[t]) {
        if (n == kNone || marks_[n] != 1) continue;
        marks_[n] = piece;
        open.push_back(n);
      }
    }
    if (count > best_count) {
      best = piece;
      best_count = count;
    }
  }
  for (const uint32_t t : triangles) marks_[t] = marks_[t] == best && best_count > 0 ? 1 : 0;
  return best_count;
}

void ViewCertificate::Widen(std::span<const uint32_t> triangles, uint32_t rings) {
  // marks: 1 kept; 0 not kept; 2 not kept, and the seed of rings.
  std::vector<uint32_t> front, next;
  for (const uint32_t t : triangles) {
    if (marks_[t] == 2) front.push_back(t);
  }
  for (uint32_t ring = 0; ring < rings; ++ring) {
    next.clear();
    for (const uint32_t t : front) {
      for (const uint32_t v : triangles_[t]) {
        for (uint32_t i = vertex_triangle_begin_[v]; i < vertex_triangle_begin_[v + 1]; ++i) {
          const uint32_t n = vertex_triangles_[i];
          if (marks_[n] != 1 || component_of_[n] != component_of_[t]) continue;
          marks_[n] = 2;
          next.push_back(n);
        }
      }
    }
    front.swap(next);
  }
  for (const uint32_t t : triangles) {
    if (marks_[t] == 2) marks_[t] = 0;
  }
}

absl::Status ViewCertificate::CertifyPart(Queue& queue, const Step& step, uint32_t component) {
  const Part& part = parts_[component];
  const auto least = static_cast<uint32_t>(std::ceil(options_.least_share * components_[component].triangle_count));
  const ViewCounts& counts = components_[component].counts;
  if (counts.unsure + counts.negative + least > components_[component].triangle_count) return absl::OkStatus();
  if (!has_codes_) {
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(device_codes_, codes_));
    has_codes_ = true;
  }
  for (const uint32_t t : part.triangles) {
    marks_[t] = (codes_[slots_[t]] & PALPATE_VIEW_CLASS_MASK) == PALPATE_VIEW_POSITIVE ? 1 : 0;
  }
  std::vector<ViewCounts> found;
  for (uint32_t round = 0; round <= options_.max_rounds; ++round) {
    const uint32_t kept = KeepLargest(part.triangles);
    if (kept < least) break;
    Holes holes;
    const std::vector<std::vector<uint32_t>> loops = LoopsOf(part.triangles, 1);
    for (const std::vector<uint32_t>& loop : loops) holes.Add(component, loop);
    PALPATE_RETURN_IF_ERROR(EnqueueCaps(queue, step, holes, &found));
    PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
    uint32_t hits = 0, unsure = 0, failed = 0;
    for (uint32_t h = 0; h < holes.count(); ++h) {
      hits += found[h].ray_hits;
      unsure += found[h].ray_unsure;
      if (found[h].unsure == 0) continue;
      ++failed;
      // What lies around the hole goes too.
      for (const uint32_t v : loops[h]) {
        for (uint32_t i = vertex_triangle_begin_[v]; i < vertex_triangle_begin_[v + 1]; ++i) {
          const uint32_t t = vertex_triangles_[i];
          if (component_of_[t] == component && marks_[t] == 1) marks_[t] = 2;
        }
      }
    }
    if (failed == 0) {
      for (const uint32_t t : part.triangles) {
        if (marks_[t] != 1) continue;
        const uint32_t code = codes_[slots_[t]];
        hits += (code & PALPATE_VIEW_RAY_HIT) != 0 ? 1 : 0;
        unsure += (code & PALPATE_VIEW_RAY_UNSURE) != 0 ? 1 : 0;
      }
      if (unsure != 0) NextRay(component);
      if (hits == 1 && unsure == 0) {
        for (const uint32_t t : part.triangles) {
          if (marks_[t] == 1) labels_[t] = component + 1;
        }
        components_[component].certified = kept;
      }
      break;
    }
    Widen(part.triangles, 1U << round);
  }
  for (const uint32_t t : part.triangles) marks_[t] = 0;
  return absl::OkStatus();
}

absl::Status ViewCertificate::BeginRun(BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  before_.swap(labels_);
  labels_.assign(before_.size(), 0);
  for (ViewComponent& component : components_) {
    component.certified = 0;
    component.was_seen = false;
    component.counts = {};
  }
  if (!has_surface_) return absl::FailedPreconditionError("view certificate: SetSurface comes before Run");
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ViewCertificate", "starts", starts_m.count, vertex_count_));
  return CheckCapacity("ViewCertificate", "ends", ends_m.count, vertex_count_);
}

void ViewCertificate::SetLabels() {
  for (uint32_t c = 0; c < components_.size(); ++c) {
    if (!components_[c].was_seen || !IsWhole(c)) continue;
    for (const uint32_t t : parts_[c].triangles) labels_[t] = c + 1;
    components_[c].certified = components_[c].triangle_count;
  }
}

absl::Status ViewCertificate::Run(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  const absl::Status status = Look(queue, starts_m, ends_m);
  return EndRun(status);
}

absl::Status ViewCertificate::EndRun(const absl::Status& status) {
  if (!status.ok()) {
    labels_.assign(labels_.size(), 0);
    for (ViewComponent& component : components_) component.certified = 0;
  }
  if (labels_ != before_) ++labels_version_;
  return status;
}

absl::Status ViewCertificate::Look(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m) {
  PALPATE_RETURN_IF_ERROR(BeginRun(starts_m, ends_m));
  const Step step = {starts_m, ends_m};
  std::vector<uint32_t> seen, fresh;
  for (uint32_t c = 0; c < components_.size(); ++c) {
    if (!components_[c].is_fit) continue;
    Part& part = parts_[c];
    if (part.rest > 0) {
      --part.rest;
      continue;
    }
    components_[c].was_seen = true;
    seen.push_back(c);
    ViewPrimitive& primitive = components_[c].primitive;
    if (!part.has_primitive) {
      fresh.push_back(c);
    } else {
      // On with the motion of the run before.
      const Float4 at = primitive.end;
      primitive.end.x += at.x - primitive.start.x;
      primitive.end.y += at.y - primitive.start.y;
      primitive.end.z += at.z - primitive.start.z;
      primitive.start.x = at.x;
      primitive.start.y = at.y;
      primitive.start.z = at.z;
      Complete(c, static_cast<float>(kReachShare * part.height_m));
    }
  }
  if (seen.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Choose(queue, step, fresh, true));
  PALPATE_RETURN_IF_ERROR(Classify(queue, step, seen));

  PALPATE_RETURN_IF_ERROR(Improve(queue, step, seen, fresh));
  std::vector<uint32_t> left;
  for (const uint32_t c : seen) {
    if (IsWhole(c)) continue;
    PALPATE_RETURN_IF_ERROR(CertifyPart(queue, step, c));
    if (components_[c].certified == 0 && components_[c].primitive.axis.w == 0) left.push_back(c);
  }
  if (!left.empty() && options_.uses_segments && options_.margin_m == 0) {
    PALPATE_RETURN_IF_ERROR(ChooseSegments(queue, step, left));
    for (const uint32_t c : left) {
      if (!IsWhole(c)) PALPATE_RETURN_IF_ERROR(CertifyPart(queue, step, c));
    }
  }
  SetLabels();
  for (const uint32_t c : seen) {
    Part& part = parts_[c];
    if (components_[c].certified > 0) {
      part.next_rest = 1;
      continue;
    }
    part.rest = std::min(part.next_rest, options_.max_rest_runs);
    part.next_rest = std::min(2 * part.next_rest, std::max(options_.max_rest_runs, 1U));
    part.has_primitive = false;
  }
  return absl::OkStatus();
}

absl::Status ViewCertificate::Improve(Queue& queue, const Step& step, std::span<const uint32_t> seen, std::span<const uint32_t> fresh) {
  const auto wrong = [&](uint32_t c) { return components_[c].counts.unsure + components_[c].counts.negative; };
  for (const uint32_t c : fresh) parts_[c].usual_wrong = wrong(c);
  for (const bool is_new : {false, true}) {
    std::vector<uint32_t> again, moved;
    for (const uint32_t c : seen) {
      if (IsWhole(c)) continue;
      Part& part = parts_[c];
      // Folds stay, whatever the point; only when there is more of what is not positive than usual, it is looked for again.
      const bool is_worse = wrong(c) > part.usual_wrong + part.usual_wrong / 4 + 8 || (wrong(c) > 0 && part.usual_wrong == 0);
      const bool is_point = components_[c].primitive.axis.w == 0;
      const bool is_hopeless = 4 * wrong(c) > components_[c].triangle_count;
      const bool is_fresh = std::find(fresh.begin(), fresh.end(), c) != fresh.end();
      if (is_point && !is_fresh && is_worse && (!is_new || is_hopeless)) moved.push_back(c);
      if (components_[c].counts.ray_unsure != 0) {
        NextRay(c);
        Complete(c, components_[c].primitive.end.w);
        again.push_back(c);
      } else if (!moved.empty() && moved.back() == c) {
        again.push_back(c);
      }
    }
    if (again.empty()) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(Choose(queue, step, moved, is_new));
    PALPATE_RETURN_IF_ERROR(Classify(queue, step, again));
    for (const uint32_t c : moved) parts_[c].usual_wrong = wrong(c);
  }
  return absl::OkStatus();
}

absl::Status ViewCertificate::RunFrom(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                                      std::span<const ViewPrimitive> primitives) {
  return EndRun(LookFrom(queue, starts_m, ends_m, primitives));
}

absl::Status ViewCertificate::LookFrom(Queue& queue, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                                       std::span<const ViewPrimitive> primitives) {
  PALPATE_RETURN_IF_ERROR(BeginRun(starts_m, ends_m));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ViewCertificate", "primitives", primitives.size(), components_.size()));
  std::vector<uint32_t> seen;
  for (uint32_t c = 0; c < components_.size(); ++c) {
    if (!components_[c].is_fit) continue;
    components_[c].was_seen = true;
    components_[c].primitive = primitives[c];
    Complete(c, primitives[c].end.w);
    parts_[c].has_primitive = false;
    seen.push_back(c);
  }
  if (seen.empty()) return absl::OkStatus();
  const Step step = {starts_m, ends_m};
  for (size_t ray = 0; ray < std::size(kRays); ++ray) {
    PALPATE_RETURN_IF_ERROR(Classify(queue, step, seen));
    bool is_sure = true;
    for (const uint32_t c : seen) {
      if (components_[c].counts.unsure + components_[c].counts.negative != 0 || components_[c].counts.ray_unsure == 0) continue;
      is_sure = false;
      NextRay(c);
      Complete(c, primitives[c].end.w);
    }
    if (is_sure) break;
  }
  SetLabels();
  for (const uint32_t c : seen) {
    if (components_[c].certified == 0) PALPATE_RETURN_IF_ERROR(CertifyPart(queue, step, c));
  }
  return absl::OkStatus();
}

absl::Status ViewCertificate::ChooseSegments(Queue& queue, const Step& step, std::span<const uint32_t> components) {
  std::vector<Float4> positions(vertex_count_);
  PALPATE_RETURN_IF_ERROR(ReadPositions(queue, step.starts_m, positions));
  std::vector<ViewPrimitive> axes;
  for (const uint32_t c : components) axes.push_back(LongAxis(c, positions));
  std::vector<ViewPrimitive> best(components.size());
  std::vector<uint32_t> least(components.size(), kNone);
  std::vector<uint32_t> tried(components.begin(), components.end());
  for (const double share : kSegmentShares) {
    for (size_t i = 0; i < components.size(); ++i) {
      ViewPrimitive& primitive = components_[components[i]].primitive;
      const Vector from = Of(axes[i].start), axis = Of(axes[i].axis);
      const Vector move = {double{primitive.end.x} - primitive.start.x, double{primitive.end.y} - primitive.start.y,
                           double{primitive.end.z} - primitive.start.z};
      const auto point = [&](double at, double of_move) {
        return Point4(from[0] + at * axis[0] + of_move * move[0], from[1] + at * axis[1] + of_move * move[1],
                      from[2] + at * axis[2] + of_move * move[2]);
      };
      primitive.start = point(0.5 - 0.5 * share, 0);
      primitive.end = point(0.5 - 0.5 * share, 1);
      primitive.axis = Point4(share * axis[0], share * axis[1], share * axis[2]);
      Complete(components[i], 0);
    }
    PALPATE_RETURN_IF_ERROR(Classify(queue, step, tried));
    for (size_t i = 0; i < components.size(); ++i) {
      const uint32_t c = components[i];
      const uint32_t wrong = components_[c].counts.unsure + components_[c].counts.negative + parts_[c].caps.unsure;
      if (wrong >= least[i]) continue;
      least[i] = wrong;
      best[i] = components_[c].primitive;
    }
  }
  for (size_t i = 0; i < components.size(); ++i) {
    components_[components[i]].primitive = best[i];
    parts_[components[i]].has_primitive = true;
    parts_[components[i]].usual_wrong = least[i];
  }
  return Classify(queue, step, tried);
}

absl::Status ViewCertificate::ReadPositions(Queue& queue, BufferView<Float4> positions_m, std::span<Float4> target) {
  // A view has no buffer that a queue would read.
  PALPATE_RETURN_IF_ERROR(Grow(context_, positions_, vertex_count_, "view positions"));
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(copy_kernel_, {vertex_count_, 0}, Arg("count", vertex_count_), Arg("from", positions_m), Arg("to", positions_)));
  return queue.ReadBlocking(positions_, target);
}

ViewPrimitive ViewCertificate::LongAxis(uint32_t component, std::span<const Float4> positions) const {
  const std::vector<uint32_t>& triangles = parts_[component].triangles;
  const auto corners = [&](const auto& take) {
    for (const uint32_t t : triangles) {
      for (const uint32_t v : triangles_[t]) take(Of(positions[v]));
    }
  };
  Vector mean = {};
  const double share = 1.0 / (3.0 * static_cast<double>(triangles.size()));
  corners([&](const Vector& p) {
    for (size_t k = 0; k < 3; ++k) mean[k] += share * p[k];
  });
  std::array<Vector, 3> spread = {};
  corners([&](const Vector& p) {
    for (size_t k = 0; k < 3; ++k) {
      for (size_t l = 0; l < 3; ++l) spread[k][l] += share * (p[k] - mean[k]) * (p[l] - mean[l]);
    }
  });
  // Powers of the covariance turn any vector into its longest axis; that of the largest column is a good one to begin with.
  size_t first = 0;
  for (size_t k = 1; k < 3; ++k) first = spread[k][k] > spread[first][first] ? k : first;
  Vector axis = spread[first];
  for (int i = 0; i < 100; ++i) {
    Vector next = {};
    for (size_t k = 0; k < 3; ++k) next[k] = spread[k][0] * axis[0] + spread[k][1] * axis[1] + spread[k][2] * axis[2];
    const double length = std::hypot(next[0], next[1], next[2]);
    if (!(length > 0) || !std::isfinite(length)) return {};
    for (size_t k = 0; k < 3; ++k) axis[k] = next[k] / length;
  }
  double least = std::numeric_limits<double>::infinity(), most = -least;
  corners([&](const Vector& p) {
    const double along = axis[0] * (p[0] - mean[0]) + axis[1] * (p[1] - mean[1]) + axis[2] * (p[2] - mean[2]);
    least = std::min(least, along);
    most = std::max(most, along);
  });
  ViewPrimitive primitive = {};
  primitive.start = Point4(mean[0] + least * axis[0], mean[1] + least * axis[1], mean[2] + least * axis[2]);
  primitive.axis = Point4((most - least) * axis[0], (most - least) * axis[1], (most - least) * axis[2]);
  return primitive;
}

uint32_t ViewCertificate::certified_count() const {
  uint32_t count = 0;
  for (const ViewComponent& component : components_) count += component.certified;
  return count;
}

bool ViewCertificate::IsBodyCertified(uint32_t body) const {
  uint32_t whole = 0, all = 0;
  for (const ViewComponent& component : components_) {
    if (component.body != body) continue;
    ++all;
    whole += component.certified == component.triangle_count ? 1 : 0;
  }
  return all == 1 && whole == 1;
}

absl::StatusOr<std::vector<uint32_t>> ViewCertificate::Codes(Queue& queue) const {
  std::vector<uint32_t> slots(codes_.size());
  if (!slots.empty()) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(device_codes_, slots));
  std::vector<uint32_t> codes(triangles_.size(), 0);
  for (size_t t = 0; t < codes.size(); ++t) {
    if (component_of_[t] != kNone && components_[component_of_[t]].was_seen) codes[t] = slots[slots_[t]];
  }
  return codes;
}

}  // namespace palpate::gpu
