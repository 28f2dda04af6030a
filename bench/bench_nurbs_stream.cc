// What a frame of a watched scene costs for a body with an exact surface: its pose, beside the positions of triangles of the same accuracy.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "server/api/encode.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/nurbs/nurbs_revolution.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/nurbs_file.h"

namespace palpate::bench {
namespace {

struct Case {
  const char* name;
  std::vector<sim::NurbsSurface> surfaces;
};

/// Bytes of a body in a frame, and once of its surface in the keyframe.
absl::Status Measure(const Case& of, double tolerance_m, Report& report) {
  PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObject object, sim::NurbsObject::FromSurfaces(of.name, of.surfaces));
  PALPATE_ASSIGN_OR_RETURN(const auto shape, sim::MakeNurbsBodyShape(object, tolerance_m, 0, true, size_t{1} << 24));
  const std::string name = absl::StrFormat("%s/tolerance_%.0f_um", of.name, 1e6 * tolerance_m);
  std::vector<float> positions_m;
  for (const Eigen::Vector3d& p : shape->vertices) {
    for (int k = 0; k < 3; ++k) positions_m.push_back(static_cast<float>(p[k]));
  }
  report.Add(name, "triangles", static_cast<double>(shape->triangles.size()), "count");
  for (const bool is_short : {false, true}) {
    v1::Frame frame;
    server::EncodePositions(positions_m, is_short ? v1::POSITION_ENCODING_UINT16 : v1::POSITION_ENCODING_FLOAT32, *frame.add_bodies());
    report.Add(name, is_short ? "frame_triangles_uint16" : "frame_triangles_float32", static_cast<double>(frame.ByteSizeLong()), "bytes");
  }
  v1::Frame frame;
  server::EncodePose({{0.123, -0.045, 0.067}, Eigen::Quaterniond(0.5, 0.5, -0.5, 0.5)}, *frame.add_bodies()->mutable_pose());
  report.Add(name, "frame_nurbs", static_cast<double>(frame.ByteSizeLong()), "bytes");
  v1::BodyTopology triangles;
  triangles.set_vertex_count(static_cast<uint32_t>(shape->vertices.size()));
  for (const auto& t : shape->triangles) {
    for (const uint32_t v : t) triangles.add_triangles(v);
  }
  report.Add(name, "keyframe_triangles", static_cast<double>(triangles.ByteSizeLong()), "bytes");
  v1::BodyTopology exact;
  *exact.mutable_nurbs()->mutable_object() = scene::NurbsToProto(object.Describe());
  report.Add(name, "keyframe_nurbs", static_cast<double>(exact.ByteSizeLong()), "bytes");
  return absl::OkStatus();
}

absl::Status Run(Report& report) {
  const std::vector<Case> cases = {{"torus", sim::NurbsTorus(0.03, 0.01)}, {"vase", sim::NurbsVase(0.03, 0.1)}};
  for (const Case& of : cases) {
    for (const double tolerance_m : {1e-3, 2.5e-4, 1e-4}) {
      if (IsSelected(of.name)) PALPATE_RETURN_IF_ERROR(Measure(of, tolerance_m, report));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Bytes a frame of bodies with exact surfaces, beside those of triangles.");
  palpate::bench::Report report("nurbs_stream", "host");
  const absl::Status status = palpate::bench::Run(report);
  return report.Finish(status);
}
