#include "tests/native_kernels/native_runtime.h"

#include <CL/cl.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

// This file is compiled without instrumentation, or the harness would be checked in the place of the kernels; PALPATE_ASAN and PALPATE_TSAN
// say what the kernels get.

#include "gpu/runtime/program_cache.h"

#ifdef PALPATE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef PALPATE_TSAN
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

#ifdef PALPATE_ASAN
// The project's libraries are not instrumented, so annotations of containers that cross the border would be wrong.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() { return "detect_container_overflow=0"; }
#endif
#ifdef PALPATE_TSAN
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() { return "halt_on_error=1"; }
#endif

namespace {

constexpr size_t kStackBytes = 512 * 1024;
constexpr size_t kWidestGroup = 256;
// Work-items of kernels without groups that ThreadSanitizer sees as concurrent.
constexpr size_t kConcurrentItems = 16;

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "native kernels: %s\n", message.c_str());
  std::abort();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// --- Work-items -------------------------------------------------------------------------------------------------------------------------

struct WorkItem {
  size_t global_id = 0, local_id = 0, group_id = 0, global_size = 0, local_size = 0, group_count = 0;
};
WorkItem current_item;

using Call = void (*)(void** arguments);

// Saves the registers a function must keep and the stack pointer (to *from), and goes on where `to` was saved. swapcontext would do, but it
// asks the kernel for the signal mask, and AddressSanitizer clears its shadow of the whole stack each time.
extern "C" void palpate_switch_stack(void** from, void* to);
__asm__(R"(
  .text
  .globl palpate_switch_stack
  .type palpate_switch_stack, @function
palpate_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size palpate_switch_stack, .-palpate_switch_stack
)");

// One suspended work-item. The fibers of a group take turns at barriers, always in the order of the work-items.
struct Fiber {
  void* stack_pointer = nullptr;  // while suspended
  void* stack = nullptr;
  bool is_done = true;
  unsigned barrier_count = 0;
#ifdef PALPATE_ASAN
  void* fake_stack = nullptr;
#endif
#ifdef PALPATE_TSAN
  void* tsan = nullptr;
#endif
};

class Fibers {
 public:
  // Runs one group. Its work-items see what was written before, and what follows sees their writes.
  void RunGroup(Call call, void** arguments, const WorkItem& first) {
    call_ = call;
    arguments_ = arguments;
    const size_t count = first.local_size;
    if (fibers_.size() < count) fibers_.resize(count);
    Release(&begin_);
    for (size_t i = 0; i < count; ++i) Start(fibers_[i]);
    for (size_t done = 0; done < count;) {
      size_t waiting = 0;
      for (size_t i = 0; i < count; ++i) {
        if (fibers_[i].is_done) continue;
        current_item = first;
        current_item.local_id = i;
        current_item.global_id = first.global_id + i;
        Resume(fibers_[i]);
        fibers_[i].is_done ? ++done : ++waiting;
      }
      if (waiting != 0 && done != 0) Die("a barrier was reached by some work-items of a group only");
    }
    Acquire(&end_);
  }

  // Runs groups of one work-item as a few threads would that know nothing of each other.
  void RunIndependent(Call call, void** arguments, const WorkItem& first) {
    call_ = call;
    arguments_ = arguments;
    if (fibers_.size() < kConcurrentItems) fibers_.resize(kConcurrentItems);
    Release(&begin_);
    current_item = first;
    for (size_t g = 0; g < first.group_count; ++g) {
      current_item.global_id = current_item.group_id = g;
      Fiber& fiber = fibers_[g % kConcurrentItems];
      Start(fiber);
      Resume(fiber);
    }
    Acquire(&end_);
  }

  void Barrier() {
    // Two marks in turn: a work-item that has passed this barrier may reach the next one before others wake up from this one.
    char* const mark = &barriers_[running_->barrier_count++ % 2];
    Release(mark);
    Suspend(false);
    Acquire(mark);
  }

  static Fibers& Instance() {
    static Fibers fibers;
    return fibers;
  }

 private:
  Fibers() { fibers_.reserve(kWidestGroup); }

  // What happened before Release is known after Acquire of the same mark.
  static void Release([[maybe_unused]] char* mark) {
#ifdef PALPATE_TSAN
    __tsan_release(mark);
#endif
  }
  static void Acquire([[maybe_unused]] char* mark) {
#ifdef PALPATE_TSAN
    __tsan_acquire(mark);
#endif
  }

