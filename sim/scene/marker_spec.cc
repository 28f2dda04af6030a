#include "sim/scene/marker_spec.h"

#include <unordered_set>

#include "sim/scene/markers.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {

void CheckMarkers(Checker& check, const std::string& path, const v1::BodySpec& body) {
  if (body.markers().empty()) return;
  const std::string markers_path = At(path, "markers");
  if (body.kind() == v1::BODY_KIND_RIGID || body.kind() == v1::BODY_KIND_STATIC) {
    check.Invalid(markers_path, "only a deformable body has markers");
  }
  check.Count(markers_path, body.markers_size(), 0, sim::kMaxMarkers);
  std::unordered_set<std::string> names;
  for (int i = 0; i < body.markers_size() && check.ok(); ++i) {
    const v1::MarkerSpec& marker = body.markers(i);
    const std::string marker_path = At(markers_path, i);
    check.RequiredName(At(marker_path, "name"), marker.name(), kMaxNameBytes);
    check.Unique(At(marker_path, "name"), marker.name(), names);
    check.RangeVec(At(marker_path, "position_m"), marker.position_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
  }
}

absl::Status BuildMarkers(const v1::BodySpec& body, const std::string& path, const MarkerMove& move, sim::BodyDescription* out) {
  for (const v1::MarkerSpec& spec : body.markers()) {
    out->markers.push_back({spec.name(), move.turn * (ToEigen(spec.position_m()) - move.from_m) + move.to_m});
  }
  const absl::Status placed = sim::PlaceMarkers(out);
  return placed.ok() ? placed : absl::Status(placed.code(), absl::StrCat(path, placed.message()));
}

std::vector<v1::MarkerInfo> EncodeMarkerInfos(const sim::SceneDescription& description) {
  std::vector<v1::MarkerInfo> out;
  for (const sim::BodyDescription& body : description.bodies) {
    for (const sim::MarkerDescription& marker : body.markers) {
      v1::MarkerInfo& info = out.emplace_back();
      info.set_name(marker.name);
      info.set_body(body.name);
    }
  }
  return out;
}

}  // namespace palpate::scene
