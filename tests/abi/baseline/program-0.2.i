/* SPDX-License-Identifier: MIT */
/* tests/abi/program.c with the headers of tarn 0.2: `scripts/abi-baseline --write` wrote it. */
typedef long int ptrdiff_t;
typedef long unsigned int size_t;
typedef int wchar_t;
typedef signed char int8_t;
typedef short int int16_t;
typedef int int32_t;
typedef long int int64_t;
typedef unsigned char uint8_t;
typedef short unsigned int uint16_t;
typedef unsigned int uint32_t;
typedef long unsigned int uint64_t;
typedef signed char int_least8_t;
typedef short int int_least16_t;
typedef int int_least32_t;
typedef long int int_least64_t;
typedef unsigned char uint_least8_t;
typedef short unsigned int uint_least16_t;
typedef unsigned int uint_least32_t;
typedef long unsigned int uint_least64_t;
typedef signed char int_fast8_t;
typedef long int int_fast16_t;
typedef long int int_fast32_t;
typedef long int int_fast64_t;
typedef unsigned char uint_fast8_t;
typedef long unsigned int uint_fast16_t;
typedef long unsigned int uint_fast32_t;
typedef long unsigned int uint_fast64_t;
typedef long int intptr_t;
typedef long unsigned int uintptr_t;
typedef long int intmax_t;
typedef long unsigned int uintmax_t;
typedef enum tarn_status {
    TARN_OK = 0, TARN_ERROR_INVALID_ARGUMENT = 1, TARN_ERROR_OUT_OF_MEMORY = 2, TARN_ERROR_OUT_OF_HOST_MEMORY = 3, TARN_ERROR_INVALID_POINTER = 4, TARN_ERROR_DOUBLE_FREE = 5, TARN_ERROR_INVALID_DEVICE = 6, TARN_ERROR_INVALID_STREAM = 7, TARN_ERROR_NOT_READY = 8, TARN_ERROR_BUSY = 9, TARN_ERROR_CAPTURE = 10, TARN_ERROR_DEVICE_LOST = 11, TARN_ERROR_MAPPING_LIMIT = 12, TARN_ERROR_DRIVER = 13, TARN_ERROR_NO_DRIVER = 14, TARN_ERROR_LIBRARY_NOT_FOUND = 15, TARN_ERROR_NOT_SUPPORTED = 16, TARN_ERROR_FORKED = 17, TARN_ERROR_SHUTDOWN = 18, TARN_ERROR_CONFIGURATION = 19, TARN_ERROR_NO_ROOM = 20, TARN_ERROR_INTERNAL = 21, TARN_ERROR_LIBRARY = 22, TARN_ERROR_SCOPE = 23, TARN_ERROR_SUSPENDED = 24, TARN_ERROR_SYSTEM = 25,
} tarn_status;
__attribute__((visibility("default"))) const char *tarn_status_name(tarn_status status);
__attribute__((visibility("default"))) const char *tarn_status_text(tarn_status status);
__attribute__((visibility("default"))) tarn_status tarn_last_status(void);
typedef struct tarn_stat {
    int64_t current, peak;
    int64_t allocated;
    int64_t freed;
} tarn_stat;
typedef enum tarn_stat_class {
    TARN_STAT_ALL,
    TARN_STAT_SMALL_POOL,
    TARN_STAT_LARGE_POOL,
    TARN_STAT_CLASSES
} tarn_stat_class;
typedef struct tarn_stats {
    size_t size;
    int64_t max_split_size;
    int64_t metadata_bytes;
    tarn_stat allocation[TARN_STAT_CLASSES]; tarn_stat segment[TARN_STAT_CLASSES]; tarn_stat active[TARN_STAT_CLASSES]; tarn_stat inactive_split[TARN_STAT_CLASSES]; tarn_stat allocated_bytes[TARN_STAT_CLASSES]; tarn_stat reserved_bytes[TARN_STAT_CLASSES]; tarn_stat active_bytes[TARN_STAT_CLASSES]; tarn_stat inactive_split_bytes[TARN_STAT_CLASSES]; tarn_stat requested_bytes[TARN_STAT_CLASSES];
    tarn_stat oversize_allocations; tarn_stat oversize_segments;
    int64_t num_alloc_retries; int64_t num_ooms; int64_t num_sync_all_streams; int64_t num_device_alloc; int64_t num_device_free; int64_t num_oom_rejections;
} tarn_stats;
typedef enum tarn_stats_what {
    TARN_STATS_PEAK,
    TARN_STATS_ACCUMULATED
} tarn_stats_what;
__attribute__((visibility("default"))) tarn_status tarn_device_stats_reset(int device, tarn_stats_what what);
typedef struct tarn_metadata_kind {
    size_t size;
    const char *name;
    size_t record_bytes;
    int64_t records;
    int64_t bytes;
} tarn_metadata_kind;
__attribute__((visibility("default"))) tarn_status tarn_metadata_list(void (*each)(const tarn_metadata_kind *kind, void *user),
                                        void *user);