  void Start(Fiber& fiber) {
    if (fiber.stack == nullptr) {
      fiber.stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (fiber.stack == MAP_FAILED) Die("no memory for the stack of a work-item");
#ifdef PALPATE_TSAN
      fiber.tsan = __tsan_create_fiber(0);
#endif
    }
    // As if palpate_switch_stack had been called from the begin of Entry: its return address, and six saved registers below.
    auto** top = reinterpret_cast<void**>(static_cast<char*>(fiber.stack) + kStackBytes) - 2;
    *top = reinterpret_cast<void*>(&Fibers::Entry);
    fiber.stack_pointer = top - 6;
    fiber.is_done = false;
    fiber.barrier_count = 0;
#ifdef PALPATE_ASAN
    fiber.fake_stack = nullptr;
#endif
  }

  static void Entry() {
    Fibers& self = Instance();
#ifdef PALPATE_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &self.main_stack_, &self.main_stack_bytes_);
#endif
    Acquire(&self.begin_);
    self.call_(self.arguments_);
    Release(&self.end_);
    self.running_->is_done = true;
    self.Suspend(true);
  }

  __attribute__((no_sanitize("thread"))) void Resume(Fiber& fiber) {
    running_ = &fiber;
#ifdef PALPATE_ASAN
    __sanitizer_start_switch_fiber(&main_fake_stack_, fiber.stack, kStackBytes);
#endif
#ifdef PALPATE_TSAN
    main_tsan_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.tsan, 1);  // 1: no synchronisation, as between threads
#endif
    palpate_switch_stack(&main_stack_pointer_, fiber.stack_pointer);
#ifdef PALPATE_ASAN
    __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
  }

  __attribute__((no_sanitize("thread"))) void Suspend(bool is_last) {
    Fiber& fiber = *running_;
#ifdef PALPATE_ASAN
    __sanitizer_start_switch_fiber(is_last ? nullptr : &fiber.fake_stack, main_stack_, main_stack_bytes_);
#else
    (void)is_last;
#endif
#ifdef PALPATE_TSAN
    __tsan_switch_to_fiber(main_tsan_, 1);
#endif
    palpate_switch_stack(&fiber.stack_pointer, main_stack_pointer_);
#ifdef PALPATE_ASAN
    __sanitizer_finish_switch_fiber(fiber.fake_stack, &main_stack_, &main_stack_bytes_);
#endif
  }

  char begin_ = 0, end_ = 0, barriers_[2] = {};
  std::vector<Fiber> fibers_;
  void* main_stack_pointer_ = nullptr;
  Fiber* running_ = nullptr;
  Call call_ = nullptr;
  void** arguments_ = nullptr;
#ifdef PALPATE_ASAN
  void* main_fake_stack_ = nullptr;
  const void* main_stack_ = nullptr;
  size_t main_stack_bytes_ = 0;
#endif
#ifdef PALPATE_TSAN
  void* main_tsan_ = nullptr;
#endif
};

}  // namespace

// Called by native_builtins.cl.
extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) unsigned long palpate_native_query(unsigned what,
                                                                                                            unsigned dimension) {
  if (dimension != 0) return what >= 3 ? 1 : 0;
  const size_t values[] = {current_item.global_id,   current_item.local_id,   current_item.group_id,
                           current_item.global_size, current_item.local_size, current_item.group_count};
  return values[what];
}

extern "C" __attribute__((visibility("default"))) void palpate_native_barrier() {
  if (current_item.local_size == 1) return;
  const WorkItem mine = current_item;
  Fibers::Instance().Barrier();
  current_item = mine;
}

// --- Objects ----------------------------------------------------------------------------------------------------------------------------

struct _cl_platform_id {};
struct _cl_device_id {};
struct _cl_event {
  cl_ulong begin_ns, end_ns;
  int references = 1;
};
struct _cl_context {};
struct _cl_command_queue {
  bool profiling = false;
};

struct _cl_mem {
  char* data = nullptr;
  size_t size = 0;
  cl_mem parent = nullptr;
  // Of a parent: the part outside [inner_begin, inner_end) is poisoned for kernels.
  size_t inner_begin = 0, inner_end = 0;
  int references = 1;

  void Poison() const {
#ifdef PALPATE_ASAN
    if (inner_end == 0) return;
    __asan_poison_memory_region(data, inner_begin);
    __asan_poison_memory_region(data + inner_end, size - inner_end);
#endif
  }
  void Unpoison() const {
#ifdef PALPATE_ASAN
    if (inner_end != 0) __asan_unpoison_memory_region(data, size);
#endif
  }
};

