#include "gpu/runtime/context.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "gpu/runtime/buffer.h"
#include "gpu/runtime/cl_status.h"
#include "gpu/runtime/kernel.h"

namespace palpate::gpu {
namespace {

constexpr unsigned char kGuardByte = 0xA5;

std::string BuildLog(cl_program program, cl_device_id device) {
  size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  if (size > 0) clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

std::vector<unsigned char> BinaryOf(cl_program program) {
  size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr) != CL_SUCCESS || size == 0) return {};
  std::vector<unsigned char> binary(size);
  unsigned char* target = binary.data();
  if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(target), &target, nullptr) != CL_SUCCESS) return {};
  return binary;
}

// Whether programs are left to the cache of the driver, by $PALPATE_PROGRAM_BINARIES = off. Asked for a program's binary, PoCL compiles
// each of its kernels for groups of any size, besides those for the sizes in use: half of a first start. Without the binary it writes
// temporary files at each start, and a disk that is full then ends the process, so servers do ask.
bool LeavesProgramsToDriver() {
  const char* const binaries = std::getenv("PALPATE_PROGRAM_BINARIES");
  return binaries != nullptr && std::string_view(binaries) == "off";
}

// What the cache keeps of a program: the length of its signatures as text, that text, the driver's binary (empty if it is left to it).
using CacheEntry = std::vector<unsigned char>;

CacheEntry MakeEntry(const ProgramSignatures& signatures, const std::vector<unsigned char>& binary) {
  const std::string text = ToText(signatures);
  const auto size = static_cast<uint64_t>(text.size());
  CacheEntry entry(sizeof(size) + text.size() + binary.size());
  std::memcpy(entry.data(), &size, sizeof(size));
  std::copy(text.begin(), text.end(), entry.begin() + sizeof(size));
  std::copy(binary.begin(), binary.end(), entry.end() - static_cast<std::ptrdiff_t>(binary.size()));
  return entry;
}

struct CachedProgram {
  ProgramSignatures signatures;
  std::span<const unsigned char> binary;  // part of the entry
};

