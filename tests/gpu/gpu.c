/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "gpu.h"
#include "gpu_kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gpu_calls gpu;
bool gpu_has_kernels, gpu_is_simulated;
tarn_device_properties gpu_properties = {.size = sizeof gpu_properties};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int results[GPU_NOTE + 1];
static cu_function fill_function, check_function, spin_function, add_function;

/* ---- Results ---- */

void gpu_say(enum gpu_result result, const char *name, const char *format, ...)
{
    static const char *const words[] = {"PASS", "FAIL", "SKIPPED", "NOTE"};
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    results[result]++;
    printf("%-7s %s%s%s\n", words[result], name, *text ? ": " : "", text);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

bool gpu_ok(tarn_status status, const char *name, const char *call)
{
    if (status)
        gpu_say(GPU_FAIL, name, "%s gave %s (%s)", call, tarn_status_name(status),
                tarn_last_error());
    return !status;
}

bool gpu_cu(cu_result code, const char *name, const char *call)
{
    const char *text = NULL;
    if (!code)
        return true;
    if (!gpu.cuGetErrorName || gpu.cuGetErrorName(code, &text) || !text)
        text = "?";
    gpu_say(GPU_FAIL, name, "%s gave CUDA error %u (%s)", call, code, text);
    return false;
}

void gpu_verdict(bool well, const char *name, const char *text)
{
    gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%s", text);
}

void gpu_goal(bool reached, const char *name, const char *text)
{
    gpu_say(reached ? GPU_PASS : GPU_NOTE, name, "%s%s", text, reached ? "" : "; goal missed");
}

size_t gpu_free_bytes(void)
{
    size_t available = 0, total = 0;
    return CU("memory", gpu.cuMemGetInfo_v2(&available, &total)) ? available : 0;
}

int gpu_end(void)
{
    pthread_mutex_lock(&lock);
    printf("        %d passed, %d failed, %d skipped\n", results[GPU_PASS], results[GPU_FAIL],
           results[GPU_SKIP]);
    fflush(stdout);
    int status = results[GPU_FAIL] ? GPU_FAILED : 0;
    pthread_mutex_unlock(&lock);
    return status;
}

void *gpu_results_open(const char *name)
{
    char path[4096];
    const char *folder = getenv("GPU_RESULTS");
    snprintf(path, sizeof path, "%s/%s", folder && *folder ? folder : ".", name);
    FILE *file = fopen(path, "w");
    if (!file)
        gpu_say(GPU_FAIL, name, "%s cannot be written", path);
    return file;
}

/* ---- Start ---- */

static int no_gpu(const char *why)
{
    printf("no GPU: %s\n", why);
    return GPU_NONE;
}

static void load_kernels(void)
{
    cu_module module = NULL;
    if (gpu_is_simulated || !gpu.cuModuleLoadData || !gpu.cuModuleGetFunction ||
        !gpu.cuLaunchKernel)
        return;
    cu_result code = gpu.cuModuleLoadData(&module, gpu_ptx);
    if (code == CU_NOT_SUPPORTED)
        return;
    if (CU("kernels", code) &&
        CU("kernels", gpu.cuModuleGetFunction(&fill_function, module, "tarn_fill")) &&
        CU("kernels", gpu.cuModuleGetFunction(&check_function, module, "tarn_check")) &&
        CU("kernels", gpu.cuModuleGetFunction(&spin_function, module, "tarn_spin")) &&
        CU("kernels", gpu.cuModuleGetFunction(&add_function, module, "tarn_add")))
        gpu_has_kernels = true;
}

int gpu_start(void)
{
    cu_result (*init)(unsigned) = NULL;
    int devices = 0;
    cu_result code = CU_OK;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return no_gpu(dlerror());
    void *found = dlsym(library, "cuInit");
    memcpy(&init, &found, sizeof init);
#define X(name, version, symbol, needed, parameters) \
    found = dlsym(library, #symbol);                 \
    memcpy(&gpu.symbol, &found, sizeof found);
    CUDA_CALL_LIST(X)
    GPU_CALL_LIST(X)
#undef X
    if (!init || (code = init(0)) || (code = gpu.cuDeviceGetCount(&devices)) || !devices) {
        char text[64];
        snprintf(text, sizeof text, "CUDA error %u of cuInit or cuDeviceGetCount, %d devices", code,
                 devices);
        return no_gpu(text);
    }
    setenv("TARN_DRIVER", "cuda", 1);
    return gpu_device_use(0) ? 0 : no_gpu(tarn_last_error());
}

bool gpu_device_use(int device)
{
    if (tarn_device_set(device) || tarn_device_properties_get(device, &gpu_properties))
        return false;
    gpu_is_simulated = strstr(gpu_properties.name, "simulated") != NULL;
    load_kernels();
    return true;
}

/* ---- Small things ---- */

uint64_t gpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t gpu_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

cu_stream gpu_native(tarn_stream stream)
{
    void *native = NULL;
    if (!OK("stream", tarn_stream_native_get(stream, &native)))
        return NULL;
    return native;
}

static bool copy(tarn_stream stream, const void *to, const void *from, size_t size)
{
    return CU("copy", gpu.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, size, gpu_native(stream)));
}

bool gpu_upload(tarn_stream stream, void *to, const void *from, size_t size)
{
    return copy(stream, to, from, size) && OK("copy", tarn_stream_synchronize(stream));
}

bool gpu_download(tarn_stream stream, void *to, const void *from, size_t size)
{
    return copy(stream, to, from, size) && OK("copy", tarn_stream_synchronize(stream));
}

/* ---- Patterns ---- */

bool gpu_slots_create(struct gpu_slots *slots, tarn_stream stream, size_t count)
{
    void *device = NULL;
    *slots = (struct gpu_slots){.count = count};
    slots->host = calloc(count, sizeof *slots->host);
    slots->samples = calloc(count, sizeof *slots->samples);
    if (!slots->host || !slots->samples ||
        !OK("slots", tarn_alloc_on(stream, count * sizeof *slots->host, &device)))
        return false;
    slots->device = device;
    for (size_t i = 0; i < count; i++)
        slots->host[i].first = UINT64_MAX;
    return gpu_upload(stream, slots->device, slots->host, count * sizeof *slots->host);
}

void gpu_slots_destroy(struct gpu_slots *slots)
{
    OK("slots", tarn_free(slots->device));
    free(slots->host);
    free(slots->samples);
    *slots = (struct gpu_slots){0};
}

bool gpu_slots_read(struct gpu_slots *slots, tarn_stream stream)
{
    if (gpu_has_kernels)
        return gpu_download(stream, slots->host, slots->device, slots->count * sizeof *slots->host);
    for (size_t i = 0; i < slots->count; i++) {
        for (size_t place = 0; place < 3; place++) {
            if (slots->samples[i][place] != slots->samples[i][3]) {
                slots->host[i].wrong++;
                slots->host[i].first = place;
                slots->host[i].found = slots->samples[i][place];
            }
        }
    }
    return true;
}

static bool launch(cu_function function, tarn_stream stream, size_t words, void **parameters)
{
    unsigned grid = (unsigned)((words + 255) / 256);
    grid = grid < 1 ? 1 : grid > 256 ? 256 : grid;
    return CU("launch", gpu.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, gpu_native(stream),
                                           parameters, NULL));
}