namespace {

enum class ArgumentKind { kBuffer, kLocal, kValue };
struct Argument {
  ArgumentKind kind;
  std::string type;
  std::string name;
};
struct EntryPoint {
  std::vector<Argument> arguments;
  bool uses_local_memory = false;
  Call call = nullptr;
  unsigned long (*size)(unsigned) = nullptr;
  std::atomic<uint64_t> launches{0};
};

std::mutex registry_mutex;
std::map<std::pair<std::string, std::string>, uint64_t> registry;  // (file, kernel) -> launches

// Leaves a line for each kernel that was launched in $PALPATE_NATIVE_LAUNCHES, for check_coverage.py.
struct LaunchWriter {
  ~LaunchWriter() {
    const char* path = std::getenv("PALPATE_NATIVE_LAUNCHES");
    if (path == nullptr) return;
    std::ofstream file(path);
    for (const auto& [key, launches] : registry) {
      if (launches > 0) file << key.first << " " << key.second << "\n";
    }
  }
} launch_writer;

}  // namespace

struct _cl_program {
  std::string source, log, file;
  void* library = nullptr;
  std::map<std::string, std::unique_ptr<EntryPoint>> entry_points;
  int references = 1;
};

// As aligned as the widest vector type.
struct alignas(128) ArgumentBlock {
  unsigned char bytes[128];
};

struct _cl_kernel {
  cl_program program = nullptr;
  EntryPoint* entry_point = nullptr;
  std::string name;
  std::vector<std::vector<ArgumentBlock>> values;
  std::vector<size_t> local_bytes;
  std::vector<bool> is_set;
};

namespace {

_cl_platform_id the_platform;
_cl_device_id the_device;

// --- Compiling --------------------------------------------------------------------------------------------------------------------------

bool IsWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Position of `word` as a whole word at or after `from`, npos if none.
size_t FindWord(const std::string& text, const std::string& word, size_t from) {
  for (size_t at = text.find(word, from); at != std::string::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !IsWordCharacter(text[at - 1])) && !IsWordCharacter(text[at + word.size()])) return at;
  }
  return std::string::npos;
}

bool HasWord(const std::string& text, const std::string& word) { return FindWord(text, word, 0) != std::string::npos; }

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// Index behind the bracket that closes the one at `open`.
size_t Closing(const std::string& text, size_t open, char left, char right) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == left ? 1 : text[i] == right ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return text.size();
}

// The kernels of a preprocessed program.
std::map<std::string, std::unique_ptr<EntryPoint>> FindKernels(const std::string& text) {
  std::map<std::string, std::unique_ptr<EntryPoint>> found;
  for (const char* keyword : {"kernel", "__kernel"}) {
    for (size_t at = FindWord(text, keyword, 0); at != std::string::npos; at = FindWord(text, keyword, at + 1)) {
      const size_t type = FindWord(text, "void", at);
      const size_t open = type == std::string::npos ? type : text.find('(', type);
      if (open == std::string::npos) break;
      const std::string name = Trim(text.substr(type + 4, open - type - 4));
      const size_t close = Closing(text, open, '(', ')');
      const size_t body = text.find_first_not_of(" \t\n", close);
      if (body == std::string::npos || text[body] != '{') continue;  // a declaration
      auto entry = std::make_unique<EntryPoint>();
      const std::string body_text = text.substr(body, Closing(text, body, '{', '}') - body);
      entry->uses_local_memory = HasWord(body_text, "local") || HasWord(body_text, "__local");
      std::stringstream arguments(text.substr(open + 1, close - open - 2));
      for (std::string argument; std::getline(arguments, argument, ',');) {
        // Line markers of the preprocessor may stand between arguments.
        std::stringstream lines(argument);
        std::string clean;
        for (std::string line; std::getline(lines, line);) {
          if (line.empty() || line[0] != '#') clean += line + " ";
        }
        clean = Trim(clean);
        size_t name_begin = clean.size();
        while (name_begin > 0 && IsWordCharacter(clean[name_begin - 1])) --name_begin;
        Argument parsed{ArgumentKind::kValue, Trim(clean.substr(0, name_begin)), clean.substr(name_begin)};
        if (parsed.type.find('*') != std::string::npos) {
          const bool is_local = HasWord(clean, "local") || HasWord(clean, "__local");
          parsed.kind = is_local ? ArgumentKind::kLocal : ArgumentKind::kBuffer;
          if (is_local) entry->uses_local_memory = true;
        }
        entry->arguments.push_back(std::move(parsed));
      }
      found[name] = std::move(entry);
    }
  }
  return found;
}

