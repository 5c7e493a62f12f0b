/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Library handles: cuDNN's, cuBLAS's, MIOpen's ... one for each thread and device, bound to the thread's current
 * stream.
 *
 * A handle is made when a thread first asks for one, on the device that is current in tarn (tarn_device_set), and stays
 * that thread's until it ends; then it waits for the next thread that needs one. So there are as many as threads that
 * used the library at the same time. It is destroyed by tarn_handle_trim() and tarn_shutdown() alone: never at process
 * exit, where the driver may be gone (pytorch/pytorch#17658, #36408, #907), and never while a known capture is open.
 *
 * What a caller owes: ask again after each change of device or stream (it costs nanoseconds), use a handle only in the
 * thread that asked for it, never destroy it, never set its stream or its workspace. With TARN_DEBUG=handles every get
 * asks the vendor which stream the handle has and reports, through TARN_LOG and `contract_breaks`, who set another.
 * Pointer mode and such may be set on a handle: they last while the thread has it, and the next thread finds the
 * library's defaults again.
 *
 * A handle is made in the device's primary context. A get that makes one leaves that context current where the thread
 * had none or was on that device, else what was current; a get that makes none does not touch it.
 *
 * Captures (tarn/stream.h): a handle that exists can be used in one. Making one allocates, which a capture does not
 * survive on some drivers (pytorch/pytorch#99397): while a known capture is open on the device, or the stream captures,
 * a call that would have to make a handle fails with TARN_ERROR_CAPTURE. tarn_handle_prewarm() before the capture is
 * the cure.
 *
 * Vendor libraries are opened when first asked for: from the directories of TARN_LIBRARY_PATH; else one that the process
 * has loaded already is taken as it is; else from where the loader looks, then from the directories of CUDA_HOME,
 * CUDA_PATH, ROCM_PATH and the usual ones of the toolkits. In each place the newest that is known is tried first.
 *
 * All functions are thread-safe, and may be called during a capture unless they say otherwise. Every function may also
 * return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST and
 * TARN_ERROR_OUT_OF_HOST_MEMORY; one that takes a library, TARN_ERROR_INVALID_ARGUMENT for a number that is none. A
 * call that fails leaves handles as they were. */
#ifndef TARN_HANDLE_H
#define TARN_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/pool.h>
#include <tarn/status.h>
#include <tarn/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Libraries ------------------------------------------------------------------------------------------------------- */

/* X(NAME, number, name). The numbers are part of the ABI; libraries that a program registers get further ones.
 *   cudnn        cuDNN; typed getters in tarn/cudnn.h
 *   cublas       cuBLAS; tarn/cublas.h
 *   cublaslt     cuBLASLt; tarn/cublaslt.h
 *   cusparse     cuSPARSE; tarn/cusparse.h
 *   cusolver_dn  cuSOLVER's dense part; tarn/cusolver.h
 *   cusolver_sp  cuSOLVER's sparse part; tarn/cusolver.h
 *   cudss        cuDSS; tarn/cudss.h
 *   curand       cuRAND's generators; tarn/curand.h
 *   miopen       MIOpen; tarn/miopen.h
 *   rocblas      rocBLAS; tarn/rocblas.h
 *   hipblas      hipBLAS; tarn/hipblas.h
 *   hipblaslt    hipBLASLt; tarn/hipblaslt.h
 *   rocsparse    rocSPARSE; tarn/rocsparse.h
 *   hipsparse    hipSPARSE; tarn/hipsparse.h
 *   hipsolver    hipSOLVER; tarn/hipsolver.h */
#define TARN_LIBRARY_LIST(X)       \
    X(CUDNN, 1, cudnn)             \
    X(CUBLAS, 2, cublas)           \
    X(CUBLASLT, 3, cublaslt)       \
    X(CUSPARSE, 4, cusparse)       \
    X(CUSOLVER_DN, 5, cusolver_dn) \
    X(CUSOLVER_SP, 6, cusolver_sp) \
    X(CUDSS, 7, cudss)             \
    X(CURAND, 8, curand)           \
    X(MIOPEN, 9, miopen)           \
    X(ROCBLAS, 10, rocblas)        \
    X(HIPBLAS, 11, hipblas)        \
    X(HIPBLASLT, 12, hipblaslt)    \
    X(ROCSPARSE, 13, rocsparse)    \
    X(HIPSPARSE, 14, hipsparse)    \
    X(HIPSOLVER, 15, hipsolver)

/* A library: TARN_LIBRARY_... of the list, or the number of one that a program registered. */
typedef int tarn_library;
/* The numbers of the list. */
enum {
#define TARN_LIBRARY_ENUM(NAME, number, name) TARN_LIBRARY_##NAME = number,
    TARN_LIBRARY_LIST(TARN_LIBRARY_ENUM)
#undef TARN_LIBRARY_ENUM
        TARN_MAX_LIBRARIES = 63 /* numbers go from 1 to this */
};

/* Which driver a library needs. */
typedef enum tarn_platform {
    TARN_PLATFORM_ANY,  /* whatever there is */
    TARN_PLATFORM_CUDA, /* CUDA */
    TARN_PLATFORM_HIP   /* HIP */
} tarn_platform;

/* Flags of a row. */
#define TARN_LIBRARY_BY_STREAM 1u           /* a handle may not change its stream without a wait: one for each stream */
#define TARN_LIBRARY_CREATE_IN_CAPTURE 2u   /* making a handle is known to be harmless while a capture is open */
#define TARN_LIBRARY_CREATE_TAKES_NUMBER 4u /* create(handle, create_number), as curandCreateGenerator has it */
#define TARN_LIBRARY_FAILED_HANDLE_IS_REAL 8u /* what a failed create leaves behind must be destroyed (cuDSS 1.0) */

/* A library of the caller's. Functions are given by name, in the first of `sonames` that can be opened, or as pointers,
 * which win. `create` and `destroy` are needed, the others may be NULL. All return 0 for success; handles and
 * streams are pointers. The strings are copied. */
typedef struct tarn_library_row {
    size_t size;            /* sizeof(tarn_library_row), set by the caller */
    const char *name;       /* by which tarn_library_find() finds it */
    tarn_platform platform; /* which driver it needs */
    unsigned flags;         /* TARN_LIBRARY_... */
    int create_number;      /* for TARN_LIBRARY_CREATE_TAKES_NUMBER */
    /* The status of create that means so: tarn gives idle memory back and tries once more. 0: none. */
    int out_of_memory;
    const char *const *sonames; /* ends with NULL; NULL where every function is a pointer */
    const char *create_name, *destroy_name, *set_stream_name; /* of the functions below, in the library */
    const char *get_stream_name, *set_workspace_name;         /* ... */
    const char *set_pointer_mode_name, *status_text_name;     /* ... */
    int (*create)(void **handle);                             /* makes a handle */
    int (*create_with_number)(void **handle, int number);     /* the same, with create_number */
    int (*destroy)(void *handle);                             /* ends it */
    int (*set_stream)(void *handle, void *stream);            /* binds it to a stream */
    int (*get_stream)(void *handle, void **stream);           /* which one that is, for TARN_DEBUG=handles */
    /* Where given, the handle has a workspace: see below. NULL and 0: it must not use the one it had any more. */
    int (*set_workspace)(void *handle, void *pointer, size_t size);
    int (*set_pointer_mode)(void *handle, int mode); /* 0 is what the next thread finds */
    const char *(*status_text)(int status);          /* what a status means */
} tarn_library_row;

/* Registers a library; it behaves as a built-in one from then on, for ever. TARN_ERROR_INVALID_ARGUMENT for a NULL, an
 * unknown size or flag, no name or one that is taken, a missing create or destroy; TARN_ERROR_NOT_SUPPORTED when all
 * numbers are taken. */
TARN_API tarn_status tarn_library_register(const tarn_library_row *row, tarn_library *library);

/* The library of a name ("cudnn"). TARN_ERROR_INVALID_ARGUMENT when there is none. */
TARN_API tarn_status tarn_library_find(const char *name, tarn_library *library);

/* How many there are, registered ones among them: their numbers are 1 to `count`. */
TARN_API tarn_status tarn_library_count(int *count);

/* What was found of a library. */
typedef struct tarn_library_info {
    size_t size;            /* sizeof(tarn_library_info), set by the caller */
    char name[32];          /* "cudnn" */
    tarn_platform platform; /* which driver it needs */
    bool found;             /* it could be opened and has what is needed */
    bool usable;            /* ... and the driver in use is the one that it needs */
    bool checked;      /* the prototypes that tarn declares were compared with the vendor's headers by a compiler */
    char path[256];    /* of the file; "" for functions given as pointers */
    char version[32];  /* "13.1.0"; "" where it is not known, or not before the first handle is made */
    char sonames[256]; /* what is looked for, in order, with ", " between */
    char reason[512];  /* why it cannot be used; "" where it can */
} tarn_library_info;

/* Opens the library, unless that was tried before, and tells what came of it. Needs no device.
 * TARN_ERROR_INVALID_ARGUMENT for a NULL or an unknown size. */
TARN_API tarn_status tarn_library_info_get(tarn_library library, tarn_library_info *info);

/* Handles --------------------------------------------------------------------------------------------------------- */

/* The calling thread's handle for its current device, bound to its current stream there; `get_on`: for the stream's
 * device, bound to that stream. Nothing is locked, looked up or called when the stream is what it was. Otherwise:
 *   TARN_ERROR_LIBRARY_NOT_FOUND  with all that was tried
 *   TARN_ERROR_NOT_SUPPORTED      the library is another driver's
 *   TARN_ERROR_LIBRARY            a call of the library failed: which, with what status
 *   TARN_ERROR_OUT_OF_MEMORY      for the handle or its workspace, after idle memory was given back
 *   TARN_ERROR_CAPTURE            a handle would have to be made while a capture is open
 *   TARN_ERROR_INVALID_STREAM     the thread's current stream was retired; TARN_ERROR_INVALID_ARGUMENT for a NULL */
TARN_API tarn_status tarn_handle_get(tarn_library library, void **handle);
TARN_API tarn_status tarn_handle_get_on(tarn_library library, tarn_stream stream, void **handle);

/* A handle that belongs to no thread, for fibers and tasks: whoever has the lease may use it, one at a time, on any
 * thread. Fails as a get does. `bind` moves it to another stream of the same device; for a library with a handle a
 * stream that may be another handle, so read `handle` again. */
typedef struct tarn_lease {
    void *handle;    /* the vendor's */
    void *owner;     /* of tarn's, as the next field */
    uint64_t number; /* of tarn's */
} tarn_lease;
TARN_API tarn_status tarn_handle_lease(tarn_library library, tarn_stream stream, tarn_lease *lease);
TARN_API tarn_status tarn_handle_lease_bind(tarn_lease *lease, tarn_stream stream);

/* Gives it back and clears `lease`. Makes no call of the vendor. TARN_ERROR_INVALID_ARGUMENT for a lease that is none,
 * or was returned. After tarn_shutdown() still TARN_OK: the handle then is left to the process's end. */
TARN_API tarn_status tarn_handle_return(tarn_lease *lease);

/* Makes handles until `count` are available on `device` to threads that have none. Fails as a get does; what was made
 * stays. TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_ARGUMENT for more than 65,536. */
TARN_API tarn_status tarn_handle_prewarm(tarn_library library, int device, size_t count);

/* Destroys the handles that no thread has, with their workspaces, but for those of captures, which last until they are
 * cleared; `destroyed` (may be NULL) receives how many. The vendor's destroy waits for the device. TARN_ERROR_CAPTURE while a known capture
 * is open anywhere, and none can begin meanwhile; then nothing was destroyed, nor is anything where the driver cannot go to the device.
 * TARN_ERROR_LIBRARY when a destroy failed: that handle is given up, the others are destroyed. TARN_ERROR_INVALID_DEVICE. */
TARN_API tarn_status tarn_handle_trim(tarn_library library, int device, size_t *destroyed);

/* How long the calling thread waits, in ns, for captures of others to end when it must make a handle and captures
 * nothing itself. 0, the initial value: it does not. tarn_shutdown() waits for a thread that waits. */
TARN_API tarn_status tarn_handle_wait_limit(uint64_t ns);

/* A setting that the handles of a library have from their next binding on, in every thread: the vendor's own number.
 * PyTorch's "allow TF32" is MATH with CUBLAS_TF32_TENSOR_OP_MATH, its "deterministic" on ROCm ATOMICS with 0. -1 is the
 * library's default again. TARN_ERROR_NOT_SUPPORTED where the library has no such setting. */
typedef enum tarn_handle_mode {
    TARN_HANDLE_MATH,   /* the precision of the library's mathematics */
    TARN_HANDLE_ATOMICS /* whether it may add in any order */
} tarn_handle_mode;
TARN_API tarn_status tarn_handle_mode_set(tarn_library library, tarn_handle_mode mode, int value);

/* Counters of one library's handles on one device. */
typedef struct tarn_handle_stats {
    size_t size;                                           /* sizeof(tarn_handle_stats), set by the caller */
    uint64_t created, destroyed;                           /* handles, ever */
    uint64_t in_use, available;                            /* now: held by threads or leased; free to be taken */
    uint64_t peak_in_use;                                  /* the most at a time */
    uint64_t failures;                                     /* creates that failed */
    uint64_t create_ns_sum, create_ns_max, create_ns_last; /* of creates that did not */
    /* Bytes by which the driver's free memory shrank when a handle was made and nothing else was; -1: not known. */
    int64_t device_bytes_last;
    int64_t device_bytes_max; /* the most that these ever were */
    uint64_t contract_breaks; /* found by TARN_DEBUG=handles */
} tarn_handle_stats;

/* TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_ARGUMENT for a NULL or an unknown size. */
TARN_API tarn_status tarn_handle_stats_get(tarn_library library, int device, tarn_handle_stats *stats);

/* Workspaces ------------------------------------------------------------------------------------------------------
 *
 * cuBLAS, rocBLAS and hipBLAS need scratch memory in their handles. Left alone they allocate it past tarn, and once
 * more for each captured graph (pytorch/pytorch#83461). Policies:
 *   CACHED   (initial) each handle has a workspace from tarn's memory for each stream that it was used on, made when
 *            first needed. One that was bound during a capture belongs to that capture alone: graphs that are replayed
 *            at the same time do not share it (#193402), and it outlives its thread (#192061), until it is cleared by
 *            stream or by capture.
 *   PER_CALL tarn_workspace_begin() makes one and tarn_workspace_end() frees it; a plain get leaves the library's own
 *   LIBRARY  tarn sets none, as on a device without virtual memory, where tarn has no memory to give
 *
 * Sizes in bytes, where nothing else is set: cuBLAS 32 MiB on compute capability 9 to 12, else 8,519,680; rocBLAS and
 * hipBLAS 128 MiB on gfx94x, gfx950 and gfx125x, else 32 MiB; cuBLASLt 1 MiB; hipBLASLt 76 MiB. The environment:
 * CUBLAS_WORKSPACE_CONFIG, HIPBLAS_WORKSPACE_CONFIG or ROCBLAS_WORKSPACE_CONFIG, one or more `:KIB:COUNT`, whose
 * products are added up; CUBLASLT_WORKSPACE_SIZE and HIPBLASLT_WORKSPACE_SIZE, KiB. They are read once; a text that
 * makes no sense counts as not set. */
typedef enum tarn_workspace_policy {
    TARN_WORKSPACE_CACHED,
    TARN_WORKSPACE_PER_CALL,
    TARN_WORKSPACE_LIBRARY
} tarn_workspace_policy;

/* For all libraries and threads, from the next get on. TARN_ERROR_INVALID_ARGUMENT for what is none. */
TARN_API tarn_status tarn_workspace_policy_set(tarn_workspace_policy policy);
TARN_API tarn_status tarn_workspace_policy_get(tarn_workspace_policy *policy);

/* The bytes of a workspace from the next get on; -1 undoes what was set. A workspace that is large enough is kept.
 * TARN_ERROR_NOT_SUPPORTED for a library that has no workspace. */
TARN_API tarn_status tarn_workspace_size_set(tarn_library library, int64_t bytes);
TARN_API tarn_status tarn_workspace_size_get(tarn_library library, int device, size_t *bytes);

/* For libraries that take the workspace as an argument (cuBLASLt, hipBLASLt): the one of the calling thread's handle
 * for its current device and stream, until the thread asks for the library's handle or workspace again, on another
 * stream or after a clear. Under PER_CALL and LIBRARY too. TARN_ERROR_NOT_SUPPORTED for others; fails as a get does. */
TARN_API tarn_status tarn_workspace_get(tarn_library library, void **pointer, size_t *size);

/* A handle with a workspace for the calls up to the end, which the same thread makes. Between them it must not end, nor
 * change the device. Begin fails as a get does. Under CACHED, and during a capture, they are a get and nothing. When
 * the library refuses to let go of the memory, `end` gives TARN_ERROR_LIBRARY and leaks it: better than a handle that
 * points to memory of someone else. */
typedef struct tarn_workspace_call {
    void *handle;  /* the thread's */
    void *pointer; /* NULL where the workspace is not made for this call */
    size_t bytes;  /* of the workspace */
    void *owner;   /* of tarn's */
} tarn_workspace_call;
TARN_API tarn_status tarn_workspace_begin(tarn_library library, tarn_workspace_call *call);
TARN_API tarn_status tarn_workspace_end(tarn_workspace_call *call);

/* Bytes that a clear gave back to tarn's memory, and bytes that follow when the thread that has the handle asks for it
 * again or ends: until then its next call may still use them. */
typedef struct tarn_workspace_cleared {
    size_t freed;    /* bytes that are back */
    size_t deferred; /* bytes that follow */
} tarn_workspace_cleared;

/* Frees workspaces; `cleared` may be NULL. Handles of the calling thread must be asked for again. By stream: all of
 * this stream, those that graphs captured on it use among them: the caller says that these are not replayed any more.
 * By capture (tarn_capture_status): those of the graph that it became. By pool: those of all captures that used it; they
 * are blocks of it, and are cleared by themselves when nobody counts it any more. All: all but those of captures. Never
 * waits. TARN_ERROR_CAPTURE for a stream or capture that is still being captured, and for a pool that a capture or a
 * graph uses. */
TARN_API tarn_status tarn_workspace_clear(tarn_stream stream, tarn_workspace_cleared *cleared);
TARN_API tarn_status tarn_workspace_clear_capture(uint64_t capture, tarn_workspace_cleared *cleared);
TARN_API tarn_status tarn_workspace_clear_pool(tarn_pool *pool, tarn_workspace_cleared *cleared);
TARN_API tarn_status tarn_workspace_clear_all(tarn_workspace_cleared *cleared);

/* Counters of one device's workspaces. */
typedef struct tarn_workspace_stats {
    size_t size;                             /* sizeof(tarn_workspace_stats), set by the caller */
    uint64_t count, bytes, peak_bytes;       /* that exist now; most that ever did */
    uint64_t captured_count, captured_bytes; /* of these, what belongs to captures */
    uint64_t deferred_bytes;                 /* of these, cleared, and waiting for their thread */
    uint64_t leaked_bytes;                   /* that a library did not let go of */
    uint64_t allocations;                    /* ever */
} tarn_workspace_stats;

/* Of one device, all libraries. Also in tarn_stats_get(), and by the tag "workspace" in snapshots.
 * TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_ARGUMENT for a NULL or an unknown size. */
TARN_API tarn_status tarn_workspace_stats_get(int device, tarn_workspace_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
