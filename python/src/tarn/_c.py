# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Made by python/generate.py from the public headers. Do not edit.

"""The C interface as it is: constants, structures, and the type of each function. The rest of the package says it in Python."""

from ctypes import (CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p)
from enum import IntEnum
from typing import Any

from ._integers import Structure

TARN_ALL_DEVICES = -1
TARN_BLOCK_UNIT = 512
TARN_CURRENT_DEVICE = -1
TARN_HANDLE_STREAMS = 8
TARN_HOST_MAX_KINDS = 64
TARN_KEEP_DATA_BYTES = 64
TARN_KEEP_NAME_BYTES = 64
TARN_LIBRARY_BY_STREAM = 1
TARN_LIBRARY_CREATE_IN_CAPTURE = 2
TARN_LIBRARY_CREATE_TAKES_NUMBER = 4
TARN_LIBRARY_FAILED_HANDLE_IS_REAL = 8
TARN_MAX_ALIGNMENT = 2097152
TARN_MAX_DEVICES = 64
TARN_MAX_SIZE = 1152921504606846976
TARN_NO_IDLE_RELEASE = 4294967295
TARN_NO_LIMIT = 18446744073709551615
TARN_NO_WAIT = 18446744073709551615
TARN_PINNED_BUCKETS = 64
TARN_SLEEP_HANDLES = 2
TARN_SLEEP_PINNED = 4
TARN_SLEEP_POOLS = 1
TARN_SLEEP_SLEEPERS = 8
TARN_STREAM_CURRENT = 2
TARN_STREAM_LEGACY = 0
TARN_STREAM_NONE = 3
TARN_STREAM_PER_THREAD = 1
TARN_STREAM_SHARED_COUNT = 32
TARN_TRACE_RECORDS = 65536
TARN_VERSION_MAJOR = 0
TARN_VERSION_MINOR = 2
TARN_VERSION_PATCH = 0


class tarn_status(IntEnum):
    TARN_OK = 0
    TARN_ERROR_INVALID_ARGUMENT = 1
    TARN_ERROR_OUT_OF_MEMORY = 2
    TARN_ERROR_OUT_OF_HOST_MEMORY = 3
    TARN_ERROR_INVALID_POINTER = 4
    TARN_ERROR_DOUBLE_FREE = 5
    TARN_ERROR_INVALID_DEVICE = 6
    TARN_ERROR_INVALID_STREAM = 7
    TARN_ERROR_NOT_READY = 8
    TARN_ERROR_BUSY = 9
    TARN_ERROR_CAPTURE = 10
    TARN_ERROR_DEVICE_LOST = 11
    TARN_ERROR_MAPPING_LIMIT = 12
    TARN_ERROR_DRIVER = 13
    TARN_ERROR_NO_DRIVER = 14
    TARN_ERROR_LIBRARY_NOT_FOUND = 15
    TARN_ERROR_NOT_SUPPORTED = 16
    TARN_ERROR_FORKED = 17
    TARN_ERROR_SHUTDOWN = 18
    TARN_ERROR_CONFIGURATION = 19
    TARN_ERROR_NO_ROOM = 20
    TARN_ERROR_INTERNAL = 21
    TARN_ERROR_LIBRARY = 22
    TARN_ERROR_SCOPE = 23
    TARN_ERROR_SUSPENDED = 24
    TARN_ERROR_SYSTEM = 25


class tarn_stat_class(IntEnum):
    TARN_STAT_ALL = 0
    TARN_STAT_SMALL_POOL = 1
    TARN_STAT_LARGE_POOL = 2
    TARN_STAT_CLASSES = 3


class tarn_stats_what(IntEnum):
    TARN_STATS_PEAK = 0
    TARN_STATS_ACCUMULATED = 1


class tarn_capture_mode(IntEnum):
    TARN_CAPTURE_GLOBAL = 0
    TARN_CAPTURE_THREAD_LOCAL = 1
    TARN_CAPTURE_RELAXED = 2


class tarn_capture_state(IntEnum):
    TARN_CAPTURE_NONE = 0
    TARN_CAPTURE_ACTIVE = 1
    TARN_CAPTURE_INVALIDATED = 2


class tarn_graph_state(IntEnum):
    TARN_GRAPH_LIVE = 0
    TARN_GRAPH_HELD = 1
    TARN_GRAPH_FREE = 2
    TARN_GRAPH_OTHERS = 3
    TARN_GRAPH_CHANGED = 4
    TARN_GRAPH_UNMAPPED = 5


class tarn_graph_certainty(IntEnum):
    TARN_GRAPH_NO_FINDING = 0
    TARN_GRAPH_PERHAPS = 1
    TARN_GRAPH_LIKELY = 2
    TARN_GRAPH_CERTAIN = 3


class tarn_graph_node_kind(IntEnum):
    TARN_GRAPH_KERNEL = 0
    TARN_GRAPH_COPY = 1
    TARN_GRAPH_FILL = 2
    TARN_GRAPH_RELEASE = 3
    TARN_GRAPH_BATCH = 4


class tarn_graph_verdict(IntEnum):
    TARN_GRAPH_CLEAN = 0
    TARN_GRAPH_UNKNOWN = 1
    TARN_GRAPH_SUSPICIOUS = 2


class tarn_segments(IntEnum):
    TARN_SEGMENTS_DEFAULT = 0
    TARN_SEGMENTS_VIRTUAL = 1
    TARN_SEGMENTS_PLAIN = 2
    TARN_SEGMENTS_EXACT = 3


class tarn_pool_state(IntEnum):
    TARN_POOL_RUNS = 0
    TARN_POOL_CHANGES = 1
    TARN_POOL_SAVED = 2
    TARN_POOL_DISCARDED = 3


