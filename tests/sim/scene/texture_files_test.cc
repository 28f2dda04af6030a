// Pictures and atlases that scenes name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/mesh/generators.h"
#include "sim/mesh/mesh_io.h"
#include "sim/scene/image_file.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene::texture_files_test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string Big(uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}

uint32_t Crc(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320U : 0);
  }
  return ~crc;
}

std::string Chunk(const std::string& kind, const std::string& data) {
  return Big(static_cast<uint32_t>(data.size()), 4) + kind + data + Big(Crc(kind + data), 4);
}

std::string Png(uint32_t width, uint32_t height, const std::string& kind = std::string("\x08\x02\0\0\0", 5)) {
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", Big(width, 4) + Big(height, 4) + kind) + Chunk("tEXt", "a") + Chunk("IDAT", "pixels") +
         Chunk("IEND", "");
}

std::string Segment(int marker, const std::string& data) {
  return std::string("\xff") + static_cast<char>(marker) + Big(static_cast<uint32_t>(data.size() + 2), 2) + data;
}

std::string Jpeg(uint32_t width, uint32_t height) {
  return "\xff\xd8" + Segment(0xe0, "JFIF") + "\xff" + Segment(0xc4, "table") +
         Segment(0xc2, "\x08" + Big(height, 2) + Big(width, 2) + "\x03rest") + Segment(0xda, "scan") + "entropy\xff\xd9 and more";
}

TEST(ImageHeader, IsReadWithoutDecoding) {
  const absl::StatusOr<ImageHeader> png = ParseImageHeader(Png(640, 8192), "a.png");
  ASSERT_TRUE(png.ok()) << png.status();
  EXPECT_EQ(png->media_type, "image/png");
  EXPECT_EQ(png->width, 640U);
  EXPECT_EQ(png->height, 8192U);
  const absl::StatusOr<ImageHeader> jpeg = ParseImageHeader(Jpeg(17, 31), "a.jpg");
  ASSERT_TRUE(jpeg.ok()) << jpeg.status();
  EXPECT_EQ(jpeg->media_type, "image/jpeg");
  EXPECT_EQ(jpeg->width, 17U);
  EXPECT_EQ(jpeg->height, 31U);
}

TEST(ImageHeader, RefusesWithTheByte) {
  const auto refusal = [](const std::string& bytes) { return std::string(ParseImageHeader(bytes, "a.png").status().message()); };
  EXPECT_THAT(refusal("GIF89a"), HasSubstr("a.png, byte 0: neither a PNG nor a JPEG"));
  EXPECT_THAT(refusal(Png(0, 4)), HasSubstr("a.png, byte 16: 0 by 4 pixels; each side must be in [1, 8192]"));
  EXPECT_THAT(refusal(Png(4, 8193)), HasSubstr("4 by 8193 pixels"));
  EXPECT_THAT(refusal(Png(4, 4, std::string("\x04\x02\0\0\0", 5))), HasSubstr("byte 24: bit depth 4 with colour type 2"));
  std::string broken = Png(4, 4);
  broken[17] ^= 1;
  EXPECT_THAT(refusal(broken), HasSubstr("CRC"));
  EXPECT_THAT(refusal(Jpeg(0, 4)), HasSubstr("0 by 4 pixels"));
  EXPECT_THAT(refusal("\xff\xd8" + Segment(0xda, "scan") + "\xff\xd9"), HasSubstr("no frame header"));
  EXPECT_THAT(refusal("\xff\xd8" + Segment(0xe0, "JFIF") + "garbage"), HasSubstr("a marker of the JPEG is missing"));
  for (const std::string& whole : {Png(4, 4), Jpeg(4, 4).substr(0, Jpeg(4, 4).size() - 9)}) {
    for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(ParseImageHeader(whole.substr(0, size), "cut").ok()) << size;
  }
}

class TextureFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("palpate_textures_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "root" / "organs");
    Write("root/skin.png", Png(4, 4));
    Write("root/same.png", Png(4, 4));
    Write("root/organs/skin.jpg", Jpeg(8, 8));
    Write("outside.png", Png(4, 4));
    fs::create_symlink(folder_ / "outside.png", folder_ / "root" / "link.png");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& bytes) { std::ofstream(folder_ / name, std::ios::binary) << bytes; }

  static v1::SceneSpec Scene() {
    v1::SceneSpec spec;
    v1::BodySpec& body = *spec.add_bodies();
    v1::Vec3& size = *body.mutable_generator()->mutable_slab()->mutable_size_m();
    size.set_x(0.1);
    size.set_y(0.08);
    size.set_z(0.04);
    body.mutable_generator()->set_edge_length_m(0.02);
    body.mutable_texture()->mutable_box();
    return spec;
  }
  absl::StatusOr<sim::SceneDescription> Build(const v1::SceneSpec& spec) const {
    return BuildSceneDescription(spec, AssetRootResolver(folder_ / "root"), {});
  }
  std::string RefusalOfImage(const std::string& name) const {
    v1::SceneSpec spec = Scene();
    spec.mutable_bodies(0)->mutable_texture()->set_image_file(name);
    return std::string(Build(spec).status().message());
  }

  fs::path folder_;
};

TEST_F(TextureFiles, APictureIsReadOnce) {
  v1::SceneSpec spec = Scene();
  *spec.add_bodies() = spec.bodies(0);
  *spec.add_bodies() = spec.bodies(0);
  for (int b = 0; b < 3; ++b) {
    spec.mutable_bodies(b)->set_name(std::to_string(b));
    spec.mutable_bodies(b)->mutable_texture()->set_image_file(b == 2 ? "same.png" : "skin.png");
  }
  const auto built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const auto& image = built->bodies[0].texture.image;
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(image, built->bodies[1].texture.image);
  EXPECT_NE(image, built->bodies[2].texture.image);
  EXPECT_EQ(image->id, built->bodies[2].texture.image->id) << "of the same contents";
  EXPECT_EQ(image->id.size(), 32U);
  EXPECT_EQ(image->bytes, Png(4, 4));
  EXPECT_EQ(image->media_type, "image/png");
}

TEST_F(TextureFiles, OnlyPicturesInsideTheRootAreRead) {
  for (const std::string& name : {std::string("../outside.png"), std::string("link.png"), (folder_ / "outside.png").string(),
                                  std::string("organs"), std::string("none.png")}) {
    EXPECT_THAT(RefusalOfImage(name), HasSubstr("bodies[0].texture.image_file: ")) << name;
  }
  Write("root/bad.png", "not a picture");
  EXPECT_THAT(RefusalOfImage("bad.png"), HasSubstr("bodies[0].texture.image_file: bad.png, byte 0: neither"));
  Write("root/large.png", std::string(kMaxImageBytes + 1, 'x'));
  EXPECT_THAT(RefusalOfImage("large.png"), HasSubstr("more than the limit of 16777216 bytes"));
  v1::SceneSpec spec = Scene();
  spec.mutable_bodies(0)->mutable_texture()->set_image_file("skin.png");
  spec.mutable_bodies(0)->mutable_texture()->set_pattern(v1::TEXTURE_PATTERN_FAT);
  EXPECT_THAT(std::string(Build(spec).status().message()), HasSubstr("image_file: a picture, but a pattern is given too"));
}

