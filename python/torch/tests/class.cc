/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The allocator class as PyTorch calls it, without Python and without a GPU: the real libc10 and
 * libc10_cuda of a release, over cudart.c and the simulated driver. `class SHIM.so` runs every test
 * in a process of its own, `class SHIM.so NAME...` those named. scripts/torch-shim builds and runs
 * it. */
#include "class.h"

#include <cstddef>

const char *shim_path, *own_path;

static std::string install(bool late)
{
    void *shim = dlopen(shim_path, RTLD_NOW | RTLD_GLOBAL);
    if (!shim) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::_Exit(1);
    }
    auto install =
        reinterpret_cast<int (*)(bool, char *, size_t)>(dlsym(shim, "tarn_torch_install"));
    auto version = reinterpret_cast<int (*)()>(dlsym(shim, "tarn_torch_version"));
    CHECK(install && version && version() == TARN_TORCH_VERSION);
    char text[1024] = "";
    return install(late, text, sizeof text) ? text : "";
}

/* What libtorch_cuda tells c10, which has no driver of its own. */
static bool has_context(DeviceIndex device)
{
    unsigned flags = 0;
    int active = 0;
    return cuDevicePrimaryCtxGetState(device, &flags, &active) == 0 && active;
}

CUDAAllocator &ours()
{
    CHECK(install(false).empty());
    get()->init(c10::cuda::device_count());
    CHECK(get()->name() == "tarn");
    return *get();
}

void *function_of_shim(const char *name)
{
    void *found = dlsym(dlopen(shim_path, RTLD_NOW | RTLD_NOLOAD), name);
    CHECK(found);
    return found;
}

size_t allocated()
{
    return static_cast<size_t>(get()->getDeviceStats(0).allocated_bytes[0].current);
}

size_t reserved()
{
    return static_cast<size_t>(get()->getDeviceStats(0).reserved_bytes[0].current);
}

/* ---- The tests ---- */

static void installs()
{
    CUDAAllocator *before = get();
    CHECK(before->name() == "native");
    auto &tarn = ours();
    CHECK(&tarn != before && c10::GetAllocator(c10::kCUDA) == &tarn && tarn.initialized() &&
          tarn.isEnabled());
    CHECK(install(false).empty() && get() == &tarn); /* again: nothing happens */
}

static void installs_late()
{
    get()->init(c10::cuda::device_count());
    DataPtr theirs = get()->allocate(MIB);
    std::string text = install(false);
    CHECK(text.find("late=True") != std::string::npos && get()->name() == "native");
    CHECK(install(true).empty() && get()->name() == "tarn");
    reinterpret_cast<void (*)()>(function_of_shim("tarn_torch_uninstall"))();
    CHECK(get()->name() == "native" && c10::GetAllocator(c10::kCUDA) == get());
    CHECK(install(true).empty() && get()->name() == "tarn");
    DataPtr own = get()->allocate(MIB);
    CUDAStream side = c10::cuda::getStreamFromPool();
    get()->recordStream(theirs, side);
    get()->recordStream(own, side);
    size_t size = 0;
    CHECK(get()->getBaseAllocation(theirs.get(), &size) && size >= MIB);
    theirs.clear(); /* its own deleter */
    void *raw = own.release_context();
    get()->raw_delete(raw);
    CHECK(allocated() == 0);
}

