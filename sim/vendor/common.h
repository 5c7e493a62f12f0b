/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated libraries with handles share: all of their behaviour. A library consists of
 * one row, `vendor_library`, and of exported functions with the vendor's prototypes, each of which
 * calls a function here. Device memory comes from the driver that the process runs on, as for the
 * real libraries. So handles reduce the free memory, and a create fails with the driver's code
 * while a capture bars the thread. The functions compute nothing.
 *
 * Sonames that differ only in the version are built from one file. Each library exports one symbol
 * that the vendor's does not have, tarn_sim_calls().
 *
 *   TARN_SIM_<LIBRARY>_FAIL=N[+|-M]   the N-th create of the process is out of memory; with + every
 *                                     later one too, with -M all up to the M-th. <LIBRARY> is
 *                                     CUDNN, CUBLAS, CUBLASLT, CUSPARSE, CUSOLVER, CUDSS, CURAND,
 *                                     MIOPEN, ROCBLAS, HIPBLAS, HIPBLASLT, ROCSPARSE, HIPSPARSE,
 *                                     HIPSOLVER or CUSPARSELT
 *   TARN_SIM_<LIBRARY>_SLOW=MS        a create takes that many milliseconds longer
 *   TARN_SIM_<LIBRARY>_VERSION=A.B.C  the version to claim
 *   TARN_SIM_STRICT=1                 ends the process if a handle is misused, or if a call comes
 *                                     after the driver's end
 * These variables are read at each call. */
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

/* What a failed create leaves where the handle would go. */
enum vendor_leavings {
    VENDOR_LEAVES_NOTHING, /* the value from before */
    VENDOR_LEAVES_NULL,
    VENDOR_LEAVES_DANGLING, /* a pointer to a handle that no longer exists: cuSOLVER */
    VENDOR_LEAVES_REAL      /* a handle that must be destroyed: cuDSS 1.0 */
};

struct vendor_status {
    int code;
    const char *name;
};

struct vendor_library {
    const char *knob; /* the name in the environment variables, such as CUBLAS */
    /* device memory that a create allocates; from the vendors' sources if they are public,
     * otherwise invented */
    size_t device_bytes;
    /* The library's codes. */
    int no_device, old_driver, out_of_memory, bad_handle, bad_argument, failed;
    int full; /* the code of a create whose allocation the driver refuses; 0: out_of_memory */
    enum vendor_leavings leavings;
    /* a create without a device reports success and makes no handle: hipSPARSE */
    bool silent_without_device;
    bool prints_without_device; /* it prints on standard output: cuSPARSE */
    /* a handle is a structure of the program's, not a pointer, so every create that succeeds has
     * made one: cuSPARSELt */
    bool fills_a_structure;
    /* a create that fails ends the process: hipBLASLt, ROCm/rocm-libraries issue 11838 */
    bool exits_on_failure;
    /* a destroy that fails aborts: rocBLAS, and libraries with its handles */
    bool aborts_on_failure;
    bool keeps_workspace; /* a new stream keeps the workspace; cuBLAS goes back to its own */
    /* a new workspace frees the library's own memory: rocBLAS, library/src/rocblas_auxiliary.cpp */
    bool frees_own_memory;
    int modes[VENDOR_MODES]; /* the values in a new handle */
    /* an environment variable that overrides the atomics mode of a new handle */
    const char *atomics_variable;
    struct vendor_status texts[12];
};

extern const struct vendor_library vendor_library;

/* How a test makes calls of the library fail, by number and whatever the call: the `nth` from now
 * (1 is the next), and with `forever` all after it. 0 clears. `calls` and `hits`: how many calls
 * there were since then, and how many of them failed. A destroy that fails leaves the handle
 * alive. */
enum vendor_way {
    /* with one of the library's codes; the place for a handle gets what a failure of the library
     * leaves */
    VENDOR_FAILS,
    VENDOR_IS_OUT_OF_MEMORY,  /* the same with the code for lack of memory */
    VENDOR_SUCCEEDS_WITHOUT,  /* a create reports success and makes no handle */
    VENDOR_FAILS_WITH_GARBAGE /* a create leaves garbage where the handle would go */
};
struct vendor_failures {
    void (*fail)(unsigned long nth, bool forever, int way);
    unsigned long (*calls)(void);
    unsigned long (*hits)(void);
};
SIM_EXPORT extern const struct vendor_failures tarn_sim_failures;

/* How often a symbol of the library was called. It also takes these words: "alive": handles that
 * exist; "undestroyed": those of them whose destroy was made to fail; "misuse": uses of a pointer
 * that is not a handle, of a handle by two threads at once, and destroys on another device than the
 * handle's; "late": creates and destroys after the driver's end; "memory": blocks that handles have
 * from memory handlers of the program. No vendor's library has this symbol. */
SIM_EXPORT unsigned long tarn_sim_calls(const char *symbol);

/* Each function counts a call of `symbol` and returns one of the library's codes. `pointer` is a
 * handle; a new handle goes to `place`. */
int vendor_create(const char *symbol, void *place);
int vendor_destroy(const char *symbol, void *pointer);
int vendor_set_stream(const char *symbol, void *pointer, void *stream);
int vendor_get_stream(const char *symbol, void *pointer, void *place);
int vendor_set_workspace(const char *symbol, void *pointer, void *workspace, size_t size);
/* True if the handle uses a workspace that the program has set. */
int vendor_has_workspace(const char *symbol, void *pointer, bool *has);
int vendor_set_mode(const char *symbol, void *pointer, enum vendor_mode mode, int value);
int vendor_get_mode(const char *symbol, void *pointer, enum vendor_mode mode, int *value);
/* Sets a setting that is a pointer. Each library has at most one. */
int vendor_set_pointer(const char *symbol, void *pointer, void *value);
int vendor_get_pointer(const char *symbol, void *pointer, void **value);
int vendor_property(const char *symbol, int which, int *value);
const char *vendor_text(const char *symbol, int code);

/* The version as the vendor composes it: major * `major` + minor * `minor` + patch. */
int vendor_version_number(const char *symbol, int major, int minor);
/* The same for a function that takes a handle. */
int vendor_version_of(const char *symbol, void *pointer, int major, int minor, int *value);
/* Major, minor and patch. */
void vendor_version_parts(int parts[3]);
void vendor_count(const char *symbol);

/* A memory handler that a program has given to a handle, to be used instead of the driver. */
struct vendor_memory {
    void *context;
    void *(*alloc)(const struct vendor_memory *memory, size_t size, void *stream);
    void (*free)(const struct vendor_memory *memory, void *pointer, size_t size, void *stream);
    void (*theirs[2])(void); /* the program's own functions */
};

/* Gives a handle a memory handler; NULL takes it away. */
int vendor_give_memory(const char *symbol, void *pointer, const struct vendor_memory *memory);
/* vendor_take(): a block from the handle's memory handler, or from the driver if it has none.
 * vendor_give(): returns it. */
int vendor_take(const char *symbol, void *pointer, size_t size, void **block);
int vendor_put_back(const char *symbol, void *pointer, void *block, size_t size);

/* Begins an exported function, with a declaration first, as in the vendor's header. */
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
