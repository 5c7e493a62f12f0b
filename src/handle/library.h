/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn knows of a vendor library: a row, which is a small file of its own in libraries/. To
 * add a library, add such a file and a line to TARN_LIBRARY_LIST. tests/abi/ compares the
 * prototypes that are written here with the vendors' headers. */
#ifndef TARN_HANDLE_LIBRARY_H
#define TARN_HANDLE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/handle.h>

struct handle;

/* How a library is asked for its version. */
enum version_call {
    VERSION_NONE,
    VERSION_BY_PROPERTY, /* int f(int which, int *value): major, minor, patch */
    /* int f(handle, int *): a number that the vendor composes its own way; after the first
     * create. */
    VERSION_BY_HANDLE,
    VERSION_BY_PARTS, /* int f(size_t *major, size_t *minor, size_t *patch) */
    VERSION_BY_TEXT   /* int f(char *, size_t) */
};

/* A mode of a handle, by the names of two functions: int set(handle, int) and int get(handle,
 * int *); with `is_pointer` the value is a void *. A name that the library lacks is skipped. When a
 * handle goes to another thread, tarn sets the value that `get` returned for the new handle, or 0
 * if the row names no `get`. */
struct library_mode {
    const char *set, *get;
    bool is_pointer;
};

/* Places in a row's `modes`. tarn_handle_mode_set() can set those below COMMON_MODES. To add one
 * there, also add it to tarn_handle_mode, to the table in modes.c and to ENTRY in registry.c. A row
 * uses the places from MODE_FURTHER on as it likes. */
enum {
    MODE_MATH,
    MODE_ATOMICS,
    COMMON_MODES,
    MODE_POINTER = COMMON_MODES,
    MODE_FURTHER,
    LIBRARY_MODES = 10
};
#define LIBRARY_SONAMES 6

/* Major versions of a toolkit, CUDA's or ROCm's, as bits. */
#define LIBRARY_RELEASE(major) (1u << (major))
#define LIBRARY_ANY_RELEASE 0u

struct library {
    const char *name;
    tarn_platform platform;
    const char *sonames[LIBRARY_SONAMES]; /* newest first; NULL ends them */
    /* By soname: the releases of the toolkit that it belongs to, as bits. LIBRARY_ANY_RELEASE if
     * the library is published apart from the toolkit, or its soname never changed. */
    unsigned releases[LIBRARY_SONAMES];

    /* Symbols. */
    const char *create;  /* int f(handle *) */
    const char *destroy; /* int f(handle) */
    /* int f(handle, stream); NULL: the stream is an argument of each call. */
    const char *set_stream;
    const char *get_stream;    /* int f(handle, stream *) */
    const char *set_workspace; /* int f(handle, void *, size_t) */
    const char *status_text;   /* const char *f(int) */
    const char *version;
    enum version_call version_call;
    struct library_mode modes[LIBRARY_MODES];

    /* After a create: gives the library tarn's memory, through the optional symbol
     * `give_memory`. */
    const char *memory;
    int (*give_memory)(struct handle *handle, void *symbol);

    bool by_stream;             /* a handle keeps the stream that it began with */
    bool create_in_capture;     /* shown on hardware to be harmless */
    bool create_takes_number;   /* int f(handle *, create_number) */
    bool failed_handle_is_real; /* a handle that a failed create leaves must be destroyed */
    bool workspace_by_call;     /* the workspace is an argument of each call */
    /* The first set_workspace frees memory that the handle has of its own, which no capture
     * survives. */
    bool frees_own_memory;
    /* Setting the stream does not end the use of a workspace: set_workspace(NULL, 0) does. */
    bool unset_workspace;
    bool unchecked; /* no vendor header has been compared with this row */
    /* 0: the handle is a pointer, which create returns. Otherwise it is a structure of so many
     * bytes, which tarn allocates: create and destroy get its address. */
    size_t handle_bytes;
    int create_number;
    int out_of_memory[2]; /* statuses of create that mean "out of memory"; 0: none */
    /* Statuses of create that can mean it, but have other causes too; 0: none. */
    int may_be_full[4];

    /* Returns the bytes of a workspace. NULL: handles have none */
    size_t (*workspace_size)(int capability_major, int capability_minor);
    const char *workspace_variables[2]; /* of the environment */
    /* With workspace_by_call: the library whose workspaces serve this one too, if
     * TARN_CUBLASLT_UNIFIED_WORKSPACE=1 is set; 0: none */
    tarn_library workspace_lender;
};

#define TARN_LIBRARY_ROW(NAME, number, name) extern const struct library library_##name;
TARN_LIBRARY_LIST(TARN_LIBRARY_ROW)
#undef TARN_LIBRARY_ROW

/* The functions of a library that its row names, resolved. NULL: the library has no such
 * function. */
struct library_calls {
    int (*create)(void **handle);
    int (*create_with_number)(void **handle, int number);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*get_stream)(void *handle, void **stream);
    int (*set_workspace)(void *handle, void *pointer, size_t size);
    const char *(*status_text)(int status);
    struct mode_calls {
        int (*set)(void *handle, int value);
        int (*get)(void *handle, int *value);
        int (*set_pointer)(void *handle, void *value);
        int (*get_pointer)(void *handle, void **value);
    } modes[LIBRARY_MODES];
    void *version;
    void *memory;
};

/* For give_memory: allocates memory of the handle's device in the order of a vendor's stream. NULL:
 * there is none. */
void *handle_memory_alloc(struct handle *handle, size_t size, void *native_stream);
/* Frees it in the order of a vendor's stream. False if the pointer is not tarn's. */
bool handle_memory_free(struct handle *handle, void *pointer, void *native_stream);
void *handle_vendor(struct handle *handle);
/* The native stream that the handle is bound to. */
void *handle_native_stream(struct handle *handle);

#endif
