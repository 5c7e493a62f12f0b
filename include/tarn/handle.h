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
 * Of a library whose handles may not change their stream without a wait (TARN_LIBRARY_BY_STREAM; rocBLAS and its kin) a thread has one
 * handle per stream, for the last TARN_HANDLE_STREAMS streams that it asked on. On a further stream the handle that was asked for longest
 * ago follows; the new stream waits, on the device, for what the old one has queued. Where memory is short that happens earlier. The
 * handle that was asked for last never follows.
 *
 * What a caller owes: ask again after each change of device or stream (it costs nanoseconds), and when the stream has joined a capture,
 * after the vendor's begin where that was announced, and when the capture is over: tarn sees a stream join only when it is asked. Use a
 * handle only in the thread that asked for it, never destroy it, never set its stream or its workspace. With TARN_DEBUG=handles every get
 * asks the vendor which stream the handle has and reports, on standard error and in `contract_breaks`, who set another.
 * Pointer mode and such may be set on a handle: they last while the thread has it, and the next thread finds what the
 * handle had when it was made, the library's defaults. docs/handles.md lists the settings that this holds for.
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
 * CUDA_PATH, ROCM_PATH and the usual ones of the toolkits. In each place the newest that is known is tried first, and the
 * next where one cannot be opened or lacks a function. Where the process has libraries of one major version of CUDA or ROCm
 * loaded, those of another version are not opened beside them; where only such a one is there, the text of
 * TARN_ERROR_LIBRARY_NOT_FOUND names both.
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
 *   hipsolver    hipSOLVER; tarn/hipsolver.h
 *   cusparselt   cuSPARSELt; tarn/cusparselt.h. The handle is a pointer to the vendor's structure, which tarn has */
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
    X(HIPSOLVER, 15, hipsolver)    \
    X(CUSPARSELT, 16, cusparselt)

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
 * which win. `create` and `destroy` are needed, the others may be NULL. A name alone needs `sonames`. All return 0 for
 * success; handles and streams are pointers. The strings are copied. */
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
 * unknown size or flag, no name or one that is taken, a missing create or destroy, the name of a function with no soname
 * to look it up in; TARN_ERROR_NOT_SUPPORTED when all numbers are taken. */
TARN_API tarn_status tarn_library_register(const tarn_library_row *row, tarn_library *library);

/* The library of a name ("cudnn"). TARN_ERROR_INVALID_ARGUMENT when there is none. */
TARN_API tarn_status tarn_library_find(const char *name, tarn_library *library);

/* How many there are, registered ones among them: their numbers are 1 to `count`. */
TARN_API tarn_status tarn_library_count_get(int *count);

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

/* The most streams for which a thread keeps handles of a library that has one per stream. While a capture is open there may be more,
 * since none can follow then. */
#define TARN_HANDLE_STREAMS 8

/* Handles --------------------------------------------------------------------------------------------------------- */

/* The calling thread's handle for its current device, bound to its current stream there; `get_on`: for the stream's
 * device, bound to that stream. Nothing is locked, looked up or called when the stream is what it was. Otherwise:
 *   TARN_ERROR_LIBRARY_NOT_FOUND  with all that was tried
 *   TARN_ERROR_NOT_SUPPORTED      the library is another driver's
 *   TARN_ERROR_LIBRARY            a call of the library failed: which, with what status
 *   TARN_ERROR_OUT_OF_MEMORY      for the handle or its workspace, after workspaces that nobody uses and idle memory were given back
 *   TARN_ERROR_CAPTURE            a handle would have to be made while a capture is open
 *   TARN_ERROR_BUSY               the library's create asks for a handle of that library and device
 *   TARN_ERROR_INVALID_STREAM     the thread's current stream was retired; TARN_ERROR_INVALID_ARGUMENT for a NULL */
TARN_API tarn_status tarn_handle_get(tarn_library library, void **handle);
TARN_API tarn_status tarn_handle_get_on(tarn_library library, tarn_stream stream, void **handle);

/* The calling thread's handle for its current device as its last user left it: tarn sets no stream, no workspace and no mode, for code that
 * sets these itself, all three. The next get or lease sets them again, and nothing else does: a workspace of the caller's own is taken
 * from the handle before it is freed. Of a library with a handle per stream it is the one for the current stream, and keeps that. Fails as
 * a get does. */