static void allocates()
{
    auto &tarn = ours();
    DataPtr a = tarn.allocate(3 * MIB);
    CHECK(a.get() && a.get_context() == a.get() && a.get_deleter() == tarn.raw_deleter() &&
          a.device().index() == 0);
    CHECK(allocated() >= 3 * MIB && reserved() >= allocated());
    void *address = a.get();
    a.clear();
    CHECK(allocated() == 0);
    a = tarn.allocate(3 * MIB);
    CHECK(a.get() == address); /* one stream: used again at once */
    DataPtr none = tarn.allocate(0);
    CHECK(!none.get() && none.get_deleter() == tarn.raw_deleter());
    void *raw = tarn.raw_alloc(512);
    CHECK(raw && raw != address);
    tarn.raw_delete(raw);
    tarn.raw_delete(nullptr);
    DataPtr copy = tarn.clone(a.get(), 16);
    CHECK(copy.get() != a.get());
    CHECK(tarn.getDeviceStats(0).num_ooms == 0 && tarn.getDeviceStats(0).num_device_alloc > 0);
    a.clear();
    copy.clear();
    int64_t waits = tarn.getDeviceStats(0).num_sync_all_streams;
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0 && tarn.getDeviceStats(0).num_sync_all_streams == waits + 1);
    tarn.resetPeakStats(0);
    CHECK(tarn.getDeviceStats(0).allocated_bytes[0].peak == 0);
    THROWS(tarn.getDeviceStats(99), "Invalid device argument");
}

static void record_stream_waits_for_the_other_stream()
{
    auto &tarn = ours();
    DataPtr a = tarn.allocate(8 * MIB);
    void *address = a.get();
    CUDAStream side = c10::cuda::getStreamFromPool();
    CHECK(tarn_sim_machine.work(0, side.stream(), address, 8 * MIB, 1000000) == TARN_OK);
    tarn.recordStream(a, side);
    a.clear();
    DataPtr b = tarn.allocate(8 * MIB);
    CHECK(b.get() != address); /* the other stream's work still runs */
    CHECK(cudaStreamSynchronize(side.stream()) == cudaSuccess);
    DataPtr c = tarn.allocate(8 * MIB);
    CHECK(c.get() == address); /* it has ended: its memory serves again, although nobody names the
                                  stream again */
    /* Memory that is not PyTorch's own is left alone. */
    int word = 0;
    DataPtr foreign(
        &word, &word, [](void *) {}, c10::Device(c10::kCUDA, 0));
    tarn.recordStream(foreign, side);
}

static std::set<void *> blocks_of(MempoolId_t id)
{
    std::set<void *> found;
    for (const auto &segment : get()->snapshot(id).segments) {
        CHECK(segment.owner_private_pool_id == id);
        size_t address = segment.address;
        for (const auto &block : segment.blocks) {
            if (block.allocated)
                found.insert(reinterpret_cast<void *>(address));
            address += block.size;
        }
        CHECK(address == segment.address + segment.total_size);
    }
    return found;
}

static void scopes_route_to_their_pool()
{
    auto &tarn = ours();
    MempoolId_t outer = {0, 7}, inner = {0, 8};
    CUDAStream side = c10::cuda::getStreamFromPool();
    tarn.createOrIncrefPool(0, outer);
    CHECK(tarn.getPoolUseCount(0, outer) == 1);
    tarn.beginAllocateToPool(0, outer, [](cudaStream_t) { return true; });
    DataPtr a = tarn.allocate(MIB);
    tarn.createOrIncrefPool(0, inner);
    tarn.beginAllocateToPool(0, inner,
                             [&](cudaStream_t stream) { return stream == side.stream(); });
    THROWS(tarn.beginAllocateToPool(0, inner, [](cudaStream_t) { return true; }),
           "already recording");
    DataPtr b = tarn.allocate(MIB), c;
    {
        c10::StreamGuard guard(side.unwrap());
        c = tarn.allocate(MIB);
    }
    tarn.endAllocateToPool(0, inner);
    tarn.endAllocateToPool(0, outer);
    THROWS(tarn.endAllocateToPool(0, outer), "not currently recording");
    DataPtr outside = tarn.allocate(MIB);
    CHECK((blocks_of(outer) == std::set<void *>{a.get(), b.get()}));
    CHECK((blocks_of(inner) == std::set<void *>{c.get()}));
    CHECK(tarn.checkPoolLiveAllocations(0, outer, {a.get(), b.get()}));
    CHECK(!tarn.checkPoolLiveAllocations(0, outer, {a.get()}));
    a.clear();
    b.clear();
    size_t before = reserved();
    tarn.emptyCache(outer);
    CHECK(reserved() < before);
    /* Created, and begun */
    CHECK(tarn.getPoolUseCount(0, outer) == 2 && tarn.getPoolUseCount(0, inner) == 2);
    while (tarn.getPoolUseCount(0, outer))
        tarn.releasePool(0, outer);
    while (tarn.getPoolUseCount(0, inner))
        tarn.releasePool(0, inner);
    THROWS(tarn.releasePool(0, inner), "there is no pool");
    c.clear(); /* outlives its pool */
    outside.clear();
    CHECK(allocated() == 0);
}

