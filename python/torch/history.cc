/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What happened, with Python's stacks, and what lies where: _record_memory_history(), _snapshot(),
 * and the trackers by which c10d registers memory. PyTorch makes the contexts; they are kept here,
 * and never read. */
#include "allocator.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <numeric>

namespace tarn_torch
{

static const char *name_of(Action action)
{
    switch (action) {
    case TraceEntry::ALLOC:
        return "alloc";
    case TraceEntry::FREE_REQUESTED:
        return "free_requested";
    case TraceEntry::FREE_COMPLETED:
        return "free_completed";
    case TraceEntry::SEGMENT_ALLOC:
        return "segment_alloc";
    case TraceEntry::SEGMENT_FREE:
        return "segment_free";
    case TraceEntry::SEGMENT_MAP:
        return "segment_map";
    case TraceEntry::SEGMENT_UNMAP:
        return "segment_unmap";
    case TraceEntry::SNAPSHOT:
        return "snapshot";
#if TARN_TORCH_VERSION >= 2014
    case TraceEntry::ANNOTATE:
        return "annotate";
#endif
    default:
        return "oom";
    }
}

/* Per thread: what a compiled region or the user says about what is allocated meanwhile. */
static thread_local std::vector<std::string> compile_contexts;
static thread_local std::string user_metadata;

/* Converts the records' clock to the time of day. It measures from the first use on. */
static c10::ApproximateClockToUnixTimeConverter &clock_converter()
{
    static auto *one = new c10::ApproximateClockToUnixTimeConverter;
    return *one;
}

/* ---- What is recorded ---- */

void History::configure(bool enabled, CreateContextFn new_make, size_t entries,
                        RecordContext new_when, bool clear, const std::vector<std::string> &skip)
{
    TORCH_CHECK(new_when == RecordContext::NEVER || new_make,
                "tarn: a history with stacks needs a function that makes them");
    std::lock_guard<std::mutex> guard(lock);
    recording = enabled;
    make = enabled ? new_make : nullptr;
    room = std::max<size_t>(entries, 1);
    skipped = skip;
    when = enabled ? new_when : RecordContext::NEVER;
    if (!enabled || clear)
        for (auto &ring : rings)
            ring.clear();
    notes.clear();
    if (!enabled)
        contexts.clear();
    for (auto &ring : rings)
        while (ring.size() > room)
            ring.pop_front();
    on = recording || !trackers.empty();
}

bool History::enabled()
{
    std::lock_guard<std::mutex> guard(lock);
    return recording;
}

void History::attach(AllocatorTraceTracker tracker)
{
    std::lock_guard<std::mutex> guard(lock);
    trackers.push_back(std::move(tracker));
    on = true;
}

/* The calling thread's stack, if `level` asks for one. Call it without the lock, since taking a
 * stack may allocate. */
static std::shared_ptr<c10::GatheredContext> gather(RecordContext when, RecordContext level,
                                                    CreateContextFn make)
{
    return make && when >= level ? make() : nullptr;
}

void History::event(Action action, DeviceIndex device, size_t address, size_t size, void *stream,
                    MempoolId_t pool, RecordContext level)
{
    if (!on.load(std::memory_order_relaxed))
        return;
    CreateContextFn maker = nullptr;
    {
        std::lock_guard<std::mutex> guard(lock);
        maker = make;
    }
    auto context =
        gather(when, level == RecordContext::NEVER ? RecordContext::ALLOC : level, maker);
    auto shown = when.load() >= RecordContext::ALLOC ? context : nullptr;
    (void)pool; /* before 2.8, entries do not name their pool */
    TraceEntry entry(action, device, address, size, static_cast<cudaStream_t>(stream),
#if TARN_TORCH_VERSION >= 2008
                     pool, c10::getApproximateTime(), shown,
                     compile_contexts.empty() ? "N/A" : compile_contexts.back()
#else
                     c10::getApproximateTime(), shown
#endif
#if TARN_TORCH_VERSION >= 2010
                         ,
                     user_metadata
#endif
    );

    std::lock_guard<std::mutex> guard(lock);
    for (const auto &tracker : trackers)
        tracker(entry);
    if (!recording)
        return;
    if (action == TraceEntry::ALLOC && context)
        contexts[reinterpret_cast<void *>(address)] = context;
    auto allocated = contexts.find(reinterpret_cast<void *>(address));
    bool is_free = action == TraceEntry::FREE_REQUESTED || action == TraceEntry::FREE_COMPLETED;
    /* a free that has no stack gets that of its allocation */
    if (is_free && allocated != contexts.end() && !entry.context_ &&
        when.load() >= RecordContext::ALLOC)
        entry.context_ = allocated->second;
    if (action == TraceEntry::FREE_COMPLETED && allocated != contexts.end())
        contexts.erase(allocated);
    if (std::find(skipped.begin(), skipped.end(), name_of(action)) != skipped.end())
        return;
    if (rings.size() <= static_cast<size_t>(device))
        rings.resize(static_cast<size_t>(device) + 1);
    auto &ring = rings[static_cast<size_t>(device)];
    ring.push_back(std::move(entry));
    if (ring.size() > room)
        ring.pop_front();
}

void History::allocated(DeviceIndex device, void *pointer, size_t size, cudaStream_t stream,
                        MempoolId_t pool)
{
    event(TraceEntry::ALLOC, device, reinterpret_cast<size_t>(pointer), size, stream, pool,
          RecordContext::STATE);
}

/* tarn does not report when memory that other streams use becomes free, so the record says that it
 * is free at once. */
void History::freed(DeviceIndex device, void *pointer, size_t size, cudaStream_t stream,
                    MempoolId_t pool)
{
    event(TraceEntry::FREE_REQUESTED, device, reinterpret_cast<size_t>(pointer), size, stream, pool,
          RecordContext::ALL);
    event(TraceEntry::FREE_COMPLETED, device, reinterpret_cast<size_t>(pointer), size, stream, pool,
          RecordContext::ALL);
}

std::shared_ptr<c10::GatheredContext> History::context_of(void *pointer)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = contexts.find(pointer);
    return found == contexts.end() ? nullptr : found->second;
}

