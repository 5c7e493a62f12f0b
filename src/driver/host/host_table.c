/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The host device as tarn's driver. Calls that tarn itself makes must neither be refused because of
 * an open capture nor end it. So the calls that a capture forbids (host_capture.c) run in relaxed
 * mode, whatever the thread's mode is. */
#include "driver/host/host.h"

/* X(call, parameters, arguments) */
#define UNSAFE_CALL_LIST(X)                                                                    \
    X(device_synchronize, (int device), (device))                                              \
    X(alloc, (int device, size_t size, uintptr_t *address), (device, size, address))           \
    X(free, (int device, uintptr_t address), (device, address))                                \
    X(host_alloc, (int device, size_t size, uintptr_t *address), (device, size, address))      \
    X(host_free, (int device, uintptr_t address), (device, address))                           \
    X(host_register, (int device, uintptr_t address, size_t size), (device, address, size))    \
    X(host_unregister, (int device, uintptr_t address), (device, address))                     \
    X(reserve, (int device, size_t size, size_t alignment, uintptr_t *address),                \
      (device, size, alignment, address))                                                      \
    X(unreserve, (int device, uintptr_t address, size_t size), (device, address, size))        \
    X(create, (int device, size_t size, unsigned flags, driver_piece *piece),                  \
      (device, size, flags, piece))                                                            \
    X(release, (int device, driver_piece piece), (device, piece))                              \
    X(map, (int device, uintptr_t address, size_t size, driver_piece piece),                   \
      (device, address, size, piece))                                                          \
    X(unmap, (int device, uintptr_t address, size_t size), (device, address, size))            \
    X(set_access, (int device, uintptr_t address, size_t size, const int *devices, int count), \
      (device, address, size, devices, count))                                                 \
    X(set_read, (int device, uintptr_t address, size_t size, const int *devices, int count),   \
      (device, address, size, devices, count))                                                 \
    X(export, (int device, driver_piece piece, int *file), (device, piece, file))              \
    X(import, (int device, int file, size_t size, driver_piece *piece),                        \
      (device, file, size, piece))                                                             \
    X(stream_query, (int device, driver_stream stream), (device, stream))                      \
    X(stream_synchronize, (int device, driver_stream stream), (device, stream))                \
    X(event_query, (int device, driver_event event), (device, event))                          \
    X(event_synchronize, (int device, driver_event event), (device, event))                    \
    X(peer_enable, (int device, int peer), (device, peer))

#define X(call, parameters, arguments)                                                \
    static tarn_status relaxed_##call parameters                                      \
    {                                                                                 \
        enum driver_capture_mode before = host_mode_exchange(DRIVER_CAPTURE_RELAXED); \
        tarn_status status = host_##call arguments;                                   \
        host_mode_exchange(before);                                                   \
        return status;                                                                \
    }
UNSAFE_CALL_LIST(X)
#undef X

static tarn_status relaxed_event_wait_any(const driver_event *events, size_t count, size_t *ended)
{
    enum driver_capture_mode before = host_mode_exchange(DRIVER_CAPTURE_RELAXED);
    tarn_status status = host_event_wait_any(events, count, ended);
    host_mode_exchange(before);
    return status;
}

/* Entries that are not named here are the host device's functions. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
#endif
const struct driver driver_host = {
    .name = "host",
#define X(call, parameters) .call = host_##call,
    DRIVER_CALL_LIST(X)
#undef X
#define X(call, parameters, arguments) .call = relaxed_##call,
        UNSAFE_CALL_LIST(X)
#undef X
            .event_wait_any = relaxed_event_wait_any,
    .pause = host_pause,
    .owner_set = host_owner_set,
    .owner_clear = host_owner_clear,
    .checking = host_checking,
    .check = host_check,
    .identity = host_identity,
    .graph_walk = host_graph_walk,
    .finish = host_finish,
};
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
