/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statuses and the detail behind them.
 *
 * Every call that can fail returns a tarn_status. Results come through trailing out-parameters,
 * which a failed call leaves untouched unless its comment says otherwise. A failed call leaves live
 * blocks, their contents, pools, scopes, streams and handles as they were. Free memory that tarn
 * kept may have been released; a call that releases memory keeps what it has done before a failure.
 *
 * tarn_last_error() in core.h has the detail of a failure. The functions here are thread-safe. They
 * work during a capture, after a fork and after tarn_shutdown(). TARN_ERROR_SHUTDOWN also means
 * that the vendor's driver has shut down, as it does while the process exits.
 * TARN_ERROR_DEVICE_LOST is final: only a new process can use that device again. Blocks of a lost
 * device can still be freed. */
#ifndef TARN_STATUS_H
#define TARN_STATUS_H

#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ != 8
#error \
    "tarn needs 64 bits: it reserves several times a GPU's memory. Compile without -m32 or -mx32."
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Marks a public function: the shared library exports it. */
#if defined(__GNUC__)
#define TARN_API __attribute__((visibility("default")))
#else
#define TARN_API
#endif

/* Stands for "no limit" where a number of bytes is expected. 0 is a limit of 0 bytes. */
#define TARN_NO_LIMIT 18446744073709551615ul

/* X(name, value, text). Values are part of the ABI and never change. */
#define TARN_STATUS_LIST(X)                                                                 \
    X(TARN_OK, 0, "success")                                                                \
    X(TARN_ERROR_INVALID_ARGUMENT, 1, "an argument is outside what the call accepts")       \
    X(TARN_ERROR_OUT_OF_MEMORY, 2,                                                          \
      "the device, or a limit set on it, has no memory left for the request")               \
    X(TARN_ERROR_OUT_OF_HOST_MEMORY, 3,                                                     \
      "the host has no memory left for the library's own bookkeeping")                      \
    X(TARN_ERROR_INVALID_POINTER, 4, "the pointer is not the start of a live tarn block")   \
    X(TARN_ERROR_DOUBLE_FREE, 5, "the block was freed before")                              \
    X(TARN_ERROR_INVALID_DEVICE, 6, "there is no device with that number")                  \
    X(TARN_ERROR_INVALID_STREAM, 7, "the stream is unknown, retired, or of another device") \
    X(TARN_ERROR_NOT_READY, 8, "the work asked about has not finished")                     \
    X(TARN_ERROR_BUSY, 9, "the object is still in use")                                     \
    X(TARN_ERROR_CAPTURE, 10, "the call is not allowed while a stream captures")            \
    X(TARN_ERROR_DEVICE_LOST, 11, "an earlier error has left the device unusable")          \
    X(TARN_ERROR_MAPPING_LIMIT, 12,                                                         \
      "the process has reached the system's limit on memory mappings")                      \
    X(TARN_ERROR_DRIVER, 13, "a driver call failed")                                        \
    X(TARN_ERROR_NO_DRIVER, 14, "no driver could be loaded")                                \
    X(TARN_ERROR_LIBRARY_NOT_FOUND, 15, "a vendor library could not be loaded")             \
    X(TARN_ERROR_NOT_SUPPORTED, 16, "the driver or the device cannot do this")              \
    X(TARN_ERROR_FORKED, 17, "the process was forked after tarn was first used")            \
    X(TARN_ERROR_SHUTDOWN, 18, "tarn_shutdown() was called before")                         \
    X(TARN_ERROR_CONFIGURATION, 19,                                                         \
      "an environment variable or a configuration string is malformed")                     \
    X(TARN_ERROR_NO_ROOM, 20, "the block cannot grow where it is")                          \
    X(TARN_ERROR_INTERNAL, 21, "an invariant of the library is broken; please report it")   \
    X(TARN_ERROR_LIBRARY, 22, "a vendor library call failed")                               \
    X(TARN_ERROR_SCOPE, 23,                                                                 \
      "the scope has ended, is open already, or is not the newest of this thread")          \
    X(TARN_ERROR_SUSPENDED, 24, "the pool is suspended")                                    \
    X(TARN_ERROR_SYSTEM, 25, "a system call failed")

/* How a call ended. */
typedef enum tarn_status {
#define TARN_STATUS_ENUM(name, value, text) name = value,
    TARN_STATUS_LIST(TARN_STATUS_ENUM)
#undef TARN_STATUS_ENUM
} tarn_status;

/* Return the name of a status, such as "TARN_ERROR_OUT_OF_MEMORY", and its meaning as a sentence
 * without a full stop. For an unknown value the name is "TARN_UNKNOWN", and the meaning says that
 * this version does not know it. Never NULL; the strings are constant. */
TARN_API const char *tarn_status_name(tarn_status status);
TARN_API const char *tarn_status_text(tarn_status status);

/* Returns why the calling thread's last tarn_malloc() returned NULL. TARN_OK means that 0 bytes
 * were requested, or that the thread has not called tarn_malloc() yet. After a tarn_malloc() that
 * returned memory, the value is meaningless. No other function changes it: they return their
 * status. */
TARN_API tarn_status tarn_last_status(void);

#ifdef __cplusplus
}
#endif
#endif
