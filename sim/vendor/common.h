/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated libraries with handles share: all of their behaviour. A library is one row,
 * `vendor_library`, and its exported names with the vendor's prototypes, each of which hands its
 * arguments on to a function here. They have their memory from the driver that the process runs on,
 * as the real ones, so their handles show in its free memory, and are refused with what it says
 * while a capture bars the thread. There is no mathematics in them.
 *
 * Of sonames that differ in the version alone, each is built from the same file. Beside what the
 * vendor exports there is one symbol, tarn_sim_calls().
 *
 *   TARN_SIM_<LIBRARY>_FAIL=N[+|-M]   the N-th create of the process, every one from it on, or all
 *                                     to the M-th, is out of memory; <LIBRARY> is CUDNN, CUBLAS,
 *                                     CUBLASLT, CUSPARSE, CUSOLVER, CUDSS, CURAND, MIOPEN, ROCBLAS,
 *                                     HIPBLAS, HIPBLASLT, ROCSPARSE, HIPSPARSE, HIPSOLVER,
 *                                     CUSPARSELT
 *   TARN_SIM_<LIBRARY>_SLOW=MS        a create takes that many milliseconds more
 *   TARN_SIM_<LIBRARY>_VERSION=A.B.C  the version to claim
 *   TARN_SIM_STRICT=1                 ends the process where a handle is misused, or a call comes
 *                                     after the driver's end
 * They are read at each call. */
#ifndef SIM_VENDOR_COMMON_H
#define SIM_VENDOR_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))

enum vendor_mode {
    VENDOR_POINTER_MODE,
    VENDOR_MATH_MODE,
    VENDOR_ATOMICS_MODE,
    VENDOR_DETERMINISTIC_MODE,
    VENDOR_METRIC,
    VENDOR_SM_COUNT,
    VENDOR_EMULATION_STRATEGY,
    VENDOR_SPECIAL_VALUES,
    VENDOR_MANTISSA_CONTROL,
    VENDOR_MANTISSA_MOST,
    VENDOR_MANTISSA_OFFSET,
    VENDOR_MODES
};

/* What a failed create leaves in the place for the handle. */
enum vendor_leavings {
    VENDOR_LEAVES_NOTHING, /* what was there */
    VENDOR_LEAVES_NULL,
    VENDOR_LEAVES_DANGLING, /* a pointer to a handle that is gone: cuSOLVER */
    VENDOR_LEAVES_REAL      /* a handle that must be destroyed: cuDSS 1.0 */
};

struct vendor_status {
    int code;
    const char *name;
};

struct vendor_library {
    const char *knob;    /* CUBLAS */
    size_t device_bytes; /* that a create allocates. From the vendors' sources where these are
                            public, else invented */
    /* Statuses. */
    int no_device, old_driver, out_of_memory, bad_handle, bad_argument, failed;
    int full; /* what a create gives whose allocation the driver refuses; 0: out_of_memory */
    enum vendor_leavings leavings;
    bool silent_without_device; /* says success, without a handle: hipSPARSE */
    bool prints_without_device; /* on standard output: cuSPARSE */
    bool fills_a_structure;  /* of the program's, in place of a pointer: no create that succeeds is
                                without a handle. cuSPARSELt */
    bool exits_on_failure;   /* hipBLASLt: ROCm/rocm-libraries issue 11838 */
    bool aborts_on_failure;  /* in destroy: rocBLAS, and what has its handles */
    bool keeps_workspace;    /* when the stream is set; cuBLAS goes back to its own */
    bool frees_own_memory;   /* when a workspace is set: rocBLAS,
                                library/src/rocblas_auxiliary.cpp */
    int modes[VENDOR_MODES]; /* of a new handle */
    const char *atomics_variable; /* of the environment, which says otherwise for the atomics of a
                                     new handle */
    struct vendor_status texts[12];
};

extern const struct vendor_library vendor_library;

/* How the calls of the library fail, by number and whatever the call: the `nth` from now (1 is the
 * next), and with `forever` all after it; 0 clears. `calls` and `hits` are how many there were
 * since that was set, and how many failed. A destroy that fails so leaves the handle alive. */
enum vendor_way {
    VENDOR_FAILS,             /* with one of the library's statuses, and what it leaves in the place
                                 for a handle */
    VENDOR_IS_OUT_OF_MEMORY,  /* the same */
    VENDOR_SUCCEEDS_WITHOUT,  /* a create says that it succeeded, and made no handle */
    VENDOR_FAILS_WITH_GARBAGE /* a create leaves garbage in place of a handle */
};
struct vendor_failures {
    void (*fail)(unsigned long nth, bool forever, int way);
    unsigned long (*calls)(void);
    unsigned long (*hits)(void);
};
SIM_EXPORT extern const struct vendor_failures tarn_sim_failures;

/* How often the library's symbol was called. Further words: "alive", the handles that are;
 * "undestroyed", of these, whose destroy failed by number; "misuse", uses of what is no
 * handle, of a handle by two threads at once, or destroys on another device than its own; "late",
 * creates and destroys after the driver's end; "memory", blocks that a handle has from the memory
 * given to it. The one symbol that no vendor's library has. */
SIM_EXPORT unsigned long tarn_sim_calls(const char *symbol);