// Functions with one signature for all kernels: the call, and the sizes of the arguments.
std::string Trampolines(const std::map<std::string, std::unique_ptr<EntryPoint>>& entry_points) {
  std::string text = "\n#line 1 \"trampolines\"\n";
  for (const auto& [name, entry] : entry_points) {
    std::string call;
    std::string sizes;
    for (size_t i = 0; i < entry->arguments.size(); ++i) {
      const std::string& type = entry->arguments[i].type;
      const std::string index = std::to_string(i);
      call += std::string(i == 0 ? "" : ", ") + "*(" + type + "*)a[" + index + "]";
      sizes += " case " + index + ": return sizeof(" + type + ");";
    }
    text += "void palpate_call_" + name + "(void** a) { " + name + "(" + call + "); }\n";
    text += "ulong palpate_size_" + name + "(uint i) { switch (i) {" + sizes + " } return 0; }\n";
  }
  return text;
}

// Runs `command`, both outputs to `log`.
bool Execute(const std::string& command, const std::string& log_file, std::string* log) {
  const int status = std::system((command + " >'" + log_file + "' 2>&1").c_str());
  *log = ReadFile(log_file);
  return status == 0;
}

// Folders of compiled programs. They stay until the end: sanitizers look up source lines in the libraries.
class Folders {
 public:
  std::string New() {
    const char* base = std::getenv("TMPDIR");
    std::string folder = std::string(base != nullptr ? base : "/tmp") + "/palpate_native_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) Die("cannot make " + folder);
    const std::lock_guard lock(mutex_);
    folders_.push_back(folder);
    return folder;
  }
  ~Folders() {
    std::error_code ignored;
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder, ignored);
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> folders_;
};

std::string NewFolder() {
  static Folders folders;
  return folders.New();
}

// What other programs of this kind have compiled, in $PALPATE_NATIVE_CACHE: most share most kernels, and compiling them takes longer than
// they run. Each gets a copy, as libraries of one path would be one.
class CompiledLibraries {
 public:
  bool Load(const std::string& key, const std::string& library) const {
    const auto bytes = cache_.Load(key);
    if (!bytes) return false;
    std::ofstream file(library, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
    return file.flush().good();
  }
  void Store(const std::string& key, const std::string& library) const {
    const std::string bytes = ReadFile(library);
    cache_.Store(key, {bytes.begin(), bytes.end()});
  }

 private:
  static std::string Folder() {
    const char* const folder = std::getenv("PALPATE_NATIVE_CACHE");
    return folder != nullptr ? folder : "";
  }
  const palpate::gpu::ProgramCache cache_{Folder()};
};

cl_int Build(cl_program program, const std::string& options) {
  const std::string folder = NewFolder();
  const std::string source = folder + "/program.cl";
  const std::string preprocessed = folder + "/preprocessed.cl";
  const std::string library = folder + "/program.so";
  const std::string log_file = folder + "/log";
  // The options of clBuildProgram that clang itself takes are -D and -cl-std; the others are for the device's compiler.
  std::string flags = " -x cl -D__OPENCL_VERSION__=120 --target=x86_64-pc-linux-gnu -Wno-psabi";
  std::stringstream words(options);
  for (std::string word; words >> word;) {
    if (word.rfind("-D", 0) == 0 || word.rfind("-cl-std=", 0) == 0) flags += " '" + word + "'";
  }
  std::ofstream(source) << program->source;
  cl_int result = CL_BUILD_PROGRAM_FAILURE;
  // From inside the folder, so that its name, which is new each time, is not in the text.
  const std::string compiler = "cd '" + folder + "' && '" PALPATE_NATIVE_COMPILER "'" + flags;
  if (Execute(compiler + " -E program.cl -o preprocessed.cl", log_file, &program->log)) {
    const std::string text = ReadFile(preprocessed);
    program->entry_points = FindKernels(text);
    // Built-ins after the program's own macros would be changed by them, so they come first.
    std::ofstream(source) << ReadFile(PALPATE_NATIVE_BUILTINS) << "\n#line 1 \"program\"\n" << text << Trampolines(program->entry_points);
    const std::string how =
        " -Xclang -finclude-default-header -gline-tables-only -fPIC -shared -ffp-contract=off -fno-omit-frame-pointer "
        "-Wl,-Bsymbolic " PALPATE_NATIVE_FLAGS;
    static const CompiledLibraries compiled;
    const std::string key = flags + how + "\n" PALPATE_NATIVE_COMPILER "\n" __VERSION__ "\n" + ReadFile(source);
    bool is_compiled = compiled.Load(key, library);
    if (!is_compiled && Execute(compiler + how + " program.cl -o program.so -lm", log_file, &program->log)) {
      is_compiled = true;
      compiled.Store(key, library);
    }
    if (is_compiled) {
      program->library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (program->library == nullptr) Die(std::string("dlopen: ") + dlerror());
      result = CL_SUCCESS;
      for (auto& [name, entry] : program->entry_points) {
        entry->call = reinterpret_cast<Call>(dlsym(program->library, ("palpate_call_" + name).c_str()));
        entry->size = reinterpret_cast<unsigned long (*)(unsigned)>(dlsym(program->library, ("palpate_size_" + name).c_str()));
        if (entry->call == nullptr || entry->size == nullptr) Die("no trampoline of " + name);
        const std::lock_guard lock(registry_mutex);
        registry.try_emplace({program->file, name}, 0);
      }
    }
  }
  return result;
}

cl_int TextInfo(const std::string& text, size_t size, void* value, size_t* size_out) {
  if (size_out != nullptr) *size_out = text.size() + 1;
  if (value == nullptr) return CL_SUCCESS;
  if (size < text.size() + 1) return CL_INVALID_VALUE;
  std::memcpy(value, text.c_str(), text.size() + 1);
  return CL_SUCCESS;
}

// "const __global float4* restrict" -> "float4*": what drivers answer.
std::string WithoutQualifiers(const std::string& type) {
  std::stringstream words(type);
  std::string plain;
  for (std::string word; words >> word;) {
    static const std::set<std::string> kQualifiers = {"const",   "volatile", "restrict", "global",     "local",    "constant",
                                                      "private", "__global", "__local",  "__constant", "__private"};
    if (!kQualifiers.contains(word)) plain += (plain.empty() ? "" : " ") + word;
  }
  return plain;
}

template <typename T>
cl_int ValueInfo(T result, size_t size, void* value, size_t* size_out) {
  if (size_out != nullptr) *size_out = sizeof(T);
  if (value == nullptr) return CL_SUCCESS;
  if (size < sizeof(T)) return CL_INVALID_VALUE;
  std::memcpy(value, &result, sizeof(T));
  return CL_SUCCESS;
}

template <typename T>
T Report(T object, cl_int* code) {
  if (code != nullptr) *code = CL_SUCCESS;
  return object;
}

// Device commands run one at a time.
std::mutex command_mutex;

const _cl_mem& Root(const _cl_mem& buffer) { return buffer.parent == nullptr ? buffer : *buffer.parent; }

// Copies of the host see the whole of a buffer, guard bands included.
class HostAccess {
 public:
  explicit HostAccess(cl_mem buffer) : buffer_(buffer) {
    if (buffer->parent == nullptr) buffer->Unpoison();
  }
  ~HostAccess() {
    if (buffer_->parent == nullptr) buffer_->Poison();
  }
  HostAccess(const HostAccess&) = delete;
  HostAccess& operator=(const HostAccess&) = delete;