class tarn_scope_kind(IntEnum):
    TARN_SCOPE_THREAD = 0
    TARN_SCOPE_STREAM = 1
    TARN_SCOPE_ALWAYS = 2


class tarn_library_number(IntEnum):
    TARN_LIBRARY_CUDNN = 1
    TARN_LIBRARY_CUBLAS = 2
    TARN_LIBRARY_CUBLASLT = 3
    TARN_LIBRARY_CUSPARSE = 4
    TARN_LIBRARY_CUSOLVER_DN = 5
    TARN_LIBRARY_CUSOLVER_SP = 6
    TARN_LIBRARY_CUDSS = 7
    TARN_LIBRARY_CURAND = 8
    TARN_LIBRARY_MIOPEN = 9
    TARN_LIBRARY_ROCBLAS = 10
    TARN_LIBRARY_HIPBLAS = 11
    TARN_LIBRARY_HIPBLASLT = 12
    TARN_LIBRARY_ROCSPARSE = 13
    TARN_LIBRARY_HIPSPARSE = 14
    TARN_LIBRARY_HIPSOLVER = 15
    TARN_LIBRARY_CUSPARSELT = 16
    TARN_MAX_LIBRARIES = 63


class tarn_platform(IntEnum):
    TARN_PLATFORM_ANY = 0
    TARN_PLATFORM_CUDA = 1
    TARN_PLATFORM_HIP = 2


class tarn_handle_mode(IntEnum):
    TARN_HANDLE_MATH = 0
    TARN_HANDLE_ATOMICS = 1


class tarn_handle_mode_for(IntEnum):
    TARN_HANDLE_MODE_FOR_ALL = 0
    TARN_HANDLE_MODE_FOR_THREAD = 1


class tarn_workspace_policy(IntEnum):
    TARN_WORKSPACE_CACHED = 0
    TARN_WORKSPACE_PER_CALL = 1
    TARN_WORKSPACE_LIBRARY = 2


class tarn_workspaces(IntEnum):
    TARN_WORKSPACES_ALL = 0
    TARN_WORKSPACES_OF_STREAM = 1
    TARN_WORKSPACES_OF_CAPTURE = 2
    TARN_WORKSPACES_OF_POOL = 3


class tarn_import_state(IntEnum):
    TARN_IMPORT_CURRENT = 0
    TARN_IMPORT_OUTDATED = 1
    TARN_IMPORT_REVOKED = 2
    TARN_IMPORT_ORPHANED = 3


class tarn_sleep_contents(IntEnum):
    TARN_SLEEP_SAVE = 0
    TARN_SLEEP_DISCARD = 1
    TARN_SLEEP_LEAVE = 2


class tarn_residue_reason(IntEnum):
    TARN_RESIDUE_CONTEXT = 1
    TARN_RESIDUE_HANDLES = 2
    TARN_RESIDUE_WORKSPACES = 3
    TARN_RESIDUE_DEFAULT_POOL = 4
    TARN_RESIDUE_PLAIN = 5
    TARN_RESIDUE_REGISTERED = 6
    TARN_RESIDUE_EXPORTED = 7
    TARN_RESIDUE_LEFT = 8
    TARN_RESIDUE_PINNED = 9
    TARN_RESIDUE_SLEEPER = 10
    TARN_RESIDUE_IMPORTED = 11
    TARN_RESIDUE_RANGE = 12
    TARN_RESIDUE_KEPT = 13
    TARN_RESIDUE_ENDED = 14


class tarn_sleep_state(IntEnum):
    TARN_SLEEP_AWAKE = 0
    TARN_SLEEP_CHANGES = 1
    TARN_SLEEP_PREPARED = 2
    TARN_SLEEP_ASLEEP = 3


class tarn_sleeper_state(IntEnum):
    TARN_SLEEPER_AWAKE = 0
    TARN_SLEEPER_PREPARED = 1
    TARN_SLEEPER_ASLEEP = 2


class tarn_snapshot_format(IntEnum):
    TARN_SNAPSHOT_PICKLE = 0
    TARN_SNAPSHOT_CHROME = 1


class tarn_memory_state(IntEnum):
    TARN_MEMORY_FREE = 0
    TARN_MEMORY_LIVE = 1
    TARN_MEMORY_WAITING = 2


class tarn_trace_stacks(IntEnum):
    TARN_TRACE_STACKS_NONE = 0
    TARN_TRACE_STACKS_ALLOC = 1
    TARN_TRACE_STACKS_ALL = 2

class tarn_stat(Structure):
    _fields_ = [
        ("current", c_int64),
        ("peak", c_int64),
        ("allocated", c_int64),
        ("freed", c_int64),
    ]

class tarn_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("max_split_size", c_int64),
        ("metadata_bytes", c_int64),
        ("allocation", tarn_stat * 3),
        ("segment", tarn_stat * 3),
        ("active", tarn_stat * 3),
        ("inactive_split", tarn_stat * 3),
        ("allocated_bytes", tarn_stat * 3),
        ("reserved_bytes", tarn_stat * 3),
        ("active_bytes", tarn_stat * 3),
        ("inactive_split_bytes", tarn_stat * 3),
        ("requested_bytes", tarn_stat * 3),
        ("oversize_allocations", tarn_stat),
        ("oversize_segments", tarn_stat),
        ("num_alloc_retries", c_int64),
        ("num_ooms", c_int64),
        ("num_sync_all_streams", c_int64),
        ("num_device_alloc", c_int64),
        ("num_device_free", c_int64),
        ("num_oom_rejections", c_int64),
    ]