typedef uint64_t tarn_stream;
__attribute__((visibility("default"))) tarn_status tarn_stream_find(int device, void *native, tarn_stream *stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_lease(int device, int priority, tarn_stream *stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_return(tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_alloc_on(tarn_stream stream, size_t size, void **pointer);
typedef uint16_t tarn_tag;
typedef struct tarn_pool tarn_pool;
typedef struct tarn_alloc_options {
    size_t size;
    int device;
    tarn_stream stream;
    size_t alignment;
    tarn_tag tag;
    tarn_pool *pool;
    uint64_t wait;
} tarn_alloc_options;
__attribute__((visibility("default"))) tarn_status tarn_alloc(const tarn_alloc_options *options, size_t size, void **pointer);
__attribute__((visibility("default"))) tarn_status tarn_free(void *pointer);
__attribute__((visibility("default"))) tarn_status tarn_free_on(void *pointer, tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_record_stream(void *pointer, tarn_stream stream);
struct tarn_pool_options;
__attribute__((visibility("default"))) tarn_status tarn_pool_create(const struct tarn_pool_options *options, tarn_pool **pool);
__attribute__((visibility("default"))) tarn_status tarn_pool_alloc(tarn_pool *pool, tarn_stream stream, size_t size,
                                     void **pointer);
__attribute__((visibility("default"))) tarn_status tarn_pool_release(tarn_pool *pool);
typedef enum tarn_capture_mode {
    TARN_CAPTURE_GLOBAL,
    TARN_CAPTURE_THREAD_LOCAL,
    TARN_CAPTURE_RELAXED
} tarn_capture_mode;
__attribute__((visibility("default"))) tarn_status tarn_pool_capture_begin(tarn_pool *pool, tarn_stream stream,
                                             tarn_capture_mode mode);
__attribute__((visibility("default"))) tarn_status tarn_capture_end(tarn_stream stream, void **graph);
typedef int tarn_library;
__attribute__((visibility("default"))) tarn_status tarn_handle_get(tarn_library library, tarn_stream stream, void **handle);
__attribute__((visibility("default"))) tarn_status tarn_handle_prewarm(tarn_library library, int device, tarn_stream stream,
                                         size_t count);
__attribute__((visibility("default"))) tarn_status tarn_pinned_alloc(tarn_stream stream, size_t size, void **pointer);
__attribute__((visibility("default"))) tarn_status tarn_device_trim(int device, size_t keep);
__attribute__((visibility("default"))) tarn_status tarn_device_stats_get(int device, tarn_stats *stats);
__attribute__((visibility("default"))) const char *tarn_last_error(void);
typedef enum tarn_debug_kind {
    TARN_DEBUG_BAD_FREE,
    TARN_DEBUG_RED_ZONE,
    TARN_DEBUG_WRITE_AFTER_FREE,
    TARN_DEBUG_CONFLICT,
    TARN_DEBUG_DEVICE,
    TARN_DEBUG_LEAK,
    TARN_DEBUG_GRAPH
} tarn_debug_kind;
typedef struct tarn_debug_report {
    size_t size;
    tarn_debug_kind kind;
    int device;
    const void *block;
    size_t requested;
    int64_t offset;
    const char *text;
} tarn_debug_report;
__attribute__((visibility("default"))) void tarn_debug_callback_set(void (*function)(const tarn_debug_report *report, void *user),
                                      void *user);
__attribute__((visibility("default"))) uint64_t tarn_debug_reports(void);
__attribute__((visibility("default"))) tarn_status tarn_debug_check(int device);
typedef struct tarn_host_configuration {
    size_t size;
    int devices;
    size_t memory;
    size_t maps;
} tarn_host_configuration;
__attribute__((visibility("default"))) tarn_status tarn_host_configuration_set(const tarn_host_configuration *config);
__attribute__((visibility("default"))) const char *tarn_host_call_name(int kind);
typedef struct tarn_host_ledger {
    size_t size;
    uint64_t created, created_peak;
    uint64_t mapped, mapped_peak;
    uint64_t pieces, mappings, plain;
    uint64_t reserved_addresses;
    uint64_t pinned;
    uint64_t pinned_bytes, pinned_peak;
    uint64_t streams, events;
    uint64_t graphs;
    uint64_t time_a_ns, time_b_ns;
    uint64_t time_c_ns;
    uint64_t waited_ns;
    uint64_t reports;
    uint64_t failed;
    uint64_t calls[64];
} tarn_host_ledger;
__attribute__((visibility("default"))) tarn_status tarn_host_ledger_get(int device, tarn_host_ledger *ledger);
__attribute__((visibility("default"))) tarn_status tarn_host_ledger_reset(int device);
__attribute__((visibility("default"))) tarn_status tarn_host_cost_get(char table, int kind, size_t bytes, uint64_t pieces,
                                        uint64_t *ns);
__attribute__((visibility("default"))) tarn_status tarn_host_fail_set(int kind, uint64_t nth, _Bool forever, tarn_status status);
__attribute__((visibility("default"))) tarn_status tarn_host_time_get(uint64_t *now);
__attribute__((visibility("default"))) tarn_status tarn_host_advance(uint64_t now);
__attribute__((visibility("default"))) tarn_status tarn_host_work(int device, void *native, const void *address, size_t size,
                                    uint64_t duration);
__attribute__((visibility("default"))) tarn_status tarn_host_fill(int device, void *native, void *address, int value,
                                    size_t size);
__attribute__((visibility("default"))) tarn_status tarn_host_call(int device, void *native, void (*function)(void *), void *user);
__attribute__((visibility("default"))) tarn_status tarn_host_graph_launch(int device, void *graph, void *native);
__attribute__((visibility("default"))) tarn_status tarn_host_graph_destroy(void *graph);
typedef struct tarn_host_extent {
    uint64_t piece;
    uint64_t offset;
    uint64_t length;
    _Bool accessible;
} tarn_host_extent;
__attribute__((visibility("default"))) tarn_status tarn_host_extent_get(int device, const void *address, size_t size,
                                          tarn_host_extent *extent);
__attribute__((visibility("default"))) tarn_status tarn_host_check_set(_Bool on, void (*report)(const char *text, void *user),
                                         void *user);
typedef struct tarn_live_options {
    size_t size;
    const char *name;
    const char *directory;
    unsigned interval_ms;
} tarn_live_options;
__attribute__((visibility("default"))) tarn_status tarn_live_start(const tarn_live_options *options);
__attribute__((visibility("default"))) tarn_status tarn_live_stop(void);
__attribute__((visibility("default"))) tarn_status tarn_metrics_print(_Bool (*take)(const void *text, size_t length, void *user),
                                        void *user);
__attribute__((visibility("default"))) tarn_status tarn_configuration_set(const char *text);
__attribute__((visibility("default"))) tarn_status tarn_configuration_get(char *buffer, size_t size, size_t *needed);
__attribute__((visibility("default"))) tarn_status tarn_configuration_note_get(int index, const char **text);
typedef struct tarn_device_properties {
    size_t size;
    char name[64];
    char driver[16];
    size_t memory;
    size_t granule;
    int least_priority;
    int greatest_priority;
    _Bool virtual_memory;
    _Bool alias;
    int capability_major;
    int capability_minor;
    _Bool exportable;
    _Bool integrated;
    _Bool coherent;
    _Bool slice;
    _Bool mps;
    _Bool paged;
    int address_bits;
} tarn_device_properties;
__attribute__((visibility("default"))) tarn_status tarn_device_count_get(int *count);
__attribute__((visibility("default"))) tarn_status tarn_device_properties_get(int device, tarn_device_properties *properties);
__attribute__((visibility("default"))) tarn_status tarn_device_get(int *device);
__attribute__((visibility("default"))) tarn_status tarn_device_set(int device);
__attribute__((visibility("default"))) tarn_status tarn_device_adopt(int *device);
__attribute__((visibility("default"))) tarn_status tarn_device_memory_get(int device, size_t *free_bytes, size_t *total_bytes);
__attribute__((visibility("default"))) tarn_status tarn_device_synchronize(int device);
__attribute__((visibility("default"))) tarn_status tarn_device_peer_enable(int device, int peer);
typedef struct tarn_guard {
    tarn_stream previous_stream;
    int device;
    int previous_device;
    _Bool active;
} tarn_guard;
__attribute__((visibility("default"))) tarn_status tarn_device_guard_set(tarn_guard *guard, int device);
__attribute__((visibility("default"))) tarn_status tarn_guard_restore(tarn_guard *guard);
__attribute__((visibility("default"))) tarn_status tarn_shutdown(void);
__attribute__((visibility("default"))) tarn_status tarn_stream_get(int device, tarn_stream *stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_set(tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_adopt(int device, void *native, tarn_stream *stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_retire(tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_shared_get(int device, int priority, tarn_stream *stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_native_get(tarn_stream stream, void **native);
typedef struct tarn_stream_info {
    size_t size;
    int device;
    int priority;
} tarn_stream_info;
__attribute__((visibility("default"))) tarn_status tarn_stream_info_get(tarn_stream stream, tarn_stream_info *info);
__attribute__((visibility("default"))) tarn_status tarn_stream_query(tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_synchronize(tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_stream_guard_set(tarn_guard *guard, tarn_stream stream);
typedef struct tarn_event tarn_event;
__attribute__((visibility("default"))) tarn_status tarn_event_create(int device, tarn_event **event);
__attribute__((visibility("default"))) tarn_status tarn_event_destroy(tarn_event *event);
__attribute__((visibility("default"))) tarn_status tarn_event_record(tarn_event *event, tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_event_query(tarn_event *event);
__attribute__((visibility("default"))) tarn_status tarn_event_synchronize(tarn_event *event);
__attribute__((visibility("default"))) tarn_status tarn_stream_wait(tarn_stream stream, tarn_event *event);
typedef enum tarn_capture_state {
    TARN_CAPTURE_NONE,
    TARN_CAPTURE_ACTIVE,
    TARN_CAPTURE_INVALIDATED
} tarn_capture_state;
__attribute__((visibility("default"))) tarn_status tarn_capture_begin(tarn_stream stream, tarn_capture_mode mode);
__attribute__((visibility("default"))) tarn_status tarn_capture_announce(tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_capture_end_announced(tarn_stream stream, void *graph);
__attribute__((visibility("default"))) tarn_status tarn_capture_abort(tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_capture_state_get(tarn_stream stream, tarn_capture_state *state,
                                            uint64_t *id, void **graph);
__attribute__((visibility("default"))) void *tarn_malloc(size_t size);
__attribute__((visibility("default"))) tarn_status tarn_free_after(void *pointer, tarn_event *event);
__attribute__((visibility("default"))) tarn_status tarn_extend(void *pointer, size_t size);
__attribute__((visibility("default"))) tarn_status tarn_usable_size_get(const void *pointer, size_t *size);
typedef struct tarn_pool_id {
    uint64_t first;
    uint64_t second;
} tarn_pool_id;
typedef struct tarn_block_info {
    size_t size;
    void *base;
    size_t usable_size;
    size_t requested;
    int device;
    tarn_stream stream;
    tarn_tag tag;
    tarn_pool_id pool;
    _Bool imported;
} tarn_block_info;
__attribute__((visibility("default"))) tarn_status tarn_pointer_info_get(const void *pointer, tarn_block_info *info);
__attribute__((visibility("default"))) tarn_status tarn_tag_intern(const char *text, tarn_tag *tag);
__attribute__((visibility("default"))) const char *tarn_tag_text(tarn_tag tag);
__attribute__((visibility("default"))) tarn_status tarn_compact(int device, size_t wanted, size_t *gained);
__attribute__((visibility("default"))) tarn_status tarn_caching_set(_Bool caches, _Bool *previous);
__attribute__((visibility("default"))) tarn_status tarn_device_limit_set(int device, size_t bytes);
__attribute__((visibility("default"))) tarn_status tarn_device_limit_get(int device, size_t *bytes);
typedef enum tarn_graph_state {
    TARN_GRAPH_LIVE,
    TARN_GRAPH_HELD,
    TARN_GRAPH_FREE,
    TARN_GRAPH_OTHERS,
    TARN_GRAPH_CHANGED,
    TARN_GRAPH_UNMAPPED
} tarn_graph_state;
typedef enum tarn_graph_certainty {
    TARN_GRAPH_NO_FINDING,
    TARN_GRAPH_PERHAPS,
    TARN_GRAPH_LIKELY,
    TARN_GRAPH_CERTAIN
} tarn_graph_certainty;
typedef enum tarn_graph_node_kind {
    TARN_GRAPH_KERNEL,
    TARN_GRAPH_COPY,
    TARN_GRAPH_FILL,
    TARN_GRAPH_RELEASE,
    TARN_GRAPH_BATCH
} tarn_graph_node_kind;
typedef struct tarn_graph_reference {
    size_t size;
    tarn_graph_state state;
    tarn_graph_certainty certainty;
    size_t node;
    unsigned depth;
    tarn_graph_node_kind kind;
    void *native;
    const char *kernel;
    unsigned parameter;
    size_t offset;
    size_t parameter_bytes;
    void *address;
    void *block;
    size_t requested;
    tarn_tag tag;
    int device;
    tarn_pool_id pool;
    const char *remembered_at;
    const char *freed_at;
    const char *allocated_at;
    const char *region;
} tarn_graph_reference;
typedef struct tarn_graph_options {
    size_t size;
    _Bool all;
    uint64_t remembered;
} tarn_graph_options;
typedef enum tarn_graph_verdict {
    TARN_GRAPH_CLEAN,
    TARN_GRAPH_UNKNOWN,
    TARN_GRAPH_SUSPICIOUS
} tarn_graph_verdict;
typedef struct tarn_graph_summary {
    size_t size;
    tarn_graph_verdict verdict;
    _Bool remembered;
    size_t nodes;
    size_t references;
    size_t certain, likely, perhaps;
    size_t
        unproven;
    size_t unseen;
    size_t unseen_host;
    size_t unseen_kernels;
    size_t unseen_updatable;
    size_t unseen_conditional;
    size_t unseen_other;
} tarn_graph_summary;
__attribute__((visibility("default"))) tarn_status tarn_graph_check(void *graph, const tarn_graph_options *options,
                                      void (*found)(const tarn_graph_reference *reference,
                                                    void *user),
                                      void *user, tarn_graph_summary *summary);
__attribute__((visibility("default"))) tarn_status tarn_graph_remember(void *graph, uint64_t *number);
__attribute__((visibility("default"))) tarn_status tarn_graph_launch(void *executable, uint64_t number, tarn_stream stream,
                                       void (*found)(const tarn_graph_reference *reference,
                                                     void *user),
                                       void *user);
typedef struct tarn_mapping {
    void *address;
    size_t bytes;
    uint64_t generation;
    int device;
} tarn_mapping;
typedef struct tarn_shortage {
    size_t requested;
    size_t reserved;
    size_t limit;
    size_t free;
    size_t total;
    int device;
    _Bool rejected;
} tarn_shortage;
typedef struct tarn_observer_options {
    size_t size;
    int device;
    void *user;
    void (*mapped)(const tarn_mapping *range, void *user);
    void (*unmapping)(const tarn_mapping *range, void *user);
    _Bool (*out_of_memory)(const tarn_shortage *shortage, void *user);
    _Bool (*before_growth)(int device, size_t bytes, void *user);
    _Bool any_thread;
} tarn_observer_options;
typedef uint64_t tarn_observer;
__attribute__((visibility("default"))) tarn_status tarn_observer_add(const tarn_observer_options *options,
                                       tarn_observer *observer);
__attribute__((visibility("default"))) tarn_status tarn_observer_remove(tarn_observer observer);
__attribute__((visibility("default"))) tarn_status tarn_mapping_get(const void *pointer, tarn_mapping *mapping);
typedef struct tarn_pool_allocator {
    size_t size;
    void *(*alloc)(size_t size, int device, void *stream, void *user);
    void (*free)(void *pointer, size_t size, int device, void *stream, void *user);
    void (*gone)(void *user);
    void *user;
} tarn_pool_allocator;
typedef enum tarn_segments {
    TARN_SEGMENTS_DEFAULT,
    TARN_SEGMENTS_VIRTUAL,
    TARN_SEGMENTS_PLAIN,
    TARN_SEGMENTS_EXACT
} tarn_segments;
typedef struct tarn_segment_sizes {
    size_t size;
    size_t small_segment;
    size_t large_segment;
    size_t own_segment;
    size_t rounding;
    size_t max_split;
    size_t max_non_split_rounding;
} tarn_segment_sizes;
typedef struct tarn_pool_options {
    size_t size;
    int device;
    _Bool use_on_oom;
    _Bool no_remap;
    _Bool exportable;
    tarn_segments segments;
    const tarn_segment_sizes *sizes;
    _Bool no_split;
    const tarn_pool_allocator *allocator;
    _Bool registrable;
    unsigned idle_release;
} tarn_pool_options;
__attribute__((visibility("default"))) tarn_status tarn_pool_default(int device, tarn_pool **pool);
__attribute__((visibility("default"))) tarn_status tarn_pool_retain(tarn_pool *pool);
__attribute__((visibility("default"))) tarn_status tarn_pool_find(tarn_pool_id id, tarn_pool **pool);
typedef enum tarn_pool_state {
    TARN_POOL_RUNS,
    TARN_POOL_CHANGES,
    TARN_POOL_SAVED,
    TARN_POOL_DISCARDED
} tarn_pool_state;
typedef struct tarn_pool_info {
    size_t size;
    tarn_pool_id id;
    int device;
    tarn_pool_state state;
    unsigned use_count;
    tarn_tag tag;
    size_t limit;
    const tarn_pool_allocator *allocator;
} tarn_pool_info;
__attribute__((visibility("default"))) tarn_status tarn_pool_info_get(tarn_pool *pool, tarn_pool_info *info);
__attribute__((visibility("default"))) tarn_status tarn_pool_stats_get(tarn_pool *pool, tarn_stats *stats);
__attribute__((visibility("default"))) tarn_status tarn_pool_segments_get(tarn_pool *pool, tarn_mapping *segments, size_t room,
                                            size_t *count);
__attribute__((visibility("default"))) tarn_status tarn_pool_trim(tarn_pool *pool, size_t keep);
__attribute__((visibility("default"))) tarn_status tarn_pool_limit_set(tarn_pool *pool, size_t bytes);
typedef struct tarn_pool_block {
    void *address;
    size_t usable_size, requested;
    tarn_stream stream;
    uint64_t reserved[2];
} tarn_pool_block;
__attribute__((visibility("default"))) tarn_status tarn_pool_blocks_get(tarn_pool *pool, tarn_pool_block *blocks, size_t room,
                                          size_t *count);
__attribute__((visibility("default"))) tarn_status tarn_pool_suspend(tarn_pool *pool, _Bool save);
__attribute__((visibility("default"))) tarn_status tarn_pool_resume(tarn_pool *pool);
typedef struct tarn_checkpoint tarn_checkpoint;
__attribute__((visibility("default"))) tarn_status tarn_pool_checkpoint(tarn_pool *pool, tarn_checkpoint **checkpoint);
__attribute__((visibility("default"))) tarn_status tarn_checkpoint_destroy(tarn_checkpoint *checkpoint);
__attribute__((visibility("default"))) tarn_status tarn_pool_restore(tarn_pool *pool, const tarn_checkpoint *checkpoint,
                                       void (*changed)(const tarn_pool_block *block, _Bool live,
                                                       void *user),
                                       void *user);
typedef uint64_t tarn_scope;
typedef enum tarn_scope_kind {
    TARN_SCOPE_THREAD,
    TARN_SCOPE_STREAM,
    TARN_SCOPE_ALWAYS
} tarn_scope_kind;
__attribute__((visibility("default"))) tarn_status tarn_scope_begin(tarn_pool *pool, tarn_scope_kind kind, tarn_stream stream,
                                      tarn_scope *scope);
__attribute__((visibility("default"))) tarn_status tarn_scope_end(tarn_scope scope);
__attribute__((visibility("default"))) tarn_status tarn_scope_join(tarn_scope scope);
__attribute__((visibility("default"))) tarn_status tarn_pool_capture_announce(tarn_pool *pool, tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_pool_hold(tarn_pool *pool, void *graph);
__attribute__((visibility("default"))) tarn_status tarn_pool_unhold(tarn_pool *pool);
typedef enum tarn_library_number {
    TARN_LIBRARY_CUDNN = 1, TARN_LIBRARY_CUBLAS = 2, TARN_LIBRARY_CUBLASLT = 3, TARN_LIBRARY_CUSPARSE = 4, TARN_LIBRARY_CUSOLVER_DN = 5, TARN_LIBRARY_CUSOLVER_SP = 6, TARN_LIBRARY_CUDSS = 7, TARN_LIBRARY_CURAND = 8, TARN_LIBRARY_MIOPEN = 9, TARN_LIBRARY_ROCBLAS = 10, TARN_LIBRARY_HIPBLAS = 11, TARN_LIBRARY_HIPBLASLT = 12, TARN_LIBRARY_ROCSPARSE = 13, TARN_LIBRARY_HIPSPARSE = 14, TARN_LIBRARY_HIPSOLVER = 15, TARN_LIBRARY_CUSPARSELT = 16,
        TARN_MAX_LIBRARIES = 63
} tarn_library_number;
typedef enum tarn_platform {
    TARN_PLATFORM_ANY,
    TARN_PLATFORM_CUDA,
    TARN_PLATFORM_HIP
} tarn_platform;
typedef struct tarn_library_row {
    size_t size;
    const char *name;
    tarn_platform platform;
    unsigned flags;
    int create_number;
    int out_of_memory;
    const char *const *sonames;
    const char *create_name, *destroy_name;
    const char *set_stream_name;
    const char *get_stream_name, *set_workspace_name;
    const char *set_pointer_mode_name, *status_text_name;
    int (*create)(void **handle);
    int (*create_with_number)(void **handle, int number);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*get_stream)(void *handle, void **stream);
    int (*set_workspace)(void *handle, void *pointer, size_t size);
    int (*set_pointer_mode)(void *handle, int mode);
    const char *(*status_text)(int status);
} tarn_library_row;
__attribute__((visibility("default"))) tarn_status tarn_library_register(const tarn_library_row *row, tarn_library *library);
__attribute__((visibility("default"))) tarn_status tarn_library_find(const char *name, tarn_library *library);
typedef struct tarn_library_info {
    size_t size;
    char name[32];
    tarn_platform platform;
    _Bool found;
    _Bool usable;
    _Bool checked;
    char path[256];
    char version[32];
    char sonames[256];
    char reason[512];
} tarn_library_info;
__attribute__((visibility("default"))) tarn_status tarn_library_info_get(tarn_library library, tarn_library_info *info);
typedef struct tarn_lease {
    void *handle;
    void *owner;
    uint64_t number;
} tarn_lease;
__attribute__((visibility("default"))) tarn_status tarn_handle_lease(tarn_library library, tarn_stream stream, tarn_lease *lease);
__attribute__((visibility("default"))) tarn_status tarn_handle_lease_bind(tarn_lease *lease, tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_handle_return(tarn_lease *lease);
__attribute__((visibility("default"))) tarn_status tarn_handle_trim(tarn_library library, int device, size_t *destroyed);
__attribute__((visibility("default"))) tarn_status tarn_handle_wait_limit_set(uint64_t ns, uint64_t *previous);
typedef enum tarn_handle_mode {
    TARN_HANDLE_MATH,
    TARN_HANDLE_ATOMICS
} tarn_handle_mode;
typedef enum tarn_handle_mode_for {
    TARN_HANDLE_MODE_FOR_ALL,
    TARN_HANDLE_MODE_FOR_THREAD
} tarn_handle_mode_for;
__attribute__((visibility("default"))) tarn_status tarn_handle_mode_set(tarn_library library, tarn_handle_mode mode,
                                          tarn_handle_mode_for whose, int value, int *previous);
typedef struct tarn_handle_stats {
    size_t size;
    uint64_t created, destroyed;
    uint64_t in_use;
    uint64_t available;
    uint64_t peak_in_use;
    uint64_t failures;
    uint64_t create_ns_sum, create_ns_max, create_ns_last;
    int64_t device_bytes_last;
    int64_t device_bytes_max;
    uint64_t contract_breaks;
    size_t workspace_bytes;
} tarn_handle_stats;
__attribute__((visibility("default"))) tarn_status tarn_handle_stats_get(tarn_library library, int device,
                                           tarn_handle_stats *stats);
typedef enum tarn_workspace_policy {
    TARN_WORKSPACE_CACHED,
    TARN_WORKSPACE_PER_CALL,
    TARN_WORKSPACE_LIBRARY
} tarn_workspace_policy;
__attribute__((visibility("default"))) tarn_status tarn_workspace_policy_set(tarn_workspace_policy policy,
                                               tarn_workspace_policy *previous);
__attribute__((visibility("default"))) tarn_status tarn_workspace_size_set(tarn_library library, int64_t bytes);
__attribute__((visibility("default"))) tarn_status tarn_workspace_get(tarn_library library, tarn_stream stream,
                                        const tarn_lease *lease, void **pointer, size_t *size);
typedef struct tarn_workspace_call {
    void *handle;
    void *pointer;
    size_t bytes;
    void *owner;
} tarn_workspace_call;
__attribute__((visibility("default"))) tarn_status tarn_workspace_begin(tarn_library library, tarn_stream stream,
                                          const tarn_lease *lease, tarn_workspace_call *call);
__attribute__((visibility("default"))) tarn_status tarn_workspace_end(tarn_workspace_call *call);
typedef enum tarn_workspaces {
    TARN_WORKSPACES_ALL,
    TARN_WORKSPACES_OF_STREAM,
    TARN_WORKSPACES_OF_CAPTURE,
    TARN_WORKSPACES_OF_POOL
} tarn_workspaces;
typedef struct tarn_workspace_choice {
    size_t size;
    tarn_workspaces which;
    tarn_stream stream;
    uint64_t capture;
    tarn_pool *pool;
} tarn_workspace_choice;
typedef struct tarn_workspace_cleared {
    size_t size;
    size_t freed;
    size_t deferred;
} tarn_workspace_cleared;
__attribute__((visibility("default"))) tarn_status tarn_workspace_clear(const tarn_workspace_choice *choice,
                                          tarn_workspace_cleared *cleared);
typedef struct tarn_workspace_stats {
    size_t size;
    uint64_t count, bytes, peak_bytes;
    uint64_t captured_count, captured_bytes;
    uint64_t deferred_bytes;
    uint64_t leaked_bytes;
    uint64_t allocations;
} tarn_workspace_stats;
__attribute__((visibility("default"))) tarn_status tarn_workspace_stats_get(int device, tarn_workspace_stats *stats);
typedef struct tarn_keep_options {
    size_t size;
    int device;
    const char *socket;
    tarn_stream stream;
    size_t segment;
    unsigned wait_ms;
    _Bool read;
} tarn_keep_options;
typedef struct tarn_kept {
    size_t size;
    size_t blocks;
    size_t bytes;
    size_t mapped;
    _Bool adopted;
    _Bool moved;
    _Bool read_only;
} tarn_kept;
__attribute__((visibility("default"))) tarn_status tarn_pool_keep(const char *name, const tarn_keep_options *options,
                                    tarn_pool **pool, tarn_kept *kept);
__attribute__((visibility("default"))) tarn_status tarn_pool_block_seal(const void *pointer, const char *name, const void *data,
                                          tarn_event *event);
__attribute__((visibility("default"))) tarn_status tarn_pool_block_unseal(const void *pointer);
typedef struct tarn_sealed_block {
    size_t size;
    void *pointer;
    size_t bytes;
    uint8_t data[64];
    uint64_t seal;
} tarn_sealed_block;
__attribute__((visibility("default"))) tarn_status tarn_pool_block_find(tarn_pool *pool, const char *name,
                                          tarn_sealed_block *block);
__attribute__((visibility("default"))) tarn_status tarn_pool_save(tarn_pool *pool, int file);
__attribute__((visibility("default"))) tarn_status tarn_pool_load(tarn_pool *pool, int file);
__attribute__((visibility("default"))) _Bool tarn_pinned_contains(const void *pointer);
__attribute__((visibility("default"))) tarn_status tarn_pinned_trim(size_t keep);
__attribute__((visibility("default"))) tarn_status tarn_pinned_limit_set(size_t bytes);
__attribute__((visibility("default"))) tarn_status tarn_pinned_forget_captures(void);
typedef struct tarn_pinned_duration {
    int64_t total, max, min;
    int64_t count;
    int64_t avg;
} tarn_pinned_duration;
typedef struct tarn_pinned_stats {
    size_t size;
    tarn_stat active_requests;
    tarn_stat active_bytes;
    tarn_stat requested_bytes;
    tarn_stat allocations;
    tarn_stat allocated_bytes;
    tarn_pinned_duration host_alloc_time;
    tarn_pinned_duration host_free_time;
    int64_t num_host_alloc, num_host_free;
    int64_t bucket_allocation[64];
    int64_t pending_bytes;
    int64_t graph_bytes;
    int64_t num_alloc_retries;
    int64_t num_ooms;
    uint64_t limit;
} tarn_pinned_stats;
__attribute__((visibility("default"))) tarn_status tarn_pinned_stats_get(tarn_pinned_stats *stats);
__attribute__((visibility("default"))) tarn_status tarn_pinned_stats_reset(tarn_stats_what what);
typedef struct tarn_range tarn_range;
typedef struct tarn_range_options {
    size_t size;
    tarn_pool *pool;
    size_t page;
    tarn_tag tag;
} tarn_range_options;
typedef struct tarn_range_info {
    size_t size;
    void *address;
    size_t bytes;
    size_t page;
    int device;
    tarn_pool_id pool;
    size_t committed;
    size_t decommitted;
} tarn_range_info;
__attribute__((visibility("default"))) tarn_status tarn_range_create(const tarn_range_options *options, size_t bytes,
                                       tarn_range **range);
__attribute__((visibility("default"))) tarn_status tarn_range_commit(tarn_range *range, size_t offset, size_t bytes,
                                       tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_range_decommit(tarn_range *range, size_t offset, size_t bytes,
                                         tarn_stream stream);
__attribute__((visibility("default"))) tarn_status tarn_range_hold(tarn_range *range, size_t offset, size_t bytes, void *graph);
__attribute__((visibility("default"))) tarn_status tarn_range_unhold(tarn_range *range, size_t offset, size_t bytes);
__attribute__((visibility("default"))) tarn_status tarn_range_info_get(tarn_range *range, tarn_range_info *info);
__attribute__((visibility("default"))) tarn_status tarn_range_destroy(tarn_range *range);
__attribute__((visibility("default"))) tarn_status tarn_anchor(const void *pointer, size_t size);
__attribute__((visibility("default"))) tarn_status tarn_unanchor(const void *pointer, size_t size);
__attribute__((visibility("default"))) tarn_status tarn_export_enable(int device);
typedef struct tarn_share tarn_share;
__attribute__((visibility("default"))) tarn_status tarn_export(const void *pointer, tarn_share **share);
__attribute__((visibility("default"))) tarn_status tarn_share_close(tarn_share *share);
typedef struct tarn_share_info {
    size_t size;
    size_t bytes;
    size_t offset;
    size_t mapped;
    unsigned pieces;
    int device;
    uint64_t id[2];
    uint64_t generation;
    size_t importers;
} tarn_share_info;
__attribute__((visibility("default"))) tarn_status tarn_share_info_get(const tarn_share *share, tarn_share_info *info);
__attribute__((visibility("default"))) tarn_status tarn_share_send(int socket, const tarn_share *share);
__attribute__((visibility("default"))) tarn_status tarn_share_receive(int socket, tarn_share **share);
__attribute__((visibility("default"))) tarn_status tarn_import(const tarn_share *share, int device, void **pointer);
__attribute__((visibility("default"))) tarn_status tarn_import_close(void *pointer);
__attribute__((visibility("default"))) tarn_status tarn_pool_export(tarn_pool *pool, const tarn_share *before,
                                      tarn_share **share);
__attribute__((visibility("default"))) tarn_status tarn_share_revoke(const tarn_share *share);
typedef struct tarn_imported_pool tarn_imported_pool;
__attribute__((visibility("default"))) tarn_status tarn_pool_import(const tarn_share *share, int device,
                                      tarn_imported_pool **imported);
__attribute__((visibility("default"))) tarn_status tarn_imported_pool_update(tarn_imported_pool *imported,
                                               const tarn_share *share);
__attribute__((visibility("default"))) tarn_status tarn_imported_pool_find(tarn_imported_pool *imported, const void *address,
                                             size_t size, void **pointer);
typedef enum tarn_import_state {
    TARN_IMPORT_CURRENT,
    TARN_IMPORT_OUTDATED,
    TARN_IMPORT_REVOKED,
    TARN_IMPORT_ORPHANED
} tarn_import_state;
__attribute__((visibility("default"))) tarn_status tarn_imported_pool_state_get(tarn_imported_pool *imported,
                                                  tarn_import_state *state);
__attribute__((visibility("default"))) tarn_status tarn_imported_pool_close(tarn_imported_pool *imported);
typedef enum tarn_sleep_contents {
    TARN_SLEEP_SAVE,
    TARN_SLEEP_DISCARD,
    TARN_SLEEP_LEAVE
} tarn_sleep_contents;
typedef struct tarn_sleep_rule {
    tarn_tag tag;
    tarn_sleep_contents contents;
} tarn_sleep_rule;
typedef struct tarn_sleep_options {
    size_t size;
    unsigned what;
    tarn_sleep_contents contents;
    const tarn_sleep_rule *rules;
    size_t rule_count;
} tarn_sleep_options;
typedef enum tarn_residue_reason {
    TARN_RESIDUE_CONTEXT = 1, TARN_RESIDUE_HANDLES = 2, TARN_RESIDUE_WORKSPACES = 3, TARN_RESIDUE_DEFAULT_POOL = 4, TARN_RESIDUE_PLAIN = 5, TARN_RESIDUE_REGISTERED = 6, TARN_RESIDUE_EXPORTED = 7, TARN_RESIDUE_LEFT = 8, TARN_RESIDUE_PINNED = 9, TARN_RESIDUE_SLEEPER = 10, TARN_RESIDUE_IMPORTED = 11, TARN_RESIDUE_RANGE = 12, TARN_RESIDUE_KEPT = 13,
} tarn_residue_reason;
typedef struct tarn_residue_item {
    tarn_residue_reason reason;
    int device;
    tarn_pool_id pool;
    size_t bytes;
    size_t count;
    const char *text;
} tarn_residue_item;
typedef struct tarn_residue {
    size_t size;
    tarn_residue_item *items;
    size_t room;
    size_t count;
    size_t before;
    size_t after;
    size_t saved;
} tarn_residue;
typedef enum tarn_sleep_state {
    TARN_SLEEP_AWAKE,
    TARN_SLEEP_CHANGES,
    TARN_SLEEP_PREPARED,
    TARN_SLEEP_ASLEEP
} tarn_sleep_state;
typedef uint64_t tarn_sleeper;
typedef struct tarn_sleeper_options {
    size_t size;
    const char *name;
    int device;
    tarn_pool *pool;
    void *user;
    tarn_status (*prepare)(void *user, char *why, size_t room);
    void (*cancel)(void *user);
    tarn_status (*commit)(void *user, char *why, size_t room);
    tarn_status (*wake)(void *user, char *why, size_t room);
    size_t (*held)(void *user);
} tarn_sleeper_options;
typedef enum tarn_sleeper_state {
    TARN_SLEEPER_AWAKE,
    TARN_SLEEPER_PREPARED,
    TARN_SLEEPER_ASLEEP
} tarn_sleeper_state;
typedef struct tarn_sleeper_info {
    size_t size;
    int device;
    tarn_sleeper_state state;
    tarn_status status;
    char name[64];
    char why[256];
} tarn_sleeper_info;
__attribute__((visibility("default"))) tarn_status tarn_pool_tag_set(tarn_pool *pool, tarn_tag tag);
__attribute__((visibility("default"))) tarn_status tarn_sleep_prepare(const tarn_sleep_options *options, tarn_residue *residue);
__attribute__((visibility("default"))) tarn_status tarn_sleep_commit(tarn_residue *residue);
__attribute__((visibility("default"))) tarn_status tarn_sleep_cancel(void);
__attribute__((visibility("default"))) tarn_status tarn_sleep(const tarn_sleep_options *options, tarn_residue *residue);
__attribute__((visibility("default"))) tarn_status tarn_wake(void);
__attribute__((visibility("default"))) tarn_status tarn_sleeper_add(const tarn_sleeper_options *options, tarn_sleeper *sleeper);
__attribute__((visibility("default"))) tarn_status tarn_sleeper_remove(tarn_sleeper sleeper);
__attribute__((visibility("default"))) tarn_status tarn_sleeper_info_get(tarn_sleeper sleeper, tarn_sleeper_info *info);
__attribute__((visibility("default"))) tarn_status tarn_sleep_state_get(tarn_sleep_state *state);
typedef enum tarn_snapshot_format {
    TARN_SNAPSHOT_PICKLE,
    TARN_SNAPSHOT_CHROME
} tarn_snapshot_format;
typedef struct tarn_snapshot_options {
    size_t size;
    tarn_snapshot_format format;
    uint64_t max_bytes;
} tarn_snapshot_options;
__attribute__((visibility("default"))) tarn_status tarn_snapshot_write(const char *path, const tarn_snapshot_options *options);
__attribute__((visibility("default"))) tarn_status tarn_snapshot_print(_Bool (*write)(const void *data, size_t size, void *user),
                                         void *user, const tarn_snapshot_options *options);
typedef enum tarn_memory_state {
    TARN_MEMORY_FREE,
    TARN_MEMORY_LIVE,
    TARN_MEMORY_WAITING
} tarn_memory_state;
typedef struct tarn_memory_part {
    void *address;
    size_t bytes;
    size_t requested;
    tarn_memory_state state;
    tarn_tag tag;
    uint64_t reserved[2];
} tarn_memory_part;
typedef struct tarn_memory_segment {
    size_t size;
    void *address;
    size_t bytes;
    int device;
    tarn_stream stream;
    void *native;
    tarn_pool_id pool;
    _Bool large;
    _Bool is_virtual;
    const tarn_memory_part *parts;
    size_t part_count;
} tarn_memory_segment;
__attribute__((visibility("default"))) tarn_status tarn_memory_list(void (*each)(const tarn_memory_segment *segment, void *user),
                                      void *user);
typedef enum tarn_trace_stacks {
    TARN_TRACE_STACKS_NONE,
    TARN_TRACE_STACKS_ALLOC,
    TARN_TRACE_STACKS_ALL
} tarn_trace_stacks;
typedef struct tarn_trace_options {
    size_t size;
    size_t records;
    tarn_trace_stacks stacks;
    _Bool regions;
} tarn_trace_options;
__attribute__((visibility("default"))) tarn_status tarn_trace_start(const tarn_trace_options *options);
__attribute__((visibility("default"))) tarn_status tarn_trace_stop(void);
__attribute__((visibility("default"))) tarn_status tarn_trace_clear(void);
__attribute__((visibility("default"))) tarn_status tarn_trace_count_get(uint64_t *kept, uint64_t *lost);
__attribute__((visibility("default"))) tarn_status tarn_region_push(const char *name);
__attribute__((visibility("default"))) tarn_status tarn_region_pop(void);
__attribute__((visibility("default"))) const char *tarn_version(void);
extern int printf(const char *format, ...);
extern void exit(int status);
extern void *memset(void *to, int value, size_t size);
extern int strcmp(const char *one, const char *other);
static void check_at(_Bool holds, const char *what, int line)
{
    if (holds)
        return;
    printf("%d: not so: %s\n   the last error: %s\n", line, what, tarn_last_error());
    exit(1);
}
enum { BEHIND = 256, UNTOUCHED = 0xA5 };
static _Bool is_untouched(const unsigned char *behind)
{
    for (int i = 0; i < BEHIND; i++) {
        if (behind[i] != UNTOUCHED)
            return 0;
    }
    return 1;
}
static tarn_stream first_stream, second_stream;
static void devices_and_streams(void)
{
    struct { tarn_device_properties value; unsigned char behind[BEHIND]; } properties; memset(&properties, UNTOUCHED, sizeof properties);
    struct { tarn_guard value; unsigned char behind[BEHIND]; } guard; memset(&guard, UNTOUCHED, sizeof guard);
    struct { tarn_guard value; unsigned char behind[BEHIND]; } stream_guard; memset(&stream_guard, UNTOUCHED, sizeof stream_guard);
    struct { tarn_stream_info value; unsigned char behind[BEHIND]; } info; memset(&info, UNTOUCHED, sizeof info);
    tarn_stream stream, current;
    tarn_event *event;
    void *native;
    size_t unused, total;
    int device, count;
    check_at((tarn_device_count_get(&count)) == TARN_OK, "tarn_device_count_get(&count)", 70);
    check_at(count == 2, "count == 2", 71);
    properties.value.size = sizeof properties.value;
    check_at((tarn_device_properties_get(1, &properties.value)) == TARN_OK, "tarn_device_properties_get(1, &properties.value)", 73);
    check_at(is_untouched((properties).behind), "nothing was written behind " "properties", 74);
    check_at(strcmp(properties.value.driver, "host") == 0, "strcmp(properties.value.driver, \"host\") == 0", 75);
    check_at(properties.value.memory == 256 * ((size_t)1 << 20) && properties.value.granule == 2 * ((size_t)1 << 20), "properties.value.memory == 256 * MIB && properties.value.granule == 2 * MIB", 76);
    check_at(properties.value.virtual_memory && properties.value.exportable && properties.value.capability_major == 0 && !properties.value.integrated && !properties.value.paged && properties.value.address_bits > 0, "properties.value.virtual_memory && properties.value.exportable && properties.value.capability_major == 0 && !properties.value.integrated && !properties.value.paged && properties.value.address_bits > 0", 77);
    check_at((tarn_device_memory_get(0, &unused, &total)) == TARN_OK, "tarn_device_memory_get(0, &unused, &total)", 80);
    check_at(total == 256 * ((size_t)1 << 20), "total == 256 * MIB", 81);
    check_at((tarn_device_guard_set(&guard.value, 1)) == TARN_OK, "tarn_device_guard_set(&guard.value, 1)", 83);
    check_at(is_untouched((guard).behind), "nothing was written behind " "guard", 84);
    check_at(guard.value.previous_device == 0 && guard.value.device == -1 && guard.value.active, "guard.value.previous_device == 0 && guard.value.device == -1 && guard.value.active", 85);
    check_at((tarn_device_get(&device)) == TARN_OK, "tarn_device_get(&device)", 86);
    check_at(device == 1, "device == 1", 87);
    check_at((tarn_guard_restore(&guard.value)) == TARN_OK, "tarn_guard_restore(&guard.value)", 88);
    check_at((tarn_stream_lease(0, 0, &first_stream)) == TARN_OK, "tarn_stream_lease(0, 0, &first_stream)", 90);
    check_at((tarn_stream_lease(0, 0, &second_stream)) == TARN_OK, "tarn_stream_lease(0, 0, &second_stream)", 91);
    check_at((tarn_stream_get(0, &stream)) == TARN_OK, "tarn_stream_get(0, &stream)", 92);
    check_at((tarn_stream_guard_set(&stream_guard.value, first_stream)) == TARN_OK, "tarn_stream_guard_set(&stream_guard.value, first_stream)", 93);
    check_at(is_untouched((stream_guard).behind), "nothing was written behind " "stream_guard", 94);
    check_at(stream_guard.value.device == 0 && stream_guard.value.active, "stream_guard.value.device == 0 && stream_guard.value.active", 95);
    check_at((tarn_stream_get(0, &current)) == TARN_OK, "tarn_stream_get(0, &current)", 96);
    check_at(current == first_stream, "current == first_stream", 97);
    check_at((tarn_guard_restore(&stream_guard.value)) == TARN_OK, "tarn_guard_restore(&stream_guard.value)", 98);
    check_at((tarn_stream_get(0, &current)) == TARN_OK, "tarn_stream_get(0, &current)", 99);
    check_at(current == stream, "current == stream", 100);
    check_at((tarn_stream_native_get(first_stream, &native)) == TARN_OK, "tarn_stream_native_get(first_stream, &native)", 102);
    check_at((tarn_stream_find(0, native, &stream)) == TARN_OK, "tarn_stream_find(0, native, &stream)", 103);
    check_at(stream == first_stream, "stream == first_stream", 104);
    info.value.size = sizeof info.value;
    check_at((tarn_stream_info_get(stream, &info.value)) == TARN_OK, "tarn_stream_info_get(stream, &info.value)", 106);
    check_at(is_untouched((info).behind), "nothing was written behind " "info", 107);
    check_at(info.value.device == 0 && info.value.priority == 0, "info.value.device == 0 && info.value.priority == 0", 108);
    check_at((tarn_stream_native_get(second_stream, &native)) == TARN_OK, "tarn_stream_native_get(second_stream, &native)", 110);
    check_at((tarn_event_create(0, &event)) == TARN_OK, "tarn_event_create(0, &event)", 111);
    check_at((tarn_host_work(0, native, ((void *)0), 0, 1000)) == TARN_OK, "tarn_host_work(0, native, NULL, 0, 1000)", 112);
    check_at((tarn_event_record(event, second_stream)) == TARN_OK, "tarn_event_record(event, second_stream)", 113);
    check_at(tarn_event_query(event) == TARN_ERROR_NOT_READY, "tarn_event_query(event) == TARN_ERROR_NOT_READY", 114);
    check_at((tarn_stream_wait(first_stream, event)) == TARN_OK, "tarn_stream_wait(first_stream, event)", 115);
    check_at((tarn_stream_synchronize(first_stream)) == TARN_OK, "tarn_stream_synchronize(first_stream)", 116);
    check_at((tarn_event_destroy(event)) == TARN_OK, "tarn_event_destroy(event)", 117);
}
static void memory(void)
{
    struct { tarn_block_info value; unsigned char behind[BEHIND]; } info; memset(&info, UNTOUCHED, sizeof info);
    struct { tarn_stats value; unsigned char behind[BEHIND]; } stats; memset(&stats, UNTOUCHED, sizeof stats);
    tarn_alloc_options options;
    tarn_tag tag;
    size_t bytes;
    _Bool caches;
    void *block;
    check_at((tarn_tag_intern("weights", &tag)) == TARN_OK, "tarn_tag_intern(\"weights\", &tag)", 130);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.device = (-1);
    options.stream = first_stream;
    options.alignment = 64 << 10;
    options.tag = tag;
    check_at((tarn_alloc(&options, 3 * ((size_t)1 << 20) + 1, &block)) == TARN_OK, "tarn_alloc(&options, 3 * MIB + 1, &block)", 137);
    check_at(((uintptr_t)block & 0xFFFF) == 0, "((uintptr_t)block & 0xFFFF) == 0", 138);
    info.value.size = sizeof info.value;
    check_at((tarn_pointer_info_get((char *)block + ((size_t)1 << 20), &info.value)) == TARN_OK, "tarn_pointer_info_get((char *)block + MIB, &info.value)", 141);
    check_at(is_untouched((info).behind), "nothing was written behind " "info", 142);
    check_at(info.value.base == block && info.value.requested == 3 * ((size_t)1 << 20) + 1 && info.value.usable_size >= 3 * ((size_t)1 << 20) + 1, "info.value.base == block && info.value.requested == 3 * MIB + 1 && info.value.usable_size >= 3 * MIB + 1", 143);
    check_at(info.value.device == 0 && info.value.stream == first_stream && info.value.tag == tag, "info.value.device == 0 && info.value.stream == first_stream && info.value.tag == tag", 145);
    check_at(info.value.pool.first == 0 && info.value.pool.second == 0 && !info.value.imported, "info.value.pool.first == 0 && info.value.pool.second == 0 && !info.value.imported", 146);
    stats.value.size = sizeof stats.value;
    check_at((tarn_device_stats_get(0, &stats.value)) == TARN_OK, "tarn_device_stats_get(0, &stats.value)", 149);
    check_at(is_untouched((stats).behind), "nothing was written behind " "stats", 150);
    check_at(stats.value.requested_bytes[TARN_STAT_ALL].current == (int64_t)(3 * ((size_t)1 << 20) + 1), "stats.value.requested_bytes[TARN_STAT_ALL].current == (int64_t)(3 * MIB + 1)", 151);
    check_at(stats.value.allocation[TARN_STAT_LARGE_POOL].peak == 1 && stats.value.allocation[TARN_STAT_SMALL_POOL].peak == 0, "stats.value.allocation[TARN_STAT_LARGE_POOL].peak == 1 && stats.value.allocation[TARN_STAT_SMALL_POOL].peak == 0", 152);
    check_at(stats.value.reserved_bytes[TARN_STAT_ALL].current >= (int64_t)(4 * ((size_t)1 << 20)), "stats.value.reserved_bytes[TARN_STAT_ALL].current >= (int64_t)(4 * MIB)", 154);
    check_at(stats.value.metadata_bytes > 0 && stats.value.max_split_size == -1, "stats.value.metadata_bytes > 0 && stats.value.max_split_size == -1", 155);
    check_at(stats.value.num_ooms == 0 && stats.value.num_device_alloc > 0, "stats.value.num_ooms == 0 && stats.value.num_device_alloc > 0", 156);
    check_at(tarn_alloc_on(first_stream, 300 * ((size_t)1 << 20), &block) == TARN_ERROR_OUT_OF_MEMORY, "tarn_alloc_on(first_stream, 300 * MIB, &block) == TARN_ERROR_OUT_OF_MEMORY", 157);
    check_at((tarn_device_stats_get(0, &stats.value)) == TARN_OK, "tarn_device_stats_get(0, &stats.value)", 158);
    check_at(stats.value.num_ooms == 1, "stats.value.num_ooms == 1", 159);
    check_at((tarn_record_stream(info.value.base, second_stream)) == TARN_OK, "tarn_record_stream(info.value.base, second_stream)", 161);
    check_at((tarn_free(info.value.base)) == TARN_OK, "tarn_free(info.value.base)", 162);
    check_at(tarn_free(info.value.base) == TARN_ERROR_DOUBLE_FREE, "tarn_free(info.value.base) == TARN_ERROR_DOUBLE_FREE", 163);
    check_at(tarn_free(&options) == TARN_ERROR_INVALID_POINTER, "tarn_free(&options) == TARN_ERROR_INVALID_POINTER", 164);
    block = tarn_malloc(100);
    check_at(block != ((void *)0), "block != NULL", 166);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 167);
    check_at((tarn_device_trim(0, 0)) == TARN_OK, "tarn_device_trim(0, 0)", 168);
    check_at((tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED)) == TARN_OK, "tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED)", 169);
    check_at((tarn_device_stats_get(0, &stats.value)) == TARN_OK, "tarn_device_stats_get(0, &stats.value)", 170);
    check_at(stats.value.num_ooms == 0, "stats.value.num_ooms == 0", 171);
    check_at((tarn_device_limit_get(0, &bytes)) == TARN_OK, "tarn_device_limit_get(0, &bytes)", 173);
    check_at(bytes == 18446744073709551615ul, "bytes == TARN_NO_LIMIT", 174);
    check_at((tarn_device_limit_set(0, 0)) == TARN_OK, "tarn_device_limit_set(0, 0)", 175);
    check_at(tarn_alloc_on(first_stream, 100, &block) == TARN_ERROR_OUT_OF_MEMORY, "tarn_alloc_on(first_stream, 100, &block) == TARN_ERROR_OUT_OF_MEMORY", 176);
    check_at((tarn_device_limit_set(0, 18446744073709551615ul)) == TARN_OK, "tarn_device_limit_set(0, TARN_NO_LIMIT)", 177);
    check_at((tarn_caching_set(0, &caches)) == TARN_OK, "tarn_caching_set(false, &caches)", 178);
    check_at(caches, "caches", 179);
    check_at((tarn_caching_set(1, &caches)) == TARN_OK, "tarn_caching_set(true, &caches)", 180);
    check_at(!caches, "!caches", 181);
}
static void named_pools(void)
{
    struct { tarn_stats value; unsigned char behind[BEHIND]; } stats; memset(&stats, UNTOUCHED, sizeof stats);
    struct { tarn_block_info value; unsigned char behind[BEHIND]; } info; memset(&info, UNTOUCHED, sizeof info);
    tarn_alloc_options options;
    tarn_pool *everybodys, *pool;
    struct { tarn_pool_info value; unsigned char behind[BEHIND]; } known; memset(&known, UNTOUCHED, sizeof known);
    void *block;
    check_at((tarn_pool_default(0, &everybodys)) == TARN_OK, "tarn_pool_default(0, &everybodys)", 194);
    known.value.size = sizeof known.value;
    check_at((tarn_pool_info_get(everybodys, &known.value)) == TARN_OK, "tarn_pool_info_get(everybodys, &known.value)", 196);
    check_at(is_untouched((known).behind), "nothing was written behind " "known", 197);
    check_at(known.value.use_count == 1 && known.value.id.first == 0 && known.value.id.second == 0, "known.value.use_count == 1 && known.value.id.first == 0 && known.value.id.second == 0", 198);
    check_at((tarn_pool_create(((void *)0), &pool)) == TARN_OK, "tarn_pool_create(NULL, &pool)", 199);
    check_at((tarn_pool_info_get(pool, &known.value)) == TARN_OK, "tarn_pool_info_get(pool, &known.value)", 200);
    check_at(known.value.device == 0, "known.value.device == 0", 201);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.device = (-1);
    options.stream = first_stream;
    options.pool = pool;
    check_at((tarn_alloc(&options, ((size_t)1 << 20), &block)) == TARN_OK, "tarn_alloc(&options, MIB, &block)", 207);
    info.value.size = sizeof info.value;
    check_at((tarn_pointer_info_get(block, &info.value)) == TARN_OK, "tarn_pointer_info_get(block, &info.value)", 209);
    check_at(is_untouched((info).behind), "nothing was written behind " "info", 210);
    check_at(info.value.pool.first == known.value.id.first && info.value.pool.second == known.value.id.second, "info.value.pool.first == known.value.id.first && info.value.pool.second == known.value.id.second", 211);
    stats.value.size = sizeof stats.value;
    check_at((tarn_pool_stats_get(pool, &stats.value)) == TARN_OK, "tarn_pool_stats_get(pool, &stats.value)", 214);
    check_at(is_untouched((stats).behind), "nothing was written behind " "stats", 215);
    check_at(stats.value.requested_bytes[TARN_STAT_ALL].current == (int64_t)((size_t)1 << 20), "stats.value.requested_bytes[TARN_STAT_ALL].current == (int64_t)MIB", 216);
    check_at((tarn_pool_stats_get(everybodys, &stats.value)) == TARN_OK, "tarn_pool_stats_get(everybodys, &stats.value)", 217);
    check_at(stats.value.requested_bytes[TARN_STAT_ALL].current == 0, "stats.value.requested_bytes[TARN_STAT_ALL].current == 0", 218);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 219);
    check_at((tarn_pool_trim(pool, 0)) == TARN_OK, "tarn_pool_trim(pool, 0)", 220);
    check_at((tarn_pool_trim(everybodys, 0)) == TARN_OK, "tarn_pool_trim(everybodys, 0)", 221);
    check_at((tarn_pool_release(pool)) == TARN_OK, "tarn_pool_release(pool)", 222);
}
static int changes;
static void changed(const tarn_pool_block *block, _Bool live, void *user)
{
    if (user == &changes && block->requested == ((size_t)1 << 20) && !live)
        changes++;
}
static void announced_and_restored(void)
{
    tarn_checkpoint *checkpoint;
    tarn_pool *pool;
    void *block, *graph = ((void *)0);
    check_at((tarn_pool_create(((void *)0), &pool)) == TARN_OK, "tarn_pool_create(NULL, &pool)", 240);
    check_at((tarn_pool_capture_announce(pool, first_stream)) == TARN_OK, "tarn_pool_capture_announce(pool, first_stream)", 241);
    check_at(tarn_capture_end(first_stream, &graph) == TARN_ERROR_INVALID_ARGUMENT, "tarn_capture_end(first_stream, &graph) == TARN_ERROR_INVALID_ARGUMENT", 242);
    check_at((tarn_capture_end_announced(first_stream, ((void *)0))) == TARN_OK, "tarn_capture_end_announced(first_stream, NULL)", 243);
    check_at(tarn_capture_end_announced(first_stream, ((void *)0)) == TARN_ERROR_INVALID_ARGUMENT, "tarn_capture_end_announced(first_stream, NULL) == TARN_ERROR_INVALID_ARGUMENT", 244);
    check_at((tarn_pool_checkpoint(pool, &checkpoint)) == TARN_OK, "tarn_pool_checkpoint(pool, &checkpoint)", 246);
    check_at((tarn_pool_alloc(pool, first_stream, ((size_t)1 << 20), &block)) == TARN_OK, "tarn_pool_alloc(pool, first_stream, MIB, &block)", 247);
    check_at((tarn_pool_restore(pool, checkpoint, changed, &changes)) == TARN_OK, "tarn_pool_restore(pool, checkpoint, changed, &changes)", 248);
    check_at(changes == 1, "changes == 1", 249);
    check_at((tarn_checkpoint_destroy(checkpoint)) == TARN_OK, "tarn_checkpoint_destroy(checkpoint)", 250);
    check_at((tarn_pool_release(pool)) == TARN_OK, "tarn_pool_release(pool)", 251);
}
static int segments_alive;
static char segment[8 << 20] __attribute__((aligned(512)));
static void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    (void)stream;
    if (size > sizeof segment || device != 0 || user != &segments_alive || segments_alive)
        return ((void *)0);
    segments_alive++;
    return segment;
}
static void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size, (void)device, (void)stream;
    if (pointer == segment && user == &segments_alive)
        segments_alive--;
}
static void pools(void)
{
    struct { tarn_pool_block value; unsigned char behind[BEHIND]; } blocks; memset(&blocks, UNTOUCHED, sizeof blocks);
    tarn_pool_options options;
    tarn_pool_allocator allocator;
    tarn_segment_sizes sizes;
    struct { tarn_pool_info value; unsigned char behind[BEHIND]; } info; memset(&info, UNTOUCHED, sizeof info);
    tarn_pool *pool;
    tarn_scope scope;
    size_t count;
    void *block, *graph;
    memset(&allocator, 0, sizeof allocator);
    allocator.size = sizeof allocator;
    allocator.alloc = segment_alloc;
    allocator.free = segment_free;
    allocator.user = &segments_alive;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.allocator = &allocator;
    memset(&sizes, 0, sizeof sizes);
    sizes.size = sizeof sizes;
    sizes.small_segment = 4 * ((size_t)1 << 20);
    options.sizes = &sizes;
    check_at((tarn_pool_create(&options, &pool)) == TARN_OK, "tarn_pool_create(&options, &pool)", 295);
    info.value.size = sizeof info.value;
    check_at((tarn_pool_info_get(pool, &info.value)) == TARN_OK, "tarn_pool_info_get(pool, &info.value)", 297);
    check_at(is_untouched((info).behind), "nothing was written behind " "info", 298);
    check_at(info.value.allocator->alloc == segment_alloc && info.value.allocator->free == segment_free && info.value.allocator->user == &segments_alive, "info.value.allocator->alloc == segment_alloc && info.value.allocator->free == segment_free && info.value.allocator->user == &segments_alive", 299);
    check_at(info.value.id.first == 0 && info.value.id.second != 0 && info.value.limit == 18446744073709551615ul, "info.value.id.first == 0 && info.value.id.second != 0 && info.value.limit == TARN_NO_LIMIT", 302);
    check_at(info.value.tag == 0 && info.value.state == TARN_POOL_RUNS, "info.value.tag == 0 && info.value.state == TARN_POOL_RUNS", 304);
    check_at((tarn_pool_limit_set(pool, 16 * ((size_t)1 << 20))) == TARN_OK, "tarn_pool_limit_set(pool, 16 * MIB)", 305);
    check_at((tarn_pool_info_get(pool, &info.value)) == TARN_OK, "tarn_pool_info_get(pool, &info.value)", 306);
    check_at(info.value.limit == 16 * ((size_t)1 << 20), "info.value.limit == 16 * MIB", 307);
    check_at((tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope)) == TARN_OK, "tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope)", 309);
    check_at((tarn_alloc_on(first_stream, 1000, &block)) == TARN_OK, "tarn_alloc_on(first_stream, 1000, &block)", 310);
    check_at((tarn_scope_end(scope)) == TARN_OK, "tarn_scope_end(scope)", 311);
    check_at(tarn_scope_end(scope) == TARN_ERROR_SCOPE, "tarn_scope_end(scope) == TARN_ERROR_SCOPE", 312);
    check_at((char *)block >= segment && (char *)block < segment + sizeof segment, "(char *)block >= segment && (char *)block < segment + sizeof segment", 313);
    check_at((tarn_pool_blocks_get(pool, &blocks.value, 1, &count)) == TARN_OK, "tarn_pool_blocks_get(pool, &blocks.value, 1, &count)", 314);
    check_at(is_untouched((blocks).behind), "nothing was written behind " "blocks", 315);
    check_at(count == 1 && blocks.value.address == block && blocks.value.requested == 1000, "count == 1 && blocks.value.address == block && blocks.value.requested == 1000", 316);
    check_at(blocks.value.usable_size == 1024 && blocks.value.stream == first_stream, "blocks.value.usable_size == 1024 && blocks.value.stream == first_stream", 317);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 318);
    check_at((tarn_pool_release(pool)) == TARN_OK, "tarn_pool_release(pool)", 319);
    check_at(segments_alive == 0, "segments_alive == 0", 320);
    check_at((tarn_pool_create(((void *)0), &pool)) == TARN_OK, "tarn_pool_create(NULL, &pool)", 322);
    check_at((tarn_pool_alloc(pool, first_stream, 2 * ((size_t)1 << 20), &block)) == TARN_OK, "tarn_pool_alloc(pool, first_stream, 2 * MIB, &block)", 323);
    check_at((tarn_pool_suspend(pool, 1)) == TARN_OK, "tarn_pool_suspend(pool, true)", 324);
    check_at((tarn_pool_info_get(pool, &info.value)) == TARN_OK, "tarn_pool_info_get(pool, &info.value)", 325);
    check_at(info.value.state == TARN_POOL_SAVED, "info.value.state == TARN_POOL_SAVED", 326);
    check_at(tarn_pool_alloc(pool, first_stream, 2 * ((size_t)1 << 20), &graph) == TARN_ERROR_SUSPENDED, "tarn_pool_alloc(pool, first_stream, 2 * MIB, &graph) == TARN_ERROR_SUSPENDED", 327);
    check_at((tarn_pool_resume(pool)) == TARN_OK, "tarn_pool_resume(pool)", 328);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 329);
    check_at((tarn_pool_capture_begin(pool, first_stream, TARN_CAPTURE_RELAXED)) == TARN_OK, "tarn_pool_capture_begin(pool, first_stream, TARN_CAPTURE_RELAXED)", 331);
    check_at((tarn_alloc_on(first_stream, ((size_t)1 << 20), &block)) == TARN_OK, "tarn_alloc_on(first_stream, MIB, &block)", 332);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 333);
    tarn_capture_state capture;
    check_at((tarn_capture_state_get(first_stream, &capture, ((void *)0), &graph)) == TARN_OK, "tarn_capture_state_get(first_stream, &capture, NULL, &graph)", 335);
    check_at(capture == TARN_CAPTURE_ACTIVE && graph, "capture == TARN_CAPTURE_ACTIVE && graph", 336);
    check_at((tarn_capture_end(first_stream, &graph)) == TARN_OK, "tarn_capture_end(first_stream, &graph)", 337);
    struct { tarn_graph_summary value; unsigned char behind[BEHIND]; } summary; memset(&summary, UNTOUCHED, sizeof summary);
    uint64_t number = 0;
    summary.value.size = sizeof summary.value;
    check_at((tarn_graph_remember(graph, &number)) == TARN_OK, "tarn_graph_remember(graph, &number)", 341);
    check_at((tarn_graph_check(graph, ((void *)0), ((void *)0), ((void *)0), &summary.value)) == TARN_OK, "tarn_graph_check(graph, NULL, NULL, NULL, &summary.value)", 342);
    check_at((tarn_graph_launch(graph, number, first_stream, ((void *)0), ((void *)0))) == TARN_OK, "tarn_graph_launch(graph, number, first_stream, NULL, NULL)", 343);
    check_at((tarn_stream_synchronize(first_stream)) == TARN_OK, "tarn_stream_synchronize(first_stream)", 344);
    check_at(is_untouched((summary).behind), "nothing was written behind " "summary", 345);
    check_at((tarn_host_graph_destroy(graph)) == TARN_OK, "tarn_host_graph_destroy(graph)", 346);
    check_at((tarn_pool_release(pool)) == TARN_OK, "tarn_pool_release(pool)", 347);
}
static void pinned_memory(void)
{
    struct { tarn_pinned_stats value; unsigned char behind[BEHIND]; } stats; memset(&stats, UNTOUCHED, sizeof stats);
    void *block;
    check_at((tarn_pinned_alloc(2ul, ((size_t)1 << 20), &block)) == TARN_OK, "tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, &block)", 355);
    check_at(tarn_pinned_contains((char *)block + 1), "tarn_pinned_contains((char *)block + 1)", 356);
    stats.value.size = sizeof stats.value;
    check_at((tarn_pinned_stats_get(&stats.value)) == TARN_OK, "tarn_pinned_stats_get(&stats.value)", 358);
    check_at(is_untouched((stats).behind), "nothing was written behind " "stats", 359);
    check_at(stats.value.requested_bytes.current == (int64_t)((size_t)1 << 20) && stats.value.num_host_alloc == 1, "stats.value.requested_bytes.current == (int64_t)MIB && stats.value.num_host_alloc == 1", 360);
    check_at(stats.value.active_requests.current == 1 && stats.value.num_ooms == 0 && stats.value.graph_bytes == 0, "stats.value.active_requests.current == 1 && stats.value.num_ooms == 0 && stats.value.graph_bytes == 0", 361);
    check_at(stats.value.host_alloc_time.count == 1, "stats.value.host_alloc_time.count == 1", 363);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 364);
    check_at((tarn_pinned_trim(0)) == TARN_OK, "tarn_pinned_trim(0)", 365);
}
static int told, shortages;
static void mapped(const tarn_mapping *range, void *user)
{
    if (user == &told && range->device == 0 && range->bytes >= 2 * ((size_t)1 << 20) && range->generation > 0)
        told++;
}
static _Bool out_of_memory(const tarn_shortage *shortage, void *user)
{
    if (user == &told && shortage->requested >= 300 * ((size_t)1 << 20) && shortage->total == 256 * ((size_t)1 << 20) &&
        shortage->device == 0 && shortage->limit == 18446744073709551615ul)
        shortages++;
    return 0;
}
static void observed_and_shared(void)
{
    tarn_observer_options options;
    struct { tarn_mapping value; unsigned char behind[BEHIND]; } range; memset(&range, UNTOUCHED, sizeof range);
    struct { tarn_share_info value; unsigned char behind[BEHIND]; } info; memset(&info, UNTOUCHED, sizeof info);
    tarn_observer observer;
    tarn_share *share;
    void *block, *none;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.device = (-1);
    options.user = &told;
    options.mapped = mapped;
    options.out_of_memory = out_of_memory;
    check_at((tarn_observer_add(&options, &observer)) == TARN_OK, "tarn_observer_add(&options, &observer)", 397);
    check_at((tarn_device_trim(0, 0)) == TARN_OK, "tarn_device_trim(0, 0)", 398);
    check_at((tarn_export_enable(0)) == TARN_OK, "tarn_export_enable(0)", 399);
    check_at((tarn_alloc_on(first_stream, 4 * ((size_t)1 << 20), &block)) == TARN_OK, "tarn_alloc_on(first_stream, 4 * MIB, &block)", 400);
    check_at(told > 0, "told > 0", 401);
    check_at(tarn_alloc_on(first_stream, 300 * ((size_t)1 << 20), &none) == TARN_ERROR_OUT_OF_MEMORY && shortages == 1, "tarn_alloc_on(first_stream, 300 * MIB, &none) == TARN_ERROR_OUT_OF_MEMORY && shortages == 1", 402);
    check_at((tarn_observer_remove(observer)) == TARN_OK, "tarn_observer_remove(observer)", 404);
    check_at((tarn_mapping_get(block, &range.value)) == TARN_OK, "tarn_mapping_get(block, &range.value)", 405);
    check_at(is_untouched((range).behind), "nothing was written behind " "range", 406);
    check_at(range.value.device == 0 && range.value.bytes >= 4 * ((size_t)1 << 20) && range.value.generation > 0, "range.value.device == 0 && range.value.bytes >= 4 * MIB && range.value.generation > 0", 407);
    check_at((tarn_anchor(block, ((size_t)1 << 20))) == TARN_OK, "tarn_anchor(block, MIB)", 409);
    check_at((tarn_unanchor(block, ((size_t)1 << 20))) == TARN_OK, "tarn_unanchor(block, MIB)", 410);
    check_at((tarn_export(block, &share)) == TARN_OK, "tarn_export(block, &share)", 411);
    info.value.size = sizeof info.value;
    check_at((tarn_share_info_get(share, &info.value)) == TARN_OK, "tarn_share_info_get(share, &info.value)", 413);
    check_at(is_untouched((info).behind), "nothing was written behind " "info", 414);
    check_at(info.value.bytes == 4 * ((size_t)1 << 20) && info.value.pieces >= 1 && info.value.mapped >= 4 * ((size_t)1 << 20), "info.value.bytes == 4 * MIB && info.value.pieces >= 1 && info.value.mapped >= 4 * MIB", 415);
    check_at(info.value.device == 0 && info.value.generation > 0, "info.value.device == 0 && info.value.generation > 0", 416);
    check_at((tarn_share_close(share)) == TARN_OK, "tarn_share_close(share)", 417);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 418);
}
static int handle_alive;
static void *bound_stream, *given_workspace;
static size_t given_size;
static int handle_create(void **handle)
{
    handle_alive++;
    *handle = &handle_alive;
    return 0;
}
static int handle_destroy(void *handle)
{
    (void)handle;
    handle_alive--;
    return 0;
}
static int handle_set_stream(void *handle, void *stream)
{
    (void)handle;
    bound_stream = stream;
    return 0;
}
static int handle_set_workspace(void *handle, void *pointer, size_t size)
{
    (void)handle;
    given_workspace = pointer;
    given_size = size;
    return 0;
}
static void workspaces(tarn_library library)
{
    struct { tarn_workspace_call value; unsigned char behind[BEHIND]; } call; memset(&call, UNTOUCHED, sizeof call);
    struct { tarn_workspace_stats value; unsigned char behind[BEHIND]; } stats; memset(&stats, UNTOUCHED, sizeof stats);
    struct { tarn_workspace_cleared value; unsigned char behind[BEHIND]; } cleared; memset(&cleared, UNTOUCHED, sizeof cleared);
    stats.value.size = sizeof stats.value;
    check_at((tarn_workspace_stats_get(0, &stats.value)) == TARN_OK, "tarn_workspace_stats_get(0, &stats.value)", 457);
    check_at(is_untouched((stats).behind), "nothing was written behind " "stats", 458);
    check_at(stats.value.count == 1 && stats.value.bytes >= 2 * ((size_t)1 << 20) && stats.value.leaked_bytes == 0, "stats.value.count == 1 && stats.value.bytes >= 2 * MIB && stats.value.leaked_bytes == 0", 459);
    cleared.value.size = sizeof cleared.value;
    check_at((tarn_workspace_clear(&(tarn_workspace_choice){.size = sizeof(tarn_workspace_choice)}, &cleared.value)) == TARN_OK, "tarn_workspace_clear(&(tarn_workspace_choice){.size = sizeof(tarn_workspace_choice)}, &cleared.value)", 461);
    check_at(is_untouched((cleared).behind), "nothing was written behind " "cleared", 463);
    check_at(cleared.value.freed >= 2 * ((size_t)1 << 20) && cleared.value.deferred == 0, "cleared.value.freed >= 2 * MIB && cleared.value.deferred == 0", 464);
    check_at((tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, ((void *)0))) == TARN_OK, "tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL)", 465);
    check_at((tarn_workspace_begin(library, 2ul, ((void *)0), &call.value)) == TARN_OK, "tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call.value)", 466);
    check_at(is_untouched((call).behind), "nothing was written behind " "call", 467);
    check_at(call.value.handle == &handle_alive && call.value.pointer == given_workspace && call.value.bytes >= 2 * ((size_t)1 << 20), "call.value.handle == &handle_alive && call.value.pointer == given_workspace && call.value.bytes >= 2 * MIB", 468);
    check_at((tarn_workspace_end(&call.value)) == TARN_OK, "tarn_workspace_end(&call.value)", 470);
    check_at((tarn_workspace_begin(library, second_stream, ((void *)0), &call.value)) == TARN_OK, "tarn_workspace_begin(library, second_stream, NULL, &call.value)", 471);
    check_at(is_untouched((call).behind), "nothing was written behind " "call", 472);
    check_at(call.value.handle == &handle_alive && call.value.pointer == given_workspace, "call.value.handle == &handle_alive && call.value.pointer == given_workspace", 473);
    check_at((tarn_workspace_end(&call.value)) == TARN_OK, "tarn_workspace_end(&call.value)", 474);
    check_at((tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, ((void *)0))) == TARN_OK, "tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL)", 475);
}
static void modes_and_plain_handles(tarn_library library)
{
    struct { tarn_workspace_call value; unsigned char behind[BEHIND]; } call; memset(&call, UNTOUCHED, sizeof call);
    struct { tarn_lease value; unsigned char behind[BEHIND]; } lease; memset(&lease, UNTOUCHED, sizeof lease);
    uint64_t ns;
    int value;
    void *handle;
    check_at((tarn_handle_get(library, 3ul, &handle)) == TARN_OK, "tarn_handle_get(library, TARN_STREAM_NONE, &handle)", 487);
    check_at(handle == &handle_alive, "handle == &handle_alive", 488);
    check_at((tarn_handle_wait_limit_set(1000, ((void *)0))) == TARN_OK, "tarn_handle_wait_limit_set(1000, NULL)", 489);
    check_at((tarn_handle_wait_limit_set(0, &ns)) == TARN_OK, "tarn_handle_wait_limit_set(0, &ns)", 490);
    check_at(ns == 1000, "ns == 1000", 491);
    check_at((tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, 3, ((void *)0))) == TARN_OK, "tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, 3, NULL)", 492);
    check_at((tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, -1, &value)) == TARN_OK, "tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, -1, &value)", 494);
    check_at(value == 3, "value == 3", 496);
    check_at((tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_THREAD, 1, &value)) == TARN_OK, "tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_THREAD, 1, &value)", 497);
    check_at(value == -1, "value == -1", 499);
    check_at((tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_THREAD, -1, ((void *)0))) == TARN_OK, "tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_THREAD, -1, NULL)", 500);
    check_at((tarn_handle_lease(library, second_stream, &lease.value)) == TARN_OK, "tarn_handle_lease(library, second_stream, &lease.value)", 502);
    check_at((tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, ((void *)0))) == TARN_OK, "tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL)", 503);
    check_at((tarn_workspace_begin(library, 3ul, &lease.value, &call.value)) == TARN_OK, "tarn_workspace_begin(library, TARN_STREAM_NONE, &lease.value, &call.value)", 504);
    check_at(is_untouched((lease).behind), "nothing was written behind " "lease", 505);
    check_at(is_untouched((call).behind), "nothing was written behind " "call", 506);
    check_at(call.value.handle == lease.value.handle && call.value.bytes >= 2 * ((size_t)1 << 20), "call.value.handle == lease.value.handle && call.value.bytes >= 2 * MIB", 507);
    check_at((tarn_workspace_end(&call.value)) == TARN_OK, "tarn_workspace_end(&call.value)", 508);
    check_at((tarn_handle_return(&lease.value)) == TARN_OK, "tarn_handle_return(&lease.value)", 509);
    check_at(tarn_workspace_get(library, second_stream, ((void *)0), &handle, &given_size) == TARN_ERROR_NOT_SUPPORTED, "tarn_workspace_get(library, second_stream, NULL, &handle, &given_size) == TARN_ERROR_NOT_SUPPORTED", 510);
}
static void handles(void)
{
    static const tarn_library_row clean;
    struct { tarn_library_info value; unsigned char behind[BEHIND]; } info; memset(&info, UNTOUCHED, sizeof info);
    struct { tarn_handle_stats value; unsigned char behind[BEHIND]; } stats; memset(&stats, UNTOUCHED, sizeof stats);
    struct { tarn_lease value; unsigned char behind[BEHIND]; } lease; memset(&lease, UNTOUCHED, sizeof lease);
    tarn_library_row row = clean;
    tarn_library library;
    void *handle, *native;
    row.size = sizeof row;
    row.name = "counter";
    row.create = handle_create;
    row.destroy = handle_destroy;
    row.set_stream = handle_set_stream;
    row.set_workspace = handle_set_workspace;
    check_at((tarn_library_register(&row, &library)) == TARN_OK, "tarn_library_register(&row, &library)", 530);
    info.value.size = sizeof info.value;
    check_at((tarn_library_info_get(library, &info.value)) == TARN_OK, "tarn_library_info_get(library, &info.value)", 532);
    check_at(is_untouched((info).behind), "nothing was written behind " "info", 533);
    check_at(info.value.found && info.value.usable && strcmp(info.value.name, "counter") == 0 && info.value.reason[0] == 0, "info.value.found && info.value.usable && strcmp(info.value.name, \"counter\") == 0 && info.value.reason[0] == 0", 534);
    check_at(tarn_library_find("cublas", &library) == TARN_OK && library == TARN_LIBRARY_CUBLAS, "tarn_library_find(\"cublas\", &library) == TARN_OK && library == TARN_LIBRARY_CUBLAS", 536);
    check_at((tarn_library_find("counter", &library)) == TARN_OK, "tarn_library_find(\"counter\", &library)", 537);
    check_at((tarn_workspace_size_set(library, 2 * ((size_t)1 << 20))) == TARN_OK, "tarn_workspace_size_set(library, 2 * MIB)", 538);
    check_at((tarn_handle_get(library, first_stream, &handle)) == TARN_OK, "tarn_handle_get(library, first_stream, &handle)", 540);
    check_at((tarn_stream_native_get(first_stream, &native)) == TARN_OK, "tarn_stream_native_get(first_stream, &native)", 541);
    check_at(handle == &handle_alive && handle_alive == 1 && bound_stream == native, "handle == &handle_alive && handle_alive == 1 && bound_stream == native", 542);
    check_at(given_workspace != ((void *)0) && given_size >= 2 * ((size_t)1 << 20), "given_workspace != NULL && given_size >= 2 * MIB", 543);
    stats.value.size = sizeof stats.value;
    check_at((tarn_handle_stats_get(library, 0, &stats.value)) == TARN_OK, "tarn_handle_stats_get(library, 0, &stats.value)", 545);
    check_at(is_untouched((stats).behind), "nothing was written behind " "stats", 546);
    check_at(stats.value.created == 1 && stats.value.in_use == 1 && stats.value.failures == 0, "stats.value.created == 1 && stats.value.in_use == 1 && stats.value.failures == 0", 547);
    workspaces(library);
    check_at((tarn_handle_lease(library, second_stream, &lease.value)) == TARN_OK, "tarn_handle_lease(library, second_stream, &lease.value)", 549);
    check_at(is_untouched((lease).behind), "nothing was written behind " "lease", 550);
    check_at(lease.value.handle == &handle_alive && handle_alive == 2, "lease.value.handle == &handle_alive && handle_alive == 2", 551);
    check_at((tarn_handle_return(&lease.value)) == TARN_OK, "tarn_handle_return(&lease.value)", 552);
    modes_and_plain_handles(library);
    check_at((tarn_handle_trim(library, 0, ((void *)0))) == TARN_OK, "tarn_handle_trim(library, 0, NULL)", 554);
    check_at(handle_alive == 1, "handle_alive == 1", 555);
}
static int64_t metadata;
static void add_kind(const tarn_metadata_kind *kind, void *user)
{
    if (user == &metadata && kind->size >= sizeof *kind)
        metadata += kind->bytes;
}
static size_t written;
static _Bool write_nowhere(const void *data, size_t size, void *user)
{
    written += data && user == &written ? size : 0;
    return 1;
}
static int reports;
static void reported(const tarn_debug_report *report, void *user)
{
    (void)user, (void)report;
    reports++;
}
static void records(void)
{
    tarn_trace_options trace;
    tarn_snapshot_options options;
    uint64_t kept, lost;
    void *block;
    memset(&trace, 0, sizeof trace);
    trace.size = sizeof trace;
    trace.records = 1000;
    trace.stacks = TARN_TRACE_STACKS_NONE;
    trace.regions = 1;
    check_at((tarn_trace_start(&trace)) == TARN_OK, "tarn_trace_start(&trace)", 591);
    check_at((tarn_region_push("step 1")) == TARN_OK, "tarn_region_push(\"step 1\")", 592);
    check_at((tarn_alloc_on(first_stream, ((size_t)1 << 20), &block)) == TARN_OK, "tarn_alloc_on(first_stream, MIB, &block)", 593);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 594);
    check_at((tarn_region_pop()) == TARN_OK, "tarn_region_pop()", 595);
    check_at((tarn_trace_count_get(&kept, &lost)) == TARN_OK, "tarn_trace_count_get(&kept, &lost)", 596);
    check_at(kept >= 4 && lost == 0, "kept >= 4 && lost == 0", 597);
    check_at((tarn_trace_stop()) == TARN_OK, "tarn_trace_stop()", 598);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.format = TARN_SNAPSHOT_CHROME;
    options.max_bytes = 18446744073709551615ul;
    check_at((tarn_snapshot_print(write_nowhere, &written, &options)) == TARN_OK, "tarn_snapshot_print(write_nowhere, &written, &options)", 603);
    check_at(written > 100, "written > 100", 604);
    options.format = TARN_SNAPSHOT_PICKLE;
    options.max_bytes = 10;
    check_at(tarn_snapshot_print(write_nowhere, &written, &options) == TARN_ERROR_INVALID_ARGUMENT, "tarn_snapshot_print(write_nowhere, &written, &options) == TARN_ERROR_INVALID_ARGUMENT", 607);
    tarn_debug_callback_set(reported, ((void *)0));
    check_at(tarn_debug_reports() == 0 && reports == 0, "tarn_debug_reports() == 0 && reports == 0", 610);
    check_at((tarn_metadata_list(add_kind, &metadata)) == TARN_OK, "tarn_metadata_list(add_kind, &metadata)", 611);
    check_at(metadata > 0, "metadata > 0", 612);
    check_at((tarn_configuration_set("max_split_size_mb:64")) == TARN_OK, "tarn_configuration_set(\"max_split_size_mb:64\")", 613);
    check_at((tarn_configuration_get(((void *)0), 0, &written)) == TARN_OK, "tarn_configuration_get(NULL, 0, &written)", 614);
    check_at(written > 1, "written > 1", 615);
}
static void published(void)
{
    tarn_live_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.name = "program";
    options.directory = ".";
    options.interval_ms = 1000;
    check_at((tarn_live_start(&options)) == TARN_OK, "tarn_live_start(&options)", 627);
    check_at(tarn_live_start(&options) == TARN_ERROR_BUSY, "tarn_live_start(&options) == TARN_ERROR_BUSY", 628);
    check_at((tarn_live_stop()) == TARN_OK, "tarn_live_stop()", 629);
    options.interval_ms = 1;
    check_at(tarn_live_start(&options) == TARN_ERROR_INVALID_ARGUMENT, "tarn_live_start(&options) == TARN_ERROR_INVALID_ARGUMENT", 631);
    written = 0;
    check_at((tarn_metrics_print(write_nowhere, &written)) == TARN_OK, "tarn_metrics_print(write_nowhere, &written)", 633);
    check_at(written > 100, "written > 100", 634);
}
static void host_device(void)
{
    struct { tarn_host_ledger value; unsigned char behind[BEHIND]; } ledger; memset(&ledger, UNTOUCHED, sizeof ledger);
    struct { tarn_host_extent value; unsigned char behind[BEHIND]; } extent; memset(&extent, UNTOUCHED, sizeof extent);
    void *block;
    ledger.value.size = sizeof ledger.value;
    check_at((tarn_alloc_on(first_stream, 2 * ((size_t)1 << 20), &block)) == TARN_OK, "tarn_alloc_on(first_stream, 2 * MIB, &block)", 644);
    check_at((tarn_host_ledger_get(0, &ledger.value)) == TARN_OK, "tarn_host_ledger_get(0, &ledger.value)", 645);
    check_at(is_untouched((ledger).behind), "nothing was written behind " "ledger", 646);
    check_at(ledger.value.created >= 2 * ((size_t)1 << 20) && ledger.value.mapped >= 2 * ((size_t)1 << 20) && ledger.value.reports == 0, "ledger.value.created >= 2 * MIB && ledger.value.mapped >= 2 * MIB && ledger.value.reports == 0", 647);
    check_at(tarn_host_call_name(0) && !tarn_host_call_name(64) && ledger.value.time_a_ns > 0, "tarn_host_call_name(0) && !tarn_host_call_name(TARN_HOST_MAX_KINDS) && ledger.value.time_a_ns > 0", 649);
    check_at((tarn_host_extent_get(0, block, 2 * ((size_t)1 << 20), &extent.value)) == TARN_OK, "tarn_host_extent_get(0, block, 2 * MIB, &extent.value)", 651);
    check_at(is_untouched((extent).behind), "nothing was written behind " "extent", 652);
    check_at(extent.value.piece != 0 && extent.value.length > 0 && extent.value.accessible, "extent.value.piece != 0 && extent.value.length > 0 && extent.value.accessible", 653);
    check_at((tarn_free(block)) == TARN_OK, "tarn_free(block)", 654);
}
int main(void)
{
    tarn_host_configuration config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.devices = 2;
    config.memory = 256 * ((size_t)1 << 20);
    check_at((tarn_host_configuration_set(&config)) == TARN_OK, "tarn_host_configuration_set(&config)", 665);
    devices_and_streams();
    memory();
    named_pools();
    pools();
    announced_and_restored();
    pinned_memory();
    observed_and_shared();
    handles();
    records();
    published();
    host_device();
    check_at((tarn_shutdown()) == TARN_OK, "tarn_shutdown()", 677);
    check_at(tarn_shutdown() == TARN_OK && tarn_device_trim(0, 0) == TARN_ERROR_SHUTDOWN, "tarn_shutdown() == TARN_OK && tarn_device_trim(0, 0) == TARN_ERROR_SHUTDOWN", 678);
    check_at(handle_alive == 0, "handle_alive == 0", 679);
    check_at(strcmp(tarn_status_name(TARN_ERROR_SYSTEM), "TARN_ERROR_SYSTEM") == 0, "strcmp(tarn_status_name(TARN_ERROR_SYSTEM), \"TARN_ERROR_SYSTEM\") == 0", 680);
    printf("a program of tarn %d.%d.%d runs with %s\n", 0, 2,
           0, tarn_version());
    return 0;
}