 private:
  cl_mem buffer_;
};

void SetEvent(cl_event* event) {
  if (event != nullptr) *event = new _cl_event{1, 1001};
}

}  // namespace

namespace palpate::native {

std::vector<LaunchRecord> Launches() {
  const std::lock_guard lock(registry_mutex);
  std::vector<LaunchRecord> records;
  for (const auto& [key, launches] : registry) records.push_back({key.first, key.second, launches});
  return records;
}

}  // namespace palpate::native

// --- The calls --------------------------------------------------------------------------------------------------------------------------

extern "C" {

cl_int clGetPlatformIDs(cl_uint, cl_platform_id* platforms, cl_uint* count) {
  if (platforms != nullptr) platforms[0] = &the_platform;
  if (count != nullptr) *count = 1;
  return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id, cl_platform_info what, size_t size, void* value, size_t* size_out) {
  return TextInfo(what == CL_PLATFORM_VERSION ? "OpenCL 1.2 native" : "Native kernels", size, value, size_out);
}

cl_int clGetDeviceIDs(cl_platform_id, cl_device_type, cl_uint, cl_device_id* devices, cl_uint* count) {
  if (devices != nullptr) devices[0] = &the_device;
  if (count != nullptr) *count = 1;
  return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id, cl_device_info what, size_t size, void* value, size_t* size_out) {
  switch (what) {
    case CL_DEVICE_TYPE:
      return ValueInfo<cl_device_type>(CL_DEVICE_TYPE_CPU, size, value, size_out);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      return ValueInfo<cl_uint>(2, size, value, size_out);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
      return ValueInfo<cl_ulong>(cl_ulong{1} << 32, size, value, size_out);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      return ValueInfo<cl_ulong>(cl_ulong{1} << 30, size, value, size_out);
    case CL_DEVICE_LOCAL_MEM_SIZE:
      return ValueInfo<cl_ulong>(1 << 16, size, value, size_out);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
      return ValueInfo<size_t>(kWidestGroup, size, value, size_out);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
      return ValueInfo<cl_uint>(1024, size, value, size_out);
    case CL_DEVICE_EXTENSIONS:
      return TextInfo("cl_khr_fp64", size, value, size_out);
    default:
      return TextInfo("native", size, value, size_out);
  }
}

cl_context clCreateContext(const cl_context_properties*, cl_uint, const cl_device_id*,
                           void(CL_CALLBACK*)(const char*, const void*, size_t, void*), void*, cl_int* code) {
  return Report(new _cl_context(), code);
}
cl_int clReleaseContext(cl_context context) {
  delete context;
  return CL_SUCCESS;
}

cl_command_queue clCreateCommandQueue(cl_context, cl_device_id, cl_command_queue_properties properties, cl_int* code) {
  auto* queue = new _cl_command_queue();
  queue->profiling = (properties & CL_QUEUE_PROFILING_ENABLE) != 0;
  return Report(queue, code);
}
cl_int clReleaseCommandQueue(cl_command_queue queue) {
  delete queue;
  return CL_SUCCESS;
}
cl_int clFlush(cl_command_queue) { return CL_SUCCESS; }
cl_int clFinish(cl_command_queue) { return CL_SUCCESS; }

cl_mem clCreateBuffer(cl_context, cl_mem_flags, size_t size, void*, cl_int* code) {
  void* data = nullptr;
  if (size == 0 || posix_memalign(&data, 128, size) != 0) {
    *code = size == 0 ? CL_INVALID_BUFFER_SIZE : CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  }
  std::memset(data, 0xCD, size);  // contents of a new buffer are undefined: let them be seen
  auto* buffer = new _cl_mem();
  buffer->data = static_cast<char*>(data);
  buffer->size = size;
  return Report(buffer, code);
}

cl_mem clCreateSubBuffer(cl_mem parent, cl_mem_flags, cl_buffer_create_type, const void* info, cl_int* code) {
  const auto* region = static_cast<const cl_buffer_region*>(info);
  if (parent->parent != nullptr || parent->inner_end != 0 || region->origin + region->size > parent->size) {
    *code = CL_INVALID_VALUE;
    return nullptr;
  }
  auto* buffer = new _cl_mem();
  buffer->data = parent->data + region->origin;
  buffer->size = region->size;
  buffer->parent = parent;
  ++parent->references;
  parent->inner_begin = region->origin;
  parent->inner_end = region->origin + region->size;
  parent->Poison();
  return Report(buffer, code);
}

cl_int clReleaseMemObject(cl_mem buffer) {
  if (--buffer->references > 0) return CL_SUCCESS;
  if (buffer->parent != nullptr) {
    clReleaseMemObject(buffer->parent);
  } else {
    buffer->Unpoison();
    std::free(buffer->data);
  }
  delete buffer;
  return CL_SUCCESS;
}

void* clEnqueueMapBuffer(cl_command_queue, cl_mem buffer, cl_bool, cl_map_flags, size_t offset, size_t size, cl_uint, const cl_event*,
                         cl_event* event, cl_int* code) {
  if (offset > buffer->size || size > buffer->size - offset) {
    *code = CL_INVALID_VALUE;
    return nullptr;
  }
  SetEvent(event);
  *code = CL_SUCCESS;
  return buffer->data + offset;
}

cl_int clEnqueueUnmapMemObject(cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event* event) {
  SetEvent(event);
  return CL_SUCCESS;
}

cl_int clEnqueueReadBuffer(cl_command_queue, cl_mem buffer, cl_bool, size_t offset, size_t size, void* target, cl_uint, const cl_event*,
                           cl_event* event) {
  if (offset > buffer->size || size > buffer->size - offset) return CL_INVALID_VALUE;
  const std::lock_guard lock(command_mutex);
  const HostAccess access(buffer);
  std::memcpy(target, buffer->data + offset, size);
  SetEvent(event);
  return CL_SUCCESS;
}

cl_int clEnqueueWriteBuffer(cl_command_queue, cl_mem buffer, cl_bool, size_t offset, size_t size, const void* source, cl_uint,
                            const cl_event*, cl_event* event) {
  if (offset > buffer->size || size > buffer->size - offset) return CL_INVALID_VALUE;
  const std::lock_guard lock(command_mutex);
  const HostAccess access(buffer);
  std::memcpy(buffer->data + offset, source, size);
  SetEvent(event);
  return CL_SUCCESS;
}

cl_int clEnqueueFillBuffer(cl_command_queue, cl_mem buffer, const void* pattern, size_t pattern_size, size_t offset, size_t size, cl_uint,
                           const cl_event*, cl_event* event) {
  if (offset > buffer->size || size > buffer->size - offset || pattern_size == 0 || offset % pattern_size != 0 ||
      size % pattern_size != 0) {
    return CL_INVALID_VALUE;
  }
  const std::lock_guard lock(command_mutex);
  for (size_t i = 0; i < size; i += pattern_size) std::memcpy(buffer->data + offset + i, pattern, pattern_size);
  SetEvent(event);
  return CL_SUCCESS;
}

cl_int clEnqueueCopyBuffer(cl_command_queue, cl_mem source, cl_mem target, size_t source_offset, size_t target_offset, size_t size, cl_uint,
                           const cl_event*, cl_event* event) {
  if (source_offset > source->size || size > source->size - source_offset || target_offset > target->size ||
      size > target->size - target_offset) {
    return CL_INVALID_VALUE;
  }
  const char* from = source->data + source_offset;
  char* to = target->data + target_offset;
  if (from < to + size && to < from + size && &Root(*source) == &Root(*target)) return CL_MEM_COPY_OVERLAP;
  const std::lock_guard lock(command_mutex);
  std::memcpy(to, from, size);
  SetEvent(event);
  return CL_SUCCESS;
}

cl_program clCreateProgramWithSource(cl_context, cl_uint count, const char** texts, const size_t* sizes, cl_int* code) {
  auto* program = new _cl_program();
  for (cl_uint i = 0; i < count; ++i) {
    program->source += sizes != nullptr && sizes[i] != 0 ? std::string(texts[i], sizes[i]) : std::string(texts[i]);
  }
  // Embedded kernels begin with #line 1 "file".
  const size_t begin = program->source.find('"');
  if (program->source.rfind("#line 1 \"", 0) == 0) {
    program->file = program->source.substr(begin + 1, program->source.find('"', begin + 1) - begin - 1);
  }
  return Report(program, code);
}
cl_program clCreateProgramWithBinary(cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char**, cl_int*,
                                     cl_int* code) {
  *code = CL_INVALID_BINARY;
  return nullptr;
}
cl_int clBuildProgram(cl_program program, cl_uint, const cl_device_id*, const char* options, void(CL_CALLBACK*)(cl_program, void*), void*) {
  return Build(program, options == nullptr ? "" : options);
}
cl_int clGetProgramBuildInfo(cl_program program, cl_device_id, cl_program_build_info, size_t size, void* value, size_t* size_out) {
  return TextInfo(program->log, size, value, size_out);
}
cl_int clGetProgramInfo(cl_program program, cl_program_info what, size_t size, void* value, size_t* size_out) {
  if (what != CL_PROGRAM_KERNEL_NAMES) return CL_INVALID_VALUE;  // there are no binaries
  std::string names;
  for (const auto& [name, entry_point] : program->entry_points) names += (names.empty() ? "" : ";") + name;
  return TextInfo(names, size, value, size_out);
}
cl_int clReleaseProgram(cl_program program) {
  // The library stays loaded: reports of sanitizers at the end of the program still need its symbols.
  if (--program->references == 0) delete program;
  return CL_SUCCESS;
}

cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* code) {
  const auto found = program->entry_points.find(name);
  if (found == program->entry_points.end()) {
    *code = CL_INVALID_KERNEL_NAME;
    return nullptr;
  }
  auto* kernel = new _cl_kernel();
  kernel->program = program;
  ++program->references;
  kernel->entry_point = found->second.get();
  kernel->name = name;
  const size_t count = kernel->entry_point->arguments.size();
  kernel->values.resize(count);
  kernel->local_bytes.resize(count);
  kernel->is_set.resize(count);
  return Report(kernel, code);
}
cl_int clReleaseKernel(cl_kernel kernel) {
  clReleaseProgram(kernel->program);
  delete kernel;
  return CL_SUCCESS;
}

