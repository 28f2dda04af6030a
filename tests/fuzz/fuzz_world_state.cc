// Checkpoints from anywhere: bytes as they are; as sections behind a head whose checksums are right; and as changes to the sections of a
// state that is right, which is made here and so is always of the present format. What is accepted is written back as the same bytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "sim/world/world_state.h"

namespace {

using palpate::sim::DecodeWorldState;
using palpate::sim::SurfaceSlot;

/// A tet with a tool and a marker, something in most lists of a frame.
palpate::sim::WorldState SoundState() {
  using namespace palpate::sim;
  auto body = std::make_shared<BodyArrays>();
  body->name = "tet";
  for (uint32_t v = 0; v < 4; ++v) body->surface_vertices.push_back(v);
  for (const auto& t : {std::array<uint32_t, 3>{0, 2, 1}, {0, 1, 3}, {1, 2, 3}, {2, 0, 3}}) {
    body->surface_triangles.push_back({SurfaceSlot{t[0]}, SurfaceSlot{t[1]}, SurfaceSlot{t[2]}});
  }
  body->triangle_zones.assign(4, {});
  body->vertex_slot_count = 4;
  body->tets = {{0, 1, 2, 3}};
  body->fixed_vertices = {1};
  body->surface_zones = {{.name = "surface", .color = {1, 0, 0}, .is_interior = false}};
  body->texture_coordinates.assign(4, {0.5F, 0.25F});
  auto topology = std::make_shared<WorldTopology>();
  topology->version = 2;
  topology->bodies = {body};
  topology->changes = {{.body = 0, .triangles = {1}, .tets = {0}, .fixed_changed = true, .texture_places = {}, .texture_vertices = {2}}};
  topology->follows = true;
  auto frame = std::make_shared<Frame>();
  frame->topology_version = 2;
  frame->topology = topology;
  frame->surface_positions_m = {std::vector<float>(12, 0.1F)};
  frame->kept_pressures_pa = {100.0};
  const Eigen::Vector3f up(0, 0, 1);
  frame->contacts = {{.tool_index = 0, .body_index = 0, .point_m = up, .normal = up, .separation_m = 0.1F, .force_n = up}};
  frame->surface_contacts.resize(1);
  FrameSurfaceContact& pair = frame->surface_contacts[0];
  pair.point_a_m = pair.point_b_m = pair.normal = pair.force_n = up;
  frame->tools.resize(1);
  frame->local_models.resize(1);
  frame->markers.resize(1);
  frame->joints.resize(1);
  frame->clips.resize(1);
  frame->stitches.resize(1);
  frame->elastic_energy_j = 0.5;
  WorldState state;
  state.topology = topology;
  state.frame = frame;
  return state;
}

/// Topology and frame of a state as bytes: what lies between the head and the two sections that follow them.
struct Sections {
  std::string bytes;
  size_t topology_size = 0;
};

Sections SoundSections() {
  const palpate::sim::WorldState state = SoundState();
  const std::string with_both = EncodeWorldState(state);
  const size_t head_size = palpate::sim::PackWorldState(state.info, {}).size();
  Sections out{with_both.substr(head_size), 0};
  // Only where the topology ends gives a state.
  for (; out.topology_size < out.bytes.size(); ++out.topology_size) {
    const std::string_view bytes = out.bytes;
    if (DecodeWorldState(palpate::sim::PackWorldState({}, {bytes.substr(0, out.topology_size), bytes.substr(out.topology_size), "", ""}))
            .ok())
      return out;
  }
  std::abort();
}

void Try(std::string_view topology, std::string_view frame) {
  const std::string packed = palpate::sim::PackWorldState({}, {topology, frame, "scene", "solver"});
  const auto state = DecodeWorldState(packed);
  if (state.ok() && palpate::sim::EncodeWorldState(**state) != packed) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Sections sound = SoundSections();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)DecodeWorldState(input);
  (void)palpate::sim::ReadWorldStateInfo(input);
  if (size < 2) return 0;
  // The first two bytes: how much of the rest is the topology.
  const std::string_view rest = input.substr(2);
  const size_t topology = (size_t{data[0]} | size_t{data[1]} << 8) % (rest.size() + 1);
  Try(rest.substr(0, topology), rest.substr(topology));
  // Triples: a place, and what becomes of its byte.
  std::string changed = sound.bytes;
  for (size_t i = 0; i + 2 < size; i += 3) {
    changed[(size_t{data[i]} | size_t{data[i + 1]} << 8) % changed.size()] ^= static_cast<char>(data[i + 2]);
  }
  Try(std::string_view(changed).substr(0, sound.topology_size), std::string_view(changed).substr(sound.topology_size));
  return 0;
}