/* c10d refuses to register a segment without a number, and registers in their order. */
static void segments_are_numbered_by_age()
{
    auto &tarn = ours();
    MempoolId_t id = {0, 9};
    std::vector<DataPtr> blocks;
    tarn.createOrIncrefPool(0, id);
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    for (int i = 0; i < 6; i++) {
        CUDAStream stream = c10::cuda::getStreamFromPool(i % 2);
        c10::StreamGuard guard(stream.unwrap());
        blocks.push_back(tarn.allocate(i % 3 ? 30 * MIB : MIB / 4));
        std::set<int> numbers;
        int newest = -1;
        auto segments = get()->snapshot(id).segments;
        CHECK(segments.size() == blocks.size());
        for (const auto &segment : segments) {
            CHECK(segment.registration_counter >= 0 &&
                  numbers.insert(segment.registration_counter).second);
            size_t start = reinterpret_cast<size_t>(blocks.back().get());
            if (start >= segment.address && start < segment.address + segment.total_size)
                newest = segment.registration_counter;
        }
        CHECK(newest == static_cast<int>(segments.size()) - 1);
    }
    blocks.clear();
    for (const auto &segment : get()->snapshot({0, 0}).segments)
        CHECK(segment.registration_counter >= 0);
    tarn.endAllocateToPool(0, id);
    while (tarn.getPoolUseCount(0, id))
        tarn.releasePool(0, id);
}

static void a_pool_can_be_registrable()
{
    auto &tarn = ours();
    auto mark = reinterpret_cast<int (*)(int, uint64_t, uint64_t, char *, size_t)>(
        function_of_shim("tarn_torch_registrable"));
    auto number = reinterpret_cast<int (*)(int, uint64_t, uint64_t, uint64_t *, uint64_t *)>(
        function_of_shim("tarn_torch_pool"));
    MempoolId_t id = {0, 10}, late = {0, 11};
    tarn_pool_id ours_id = {};
    tarn_pool *pool = nullptr;
    char why[200];
    CHECK(mark(0, 0, 10, why, sizeof why) == 1 && std::strstr(why, "no such pool"));
    tarn.createOrIncrefPool(0, id);
    CHECK(mark(0, 0, 10, why, sizeof why) == 0);
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    DataPtr a = tarn.allocate(40 * MIB);
    tarn.endAllocateToPool(0, id);
    CHECK(number(0, 0, 10, &ours_id.first, &ours_id.second) == 0 &&
          tarn_pool_find(ours_id, &pool) == TARN_OK);
    tarn_mapping range = {};
    size_t count = 0;
    /* Others have no such list */
    CHECK(tarn_pool_segments_get(pool, &range, 1, &count) == TARN_OK && count == 1);
    CHECK(range.bytes >= 40 * MIB && range.address == a.get());
    CHECK(mark(0, 0, 10, why, sizeof why) == 0);
    CHECK(tarn_pool_release(pool) == TARN_OK);

    tarn.createOrIncrefPool(0, late);
    tarn.beginAllocateToPool(0, late, [](cudaStream_t) { return true; });
    DataPtr b = tarn.allocate(MIB);
    tarn.endAllocateToPool(0, late);
    CHECK(mark(0, 0, 11, why, sizeof why) == 1 && std::strstr(why, "memory already"));
    for (MempoolId_t each : {id, late})
        while (tarn.getPoolUseCount(0, each))
            tarn.releasePool(0, each);
}