class tarn_metadata_kind(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("record_bytes", c_size_t),
        ("records", c_int64),
        ("bytes", c_int64),
    ]

class tarn_alloc_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("stream", c_uint64),
        ("alignment", c_size_t),
        ("tag", c_uint16),
        ("pool", c_void_p),
        ("wait", c_uint64),
    ]

class tarn_device_properties(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char * 64),
        ("driver", c_char * 16),
        ("memory", c_size_t),
        ("granule", c_size_t),
        ("least_priority", c_int),
        ("greatest_priority", c_int),
        ("virtual_memory", c_bool),
        ("alias", c_bool),
        ("capability_major", c_int),
        ("capability_minor", c_int),
        ("exportable", c_bool),
        ("integrated", c_bool),
        ("coherent", c_bool),
        ("slice", c_bool),
        ("mps", c_bool),
        ("paged", c_bool),
        ("address_bits", c_int),
    ]

class tarn_guard(Structure):
    _fields_ = [
        ("previous_stream", c_uint64),
        ("device", c_int),
        ("previous_device", c_int),
        ("active", c_bool),
    ]

class tarn_stream_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("priority", c_int),
    ]

class tarn_pool_id(Structure):
    _fields_ = [
        ("first", c_uint64),
        ("second", c_uint64),
    ]

class tarn_block_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("base", c_void_p),
        ("usable_size", c_size_t),
        ("requested", c_size_t),
        ("device", c_int),
        ("stream", c_uint64),
        ("tag", c_uint16),
        ("pool", tarn_pool_id),
        ("imported", c_bool),
    ]

class tarn_graph_reference(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("state", c_int),
        ("certainty", c_int),
        ("node", c_size_t),
        ("depth", c_uint),
        ("kind", c_int),
        ("native", c_void_p),
        ("kernel", c_char_p),
        ("parameter", c_uint),
        ("offset", c_size_t),
        ("parameter_bytes", c_size_t),
        ("address", c_void_p),
        ("block", c_void_p),
        ("requested", c_size_t),
        ("tag", c_uint16),
        ("device", c_int),
        ("pool", tarn_pool_id),
        ("remembered_at", c_char_p),
        ("freed_at", c_char_p),
        ("allocated_at", c_char_p),
        ("region", c_char_p),
    ]

class tarn_graph_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("all", c_bool),
        ("remembered", c_uint64),
    ]

class tarn_graph_summary(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("verdict", c_int),
        ("remembered", c_bool),
        ("nodes", c_size_t),
        ("references", c_size_t),
        ("certain", c_size_t),
        ("likely", c_size_t),
        ("perhaps", c_size_t),
        ("unproven", c_size_t),
        ("unseen", c_size_t),
        ("unseen_host", c_size_t),
        ("unseen_kernels", c_size_t),
        ("unseen_updatable", c_size_t),
        ("unseen_conditional", c_size_t),
        ("unseen_other", c_size_t),
    ]

class tarn_mapping(Structure):
    _fields_ = [
        ("address", c_void_p),
        ("bytes", c_size_t),
        ("generation", c_uint64),
        ("device", c_int),
    ]

class tarn_shortage(Structure):
    _fields_ = [
        ("requested", c_size_t),
        ("reserved", c_size_t),
        ("limit", c_size_t),
        ("free", c_size_t),
        ("total", c_size_t),
        ("device", c_int),
        ("rejected", c_bool),
    ]

class tarn_observer_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("user", c_void_p),
        ("mapped", CFUNCTYPE(None, POINTER(tarn_mapping), c_void_p)),
        ("unmapping", CFUNCTYPE(None, POINTER(tarn_mapping), c_void_p)),
        ("out_of_memory", CFUNCTYPE(c_bool, POINTER(tarn_shortage), c_void_p)),
        ("before_growth", CFUNCTYPE(c_bool, c_int, c_size_t, c_void_p)),
        ("any_thread", c_bool),
    ]

class tarn_pool_allocator(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("alloc", CFUNCTYPE(c_void_p, c_size_t, c_int, c_void_p, c_void_p)),
        ("free", CFUNCTYPE(None, c_void_p, c_size_t, c_int, c_void_p, c_void_p)),
        ("gone", CFUNCTYPE(None, c_void_p)),
        ("user", c_void_p),
    ]

class tarn_segment_sizes(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("small_segment", c_size_t),
        ("large_segment", c_size_t),
        ("own_segment", c_size_t),
        ("rounding", c_size_t),
        ("max_split", c_size_t),
        ("max_non_split_rounding", c_size_t),
    ]

class tarn_pool_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("use_on_oom", c_bool),
        ("no_remap", c_bool),
        ("exportable", c_bool),
        ("segments", c_int),
        ("sizes", POINTER(tarn_segment_sizes)),
        ("no_split", c_bool),
        ("allocator", POINTER(tarn_pool_allocator)),
        ("registrable", c_bool),
        ("idle_release", c_uint),
    ]

class tarn_pool_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("id", tarn_pool_id),
        ("device", c_int),
        ("state", c_int),
        ("use_count", c_uint),
        ("tag", c_uint16),
        ("limit", c_size_t),
        ("allocator", POINTER(tarn_pool_allocator)),
    ]

class tarn_pool_block(Structure):
    _fields_ = [
        ("address", c_void_p),
        ("usable_size", c_size_t),
        ("requested", c_size_t),
        ("stream", c_uint64),
        ("reserved", c_uint64 * 2),
    ]