bool gpu_fill(tarn_stream stream, void *words, size_t bytes, uint32_t seed, uint64_t wait_ns)
{
    if (!gpu_has_kernels)
        return CU("fill", gpu.cuMemsetD8Async((uintptr_t)words, (unsigned char)seed, bytes,
                                              gpu_native(stream)));
    uint64_t count = bytes / 4;
    void *parameters[] = {&words, &count, &seed, &wait_ns};
    return launch(fill_function, stream, count, parameters);
}

bool gpu_fill_by(enum gpu_launch way, tarn_stream stream, void *words, size_t bytes)
{
    struct {
        void *words;
        uint64_t count;
        uint32_t seed;
        uint64_t wait_ns;
    } packed = {.words = words, .count = bytes / 4, .seed = 1};
    size_t size = sizeof packed;
    void *extra[] = {(void *)CU_PARAM_BUFFER, &packed, (void *)CU_PARAM_SIZE, &size,
                     (void *)CU_PARAM_END};
    void *parameters[] = {&packed.words, &packed.count, &packed.seed, &packed.wait_ns};
    if (!gpu_has_kernels || way == GPU_LAUNCH_PLAIN)
        return gpu_fill(stream, words, bytes, packed.seed, 0);
    if (way == GPU_LAUNCH_EXTRA)
        return CU("launch", gpu.cuLaunchKernel(fill_function, 64, 1, 1, 256, 1, 1, 0,
                                               gpu_native(stream), NULL, extra));
    return CU("launch", gpu.cuLaunchCooperativeKernel(fill_function, 64, 1, 1, 256, 1, 1, 0,
                                                      gpu_native(stream), parameters));
}