/* Native stands in for the user's allocator: what it has given out is seen in its statistics. */
static void a_pools_end_returns_the_users_segments()
{
    CUDAAllocator *native = get();
    auto given_out = [&] { return native->getDeviceStats(0).allocated_bytes[0].current; };
    native->init(c10::cuda::device_count());
    CHECK(install(true).empty());
    get()->init(c10::cuda::device_count());
    auto &tarn = *get();
    MempoolId_t id = {0, 9};
    tarn.createOrIncrefPool(0, id, std::shared_ptr<CUDAAllocator>(native, [](CUDAAllocator *) {}));
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    DataPtr block = tarn.allocate(4 * MIB);
    tarn.endAllocateToPool(0, id);
    CHECK(given_out() >= static_cast<int64_t>(4 * MIB));
    CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    CHECK(tarn_sim_machine.work(0, stream.stream(), block.get(), 4 * MIB, 1000000) == TARN_OK);
    block.clear();
    while (tarn.getPoolUseCount(0, id))
        tarn.releasePool(0, id);
    CHECK(given_out() == 0);
    CHECK(cudaStreamQuery(stream.stream()) == cudaSuccess);
}

static void caching_can_be_turned_off()
{
    auto &tarn = ours();
    DataPtr before = tarn.allocate(MIB);
    tarn.enable(false);
    CHECK(!tarn.isEnabled());
    int64_t calls = tarn.getDeviceStats(0).num_device_alloc;
    for (int i = 0; i < 3; i++)
        CHECK(tarn.allocate(MIB).get());
    CHECK(tarn.getDeviceStats(0).num_device_alloc == calls + 3);
    before.clear();
    tarn.enable(true);
    CHECK(tarn.isEnabled() && tarn.allocate(MIB).get());
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0);
}

/* A child of fork() has no device, and what it frees is its parent's. It says nothing. */
static void a_child_frees_in_silence()
{
    Before before;
    at::HostAllocator &host = pinned(&before);
    auto &tarn = *get();
    tarn.recordHistory(true, make_context, 100, RecordContext::ALL, false, {});
    DataPtr block = tarn.allocate(MIB), page = host.allocate(MIB);
    (void)tarn.shareIpcHandle(block.get());
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(ends[1], 2) == 2);
        block.clear();
        page.clear();
        _exit(0);
    }
    int status = 1;
    char said = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(ends[1]) == 0 && read(ends[0], &said, 1) == 0);
    CHECK(blocks_of({0, 0}).count(block.get()));
}

/* An error that stays is PyTorch's, of its type and in its words, whichever call of the driver is
 * the first that has it. */
static void a_lost_device_is_an_accelerator_error()
{
    constexpr unsigned device_assert = 710;
    for (bool is_pinned : {false, true})
        for (unsigned nth = 1; nth < 30; nth++) {
            pid_t child = fork();
            int status = 0;
            if (child) {
                CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
                continue;
            }
            Before before;
            at::HostAllocator &host = pinned(&before);
            get()->allocate(MIB).clear();
            host.allocate(MIB).clear();
            tarn_sim_machine.fail(nth, true, device_assert);
            try {
                is_pinned ? host.allocate(64 * MIB) : get()->allocate(128 * MIB);
            } catch (const c10::AcceleratorError &error) {
                _exit(error.get_error_code() != static_cast<int>(device_assert));
            } catch (const c10::Error &error) {
                std::fprintf(stderr, "%s\n", error.what_without_backtrace());
                _exit(1);
            }
            _exit(0); /* which needed fewer calls */
        }
}

static void trackers_see_every_mapping()
{
    auto &tarn = ours();
    size_t mapped = 0, unmapped = 0;
    tarn.attachAllocatorTraceTracker([&](const TraceEntry &entry) {
        if (entry.action_ == TraceEntry::SEGMENT_MAP)
            mapped += entry.size_;
        if (entry.action_ == TraceEntry::SEGMENT_UNMAP)
            unmapped += entry.size_;
    });
    DataPtr a = tarn.allocate(40 * MIB);
    CHECK(mapped >= 40 * MIB && mapped == reserved() && unmapped == 0);
    a.clear();
    tarn.emptyCache({0, 0});
    CHECK(unmapped == mapped);
}