/* True if an entry is of a pool; (0, 0) means all pools. Before 2.8, entries do not say, and nobody
 * asks for one pool. */
static bool is_of([[maybe_unused]] const TraceEntry &entry,
                  [[maybe_unused]] const MempoolId_t &pool)
{
#if TARN_TORCH_VERSION >= 2008
    return (!pool.first && !pool.second) || entry.mempool_ == pool;
#else
    return true;
#endif
}

std::vector<std::vector<TraceEntry>> History::traces(MempoolId_t pool, int devices)
{
    auto to_ns = clock_converter().makeConverter();
    std::vector<std::vector<TraceEntry>> result(static_cast<size_t>(devices));
    std::lock_guard<std::mutex> guard(lock);
    for (size_t i = 0; i < rings.size() && i < result.size(); i++)
        for (const TraceEntry &entry : rings[i])
            if (is_of(entry, pool)) {
                result[i].push_back(entry);
                result[i].back().time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
            }
    return result;
}

void History::annotate(const std::vector<std::pair<std::string, std::string>> &pairs)
{
    std::lock_guard<std::mutex> guard(lock);
    if (!recording)
        return;
    AnnotationEntry note(c10::cuda::getCurrentCUDAStream().device_index(),
                         c10::getApproximateTime());
    for (const auto &pair : pairs)
        note.recordUserMetadata(pair.first, pair.second);
    notes.push_back(std::move(note));
    if (notes.size() > room)
        notes.pop_front();
}

std::vector<AnnotationEntry> History::annotations()
{
    auto to_ns = clock_converter().makeConverter();
    std::lock_guard<std::mutex> guard(lock);
    std::vector<AnnotationEntry> result(notes.begin(), notes.end());
    for (auto &note : result)
        note.time_.t_ = to_ns(note.time_.approx_t_) / 1000;
    return result;
}

std::string History::metadata()
{
    return user_metadata;
}

void History::set_metadata(const std::string &text)
{
    user_metadata = text;
}

void History::push_compile(const std::string &text)
{
    compile_contexts.push_back(text);
}

void History::pop_compile()
{
    if (!compile_contexts.empty())
        compile_contexts.pop_back();
}

/* ---- The allocator's side ---- */

bool Allocator::isHistoryEnabled()
{
    return history.enabled();
}

