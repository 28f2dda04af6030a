#include "gpu/collision/view_rest.h"

#include <algorithm>
#include <utility>

#include "gpu/collision/box_hierarchy.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource view_rest;
}
namespace {

// Triangles that follow each other in number mostly lie side by side: runs of at most so many, that skip at most so many.
constexpr uint32_t kRunLength = 32;
constexpr uint32_t kRunGap = 16;
constexpr size_t kMaxRuns = 256;

// Begins of runs in the list of triangles without a label, one past the end last.
void FindRuns(std::span<const uint32_t> labels, std::vector<uint32_t>* list, std::vector<uint32_t>* begins) {
  for (uint32_t t = 0; t < labels.size(); ++t) {
    if (labels[t] != 0) continue;
    if (list->empty() || t - list->back() > kRunGap || list->size() - begins->back() >= kRunLength) {
      begins->push_back(static_cast<uint32_t>(list->size()));
    }
    list->push_back(t);
  }
  const size_t step = (begins->size() + kMaxRuns - 1) / kMaxRuns;
  if (step > 1) {
    for (size_t i = 0; i * step < begins->size(); ++i) (*begins)[i] = (*begins)[i * step];
    begins->resize((begins->size() + step - 1) / step);
  }
  begins->push_back(static_cast<uint32_t>(list->size()));
}

}  // namespace

absl::StatusOr<ViewRest> ViewRest::Create(const std::shared_ptr<Context>& context) {
  ViewRest rest;
  rest.context_ = context;
  PALPATE_ASSIGN_OR_RETURN(rest.scan_, ExclusiveScan::Create(context));
  constexpr std::pair<Kernel ViewRest::*, const char*> kKernels[] = {
      {&ViewRest::boxes_kernel_, "view_rest_boxes"},         {&ViewRest::select_kernel_, "view_rest_select"},
      {&ViewRest::vertices_kernel_, "view_rest_vertices"},   {&ViewRest::edges_kernel_, "view_rest_edges"},
      {&ViewRest::triangles_kernel_, "view_rest_triangles"}, {&ViewRest::hits_kernel_, "view_rest_hits"}};
  for (const auto& [kernel, name] : kKernels) {
    PALPATE_ASSIGN_OR_RETURN(rest.*kernel, context->CreateKernel(kernels::view_rest, name));
  }
  for (DeviceBuffer<uint32_t>& total : rest.totals_) {
    PALPATE_ASSIGN_OR_RETURN(total, DeviceBuffer<uint32_t>::Create(context, 1, "view rest total"));
  }
  rest.surface_ = std::make_shared<DeviceSurface>();
  rest.shared_ = rest.surface_;
  return rest;
}

