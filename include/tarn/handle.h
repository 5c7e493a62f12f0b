/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles of vendor libraries (cuDNN, cuBLAS, MIOpen and others): one per thread and device, bound
 * to the thread's current stream.
 *
 * Lifetime. A handle is created when a thread first asks for one, on the device that is current in
 * tarn (tarn_device_set()). It belongs to that thread until the thread exits, and then waits for
 * the next thread that needs one. So there are as many handles as threads that used the library at
 * the same time. Only tarn_handle_trim() and tarn_shutdown() destroy handles: never process exit,
 * where the driver may be gone (pytorch/pytorch#17658, #36408, #907), and never while a known
 * capture is open. Both leave the handles of other threads and of leases as they are.
 *
 * Libraries with TARN_LIBRARY_BY_STREAM (rocBLAS and libraries built on it) cannot change a
 * handle's stream without a wait. For these a thread has one handle per stream, for the last
 * TARN_HANDLE_STREAMS streams that it asked on. For a further stream, the least recently requested
 * handle moves to the new stream, which waits on the device for the old stream's queued work. If
 * memory is short, a handle moves earlier. The most recently requested handle never moves.
 *
 * Duties of the caller. Ask for the handle again after each change of device or stream; this costs
 * nanoseconds. Ask again when the stream has joined a capture (after the vendor's begin if the
 * capture was announced), and when the capture is over: tarn notices such a change only when it is
 * asked. Use a handle only in the thread that asked for it. Never destroy it, and never set its
 * stream or its workspace. Modes such as the pointer mode may be set: they last while the thread
 * has the handle, and the next thread finds the library's defaults. docs/handles.md lists them.
 * With TARN_DEBUG=handles every get asks the vendor for the handle's stream, and reports a foreign
 * change on standard error and in `contract_breaks`.
 *
 * Contexts. A handle is created in the device's primary context. A get that creates one restores
 * the context that was current before, if that was of another device. Otherwise it leaves current
 * what the library's create has left: the primary context, unless create changed it. A get that
 * finds a handle touches no context, so in a thread that has none the program makes one current
 * before it uses the handle (tarn_device_set()).
 *
 * Captures (tarn/stream.h). An existing handle can be used in a capture. Creating one allocates
 * memory, which invalidates a capture on some drivers (pytorch/pytorch#99397). So while a known
 * capture is open on the device, or the stream captures, a call that would have to create a handle
 * returns TARN_ERROR_CAPTURE. Call tarn_handle_prewarm() before the capture. What it reserves for a
 * stream stays reserved until a get or a lease on that stream takes it, a trim destroys it, or the
 * stream is retired: so a thread that captures can rely on its handle, whatever others ask for. A
 * prewarm also does what a first binding does and a capture does not survive: rocBLAS and hipBLAS
 * free the memory that a handle came with. A handle that keeps its stream counts as available when
 * that stream's work is over.
 *
 * No stream. tarn_handle_get() with TARN_STREAM_NONE returns the thread's handle for its current
 * device as its last user left it. tarn sets no stream, no workspace and no mode: for code that
 * sets all three itself. Only the next get or lease sets them again: before the caller frees a
 * workspace of its own, it must take that workspace out of the handle. For a library with one
 * handle per stream, this is the handle of the current stream, and it keeps that stream.
 *
 * Search. Vendor libraries are opened at their first use. The order is: the directories of
 * TARN_LIBRARY_PATH; a library that the process has loaded already; the loader's own search; the
 * directories of CUDA_HOME, CUDA_PATH and ROCM_PATH; the toolkits' usual directories. In each place
 * the newest known version is tried first, and the next one if a library cannot be opened or lacks
 * a function. If the process has loaded libraries of one major version of CUDA or ROCm, no other
 * version is opened beside them. If only another version exists, the text of
 * TARN_ERROR_LIBRARY_NOT_FOUND names both. A handle must be passed to the library that created it.
 * A program that is linked with the library needs nothing else: tarn uses a library that is loaded,
 * unless TARN_LIBRARY_PATH has another one. A library that was not found is searched again only
 * when the process has loaded it.
 *
 * All functions are thread-safe, and may be called during a capture unless they say otherwise. A
 * call that fails leaves handles as they were. Every function may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST,
 * TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_INVALID_ARGUMENT for an
 * unknown library number or a NULL that is not allowed. */
#ifndef TARN_HANDLE_H
#define TARN_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>
#include <tarn/pool.h>
#include <tarn/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Libraries ------------------------------------------------------------------------------------ */

/* X(NAME, number, name). The numbers are part of the ABI. Libraries that a program registers get
 * the numbers after these.
 *   cudnn         cuDNN; typed getters in tarn/cudnn.h
 *   cublas        cuBLAS; tarn/cublas.h
 *   cublaslt      cuBLASLt; tarn/cublaslt.h
 *   cusparse      cuSPARSE; tarn/cusparse.h
 *   cusolver_dn   cuSOLVER's dense part; tarn/cusolver.h
 *   cusolver_sp   cuSOLVER's sparse part; tarn/cusolver.h
 *   cudss         cuDSS; tarn/cudss.h
 *   curand        cuRAND's generators; tarn/curand.h
 *   miopen        MIOpen; tarn/miopen.h
 *   rocblas       rocBLAS; tarn/rocblas.h
 *   hipblas       hipBLAS; tarn/hipblas.h
 *   hipblaslt     hipBLASLt; tarn/hipblaslt.h
 *   rocsparse     rocSPARSE; tarn/rocsparse.h
 *   hipsparse     hipSPARSE; tarn/hipsparse.h
 *   hipsolver     hipSOLVER; tarn/hipsolver.h
 *   cusparselt    cuSPARSELt; tarn/cusparselt.h. The handle is a pointer to the vendor's structure,
 *                 which tarn owns */
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

/* The numbers of the list. */
typedef enum tarn_library_number {
#define TARN_LIBRARY_ENUM(NAME, number, name) TARN_LIBRARY_##NAME = number,
    TARN_LIBRARY_LIST(TARN_LIBRARY_ENUM)
#undef TARN_LIBRARY_ENUM
        TARN_MAX_LIBRARIES = 63 /* numbers go from 1 to this */
} tarn_library_number;

/* Which driver a library needs. */
typedef enum tarn_platform {
    TARN_PLATFORM_ANY,  /* any driver */
    TARN_PLATFORM_CUDA, /* CUDA */
    TARN_PLATFORM_HIP   /* HIP */
} tarn_platform;

/* Flags of a row. */
/* A handle cannot change its stream without a wait: one per stream. */
#define TARN_LIBRARY_BY_STREAM 1u
/* Creating a handle is known to be safe while a capture is open. */
#define TARN_LIBRARY_CREATE_IN_CAPTURE 2u
/* The function that creates a handle is called as create(handle, create_number), like
 * curandCreateGenerator. */
#define TARN_LIBRARY_CREATE_TAKES_NUMBER 4u
/* What a failed create leaves behind must be destroyed (cuDSS 1.0). */
#define TARN_LIBRARY_FAILED_HANDLE_IS_REAL 8u

/* A library that the caller registers. Each function is given by its name, which is looked up in
 * the first of `sonames` that can be opened, or as a pointer, which takes precedence. `create` and
 * `destroy` are required; the others may be NULL. A name requires `sonames`. All functions return 0
 * for success; handles and streams are pointers. The strings are copied.
 *
 * `create`, `destroy` and `status_text` may call any tarn function; tarn_shutdown() returns
 * TARN_ERROR_BUSY there. The others are called while tarn holds the lock of the handle and must not
 * call tarn: such a call may wait for itself.
 *
 * Unlike other callbacks, all of them may throw a C++ exception or end the thread. The tarn
 * function that called them does not return then. A create counts as failed. A handle that was to
 * be destroyed is abandoned. A handle that was to be bound is bound by the next get. A call that
 * tarn_workspace_begin() or tarn_workspace_end() was making has ended. */
typedef struct tarn_library_row {
    size_t size;            /* sizeof(tarn_library_row), set by the caller */
    const char *name;       /* the name for tarn_library_find() */
    tarn_platform platform; /* which driver it needs */
    unsigned flags;         /* TARN_LIBRARY_... */
    int create_number;      /* for TARN_LIBRARY_CREATE_TAKES_NUMBER */
    /* The status of create that means "out of memory": tarn then releases idle memory and tries
     * once more. 0: none. */
    int out_of_memory;
    const char *const *sonames; /* ends with NULL; NULL where every function is a pointer */
    const char *create_name, *destroy_name;               /* of the functions below */
    const char *set_stream_name;                          /* ... */
    const char *get_stream_name, *set_workspace_name;     /* ... */
    const char *set_pointer_mode_name, *status_text_name; /* ... */
    int (*create)(void **handle);                         /* makes a handle */
    int (*create_with_number)(void **handle, int number); /* the same, with create_number */
    int (*destroy)(void *handle);                         /* ends it */
    int (*set_stream)(void *handle, void *stream);        /* binds it to a stream */
    /* Returns its stream, for TARN_DEBUG=handles */
    int (*get_stream)(void *handle, void **stream);
    /* If given, the handle gets a workspace (see below), by default of cuBLAS's size. NULL and 0:
     * the handle must no longer use its previous workspace. */
    int (*set_workspace)(void *handle, void *pointer, size_t size);
    int (*set_pointer_mode)(void *handle, int mode); /* tarn sets 0 for the next thread */
    const char *(*status_text)(int status);          /* the text of a status */
} tarn_library_row;

/* Registers a library. From then on it behaves like a built-in one. It cannot be unregistered.
 *   TARN_ERROR_INVALID_ARGUMENT   a NULL; an unknown size, flag or platform; a name that is
 *                                 missing, taken, or longer than 31 bytes; more than 5 sonames, or
 *                                 an empty one; a missing create or destroy; or a function name
 *                                 without a soname
 *   TARN_ERROR_NOT_SUPPORTED      all library numbers are taken */
TARN_API tarn_status tarn_library_register(const tarn_library_row *row, tarn_library *library);

/* Finds a library by its name, such as "cudnn".
 *   TARN_ERROR_INVALID_ARGUMENT   there is no library with that name */
TARN_API tarn_status tarn_library_find(const char *name, tarn_library *library);

/* What tarn found out about a library. */
typedef struct tarn_library_info {
    size_t size;            /* sizeof(tarn_library_info), set by the caller */
    char name[32];          /* "cudnn" */
    tarn_platform platform; /* which driver it needs */
    bool found;             /* it could be opened and has the required functions */
    bool usable;            /* it was found, and it needs the driver in use */
    bool checked;           /* a compiler compared tarn's prototypes with the vendor's headers */
    char path[256];         /* of the file; "" for functions given as pointers */
    char version[32];       /* "13.1.0"; "" if unknown, or until the first handle is created */
    char sonames[256];      /* what is searched for, in order, separated by ", " */
    char reason[512];       /* why it cannot be used; "" where it can */
} tarn_library_info;

/* Describes a library. The call opens it, unless that was tried before. It needs no device. The
 * libraries have the numbers from 1 on without a gap, including registered ones, so a loop that
 * ends with the error lists them all.
 *   TARN_ERROR_INVALID_ARGUMENT   `info` is NULL, its size is unknown, or the library number is
 *                                 unknown */
TARN_API tarn_status tarn_library_info_get(tarn_library library, tarn_library_info *info);

/* The most streams for which a thread keeps handles of a library that has one per stream. While a
 * capture is open there may be more, because no handle can move then. */
#define TARN_HANDLE_STREAMS 8

/* Handles -------------------------------------------------------------------------------------- */

/* Leases a handle that belongs to no thread, for fibers and tasks. Whoever has the lease may use
 * the handle on any thread, one at a time. `bind` moves the lease to another stream of the same
 * device. For a library with one handle per stream that may be another handle, so read `handle`
 * again. Bind the lease again when its stream has joined or left a capture, or was retired. The
 * structure never grows. Both fail as tarn_handle_get() does. After a failed bind the lease stays
 * valid; bind it again before the handle is used.
 *   TARN_ERROR_INVALID_STREAM     `bind`: also a stream of another device
 *   TARN_ERROR_INVALID_ARGUMENT   `bind`: not a lease, or one that was returned
 *   TARN_ERROR_BUSY               `bind`: also between tarn_workspace_begin() and
 *                                 tarn_workspace_end() */
typedef struct tarn_lease {
    void *handle;    /* the vendor's */
    void *owner;     /* private to tarn */
    uint64_t number; /* private to tarn */
} tarn_lease;
TARN_API tarn_status tarn_handle_lease(tarn_library library, tarn_stream stream, tarn_lease *lease);
TARN_API tarn_status tarn_handle_lease_bind(tarn_lease *lease, tarn_stream stream);

/* Returns a lease and clears `lease`. It makes no vendor call. After tarn_shutdown() it still
 * returns TARN_OK; the handle then stays until the process ends.
 *   TARN_ERROR_INVALID_ARGUMENT   not a lease, or one that was returned
 *   TARN_ERROR_BUSY               the lease is between tarn_workspace_begin() and
 *                                 tarn_workspace_end() */
TARN_API tarn_status tarn_handle_return(tarn_lease *lease);

/* Destroys the handles that no thread and no lease has, with their workspaces. Handles that a
 * prewarm reserved are among them. Workspaces of captures stay until they are cleared. `destroyed`
 * (may be NULL) receives the number of handles, even if the call returns TARN_ERROR_LIBRARY. The
 * vendor's destroy waits for the device, which ends a capture that does not show (stream.h).
 * Meanwhile tarn_capture_begin() returns TARN_ERROR_BUSY.
 *   TARN_ERROR_CAPTURE          a capture on any device is known or shows; nothing was destroyed
 *   TARN_ERROR_BUSY             the thread is in a `mapped` or `unmapping` callback (observe.h);
 *                               nothing was destroyed
 *   TARN_ERROR_LIBRARY          a destroy failed: that handle is abandoned, the others are
 *                               destroyed
 *   TARN_ERROR_DRIVER           the driver cannot switch to the device; nothing was destroyed
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_handle_trim(tarn_library library, int device, size_t *destroyed);

/* Sets how long, in ns, the calling thread waits for other threads' captures to end when it must
 * create a handle and captures nothing itself. A handle that another thread gives back ends the
 * wait too. After the limit the call returns TARN_ERROR_CAPTURE. The initial value 0 means no wait.
 * tarn_shutdown() waits for a waiting thread.
 *
 * A library's first handle on a device is created alone, which can take seconds. A thread that
 * needs a handle meanwhile waits up to 60 s, or up to its limit if that is longer. After that the
 * call returns TARN_ERROR_BUSY. `previous` (may be NULL) receives the limit before. */
TARN_API tarn_status tarn_handle_wait_limit_set(uint64_t ns, uint64_t *previous);

/* A mode of a library's handles. */
typedef enum tarn_handle_mode {
    TARN_HANDLE_MATH,   /* the precision of the library's arithmetic */
    TARN_HANDLE_ATOMICS /* whether sums may be in any order */
} tarn_handle_mode;

/* Whose handles a mode is for. */
typedef enum tarn_handle_mode_for {
    TARN_HANDLE_MODE_FOR_ALL,   /* every thread's, and leases */
    TARN_HANDLE_MODE_FOR_THREAD /* the calling thread's, on every device, until the thread ends */
} tarn_handle_mode_for;

/* Sets a mode that a library's handles have from their next binding on. `value` is the vendor's own
 * number. PyTorch's "allow TF32" is MATH with CUBLAS_TF32_TENSOR_OP_MATH; its "deterministic" on
 * ROCm is ATOMICS with 0. A thread's own value comes first, then the one for all, then the
 * library's default, including what the environment says. -1, the initial value of both, means
 * none. `previous` (may be NULL) receives the value before: set it again to restore it.
 *   TARN_ERROR_NOT_SUPPORTED      the library has no such mode
 *   TARN_ERROR_INVALID_ARGUMENT   an unknown mode, a value below -1, or an unknown `whose` */
TARN_API tarn_status tarn_handle_mode_set(tarn_library library, tarn_handle_mode mode,
                                          tarn_handle_mode_for whose, int value, int *previous);

/* Counters of one library's handles on one device. */
typedef struct tarn_handle_stats {
    size_t size;                                           /* sizeof(tarn_handle_stats) */
    uint64_t created, destroyed;                           /* handles, ever */
    uint64_t in_use;                                       /* now: held by threads or leases */
    uint64_t available;                                    /* now: free */
    uint64_t peak_in_use;                                  /* the most at a time */
    uint64_t failures;                                     /* creates that failed */
    uint64_t create_ns_sum, create_ns_max, create_ns_last; /* of creates that succeeded */
    /* Bytes by which the driver's free memory shrank when the last handle was created and nothing
     * else was; -1: unknown. */
    int64_t device_bytes_last;
    int64_t device_bytes_max; /* the most that this ever was */
    uint64_t contract_breaks; /* found by TARN_DEBUG=handles */
    size_t workspace_bytes;   /* of a workspace that a handle gets now; 0 where handles have none */
} tarn_handle_stats;

/* Returns the counters of one library's handles on one device.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `stats` is NULL, its size is unknown, or the library number is
 *                                 unknown */
TARN_API tarn_status tarn_handle_stats_get(tarn_library library, int device,
                                           tarn_handle_stats *stats);

/* Workspaces --------------------------------------------------------------------------------
 *
 * cuBLAS, rocBLAS and hipBLAS handles need scratch memory. By default the libraries allocate it
 * themselves, once more per captured graph (pytorch/pytorch#83461). TARN_WORKSPACE in the
 * environment (cached, per_call or library) sets the initial policy. It is read once; any other
 * text is ignored.
 *   CACHED     the default. Each handle has one workspace of tarn memory per stream that it was
 *              used on, created at first need
 *   PER_CALL   tarn_workspace_begin() creates a workspace and tarn_workspace_end() frees it; a
 *              plain get leaves the library's own
 *   LIBRARY    tarn sets no workspace
 *
 * Under CACHED, a workspace that was bound while its stream took part in a capture belongs to that
 * capture alone, because graphs that are launched concurrently must not share it (#193402). It
 * outlives its thread (#192061). It is freed when the graph and all that was made of it are
 * destroyed: the next call that asks for a handle or a workspace, clears workspaces, reads their
 * statistics or finds memory short frees it. If no graph came of the capture (aborted or
 * invalidated), it is freed with the capture. tarn sees the end of the graph of a capture that tarn
 * began, and of an announced one if the stream that was announced got a workspace. Other workspaces
 * of captures stay until they are cleared by stream, by capture or with their pool.
 *
 * Workspaces come from the default pool, also those for one call: no scope and no pool with
 * `use_on_oom` serves them. A workspace of a capture comes from the capture's pool, if it has one
 * (tarn/pool.h).
 *
 * With TARN_CUBLASLT_UNIFIED_WORKSPACE=1 in the environment (read once), a thread's cuBLASLt shares
 * the workspace of its cuBLAS for the same stream and capture, under CACHED, if that workspace
 * exists already and is large enough. A get never creates another library's handle or workspace. A
 * lease always has a workspace of its own.
 *
 * Unused workspaces are those of handles that no thread and no lease has, and those of streams that
 * a handle is not bound to now. If a device has more than 128 MiB of them (the setting
 * `idle_workspaces_mb`, tarn/config.h), the least recently used are freed when a handle gets a new
 * one. If memory is short, for any request, all are freed. Workspaces of captures, of streams that
 * capture, and of found streams (tarn_stream_find()) stay.
 * The workspace of a retired stream is freed when its handle is next asked for or given back, or by
 * a clear of all; a capture's workspace outlives its stream.
 *
 * To choose a workspace, a get asks the driver whether its stream captures only while a known
 * capture (tarn/stream.h) is open on some device.
 * So an unknown capture gets workspaces of its own only if a known capture is open at the same
 * time. Otherwise it uses the stream's workspace: its graph then shares that with all other work of
 * the stream. If a handle is bound to the stream during the capture, tarn sees that, and the
 * workspace does not count as unused until it is cleared by the capture's id, by stream, or with
 * all. If the handle was bound to the stream before, tarn does not see it, and the graph loses the
 * workspace when that is freed. Announce captures whose graphs are to be launched again.
 *
 * Default sizes in bytes: cuBLAS 32 MiB on compute capability 9 to 12, otherwise 8,519,680; rocBLAS
 * and hipBLAS 128 MiB on gfx94x, gfx950 and gfx125x, otherwise 32 MiB; cuBLASLt 1 MiB; hipBLASLt 76
 * MiB. The environment changes them: CUBLAS_WORKSPACE_CONFIG, HIPBLAS_WORKSPACE_CONFIG and
 * ROCBLAS_WORKSPACE_CONFIG hold one or more `:KIB:COUNT`, whose products are added;
 * CUBLASLT_WORKSPACE_SIZE and HIPBLASLT_WORKSPACE_SIZE hold KiB. They are read once; a malformed
 * text is ignored. */
typedef enum tarn_workspace_policy {
    TARN_WORKSPACE_CACHED,
    TARN_WORKSPACE_PER_CALL,
    TARN_WORKSPACE_LIBRARY
} tarn_workspace_policy;

/* Sets the policy for all libraries and threads, from the next get on. `previous` (may be NULL)
 * receives the policy before.
 *   TARN_ERROR_INVALID_ARGUMENT   the policy is unknown */
TARN_API tarn_status tarn_workspace_policy_set(tarn_workspace_policy policy,
                                               tarn_workspace_policy *previous);

/* Sets the size of a library's workspaces in bytes, from the next get on. -1 restores the default.
 * 0 means a workspace of NULL and 0 bytes. A workspace that is large enough is kept.
 * tarn_handle_stats has the size.
 *   TARN_ERROR_NOT_SUPPORTED      the library has no workspace
 *   TARN_ERROR_INVALID_ARGUMENT   the size is below -1 or above 1 TiB, or the library number is
 *                                 unknown */
TARN_API tarn_status tarn_workspace_size_set(tarn_library library, int64_t bytes);

/* Returns the workspace for libraries that take it as an argument (cuBLASLt, hipBLASLt), under
 * every policy. With `lease` NULL it is the workspace of the calling thread's handle for `stream`
 * and its device, valid until the thread asks for the library's handle or workspace again, on
 * another stream or after a clear. With a lease of `library`, it is that of the lease and the
 * stream that it is bound to, valid until the lease is bound or returned, or a clear; `stream` is
 * TARN_STREAM_NONE. Otherwise fails as tarn_handle_get() does.
 *   TARN_ERROR_NOT_SUPPORTED      the library takes no workspace as an argument
 *   TARN_ERROR_INVALID_ARGUMENT   not a lease, one that was returned, or one of another library; or
 *                                 a lease and a stream
 *   TARN_ERROR_INVALID_STREAM     the lease's stream was retired */
TARN_API tarn_status tarn_workspace_get(tarn_library library, tarn_stream stream,
                                        const tarn_lease *lease, void **pointer, size_t *size);

/* Bracket calls that need a workspace: `begin` returns a handle with a workspace, and `end` frees
 * the workspace. The handle is the calling thread's for `stream`, or that of a lease, as for
 * tarn_workspace_get(). Begin fails as tarn_handle_get() does. Under CACHED, and during a capture,
 * begin is an ordinary get and end does nothing.
 *
 * The same thread calls begin and end; for a lease, the holder of the lease calls end. In between,
 * the thread must not exit or change the device, and the stream must not join a capture. After a
 * get for another stream, or after the end of an inner call of the same handle, the library uses
 * its own workspace. `end` clears `call`; a second end of it returns TARN_OK. The structure never
 * grows, so that a program can keep one without a size.
 *   TARN_ERROR_LIBRARY            `end`: the library refuses to release the memory, which is
 *                                 leaked, because the handle may still use it; `call` is cleared
 *                                 all the same
 *   TARN_ERROR_INVALID_ARGUMENT   `begin`: as tarn_workspace_get(). `end`: `call` did not come from
 *                                 a begin, or is a copy of one that has ended
 *   TARN_ERROR_INVALID_STREAM     `begin`: also if the lease's stream was retired */
typedef struct tarn_workspace_call {
    void *handle;  /* the thread's or the lease's */
    void *pointer; /* NULL if the workspace was not created for this call */
    size_t bytes;  /* of the workspace */
    void *owner;   /* private to tarn */
} tarn_workspace_call;
TARN_API tarn_status tarn_workspace_begin(tarn_library library, tarn_stream stream,
                                          const tarn_lease *lease, tarn_workspace_call *call);
TARN_API tarn_status tarn_workspace_end(tarn_workspace_call *call);

/* Which workspaces to clear. */
typedef enum tarn_workspaces {
    /* All except those of captures, and of streams that capture now. A stream that was found
     * (tarn_stream_find()) may be gone, so tarn does not ask whether it captures: its workspaces
     * are cleared. */
    TARN_WORKSPACES_ALL,
    /* Of `stream`, including those of graphs captured on it, which must not run again. */
    TARN_WORKSPACES_OF_STREAM,
    TARN_WORKSPACES_OF_CAPTURE, /* of the graph that `capture` became (tarn_capture_state_get()) */
    TARN_WORKSPACES_OF_POOL     /* of all captures that used `pool` */
} tarn_workspaces;

/* Selects the workspaces of a clear. Fields that `which` does not name must be 0. */
typedef struct tarn_workspace_choice {
    size_t size;           /* sizeof(tarn_workspace_choice), set by the caller */
    tarn_workspaces which; /* which of the following is meant */
    tarn_stream stream;    /* of TARN_WORKSPACES_OF_STREAM */
    uint64_t capture;      /* of TARN_WORKSPACES_OF_CAPTURE */
    tarn_pool *pool;       /* of TARN_WORKSPACES_OF_POOL */
} tarn_workspace_choice;

/* The result of a clear. */
typedef struct tarn_workspace_cleared {
    size_t size;  /* sizeof(tarn_workspace_cleared), set by the caller */
    size_t freed; /* bytes returned to tarn's memory */
    /* Bytes that are freed when the thread that has the handle asks for it again or exits, or when
     * its lease is bound or returned; until then the owner's next call may still use them. */
    size_t deferred;
} tarn_workspace_cleared;

/* Frees workspaces. A NULL `choice` means TARN_WORKSPACES_ALL. `cleared` may be NULL. The calling
 * thread must ask for its handles again. The call never waits. Workspaces of a pool are freed
 * without this call when the pool's last reference is dropped. If the driver cannot say whether the
 * stream captures, its status is returned.
 *   TARN_ERROR_CAPTURE            the stream, or the capture, is still being captured, even if tarn
 *                                 does not know that capture; or a capture or a graph uses the
 *                                 pool. A found stream is not asked: a capture that it took part in
 *                                 counts as open while any known capture is open
 *   TARN_ERROR_INVALID_STREAM     the stream was retired
 *   TARN_ERROR_INVALID_ARGUMENT   an unknown size or choice, a field that the choice does not name,
 *                                 capture 0, or not a pool */
TARN_API tarn_status tarn_workspace_clear(const tarn_workspace_choice *choice,
                                          tarn_workspace_cleared *cleared);

/* Counters of one device's workspaces. */
typedef struct tarn_workspace_stats {
    size_t size;                             /* sizeof(tarn_workspace_stats), set by the caller */
    uint64_t count, bytes, peak_bytes;       /* existing now; most ever */
    uint64_t captured_count, captured_bytes; /* of these, belonging to captures */
    uint64_t deferred_bytes;                 /* of these, cleared and waiting for their thread */
    uint64_t leaked_bytes;                   /* that a library refused to release */
    uint64_t allocations;                    /* since the start */
} tarn_workspace_stats;

/* Returns the counters of one device's workspaces, for all libraries. tarn_device_stats_get()
 * counts the same memory; in snapshots it has the tag "workspace".
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `stats` is NULL, or its size is unknown */
TARN_API tarn_status tarn_workspace_stats_get(int device, tarn_workspace_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
