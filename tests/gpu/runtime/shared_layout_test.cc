#include "tests/gpu/runtime/shared_layout.h"

#include <cstddef>
#include <string>
#include <vector>

#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource shared_layout;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::shared_layout_test {
namespace {

using SharedLayoutTest = test::DeviceTest;

struct Entry {
  std::string name;
  uint32_t value;
};

#define SIZE_ENTRY(type) {"sizeof(" #type ")", static_cast<uint32_t>(sizeof(type))},
#define OFFSET_ENTRY(type, member) {"offset of " #type "." #member, static_cast<uint32_t>(offsetof(type, member))},

TEST_F(SharedLayoutTest, DeviceAgreesOnSizesAndOffsets) {
  const std::vector<Entry> host = {PALPATE_SHARED_LAYOUT(SIZE_ENTRY, OFFSET_ENTRY)};
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::shared_layout, "shared_layout"));
  const DeviceBuffer<uint32_t> out = Upload(std::vector<uint32_t>(host.size(), 0xffffffffU));
  PALPATE_ASSERT_OK(queue().Launch(kernel, {1, 1}, Arg("out", out)));
  const std::vector<uint32_t> device = Download(out);
  for (size_t i = 0; i < host.size(); ++i) EXPECT_EQ(device[i], host[i].value) << host[i].name;
}

TEST_F(SharedLayoutTest, MembersOfVectorsAreInTheSameOrder) {
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::shared_layout, "reverse_members"));
  const auto in4 = Upload(std::vector<Float4>{{1, 2, 3, 4}, {5, 6, 7, 8}});
  const auto in_u4 = Upload(std::vector<UInt4>{{1, 2, 3, 4}, {5, 6, 7, 8}});
  const auto in_i4 = Upload(std::vector<Int4>{{-1, 2, -3, 4}, {5, 6, 7, 8}});
  const auto in2 = Upload(std::vector<Float2>{{1, 2}, {3, 4}});
  const auto in_u2 = Upload(std::vector<UInt2>{{1, 2}, {3, 4}});
  const auto in_i2 = Upload(std::vector<Int2>{{-1, 2}, {3, -4}});
  const auto out4 = Allocate<Float4>(2);
  const auto out_u4 = Allocate<UInt4>(2);
  const auto out_i4 = Allocate<Int4>(2);
  const auto out2 = Allocate<Float2>(2);
  const auto out_u2 = Allocate<UInt2>(2);
  const auto out_i2 = Allocate<Int2>(2);
  PALPATE_ASSERT_OK(queue().Launch(kernel, {2, 1}, Arg("in4", in4), Arg("out4", out4), Arg("in_u4", in_u4), Arg("out_u4", out_u4),
                                   Arg("in_i4", in_i4), Arg("out_i4", out_i4), Arg("in2", in2), Arg("out2", out2), Arg("in_u2", in_u2),
                                   Arg("out_u2", out_u2), Arg("in_i2", in_i2), Arg("out_i2", out_i2)));
  EXPECT_EQ(Download(out4), (std::vector<Float4>{{4, 3, 2, 1}, {8, 7, 6, 5}}));
  EXPECT_EQ(Download(out_u4), (std::vector<UInt4>{{4, 3, 2, 1}, {8, 7, 6, 5}}));
  EXPECT_EQ(Download(out_i4), (std::vector<Int4>{{4, -3, 2, -1}, {8, 7, 6, 5}}));
  EXPECT_EQ(Download(out2), (std::vector<Float2>{{2, 1}, {4, 3}}));
  EXPECT_EQ(Download(out_u2), (std::vector<UInt2>{{2, 1}, {4, 3}}));
  EXPECT_EQ(Download(out_i2), (std::vector<Int2>{{2, -1}, {-4, 3}}));
}

}  // namespace
}  // namespace palpate::gpu::shared_layout_test