static void checkpoints_bring_blocks_back()
{
    auto &tarn = ours();
    MempoolId_t id = {3, 0};
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    DataPtr a = tarn.allocate(4 * MIB), b = tarn.allocate(8 * MIB);
    void *first = a.get(), *second = b.get();
    auto state = tarn.getCheckpointState(0, id);
    b.clear();
    DataPtr c = tarn.allocate(2 * MIB);
    tarn.endAllocateToPool(0, id);
    auto delta = tarn.setCheckpointPoolState(0, state);
    std::set<void *> freed(delta.ptrs_freed.begin(), delta.ptrs_freed.end()), live;
    for (const auto &pointer : delta.dataptrs_allocd) {
        live.insert(pointer.get());
        CHECK(pointer.get_deleter() == tarn.raw_deleter());
    }
    CHECK((freed == std::set<void *>{first, c.get()}));
    CHECK((live == std::set<void *>{first, second}));
    CHECK(tarn.checkPoolLiveAllocations(0, id, {first, second}));
    (void)c.release_context(); /* freed by the state */
    (void)a.release_context(); /* the state's now */
    delta.dataptrs_allocd.clear();
    CHECK(allocated() == 0);
    tarn.releasePool(0, id);
}

static void out_of_memory_is_pytorchs()
{
    auto &tarn = ours();
    std::vector<size_t> seen;
    tarn.attachOutOfMemoryObserver([&](int64_t device, size_t size, size_t total, size_t) {
        CHECK(device == 0 && total > 0);
        seen.push_back(size);
    });
    size_t total = tarn.getMemoryInfo(0).second;
    tarn.setMemoryFraction(0.25, 0);
    CHECK(std::abs(tarn.getMemoryFraction(0) - 0.25) < 0.01);
    DataPtr half = tarn.allocate(total / 8);
    try {
        tarn.allocate(total / 4);
        CHECK(!"no error");
    } catch (const c10::OutOfMemoryError &error) {
        std::string text = error.what();
        CHECK(text.find("CUDA out of memory. Tried to allocate") != std::string::npos);
        /* What programs look for: PyTorch's words. */
        for (const char *words :
             {"of which", "memory in use. ", " allowed; ", "is allocated by PyTorch, and ",
              "is reserved by PyTorch but unallocated. tarn: "})
            CHECK(text.find(words) != std::string::npos);
    }
    CHECK(seen == std::vector<size_t>{total / 4} && tarn.getDeviceStats(0).num_ooms == 1);
    CHECK(tarn.getDeviceStats(0).num_alloc_retries > 0);
    MempoolId_t id = {0, 5};
    tarn.createOrIncrefPool(0, id);
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    DataPtr pooled = tarn.allocate(3 * MIB);
    tarn.endAllocateToPool(0, id);
    THROWS(tarn.allocate(total / 4),
           "with 3.00 MiB allocated in private pools (e.g., CUDA Graphs), and ");
#if TARN_TORCH_VERSION >= 2013
    auto by_pool = tarn.getDeviceStats(0).reserved_bytes_by_private_pools;
    CHECK(by_pool.size() == 1 && by_pool[id][0].current >= static_cast<int64_t>(3 * MIB));
#endif
    pooled.clear();
    while (tarn.getPoolUseCount(0, id))
        tarn.releasePool(0, id);
    seen.resize(1);
#if TARN_TORCH_VERSION >= 2012
    std::vector<size_t> rejected;
    tarn.attachOomRejectionObserver(
        [&](int64_t, size_t size, size_t, size_t) { rejected.push_back(size); });
    THROWS(tarn.allocate(total), "CUDA out of memory");
    CHECK(rejected == std::vector<size_t>{total} && tarn.getDeviceStats(0).num_oom_rejections >= 1);
#endif
#if TARN_TORCH_VERSION >= 2013
    THROWS(tarn.allocateWithAddress(MIB, half.get()), "allocateWithAddress");
#endif
    DataPtr fits = tarn.allocate(total / 16); /* all goes on */
    THROWS(tarn.allocate(size_t(1) << 61),
           "CUDA out of memory. Tried to allocate more than 1EB memory");
    THROWS(tarn.allocate(size_t(1) << 40), "CUDA out of memory. Tried to allocate 1024.00 GiB");
    tarn.setMemoryFraction(1.0, 0);
    CHECK(tarn.getMemoryFraction(0) == 1.0);
    DataPtr more = tarn.allocate(total / 4);
    THROWS(tarn.setMemoryFraction(1.5, 0), "invalid fraction");
}