class tarn_library_row(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("platform", c_int),
        ("flags", c_uint),
        ("create_number", c_int),
        ("out_of_memory", c_int),
        ("sonames", POINTER(c_char_p)),
        ("create_name", c_char_p),
        ("destroy_name", c_char_p),
        ("set_stream_name", c_char_p),
        ("get_stream_name", c_char_p),
        ("set_workspace_name", c_char_p),
        ("set_pointer_mode_name", c_char_p),
        ("status_text_name", c_char_p),
        ("create", CFUNCTYPE(c_int, POINTER(c_void_p))),
        ("create_with_number", CFUNCTYPE(c_int, POINTER(c_void_p), c_int)),
        ("destroy", CFUNCTYPE(c_int, c_void_p)),
        ("set_stream", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("get_stream", CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))),
        ("set_workspace", CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)),
        ("set_pointer_mode", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("status_text", CFUNCTYPE(c_char_p, c_int)),
    ]

class tarn_library_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char * 32),
        ("platform", c_int),
        ("found", c_bool),
        ("usable", c_bool),
        ("checked", c_bool),
        ("path", c_char * 256),
        ("version", c_char * 32),
        ("sonames", c_char * 256),
        ("reason", c_char * 512),
    ]

class tarn_lease(Structure):
    _fields_ = [
        ("handle", c_void_p),
        ("owner", c_void_p),
        ("number", c_uint64),
    ]

class tarn_handle_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("created", c_uint64),
        ("destroyed", c_uint64),
        ("in_use", c_uint64),
        ("available", c_uint64),
        ("peak_in_use", c_uint64),
        ("failures", c_uint64),
        ("create_ns_sum", c_uint64),
        ("create_ns_max", c_uint64),
        ("create_ns_last", c_uint64),
        ("device_bytes_last", c_int64),
        ("device_bytes_max", c_int64),
        ("contract_breaks", c_uint64),
        ("workspace_bytes", c_size_t),
    ]

class tarn_workspace_call(Structure):
    _fields_ = [
        ("handle", c_void_p),
        ("pointer", c_void_p),
        ("bytes", c_size_t),
        ("owner", c_void_p),
    ]

class tarn_workspace_choice(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("which", c_int),
        ("stream", c_uint64),
        ("capture", c_uint64),
        ("pool", c_void_p),
    ]

class tarn_workspace_cleared(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("freed", c_size_t),
        ("deferred", c_size_t),
    ]

class tarn_workspace_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("count", c_uint64),
        ("bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("captured_count", c_uint64),
        ("captured_bytes", c_uint64),
        ("deferred_bytes", c_uint64),
        ("leaked_bytes", c_uint64),
        ("allocations", c_uint64),
    ]

class tarn_keep_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("socket", c_char_p),
        ("stream", c_uint64),
        ("segment", c_size_t),
        ("wait_ms", c_uint),
        ("read", c_bool),
    ]

class tarn_kept(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("blocks", c_size_t),
        ("bytes", c_size_t),
        ("mapped", c_size_t),
        ("adopted", c_bool),
        ("moved", c_bool),
        ("read_only", c_bool),
    ]

class tarn_sealed_block(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("pointer", c_void_p),
        ("bytes", c_size_t),
        ("data", c_uint8 * 64),
        ("seal", c_uint64),
    ]

class tarn_pinned_duration(Structure):
    _fields_ = [
        ("total", c_int64),
        ("max", c_int64),
        ("min", c_int64),
        ("count", c_int64),
        ("avg", c_int64),
    ]

class tarn_pinned_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("active_requests", tarn_stat),
        ("active_bytes", tarn_stat),
        ("requested_bytes", tarn_stat),
        ("allocations", tarn_stat),
        ("allocated_bytes", tarn_stat),
        ("host_alloc_time", tarn_pinned_duration),
        ("host_free_time", tarn_pinned_duration),
        ("num_host_alloc", c_int64),
        ("num_host_free", c_int64),
        ("bucket_allocation", c_int64 * 64),
        ("pending_bytes", c_int64),
        ("graph_bytes", c_int64),
        ("num_alloc_retries", c_int64),
        ("num_ooms", c_int64),
        ("limit", c_uint64),
    ]

class tarn_range_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("pool", c_void_p),
        ("page", c_size_t),
        ("tag", c_uint16),
    ]

class tarn_range_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("address", c_void_p),
        ("bytes", c_size_t),
        ("page", c_size_t),
        ("device", c_int),
        ("pool", tarn_pool_id),
        ("committed", c_size_t),
        ("decommitted", c_size_t),
    ]

class tarn_share_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("bytes", c_size_t),
        ("offset", c_size_t),
        ("mapped", c_size_t),
        ("pieces", c_uint),
        ("device", c_int),
        ("id", c_uint64 * 2),
        ("generation", c_uint64),
        ("importers", c_size_t),
    ]

class tarn_sleep_rule(Structure):
    _fields_ = [
        ("tag", c_uint16),
        ("contents", c_int),
    ]

class tarn_sleep_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("what", c_uint),
        ("contents", c_int),
        ("rules", POINTER(tarn_sleep_rule)),
        ("rule_count", c_size_t),
    ]

class tarn_residue_item(Structure):
    _fields_ = [
        ("reason", c_int),
        ("device", c_int),
        ("pool", tarn_pool_id),
        ("bytes", c_size_t),
        ("count", c_size_t),
        ("text", c_char_p),
    ]

class tarn_residue(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("items", POINTER(tarn_residue_item)),
        ("room", c_size_t),
        ("count", c_size_t),
        ("before", c_size_t),
        ("after", c_size_t),
        ("saved", c_size_t),
    ]

