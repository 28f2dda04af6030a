#pragma once

#include <CL/cl.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace palpate::gpu {

/// One spelling for each type, as drivers give the one of the text or their own: without `*` and `struct`, vectors and scalars as OpenCL C
/// names them.
constexpr std::string_view DeviceSpelling(std::string_view type) {
  while (!type.empty() && (type.back() == '*' || type.back() == ' ')) type.remove_suffix(1);
  if (type.starts_with("struct ")) type.remove_prefix(7);
  constexpr std::pair<std::string_view, std::string_view> kSame[] = {
      {"Float2", "float2"},         {"Float4", "float4"},     {"Int2", "int2"},          {"Int4", "int4"},   {"UInt2", "uint2"},
      {"UInt4", "uint4"},           {"Int", "int"},           {"UInt", "uint"},          {"ULong", "ulong"}, {"unsigned char", "uchar"},
      {"unsigned short", "ushort"}, {"unsigned int", "uint"}, {"unsigned long", "ulong"}};
  for (const auto& [spelling, name] : kSame) {
    if (type == spelling) return name;
  }
  return type;
}

/// Where a parameter of a kernel lives; `private` is passed by value.
enum class AddressSpace { kPrivate, kGlobal, kLocal };

struct KernelParameter {
  std::string name;
  std::string type;  ///< see DeviceSpelling; of a buffer or of local memory that of its elements
  AddressSpace space = AddressSpace::kPrivate;
  friend bool operator==(const KernelParameter&, const KernelParameter&) = default;
};

/// The parameters of one kernel, in the order of its text.
using KernelSignature = std::vector<KernelParameter>;

/// Those of a program's kernels, by name.
using ProgramSignatures = std::map<std::string, KernelSignature, std::less<>>;

/// The index of the parameter of that name, first looked for at `hint`; the signature's size if there is none.
size_t FindParameter(const KernelSignature& signature, std::string_view name, size_t hint = 0);

/// Asks the driver about a program that was built from source with -cl-kernel-arg-info. (About one from a binary drivers need not answer,
/// which is why signatures are kept beside binaries.)
absl::StatusOr<ProgramSignatures> ReadSignatures(cl_program program);

/// The signatures as text, a line for each kernel and each parameter, and back; nullopt for anything that is no such text.
std::string ToText(const ProgramSignatures& signatures);
std::optional<ProgramSignatures> ParseSignatures(std::string_view text);

}  // namespace palpate::gpu