static void spare_pools_help_out()
{
    auto &tarn = ours();
    MempoolId_t id = {0, 9};
    size_t total = tarn.getMemoryInfo(0).second, piece = total / 8;
    tarn.createOrIncrefPool(0, id);
    tarn.setUseOnOOM(0, id, true);
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    tarn.allocate(piece).clear();
    tarn.endAllocateToPool(0, id);
    tarn.setMemoryFraction(0.2, 0); /* a piece, and not two */
    DataPtr a = tarn.allocate(piece);
    CHECK(a.get() && blocks_of(id).count(a.get()));
}

static void threads_allocate_beside_each_other()
{
    auto &tarn = ours();
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; i++)
        threads.emplace_back([&, i] {
            c10::StreamGuard guard(c10::cuda::getStreamFromPool().unwrap());
            for (int round = 0; round < 200; round++) {
                DataPtr a = tarn.allocate(
                    static_cast<size_t>(1 + (round * 7919 + i * 104729) % (2 * int(MIB))));
                DataPtr b = tarn.allocate(static_cast<size_t>(512 * (1 + round)));
                CHECK(a.get() && b.get() && a.get() != b.get());
            }
        });
    for (auto &thread : threads)
        thread.join();
    CHECK(allocated() == 0);
}

/* ---- Pinned memory ---- */

at::HostAllocator &pinned(Before *before)
{
    (void)ours();
    at::setHostAllocator(c10::kCUDA, before, 0);
    auto install =
        reinterpret_cast<int (*)(char *, size_t)>(function_of_shim("tarn_torch_install_pinned"));
    char text[200];
    CHECK(install(text, sizeof text) == 0 && install(text, sizeof text) == 0);
    at::setHostAllocator(c10::kCUDA, before, 1); /* a lower priority changes nothing */
    CHECK(at::getHostAllocator(c10::kCUDA) != before);
    return *at::getHostAllocator(c10::kCUDA);
}

static void pinned_memory_is_tarns()
{
    Before before;
    at::HostAllocator &host = pinned(&before);
    CUDAStream side = c10::cuda::getStreamFromPool();
    DataPtr a = host.allocate(5 * MIB + 1);
    CHECK(a.get() && a.device() == c10::Device(c10::kCPU) && a.get_deleter() == host.raw_deleter());
    CHECK(tarn_pinned_contains(a.get()) && !host.allocate(0).get());
    std::memset(a.get(), 1, 5 * MIB + 1);
    at::HostStats stats = host.get_stats();
    CHECK(stats.active_requests.current == 1 && stats.num_host_alloc > 0);
    CHECK(stats.active_bytes.current >= static_cast<int64_t>(5 * MIB) &&
          /* Not the next power of two */
          stats.active_bytes.current < static_cast<int64_t>(6 * MIB));

    /* What a stream uses waits for it, also where a pointer into the block was named. */
    void *address = a.get();
    CHECK(tarn_sim_machine.work(0, side.stream(), address, MIB, 1000000) == TARN_OK);
    CHECK(host.record_event(static_cast<char *>(address) + MIB, address, side.unwrap()));
    a.clear();
    DataPtr b = host.allocate(5 * MIB + 1);
    CHECK(b.get() != address);
    CHECK(cudaStreamSynchronize(side.stream()) == cudaSuccess);
    DataPtr c = host.allocate(5 * MIB + 1);
    CHECK(c.get() == address);

    /* What others gave. */
    CHECK(host.record_event(before.own, before.own, side.unwrap()) && before.recorded == 1);
    int word = 0;
    CHECK(!host.record_event(&word, &word, side.unwrap()));
    b.clear();
    c.clear();
    host.empty_cache();
    stats = host.get_stats();
    CHECK(before.emptied == 1 && stats.allocated_bytes.current == 0 && stats.active_bytes.peak > 0);
    host.reset_peak_stats();
    host.reset_accumulated_stats();
    stats = host.get_stats();
    CHECK(stats.active_bytes.peak == 0 && stats.num_host_alloc == 0);
}