TARN_API tarn_status tarn_handle_get_plain(tarn_library library, void **handle);

/* A handle that belongs to no thread, for fibers and tasks: whoever has the lease may use it, one at a time, on any
 * thread. Fails as a get does. `bind` moves it to another stream of the same device; for a library with a handle a
 * stream that may be another handle, so read `handle` again. The structure does not grow. */
typedef struct tarn_lease {
    void *handle;    /* the vendor's */
    void *owner;     /* of tarn's, as the next field */
    uint64_t number; /* of tarn's */
} tarn_lease;
TARN_API tarn_status tarn_handle_lease(tarn_library library, tarn_stream stream, tarn_lease *lease);
TARN_API tarn_status tarn_handle_lease_bind(tarn_lease *lease, tarn_stream stream);

/* Gives it back and clears `lease`. Makes no call of the vendor. TARN_ERROR_INVALID_ARGUMENT for a lease that is none,
 * or was returned; TARN_ERROR_BUSY, as from `bind`, between tarn_workspace_begin_of() and the end. After tarn_shutdown() still TARN_OK: the
 * handle then is left to the process's end. */
TARN_API tarn_status tarn_handle_return(tarn_lease *lease);

/* Makes handles until `count` are available, to threads that have none, that a capture can have. `prewarm`: on any stream of
 * `device`. `prewarm_on`: on `stream`, for which they are kept until a get or a lease there takes them, a trim destroys them, or the
 * stream is retired; so a thread that captures can count on its handle, whatever others ask for.
 *
 * What a first binding does and a capture does not survive is done here: rocBLAS and hipBLAS free the memory that a handle came with. A
 * handle that was used on a stream which it keeps counts again when that stream's work is over.
 *
 * Both fail as a get does; what was made stays. TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_STREAM; TARN_ERROR_INVALID_ARGUMENT for
 * more than 65,536. */
TARN_API tarn_status tarn_handle_prewarm(tarn_library library, int device, size_t count);
TARN_API tarn_status tarn_handle_prewarm_on(tarn_library library, tarn_stream stream, size_t count);

/* Destroys the handles that no thread has, with their workspaces, but for those of captures, which last until they are
 * cleared; `destroyed` (may be NULL) receives how many. The vendor's destroy waits for the device. TARN_ERROR_CAPTURE while a known capture
 * is open anywhere, and none can begin meanwhile; then nothing was destroyed, nor is anything where the driver cannot go to the device.
 * TARN_ERROR_LIBRARY when a destroy failed: that handle is given up, the others are destroyed. TARN_ERROR_INVALID_DEVICE. */
TARN_API tarn_status tarn_handle_trim(tarn_library library, int device, size_t *destroyed);

/* How long the calling thread waits, in ns, for captures of others to end when it must make a handle and captures
 * nothing itself; a handle that another thread gives back ends the wait too. 0, the initial value: it does not wait.
 * tarn_shutdown() waits for a thread that waits. */
TARN_API tarn_status tarn_handle_wait_limit_set(uint64_t ns);
/* The same of the calling thread. TARN_ERROR_INVALID_ARGUMENT for a NULL. */
TARN_API tarn_status tarn_handle_wait_limit_get(uint64_t *ns);

/* A setting that the handles of a library have from their next binding on, in every thread: the vendor's own number.
 * PyTorch's "allow TF32" is MATH with CUBLAS_TF32_TENSOR_OP_MATH, its "deterministic" on ROCm ATOMICS with 0. -1, the
 * initial value, is what a handle has when it is made: the library's default, with what the environment says of it.
 * TARN_ERROR_NOT_SUPPORTED where the library has no such setting. */
typedef enum tarn_handle_mode {
    TARN_HANDLE_MATH,   /* the precision of the library's mathematics */
    TARN_HANDLE_ATOMICS /* whether it may add in any order */
} tarn_handle_mode;
TARN_API tarn_status tarn_handle_mode_set(tarn_library library, tarn_handle_mode mode, int value);
/* What was set last for all threads; -1: nothing. TARN_ERROR_NOT_SUPPORTED; TARN_ERROR_INVALID_ARGUMENT for a NULL. */
TARN_API tarn_status tarn_handle_mode_get(tarn_library library, tarn_handle_mode mode, int *value);