class tarn_sleeper_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("device", c_int),
        ("pool", c_void_p),
        ("user", c_void_p),
        ("prepare", CFUNCTYPE(c_int, c_void_p, c_char_p, c_size_t)),
        ("cancel", CFUNCTYPE(None, c_void_p)),
        ("commit", CFUNCTYPE(c_int, c_void_p, c_char_p, c_size_t)),
        ("wake", CFUNCTYPE(c_int, c_void_p, c_char_p, c_size_t)),
        ("held", CFUNCTYPE(c_size_t, c_void_p)),
    ]

class tarn_sleeper_info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("state", c_int),
        ("status", c_int),
        ("name", c_char * 64),
        ("why", c_char * 256),
    ]

class tarn_snapshot_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("format", c_int),
        ("max_bytes", c_uint64),
    ]

class tarn_memory_part(Structure):
    _fields_ = [
        ("address", c_void_p),
        ("bytes", c_size_t),
        ("requested", c_size_t),
        ("state", c_int),
        ("tag", c_uint16),
        ("reserved", c_uint64 * 2),
    ]

class tarn_memory_segment(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("address", c_void_p),
        ("bytes", c_size_t),
        ("device", c_int),
        ("stream", c_uint64),
        ("native", c_void_p),
        ("pool", tarn_pool_id),
        ("large", c_bool),
        ("is_virtual", c_bool),
        ("parts", POINTER(tarn_memory_part)),
        ("part_count", c_size_t),
    ]

class tarn_trace_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("records", c_size_t),
        ("stacks", c_int),
        ("regions", c_bool),
    ]

class tarn_host_configuration(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("devices", c_int),
        ("memory", c_size_t),
        ("maps", c_size_t),
    ]

class tarn_host_ledger(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("created", c_uint64),
        ("created_peak", c_uint64),
        ("mapped", c_uint64),
        ("mapped_peak", c_uint64),
        ("pieces", c_uint64),
        ("mappings", c_uint64),
        ("plain", c_uint64),
        ("reserved_addresses", c_uint64),
        ("pinned", c_uint64),
        ("pinned_bytes", c_uint64),
        ("pinned_peak", c_uint64),
        ("streams", c_uint64),
        ("events", c_uint64),
        ("graphs", c_uint64),
        ("time_a_ns", c_uint64),
        ("time_b_ns", c_uint64),
        ("time_c_ns", c_uint64),
        ("waited_ns", c_uint64),
        ("reports", c_uint64),
        ("failed", c_uint64),
        ("calls", c_uint64 * 64),
    ]

class tarn_host_extent(Structure):
    _fields_ = [
        ("piece", c_uint64),
        ("offset", c_uint64),
        ("length", c_uint64),
        ("accessible", c_bool),
    ]

class tarn_live_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("directory", c_char_p),
        ("interval_ms", c_uint),
    ]


