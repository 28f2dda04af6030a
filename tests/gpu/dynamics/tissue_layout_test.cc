#include "gpu/dynamics/tissue_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "tests/gpu/dynamics/tissue_models.h"

namespace palpate::gpu::tissue_layout_test {
namespace {

using ::testing::HasSubstr;

constexpr double kDt = 0.01;

struct NamedModel {
  std::string name;
  TissueModel model;
};

std::vector<NamedModel> Models() {
  std::vector<NamedModel> models;
  models.push_back({"one cube", BoxModel({1, 1, 1}, {0.1, 0.1, 0.1}, {0, 0, 0}, {})});
  models.push_back({"box", BoxModel({5, 3, 4}, {0.1, 0.06, 0.08}, {1, -1, 2}, {.damping_s = 0.02})});
  for (size_t v = 0; v < 24; ++v) models.back().model.fixed[v] = 1;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    models.push_back({"tangle " + std::to_string(seed), TangledModel(40 * static_cast<uint32_t>(seed), 300, seed)});
  }
  models.push_back({"clique", TangledModel(12, 400, 77)});
  return models;
}

Eigen::Vector3d Rest(const TissueModel& model, uint32_t v) { return {model.rest_m[v][0], model.rest_m[v][1], model.rest_m[v][2]}; }

TEST(TissueLayoutTest, ColoursAndNumbersVertices) {
  for (const NamedModel& named : Models()) {
    SCOPED_TRACE(named.name);
    const TissueModel& model = named.model;
    const auto layout = LayOutTissue(model, kDt, 8);
    ASSERT_TRUE(layout.ok()) << layout.status();
    const size_t n = model.rest_m.size();
    ASSERT_EQ(layout->vertex_count, n);
    ASSERT_EQ(layout->solver_index.size(), n);
    ASSERT_EQ(layout->original_index.size(), n);
    std::set<SolverSlot> seen;
    for (uint32_t v = 0; v < n; ++v) {
      ASSERT_TRUE(layout->original_index.contains(layout->solver_index[v]));
      seen.insert(layout->solver_index[v]);
      EXPECT_EQ(layout->original_index[layout->solver_index[v]], v);
      EXPECT_EQ(ToNumber(layout->solver_index[v]) >= layout->free_count, model.fixed[v] != 0) << "fixed vertices come last";
    }
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(layout->free_count, static_cast<uint32_t>(std::count(model.fixed.begin(), model.fixed.end(), 0)));

    ASSERT_GE(layout->color_begin.size(), 2U);
    EXPECT_EQ(layout->color_begin.front(), 0U);
    EXPECT_EQ(layout->color_begin.back(), layout->free_count);
    TissueLayout::BySlot<uint32_t> color(n, 0xffffffffU);
    for (uint32_t c = 0; c + 1 < layout->color_begin.size(); ++c) {
      EXPECT_LT(layout->color_begin[c], layout->color_begin[c + 1]) << "no colour is empty";
      for (uint32_t i = layout->color_begin[c]; i < layout->color_begin[c + 1]; ++i) color[SolverSlot{i}] = c;
    }
    for (size_t t = 0; t < model.tets.size(); ++t) {
      const auto& v = model.tets[t].vertices;
      for (size_t a = 0; a < 4; ++a) {
        for (size_t b = a + 1; b < 4; ++b) {
          const uint32_t ca = color[layout->solver_index[v[a]]];
          const uint32_t cb = color[layout->solver_index[v[b]]];
          EXPECT_TRUE(ca == 0xffffffffU || ca != cb) << "tet " << t << " has colour " << ca << " twice";
        }
      }
    }
  }
}

TEST(TissueLayoutTest, CornersSeeTheirTetAtRest) {
  for (const uint32_t lanes : {1U, 4U, 8U, 16U}) {
    for (const NamedModel& named : Models()) {
      SCOPED_TRACE(testing::Message() << named.name << ", " << lanes << " lanes");
      const TissueModel& model = named.model;
      const auto layout = LayOutTissue(model, kDt, lanes);
      ASSERT_TRUE(layout.ok()) << layout.status();
      const uint32_t n = layout->vertex_count;
      ASSERT_EQ(layout->block_range.size(), n);
      ASSERT_EQ(layout->block_vertex.size(), layout->block_count);
      ASSERT_EQ(layout->corner_real.size(), layout->block_vertex.size() * layout->corner_reals * lanes);
      ASSERT_EQ(layout->corner_index.size(), layout->block_vertex.size() * 4 * lanes);
      // Each (tet, vertex) pair must be found exactly once, all other lanes must be padding.
      std::set<std::pair<uint32_t, uint32_t>> corners;
      size_t padding = 0;
      for (uint32_t i = 0; i < n; ++i) {
        const UInt2 range = layout->block_range[SolverSlot{i}];
        for (uint32_t b = range.x; b < range.y; ++b) {
          EXPECT_EQ(layout->block_vertex[b], i);
          for (uint32_t lane = 0; lane < lanes; ++lane) {
            const float* const real = &layout->corner_real[size_t{b} * layout->corner_reals * lanes + lane];
            const uint32_t* const index = &layout->corner_index[size_t{b} * 4 * lanes + lane];
            if (real[9 * lanes] == 0) {
              ++padding;
              for (uint32_t k = 0; k < layout->corner_reals; ++k) EXPECT_EQ(real[k * lanes], 0) << "padding must add nothing";
              for (uint32_t k = 0; k < 3; ++k) EXPECT_EQ(index[k * lanes], i);
              EXPECT_LT(index[3 * lanes], model.tets.size());
              continue;
            }
            const uint32_t t = index[3 * lanes] & PALPATE_TET_MASK;
            ASSERT_LT(t, model.tets.size());
            EXPECT_EQ(index[3 * lanes] >> PALPATE_ENERGY_SHIFT, static_cast<uint32_t>(model.tets[t].energy));
            EXPECT_TRUE(corners.insert({t, i}).second) << "corner listed twice";
            std::set<uint32_t> expected, found{layout->original_index[SolverSlot{i}]};
            for (const uint32_t v : model.tets[t].vertices) expected.insert(v);
            Eigen::Matrix3d edges, rows;
            const Eigen::Vector3d o = Rest(model, layout->original_index[SolverSlot{i}]);
            for (uint32_t k = 0; k < 3; ++k) {
              ASSERT_LT(index[k * lanes], n);
              const uint32_t v = layout->original_index[SolverSlot{index[k * lanes]}];
              found.insert(v);
              edges.col(k) = Rest(model, v) - o;
              for (uint32_t axis = 0; axis < 3; ++axis) rows(k, axis) = real[(3 * k + axis) * lanes];
            }
            EXPECT_EQ(found, expected);
            EXPECT_GT(edges.determinant(), 0) << "the corner's order keeps the orientation";
            EXPECT_LT((edges * rows - Eigen::Matrix3d::Identity()).norm(), 1e-5 * edges.norm() * rows.norm()) << "F = I at rest";
            const double volume = edges.determinant() / 6;
            EXPECT_NEAR(real[9 * lanes], volume * model.tets[t].mu_pa, 1e-5 * volume * model.tets[t].mu_pa);
            EXPECT_NEAR(real[10 * lanes], volume * model.tets[t].lambda_pa, 1e-5 * volume * model.tets[t].lambda_pa);
            EXPECT_FLOAT_EQ(real[11 * lanes], model.tets[t].damping_s / static_cast<float>(kDt));
            if (!layout->has_fibers) continue;
            const TissueFibers& fibers = model.tets[t].fibers;
            for (uint32_t k = 0; k < 3; ++k) EXPECT_EQ(real[(12 + k) * lanes], fibers.direction[k]);
            EXPECT_NEAR(real[15 * lanes], volume * fibers.coupling_pa, 1e-5 * volume * fibers.coupling_pa);
            EXPECT_NEAR(real[16 * lanes], volume * fibers.stiffness_pa, 1e-5 * volume * fibers.stiffness_pa);
            EXPECT_NEAR(real[17 * lanes], volume * fibers.shear_pa, 1e-5 * volume * fibers.shear_pa);
          }
        }
      }
      EXPECT_EQ(corners.size(), model.tets.size() * 4);
      EXPECT_EQ(corners.size() + padding, layout->block_vertex.size() * lanes);
    }
  }
}

TEST(TissueLayoutTest, MassesTetsAndTrianglesFollowTheModel) {
  for (const NamedModel& named : Models()) {
    SCOPED_TRACE(named.name);
    const TissueModel& model = named.model;
    const auto layout = LayOutTissue(model, kDt, 4);
    ASSERT_TRUE(layout.ok()) << layout.status();
    double mass = 0;
    ASSERT_EQ(layout->tets.size(), model.tets.size());
    ASSERT_EQ(layout->tet_rest.size(), model.tets.size() * 3);
    for (size_t t = 0; t < model.tets.size(); ++t) {
      const auto& v = model.tets[t].vertices;
      const UInt4& s = layout->tets[t];
      const uint32_t corners[] = {s.x, s.y, s.z, s.w};
      for (size_t c = 0; c < 4; ++c) EXPECT_EQ(layout->original_index[SolverSlot{corners[c]}], v[c]);
      Eigen::Matrix3d edges, rows;
      for (int k = 0; k < 3; ++k) {
        edges.col(k) = Rest(model, v[k + 1]) - Rest(model, v[0]);
        const Float4& row = layout->tet_rest[3 * t + k];
        rows.row(k) << row.x, row.y, row.z;
      }
      EXPECT_LT((edges * rows - Eigen::Matrix3d::Identity()).norm(), 1e-5 * edges.norm() * rows.norm());
      mass += edges.determinant() / 6 * model.tets[t].density_kg_per_m3;
    }
    EXPECT_NEAR(std::accumulate(layout->mass_kg.begin(), layout->mass_kg.end(), 0.0), mass, 1e-5 * mass);

    ASSERT_EQ(layout->triangles.size(), model.surface_triangles.size());
    for (const SolverSlot i : layout->original_index.indices()) {
      std::set<uint32_t> expected, found;
      for (uint32_t t = 0; t < model.surface_triangles.size(); ++t) {
        for (const uint32_t v : model.surface_triangles[t]) {
          if (layout->solver_index[v] == i) expected.insert(t);
        }
      }
      const UInt2 range = layout->vertex_triangle_range[i];
      ASSERT_LE(range.y, layout->vertex_triangles_end);
      EXPECT_EQ(range.y - range.x, expected.size());
      for (uint32_t k = range.x; k < range.y; ++k) found.insert(layout->vertex_triangles[k]);
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(TissueLayoutTest, SaysWhichTermsItNeeds) {
  TissueModel model = BoxModel({1, 1, 1}, {0.1, 0.1, 0.1}, {0, 0, 0}, {.young_modulus_pa = 5000, .poisson_ratio = 0.3});
  auto layout = LayOutTissue(model, kDt, 8);
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->Has(TissueEnergy::kStableNeoHookean));
  for (const TissueEnergy energy : kAllEnergies) EXPECT_EQ(layout->Has(energy), energy == TissueEnergy::kStableNeoHookean);
  EXPECT_FALSE(layout->has_fibers);
  EXPECT_FALSE(layout->has_viscosity);
  EXPECT_NEAR(layout->mean_young_modulus_pa, 5000, 0.01);
  EXPECT_GT(layout->mean_edge_m, 0.1);
  EXPECT_LT(layout->mean_edge_m, 0.1 * std::sqrt(3.0));
  model.tets[2].energy = TissueEnergy::kCorotated;
  model.tets[1].energy = TissueEnergy::kLinear;
  model.tets[1].fibers = {{1, 0, 0}, 0, 100, 0};
  model.tets[3].damping_s = 0.1F;
  layout = LayOutTissue(model, kDt, 8);
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->Has(TissueEnergy::kStableNeoHookean));
  EXPECT_TRUE(layout->Has(TissueEnergy::kCorotated));
  EXPECT_TRUE(layout->Has(TissueEnergy::kLinear));
  EXPECT_TRUE(layout->has_fibers);
  EXPECT_TRUE(layout->has_viscosity);
}

TEST(TissueLayoutTest, IsDeterministic) {
  const TissueModel model = TangledModel(60, 500, 5);
  const auto a = LayOutTissue(model, kDt, 8);
  const auto b = LayOutTissue(model, kDt, 8);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->solver_index, b->solver_index);
  EXPECT_EQ(a->corner_index, b->corner_index);
  EXPECT_EQ(a->corner_real, b->corner_real);
}

TEST(TissueLayoutTest, RefusesBadModels) {
  const TissueModel good = BoxModel({2, 1, 1}, {0.2, 0.1, 0.1}, {0, 0, 0}, {});
  const auto expect_error = [&](const TissueModel& model, const std::string& text) {
    const auto layout = LayOutTissue(model, kDt, 8);
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(layout.status().message()), HasSubstr(text));
  };
  TissueModel bad = good;
  bad.tets[3].vertices[2] = 12;
  expect_error(bad, "tet 3: vertex 12 is outside [0, 12)");
  bad = good;
  std::swap(bad.tets[5].vertices[0], bad.tets[5].vertices[1]);
  expect_error(bad, "tet 5: volume");
  bad = good;
  bad.tets[4].vertices[1] = bad.tets[4].vertices[0];
  expect_error(bad, "tet 4: volume 0");
  bad = good;
  bad.rest_m[bad.tets[0].vertices[0]][1] = std::numeric_limits<double>::quiet_NaN();
  expect_error(bad, "tet 0: volume");
  bad = good;
  bad.surface_triangles[1][2] = 99;
  expect_error(bad, "surface triangle 1: vertex 99 is outside [0, 12)");
  bad = good;
  bad.fixed.pop_back();
  expect_error(bad, "fixed: 11 entries for 12 vertices");
  bad = good;
  bad.fixed.assign(12, 1);
  expect_error(bad, "every vertex is fixed");
  bad = good;
  bad.tets[2].energy = TissueEnergy::kMassSpring;
  expect_error(bad, "tet 2: springs have a Poisson ratio of 1/4");
  bad = good;
  bad.tets[2].fibers = {{1, 0, 0}, 0, 100, 0};
  expect_error(bad, "tet 2: only linear and St-Venant-Kirchhoff");
  bad.tets[2].energy = TissueEnergy::kLinear;
  bad.tets[2].fibers.direction = {1, 1, 0};
  expect_error(bad, "tet 2: the fibre direction has the length 1.41");
  bad = good;
  bad.tets.clear();
  expect_error(bad, "no tetrahedra");
  expect_error(TissueModel{}, "no tetrahedra");
}

}  // namespace
}  // namespace palpate::gpu::tissue_layout_test