void Allocator::recordHistory(bool enabled, CreateContextFn make, size_t entries,
                              RecordContext when, bool clear, const std::vector<std::string> &skip)
{
    history.configure(enabled, make, entries, when, clear, skip);
    if (enabled)
        observe();
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &pairs)
{
    history.annotate(pairs);
}

#if TARN_TORCH_VERSION >= 2008
void Allocator::pushCompileContext(std::string &text)
{
    history.push_compile(text);
}

void Allocator::popCompileContext()
{
    history.pop_compile();
}
#endif

#if TARN_TORCH_VERSION >= 2010
void Allocator::setUserMetadata(const std::string &text)
{
    history.set_metadata(text);
}

std::string Allocator::getUserMetadata()
{
    return history.metadata();
}
#endif

#if TARN_TORCH_VERSION >= 2012
std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void *pointer)
{
    return history.context_of(const_cast<void *>(pointer));
}
#endif

#if TARN_TORCH_VERSION >= 2014
void Allocator::annotateMemory(const void *pointer, const std::string &metadata)
{
    tarn_block_info info = {};
    info.size = sizeof info;
    check(tarn_pointer_info_get(pointer, &info), "an annotation");
    std::string before = history.metadata();
    history.set_metadata(metadata);
    history.event(TraceEntry::ANNOTATE, static_cast<DeviceIndex>(info.device),
                  reinterpret_cast<size_t>(pointer), info.requested, nullptr, {0, 0},
                  RecordContext::NEVER);
    history.set_metadata(before);
}
#endif

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker)
{
    history.attach(std::move(tracker));
    observe();
}

static void range_mapped(const tarn_mapping *range, void *user)
{
    static_cast<History *>(user)->event(TraceEntry::SEGMENT_MAP,
                                        static_cast<DeviceIndex>(range->device),
                                        reinterpret_cast<size_t>(range->address), range->bytes,
                                        nullptr, {0, 0}, RecordContext::NEVER);
}

static void range_unmapping(const tarn_mapping *range, void *user)
{
    static_cast<History *>(user)->event(
        TraceEntry::SEGMENT_UNMAP, static_cast<DeviceIndex>(range->device),
        reinterpret_cast<size_t>(range->address), range->bytes, nullptr, {0, 0},
        RecordContext::ALL); /* the level of a free, as in PyTorch's own allocator */
}

/* Starts to record what is mapped and unmapped, when somebody first wants to know. */
void Allocator::observe()
{
    std::lock_guard<std::mutex> guard(lock);
    if (observes)
        return;
    tarn_observer_options options = {};
    options.size = sizeof options;
    options.device = TARN_ALL_DEVICES;
    options.user = &history;
    options.mapped = range_mapped;
    options.unmapping = range_unmapping;
    tarn_observer observer = 0;
    check(tarn_observer_add(&options, &observer), "an observer");
    observes = true;
}

/* ---- What lies where ---- */

namespace
{
struct Lister {
    MempoolId_t pool; /* (0, 0): all */
    std::vector<SegmentInfo> segments;
    /* for each segment: the lowest generation of a live block; UINT64_MAX: not known */
    std::vector<uint64_t> ages;
    std::function<MempoolId_t(int device, tarn_pool_id id)> id_of;
    std::function<std::shared_ptr<c10::GatheredContext>(void *)> context_of;
};

struct Largest {
    int device;
    size_t bytes;
};
} // namespace

static uint64_t age_of(const tarn_memory_segment *found)
{
    uint64_t age = UINT64_MAX;
    for (size_t i = 0; i < found->part_count; i++) {
        tarn_mapping range = {};
        if (found->parts[i].state == TARN_MEMORY_LIVE &&
            tarn_mapping_get(found->parts[i].address, &range) == TARN_OK)
            age = std::min(age, range.generation);
    }
    return age;
}

/* Sets the numbers by which c10d, from 2.11 on, orders the segments of a pool when it registers
 * them. It refuses segments without a number. The oldest segment comes first, so that ranks that
 * allocate alike register alike, wherever their segments are. */
template <typename Info>
static auto number(Info &segment, size_t i, int) -> decltype(segment.registration_counter, void())
{
    segment.registration_counter = static_cast<decltype(segment.registration_counter)>(i);
}