# name -> (result, arguments, their names)
FUNCTIONS: dict[str, tuple[Any, list[Any], str]] = {
    "tarn_status_name": (c_char_p, [c_int], "status"),
    "tarn_status_text": (c_char_p, [c_int], "status"),
    "tarn_last_status": (c_int, [], ""),
    "tarn_device_stats_reset": (c_int, [c_int, c_int], "device what"),
    "tarn_metadata_list": (c_int, [CFUNCTYPE(None, POINTER(tarn_metadata_kind), c_void_p), c_void_p], "each user"),
    "tarn_stream_find": (c_int, [c_int, c_void_p, POINTER(c_uint64)], "device native stream"),
    "tarn_stream_lease": (c_int, [c_int, c_int, POINTER(c_uint64)], "device priority stream"),
    "tarn_stream_return": (c_int, [c_uint64], "stream"),
    "tarn_alloc_on": (c_int, [c_uint64, c_size_t, POINTER(c_void_p)], "stream size pointer"),
    "tarn_alloc": (c_int, [POINTER(tarn_alloc_options), c_size_t, POINTER(c_void_p)], "options size pointer"),
    "tarn_free": (c_int, [c_void_p], "pointer"),
    "tarn_free_on": (c_int, [c_void_p, c_uint64], "pointer stream"),
    "tarn_record_stream": (c_int, [c_void_p, c_uint64], "pointer stream"),
    "tarn_pool_create": (c_int, [POINTER(tarn_pool_options), POINTER(c_void_p)], "options pool"),
    "tarn_pool_alloc": (c_int, [c_void_p, c_uint64, c_size_t, POINTER(c_void_p)], "pool stream size pointer"),
    "tarn_pool_release": (c_int, [c_void_p], "pool"),
    "tarn_pool_capture_begin": (c_int, [c_void_p, c_uint64, c_int], "pool stream mode"),
    "tarn_capture_end": (c_int, [c_uint64, POINTER(c_void_p)], "stream graph"),
    "tarn_handle_get": (c_int, [c_int, c_uint64, POINTER(c_void_p)], "library stream handle"),
    "tarn_handle_prewarm": (c_int, [c_int, c_int, c_uint64, c_size_t], "library device stream count"),
    "tarn_pinned_alloc": (c_int, [c_uint64, c_size_t, POINTER(c_void_p)], "stream size pointer"),
    "tarn_device_trim": (c_int, [c_int, c_size_t], "device keep"),
    "tarn_device_stats_get": (c_int, [c_int, POINTER(tarn_stats)], "device stats"),
    "tarn_last_error": (c_char_p, [], ""),
    "tarn_configuration_set": (c_int, [c_char_p], "text"),
    "tarn_configuration_get": (c_int, [c_char_p, c_size_t, POINTER(c_size_t)], "buffer size needed"),
    "tarn_configuration_note_get": (c_int, [c_int, POINTER(c_char_p)], "index text"),
    "tarn_device_count_get": (c_int, [POINTER(c_int)], "count"),
    "tarn_device_properties_get": (c_int, [c_int, POINTER(tarn_device_properties)], "device properties"),
    "tarn_device_get": (c_int, [POINTER(c_int)], "device"),
    "tarn_device_set": (c_int, [c_int], "device"),
    "tarn_device_adopt": (c_int, [POINTER(c_int)], "device"),
    "tarn_device_memory_get": (c_int, [c_int, POINTER(c_size_t), POINTER(c_size_t)], "device free_bytes total_bytes"),
    "tarn_device_synchronize": (c_int, [c_int], "device"),
    "tarn_device_peer_enable": (c_int, [c_int, c_int], "device peer"),
    "tarn_device_guard_set": (c_int, [POINTER(tarn_guard), c_int], "guard device"),
    "tarn_guard_restore": (c_int, [POINTER(tarn_guard)], "guard"),
    "tarn_shutdown": (c_int, [], ""),
    "tarn_stream_get": (c_int, [c_int, POINTER(c_uint64)], "device stream"),
    "tarn_stream_set": (c_int, [c_uint64], "stream"),
    "tarn_stream_adopt": (c_int, [c_int, c_void_p, POINTER(c_uint64)], "device native stream"),
    "tarn_stream_retire": (c_int, [c_uint64], "stream"),
    "tarn_stream_shared_get": (c_int, [c_int, c_int, POINTER(c_uint64)], "device priority stream"),
    "tarn_stream_native_get": (c_int, [c_uint64, POINTER(c_void_p)], "stream native"),
    "tarn_stream_info_get": (c_int, [c_uint64, POINTER(tarn_stream_info)], "stream info"),
    "tarn_stream_query": (c_int, [c_uint64], "stream"),
    "tarn_stream_synchronize": (c_int, [c_uint64], "stream"),
    "tarn_stream_guard_set": (c_int, [POINTER(tarn_guard), c_uint64], "guard stream"),
    "tarn_event_create": (c_int, [c_int, POINTER(c_void_p)], "device event"),
    "tarn_event_destroy": (c_int, [c_void_p], "event"),
    "tarn_event_record": (c_int, [c_void_p, c_uint64], "event stream"),
    "tarn_event_query": (c_int, [c_void_p], "event"),
    "tarn_event_synchronize": (c_int, [c_void_p], "event"),
    "tarn_stream_wait": (c_int, [c_uint64, c_void_p], "stream event"),
    "tarn_capture_begin": (c_int, [c_uint64, c_int], "stream mode"),
    "tarn_capture_announce": (c_int, [c_uint64], "stream"),
    "tarn_capture_end_announced": (c_int, [c_uint64, c_void_p], "stream graph"),
    "tarn_capture_abort": (c_int, [c_uint64], "stream"),
    "tarn_capture_state_get": (c_int, [c_uint64, POINTER(c_int), POINTER(c_uint64), POINTER(c_void_p)], "stream state id graph"),
    "tarn_malloc": (c_void_p, [c_size_t], "size"),
    "tarn_free_after": (c_int, [c_void_p, c_void_p], "pointer event"),
    "tarn_extend": (c_int, [c_void_p, c_size_t], "pointer size"),
    "tarn_usable_size_get": (c_int, [c_void_p, POINTER(c_size_t)], "pointer size"),
    "tarn_pointer_info_get": (c_int, [c_void_p, POINTER(tarn_block_info)], "pointer info"),
    "tarn_tag_intern": (c_int, [c_char_p, POINTER(c_uint16)], "text tag"),
    "tarn_tag_text": (c_char_p, [c_uint16], "tag"),
    "tarn_compact": (c_int, [c_int, c_size_t, POINTER(c_size_t)], "device wanted gained"),
    "tarn_caching_set": (c_int, [c_bool, POINTER(c_bool)], "caches previous"),
    "tarn_device_limit_set": (c_int, [c_int, c_size_t], "device bytes"),
    "tarn_device_limit_get": (c_int, [c_int, POINTER(c_size_t)], "device bytes"),
    "tarn_graph_check": (c_int, [c_void_p, POINTER(tarn_graph_options), CFUNCTYPE(None, POINTER(tarn_graph_reference), c_void_p), c_void_p, POINTER(tarn_graph_summary)], "graph options found user summary"),
    "tarn_graph_remember": (c_int, [c_void_p, POINTER(c_uint64)], "graph number"),
    "tarn_graph_launch": (c_int, [c_void_p, c_uint64, c_uint64, CFUNCTYPE(None, POINTER(tarn_graph_reference), c_void_p), c_void_p], "executable number stream found user"),
    "tarn_observer_add": (c_int, [POINTER(tarn_observer_options), POINTER(c_uint64)], "options observer"),
    "tarn_observer_remove": (c_int, [c_uint64], "observer"),
    "tarn_mapping_get": (c_int, [c_void_p, POINTER(tarn_mapping)], "pointer mapping"),
    "tarn_pool_default": (c_int, [c_int, POINTER(c_void_p)], "device pool"),
    "tarn_pool_retain": (c_int, [c_void_p], "pool"),
    "tarn_pool_find": (c_int, [tarn_pool_id, POINTER(c_void_p)], "id pool"),
    "tarn_pool_info_get": (c_int, [c_void_p, POINTER(tarn_pool_info)], "pool info"),
    "tarn_pool_stats_get": (c_int, [c_void_p, POINTER(tarn_stats)], "pool stats"),
    "tarn_pool_segments_get": (c_int, [c_void_p, POINTER(tarn_mapping), c_size_t, POINTER(c_size_t)], "pool segments room count"),
    "tarn_pool_trim": (c_int, [c_void_p, c_size_t], "pool keep"),
    "tarn_pool_limit_set": (c_int, [c_void_p, c_size_t], "pool bytes"),
    "tarn_pool_blocks_get": (c_int, [c_void_p, POINTER(tarn_pool_block), c_size_t, POINTER(c_size_t)], "pool blocks room count"),
    "tarn_pool_suspend": (c_int, [c_void_p, c_bool], "pool save"),
    "tarn_pool_resume": (c_int, [c_void_p], "pool"),
    "tarn_pool_checkpoint": (c_int, [c_void_p, POINTER(c_void_p)], "pool checkpoint"),
    "tarn_checkpoint_destroy": (c_int, [c_void_p], "checkpoint"),
    "tarn_pool_restore": (c_int, [c_void_p, c_void_p, CFUNCTYPE(None, POINTER(tarn_pool_block), c_bool, c_void_p), c_void_p], "pool checkpoint changed user"),
    "tarn_scope_begin": (c_int, [c_void_p, c_int, c_uint64, POINTER(c_uint64)], "pool kind stream scope"),
    "tarn_scope_end": (c_int, [c_uint64], "scope"),
    "tarn_scope_join": (c_int, [c_uint64], "scope"),
    "tarn_pool_capture_announce": (c_int, [c_void_p, c_uint64], "pool stream"),
    "tarn_pool_hold": (c_int, [c_void_p, c_void_p], "pool graph"),
    "tarn_pool_unhold": (c_int, [c_void_p], "pool"),
    "tarn_library_register": (c_int, [POINTER(tarn_library_row), POINTER(c_int)], "row library"),
    "tarn_library_find": (c_int, [c_char_p, POINTER(c_int)], "name library"),
    "tarn_library_info_get": (c_int, [c_int, POINTER(tarn_library_info)], "library info"),
    "tarn_handle_lease": (c_int, [c_int, c_uint64, POINTER(tarn_lease)], "library stream lease"),
    "tarn_handle_lease_bind": (c_int, [POINTER(tarn_lease), c_uint64], "lease stream"),
    "tarn_handle_return": (c_int, [POINTER(tarn_lease)], "lease"),
    "tarn_handle_trim": (c_int, [c_int, c_int, POINTER(c_size_t)], "library device destroyed"),
    "tarn_handle_wait_limit_set": (c_int, [c_uint64, POINTER(c_uint64)], "ns previous"),
    "tarn_handle_mode_set": (c_int, [c_int, c_int, c_int, c_int, POINTER(c_int)], "library mode whose value previous"),
    "tarn_handle_stats_get": (c_int, [c_int, c_int, POINTER(tarn_handle_stats)], "library device stats"),
    "tarn_workspace_policy_set": (c_int, [c_int, POINTER(c_int)], "policy previous"),
    "tarn_workspace_size_set": (c_int, [c_int, c_int64], "library bytes"),
    "tarn_workspace_get": (c_int, [c_int, c_uint64, POINTER(tarn_lease), POINTER(c_void_p), POINTER(c_size_t)], "library stream lease pointer size"),
    "tarn_workspace_begin": (c_int, [c_int, c_uint64, POINTER(tarn_lease), POINTER(tarn_workspace_call)], "library stream lease call"),
    "tarn_workspace_end": (c_int, [POINTER(tarn_workspace_call)], "call"),
    "tarn_workspace_clear": (c_int, [POINTER(tarn_workspace_choice), POINTER(tarn_workspace_cleared)], "choice cleared"),
    "tarn_workspace_stats_get": (c_int, [c_int, POINTER(tarn_workspace_stats)], "device stats"),
    "tarn_pool_keep": (c_int, [c_char_p, POINTER(tarn_keep_options), POINTER(c_void_p), POINTER(tarn_kept)], "name options pool kept"),
    "tarn_pool_block_seal": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p], "pointer name data event"),
    "tarn_pool_block_unseal": (c_int, [c_void_p], "pointer"),
    "tarn_pool_block_find": (c_int, [c_void_p, c_char_p, POINTER(tarn_sealed_block)], "pool name block"),
    "tarn_pool_save": (c_int, [c_void_p, c_int], "pool file"),
    "tarn_pool_load": (c_int, [c_void_p, c_int], "pool file"),
    "tarn_pinned_contains": (c_bool, [c_void_p], "pointer"),
    "tarn_pinned_trim": (c_int, [c_size_t], "keep"),
    "tarn_pinned_limit_set": (c_int, [c_size_t], "bytes"),
    "tarn_pinned_forget_captures": (c_int, [], ""),
    "tarn_pinned_stats_get": (c_int, [POINTER(tarn_pinned_stats)], "stats"),
    "tarn_pinned_stats_reset": (c_int, [c_int], "what"),
    "tarn_range_create": (c_int, [POINTER(tarn_range_options), c_size_t, POINTER(c_void_p)], "options bytes range"),
    "tarn_range_commit": (c_int, [c_void_p, c_size_t, c_size_t, c_uint64], "range offset bytes stream"),
    "tarn_range_decommit": (c_int, [c_void_p, c_size_t, c_size_t, c_uint64], "range offset bytes stream"),
    "tarn_range_hold": (c_int, [c_void_p, c_size_t, c_size_t, c_void_p], "range offset bytes graph"),
    "tarn_range_unhold": (c_int, [c_void_p, c_size_t, c_size_t], "range offset bytes"),
    "tarn_range_info_get": (c_int, [c_void_p, POINTER(tarn_range_info)], "range info"),
    "tarn_range_destroy": (c_int, [c_void_p], "range"),
    "tarn_anchor": (c_int, [c_void_p, c_size_t], "pointer size"),
    "tarn_unanchor": (c_int, [c_void_p, c_size_t], "pointer size"),
    "tarn_export_enable": (c_int, [c_int], "device"),
    "tarn_export": (c_int, [c_void_p, POINTER(c_void_p)], "pointer share"),
    "tarn_share_close": (c_int, [c_void_p], "share"),
    "tarn_share_info_get": (c_int, [c_void_p, POINTER(tarn_share_info)], "share info"),
    "tarn_share_send": (c_int, [c_int, c_void_p], "socket share"),
    "tarn_share_receive": (c_int, [c_int, POINTER(c_void_p)], "socket share"),
    "tarn_import": (c_int, [c_void_p, c_int, POINTER(c_void_p)], "share device pointer"),
    "tarn_import_close": (c_int, [c_void_p], "pointer"),
    "tarn_pool_export": (c_int, [c_void_p, c_void_p, POINTER(c_void_p)], "pool before share"),
    "tarn_share_revoke": (c_int, [c_void_p], "share"),
    "tarn_pool_import": (c_int, [c_void_p, c_int, POINTER(c_void_p)], "share device imported"),
    "tarn_imported_pool_update": (c_int, [c_void_p, c_void_p], "imported share"),
    "tarn_imported_pool_find": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)], "imported address size pointer"),
    "tarn_imported_pool_state_get": (c_int, [c_void_p, POINTER(c_int)], "imported state"),
    "tarn_imported_pool_close": (c_int, [c_void_p], "imported"),
    "tarn_pool_tag_set": (c_int, [c_void_p, c_uint16], "pool tag"),
    "tarn_sleep_prepare": (c_int, [POINTER(tarn_sleep_options), POINTER(tarn_residue)], "options residue"),
    "tarn_sleep_commit": (c_int, [POINTER(tarn_residue)], "residue"),
    "tarn_sleep_cancel": (c_int, [], ""),
    "tarn_sleep": (c_int, [POINTER(tarn_sleep_options), POINTER(tarn_residue)], "options residue"),
    "tarn_wake": (c_int, [], ""),
    "tarn_sleeper_add": (c_int, [POINTER(tarn_sleeper_options), POINTER(c_uint64)], "options sleeper"),
    "tarn_sleeper_remove": (c_int, [c_uint64], "sleeper"),
    "tarn_sleeper_info_get": (c_int, [c_uint64, POINTER(tarn_sleeper_info)], "sleeper info"),
    "tarn_sleep_state_get": (c_int, [POINTER(c_int)], "state"),
    "tarn_snapshot_write": (c_int, [c_char_p, POINTER(tarn_snapshot_options)], "path options"),
    "tarn_snapshot_print": (c_int, [CFUNCTYPE(c_bool, c_void_p, c_size_t, c_void_p), c_void_p, POINTER(tarn_snapshot_options)], "write user options"),
    "tarn_memory_list": (c_int, [CFUNCTYPE(None, POINTER(tarn_memory_segment), c_void_p), c_void_p], "each user"),
    "tarn_trace_start": (c_int, [POINTER(tarn_trace_options)], "options"),
    "tarn_trace_stop": (c_int, [], ""),
    "tarn_trace_clear": (c_int, [], ""),
    "tarn_trace_count_get": (c_int, [POINTER(c_uint64), POINTER(c_uint64)], "kept lost"),
    "tarn_region_push": (c_int, [c_char_p], "name"),
    "tarn_region_pop": (c_int, [], ""),
    "tarn_version": (c_char_p, [], ""),
    "tarn_host_configuration_set": (c_int, [POINTER(tarn_host_configuration)], "config"),
    "tarn_host_call_name": (c_char_p, [c_int], "kind"),
    "tarn_host_ledger_get": (c_int, [c_int, POINTER(tarn_host_ledger)], "device ledger"),
    "tarn_host_ledger_reset": (c_int, [c_int], "device"),
    "tarn_host_cost_get": (c_int, [c_char, c_int, c_size_t, c_uint64, POINTER(c_uint64)], "table kind bytes pieces ns"),
    "tarn_host_fail_set": (c_int, [c_int, c_uint64, c_bool, c_int], "kind nth forever status"),
    "tarn_host_time_get": (c_int, [POINTER(c_uint64)], "now"),
    "tarn_host_advance": (c_int, [c_uint64], "now"),
    "tarn_host_work": (c_int, [c_int, c_void_p, c_void_p, c_size_t, c_uint64], "device native address size duration"),
    "tarn_host_fill": (c_int, [c_int, c_void_p, c_void_p, c_int, c_size_t], "device native address value size"),
    "tarn_host_call": (c_int, [c_int, c_void_p, CFUNCTYPE(None, c_void_p), c_void_p], "device native function user"),
    "tarn_host_graph_launch": (c_int, [c_int, c_void_p, c_void_p], "device graph native"),
    "tarn_host_graph_destroy": (c_int, [c_void_p], "graph"),
    "tarn_host_extent_get": (c_int, [c_int, c_void_p, c_size_t, POINTER(tarn_host_extent)], "device address size extent"),
    "tarn_host_check_set": (c_int, [c_bool, CFUNCTYPE(None, c_char_p, c_void_p), c_void_p], "on report user"),
    "tarn_live_start": (c_int, [POINTER(tarn_live_options)], "options"),
    "tarn_live_stop": (c_int, [], ""),
    "tarn_metrics_print": (c_int, [CFUNCTYPE(c_bool, c_void_p, c_size_t, c_void_p), c_void_p], "take user"),
}
