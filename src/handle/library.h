/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn knows of a vendor library: one row, and one small file, each. Adding a library is
 * adding a file and its line in TARN_LIBRARY_LIST. tests/abi/ compares the prototypes declared here
 * with the vendors' headers. */
#ifndef TARN_HANDLE_LIBRARY_H
#define TARN_HANDLE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/handle.h>

struct handle;

/* How its version is asked for. */
enum version_call {
    VERSION_NONE,
    VERSION_BY_PROPERTY, /* int f(int which, int *value): major, minor, patch */
    VERSION_BY_HANDLE, /* int f(handle, int *): a number that the vendor composes its own way; after
                          the first create */
    VERSION_BY_PARTS,  /* int f(size_t *major, size_t *minor, size_t *patch) */
    VERSION_BY_TEXT    /* int f(char *, size_t) */
};

/* A setting of a handle: int set(handle, int) and int get(handle, int *), or with void * for int.
 * Left out where the library lacks them. What a new thread finds is what the handle had when it was
 * made; 0 where the row names no `get`. */
struct library_mode {
    const char *set, *get;
    bool is_pointer;
};

/* The first ones can be set for all handles of a library: tarn_handle_mode_set(). */
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
    /* By soname: which releases of the toolkit have it. Any, where it comes apart from the toolkit
     * or its soname never changed. */
    unsigned releases[LIBRARY_SONAMES];

    /* Symbols. */
    const char *create;        /* int f(handle *) */
    const char *destroy;       /* int f(handle) */
    const char *set_stream;    /* int f(handle, stream); NULL: the stream is an argument of each
                                  call */
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
    bool frees_own_memory; /* the first set_workspace frees memory that the handle has of its own,
                              which no capture survives */
    bool unset_workspace;  /* setting the stream does not end the use of a workspace:
                              set_workspace(NULL, 0) does */
    bool unchecked;        /* no vendor header has been compared with this row */
    /* The handle is the caller's structure: create initializes and destroy ends what lies at a
     * pointer to so many bytes. 0: it is a pointer, which create gives. */
    size_t handle_bytes;
    int create_number;
    int out_of_memory[2]; /* statuses of create that mean so; 0: none */
    int may_be_full[4];   /* statuses of create that a full device gives, and other causes too */

    /* Bytes; NULL: no workspace */
    size_t (*workspace_size)(int capability_major, int capability_minor);
    const char *workspace_variables[2]; /* of the environment */
    tarn_library
        workspace_lender; /* workspace_by_call: whose workspaces serve where the environment says
                             so; 0: none's */
};

#define TARN_LIBRARY_ROW(NAME, number, name) extern const struct library library_##name;
TARN_LIBRARY_LIST(TARN_LIBRARY_ROW)
#undef TARN_LIBRARY_ROW

/* What libraries are made of: the calls, resolved. NULL where there is none. */
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

/* For give_memory: memory in the order of a vendor's stream, for the device of the handle. Gives
 * NULL when there is none. */
void *handle_memory_alloc(struct handle *handle, size_t size, void *native_stream);
/* False when the pointer is not tarn's. */
bool handle_memory_free(struct handle *handle, void *pointer, void *native_stream);
void *handle_vendor(struct handle *handle);
/* The native stream that the handle is bound to. */
void *handle_native_stream(struct handle *handle);

#endif
