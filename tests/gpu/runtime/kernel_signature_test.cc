#include "gpu/runtime/kernel_signature.h"

#include <gtest/gtest.h>

#include <random>

#include "gpu/runtime/kernel.h"
#include "gpu/shared/box.h"

namespace palpate::gpu::kernel_signature_test {
namespace {

TEST(KernelSignature, TypesHaveOneSpelling) {
  for (const char* spelling : {"float4*", "Float4*", "Float4", "float4 *"}) EXPECT_EQ(DeviceSpelling(spelling), "float4") << spelling;
  for (const char* spelling : {"uint", "UInt", "unsigned int*"}) EXPECT_EQ(DeviceSpelling(spelling), "uint") << spelling;
  for (const char* spelling : {"Box*", "struct Box*"}) EXPECT_EQ(DeviceSpelling(spelling), "Box") << spelling;
}

TEST(KernelSignature, HostTypesHaveTheDevicesName) {
  EXPECT_EQ(internal::DeviceTypeName<float>(), "float");
  EXPECT_EQ(internal::DeviceTypeName<int32_t>(), "int");
  EXPECT_EQ(internal::DeviceTypeName<uint8_t>(), "uchar");
  EXPECT_EQ(internal::DeviceTypeName<uint64_t>(), "ulong");
  EXPECT_EQ(internal::DeviceTypeName<Float4>(), "float4");
  EXPECT_EQ(internal::DeviceTypeName<UInt2>(), "uint2");
  EXPECT_EQ(internal::DeviceTypeName<Box>(), "Box");
  EXPECT_EQ((internal::DeviceTypeName<std::array<uint32_t, 8>>()), "uint8");
  EXPECT_EQ((internal::DeviceTypeName<std::array<float, 16>>()), "float16");
}

ProgramSignatures Example() {
  return {{"gather", {{"count", "uint", AddressSpace::kPrivate}, {"x", "float4", AddressSpace::kGlobal}}},
          {"nothing", {}},
          {"sum", {{"scratch", "unsigned thing", AddressSpace::kLocal}}}};
}

TEST(KernelSignature, TextIsReadBackTheSame) {
  EXPECT_EQ(ParseSignatures(ToText(Example())), Example());
  EXPECT_EQ(ParseSignatures(""), ProgramSignatures());
}

TEST(KernelSignature, AnythingElseIsRefused) {
  for (const char* text : {"gather", "\n", " global x float\n", "f\n global x\n", "f\n global x \n", "f\n everywhere x float\n", "f\n\n"}) {
    EXPECT_EQ(ParseSignatures(text), std::nullopt) << text;
  }
  // Damaged text must not crash; what it is read as, if anything, says the same again.
  std::mt19937 random(7);
  const std::string good = ToText(Example());
  for (int i = 0; i < 2000; ++i) {
    std::string text = good.substr(0, random() % (good.size() + 1));
    if (!text.empty()) text[random() % text.size()] = static_cast<char>(random());
    const std::optional<ProgramSignatures> signatures = ParseSignatures(text);
    if (signatures) {
      EXPECT_EQ(ParseSignatures(ToText(*signatures)), signatures) << text;
    }
  }
}

TEST(KernelSignature, ParametersAreFoundFromAnyHint) {
  const KernelSignature signature = {{"a", "int"}, {"b", "int"}, {"c", "int"}};
  for (size_t hint = 0; hint <= signature.size(); ++hint) {
    EXPECT_EQ(FindParameter(signature, "a", hint), 0U);
    EXPECT_EQ(FindParameter(signature, "c", hint), 2U);
    EXPECT_EQ(FindParameter(signature, "d", hint), 3U);
  }
}

}  // namespace
}  // namespace palpate::gpu::kernel_signature_test