absl::StatusOr<bool> ViewRest::Build(Queue& queue, const DeviceSurface& whole, std::span<const uint32_t> labels,
                                     const DeviceBuffer<uint32_t>& device_labels, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                                     float pad_m, double most_share) {
  std::vector<uint32_t> list, begins;
  FindRuns(labels, &list, &begins);
  const auto most = static_cast<uint32_t>(most_share * whole.triangle_count);
  if (list.size() > most) return false;
  const auto run_count = static_cast<uint32_t>(begins.size() - 1);
  const uint32_t node_count = (run_count + BoxHierarchy::kWidth - 1) / BoxHierarchy::kWidth;
  const uint32_t lane_count = node_count * BoxHierarchy::kWidth;
  PALPATE_RETURN_IF_ERROR(Grow(context_, begins_, begins.size(), "view rest runs"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, list_, list.size(), "view rest triangles"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, nodes_, size_t{lane_count} * 6, "view rest boxes"));
  PALPATE_RETURN_IF_ERROR(queue.Write(begins_, begins));
  PALPATE_RETURN_IF_ERROR(queue.Write(list_, list));
  PALPATE_RETURN_IF_ERROR(queue.Launch(boxes_kernel_, {lane_count, 0}, Arg("run_count", run_count), Arg("lane_count", lane_count),
                                       Arg("begins", begins_), Arg("list", list_), Arg("triangles", whole.triangles),
                                       Arg("starts", starts_m), Arg("ends", ends_m), Arg("pad_m", pad_m), Arg("nodes", nodes_)));
  constexpr SurfaceElement kKinds[] = {SurfaceElement::kVertex, SurfaceElement::kEdge, SurfaceElement::kTriangle};
  for (const SurfaceElement kind : kKinds) {
    Kept& kept = kept_[static_cast<size_t>(kind)];
    PALPATE_RETURN_IF_ERROR(Grow(context_, kept.keep, whole.CountOf(kind), "view rest marks"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, kept.places, whole.CountOf(kind), "view rest places"));
    if (kind != SurfaceElement::kTriangle) PALPATE_RETURN_IF_ERROR(queue.Fill(kept.keep, 0U, whole.CountOf(kind)));
  }
  Kept& vertices = kept_[static_cast<size_t>(SurfaceElement::kVertex)];
  Kept& edges = kept_[static_cast<size_t>(SurfaceElement::kEdge)];
  Kept& triangles = kept_[static_cast<size_t>(SurfaceElement::kTriangle)];
  PALPATE_RETURN_IF_ERROR(queue.Launch(select_kernel_, {whole.triangle_count, 0}, Arg("triangle_count", whole.triangle_count),
                                       Arg("node_count", node_count), Arg("labels", device_labels), Arg("triangles", whole.triangles),
                                       Arg("triangle_edges", whole.triangle_edges), Arg("starts", starts_m), Arg("ends", ends_m),
                                       Arg("nodes", nodes_), Arg("keep_triangles", triangles.keep), Arg("keep_vertices", vertices.keep),
                                       Arg("keep_edges", edges.keep)));
  std::array<uint32_t, kSurfaceElementCount> counts = {};
  for (const SurfaceElement kind : kKinds) {
    const auto k = static_cast<size_t>(kind);
    PALPATE_RETURN_IF_ERROR(scan_.Run(queue, kept_[k].keep, whole.CountOf(kind), kept_[k].places, totals_[k]));
    PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(totals_[k], std::span<uint32_t>(&counts[k], 1)));
  }
  PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  DeviceSurface& rest = *surface_;
  rest.vertex_count = counts[static_cast<size_t>(SurfaceElement::kVertex)];
  rest.edge_count = counts[static_cast<size_t>(SurfaceElement::kEdge)];
  rest.triangle_count = counts[static_cast<size_t>(SurfaceElement::kTriangle)];
  rest.body_count = whole.body_count;
  rest.largest_body = std::min(whole.largest_body, rest.triangle_count);
  rest.version = DeviceSurface::NewVersion();
  if (rest.triangle_count > most) return false;

  for (const SurfaceElement kind : kKinds) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, kept_[static_cast<size_t>(kind)].ids, rest.CountOf(kind), "view rest ids"));
  }
  PALPATE_RETURN_IF_ERROR(Grow(context_, starts_, rest.vertex_count, "view rest starts"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, ends_, rest.vertex_count, "view rest ends"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, rest.vertex_groups, rest.vertex_count, "view rest vertex groups"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, rest.edges, rest.edge_count, "view rest edges"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, rest.edge_groups, rest.edge_count, "view rest edge groups"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, rest.triangles, rest.triangle_count, "view rest corners"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, rest.groups, rest.triangle_count, "view rest groups"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(vertices_kernel_, {whole.vertex_count, 0}, Arg("count", whole.vertex_count),
                                       Arg("keep", vertices.keep), Arg("places", vertices.places), Arg("starts", starts_m),
                                       Arg("ends", ends_m), Arg("groups", whole.vertex_groups), Arg("rest_starts", starts_),
                                       Arg("rest_ends", ends_), Arg("rest_groups", rest.vertex_groups), Arg("ids", vertices.ids)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(edges_kernel_, {whole.edge_count, 0}, Arg("count", whole.edge_count), Arg("keep", edges.keep),
                                       Arg("places", edges.places), Arg("vertex_places", vertices.places), Arg("edges", whole.edges),
                                       Arg("groups", whole.edge_groups), Arg("rest_edges", rest.edges),
                                       Arg("rest_groups", rest.edge_groups), Arg("ids", edges.ids)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(triangles_kernel_, {whole.triangle_count, 0}, Arg("count", whole.triangle_count),
                                       Arg("keep", triangles.keep), Arg("places", triangles.places), Arg("vertex_places", vertices.places),
                                       Arg("triangles", whole.triangles), Arg("groups", whole.groups),
                                       Arg("rest_triangles", rest.triangles), Arg("rest_groups", rest.groups), Arg("ids", triangles.ids)));
  return true;
}

absl::Status ViewRest::NameHits(Queue& queue, BufferView<CcdHit> hits) {
  const auto count = static_cast<uint32_t>(hits.count);
  return queue.Launch(hits_kernel_, {count, 0}, Arg("count", count),
                      Arg("vertex_ids", kept_[static_cast<size_t>(SurfaceElement::kVertex)].ids),
                      Arg("edge_ids", kept_[static_cast<size_t>(SurfaceElement::kEdge)].ids),
                      Arg("triangle_ids", kept_[static_cast<size_t>(SurfaceElement::kTriangle)].ids), Arg("hits", hits));
}

}  // namespace palpate::gpu