TEST_F(TextureFiles, ABoxHasSixSides) {
  v1::SceneSpec spec = Scene();
  spec.mutable_bodies(0)->set_scale(2);
  spec.mutable_bodies(0)->mutable_pose()->mutable_position_m()->set_x(5);
  spec.mutable_bodies(0)->mutable_texture()->set_tile_size_m(0.04);
  spec.mutable_bodies(0)->mutable_texture()->mutable_box()->mutable_origin_m()->set_z(0.01);
  const auto built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const sim::BodyDescription& body = built->bodies[0];
  const sim::BoundarySurface boundary = sim::ExtractBoundary(body.mesh);
  EXPECT_TRUE(body.texture.coordinates.empty());
  ASSERT_EQ(body.texture.corners.size(), boundary.triangles.size());
  std::array<int, 6> sides{};
  for (size_t t = 0; t < boundary.triangles.size(); ++t) {
    std::array<Eigen::Vector3d, 3> p;
    for (size_t c = 0; c < 3; ++c) p[c] = body.mesh.vertices[boundary.vertices[boundary.triangles[t][c]]] - Eigen::Vector3d(5, 0, 0.01);
    const Eigen::Vector3d normal = (p[1] - p[0]).cross(p[2] - p[0]);
    Eigen::Index axis = 0;
    normal.cwiseAbs().maxCoeff(&axis);
    const double sign = normal[axis] < 0 ? -1 : 1;
    ++sides[static_cast<size_t>(axis) + (sign < 0 ? 3 : 0)];
    // Seen from outside, the picture is not mirrored: u, v and the normal are right-handed.
    Eigen::Matrix2d edges, texture;
    const std::array<Eigen::Vector3d, 3> u_axis = {Eigen::Vector3d(0, 1, 0), Eigen::Vector3d(-1, 0, 0), Eigen::Vector3d(1, 0, 0)};
    const std::array<Eigen::Vector3d, 3> v_axis = {Eigen::Vector3d(0, 0, 1), Eigen::Vector3d(0, 0, 1), Eigen::Vector3d(0, 1, 0)};
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(body.texture.corners[t][c][0], sign * u_axis[axis].dot(p[c]) / 0.04, 1e-5);
      EXPECT_NEAR(body.texture.corners[t][c][1], v_axis[axis].dot(p[c]) / 0.04, 1e-5);
    }
    EXPECT_GT((sign * u_axis[axis]).cross(v_axis[axis]).dot(normal), 0);
  }
  for (const int count : sides) EXPECT_GT(count, 8);
  spec.mutable_bodies(0)->mutable_texture()->mutable_box()->mutable_origin_m()->set_y(101);
  EXPECT_THAT(std::string(Build(spec).status().message()), HasSubstr("bodies[0].texture.box.origin_m.y: 101 is outside"));
}