/* Where a device has a context, no other gets one for pinned memory, whichever is current. */
static void pinned_memory_makes_no_second_context()
{
    setenv("TARN_HOST_DEVICES", "2", 1);
    Before before;
    at::HostAllocator &host = pinned(&before);
    {
        c10::DeviceGuard guard(c10::Device(c10::kCUDA, 1));
        get()->allocate(MIB).clear();
    }
    CHECK(!has_context(0) && has_context(1));
    DataPtr page = host.allocate(MIB);
    CHECK(page.get() && !has_context(0));
    page.clear();
    host.empty_cache();
    CHECK(!has_context(0));
}

#define TESTS(X)                                \
    X(installs)                                 \
    X(installs_late)                            \
    X(allocates)                                \
    X(record_stream_waits_for_the_other_stream) \
    X(scopes_route_to_their_pool)               \
    X(segments_are_numbered_by_age)             \
    X(a_pool_can_be_registrable)                \
    X(a_pools_end_returns_the_users_segments)   \
    X(caching_can_be_turned_off)                \
    X(a_child_frees_in_silence)                 \
    X(a_lost_device_is_an_accelerator_error)    \
    X(trackers_see_every_mapping)               \
    X(checkpoints_bring_blocks_back)            \
    X(out_of_memory_is_pytorchs)                \
    X(spare_pools_help_out)                     \
    X(threads_allocate_beside_each_other)       \
    X(pinned_memory_is_tarns)                   \
    X(pinned_memory_makes_no_second_context)

static const struct {
    const char *name;
    void (*run)();
} tests[] = {
#define X(name) {#name, name},
    TESTS(X) CAPTURE_TESTS(X) PROCESS_TESTS(X) TRACE_TESTS(X)
#undef X
};

int main(int count, char **words)
{
    if (count < 2) {
        std::fprintf(stderr, "usage: class SHIM.so [TEST...]\n");
        return 2;
    }
    own_path = words[0];
    shim_path = words[1];
    c10::cuda::_internal::setHasPrimaryContext(has_context);
    if (count == 5 && std::string(words[2]) == "received")
        return received(words[3], std::stol(words[4]));
    int failed = 0, ran = 0;
    for (const auto &test : tests) {
        if (count > 2 && std::none_of(words + 2, words + count, [&](const char *name) {
                return !std::strcmp(name, test.name);
            }))
            continue;
        ran++;
        std::fflush(nullptr);
        pid_t child = fork();
        if (child == 0) {
            try {
                test.run();
            } catch (const std::exception &error) {
                std::fprintf(stderr, "%s\n", error.what());
                std::_Exit(1);
            }
            std::exit(0); /* as programs end: with what exit handlers do */
        }
        int status = 0;
        bool passed = child > 0 && waitpid(child, &status, 0) == child && status == 0;
        failed += !passed;
        if (!passed)
            std::printf("FAILED %s (%s %d)\n", test.name, WIFSIGNALED(status) ? "signal" : "status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    std::printf("%d passed, %d failed\n", ran - failed, failed);
    return failed || !ran;
}