/* A guard sets a mode for the calling thread alone, whatever all threads have; -1 is for what these have. Restore puts back what the thread
 * had before. Either holds from the next get of each of the thread's handles on, on every device, and ends with the thread. A lease belongs
 * to no thread: it has what is set for all. A guard is restored by the thread that set it; guards nest like brackets. Restoring twice, or a
 * guard whose set failed, does nothing and is TARN_OK. Statuses as of tarn_handle_mode_set(). */
typedef struct tarn_handle_mode_guard {
    tarn_library library;  /* as given */
    tarn_handle_mode mode; /* as given */
    int previous;          /* the thread's own before; -1: none */
    bool active;           /* set, and not restored yet */
} tarn_handle_mode_guard;
TARN_API tarn_status tarn_handle_mode_guard_set(tarn_handle_mode_guard *guard, tarn_library library,
                                                tarn_handle_mode mode, int value);
TARN_API tarn_status tarn_handle_mode_guard_restore(tarn_handle_mode_guard *guard);

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
 * more for each captured graph (pytorch/pytorch#83461). Policies, of which TARN_WORKSPACE=cached, per_call or library in the environment
 * names the initial one; it is read once, and another text counts as not set:
 *   CACHED   (initial unless that says otherwise) each handle has a workspace from tarn's memory for each stream that it was used on, made when
 *            first needed. One that was bound while its stream took part in a capture belongs to that capture alone: graphs that are
 *            replayed at the same time do not share it (#193402), and it outlives its thread (#192061), until it is cleared by
 *            stream, by capture or with its pool. Where tarn began the capture and no graph came of it, because it was aborted or
 *            invalidated, it goes with the capture. Those of an announced capture stay.
 *   PER_CALL tarn_workspace_begin() makes one and tarn_workspace_end() frees it; a plain get leaves the library's own
 *   LIBRARY  tarn sets none
 *
 * Workspaces are memory of the default pool, those for one call too: no scope serves them, and no pool with `use_on_oom`. One that
 * belongs to a capture is memory of that capture's pool, where it has one (tarn/pool.h).
 *
 * With TARN_CUBLASLT_UNIFIED_WORKSPACE=1 in the environment, which is read once, a thread's cuBLASLt has the workspace of its cuBLAS for the
 * same stream and capture, under CACHED, if that is there already and large enough, and none of its own. A get never makes another
 * library's handle or workspace. The workspace of a lease is its own.
 *
 * Where memory would else not suffice, for anything, workspaces are freed that nobody uses: those of handles that no thread and no lease
 * has, and those of streams that a handle is not bound to now. Those of captures stay, and those of streams that capture.
 *
 * A get asks the driver whether its stream captures while a capture that tarn knows (tarn/stream.h) is open on any device, and at no other
 * time. So a capture that tarn does not know has workspaces of its own if it is seen beside a known one, and else uses the stream's,
 * which its graph then shares with all other work of the stream, and loses when that is freed; announce captures whose graphs are to be
 * replayed.
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
 * stream or after a clear. Under PER_CALL and LIBRARY too. `get_on`: for that stream and its device. `get_of`: of a lease and the stream that it
 * is bound to, until the lease is bound or returned, or after a clear. TARN_ERROR_NOT_SUPPORTED for other libraries;
 * TARN_ERROR_INVALID_ARGUMENT for a lease that is none, TARN_ERROR_INVALID_STREAM where its stream was retired; else they fail as a get does. */
TARN_API tarn_status tarn_workspace_get(tarn_library library, void **pointer, size_t *size);
TARN_API tarn_status tarn_workspace_get_on(tarn_library library, tarn_stream stream, void **pointer, size_t *size);
TARN_API tarn_status tarn_workspace_get_of(const tarn_lease *lease, void **pointer, size_t *size);

/* A handle with a workspace for the calls up to the end, which the same thread makes: its own for its current stream, `begin_on` for that
 * stream; or with `begin_of` the one of a lease, whose end whoever has the lease makes. Between them it must not end, nor change the device,
 * nor may the stream join a capture. Begin fails as a get does. Under CACHED, and during a capture, they are a get and nothing. When the
 * library refuses to let go of the memory, `end` gives TARN_ERROR_LIBRARY and leaks it: better than a handle that points to memory of
 * someone else. The structure does not grow, so that a program can keep one without a size. */
typedef struct tarn_workspace_call {
    void *handle;  /* the thread's or the lease's */
    void *pointer; /* NULL where the workspace is not made for this call */
    size_t bytes;  /* of the workspace */
    void *owner;   /* of tarn's */
} tarn_workspace_call;
TARN_API tarn_status tarn_workspace_begin(tarn_library library, tarn_workspace_call *call);
TARN_API tarn_status tarn_workspace_begin_on(tarn_library library, tarn_stream stream, tarn_workspace_call *call);
TARN_API tarn_status tarn_workspace_begin_of(const tarn_lease *lease, tarn_workspace_call *call);
TARN_API tarn_status tarn_workspace_end(tarn_workspace_call *call);

/* Which workspaces a clear means. */
typedef enum tarn_workspaces {
    /* All except those of captures, and of streams that capture now. Of a stream that was found (tarn_stream_find()) tarn does not ask
     * that, since it may be gone: its workspaces are among all. */
    TARN_WORKSPACES_ALL,
    TARN_WORKSPACES_OF_STREAM, /* of `stream`, those that graphs captured on it use among them: these are not replayed any more */
    TARN_WORKSPACES_OF_CAPTURE, /* of the graph that `capture` became (tarn_capture_state_get) */
    TARN_WORKSPACES_OF_POOL     /* of all captures that used `pool`, as blocks of it */
} tarn_workspaces;

/* What a clear is of. A field that `which` does not name is 0. */
typedef struct tarn_workspace_choice {
    size_t size;           /* sizeof(tarn_workspace_choice), set by the caller */
    tarn_workspaces which; /* which of the following is meant */
    tarn_stream stream;    /* of TARN_WORKSPACES_OF_STREAM */
    uint64_t capture;      /* of TARN_WORKSPACES_OF_CAPTURE */
    tarn_pool *pool;       /* of TARN_WORKSPACES_OF_POOL */
} tarn_workspace_choice;

/* What a clear has done. */
typedef struct tarn_workspace_cleared {
    size_t size;  /* sizeof(tarn_workspace_cleared), set by the caller */
    size_t freed; /* bytes that are tarn's memory again */
    /* Bytes that follow when the thread that has the handle asks for it again or ends: until then its next call may still use them. */
    size_t deferred;
} tarn_workspace_cleared;

/* Frees workspaces. `choice` NULL: all. `cleared` may be NULL. Handles of the calling thread must be asked for again. Never waits. Those
 * of a pool are cleared without this when nobody counts the pool any more.
 *   TARN_ERROR_CAPTURE           the stream, or the capture, is still being captured, also where tarn does not know that capture; a
 *                                capture or a graph uses the pool. A found stream may be gone, and is not asked: a capture in which one
 *                                took part counts as open while any known capture is
 *   TARN_ERROR_INVALID_STREAM    the stream was retired
 *   TARN_ERROR_INVALID_ARGUMENT  an unknown size or choice, a field that the choice does not name, capture 0, a pool that is none
 * Another status where the driver cannot say whether the stream captures. */
TARN_API tarn_status tarn_workspace_clear(const tarn_workspace_choice *choice, tarn_workspace_cleared *cleared);

/* Counters of one device's workspaces. */
typedef struct tarn_workspace_stats {
    size_t size;                             /* sizeof(tarn_workspace_stats), set by the caller */
    uint64_t count, bytes, peak_bytes;       /* that exist now; most that ever did */
    uint64_t captured_count, captured_bytes; /* of these, what belongs to captures */
    uint64_t deferred_bytes;                 /* of these, cleared, and waiting for their thread */
    uint64_t leaked_bytes;                   /* that a library did not let go of */
    uint64_t allocations;                    /* ever */
} tarn_workspace_stats;

/* Of one device, all libraries. Also in tarn_device_stats_get(), and by the tag "workspace" in snapshots.
 * TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_ARGUMENT for a NULL or an unknown size. */
TARN_API tarn_status tarn_workspace_stats_get(int device, tarn_workspace_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