TEST_F(TextureFiles, AnAtlasBringsItsPictureAndItsMaterials) {
  // The slab's own surface, each side of x an island of its own.
  const absl::StatusOr<sim::TetMesh> mesh = sim::GenerateSlab({0.1, 0.08, 0.04}, 0.02);
  ASSERT_TRUE(mesh.ok());
  const sim::BoundarySurface boundary = sim::ExtractBoundary(*mesh);
  std::string text = "mtllib slab.mtl\n";
  for (const uint32_t v : boundary.vertices) {
    const Eigen::Vector3d& p = mesh->vertices[v];
    text += "v " + std::to_string(p.x()) + " " + std::to_string(p.y()) + " " + std::to_string(p.z()) + "\n";
  }
  std::vector<bool> is_right;
  for (size_t t = 0; t < boundary.triangles.size(); ++t) {
    double x = 0;
    for (const uint32_t v : boundary.triangles[t]) x += mesh->vertices[boundary.vertices[v]].x();
    is_right.push_back(x > 0);
    text += is_right.back() ? "usemtl right\n" : "usemtl left\n";
    for (const uint32_t v : boundary.triangles[t]) {
      const Eigen::Vector3d& p = mesh->vertices[boundary.vertices[v]];
      text += "vt " + std::to_string((is_right.back() ? 0.75 : 0.25) + p.y()) + " " + std::to_string(p.z() + 0.5) + "\n";
    }
    text += "f";
    for (size_t c = 0; c < 3; ++c) text += " " + std::to_string(boundary.triangles[t][c] + 1) + "/" + std::to_string(3 * t + c + 1);
    text += "\n";
  }
  Write("root/organs/slab.obj", text);
  Write("root/organs/slab.mtl", "newmtl left\nKd 0.1 0.2 0.3\nmap_Kd skin.jpg\nnewmtl right\nKd 0.4 0.5 0.6\nmap_Kd skin.jpg\n");
  v1::SceneSpec spec = Scene();
  v1::TextureSpec& texture = *spec.mutable_bodies(0)->mutable_texture();
  texture.set_surface_file("organs/slab.obj");
  spec.mutable_bodies(0)->mutable_pose()->mutable_position_m()->set_x(1);
  const auto built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const sim::BodyDescription& body = built->bodies[0];
  EXPECT_EQ(body.texture.image->media_type, "image/jpeg");
  ASSERT_EQ(body.texture.corners.size(), boundary.triangles.size());
  for (size_t t = 0; t < boundary.triangles.size(); ++t) {
    for (size_t c = 0; c < 3; ++c) {
      const Eigen::Vector3d& p = mesh->vertices[boundary.vertices[boundary.triangles[t][c]]];
      EXPECT_NEAR(body.texture.corners[t][c][0], (is_right[t] ? 0.75 : 0.25) + p.y(), 1e-5);
      EXPECT_NEAR(body.texture.corners[t][c][1], p.z() + 0.5, 1e-5);
    }
  }
  ASSERT_EQ(body.surface_zones.size(), 2U);
  EXPECT_EQ(body.surface_zones[0].name + body.surface_zones[1].name, is_right[0] ? "rightleft" : "leftright");
  const size_t left = body.surface_zones[0].name == "left" ? 0 : 1;
  EXPECT_EQ(body.surface_zones[left].color, Eigen::Vector3f(0.1F, 0.2F, 0.3F));
  EXPECT_EQ(body.surface_zones[left].triangles.size() + body.surface_zones[1 - left].triangles.size(), boundary.triangles.size());

  Write("root/organs/slab.mtl", "newmtl left\nmap_Kd skin.jpg\nnewmtl right\nmap_Kd ../skin.png\n");
  EXPECT_THAT(std::string(Build(spec).status().message()), HasSubstr("slab.mtl:4: picture \"../skin.png\""));
  Write("root/organs/slab.mtl", "newmtl left\nmap_Kd skin.jpg\nnewmtl right\nmap_Kd other.jpg\n");
  EXPECT_THAT(std::string(Build(spec).status().message()), HasSubstr("several pictures"));
  texture.set_image_file("skin.png");
  EXPECT_EQ(Build(spec)->bodies[0].texture.image->media_type, "image/png");
  texture.set_tile_size_m(0.1);
  EXPECT_THAT(std::string(Build(spec).status().message()), HasSubstr("tile_size_m: is of a projection"));
  texture.clear_tile_size_m();
  Write("root/organs/slab.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n");
  EXPECT_THAT(std::string(Build(spec).status().message()),
              HasSubstr("bodies[0].texture.surface_file: the surface has no texture coordinates"));
}

TEST_F(TextureFiles, NamesOfMaterialsAreTextThatClientsTake) {
  const std::string latin =
      "L\xe4"
      "ppchen";
  const std::string utf8 = "L\xc3\xa4ppchen";
  const std::string lengthy = std::string(kMaxNameBytes - 1, 'x') + "\xc3\xa4";
  std::string text = "v -.5 -.5 .5\nv .5 -.5 .5\nv .5 .5 .5\nv -.5 .5 .5\nv -.5 -.5 -.5\nv .5 -.5 -.5\nv .5 .5 -.5\nv -.5 .5 -.5\nvt 0 0\n";
  text += "usemtl " + latin + "\nf 1/1 2/1 3/1\nf 1/1 3/1 4/1\n";
  text += "usemtl " + utf8 + "\nf 5/1 7/1 6/1\nf 5/1 8/1 7/1\n";
  text += "usemtl " + lengthy + "\nf 2/1 6/1 7/1\nf 2/1 7/1 3/1\n";
  Write("root/names.obj", text);
  v1::SceneSpec spec = Scene();
  // A cube whose sides lie nearest to the surface's.
  v1::Vec3& size = *spec.mutable_bodies(0)->mutable_generator()->mutable_slab()->mutable_size_m();
  size.set_x(0.95);
  size.set_y(0.95);
  size.set_z(0.95);
  spec.mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.25);
  spec.mutable_bodies(0)->mutable_texture()->set_surface_file("names.obj");
  const auto built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  std::vector<std::string> names;
  for (const auto& zone : built->bodies[0].surface_zones) names.push_back(zone.name);
  EXPECT_THAT(names, ::testing::ElementsAre("L?ppchen", utf8, std::string(kMaxNameBytes - 1, 'x')));
}

}  // namespace
}  // namespace palpate::scene::texture_files_test
