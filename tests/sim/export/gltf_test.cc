// assimp, which is no relation, reads what is written.
#include "sim/export/gltf.h"

#include <assimp/postprocess.h>
#include <assimp/scene.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <assimp/Importer.hpp>

#include "tests/sim/export/samples.h"

extern "C" const char* __lsan_default_suppressions() { return "leak:libassimp"; }

namespace palpate::sim::gltf_test {
namespace {

using ::testing::HasSubstr;

struct Square {
  std::vector<float> positions = {0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0};
  std::vector<std::array<uint32_t, 3>> triangles = {{0, 1, 2}, {0, 2, 3}};
  std::vector<std::array<float, 2>> texture = {{0, 0}, {1, 0}, {1, 1}, {0, 1}};
  std::vector<uint16_t> zones = {0, 1};
  std::vector<GltfMaterial> materials = {{"red", {0.5F, 0, 0}, 0.5F, nullptr}, {"blue", {0, 0, 0.25F}, 0.5F, nullptr}};

  GltfSurface surface() const {
    return {.name = "square",
            .positions_m = positions,
            .triangles = triangles,
            .triangle_materials = zones,
            .texture_coordinates = texture,
            .normals = {},
            .materials = materials};
  }
};

const aiScene* Import(Assimp::Importer& importer, const std::string& bytes) {
  return importer.ReadFileFromMemory(bytes.data(), bytes.size(), aiProcess_ValidateDataStructure, "glb");
}

TEST(Gltf, AssimpFindsTheSurface) {
  const Square square;
  StringSink sink;
  const GltfSurface surface = square.surface();
  ASSERT_TRUE(WriteGlb(std::span<const GltfSurface>(&surface, 1), &sink).ok());
  Assimp::Importer importer;
  const aiScene* scene = Import(importer, std::move(sink).Take());
  ASSERT_NE(scene, nullptr) << importer.GetErrorString();
  ASSERT_EQ(scene->mNumMeshes, 2U);  // one for each material
  for (unsigned m = 0; m < 2; ++m) {
    const aiMesh& mesh = *scene->mMeshes[m];
    ASSERT_EQ(mesh.mNumFaces, 1U);
    ASSERT_TRUE(mesh.HasNormals() && mesh.HasTextureCoords(0));
    for (unsigned k = 0; k < 3; ++k) {
      const unsigned v = mesh.mFaces[0].mIndices[k];
      const uint32_t from = square.triangles[m][k];
      EXPECT_EQ(mesh.mVertices[v], aiVector3D(square.positions[3 * from], square.positions[3 * from + 1], 0));
      EXPECT_EQ(mesh.mNormals[v], aiVector3D(0, 0, 1));
      // assimp turns v the other way round, as OBJ has it: the way it was given.
      EXPECT_EQ(mesh.mTextureCoords[0][v], aiVector3D(square.texture[from][0], square.texture[from][1], 0));
    }
    aiColor4D color;
    ASSERT_EQ(scene->mMaterials[mesh.mMaterialIndex]->Get(AI_MATKEY_BASE_COLOR, color), aiReturn_SUCCESS);
    EXPECT_EQ(color, (aiColor4D(square.materials[m].color[0], square.materials[m].color[1], square.materials[m].color[2], 1)));
  }
  // What is up here is up there: z becomes y.
  const aiVector3D up = scene->mRootNode->mTransformation * aiVector3D(0, 0, 1);
  EXPECT_NEAR(up.y, 1, 1e-6);
}

TEST(Gltf, AssimpFindsTheMoments) {
  const std::filesystem::path path = FreshFolder("glb") / "series.glb";
  Square square;
  absl::StatusOr<GltfSeries> series = GltfSeries::Create(path);
  ASSERT_TRUE(series.ok());
  for (int k = 0; k < 3; ++k) {
    square.positions[2] = 0.1F * static_cast<float>(k);
    const GltfSurface surface = square.surface();
    ASSERT_TRUE(series->Add(0.5 * k, std::span<const GltfSurface>(&surface, 1)).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_THAT(std::string(series->Add(1, {}).message()), HasSubstr("not above the last one"));
  ASSERT_TRUE(series->Finish().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(series->Finish()));
  Assimp::Importer importer;
  const aiScene* scene = importer.ReadFile(path.string(), aiProcess_ValidateDataStructure);
  ASSERT_NE(scene, nullptr) << importer.GetErrorString();
  ASSERT_EQ(scene->mMeshes[0]->mNumAnimMeshes, 2U);
  EXPECT_NEAR(scene->mMeshes[0]->mAnimMeshes[1]->mVertices[0].z, 0.2, 1e-6);
  ASSERT_EQ(scene->mNumAnimations, 1U);
  ASSERT_EQ(scene->mAnimations[0]->mNumMorphMeshChannels, 1U);
  const aiMeshMorphAnim& channel = *scene->mAnimations[0]->mMorphMeshChannels[0];
  ASSERT_EQ(channel.mNumKeys, 3U);
  for (unsigned k = 0; k < 3; ++k) {
    ASSERT_EQ(channel.mKeys[k].mNumValuesAndWeights, 2U);
    for (unsigned target = 0; target < 2; ++target) EXPECT_EQ(channel.mKeys[k].mWeights[target], target + 1 == k ? 1 : 0);
  }
}

TEST(Gltf, RefusesWhatDoesNotFit) {
  const auto refusal = [](const Square& square) {
    StringSink sink;
    const GltfSurface surface = square.surface();
    return std::string(WriteGlb(std::span<const GltfSurface>(&surface, 1), &sink).message());
  };
  Square square;
  square.positions[4] = NAN;
  EXPECT_THAT(refusal(square), HasSubstr("surface \"square\": a coordinate is not finite"));
  square = {};
  square.triangles[1][2] = 4;
  EXPECT_THAT(refusal(square), HasSubstr("triangle 1: vertex 4, but there are 4"));
  square = {};
  square.zones[1] = 2;
  EXPECT_THAT(refusal(square), HasSubstr("material 2, but there are 2"));
  square = {};
  square.texture.pop_back();
  EXPECT_THAT(refusal(square), HasSubstr("3 texture coordinates for 4 vertices"));
}

}  // namespace
}  // namespace palpate::sim::gltf_test