bool gpu_check(tarn_stream stream, void *words, size_t bytes, uint32_t seed, uint64_t wait_ns,
               struct gpu_slots *slots, size_t slot)
{
    if (!gpu_has_kernels) {
        const size_t places[3] = {0, bytes / 2, bytes - 1};
        slots->samples[slot][3] = (unsigned char)seed;
        for (int i = 0; i < 3; i++)
            if (!copy(stream, &slots->samples[slot][i], (unsigned char *)words + places[i], 1))
                return false;
        return true;
    }
    uint64_t count = bytes / 4;
    struct gpu_slot *found = &slots->device[slot];
    void *parameters[] = {&words, &count, &seed, &wait_ns, &found};
    return launch(check_function, stream, count, parameters);
}

bool gpu_write(const char *name, tarn_stream stream, void *block, size_t bytes, uint32_t seed)
{
    return gpu_fill(stream, block, bytes, seed, 0) && OK(name, tarn_stream_synchronize(stream));
}

bool gpu_holds(const char *name, tarn_stream stream, void *const *blocks, size_t count,
               size_t bytes, uint32_t seed)
{
    struct gpu_slots slots;
    bool well = gpu_slots_create(&slots, stream, count);
    for (size_t i = 0; well && i < count; i++)
        well = gpu_check(stream, blocks[i], bytes, seed + (uint32_t)i, 0, &slots, i);
    well = well && OK(name, tarn_stream_synchronize(stream)) && gpu_slots_read(&slots, stream);
    for (size_t i = 0; well && i < count; i++) {
        if (slots.host[i].wrong) {
            gpu_say(GPU_FAIL, name,
                    "block %zu at %p, pattern %u: %llu wrong words, the first is %llu", i,
                    blocks[i], seed + (uint32_t)i, (unsigned long long)slots.host[i].wrong,
                    (unsigned long long)slots.host[i].first);
            well = false;
        }
    }
    gpu_slots_destroy(&slots);
    return well;
}

bool gpu_add(tarn_stream stream, void *words, size_t bytes, void *others)
{
    uint64_t count = bytes / 4;
    if (gpu_has_kernels) {
        void *parameters[] = {&words, &count, &others};
        return launch(add_function, stream, count, parameters);
    }
    if (!OK("add", tarn_stream_synchronize(stream))) /* the simulated driver's memory is the
                                                        host's */
        return false;
    for (uint64_t i = 0; i < count; i++)
        ((uint32_t *)words)[i] += ((uint32_t *)others)[i];
    return true;
}

bool gpu_spin(tarn_stream stream, uint64_t ns)
{
    if (!gpu_has_kernels)
        return false;
    void *parameters[] = {&ns};
    return CU("spin", gpu.cuLaunchKernel(spin_function, 1, 1, 1, 32, 1, 1, 0, gpu_native(stream),
                                         parameters, NULL));
}

bool gpu_run_graph(void *graph, tarn_stream stream, int times, const char *name)
{
    cu_graph_exec exec = NULL;
    if (!CU(name, gpu.cuGraphInstantiateWithFlags(&exec, graph, 0)))
        return false;
    bool well = true;
    for (int i = 0; well && i < times; i++)
        well = CU(name, gpu.cuGraphLaunch(exec, gpu_native(stream)));
    well = OK(name, tarn_stream_synchronize(stream)) && well;
    return CU(name, gpu.cuGraphExecDestroy(exec)) && well;
}
