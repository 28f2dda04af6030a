#pragma once

#include <CL/cl.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/context.h"
#include "gpu/runtime/kernel_signature.h"

namespace palpate::gpu {

/// Size in bytes of a __local argument.
struct LocalMemory {
  size_t size_bytes = 0;
};

/// A buffer whose elements have a type that only the kernel knows: any type of the parameter is taken.
struct OpaqueBuffer {
  cl_mem handle = nullptr;
};
template <typename T>
OpaqueBuffer Opaque(BufferView<T> buffer) {
  return {buffer.handle};
}
template <typename T>
OpaqueBuffer Opaque(const DeviceBuffer<T>& buffer) {
  return {buffer.handle()};
}

namespace internal {

/// The name of T without namespaces.
template <typename T>
constexpr std::string_view ClassName() {
  // "... [with T = palpate::gpu::StepParams; ...]" (GCC), "... [T = palpate::gpu::StepParams]" (clang).
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find("T = ") + 4);
  name = name.substr(0, name.find_first_of(";]"));
  return name.substr(name.rfind(':') + 1);  // npos + 1 is 0
}

template <typename T>
constexpr std::string_view DeviceTypeName();

/// The vector type of `count` elements: uint8 for eight uint.
template <typename T, size_t count>
struct VectorName {
  static_assert(count == 2 || count == 3 || count == 4 || count == 8 || count == 16);
  static constexpr auto kText = [] {
    constexpr std::string_view kElement = DeviceTypeName<T>();
    constexpr size_t kDigits = count < 10 ? 1 : 2;
    std::array<char, kElement.size() + kDigits> text{};
    std::copy(kElement.begin(), kElement.end(), text.begin());
    for (size_t i = text.size(), rest = count; i > kElement.size(); --i, rest /= 10) text[i - 1] = static_cast<char>('0' + rest % 10);
    return text;
  }();
};
template <typename T>
inline constexpr size_t kArraySize = 0;
template <typename T, size_t count>
inline constexpr size_t kArraySize<std::array<T, count>> = count;

/// What OpenCL C calls T: scalars by their size and sign, arrays as vectors, vectors and structs of gpu/shared by their name.
template <typename T>
constexpr std::string_view DeviceTypeName() {
  if constexpr (std::is_same_v<T, float>) {
    return "float";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else if constexpr (std::is_integral_v<T>) {
    constexpr bool kSigned = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1:
        return kSigned ? "char" : "uchar";
      case 2:
        return kSigned ? "short" : "ushort";
      case 4:
        return kSigned ? "int" : "uint";
      default:
        return kSigned ? "long" : "ulong";
    }
  } else if constexpr (kArraySize<T> > 0) {
    constexpr const auto& kText = VectorName<typename T::value_type, kArraySize<T>>::kText;
    return {kText.data(), kText.size()};
  } else {
    static_assert(std::is_class_v<T>, "neither a scalar nor a struct of gpu/shared");
    return DeviceSpelling(ClassName<T>());
  }
}

}  // namespace internal

/// What an argument is bound to.
class ArgumentValue {
 public:
  /// A DeviceBuffer, a BufferView, an OpaqueBuffer, LocalMemory, or a scalar or struct with the device's layout.
  template <typename T>
  ArgumentValue(const T& value) {  // NOLINT(google-explicit-constructor): lists of arguments stay readable
    if constexpr (std::is_same_v<T, LocalMemory>) {
      SetLocal(value.size_bytes);
    } else if constexpr (std::is_same_v<T, OpaqueBuffer>) {
      SetBuffer(value.handle, {});
    } else if constexpr (requires { value.view(); }) {
      SetView(value.view());
    } else if constexpr (requires {
                           value.handle;
                           value.count;
                         }) {
      SetView(value);
    } else {
      static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_same_v<T, bool>);
      space_ = AddressSpace::kPrivate;
      type_ = internal::DeviceTypeName<T>();
      size_bytes_ = sizeof(T);
      static_assert(sizeof(T) <= kMaxValueBytes, "large values are read from a buffer");
      std::memcpy(value_, &value, sizeof(T));
    }
  }

 private:
  friend class Kernel;
  static constexpr size_t kMaxValueBytes = 64;

  const void* data() const {
    if (space_ == AddressSpace::kLocal) return nullptr;
    return space_ == AddressSpace::kGlobal ? static_cast<const void*>(&buffer_) : value_;
  }
  template <typename T>
  void SetView(const BufferView<T>& view) {
    SetBuffer(view.handle, internal::DeviceTypeName<std::remove_cv_t<T>>());
  }
  void SetBuffer(cl_mem handle, std::string_view type) {
    space_ = AddressSpace::kGlobal;
    type_ = type;
    buffer_ = handle;
    size_bytes_ = sizeof(cl_mem);
  }
  void SetLocal(size_t size_bytes) {
    space_ = AddressSpace::kLocal;
    size_bytes_ = size_bytes;
  }

  AddressSpace space_ = AddressSpace::kPrivate;
  std::string_view type_;  // empty: not to be compared
  size_t size_bytes_ = 0;
  alignas(kMaxValueBytes) std::byte value_[kMaxValueBytes];
  cl_mem buffer_ = nullptr;
};

/// A parameter's name, as the kernel's text has it, and what it is bound to. Refers to the name, keeps the value.
struct Arg {
  Arg(std::string_view parameter, const ArgumentValue& bound_to) : name(parameter), value(bound_to) {}
  std::string_view name;
  ArgumentValue value;
};

/// One kernel object with its bound arguments. Move-only, used by one thread.
class Kernel {
 public:
  Kernel() = default;
  Kernel(Kernel&& other) noexcept { *this = std::move(other); }
  Kernel& operator=(Kernel&& other) noexcept {
    std::swap(kernel_, other.kernel_);
    std::swap(program_, other.program_);
    std::swap(signature_, other.signature_);
    std::swap(unbound_, other.unbound_);
    std::swap(timer_, other.timer_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~Kernel() {
    if (kernel_ != nullptr) clReleaseKernel(kernel_);
  }

  const std::string& name() const { return name_; }
  explicit operator bool() const { return kernel_ != nullptr; }

  /// Whether this variant of the kernel has a parameter of that name.
  bool Has(std::string_view parameter) const { return kernel_ != nullptr && FindParameter(*signature_, parameter) < signature_->size(); }

  /// Binds arguments by name; they stay bound for later launches and may be bound anew by later calls. Errors: InvalidArgument naming
  /// kernel and argument: unknown, twice in one call, another type or address space than the parameter's. Those before it are bound then.
  absl::Status Bind(std::initializer_list<Arg> args);
  template <std::same_as<Arg>... Args>
  absl::Status Bind(const Args&... args) {
    return Bind({args...});
  }

 private:
  friend class Context;
  friend class Queue;
  absl::Status CheckAllBound() const;

  cl_kernel kernel_ = nullptr;
  std::shared_ptr<Program> program_;
  const KernelSignature* signature_ = nullptr;  // of program_
  uint64_t unbound_ = 0;                        // bit i: parameter i
  Context::Timer* timer_ = nullptr;
  std::string name_;
};

}  // namespace palpate::gpu
