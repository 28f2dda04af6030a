// Objects of NURBS as a file gives them: what passes the checks can be measured, asked and made into triangles.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "sim/nurbs/nurbs_object.h"
#include "sim/nurbs/nurbs_object_tessellation.h"

namespace {

using namespace palpate::sim;

void Expect(bool holds) {
  if (!holds) std::abort();
}

// Takes the input apart: small counts, and numbers that are small integers or any bits at all.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Byte() { return at_ < size_ ? data_[at_++] : 0; }
  bool has_more() const { return at_ < size_; }
  double Number() {
    const uint8_t kind = Byte();
    if (kind < 0xf0) return (kind - 100) / 16.0;
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | Byte();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  std::vector<double> Numbers(size_t count) {
    std::vector<double> out;
    for (size_t i = 0; i < count; ++i) out.push_back(Number());
    return out;
  }
  // Clamped, with steps that are mostly valid.
  std::vector<double> Knots(int degree) {
    if (Byte() == 0xff) return Numbers(Byte() % 16);
    std::vector<double> out(static_cast<size_t>(degree) + 1, 0.0);
    double t = 0;
    for (size_t inside = Byte() % 4; inside > 0; --inside) out.push_back(t += Byte() / 64.0);
    t += 1 + Byte() / 64.0;
    out.insert(out.end(), static_cast<size_t>(degree) + 1, t);
    return out;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

size_t CountOf(const std::vector<double>& knots, int degree) {
  return knots.size() > static_cast<size_t>(degree) + 1 ? knots.size() - static_cast<size_t>(degree) - 1 : 0;
}

NurbsTrimDescription TrimFrom(Source& source) {
  NurbsTrimDescription trim;
  const uint8_t kind = source.Byte();
  trim.curve.degree = 1 + kind % 4;
  trim.is_reversed = (kind & 16) != 0;
  trim.edge = (kind & 32) != 0 ? source.Byte() : 0;
  trim.curve.knots = source.Knots(trim.curve.degree);
  const size_t count = CountOf(trim.curve.knots, trim.curve.degree);
  for (size_t i = 0; i < count; ++i) trim.curve.control.emplace_back(source.Number(), source.Number());
  if ((kind & 64) != 0) trim.curve.weights = source.Numbers(count);
  return trim;
}

NurbsPatchDescription PatchFrom(Source& source) {
  NurbsPatchDescription patch;
  const uint8_t kind = source.Byte();
  patch.surface.degree_u = 1 + kind % 4;
  patch.surface.degree_v = 1 + kind / 4 % 4;
  patch.surface.knots_u = source.Knots(patch.surface.degree_u);
  patch.surface.knots_v = source.Knots(patch.surface.degree_v);
  const size_t count = CountOf(patch.surface.knots_u, patch.surface.degree_u) * CountOf(patch.surface.knots_v, patch.surface.degree_v);
  for (size_t i = 0; i < count; ++i) patch.surface.control_m.emplace_back(source.Number(), source.Number(), source.Number());
  if ((kind & 16) != 0) patch.surface.weights = source.Numbers(count);
  for (size_t loops = kind / 32 % 4; loops > 0; --loops) {
    std::vector<NurbsTrimDescription> loop;
    for (size_t curves = 1 + source.Byte() % 4; curves > 0; --curves) loop.push_back(TrimFrom(source));
    // Most loops shall close.
    if (source.Byte() < 0xc0) {
      for (size_t c = 0; c < loop.size(); ++c) {
        auto& here = loop[c].curve.control;
        auto& next = loop[(c + 1) % loop.size()].curve.control;
        if (here.empty() || next.empty()) continue;
        (loop[c].is_reversed ? here.front() : here.back()) = loop[(c + 1) % loop.size()].is_reversed ? next.back() : next.front();
      }
    }
    patch.loops.push_back(std::move(loop));
  }
  return patch;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Source source(data, size);
  NurbsObjectDescription description;
  for (int i = 0; i < 3 && source.has_more(); ++i) description.patches.push_back(PatchFrom(source));
  const auto object = NurbsObject::Create(description);
  if (!object.ok()) {
    Expect(!object.status().message().empty());
    return 0;
  }
  Expect(NurbsObject::Create(object->Describe()).ok());
  for (const NurbsPatch& patch : object->patches()) {
    const NurbsTrimRegion region(patch, 1e-3);
    (void)region.Contains({0.5, 0.5});
  }
  const bool is_closed = object->CheckClosed().ok();
  const double size_m = object->ControlBox_m().diagonal().norm();
  // Coarse: it is the ways of failing that are looked for.
  const auto mesh = TessellateNurbsObject(*object, size_m > 0 ? 0.3 * size_m : 1);
  if (!mesh.ok()) {
    Expect(!mesh.status().message().empty());
    return 0;
  }
  for (const auto& t : mesh->triangles) {
    for (const uint32_t v : t) Expect(v < mesh->vertices.size());
    Expect(t[0] != t[1] && t[1] != t[2] && t[2] != t[0]);
  }
  (void)is_closed;
  return 0;
}