cl_int clGetKernelInfo(cl_kernel kernel, cl_kernel_info what, size_t size, void* value, size_t* size_out) {
  if (what != CL_KERNEL_NUM_ARGS) return CL_INVALID_VALUE;
  return ValueInfo(static_cast<cl_uint>(kernel->values.size()), size, value, size_out);
}
cl_int clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_kernel_arg_info what, size_t size, void* value, size_t* size_out) {
  if (index >= kernel->values.size()) return CL_INVALID_ARG_INDEX;
  const Argument& argument = kernel->entry_point->arguments[index];
  switch (what) {
    case CL_KERNEL_ARG_NAME:
      return TextInfo(argument.name, size, value, size_out);
    case CL_KERNEL_ARG_TYPE_NAME:
      return TextInfo(WithoutQualifiers(argument.type), size, value, size_out);
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
      return ValueInfo<cl_kernel_arg_address_qualifier>(argument.kind == ArgumentKind::kValue   ? CL_KERNEL_ARG_ADDRESS_PRIVATE
                                                        : argument.kind == ArgumentKind::kLocal ? CL_KERNEL_ARG_ADDRESS_LOCAL
                                                                                                : CL_KERNEL_ARG_ADDRESS_GLOBAL,
                                                        size, value, size_out);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  if (index >= kernel->values.size()) return CL_INVALID_ARG_INDEX;
  switch (kernel->entry_point->arguments[index].kind) {
    case ArgumentKind::kLocal:
      if (value != nullptr) return CL_INVALID_ARG_VALUE;
      if (size == 0) return CL_INVALID_ARG_SIZE;
      kernel->local_bytes[index] = size;
      break;
    case ArgumentKind::kBuffer: {
      if (size != sizeof(cl_mem)) return CL_INVALID_ARG_SIZE;
      cl_mem buffer = nullptr;
      if (value != nullptr) std::memcpy(&buffer, value, sizeof(buffer));
      void* data = buffer == nullptr ? nullptr : buffer->data;
      kernel->values[index].resize(1);
      std::memcpy(kernel->values[index].data(), &data, sizeof(data));
      break;
    }
    case ArgumentKind::kValue:
      if (size != kernel->entry_point->size(index)) return CL_INVALID_ARG_SIZE;
      kernel->values[index].resize((size + sizeof(ArgumentBlock) - 1) / sizeof(ArgumentBlock));
      std::memcpy(kernel->values[index].data(), value, size);
      break;
  }
  kernel->is_set[index] = true;
  return CL_SUCCESS;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue, cl_kernel kernel, cl_uint dimensions, const size_t*, const size_t* global,
                              const size_t* local, cl_uint, const cl_event*, cl_event* event) {
  if (dimensions != 1) return CL_INVALID_WORK_DIMENSION;
  if (std::find(kernel->is_set.begin(), kernel->is_set.end(), false) != kernel->is_set.end()) return CL_INVALID_KERNEL_ARGS;
  const size_t local_size = local == nullptr ? 1 : local[0];
  if (local_size == 0 || local_size > kWidestGroup || global[0] % local_size != 0) return CL_INVALID_WORK_GROUP_SIZE;
  EntryPoint& entry = *kernel->entry_point;

  const std::lock_guard lock(command_mutex);
  std::vector<void*> arguments(kernel->values.size());
  std::vector<std::unique_ptr<char, decltype(&std::free)>> local_memory;
  std::vector<void*> local_pointers(kernel->values.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    arguments[i] = kernel->values[i].data();
    if (entry.arguments[i].kind != ArgumentKind::kLocal) continue;
    void* memory = nullptr;
    if (posix_memalign(&memory, 128, kernel->local_bytes[i]) != 0) return CL_OUT_OF_HOST_MEMORY;
    std::memset(memory, 0xCD, kernel->local_bytes[i]);
    local_memory.emplace_back(static_cast<char*>(memory), &std::free);
    local_pointers[i] = memory;
    arguments[i] = &local_pointers[i];
  }

  WorkItem item;
  item.global_size = global[0];
  item.local_size = local_size;
  item.group_count = global[0] / local_size;
#ifdef PALPATE_TSAN
  const bool independent = local_size == 1 && !entry.uses_local_memory;
#else
  const bool independent = false;  // the other sanitizers do not see the difference
#endif
  if (independent) {
    Fibers::Instance().RunIndependent(entry.call, arguments.data(), item);
  } else {
    for (size_t g = 0; g < item.group_count; ++g) {
      item.group_id = g;
      item.global_id = g * local_size;
      if (local_size == 1) {
        current_item = item;
        entry.call(arguments.data());
      } else {
        Fibers::Instance().RunGroup(entry.call, arguments.data(), item);
      }
    }
  }

  {
    const std::lock_guard registry_lock(registry_mutex);
    ++registry[{kernel->program->file, kernel->name}];
  }
  SetEvent(event);
  return CL_SUCCESS;
}

cl_int clGetEventProfilingInfo(cl_event event, cl_profiling_info what, size_t size, void* value, size_t* size_out) {
  return ValueInfo<cl_ulong>(what == CL_PROFILING_COMMAND_START ? event->begin_ns : event->end_ns, size, value, size_out);
}
cl_int clRetainEvent(cl_event event) {
  ++event->references;
  return CL_SUCCESS;
}
cl_int clReleaseEvent(cl_event event) {
  if (--event->references == 0) delete event;
  return CL_SUCCESS;
}

}  // extern "C"