template <typename Info> static void number(Info &segment, size_t i, long)
{
    (void)segment, (void)i; /* an older PyTorch */
}

static void number_by_age(Lister &lister)
{
    std::vector<size_t> order(lister.segments.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return lister.ages[a] < lister.ages[b]; });
    for (size_t i = 0; i < order.size(); i++)
        number(lister.segments[order[i]], i, 0);
}

static void list_segment(const tarn_memory_segment *found, void *user)
{
    auto *lister = static_cast<Lister *>(user);
    MempoolId_t pool = lister->id_of(found->device, found->pool);
    bool of_one = lister->pool.first || lister->pool.second;
    if (of_one && pool != lister->pool)
        return;
    /* Only segments of a pool are registered */
    lister->ages.push_back(of_one ? age_of(found) : UINT64_MAX);
    SegmentInfo segment;
    segment.device = static_cast<DeviceIndex>(found->device);
    segment.address = reinterpret_cast<size_t>(found->address);
    segment.total_size = found->bytes;
    segment.stream = static_cast<cudaStream_t>(found->native);
    segment.is_large = found->large;
    segment.is_expandable = found->is_virtual;
    segment.owner_private_pool_id = pool;
    for (size_t i = 0; i < found->part_count; i++) {
        const tarn_memory_part &part = found->parts[i];
        BlockInfo block;
        block.size = part.bytes;
        block.requested_size = part.requested;
        block.allocated = part.state == TARN_MEMORY_LIVE;
        block.active = part.state != TARN_MEMORY_FREE;
        if (block.allocated) {
            block.context_when_allocated = lister->context_of(part.address);
            segment.allocated_size += part.bytes;
        }
        if (block.active) {
            segment.active_size += part.bytes;
            segment.requested_size += part.requested;
        }
        segment.blocks.push_back(std::move(block));
    }
    lister->segments.push_back(std::move(segment));
}

SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces)
{
    auto numbers = pool_numbers();
    Lister lister;
    lister.pool = id;
    lister.id_of = [&](int device, tarn_pool_id ours) { return id_in(numbers, device, ours); };
    lister.context_of = [&](void *pointer) { return history.context_of(pointer); };
    check(tarn_memory_list(list_segment, &lister), "a snapshot");
    number_by_age(lister);

    SnapshotInfo result;
    result.segments = std::move(lister.segments);
    result.device_traces = include_traces ? history.traces(id, static_cast<int>(devices.size()))
                                          : std::vector<std::vector<TraceEntry>>(devices.size());
    result.external_annotations = history.annotations();
    AllocatorConfigInfo &settings = result.config_metadata = {};
    settings.garbage_collection_threshold = 0;
    settings.max_split_size = SIZE_MAX;
    settings.pinned_num_register_threads = 1;
    settings.expandable_segments = false;
    settings.release_lock_on_malloc = false;
    settings.pinned_use_host_register = false;
#if TARN_TORCH_VERSION >= 2009
    settings.graph_capture_record_stream_reuse = false;
#endif
    char text[4096];
    if (tarn_configuration_get(text, sizeof text, nullptr) == TARN_OK)
        settings.last_allocator_settings = text;
    history.event(TraceEntry::SNAPSHOT, 0, 0, 0, nullptr, {0, 0}, RecordContext::NEVER);
    return result;
}

static void largest_free(const tarn_memory_segment *found, void *user)
{
    auto *largest = static_cast<Largest *>(user);
    for (size_t i = 0; found->device == largest->device && i < found->part_count; i++)
        if (found->parts[i].state == TARN_MEMORY_FREE)
            largest->bytes = std::max(largest->bytes, found->parts[i].bytes);
}

/* Sets *largest to the largest free block, if that is larger. If *largest is 0, it first becomes
 * the free memory that the driver reports. cuDNN's benchmark bounds its workspaces by this. */
void Allocator::cacheInfo(DeviceIndex device, size_t *largest)
{
    Largest found = {device, *largest};
    if (!found.bytes) {
        size_t total = 0;
        check(tarn_device_memory_get(device, &found.bytes, &total), "the device's memory");
    }
    check(tarn_memory_list(largest_free, &found), "the largest free block");
    *largest = found.bytes;
}

} // namespace tarn_torch