/* Each counts a call of `symbol` and returns one of the library's statuses. `pointer` is a handle,
 * `place` where one goes. */
int vendor_create(const char *symbol, void *place);
int vendor_destroy(const char *symbol, void *pointer);
int vendor_set_stream(const char *symbol, void *pointer, void *stream);
int vendor_get_stream(const char *symbol, void *pointer, void *place);
int vendor_set_workspace(const char *symbol, void *pointer, void *workspace, size_t size);
/* Whether the handle is on a workspace that the program has set. */
int vendor_has_workspace(const char *symbol, void *pointer, bool *has);
int vendor_set_mode(const char *symbol, void *pointer, enum vendor_mode mode, int value);
int vendor_get_mode(const char *symbol, void *pointer, enum vendor_mode mode, int *value);
/* A setting that is a pointer; each library has one at most. */
int vendor_set_pointer(const char *symbol, void *pointer, void *value);
int vendor_get_pointer(const char *symbol, void *pointer, void **value);
int vendor_property(const char *symbol, int which, int *value);
const char *vendor_text(const char *symbol, int code);

/* The version, in the way that the vendor composes a number: major * `major` + minor * `minor` +
 * patch. */
int vendor_version_number(const char *symbol, int major, int minor);
/* The same where a handle must be shown. */
int vendor_version_of(const char *symbol, void *pointer, int major, int minor, int *value);
/* Major, minor, patch. */
void vendor_version_parts(int parts[3]);
void vendor_count(const char *symbol);

/* Memory that a program has given to the handle, in place of memory from the driver. */
struct vendor_memory {
    void *context;
    void *(*alloc)(const struct vendor_memory *memory, size_t size, void *stream);
    void (*free)(const struct vendor_memory *memory, void *pointer, size_t size, void *stream);
    void (*theirs[2])(void); /* what the program gave */
};

/* NULL takes it back. */
int vendor_give_memory(const char *symbol, void *pointer, const struct vendor_memory *memory);
/* A block from it, or of the driver's where there is none, and back. */
int vendor_take(const char *symbol, void *pointer, size_t size, void **block);
int vendor_put_back(const char *symbol, void *pointer, void *block, size_t size);

/* Begins an exported function: declares it, as a header of the vendor's may have done. */
#define VENDOR_ENTRY(result, symbol, ...)  \
    SIM_EXPORT result symbol(__VA_ARGS__); \
    result symbol(__VA_ARGS__)

/* Exported functions with the usual prototypes. */
#define VENDOR_CREATE(symbol, status, handle_type)     \
    VENDOR_ENTRY(status, symbol, handle_type *handle)  \
    {                                                  \
        return (status)vendor_create(#symbol, handle); \
    }
#define VENDOR_DESTROY(symbol, status, handle_type)     \
    VENDOR_ENTRY(status, symbol, handle_type handle)    \
    {                                                   \
        return (status)vendor_destroy(#symbol, handle); \
    }
#define VENDOR_SET_STREAM(symbol, status, handle_type, stream_type)      \
    VENDOR_ENTRY(status, symbol, handle_type handle, stream_type stream) \
    {                                                                    \
        return (status)vendor_set_stream(#symbol, handle, stream);       \
    }
#define VENDOR_GET_STREAM(symbol, status, handle_type, stream_type)       \
    VENDOR_ENTRY(status, symbol, handle_type handle, stream_type *stream) \
    {                                                                     \
        return (status)vendor_get_stream(#symbol, handle, stream);        \
    }
#define VENDOR_SET_WORKSPACE(symbol, status, handle_type)                        \
    VENDOR_ENTRY(status, symbol, handle_type handle, void *pointer, size_t size) \
    {                                                                            \
        return (status)vendor_set_workspace(#symbol, handle, pointer, size);     \
    }
#define VENDOR_SET_MODE(symbol, status, handle_type, mode_type, mode)               \
    VENDOR_ENTRY(status, symbol, handle_type handle, mode_type value)               \
    {                                                                               \
        return (status)vendor_set_mode(#symbol, handle, VENDOR_##mode, (int)value); \
    }
#define VENDOR_GET_MODE(symbol, status, handle_type, mode_type, mode)                       \
    VENDOR_ENTRY(status, symbol, handle_type handle, mode_type *value)                      \
    {                                                                                       \
        int number = 0;                                                                     \
        int code = vendor_get_mode(#symbol, handle, VENDOR_##mode, value ? &number : NULL); \
        if (!code)                                                                          \
            *value = (mode_type)number;                                                     \
        return (status)code;                                                                \
    }
#define VENDOR_PROPERTY(symbol, status, kind)                       \
    VENDOR_ENTRY(status, symbol, kind which, int *value)            \
    {                                                               \
        return (status)vendor_property(#symbol, (int)which, value); \
    }
#define VENDOR_VERSION_OF(symbol, status, handle_type, major, minor)                \
    VENDOR_ENTRY(status, symbol, handle_type handle, int *value)                    \
    {                                                                               \
        return (status)vendor_version_of(#symbol, handle, (major), (minor), value); \
    }
#define VENDOR_TEXT(symbol, status)                 \
    VENDOR_ENTRY(const char *, symbol, status code) \
    {                                               \
        return vendor_text(#symbol, (int)code);     \
    }

#endif
