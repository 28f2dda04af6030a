// Files of what a scene shows now. The rest of Scene is in scene.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/core/scene.h"
#include "sim/export/frame_export.h"
#include "sim/mesh/mesh_io.h"

namespace palpate::server {
namespace {

bool IsVolume(v1::ExportFormat format) {
  return format == v1::EXPORT_FORMAT_VTK || format == v1::EXPORT_FORMAT_MSH || format == v1::EXPORT_FORMAT_VTU;
}

std::vector<Eigen::Vector3d> PointsOf(const std::vector<float>& coordinates_m) {
  std::vector<Eigen::Vector3d> points;
  points.reserve(coordinates_m.size() / 3);
  for (size_t i = 0; i < coordinates_m.size(); i += 3) points.emplace_back(coordinates_m[i], coordinates_m[i + 1], coordinates_m[i + 2]);
  return points;
}

absl::StatusOr<std::string> FormatExport(const SceneExport& copy) {
  const sim::BodyArrays& arrays = *copy.frame.topology->bodies[copy.body];
  const sim::BodyExtras& extras = copy.extras[copy.body];
  sim::StringSink sink;
  switch (copy.format) {
    case v1::EXPORT_FORMAT_VTK:
    case v1::EXPORT_FORMAT_MSH: {
      const sim::VolumeLayout layout(arrays);
      const sim::TetMesh mesh{PointsOf(layout.Gather(copy.frame.volume_positions_m[copy.body])), layout.tets()};
      return copy.format == v1::EXPORT_FORMAT_VTK ? sim::FormatVtk(mesh) : sim::FormatMsh(mesh);
    }
    case v1::EXPORT_FORMAT_VTU:
      PALPATE_RETURN_IF_ERROR(sim::WriteBodyVtu(copy.frame, copy.body, extras, &sink));
      break;
    case v1::EXPORT_FORMAT_VTP:
      PALPATE_RETURN_IF_ERROR(sim::WriteBodyVtp(copy.frame, copy.body, extras, &sink));
      break;
    case v1::EXPORT_FORMAT_GLB:
      PALPATE_RETURN_IF_ERROR(copy.is_whole ? sim::WriteFrameGlb(copy.frame, copy.extras, &sink)
                                            : sim::WriteBodyGlb(copy.frame, copy.body, extras, &sink));
      break;
    default: {
      const sim::SurfaceLayout layout(arrays);
      return sim::FormatObj({PointsOf(layout.Gather(copy.frame.surface_positions_m[copy.body])), layout.triangles()});
    }
  }
  return std::move(sink).Take();
}

}  // namespace

void Scene::Export(const std::string& body, v1::ExportFormat format, Done<v1::ExportSceneResponse> done) {
  if (!v1::ExportFormat_IsValid(format)) {
    Answer<v1::ExportSceneResponse>(std::move(done),
                                    absl::InvalidArgumentError(absl::StrCat("format: ", static_cast<int>(format), " is outside [0, 6]")));
    return;
  }
  Enqueue(
      [this, body, format, done] {
        absl::StatusOr<SceneExport> copy = CopyForExport(body, format);
        if (!copy.ok()) return Answer<v1::ExportSceneResponse>(done, copy.status());
        // Only the copy is taken here; the file is made on the pool.
        pool_.Post([done, copy = *std::move(copy)] {
          absl::StatusOr<std::string> data = FormatExport(copy);
          if (!data.ok()) return done(data.status());
          v1::ExportSceneResponse response;
          response.set_step(copy.frame.step);
          response.set_data(*std::move(data));
          done(std::move(response));
        });
      },
      [this, done](const absl::Status& reason) { Answer<v1::ExportSceneResponse>(done, reason); });
}

absl::StatusOr<SceneExport> Scene::CopyForExport(const std::string& body, v1::ExportFormat format) {
  const std::vector<std::shared_ptr<const sim::BodyArrays>>& bodies = topology_->world->bodies;
  const auto found =
      body.empty() ? bodies.begin() : std::find_if(bodies.begin(), bodies.end(), [&body](const auto& b) { return b->name == body; });
  if (found == bodies.end()) return absl::NotFoundError(absl::StrCat("body: the scene has no body \"", body, "\""));
  SceneExport out;
  out.format = format;
  out.body = static_cast<size_t>(found - bodies.begin());
  out.is_whole = format == v1::EXPORT_FORMAT_GLB && body.empty();
  out.frame.step = frame_->step;
  out.frame.sim_time_s = frame_->sim_time_s;
  out.frame.topology = topology_->world;
  out.frame.surface_positions_m.resize(bodies.size());
  out.frame.volume_positions_m.resize(bodies.size());
  out.extras = sim::TextureExtras(world_->description(), *topology_->world);
  for (size_t b = 0; b < bodies.size(); ++b) {
    if (out.is_whole || b == out.body) out.frame.surface_positions_m[b] = frame_->surface_positions_m[b];
  }
  if (IsVolume(format)) {
    PALPATE_ASSIGN_OR_RETURN(out.frame.volume_positions_m[out.body], world_->ReadVolumePositions(out.body));
  }
  if (format == v1::EXPORT_FORMAT_VTU || format == v1::EXPORT_FORMAT_VTP) {
    sim::BodyExtras& extras = out.extras[out.body];
    extras.rest_positions_m = world_->RestPositions(out.body);
    extras.tet_zones = world_->TetZones(out.body);
    PALPATE_ASSIGN_OR_RETURN(extras.velocities_m_per_s, world_->ReadVolumeVelocities(out.body));
  }
  return out;
}

}  // namespace palpate::server