std::optional<CachedProgram> SplitEntry(const CacheEntry& entry) {
  uint64_t size = 0;
  if (entry.size() < sizeof(size)) return std::nullopt;
  std::memcpy(&size, entry.data(), sizeof(size));
  if (size > entry.size() - sizeof(size)) return std::nullopt;
  const auto* text = reinterpret_cast<const char*>(entry.data() + sizeof(size));
  std::optional<ProgramSignatures> signatures = ParseSignatures({text, static_cast<size_t>(size)});
  if (!signatures) return std::nullopt;
  return CachedProgram{*std::move(signatures), std::span(entry).subspan(sizeof(size) + size)};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Context>> Context::Create(const ContextOptions& options) {
  PALPATE_ASSIGN_OR_RETURN(DeviceInfo device, SelectDevice(options.device));
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(device.platform), 0};
  cl_int code = CL_SUCCESS;
  cl_context handle = clCreateContext(properties, 1, &device.id, nullptr, nullptr, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateContext", device.name);
  std::shared_ptr<Context> context(new Context());
  context->device_ = std::move(device);
  context->context_ = handle;
  context->time_one_in_ = options.time_one_in;
  // Sub-buffers must begin at an aligned address, so the guard in front is a multiple of the alignment.
  const size_t align = std::max<size_t>(context->device_.base_address_align_bytes, 1);
  context->guard_bytes_ = (options.guard_bytes + align - 1) / align * align;
  context->cache_ = ProgramCache(options.cache_folder.has_value() ? *options.cache_folder : ProgramCache::DefaultFolder());
  return context;
}

Context::~Context() {
  programs_.clear();
  clReleaseContext(context_);
}

absl::StatusOr<std::shared_ptr<Program>> Context::BuildProgram(const KernelSource& source, const ProgramDefines& defines) {
  std::string options = "-cl-std=CL1.2 -cl-kernel-arg-info";
  if (device_.rounds_divide_and_sqrt) options += " -cl-fp32-correctly-rounded-divide-sqrt";
  for (const auto& [name, value] : defines) absl::StrAppend(&options, " -D", name, "=", value);
  const std::string memory_key =
      absl::StrCat(std::string(source.path), "\n", options, "\n", Fnv1a64(source.text), "\n", source.text.size());
  // Held while compiling, so that two threads do not compile the same program twice.
  const std::lock_guard lock(mutex_);
  if (const auto found = programs_.find(memory_key); found != programs_.end()) return found->second;

  PALPATE_ASSIGN_OR_RETURN(std::shared_ptr<Program> built, LoadOrCompile(source, options));
  programs_[memory_key] = built;
  return built;
}

absl::StatusOr<std::shared_ptr<Program>> Context::LoadOrCompile(const KernelSource& source, const std::string& options) {
  const std::string disk_key =
      absl::StrCat("program with signatures\n", device_.platform_name, "\n", device_.platform_version, "\n", device_.name, "\n",
                   device_.version, "\n", device_.driver_version, "\n", options, "\n", std::string(source.text));
  const bool left_to_driver = LeavesProgramsToDriver();
  std::optional<ProgramSignatures> known;
  if (const auto entry = cache_.Load(disk_key)) {
    if (std::optional<CachedProgram> cached = SplitEntry(*entry); cached && left_to_driver && cached->binary.empty()) {
      known = std::move(cached->signatures);
    } else if (cached && !cached->binary.empty()) {
      const unsigned char* bytes = cached->binary.data();
      const size_t size = cached->binary.size();
      cl_int status = CL_SUCCESS;
      cl_int code = CL_SUCCESS;
      cl_program program = clCreateProgramWithBinary(context_, 1, &device_.id, &size, &bytes, &status, &code);
      if (code == CL_SUCCESS)
        code = status == CL_SUCCESS ? clBuildProgram(program, 1, &device_.id, options.c_str(), nullptr, nullptr) : status;
      if (code == CL_SUCCESS) return std::make_shared<Program>(program, std::move(cached->signatures), std::string(source.path));
      if (program != nullptr) clReleaseProgram(program);  // a binary the driver no longer takes: build from source
    }
  }
  const char* text = source.text.data();
  const size_t size = source.text.size();
  cl_int code = CL_SUCCESS;
  cl_program program = clCreateProgramWithSource(context_, 1, &text, &size, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateProgramWithSource", source.path);
  code = clBuildProgram(program, 1, &device_.id, options.c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) {
    const std::string log = BuildLog(program, device_.id);
    clReleaseProgram(program);
    return Annotate(ClStatus(code, "clBuildProgram", source.path), log);
  }
  if (known) return std::make_shared<Program>(program, *std::move(known), std::string(source.path));
  programs_compiled_.fetch_add(1, std::memory_order_relaxed);
  absl::StatusOr<ProgramSignatures> signatures = ReadSignatures(program);
  if (!signatures.ok()) {
    clReleaseProgram(program);
    return Annotate(signatures.status(), source.path);
  }
  const std::vector<unsigned char> binary = left_to_driver ? std::vector<unsigned char>() : BinaryOf(program);
  // What somebody else has stored meanwhile may have a binary.
  if (left_to_driver ? !cache_.Load(disk_key) : !binary.empty()) cache_.Store(disk_key, MakeEntry(*signatures, binary));
  return std::make_shared<Program>(program, *std::move(signatures), std::string(source.path));
}

absl::StatusOr<Kernel> Context::CreateKernel(const KernelSource& source, const char* entry_point, const ProgramDefines& defines) {
  PALPATE_ASSIGN_OR_RETURN(std::shared_ptr<Program> program, BuildProgram(source, defines));
  cl_int code = CL_SUCCESS;
  Kernel kernel;
  kernel.name_ = entry_point;
  kernel.program_ = program;
  kernel.kernel_ = clCreateKernel(program->handle(), entry_point, &code);
  if (code == CL_INVALID_KERNEL_NAME) {
    return absl::NotFoundError(absl::StrCat("no kernel '", entry_point, "' in ", program->path()));
  }
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateKernel", entry_point);
  const auto signature = program->signatures().find(kernel.name_);
  if (signature == program->signatures().end()) {
    return absl::InternalError(absl::StrCat("the driver lists no kernel '", entry_point, "' in ", program->path()));
  }
  constexpr size_t kMaxParameters = 64;  // bits of unbound_
  const size_t count = signature->second.size();
  if (count > kMaxParameters) {
    return absl::UnimplementedError(absl::StrCat("kernel ", entry_point, ": ", count, " parameters exceed ", kMaxParameters));
  }
  kernel.signature_ = &signature->second;
  kernel.unbound_ = count == kMaxParameters ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  kernel.timer_ = TimerFor(kernel.name_);
  return kernel;
}

Context::Timer* Context::TimerFor(const std::string& kernel_name) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Timer>& timer = timers_[kernel_name];
  if (timer == nullptr) timer = std::make_unique<Timer>();
  return timer.get();
}

CommandCounts Context::commands() const {
  return {.launches = launches_.load(std::memory_order_relaxed),
          .transfers = transfers_.load(std::memory_order_relaxed),
          .fills = fills_.load(std::memory_order_relaxed),
          .waits = waits_.load(std::memory_order_relaxed)};
}

std::vector<KernelTime> Context::KernelTimes() const {
  const std::lock_guard lock(mutex_);
  std::vector<KernelTime> times;
  for (const auto& [name, timer] : timers_) {
    times.push_back({name, timer->launches.load(std::memory_order_relaxed),
                     static_cast<double>(timer->nanoseconds.load(std::memory_order_relaxed)) * 1e-9});
  }
  return times;
}

void Context::AddAllocation(size_t bytes) {
  const size_t now = allocated_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  size_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

absl::Status Context::CheckGuards() {
  const std::lock_guard lock(mutex_);
  if (!guard_damage_.ok()) return std::exchange(guard_damage_, absl::OkStatus());
  if (guarded_buffers_.empty()) return absl::OkStatus();
  cl_int code = CL_SUCCESS;
  cl_command_queue queue = clCreateCommandQueue(context_, device_.id, 0, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateCommandQueue", "guard check");
  absl::Status status;
  for (const RawBuffer* buffer : guarded_buffers_) {
    status = buffer->VerifyGuards(queue);
    if (!status.ok()) break;
  }
  clReleaseCommandQueue(queue);
  return status;
}

absl::StatusOr<std::unique_ptr<RawBuffer>> RawBuffer::Create(std::shared_ptr<Context> context, size_t size_bytes, std::string name) {
  if (size_bytes > context->device_.max_allocation_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("buffer ", name, ": ", size_bytes, " bytes exceed the device's largest allocation of ",
                                                     context->device_.max_allocation_bytes, " bytes"));
  }
  std::unique_ptr<RawBuffer> buffer(new RawBuffer());
  buffer->guard_bytes_ = context->guard_bytes_;
  buffer->size_bytes_ = size_bytes;
  buffer->allocated_bytes_ = size_bytes + 2 * buffer->guard_bytes_;
  buffer->name_ = std::move(name);
  const std::string what = absl::StrCat(buffer->name_, ", ", size_bytes, " bytes");
  cl_int code = CL_SUCCESS;
  buffer->allocation_ = clCreateBuffer(context->context_, CL_MEM_READ_WRITE, buffer->allocated_bytes_, nullptr, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateBuffer", what);
  buffer->context_ = context;
  context->AddAllocation(buffer->allocated_bytes_);
  buffer->data_ = buffer->allocation_;
  if (buffer->guard_bytes_ == 0) return buffer;

  const cl_buffer_region region{buffer->guard_bytes_, size_bytes};
  buffer->data_ = clCreateSubBuffer(buffer->allocation_, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateSubBuffer", what);
  cl_command_queue queue = clCreateCommandQueue(context->context_, context->device_.id, 0, &code);
  PALPATE_CL_RETURN_IF_ERROR(code, "clCreateCommandQueue", what);
  const std::vector<unsigned char> pattern(buffer->allocated_bytes_, kGuardByte);
  code = clEnqueueWriteBuffer(queue, buffer->allocation_, CL_TRUE, 0, pattern.size(), pattern.data(), 0, nullptr, nullptr);
  clReleaseCommandQueue(queue);
  PALPATE_CL_RETURN_IF_ERROR(code, "clEnqueueWriteBuffer", what);
  const std::lock_guard lock(context->mutex_);
  context->guarded_buffers_.insert(buffer.get());
  return buffer;
}

RawBuffer::~RawBuffer() {
  if (context_ == nullptr) return;
  if (guard_bytes_ != 0) {
    // Damage must not vanish with the buffer: the next CheckGuards reports it.
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = clCreateCommandQueue(context_->context_, context_->device_.id, 0, &code);
    const std::lock_guard lock(context_->mutex_);
    if (context_->guarded_buffers_.erase(this) != 0 && code == CL_SUCCESS) context_->guard_damage_.Update(VerifyGuards(queue));
    if (code == CL_SUCCESS) clReleaseCommandQueue(queue);
  }
  if (data_ != nullptr && data_ != allocation_) clReleaseMemObject(data_);
  clReleaseMemObject(allocation_);
  context_->RemoveAllocation(allocated_bytes_);
}

absl::Status RawBuffer::VerifyGuards(cl_command_queue queue) const {
  std::vector<unsigned char> bytes(guard_bytes_);
  for (const bool behind : {false, true}) {
    const size_t offset = behind ? guard_bytes_ + size_bytes_ : 0;
    PALPATE_CL_RETURN_IF_ERROR(clEnqueueReadBuffer(queue, allocation_, CL_TRUE, offset, bytes.size(), bytes.data(), 0, nullptr, nullptr),
                               "clEnqueueReadBuffer", name_);
    const auto damaged = std::find_if(bytes.begin(), bytes.end(), [](unsigned char b) { return b != kGuardByte; });
    if (damaged != bytes.end()) {
      return absl::InvalidArgumentError(absl::StrCat("buffer ", name_, " (", size_bytes_, " bytes) was written ",
                                                     behind ? damaged - bytes.begin() + 1 : bytes.end() - damaged, " bytes ",
                                                     behind ? "behind its end" : "before its begin"));
    }
  }
  return absl::OkStatus();
}

}  // namespace palpate::gpu
